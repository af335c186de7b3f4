//! Copies over depots: one, two, no working depot, and depots that are killed or stopped during a
//! copy.

use std::fs;
use std::process::Command;
use std::time::Duration;

use crate::rig::{Rig, Running, contents, free_port, listens, send};
use crate::server::{serve, ticket};
use crate::tree::{self, MIB, assert_same};

/// A depot on a free port that admits the rig's user, and its address.
pub(crate) fn depot(rig: &Rig, more: &[&str]) -> (Running, String) {
    let place = format!("127.0.0.1:{}", free_port());
    (depot_at(rig, &place, more), place)
}

/// The same at a given address, for example that of an earlier depot.
pub(crate) fn depot_at(rig: &Rig, place: &str, more: &[&str]) -> Running {
    let keys = rig.own_key("depot-keys");
    let mut command = rig.packtrain();
    command.args(["depot", "--json", "--listen", place, "--authorized-keys"]).arg(keys);
    command.args(if more.contains(&"--allow") { &[][..] } else { &["--allow", "127.0.0.1"] });
    rig.start(command.args(more)).when_up(|_| listens(place))
}

pub(crate) fn cp(rig: &Rig, via: &str, more: &[&str]) -> Command {
    let mut cp = rig.cp();
    cp.args(["--ticket", &ticket(rig), "--json", "--via", via]).args(more);
    cp
}

/// Bytes that a depot relayed, from its own events.
pub(crate) fn passed_on(depot: Running) -> (u64, u64) {
    send("TERM", depot.pid());
    let ended = depot.wait();
    let text = String::from_utf8_lossy(&ended.stdout).into_owned();
    let last: serde_json::Value = text
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .rfind(|line| line["event"] == "stats")
        .unwrap_or_else(|| panic!("no figures: {text}"));
    assert_eq!(last["sessions"], 0, "{text}");
    let number = |name: &str| last[name].as_u64().expect("a number");
    (number("bytes_there"), number("bytes_back"))
}

#[test]
fn there_and_back_over_one_depot_and_over_two() {
    let rig = Rig::local();
    fs::create_dir(rig.path("src")).expect("a folder");
    tree::odd(&rig.path("src/odd"));
    tree::file(&rig.path("src/big"), 24 * MIB + 17, 1);
    let (_server, port) = serve(&rig, &[]);
    let (first, one) = depot(&rig, &[]);
    let (second, two) = depot(&rig, &[]);
    let place = format!("pt://127.0.0.1:{port}/dst");
    let put = rig.ok(cp(&rig, &one, &[]).arg(contents(&rig.path("src"))).arg(&place));
    assert_same(&rig.path("src"), &rig.path("root/dst"));
    let last = String::from_utf8_lossy(&put.stdout).into_owned();
    assert!(last.contains(r#""transport":"tcp""#), "{last}");
    let via = format!("{one},{two}");
    let mut get = cp(&rig, &via, &["--streams", "3"]);
    rig.ok(get.arg(format!("{place}/")).arg(rig.path("back")));
    assert_same(&rig.path("src"), &rig.path("back"));
    let mut verify = rig.packtrain();
    verify.args(["verify", "--via", &via, "--ticket", &ticket(&rig)]);
    rig.ok(verify.arg(contents(&rig.path("src"))).arg(&place));
    let whole = 24 * MIB;
    let (there, back) = passed_on(first);
    assert!(there >= whole && back >= whole, "{there} there, {back} back");
    let (there, back) = passed_on(second);
    assert!(there < whole && back >= whole, "{there} there, {back} back");
}

#[test]
fn a_copy_by_destination_goes_where_the_tables_lead() {
    let rig = Rig::local();
    tree::file(&rig.path("src"), 8 * MIB + 5, 1);
    let (_server, port) = serve(&rig, &[]);
    let (second, two) = depot(&rig, &[]);
    fs::write(rig.path("routes"), format!("# one line\n127.0.0.1 {two}\n")).expect("a file");
    let routes = rig.path("routes").display().to_string();
    let (first, one) = depot(&rig, &["--routes", &routes]);
    let place = format!("pt://127.0.0.1:{port}/dst");
    rig.ok(cp(&rig, &one, &["--by-destination"]).arg(rig.path("src")).arg(&place));
    assert_eq!(fs::read(rig.path("root/dst")).ok(), fs::read(rig.path("src")).ok());
    // A source route ends where it says.
    let plain = format!("pt://127.0.0.1:{port}/plain");
    rig.ok(cp(&rig, &one, &[]).arg(rig.path("src")).arg(&plain));
    let whole = 8 * MIB;
    let (there, _) = passed_on(first);
    assert!(there >= 2 * whole, "{there}");
    let (there, _) = passed_on(second);
    assert!(there >= whole && there < 2 * whole, "{there}");
    // A table that is none is told before the depot listens.
    fs::write(rig.path("routes"), "127.0.0.1\n").expect("a file");
    let mut bad = rig.packtrain();
    bad.args(["depot", "--listen", "127.0.0.1:0", "--routes", &routes]);
    let ended = rig.run(&mut bad);
    assert_eq!(ended.code, 2, "{}", ended.stderr);
    assert!(ended.stderr.contains("line 1"), "{}", ended.stderr);
}

#[test]
fn a_refusal_is_told_and_a_depot_that_is_not_there_is_gone_around() {
    let rig = Rig::local();
    tree::file(&rig.path("src"), 100_000, 1);
    let (_server, port) = serve(&rig, &[]);
    let place = format!("pt://127.0.0.1:{port}/dst");
    // This depot does not allow the server.
    let (_depot, away) = depot(&rig, &["--allow", "192.0.2.0/24"]);
    let denied = rig.run(cp(&rig, &away, &[]).arg(rig.path("src")).arg(&place));
    assert_eq!(denied.code, 12, "{}", denied.stderr);
    assert!(denied.stderr.contains("does not connect to"), "{}", denied.stderr);
    // This depot admits only another key.
    let (_other, known) = depot(&rig, &[]);
    let mut stranger = cp(&rig, &known, &[]);
    stranger.env("XDG_CONFIG_HOME", rig.path("other-config"));
    let denied = rig.run(stranger.arg(rig.path("src")).arg(&place));
    assert_eq!(denied.code, 12, "{}", denied.stderr);
    assert!(denied.stderr.contains("authorized_keys"), "{}", denied.stderr);
    // Nothing listens there.
    let nobody = format!("127.0.0.1:{}", free_port());
    let ended = rig.ok(cp(&rig, &nobody, &[]).arg(rig.path("src")).arg(&place));
    assert!(ended.stderr.contains("going on without depots"), "{}", ended.stderr);
    assert_eq!(fs::read(rig.path("root/dst")).ok(), fs::read(rig.path("src")).ok());
}

/// A depot gets `signal` during a transfer, in both directions; the bytes must be right.
fn in_the_middle(signal: &str) {
    for push in [true, false] {
        let rig = Rig::local();
        fs::create_dir_all(rig.path("src")).expect("a folder");
        tree::odd(&rig.path("src/odd"));
        tree::file(&rig.path("src/big"), 48 * MIB + 17, 1);
        let (_server, port) = serve(&rig, &["--rate", "60mbit"]);
        let (depot, via) = depot(&rig, &[]);
        let place = format!("pt://127.0.0.1:{port}");
        let mut copy = cp(&rig, &via, &["--streams", "4", "--rate", "60mbit"]);
        let target = if push {
            copy.arg(contents(&rig.path("src"))).arg(format!("{place}/dst"));
            rig.path("root/dst")
        } else {
            fs::create_dir_all(rig.path("root")).expect("a folder");
            let mut made = Command::new("cp");
            made.arg("-a").arg(rig.path("src")).arg(rig.path("root"));
            assert!(made.status().expect("cp").success());
            copy.arg(format!("{place}/src/")).arg(rig.path("back"));
            rig.path("back")
        };
        // Takes about six seconds at this rate.
        let mut running = rig.start(&mut copy);
        std::thread::sleep(Duration::from_millis(2500));
        assert!(!running.ended(), "{}", running.stderr());
        send(signal, depot.pid());
        let ended = running.wait();
        send("CONT", depot.pid());
        assert_eq!(ended.code, 0, "{signal}, push {push}: {}", ended.stderr);
        assert_same(&rig.path("src"), &target);
        let told = ended.stderr.contains("going on without depots");
        assert!(told, "{signal}, push {push}: {}", ended.stderr);
    }
}

#[test]
#[ignore = "takes a minute; `cargo xtask test` runs it"]
fn a_depot_killed_in_the_middle_costs_a_pause_and_no_byte() {
    in_the_middle("KILL");
}

#[test]
#[ignore = "takes two minutes; `cargo xtask test` runs it"]
fn a_depot_frozen_in_the_middle_costs_a_pause_and_no_byte() {
    in_the_middle("STOP");
}

#[test]
fn over_ssh_streams_go_over_the_depot_and_control_does_not() {
    let Some(rig) = Rig::ssh() else { return };
    fs::create_dir(rig.path("src")).expect("a folder");
    tree::odd(&rig.path("src/odd"));
    tree::file(&rig.path("src/big"), 16 * MIB + 17, 1);
    let (depot, via) = depot(&rig, &[]);
    let words = ["--json", "--via", &via, "--streams", "2", "--data-addr", "127.0.0.1"];
    rig.ok(rig.cp().args(words).arg(contents(&rig.path("src"))).arg(rig.far("dst")));
    assert_same(&rig.path("src"), &rig.path("dst"));
    let mut back = rig.cp();
    rig.ok(back.args(words).arg(rig.far("dst/")).arg(rig.path("back")));
    assert_same(&rig.path("src"), &rig.path("back"));
    let (there, back) = passed_on(depot);
    let whole = 16 * MIB;
    assert!(there >= whole && back >= whole, "{there} there, {back} back");
}
