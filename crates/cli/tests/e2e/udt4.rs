//! The wire of the stock UDT library from the command line: with the library itself, where this
//! machine has it, and with servers that violate the protocol.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use packtrain_socket::{Listener, Options, Socket};

use crate::rig::{Ended, Rig, Running, free_port, skipped, wait_until};
use crate::tree;

const IN_CLEAR: &str = "udt4 is not encrypted or verified";

/// The stock library's program, built from the source in the tests of `crates/socket`.
fn stock(rig: &Rig) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../socket/tests/interop/stock.cpp");
    let program = rig.path("stock");
    let mut command = Command::new("g++");
    command.args(["-O1", "-o"]).arg(&program).arg(source).args(["-ludt", "-lpthread"]);
    let built = command.output().is_ok_and(|output| output.status.success());
    if !built {
        skipped("the stock UDT library is not here (Debian's g++ and libudt-dev)");
    }
    built.then_some(program)
}

/// Starts a packtrain server and waits until it reports that it listens.
fn serve(rig: &Rig, words: &[&str]) -> Running {
    let running = rig.start(rig.packtrain().args(words));
    running.when_up(|running| running.stderr().contains("listening on"))
}

fn fetch(rig: &Rig, port: u16, name: &str, to: &Path) -> Ended {
    let place = format!("udt4://127.0.0.1:{port}/{name}");
    rig.run(rig.packtrain().args(["cp", "--retries", "0", &place]).arg(to))
}

/// Asserts that only these names are in the folder.
fn holds(dir: &Path, names: &[&str]) {
    let mut there: Vec<String> = fs::read_dir(dir)
        .expect("a folder")
        .map(|item| item.expect("readable").file_name().to_string_lossy().into_owned())
        .collect();
    there.sort();
    assert_eq!(there, names);
}

#[test]
fn files_come_from_the_stock_server() {
    let rig = Rig::local();
    let Some(stock) = stock(&rig) else { return };
    tree::file(&rig.path("file"), 2_000_003, 1);
    tree::file(&rig.path("empty"), 0, 1);
    fs::create_dir(rig.path("to")).expect("a folder");
    let port = free_port();
    let mut server = Command::new(stock);
    server.args(["serve-file", &format!("port={port}"), "files=4"]);
    let server = rig.start(server.current_dir(rig.path("")));
    thread::sleep(Duration::from_millis(300));
    let ended = fetch(&rig, port, "file", &rig.path("to"));
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(ended.stderr.contains(IN_CLEAR), "{}", ended.stderr);
    assert!(fs::read(rig.path("to/file")).ok() == fs::read(rig.path("file")).ok());
    let absolute = rig.path("empty").display().to_string();
    let ended = fetch(&rig, port, &absolute, &rig.path("to/named"));
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert_eq!(fs::metadata(rig.path("to/named")).expect("a file").len(), 0);
    let ended = fetch(&rig, port, "none", &rig.path("to"));
    assert_eq!(ended.code, 3, "{}", ended.stderr);
    assert!(ended.stderr.contains("no such file"), "{}", ended.stderr);
    holds(&rig.path("to"), &["file", "named"]);
    let place = format!("udt4://127.0.0.1:{port}/file");
    let ended = rig.ok(rig.packtrain().args(["cp", &place, "-"]));
    assert!(Some(ended.stdout) == fs::read(rig.path("file")).ok());
    assert_eq!(server.wait().code, 0);
}

/// The next fetch replaces the files that a killed fetch left, and `clean` recognises them.
#[test]
fn a_killed_fetch_leaves_nothing_for_good() {
    let rig = Rig::local();
    fs::create_dir_all(rig.path("root")).expect("a folder");
    fs::create_dir_all(rig.path("to")).expect("a folder");
    tree::file(&rig.path("root/file"), 20_000_000, 2);
    let (port, root) = (free_port(), rig.path("root").display().to_string());
    let at = format!("127.0.0.1:{port}");
    let _server = serve(&rig, &["serve", "--udt4", &at, "--root", &root]);
    let place = format!("udt4://{at}/file");
    let kill = || {
        let mut command = rig.packtrain();
        command.args(["cp", "--retries", "0", "--rate", "20mbit", &place]).arg(rig.path("to"));
        let running = rig.start(&mut command);
        let arrives = |item: fs::DirEntry| item.metadata().is_ok_and(|meta| meta.len() > 100_000);
        wait_until("a file arrives", || {
            fs::read_dir(rig.path("to")).expect("a folder").flatten().any(arrives)
        });
        crate::rig::send("KILL", running.pid());
        running.wait();
        assert!(fs::read_dir(rig.path("to")).expect("a folder").count() > 0, "it left something");
    };
    kill();
    let ended = fetch(&rig, port, "file", &rig.path("to"));
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    holds(&rig.path("to"), &["file"]);
    fs::remove_file(rig.path("to/file")).expect("it is there");
    kill();
    rig.ok(rig.packtrain().arg("clean").arg(rig.path("to")));
    holds(&rig.path("to"), &[]);
}

#[test]
fn the_stock_client_is_served_below_the_root_only() {
    let rig = Rig::local();
    let Some(stock) = stock(&rig) else { return };
    fs::create_dir(rig.path("root")).expect("a folder");
    tree::file(&rig.path("root/file"), 1_500_000, 2);
    tree::file(&rig.path("secret"), 100, 3);
    let (port, root) = (free_port(), rig.path("root").display().to_string());
    let at = format!("127.0.0.1:{port}");
    let server = serve(&rig, &["serve", "--udt4", &at, "--root", &root]);
    assert!(server.stderr().contains(IN_CLEAR));
    let get = |name: &str, to: &str| {
        let (port, name) = (format!("port={port}"), format!("name={name}"));
        let to = format!("to={}", rig.path(to).display());
        let mut command = Command::new(&stock);
        rig.start(command.args(["fetch-file", &port, &name, &to]))
    };
    // Several clients at once.
    let all: Vec<_> = (0..4).map(|i| get("file", &format!("got-{i}"))).collect();
    for (i, running) in all.into_iter().enumerate() {
        assert_eq!(running.wait().code, 0);
        let got = fs::read(rig.path(&format!("got-{i}"))).ok();
        assert!(got == fs::read(rig.path("root/file")).ok(), "{i}");
    }
    for name in ["../secret", "none"] {
        let told = get(name, "not").wait().stdout;
        assert!(told.starts_with(b"ok bytes=-1"), "{}", String::from_utf8_lossy(&told));
    }
    holds(&rig.path("root"), &["file"]);
}

#[test]
fn a_server_that_misbehaves_leaves_nothing_behind() {
    let rig = Rig::local();
    fs::create_dir(rig.path("to")).expect("a folder");
    fs::write(rig.path("to/old"), b"kept").expect("a file");
    let local = SocketAddr::from(([127, 0, 0, 1], 0));
    let listener = Listener::bind(local, &Options::default()).expect("a port");
    let port = listener.local_addr().port();
    let closes_early = |socket: &Socket| {
        socket.send_all(&1_000_000_i64.to_ne_bytes()).expect("room");
        socket.send_all(&[7; 500_000]).expect("room");
    };
    let says_nothing = |_: &Socket| {};
    let claims_much = |socket: &Socket| {
        socket.send_all(&i64::MAX.to_ne_bytes()).expect("room");
        // The server waits for the client's reaction.
        let _ = socket.recv(&mut [0; 1]);
    };
    let has_none = |socket: &Socket| socket.send_all(&(-5_i64).to_ne_bytes()).expect("room");
    type Server<'a> = &'a (dyn Fn(&Socket) + Sync);
    let cases: [(Server<'_>, u8, &str); 4] = [
        (&closes_early, 5, "after 500000 of 1000000 bytes"),
        (&says_nothing, 5, "before it sent the file's size"),
        (&claims_much, 7, "has less room"),
        (&has_none, 3, "no such file (it answered with size -5)"),
    ];
    for (server, code, says) in cases {
        thread::scope(|scope| {
            let listener = &listener;
            scope.spawn(move || {
                let (socket, _) = listener.accept().expect("a caller");
                let mut len = [0; 4];
                std::io::Read::read_exact(&mut &socket, &mut len).expect("a length");
                let mut name = vec![0; i32::from_ne_bytes(len) as usize];
                std::io::Read::read_exact(&mut &socket, &mut name).expect("a name");
                assert_eq!(name, b"old");
                server(&socket);
                let _ = socket.close();
            });
            let ended = fetch(&rig, port, "old", &rig.path("to"));
            assert_eq!(ended.code, i32::from(code), "{says}: {}", ended.stderr);
            assert!(ended.stderr.contains(says), "{says}: {}", ended.stderr);
        });
        holds(&rig.path("to"), &["old"]);
        assert_eq!(fs::read(rig.path("to/old")).expect("a file"), b"kept");
    }
}

/// The first connection ends after half of the file, and the second would send all of it.
#[test]
fn standard_output_gets_no_byte_twice() {
    let rig = Rig::local();
    let local = SocketAddr::from(([127, 0, 0, 1], 0));
    let listener = Listener::bind(local, &Options::default()).expect("a port");
    let place = format!("udt4://127.0.0.1:{}/x", listener.local_addr().port());
    let file: Vec<u8> = (0..1_000_000_u32).map(|n| (n % 251) as u8).collect();
    let serve = |upto: usize| {
        let (socket, _) = listener.accept().expect("a caller");
        // The length of the name, and the name.
        std::io::Read::read_exact(&mut &socket, &mut [0; 5]).expect("a name");
        socket.send_all(&(file.len() as i64).to_ne_bytes()).expect("room");
        socket.send_all(&file[..upto]).expect("room");
        let _ = socket.close();
    };
    let mut running = rig.start(rig.packtrain().args(["cp", &place, "-"]));
    serve(500_000);
    wait_until("the command ended or called again", || {
        running.ended() || running.stderr().contains("trying again")
    });
    let ended = running.wait();
    assert_eq!(ended.code, 5, "{}", ended.stderr);
    assert!(ended.stderr.contains("run the whole pipe again"), "{}", ended.stderr);
    assert!(ended.stderr.contains("after 500000 of 1000000 bytes"), "{}", ended.stderr);
    assert!(ended.stdout == file[..500_000], "{} bytes", ended.stdout.len());
    // Without a standard output the data goes nowhere.
    let mut closed = Command::new("sh");
    closed.args(["-c", "exec \"$0\" cp \"$1\" - >&-", env!("CARGO_BIN_EXE_packtrain"), &place]);
    closed.env("XDG_STATE_HOME", rig.path("state")).env("XDG_CONFIG_HOME", rig.path("config"));
    let ended = rig.run(&mut closed);
    assert_eq!(ended.code, 7, "{}", ended.stderr);
    assert!(ended.stderr.contains("standard output"), "{}", ended.stderr);
}

#[test]
fn an_interrupted_fetch_ends_with_the_signal() {
    let rig = Rig::local();
    fs::create_dir(rig.path("to")).expect("a folder");
    let local = SocketAddr::from(([127, 0, 0, 1], 0));
    let listener = Listener::bind(local, &Options::default()).expect("a port");
    let place = format!("udt4://127.0.0.1:{}/x", listener.local_addr().port());
    let running = rig.start(rig.packtrain().args(["cp", &place]).arg(rig.path("to")));
    let (socket, _) = listener.accept().expect("a caller");
    socket.send_all(&1_000_000_i64.to_ne_bytes()).expect("room");
    socket.send_all(&[7; 1_000]).expect("room");
    wait_until("a temporary file", || fs::read_dir(rig.path("to")).expect("a folder").count() == 1);
    crate::rig::send("TERM", running.pid());
    let ended = running.wait();
    assert_eq!(ended.code, 128 + 15, "{}", ended.stderr);
    holds(&rig.path("to"), &[]);
}

#[test]
fn memory_to_memory_both_ways() {
    let rig = Rig::local();
    let at = format!("127.0.0.1:{}", free_port());
    let words = ["perf", "server", "--listen", &at, "--transport", "udt4", "--tests", "4"];
    let server = serve(&rig, &words);
    for more in [&["--bytes", "20000000"][..], &["--bytes", "20000001", "--parallel", "2"]] {
        let words = ["perf", "client", &at, "--transport", "udt4", "--cc", "udt:grid", "--json"];
        let ended = rig.ok(rig.packtrain().args(words).args(more));
        assert!(matches!(ended.number("bytes"), 20_000_000 | 20_000_001), "{more:?}");
        assert!(ended.stderr.contains(IN_CLEAR), "{}", ended.stderr);
    }
    let words = ["perf", "client", &at, "--transport", "udt4", "--json", "--reverse"];
    let ended = rig.ok(rig.packtrain().args(words).args(["--bytes", "20000000"]));
    assert_eq!(ended.number("bytes"), 20_000_000);
    let ended = server.wait();
    assert_eq!(ended.code, 0, "{}", ended.stderr);
}

#[test]
fn memory_to_stock_programs() {
    let rig = Rig::local();
    let Some(stock) = stock(&rig) else { return };
    let port = free_port();
    let mut sink = Command::new(&stock);
    sink.args(["sink", "how=listen", &format!("port={port}"), "raw=1"]);
    let sink = rig.start(&mut sink);
    thread::sleep(Duration::from_millis(200));
    let at = format!("127.0.0.1:{port}");
    let words = ["perf", "client", &at, "--transport", "udt4", "--bytes", "5000000", "--json"];
    let ended = rig.ok(rig.packtrain().args(words));
    assert_eq!(ended.number("bytes"), 5_000_000);
    let told = sink.wait().stdout;
    assert!(told.starts_with(b"ok bytes=5000000 "), "{}", String::from_utf8_lossy(&told));
    let words =
        ["perf", "server", "--listen", &at, "--transport", "udt4", "--tests", "1", "--json"];
    let mut server = rig.packtrain();
    let server = rig.start(server.args(words));
    thread::sleep(Duration::from_millis(200));
    let mut source = Command::new(&stock);
    source.args(["source", "how=connect", &format!("port={port}"), "bytes=5000000", "raw=1"]);
    assert_eq!(rig.start(&mut source).wait().code, 0);
    let ended = server.wait();
    let lines = String::from_utf8_lossy(&ended.stdout).into_owned();
    assert!(lines.contains("\"event\":\"finished\"") && lines.contains("5000000"), "{lines}");
}
