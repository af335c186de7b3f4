//! Access control of a server: tickets, keys, limits, and the addresses that it connects to.

use std::fs;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::rig::{Rig, Running, free_port, wait_until};
use crate::server::{as_server, serve, serve_at, ticket};
use crate::tree::{self, MIB, assert_same};

/// A copy of one file to a server, with one try.
fn put(rig: &Rig, port: u16, name: &str, more: &[&str]) -> Command {
    let mut put = rig.cp();
    put.args(["--retries", "0"]).args(more).arg(rig.path("f"));
    put.arg(format!("pt://127.0.0.1:{port}/{name}"));
    put
}

/// Waits until the journal of a transfer into the server's root has grown twice, so that the
/// transfer can be resumed.
pub(crate) fn wait_for_journal(rig: &Rig, copy: &mut Running) {
    let mut lengths = std::collections::BTreeSet::new();
    wait_until("a journal that grows", || {
        assert!(!copy.ended(), "it ended: {}", copy.stderr());
        for entry in fs::read_dir(rig.path("root")).expect("the root").flatten() {
            if entry.path().extension().is_some_and(|end| end == "journal") {
                lengths.extend(entry.metadata().map(|found| found.len()));
            }
        }
        lengths.len() > 3
    });
}

#[test]
fn a_ticket_of_a_read_only_server_writes_nowhere() {
    let rig = Rig::local();
    tree::file(&rig.path("f"), MIB, 1);
    let (read_only, port) = serve(&rig, &["--read-only"]);
    fs::copy(rig.path("f"), rig.path("root/there")).expect("fine");
    let with_ticket = ["--ticket", &ticket(&rig)];
    let other_port = free_port();
    let other = serve_at(&rig, other_port, &[]);
    // Another server of the same user with the same root.
    let ended = rig.run(&mut put(&rig, other_port, "f", &with_ticket));
    assert_eq!(ended.code, 12, "{}", ended.stderr);
    assert!(ended.stderr.contains("for another server"), "{}", ended.stderr);
    drop((read_only, other));
    // A server without --read-only at the same address.
    let _writable = serve_at(&rig, port, &[]);
    let ended = rig.run(&mut put(&rig, port, "f", &with_ticket));
    assert_eq!(ended.code, 12, "{}", ended.stderr);
    assert!(ended.stderr.contains("read-only"), "{}", ended.stderr);
    assert!(!rig.path("root/f").exists());
    // The ticket still permits what it was issued for.
    let mut get = rig.cp();
    get.args(with_ticket).arg(format!("pt://127.0.0.1:{port}/there")).arg(rig.path("back"));
    rig.ok(&mut get);
    assert!(fs::read(rig.path("f")).ok() == fs::read(rig.path("back")).ok());
}

#[test]
fn a_server_that_starts_again_honours_its_tickets() {
    let rig = Rig::local();
    tree::file(&rig.path("f"), MIB, 1);
    let (server, port) = serve(&rig, &[]);
    drop(server);
    let _again = serve_at(&rig, port, &[]);
    rig.ok(&mut put(&rig, port, "f", &["--ticket", &ticket(&rig)]));
    assert!(fs::read(rig.path("f")).ok() == fs::read(rig.path("root/f")).ok());
}

#[test]
fn a_revoked_key_is_refused_whatever_the_ticket_says() {
    let rig = Rig::local();
    tree::file(&rig.path("f"), MIB, 1);
    let (_server, port) = serve(&rig, &[]);
    let shown = rig.ok(as_server(&rig).args(["key", "show"]));
    let key = String::from_utf8(shown.stdout).expect("text");
    // In the directory of this user's known hosts.
    for place in ["state", "config"] {
        let place = rig.path(place).join("packtrain");
        fs::create_dir_all(&place).expect("fine");
        fs::write(place.join("known_hosts"), format!("@revoked * {key}")).expect("fine");
    }
    let ended = rig.run(&mut put(&rig, port, "f", &["--ticket", &ticket(&rig)]));
    assert_eq!(ended.code, 12, "{}", ended.stderr);
    assert!(ended.stderr.contains("revoked"), "{}", ended.stderr);
    assert!(!rig.path("root/f").exists());
}

#[test]
fn idle_connections_keep_nobody_out() {
    let rig = Rig::local();
    tree::file(&rig.path("f"), MIB, 1);
    let (_server, port) = serve(&rig, &[]);
    let connect = |_| TcpStream::connect(("127.0.0.1", port)).expect("a connection");
    let idle: Vec<TcpStream> = (0..300).map(connect).collect();
    rig.ok(&mut put(&rig, port, "f", &["--ticket", &ticket(&rig)]));
    assert!(fs::read(rig.path("f")).ok() == fs::read(rig.path("root/f")).ok());
    drop(idle);
}

/// Authorizes the keys of these states, with these options.
fn authorize(rig: &Rig, file: &Path, users: &[(&str, &str)]) {
    fs::create_dir_all(file.parent().expect("a folder")).expect("fine");
    let line = |(state, options): &(&str, &str)| {
        let mut command = rig.packtrain();
        command.env("XDG_CONFIG_HOME", rig.path(state)).args(["key", "show"]);
        let shown = rig.ok(&mut command);
        format!("{options}{}", String::from_utf8(shown.stdout).expect("text"))
    };
    fs::write(file, users.iter().map(line).collect::<String>()).expect("fine");
    fs::set_permissions(file, PermissionsExt::from_mode(0o600)).expect("fine");
}

#[test]
fn one_key_does_not_take_every_place() {
    let rig = Rig::local();
    tree::file(&rig.path("f"), MIB, 1);
    tree::file(&rig.path("slow"), 64 * MIB, 2);
    let keys = rig.path("keys/authorized");
    authorize(&rig, &keys, &[("config", ""), ("other-config", "")]);
    let port = free_port();
    let keys = keys.to_str().expect("text");
    let limits = ["--max-clients", "2", "--max-clients-per-key", "1"];
    let more: Vec<&str> = ["--authorized-keys", keys].into_iter().chain(limits).collect();
    let _server = serve_at(&rig, port, &more);
    let mut slow = rig.cp();
    slow.args(["--accept-new-host", "--rate", "40mbit"]).arg(rig.path("slow"));
    let mut slow = rig.start(slow.arg(format!("pt://127.0.0.1:{port}/slow")));
    wait_for_journal(&rig, &mut slow);
    let ended = rig.run(&mut put(&rig, port, "f", &[]));
    assert_eq!(ended.code, 5, "{}", ended.stderr);
    assert!(ended.stderr.contains("this key has 1"), "{}", ended.stderr);
    let mut other = put(&rig, port, "f", &["--accept-new-host"]);
    rig.ok(other.env("XDG_CONFIG_HOME", rig.path("other-config")));
    assert!(!slow.ended(), "it was to last longer: {}", slow.stderr());
}

#[test]
fn keys_that_others_could_have_written_let_nobody_in() {
    let rig = Rig::local();
    tree::file(&rig.path("f"), MIB, 1);
    let keys = rig.path("keys/authorized");
    authorize(&rig, &keys, &[("config", "")]);
    let port = free_port();
    let server = serve_at(&rig, port, &["--authorized-keys", keys.to_str().expect("text")]);
    rig.ok(&mut put(&rig, port, "before", &["--accept-new-host"]));
    fs::set_permissions(rig.path("keys"), PermissionsExt::from_mode(0o775)).expect("fine");
    let ended = rig.run(&mut put(&rig, port, "after", &[]));
    assert_eq!(ended.code, 12, "{}", ended.stderr);
    assert!(ended.stderr.contains("authorized_keys cannot be used"), "{}", ended.stderr);
    wait_until("the owner's warning", || server.stderr().contains("can be written by others"));
    assert!(!rig.path("root/after").exists());
}

#[test]
fn a_key_sees_its_own_directory_and_nothing_above() {
    let rig = Rig::local();
    tree::file(&rig.path("f"), MIB, 1);
    let keys = rig.path("keys/authorized");
    let roots = [("config", "root=\"alice\" "), ("other-config", "root=\"link\" ")];
    authorize(&rig, &keys, &roots);
    fs::create_dir_all(rig.path("root/alice")).expect("fine");
    std::os::unix::fs::symlink("..", rig.path("root/link")).expect("fine");
    let port = free_port();
    let _server = serve_at(&rig, port, &["--authorized-keys", keys.to_str().expect("text")]);
    rig.ok(&mut put(&rig, port, "f", &["--accept-new-host"]));
    assert!(fs::read(rig.path("f")).ok() == fs::read(rig.path("root/alice/f")).ok());
    let mut other = put(&rig, port, "f", &["--accept-new-host"]);
    let ended = rig.run(other.env("XDG_CONFIG_HOME", rig.path("other-config")));
    assert_eq!(ended.code, 12, "{}", ended.stderr);
    assert!(ended.stderr.contains("leads out"), "{}", ended.stderr);
}

#[test]
fn between_two_servers_data_goes_directly_where_one_may_connect() {
    let rig = Rig::local();
    tree::odd(&rig.path("root/src"));
    let keys = rig.path("keys/authorized");
    authorize(&rig, &keys, &[("config", "")]);
    let keys = ["--authorized-keys", keys.to_str().expect("text")];
    let (from, to, free) = (free_port(), free_port(), free_port());
    let _from = serve_at(&rig, from, &keys);
    let _to = serve_at(&rig, to, &keys);
    let more: Vec<&str> = keys.into_iter().chain(["--dial-to", "127.0.0.1"]).collect();
    let _free = serve_at(&rig, free, &more);
    // The relay of the data if neither server, or one of them, may connect to the other.
    for (to, name, directly) in [(to, "through", false), (free, "directly", true)] {
        let mut copy = rig.cp();
        copy.args(["--json", "--accept-new-host"]).arg(format!("pt://127.0.0.1:{from}/src/"));
        let ended = rig.ok(copy.arg(format!("pt://127.0.0.1:{to}/{name}")));
        assert_same(&rig.path("root/src"), &rig.path("root").join(name));
        let last = String::from_utf8_lossy(&ended.stdout).into_owned();
        assert_eq!(last.contains(r#""transport":"pipe""#), !directly, "{last}");
    }
}

#[test]
fn a_word_at_a_server_is_completed_for_a_known_key_alone() {
    let rig = Rig::local();
    fs::create_dir_all(rig.path("root/data")).expect("a folder");
    for name in ["root/date", "root/other", "root/data/x"] {
        fs::write(rig.path(name), "").expect("a file");
    }
    let completed = |port: u16, word: &str| {
        let place = format!("pt://127.0.0.1:{port}/{word}");
        let ended = rig.ok(rig.packtrain().args(["completions", "--", "packtrain", "cp", &place]));
        let text = String::from_utf8(ended.stdout).expect("text");
        let begin = format!("pt://127.0.0.1:{port}/");
        text.lines().map(|line| line.replacen(&begin, "", 1)).collect::<Vec<_>>()
    };
    // Completion makes no key.
    assert_eq!(completed(free_port(), "da"), [""; 0]);
    let keys = rig.own_key("keys");
    let (_server, port) = serve(&rig, &["--authorized-keys", keys.to_str().expect("text")]);
    // The key of the server is not known yet, and is not trusted by itself.
    assert_eq!(completed(port, "da"), [""; 0]);
    tree::file(&rig.path("f"), 100, 1);
    rig.ok(&mut put(&rig, port, "f", &["--accept-new-host"]));
    assert_eq!(completed(port, "da"), ["data/", "date"]);
    assert_eq!(completed(port, "data/"), ["data/x"]);
    assert_eq!(completed(port, ""), ["data/", "date", "f", "other"]);
    assert_eq!(completed(port, "../"), [""; 0]);
}
