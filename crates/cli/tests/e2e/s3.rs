//! Copies to and from moto's S3 server, with kills during the copies.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::rig::{Ended, Rig, free_port, send, skipped};
use crate::tree::{self, MIB};

/// The server. Its objects are removed with it.
struct Store {
    child: Child,
    address: SocketAddr,
}

impl Store {
    /// A server with the bucket `bucket`; `None` if this machine has no moto.
    fn start(rig: &Rig) -> Option<Self> {
        let Some(program) = program() else {
            skipped("no moto_server: `cargo xtask test` installs it");
            return None;
        };
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let log = fs::File::create(rig.path("moto.log")).expect("a file");
        let child = Command::new(program)
            .args(["-H", "127.0.0.1", "-p", &address.port().to_string()])
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a file"))
            .stderr(log)
            .spawn()
            .expect("it starts");
        let store = Self { child, address };
        let begun = Instant::now();
        while store.ask("PUT /bucket").is_none_or(|answer| !answer.contains(" 200 ")) {
            assert!(begun.elapsed() < Duration::from_secs(60), "moto does not answer");
            std::thread::sleep(Duration::from_millis(100));
        }
        Some(store)
    }

    fn ask(&self, what: &str) -> Option<String> {
        let mut socket = TcpStream::connect(self.address).ok()?;
        let host = self.address;
        let head = format!("{what} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\n\r\n");
        socket.write_all(head.as_bytes()).ok()?;
        socket.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
        let mut answer = vec![0; 64 << 10];
        let n = socket.read(&mut answer).ok()?;
        // Headers and bodies may arrive one after the other.
        std::thread::sleep(Duration::from_millis(20));
        let more = socket.read(&mut answer[n..]).unwrap_or(0);
        Some(String::from_utf8_lossy(&answer[..n + more]).into_owned())
    }

    fn cp(&self, rig: &Rig) -> Command {
        let mut command = rig.packtrain();
        for (name, _) in std::env::vars_os() {
            let name = name.to_string_lossy().to_uppercase();
            if name.starts_with("AWS_") || name.ends_with("_PROXY") {
                command.env_remove(&name).env_remove(name.to_lowercase());
            }
        }
        let home = rig.path("home");
        fs::create_dir_all(home.join(".aws")).expect("a folder");
        let secrets = "[tests]\naws_access_key_id = AKIAIOSFODNN7EXAMPLE\n\
                       aws_secret_access_key = wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY\n";
        fs::write(home.join(".aws/credentials"), secrets).expect("a file");
        let endpoint = format!("http://{}", self.address);
        command.env("HOME", home).env("AWS_PROFILE", "tests").env("AWS_ENDPOINT_URL", endpoint);
        command.args(["cp", "--json"]);
        command
    }

    fn uploads(&self) -> usize {
        self.ask("GET /bucket?uploads").unwrap_or_default().matches("<UploadId>").count()
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn program() -> Option<PathBuf> {
    let own = Path::new(env!("CARGO_TARGET_TMPDIR")).join("../moto/bin/moto_server");
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&paths).map(|dir| dir.join("moto_server"));
    std::iter::once(own).chain(on_path).find(|path| path.is_file())
}

fn same(a: &Path, b: &Path) {
    assert!(fs::read(a).expect("it is there") == fs::read(b).expect("it is there"), "{b:?}");
}

fn kill_after(rig: &Rig, command: &mut Command, wait: Duration) -> Ended {
    let running = rig.start(command);
    std::thread::sleep(wait);
    send("KILL", running.pid());
    running.wait()
}

#[test]
#[ignore = "needs moto's server; `cargo xtask test` runs it"]
fn files_go_to_a_store_and_come_back() {
    let rig = Rig::local();
    let Some(store) = Store::start(&rig) else { return };
    let src = rig.path("src");
    fs::create_dir_all(src.join("deep/er")).expect("a folder");
    for (name, size) in [
        ("empty", 0),
        ("one", 1),
        ("a chunk", 4 * MIB),
        ("deep/er/small ü+&%", 70_001),
        ("deep/parts", 33 * MIB + 7),
    ] {
        tree::file(&src.join(name), size, size);
    }
    let up =
        rig.ok(store.cp(&rig).args(["-r", "--streams", "4"]).arg(&src).arg("s3://bucket/top/"));
    assert_eq!((up.number("files_moved"), up.number("failed")), (5, 0), "{}", up.stderr);
    assert_eq!(store.uploads(), 0, "nothing is left open");
    let again = rig.ok(store.cp(&rig).arg("-r").arg(&src).arg("s3://bucket/top"));
    assert_eq!((again.number("unchanged"), again.number("bytes_moved")), (5, 0));

    let down = rig.ok(store.cp(&rig).args(["-r", "s3://bucket/top/src/"]).arg(rig.path("back")));
    assert_eq!(down.number("files_moved"), 5, "{}", down.stderr);
    for name in ["empty", "one", "a chunk", "deep/er/small ü+&%", "deep/parts"] {
        same(&src.join(name), &rig.path("back").join(name));
    }
    let again = rig.ok(store.cp(&rig).args(["-r", "s3://bucket/top/src/"]).arg(rig.path("back")));
    assert_eq!((again.number("unchanged"), again.number("bytes_moved")), (5, 0));
    // An object that exists, and one that does not.
    rig.ok(store.cp(&rig).arg("s3://bucket/top/src/deep/parts").arg(rig.path("alone")));
    same(&src.join("deep/parts"), &rig.path("alone"));
    let none = rig.run(store.cp(&rig).arg("s3://bucket/top/nothing").arg(rig.path("x")));
    assert_eq!(none.code, 3, "{}", none.stderr);
    let none = rig.run(store.cp(&rig).arg(src.join("one")).arg("s3://nobucket/x"));
    assert_eq!(none.code, 4, "{}", none.stderr);
    // A file with a key of its own choice: a changed file is uploaded again.
    tree::file(&src.join("one"), 2, 9);
    let one = rig.ok(store.cp(&rig).arg(src.join("one")).arg("s3://bucket/other name"));
    assert_eq!(one.number("bytes_moved"), 2);
    rig.ok(store.cp(&rig).arg("s3://bucket/other name").arg(rig.path("o")));
    same(&src.join("one"), &rig.path("o"));
}

#[test]
#[ignore = "needs moto's server; `cargo xtask test` runs it"]
fn what_was_killed_goes_on() {
    let rig = Rig::local();
    let Some(store) = Store::start(&rig) else { return };
    let big = rig.path("big");
    tree::file(&big, 72 * MIB + 5, 3);
    let up = |rate: &str| {
        let mut command = store.cp(&rig);
        command.args(["--streams", "3", "--rate", rate]).arg(&big).arg("s3://bucket/big");
        command
    };
    kill_after(&rig, &mut up("150mbit"), Duration::from_millis(2_500));
    assert_eq!(store.uploads(), 1, "its parts are there");
    let ended = rig.ok(&mut up("10gbit"));
    let (moved, resumed) = (ended.number("bytes_moved"), ended.number("bytes_resumed"));
    assert!(resumed >= 8 * MIB, "{moved} {resumed}");
    assert_eq!(moved + resumed, 72 * MIB + 5);
    assert_eq!(store.uploads(), 0);

    let down = |rate: &str| {
        let mut command = store.cp(&rig);
        command.args(["--streams", "3", "--rate", rate, "s3://bucket/big"]).arg(rig.path("back"));
        command
    };
    kill_after(&rig, &mut down("150mbit"), Duration::from_millis(3_000));
    assert!(!rig.path("back").exists(), "nothing has its name before all is there");
    let ended = rig.ok(&mut down("10gbit"));
    assert!(ended.number("bytes_resumed") >= 4 * MIB, "{}", ended.number("bytes_resumed"));
    same(&big, &rig.path("back"));

    // Another version under the same key: no data of the old version is kept.
    kill_after(&rig, &mut up("150mbit"), Duration::from_millis(100));
    tree::file(&big, 72 * MIB + 5, 4);
    rig.ok(&mut up("10gbit"));
    rig.ok(&mut down("10gbit"));
    same(&big, &rig.path("back"));
    assert_eq!(fs::metadata(rig.path("back")).map(|m| m.len()).ok(), Some(72 * MIB + 5));
}
