//! Events, last JSON lines and rows of the history agree with each other and with the files.

use std::fs;

use serde_json::Value;

use crate::depots::depot;
use crate::rig::{Rig, Running, contents, free_port, send, wait_until};
use crate::server::{serve, ticket};
use crate::spool::{Depot, sending};
use crate::tree::{self, MIB};

/// The `finished` events of a server, after it was asked to stop.
fn finished(server: Running) -> Vec<Value> {
    send("TERM", server.pid());
    let ended = server.wait();
    ended.json_lines().into_iter().filter(|line| line["event"] == "finished").collect()
}

fn rows(rig: &Rig) -> Vec<Value> {
    rig.ok(rig.packtrain().args(["history", "--json"])).json_lines()
}

fn sum(values: &Value) -> u64 {
    let shares = values.as_object().expect("shares").values();
    shares.map(|bytes| bytes.as_u64().expect("bytes")).sum()
}

#[test]
fn a_server_tells_what_each_transfer_did() {
    let rig = Rig::local();
    tree::file(&rig.path("f"), 3 * MIB + 5, 1);
    let (server, port) = serve(&rig, &["--json"]);
    let place = format!("pt://127.0.0.1:{port}/f");
    let before = utc_now(&rig);
    for transport in ["native", "tcp"] {
        let mut put = rig.cp();
        put.args(["--ticket", &ticket(&rig), "--transport", transport]).arg(rig.path("f"));
        rig.ok(put.arg(&place));
        fs::remove_file(rig.path("root/f")).expect("it is there");
    }
    fs::copy(rig.path("f"), rig.path("root/f")).expect("fine");
    let mut get = rig.cp();
    get.args(["--ticket", &ticket(&rig), "--transport", "tcp", &place]).arg(rig.path("back"));
    rig.ok(&mut get);
    let mut none = rig.cp();
    none.args(["--ticket", &ticket(&rig), &format!("{place}-none")]).arg(rig.path("none"));
    assert_ne!(rig.run(&mut none).code, 0);
    let told = finished(server);
    let after = utc_now(&rig);
    let of = |line: &Value| {
        let word = |name: &str| line[name].as_str().unwrap_or("").to_owned();
        (word("direction"), word("transport"), line["bytes"].as_u64(), line["ok"].as_bool())
    };
    let all = Some(3 * MIB + 5);
    let expected = [
        ("in".to_owned(), "native".to_owned(), all, Some(true)),
        ("in".to_owned(), "tcp".to_owned(), all, Some(true)),
        ("out".to_owned(), "tcp".to_owned(), all, Some(true)),
    ];
    assert_eq!(told.iter().take(3).map(of).collect::<Vec<_>>(), expected, "{told:?}");
    assert_eq!(told.len(), 4, "{told:?}");
    assert_eq!((&told[3]["ok"], &told[3]["bytes"]), (&false.into(), &0.into()), "{}", told[3]);
    assert!(told[3]["error"].is_object(), "{}", told[3]);
    for line in &told {
        assert!(line["path"].as_str().is_some_and(|path| path.contains('f')), "{line}");
        assert!(line["peer"].as_str().is_some_and(|peer| peer.starts_with("127.0.0.1")), "{line}");
        let time = line["time"].as_str().expect("a time");
        let second = &time[..before.len()];
        assert!(*before <= *second && *second <= *after, "{before} {time} {after}");
    }
}

/// The time in the format of events, to the second.
fn utc_now(rig: &Rig) -> String {
    let mut date = std::process::Command::new("date");
    let ended = rig.ok(date.args(["-u", "+%Y-%m-%dT%H:%M:%S"]));
    String::from_utf8_lossy(&ended.stdout).trim().to_owned()
}

/// Both ends and the history report the bytes of the file and the transport that moved them.
#[test]
fn both_ends_of_a_transfer_by_auto_tell_the_same_sums() {
    let rig = Rig::local();
    const SIZE: u64 = 12 * MIB + 17;
    tree::file(&rig.path("f"), SIZE, 1);
    let (server, port) = serve(&rig, &["--json"]);
    let (_depot, place) = depot(&rig, &[]);
    const TIMES: usize = 5;
    for n in 0..TIMES {
        let mut put = rig.cp();
        put.args(["--ticket", &ticket(&rig), "--json", "--via", "auto", "--depots", &place]);
        put.args(["--transport", "tcp"]);
        put.arg(rig.path("f")).arg(format!("pt://127.0.0.1:{port}/f{n}"));
        let ended = rig.ok(&mut put);
        let done = ended.json_lines().pop().expect("a last line");
        assert_eq!(done["event"], "done");
        assert_eq!((&done["transport"], done["bytes_moved"].as_u64()), (&"tcp".into(), Some(SIZE)));
        assert_eq!(sum(&done["transports"]), SIZE, "{}", done["transports"]);
    }
    let told = finished(server);
    assert_eq!(told.len(), TIMES, "{told:?}");
    for line in told {
        assert_eq!((&line["transport"], line["bytes"].as_u64()), (&"tcp".into(), Some(SIZE)));
    }
    for row in rows(&rig) {
        assert_eq!((&row["transport"], row["bytes_moved"].as_u64()), (&"tcp".into(), Some(SIZE)));
    }
}

#[test]
fn a_refused_send_moved_nothing_and_leaves_one_row() {
    let rig = Rig::local();
    fs::create_dir(rig.path("src")).expect("a folder");
    tree::file(&rig.path("src/big"), 6 * MIB, 1);
    let depot = Depot::new(&rig, "spool", &["--spool-quota", "2MiB"]);
    let mut command = sending(&rig, &depot.place, "ticket");
    let refused =
        rig.run(command.args(["--json", "--retries", "0"]).arg(contents(&rig.path("src"))));
    assert!([5, 12].contains(&refused.code), "{}: {}", refused.code, refused.stderr);
    let done = refused.json_lines().pop().expect("a last line");
    assert_eq!((&done["event"], &done["bytes_moved"]), (&"done".into(), &0.into()), "{done}");
    let rows = rows(&rig);
    assert_eq!(rows.len(), 1, "{rows:?}");
    assert_eq!((&rows[0]["bytes_moved"], &rows[0]["ended"]), (&0.into(), &"failed".into()));
    assert_eq!(rows[0]["exit_code"], refused.code);
    assert_eq!(depot.stored(), 0);
}

/// A client is killed during a file, so it sends no Goodbye.
#[test]
fn a_udt4_client_that_vanishes_is_told_of() {
    let rig = Rig::local();
    fs::create_dir_all(rig.path("root")).expect("a folder");
    // Several times the receiver's buffer, which the server fills at once whatever the client's rate.
    let size = 160 * MIB;
    tree::file(&rig.path("root/file"), size, 2);
    let (port, root) = (free_port(), rig.path("root").display().to_string());
    let at = format!("127.0.0.1:{port}");
    let server =
        rig.start(rig.packtrain().args(["serve", "--json", "--udt4", &at, "--root", &root]));
    wait_until("a server that listens", || server.stdout().contains("listening"));
    let mut command = rig.packtrain();
    command.args(["cp", "--retries", "0", "--rate", "20mbit", &format!("udt4://{at}/file")]);
    let mut client = rig.start(command.arg(rig.path("to")));
    let arrives = || {
        let items = fs::read_dir(rig.path("")).expect("a folder").flatten();
        let mut names =
            items.filter(|item| item.file_name().to_string_lossy().contains(".packtrain-"));
        names.any(|item| item.metadata().is_ok_and(|meta| meta.len() > 100_000))
    };
    wait_until("bytes at the client", || {
        assert!(!client.ended(), "{}", client.stderr());
        arrives()
    });
    send("KILL", client.pid());
    client.wait();
    wait_until("the end of the transfer", || server.stdout().contains("\"finished\""));
    let told = finished(server);
    assert_eq!(told.len(), 1, "{told:?}");
    let line = &told[0];
    assert_eq!((&line["ok"], &line["transport"]), (&false.into(), &"udt4".into()), "{line}");
    assert_eq!((&line["direction"], &line["path"]), (&"out".into(), &"file".into()), "{line}");
    assert!(line["bytes"].as_u64() < Some(size), "{line}");
    assert!(line["error"].is_object() && line["time"].is_string(), "{line}");
}
