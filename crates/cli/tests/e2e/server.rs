//! The server: tickets, keys, its root, and unauthenticated connections.

use std::fs;
use std::io::Write;
use std::net::{TcpStream, UdpSocket};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::rig::{Dice, Rig, Running, contents, free_port, listens, send};
use crate::tree::{self, MIB, assert_same};

/// A server on a free port with a ticket, and its port.
pub(crate) fn serve(rig: &Rig, more: &[&str]) -> (Running, u16) {
    let port = free_port();
    let ticket = rig.path("ticket");
    let ticket = ticket.to_str().expect("text");
    let more: Vec<&str> = ["--ticket-file", ticket].iter().chain(more).copied().collect();
    (serve_at(rig, port, &more), port)
}

/// A server on this port, which listens.
pub(crate) fn serve_at(rig: &Rig, port: u16, more: &[&str]) -> Running {
    fs::create_dir_all(rig.path("root")).expect("a folder");
    let mut command = as_server(rig);
    command.args(["serve", "--listen", &format!("127.0.0.1:{port}"), "--root"]);
    rig.start(command.arg(rig.path("root")).args(more)).when_up(|running| {
        // The server prints this line after it wrote the ticket; with --json it goes to stdout.
        let told = running.stderr().contains("listening") || more.contains(&"--json");
        let written = || fs::metadata(rig.path("ticket")).is_ok_and(|found| found.len() > 0);
        let written = !more.contains(&"--ticket-file") || written();
        told && written && listens(("127.0.0.1", port))
    })
}

/// `packtrain` with the state directory of the server, which represents another machine.
pub(crate) fn as_server(rig: &Rig) -> Command {
    let mut command = rig.packtrain();
    command.env("XDG_STATE_HOME", rig.path("far-state"));
    command.env("XDG_CONFIG_HOME", rig.path("far-config"));
    command
}

pub(crate) fn ticket(rig: &Rig) -> String {
    format!("@{}", rig.path("ticket").display())
}

#[test]
fn to_and_from_a_server_with_a_ticket() {
    let rig = Rig::local();
    tree::odd(&rig.path("src"));
    let (_server, port) = serve(&rig, &[]);
    let place = format!("pt://127.0.0.1:{port}/dst");
    let mut put = rig.cp();
    rig.ok(put.args(["--ticket", &ticket(&rig)]).arg(contents(&rig.path("src"))).arg(&place));
    assert_same(&rig.path("src"), &rig.path("root/dst"));
    let mut get = rig.cp();
    get.args(["--ticket", &ticket(&rig)]).arg(format!("{place}/")).arg(rig.path("back"));
    rig.ok(&mut get);
    assert_same(&rig.path("src"), &rig.path("back"));
}

/// The files of a copy to a server are final when the copy ends, not some round trips later.
#[test]
fn nothing_of_ours_is_left_at_a_server_when_the_copy_has_ended() {
    let rig = Rig::local();
    let (_server, port) = serve(&rig, &[]);
    for n in 0..30 {
        tree::file(&rig.path("f"), 5000 + n, n);
        let mut put = rig.cp();
        put.args(["--ticket", &ticket(&rig)]).arg(rig.path("f"));
        rig.ok(put.arg(format!("pt://127.0.0.1:{port}/")));
        let names: Vec<_> = fs::read_dir(rig.path("root"))
            .expect("its root")
            .flatten()
            .map(|e| e.file_name())
            .collect();
        assert_eq!(names, ["f"], "copy {n}");
    }
}

#[test]
fn a_link_that_changed_at_either_side_is_a_change() {
    let rig = Rig::local();
    let (_server, port) = serve(&rig, &[]);
    fs::create_dir(rig.path("src")).expect("a folder");
    tree::file(&rig.path("src/f"), 5000, 1);
    let place = format!("pt://127.0.0.1:{port}/dst");
    for to in ["v1", "v2"] {
        let _ = fs::remove_file(rig.path("src/current"));
        std::os::unix::fs::symlink(to, rig.path("src/current")).expect("a link");
        for code in [0, 9] {
            let cp = |from: &std::ffi::OsStr, to: &std::ffi::OsStr| {
                let mut cp = rig.cp();
                cp.args(["--error-on-no-transfer", "--ticket", &ticket(&rig)]).arg(from).arg(to);
                let ended = rig.run(&mut cp);
                assert_eq!(ended.code, code, "{from:?}: {}", ended.stderr);
            };
            cp(&contents(&rig.path("src")), place.as_ref());
            cp(format!("{place}/").as_ref(), rig.path("back").as_os_str());
        }
    }
}

/// The caller receives the warnings about files that interrupted copies left at the other end.
#[test]
fn what_was_left_at_a_server_is_told_to_its_caller() {
    let rig = Rig::local();
    tree::file(&rig.path("f"), 5000, 1);
    let (_server, port) = serve(&rig, &[]);
    fs::write(rig.path("root/.gone.packtrain-0a1b2c3d"), vec![1; 9000]).expect("its root");
    let mut put = rig.cp();
    put.args(["--ticket", &ticket(&rig)]).arg(rig.path("f"));
    let ended = rig.ok(put.arg(format!("pt://127.0.0.1:{port}/")));
    assert!(ended.stderr.contains("packtrain clean"), "{}", ended.stderr);
}

/// The session of a killed copy still ends at the server when the same command begins again.
#[test]
fn a_killed_copy_in_place_is_repeated_at_once() {
    let rig = Rig::local();
    tree::file(&rig.path("f"), 40 * MIB, 1);
    let (_server, port) = serve(&rig, &[]);
    for n in 0..5 {
        let target = rig.path(&format!("root/f{n}"));
        let put = || {
            let mut put = rig.cp();
            put.args(["--ticket", &ticket(&rig), "--inplace", "--rate", "200mbit"]);
            put.arg(rig.path("f")).arg(format!("pt://127.0.0.1:{port}/f{n}"));
            put
        };
        let is_begun = |_: &Running| fs::metadata(&target).is_ok_and(|found| found.len() > 0);
        let running = rig.start(&mut put()).when_up(is_begun);
        std::thread::sleep(Duration::from_millis(300));
        send("KILL", running.pid());
        running.wait();
        rig.ok(&mut put());
        assert!(fs::read(rig.path("f")).expect("it") == fs::read(&target).expect("it"), "{n}");
    }
}

#[test]
fn over_udt_a_copy_is_the_same_and_goes_on_after_a_kill() {
    goes_on_after_a_kill("udt", "udt:paper", "udt:udt4");
}

#[test]
fn over_fobs_a_copy_is_the_same_and_goes_on_after_a_kill() {
    goes_on_after_a_kill("fobs", "fobs:window,60mbit", "fobs:rate,400mbit");
}

/// The bytes moved by the last line of `--progress json`.
fn progress(stderr: &str) -> u64 {
    let lines = stderr.lines().rev().filter_map(|line| serde_json::from_str(line).ok());
    let mut events = lines.filter(|line: &serde_json::Value| line["event"] == "progress");
    events.find_map(|line| line["bytes"].as_u64()).unwrap_or(0)
}

/// The bytes of the journals in a directory.
fn journals(dir: &Path) -> u64 {
    let entries = fs::read_dir(dir).expect("the destination").flatten();
    let journals = entries.filter(|e| e.path().extension().is_some_and(|e| e == "journal"));
    journals.map(|e| e.metadata().map_or(0, |data| data.len())).sum()
}

/// A copy over this transport, interrupted once, and a copy back with another controller.
fn goes_on_after_a_kill(transport: &str, there: &str, back: &str) {
    let rig = Rig::local();
    fs::create_dir(rig.path("src")).expect("a folder");
    tree::odd(&rig.path("src/odd"));
    tree::file(&rig.path("src/big"), 40 * MIB + 17, 1);
    let (_server, port) = serve(&rig, &[]);
    let place = format!("pt://127.0.0.1:{port}/dst");
    let put = |more: &[&str]| {
        let mut put = rig.cp();
        put.args(["--ticket", &ticket(&rig), "--transport", transport, "--json"]).args(more);
        put.arg(contents(&rig.path("src"))).arg(&place);
        put
    };
    // 61 MiB and a hole of 64 MiB take 17 s. When the journal grows after 80 MiB, it is by a chunk
    // that is durable: what it records of the files comes before their data.
    let running = rig.start(&mut put(&["--progress", "json", "--rate", "30mbit", "--cc", there]));
    let running = running.when_up(|running| progress(&running.stderr()) > 80 * MIB);
    let before = journals(&rig.path("root/dst"));
    let mut running = running.when_up(|_| journals(&rig.path("root/dst")) > before);
    assert!(!running.ended(), "{}", running.stderr());
    send("KILL", running.pid());
    running.wait();
    let ended = rig.ok(&mut put(&[]));
    assert_same(&rig.path("src"), &rig.path("root/dst"));
    let (moved, resumed) = (ended.number("bytes_moved"), ended.number("bytes_resumed"));
    assert!(resumed > 0 && moved < 61 * MIB, "{moved} bytes moved again, {resumed} resumed");
    let last = String::from_utf8_lossy(&ended.stdout).into_owned();
    assert!(last.contains(&format!(r#""transport":"{transport}""#)), "{last}");
    let mut get = rig.cp();
    get.args(["--ticket", &ticket(&rig), "--transport", transport, "--cc", back]);
    rig.ok(get.arg(format!("{place}/")).arg(rig.path("back")));
    assert_same(&rig.path("src"), &rig.path("back"));
    let mut verify = rig.packtrain();
    verify.args(["verify", "--ticket", &ticket(&rig)]).arg(contents(&rig.path("src")));
    rig.ok(verify.arg(&place));
}

#[test]
fn over_sabul_a_copy_is_the_same_both_ways_and_goes_on_after_its_channel_broke() {
    let rig = Rig::local();
    fs::create_dir(rig.path("src")).expect("a folder");
    tree::odd(&rig.path("src/odd"));
    tree::file(&rig.path("src/big"), 20 * MIB + 17, 1);
    let (_server, port) = serve(&rig, &[]);
    let place = format!("pt://127.0.0.1:{port}/dst");
    let cp = |more: &[&str]| {
        let mut cp = rig.cp();
        cp.args(["--ticket", &ticket(&rig), "--transport", "sabul", "--json"]).args(more);
        cp
    };
    let mut put = cp(&["--cc", "sabul:60mbit", "--rate", "60mbit", "--retries", "3"]);
    let mut running = rig.start(put.arg(contents(&rig.path("src"))).arg(&place));
    std::thread::sleep(Duration::from_millis(2_500));
    let broken = !running.ended() && break_channel(running.pid(), port);
    let ended = running.wait();
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let text = String::from_utf8_lossy(&ended.stdout).into_owned();
    let told = text.contains("the control connection beside the datagrams broke");
    assert!(told || !broken, "{text}");
    if !broken {
        crate::rig::skipped("nothing here breaks a TCP connection (ss -K)");
    }
    assert!(text.contains(r#""transport":"sabul""#), "{text}");
    assert_same(&rig.path("src"), &rig.path("root/dst"));
    let mut get = cp(&["--cc", "sabul:proportional+reduce+400mbit"]);
    rig.ok(get.arg(format!("{place}/")).arg(rig.path("back")));
    assert_same(&rig.path("src"), &rig.path("back"));
}

/// Breaks the TCP connections of a process except those to the server's port, if this machine can.
fn break_channel(pid: u32, server: u16) -> bool {
    let ss = |args: &[&str]| {
        let output = std::process::Command::new("ss").args(args).output();
        output.map(|o| String::from_utf8_lossy(&o.stdout).into_owned()).unwrap_or_default()
    };
    let (owner, door) = (format!("pid={pid},"), format!(":{server}"));
    let mut broken = false;
    for line in ss(&["-tnpH"]).lines().filter(|line| line.contains(&owner)) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, _, _, own, peer, ..] = words[..] else { continue };
        if !own.ends_with(&door) && !peer.ends_with(&door) {
            broken |= ss(&["-KtnH", "src", own, "dst", peer]).contains("ESTAB");
        }
    }
    broken
}

#[test]
fn without_key_or_ticket_it_is_12() {
    let rig = Rig::local();
    tree::file(&rig.path("f"), MIB, 1);
    let (_server, port) = serve(&rig, &[]);
    let mut put = rig.cp();
    put.arg("--accept-new-host").arg(rig.path("f")).arg(format!("pt://127.0.0.1:{port}/f"));
    let ended = rig.run(&mut put);
    assert_eq!(ended.code, 12, "{}", ended.stderr);
    assert!(!rig.path("root/f").exists());
}

#[test]
fn a_ticket_is_bound_to_its_first_user() {
    let rig = Rig::local();
    tree::file(&rig.path("f"), MIB, 1);
    let (_server, port) = serve(&rig, &[]);
    let mut put = rig.cp();
    put.args(["--ticket", &ticket(&rig)]).arg(rig.path("f"));
    rig.ok(put.arg(format!("pt://127.0.0.1:{port}/f")));
    let mut thief = rig.cp();
    thief.env("XDG_STATE_HOME", rig.path("thief")).env("XDG_CONFIG_HOME", rig.path("thief"));
    thief.args(["--ticket", &ticket(&rig)]).arg(rig.path("f"));
    let ended = rig.run(thief.arg(format!("pt://127.0.0.1:{port}/stolen")));
    assert_eq!(ended.code, 12, "{}", ended.stderr);
    assert!(!rig.path("root/stolen").exists());
}

#[test]
fn nothing_leaves_the_root_and_read_only_is_kept() {
    let rig = Rig::local();
    tree::file(&rig.path("f"), 1000, 1);
    tree::file(&rig.path("secret"), 1000, 2);
    let (server, port) = serve(&rig, &[]);
    for path in ["../escaped", "a/../../escaped", "//../escaped"] {
        let mut put = rig.cp();
        put.args(["--ticket", &ticket(&rig)]).arg(rig.path("f"));
        let ended = rig.run(put.arg(format!("pt://127.0.0.1:{port}/{path}")));
        assert!(!rig.path("escaped").exists(), "{path} escaped");
        assert_ne!(ended.code, 0, "{path} was taken");
    }
    std::os::unix::fs::symlink(rig.path("secret"), rig.path("root/link")).expect("a link");
    let mut get = rig.cp();
    get.args(["--ticket", &ticket(&rig)]).arg(format!("pt://127.0.0.1:{port}/../secret"));
    assert_ne!(rig.run(get.arg(rig.path("got"))).code, 0);
    assert!(!rig.path("got").exists());
    drop(server);
    let _ = fs::remove_file(rig.path("ticket"));

    let (_server, port) = serve(&rig, &["--read-only"]);
    let mut put = rig.cp();
    put.args(["--ticket", &ticket(&rig), "--accept-new-host"]).arg(rig.path("f"));
    let ended = rig.run(put.arg(format!("pt://127.0.0.1:{port}/f")));
    assert_ne!(ended.code, 0);
    assert!(!rig.path("root/f").exists(), "written to a read-only server");
}

#[test]
fn strangers_with_garbage_do_no_harm() {
    let rig = Rig::local();
    let mut dice = Dice::new("strangers_with_garbage_do_no_harm");
    tree::file(&rig.path("f"), 9 * MIB, 1);
    let (mut server, port) = serve(&rig, &[]);
    let udp = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let mut silent = Vec::new();
    for round in 0..60u32 {
        let size = usize::try_from(dice.below(3000)).expect("small");
        let noise: Vec<u8> = (0..size).map(|_| dice.below(256) as u8).collect();
        let _ = udp.send_to(&noise[..size.min(1400)], ("127.0.0.1", port));
        let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
        let _ = stream.write_all(&noise);
        // Some connections send nothing more and stay open.
        if round % 3 == 0 {
            silent.push(stream);
        }
    }
    assert!(!server.ended(), "{}", server.stderr());
    let mut put = rig.cp();
    put.args(["--ticket", &ticket(&rig)]).arg(rig.path("f"));
    rig.ok(put.arg(format!("pt://127.0.0.1:{port}/f")));
    assert!(fs::read(rig.path("f")).ok() == fs::read(rig.path("root/f")).ok());
    assert!(!server.ended(), "{}", server.stderr());
    assert!(!server.stderr().contains("panicked"), "{}", server.stderr());
}

#[test]
#[ignore = "needs namespaces and half a minute; `cargo xtask test` runs it"]
fn a_network_gone_for_twenty_seconds_comes_back() {
    let rig = Rig::local();
    fs::create_dir(rig.path("src")).expect("a folder");
    fs::create_dir(rig.path("root")).expect("a folder");
    tree::file(&rig.path("src/big"), 64 * MIB, 1);
    // A token bucket smaller than a packet drops all packets without any notice to the sender.
    let script = "ip link set lo up || exit 99\n\
                  XDG_STATE_HOME=far-state XDG_CONFIG_HOME=far-config \
                  \"$0\" serve --listen 127.0.0.1:7876 --root root --ticket-file ticket 2>far &\n\
                  server=$!\n\
                  for i in $(seq 100); do [ -s ticket ] && break; sleep 0.1; done\n\
                  \"$0\" cp -r --rate 160mbit --ticket @ticket src/ pt://127.0.0.1:7876/dst 2>near &\n\
                  client=$!\n\
                  sleep 1.5\n\
                  kill -0 $client || echo early >early\n\
                  tc qdisc add dev lo root tbf rate 1kbit burst 10 limit 10 || exit 99\n\
                  sleep 20\n\
                  tc qdisc del dev lo root\n\
                  wait $client; echo $? >code\n\
                  kill $server\n";
    let Some(()) = crate::faults::in_namespace(&rig, script) else { return };
    let near = fs::read_to_string(rig.path("near")).unwrap_or_default();
    assert!(!rig.path("early").exists(), "it ended before the network went: {near}");
    let code = fs::read_to_string(rig.path("code")).unwrap_or_default();
    let far = fs::read_to_string(rig.path("far")).unwrap_or_default();
    assert_eq!(code.trim(), "0", "caller: {near}\nserver: {far}");
    assert_same(&rig.path("src"), &rig.path("root/dst"));
}

#[test]
#[ignore = "takes seconds; `cargo xtask test` runs it"]
fn perf_tells_its_goodput() {
    let rig = Rig::local();
    fs::create_dir(rig.path("qlog")).expect("a directory");
    let logs = || fs::read_dir(rig.path("qlog")).map_or(0, Iterator::count);
    for transport in ["native", "sabul", "tcp"] {
        let port = free_port();
        let at = format!("127.0.0.1:{port}");
        let _ = fs::remove_file(rig.path("ticket"));
        let mut server = rig.packtrain();
        server.env("XDG_STATE_HOME", rig.path("far-state"));
        server.args(["perf", "server", "--listen", &at, "--ticket-file"]).arg(rig.path("ticket"));
        let mut running = rig.start(&mut server);
        while fs::metadata(rig.path("ticket")).map_or(0, |found| found.len()) == 0 {
            assert!(!running.ended(), "{}", running.stderr());
            std::thread::sleep(Duration::from_millis(20));
        }
        for extra in [None, Some("--reverse")] {
            let mut client = rig.packtrain();
            client.args(["perf", "client", &at, "--ticket", &ticket(&rig), "--json"]);
            client.args(["--seconds", "2", "--transport", transport]).args(extra);
            client.env("QLOGDIR", rig.path("qlog"));
            let before = logs();
            let ended = rig.ok(&mut client);
            let text = String::from_utf8_lossy(&ended.stdout);
            let last = text.lines().last().unwrap_or_default();
            let value: serde_json::Value = serde_json::from_str(last).expect("JSON");
            assert_eq!(value["event"], "done", "{last}");
            let goodput = value["goodput_bps"].as_f64().unwrap_or(0.0);
            assert!(goodput > 1e7, "{transport} {extra:?}: {last}");
            let is_logged = transport != "tcp" && extra.is_none();
            assert_eq!(logs() - before, usize::from(is_logged), "{transport} {extra:?}");
        }
    }
}
