//! Typical mistakes and what the program says about them: `mistakes.txt` has the commands, their
//! expected output and their exit codes. Add a case by its line `$ packtrain ...`; a run with
//! `PACKTRAIN_BLESS=1` writes what the program says now.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketType, bind, getsockname, socket};

use crate::common::{Home, code, stderr, stdout};

const TABLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/mistakes.txt");

/// What the cases meet: files, ports, programs that pose as ssh, a store.
struct Scene {
    home: Home,
    /// A port at which nothing listens, although nothing else can take it.
    closed: (OwnedFd, u16),
    /// A port that another program has.
    taken: (TcpListener, u16),
    /// A server that speaks neither TLS nor our protocol; it answers as an S3 store.
    store: u16,
}

impl Scene {
    fn new() -> Self {
        let home = Home::new();
        home.file("a", b"a");
        home.file("dir/x", b"x");
        home.file("list", b"x\ntypo\n");
        home.file("bad-ticket", b"pt1-nonsense");
        home.file("zero.lst", b"x\0y\0");
        home.file("up.lst", b"../x\n");
        // Each names itself on its standard error, so that the table shows how often it ran.
        for (name, says, exit) in [
            ("ssh-unknown", "ssh: Could not resolve hostname h: Name or service not known", 255),
            ("ssh-denied", "me@h: Permission denied (publickey).", 255),
            ("ssh-new-host", "Host key verification failed.", 255),
            ("ssh-refused", "ssh: connect to host h port 22: Connection refused", 255),
            ("ssh-nologin", "This account is currently not available.", 3),
            ("ssh-missing", "sh: 1: packtrain: not found", 127),
        ] {
            let text = format!("#!/bin/sh\necho '{says}' >&2\nexit {exit}\n");
            let path = home.file(name, text.as_bytes());
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).expect("ours");
        }
        let any = rustix::net::SocketAddrV4::new([127, 0, 0, 1].into(), 0);
        let bound = socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
        bind(&bound, &any).expect("a free port");
        let address = getsockname(&bound).expect("bound");
        let port = std::net::SocketAddr::try_from(address).expect("an address").port();
        let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let at = taken.local_addr().expect("bound").port();
        Self { home, closed: (bound, port), taken: (taken, at), store: store() }
    }

    /// The line with the ports of this run.
    fn ports(&self, line: &str) -> String {
        line.replace("CLOSED", &self.closed.1.to_string())
            .replace("TAKEN", &self.taken.1.to_string())
            .replace("STORE", &self.store.to_string())
    }

    /// The text without what differs from run to run.
    fn normal(&self, text: &str) -> String {
        let root = self.home.state();
        let root = root.parent().expect("it has one").display().to_string();
        let text = text.replace(&root, "ROOT");
        text.replace(&format!(":{}", self.closed.1), ":CLOSED")
            .replace(&format!(":{}", self.taken.1), ":TAKEN")
            .replace(&format!(":{}", self.store), ":STORE")
    }

    /// Types the line to a shell. What it prints, and its exit code.
    fn run(&self, line: &str) -> String {
        let program = Path::new(env!("CARGO_BIN_EXE_packtrain"));
        let path = format!("{}:/usr/bin:/bin", program.parent().expect("a folder").display());
        let command = self.home.command();
        let environment: Vec<_> = command.get_envs().map(own).collect();
        // A command that waits for ever fails its case alone, with the exit code 124.
        let mut shell = std::process::Command::new("timeout");
        for (name, value) in environment {
            match value {
                Some(value) => shell.env(name, value),
                None => shell.env_remove(name),
            };
        }
        for name in ["AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "SSL_CERT_FILE"] {
            shell.env_remove(name);
        }
        let output = shell
            .args(["120", "sh", "-c", &self.ports(line)])
            .env("PATH", path)
            .env("NO_COLOR", "1")
            .current_dir(command.get_current_dir().expect("the working directory"))
            .stdin(std::process::Stdio::null())
            .output()
            .expect("the shell starts");
        drop(command);
        let mut text = stderr(&output);
        for line in stdout(&output).lines() {
            let _ = writeln!(text, "1> {line}");
        }
        format!("{}exit {}\n", self.normal(&text), code(&output))
    }
}

type Variable<'a> = (&'a std::ffi::OsStr, Option<&'a std::ffi::OsStr>);

fn own((name, value): Variable<'_>) -> (std::ffi::OsString, Option<std::ffi::OsString>) {
    (name.to_owned(), value.map(ToOwned::to_owned))
}

/// Answers as an S3 store that has no bucket `none` and refuses all else. Its port.
fn store() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("bound").port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || answer(stream));
        }
    });
    port
}

fn answer(mut stream: TcpStream) {
    let _ = stream.set_read_timeout(Some(Duration::from_secs(30)));
    let (mut asked, mut byte) = (Vec::new(), [0]);
    while !asked.ends_with(b"\r\n\r\n") && asked.len() < 8192 {
        match stream.read(&mut byte) {
            Ok(1) => asked.push(byte[0]),
            _ => break,
        }
        // TLS, which this does not speak, begins so.
        if asked[0] == 0x16 {
            break;
        }
    }
    let asked = String::from_utf8_lossy(&asked).into_owned();
    let (status, code) = match asked.contains("/none") {
        true => ("404 Not Found", "NoSuchBucket"),
        false => ("403 Forbidden", "AccessDenied"),
    };
    let document = match asked.starts_with("HEAD") {
        true => String::new(),
        false => format!("<Error><Code>{code}</Code></Error>"),
    };
    let length = document.len();
    let _ = write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{document}"
    );
}

#[test]
fn typical_mistakes_say_what_the_table_says() {
    let table = std::fs::read_to_string(TABLE).expect("the table is part of the sources");
    let scene = Scene::new();
    let (mut now, mut cases) = (String::new(), Vec::new());
    for line in table.lines() {
        if line.starts_with('#') {
            let _ = writeln!(now, "{line}\n");
        } else if let Some(command) = line.strip_prefix("$ ") {
            let said = scene.run(command);
            let _ = writeln!(now, "{line}\n{said}");
            cases.push(format!("{line}\n{said}"));
        }
    }
    if std::env::var_os("PACKTRAIN_BLESS").is_some() {
        std::fs::write(TABLE, &now).expect("the sources can be written");
        return;
    }
    assert!(cases.len() >= 60, "only {} mistakes", cases.len());
    for (wanted, found) in table.split("\n\n").zip(now.split("\n\n")) {
        assert_eq!(found.trim(), wanted.trim(), "PACKTRAIN_BLESS=1 accepts what it says now");
    }
    assert_eq!(now.trim(), table.trim());
    // No case worked by accident, and no message is that of a library.
    for case in cases {
        assert!(!case.ends_with("exit 0\n"), "{case}");
        for word in ["os error", "Os {", "unwrap", "panicked", "``", "//:", ": :"] {
            assert!(!case.contains(word), "`{word}` in\n{case}");
        }
    }
}
