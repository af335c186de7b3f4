//! A real PostgreSQL, started for one test. Other crates' tests use this file too.
#![allow(dead_code, reason = "not every user asks for everything")]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A separate server: data, socket and log in one temporary directory.
pub(crate) struct Server {
    dir: tempfile::TempDir,
    child: Child,
    port: u16,
}

const PASSWORD: &str = "pass: w%rd";

fn skip(why: &str) {
    packtrain_testkit::skip(&format!("no PostgreSQL: {why}"));
}

/// The newest version among Debian's installations.
fn programs() -> Option<PathBuf> {
    let found = std::fs::read_dir("/usr/lib/postgresql").ok()?;
    let mut all: Vec<PathBuf> = found.flatten().map(|entry| entry.path().join("bin")).collect();
    all.retain(|bin| bin.join("initdb").exists() && bin.join("postgres").exists());
    all.sort();
    all.pop()
}

/// PostgreSQL refuses to run as root, so root runs it as the user of its package.
fn command(program: &Path) -> Command {
    if is_root() {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups", "--"]);
        command.arg(program);
        command
    } else {
        Command::new(program)
    }
}

impl Server {
    /// Starts a server; the error is the reason why it cannot be started.
    pub(crate) fn start() -> Option<Self> {
        let Some(bin) = programs() else {
            skip("none below /usr/lib/postgresql: install the package postgresql");
            return None;
        };
        let dir = tempfile::tempdir().expect("a directory");
        if is_root() {
            let owned = Command::new("chown").arg("postgres").arg(dir.path()).status();
            assert!(owned.expect("chown").success(), "the user postgres is missing");
        }
        let data = dir.path().join("data");
        let secret = dir.path().join("secret");
        std::fs::write(&secret, PASSWORD).expect("written");
        let made = command(&bin.join("initdb"))
            .args(["-U", "tester", "-A", "scram-sha-256", "-E", "UTF8", "--no-sync", "-D"])
            .arg(&data)
            .arg(format!("--pwfile={}", secret.display()))
            .current_dir(dir.path())
            .stdout(Stdio::null())
            .output()
            .expect("initdb starts");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let encrypted = certificate(dir.path());
        let port = free_port();
        let mut server = command(&bin.join("postgres"));
        server.arg("-D").arg(&data).arg("-k").arg(dir.path());
        server.args(["-h", "127.0.0.1", "-F", "-p", &port.to_string()]);
        if encrypted {
            for (name, file) in [("ssl_cert_file", "cert.pem"), ("ssl_key_file", "key.pem")] {
                server.arg("-c").arg(format!("{name}={}", dir.path().join(file).display()));
            }
            server.args(["-c", "ssl=on"]);
        }
        let log = std::fs::File::create(dir.path().join("log")).expect("made");
        let child = server
            .current_dir(dir.path())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("postgres starts");
        Some(Self { dir, child, port })
    }

    /// Its log.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    /// Its URL with the password, and `rest` at the end.
    pub(crate) fn url(&self, rest: &str) -> String {
        let port = self.port;
        format!("postgresql://tester:pass%3A%20w%25rd@127.0.0.1:{port}/postgres{rest}")
    }

    /// The port that it listens at.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// A file in its directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}

/// Whether the tests run as root.
fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt as _;
    std::fs::metadata("/proc/self").is_ok_and(|me| me.uid() == 0)
}

impl Drop for Server {
    fn drop(&mut self) {
        // The server's own process id is in its file, since the child may be setpriv's.
        let pid = std::fs::read_to_string(self.dir.path().join("data/postmaster.pid"));
        let pid = pid.ok().and_then(|text| text.lines().next()?.trim().parse::<u32>().ok());
        let told = pid.map(|pid| Command::new("kill").args(["-INT", &pid.to_string()]).status());
        if !told.is_some_and(|told| told.is_ok_and(|status| status.success())) {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}

/// A free port.
pub(crate) fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    listener.local_addr().expect("its number").port()
}

/// Creates a self-signed certificate for localhost; false if openssl is not installed.
fn certificate(dir: &Path) -> bool {
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"])
        .args(["-nodes", "-days", "2", "-subj", "/CN=localhost"])
        .args(["-addext", "subjectAltName=IP:127.0.0.1"])
        .args(["-addext", "basicConstraints=critical,CA:FALSE"])
        .arg("-keyout")
        .arg(dir.join("key.pem"))
        .arg("-out")
        .arg(dir.join("cert.pem"))
        .output();
    if !made.is_ok_and(|made| made.status.success()) {
        skip("openssl is missing: the test with TLS");
        return false;
    }
    let key = dir.join("key.pem");
    let _ = Command::new("chown").arg("postgres").arg(&key).status();
    let _ = Command::new("chmod").arg("600").arg(&key).status();
    true
}
