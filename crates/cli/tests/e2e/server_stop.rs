//! A server that is asked to stop: its clients finish or retry, and it ends with 0.

use std::fs;
use std::process::Command;

use crate::rig::{Rig, Running, free_port, send, wait_until};
use crate::server::{serve, serve_at, ticket};
use crate::server_access::wait_for_journal;
use crate::tree::{self, MIB};

const SIZE: u64 = 40 * MIB;

/// A copy of a large file to the server, at this rate.
fn copy(rig: &Rig, port: u16, rate: &str, more: &[&str]) -> Command {
    let mut copy = rig.cp();
    copy.args(["--json", "--ticket", &ticket(rig), "--rate", rate]).args(more);
    copy.arg(rig.path("big")).arg(format!("pt://127.0.0.1:{port}/big"));
    copy
}

/// A running server, its port, and a running copy that takes some seconds.
fn under_way(rig: &Rig, server: &[&str], client: &[&str]) -> (Running, u16, Running) {
    tree::file(&rig.path("big"), SIZE, 1);
    let (server, port) = serve(rig, server);
    let mut copy = rig.start(&mut copy(rig, port, "40mbit", client));
    wait_for_journal(rig, &mut copy);
    (server, port, copy)
}

fn is_there(rig: &Rig) {
    assert!(fs::read(rig.path("big")).ok() == fs::read(rig.path("root/big")).ok());
}

#[test]
fn what_is_under_way_may_end() {
    let rig = Rig::local();
    let (server, port, running) = under_way(&rig, &[], &["--retries", "0"]);
    send("TERM", server.pid());
    wait_until("the server says so", || server.stderr().contains("no new clients"));
    // The server no longer listens.
    let late = rig.run(&mut copy(&rig, port, "40mbit", &["--retries", "0"]));
    assert_eq!(late.code, 5, "{}", late.stderr);
    let ended = running.wait();
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    is_there(&rig);
    let server = server.wait();
    assert_eq!(server.code, 0, "{}", server.stderr);
}

#[test]
fn clients_go_on_at_the_server_that_comes_back() {
    let rig = Rig::local();
    let (server, port, mut running) = under_way(&rig, &["--drain", "10ms"], &["--retries", "20"]);
    send("TERM", server.pid());
    let server = server.wait();
    assert_eq!(server.code, 0, "{}", server.stderr);
    wait_until("the client tries again", || {
        assert!(!running.ended(), "it ended: {}", running.stderr());
        running.stderr().contains("trying again")
    });
    let said = running.stderr();
    assert!(said.contains("the other end was stopped"), "{said}");
    let _again = serve_at(&rig, port, &[]);
    let ended = running.wait();
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    is_there(&rig);
    // Those moved are of both tries.
    let (moved, resumed) = (ended.number("bytes_moved"), ended.number("bytes_resumed"));
    let is_resumed = resumed > 0 && moved <= 2 * SIZE - resumed;
    assert!(is_resumed, "{moved} bytes moved, {resumed} resumed");
}

#[test]
fn a_second_signal_ends_clients_at_once_with_the_same_word() {
    let rig = Rig::local();
    let (server, _, running) = under_way(&rig, &["--drain", "1h"], &["--retries", "0"]);
    send("TERM", server.pid());
    wait_until("the server says so", || server.stderr().contains("no new clients"));
    send("TERM", server.pid());
    let ended = running.wait();
    // This process got no signal, so the code is not 130.
    assert_eq!(ended.code, 5, "{}", ended.stderr);
    assert!(ended.stderr.contains("the other end was stopped"), "{}", ended.stderr);
    let server = server.wait();
    assert_eq!(server.code, 0, "{}", server.stderr);
    assert!(!rig.path("root/big").exists());
}

#[test]
fn an_idle_server_ends_with_0() {
    let rig = Rig::local();
    for signal in ["TERM", "INT"] {
        let server = serve_at(&rig, free_port(), &[]);
        send(signal, server.pid());
        let ended = server.wait();
        assert_eq!(ended.code, 0, "{signal}: {}", ended.stderr);
    }
}

#[test]
#[ignore = "needs an ssh server; `cargo xtask test` runs it"]
fn a_far_end_that_is_stopped_is_started_again() {
    let Some(rig) = Rig::ssh() else { return };
    tree::file(&rig.path("big"), SIZE, 1);
    fs::create_dir(rig.path("root")).expect("a folder");
    let mut copy = rig.cp();
    copy.args(["--json", "--rate", "40mbit"]).arg(rig.path("big"));
    let mut running = rig.start(copy.arg(rig.far("root/big")));
    wait_for_journal(&rig, &mut running);
    assert!(rig.signal_far("TERM"));
    let ended = running.wait();
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    is_there(&rig);
    assert!(ended.stderr.contains("trying again"), "{}", ended.stderr);
}
