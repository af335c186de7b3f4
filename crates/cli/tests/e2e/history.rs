//! Every transfer writes a row, and an error of the history never breaks a transfer.

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use crate::faults::in_namespace;
use crate::postgres::Server;
use crate::rig::{Ended, Rig, contents, free_port, send, wait_until};
use crate::server::serve;
use crate::tree::{self, MIB};

/// The export of `history` with these arguments.
fn rows(rig: &Rig, words: &[&str]) -> Vec<Value> {
    let mut command = rig.packtrain();
    command.args(["history", "--json"]).args(words);
    let ended = rig.ok(&mut command);
    ended.json_lines()
}

/// The id in the last line of a finished command.
fn id(ended: &Ended) -> String {
    let done = ended.json_lines().pop().expect("a line");
    done["id"].as_str().expect("an id").to_owned()
}

fn warnings(ended: &Ended) -> usize {
    ended.stderr.lines().filter(|line| line.contains("history")).count()
}

/// Rows that are still files.
fn waiting(rig: &Rig) -> usize {
    let found = fs::read_dir(rig.path("state/packtrain/transfers"));
    let json = |item: &fs::DirEntry| item.path().extension().is_some_and(|end| end == "json");
    found.map_or(0, |items| items.flatten().filter(json).count())
}

#[test]
fn every_copy_leaves_a_row() {
    let rig = Rig::local();
    tree::file(&rig.path("a"), 3 * MIB, 1);
    let good = rig.ok(rig.cp().arg("--json").arg(rig.path("a")).arg(rig.path("b")));
    let bad = rig.run(rig.cp().arg("--json").arg(rig.path("nothing")).arg(rig.path("c")));
    assert_ne!(bad.code, 0);
    let all = rows(&rig, &[]);
    assert_eq!(all.len(), 2, "{all:?}");
    assert_eq!((&all[1]["id"], &all[1]["ended"]), (&id(&good).into(), &"done".into()));
    assert_eq!(all[1]["bytes_moved"], 3 * MIB);
    assert_eq!((&all[1]["kind"], &all[1]["role"]), (&"cp".into(), &"both".into()));
    assert_eq!((&all[1]["transport"], &all[1]["exit_code"]), (&"local".into(), &0.into()));
    assert!(all[1]["series"].as_array().is_some_and(|points| !points.is_empty()), "{}", all[1]);
    let failed = rows(&rig, &["--failed"]);
    assert_eq!(failed.len(), 1);
    assert_eq!(
        (&failed[0]["ended"], &failed[0]["exit_code"]),
        (&"failed".into(), &bad.code.into())
    );
    assert_eq!(waiting(&rig), 0, "what is over is in the database");
    // A dry run is not a transfer.
    rig.ok(rig.cp().arg("--dry-run").arg(rig.path("a")).arg(rig.path("d")));
    assert_eq!(rows(&rig, &[]).len(), 2);
    for (words, count) in [
        (&["--limit", "1"][..], 1),
        (&["--transport", "local"], 1),
        (&["--since", "1h"], 2),
        (&["--since", "2020-01-01", "--host", "elsewhere"], 0),
        (&[&id(&good)[..6]], 1),
    ] {
        assert_eq!(rows(&rig, words).len(), count, "{words:?}");
    }
    let mut command = rig.packtrain();
    let csv = rig.ok(command.args(["history", "--export", "csv"]));
    let csv = String::from_utf8_lossy(&csv.stdout).into_owned();
    assert!(csv.starts_with("id,began_us,kind,") && csv.lines().count() == 3, "{csv}");
    let mut command = rig.packtrain();
    let whole = rig.ok(command.args(["history", &id(&good)]));
    let whole = String::from_utf8_lossy(&whole.stdout).into_owned();
    assert!(whole.contains("throughput") && whole.contains("packtrain diagnose"), "{whole}");
    let mut command = rig.packtrain();
    let listed = rig.ok(command.arg("history"));
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert_eq!(listed.lines().count(), 3, "{listed}");
    rig.ok(rig.packtrain().args(["diagnose", &id(&good)]));
    let unknown = rig.run(rig.packtrain().args(["history", "0123abcd"]));
    assert_eq!(unknown.code, 3, "{}", unknown.stderr);
}

#[test]
fn a_damaged_history_costs_one_warning() {
    let rig = Rig::local();
    tree::file(&rig.path("a"), 1000, 1);
    let db = rig.path("state/packtrain/history.db");
    fs::create_dir_all(db.parent().expect("a folder")).expect("made");
    fs::write(&db, "this was never a database\n".repeat(100)).expect("written");
    let cp = |to: &str, more: &[&str]| {
        rig.ok(rig.cp().arg("--json").args(more).arg(rig.path("a")).arg(rig.path(to)))
    };
    let first = cp("b", &[]);
    assert_eq!(warnings(&first), 1, "{}", first.stderr);
    assert!(first.stderr.contains("history.db.damaged-"), "{}", first.stderr);
    let second = cp("c", &[]);
    assert_eq!(warnings(&second), 0, "{}", second.stderr);
    assert_eq!(rows(&rig, &[]).len(), 2);
    // A file that the user named is not changed; its rows wait.
    let own = rig.path("own.txt");
    fs::write(&own, "mine\n".repeat(1000)).expect("written");
    let place = own.to_str().expect("text").to_owned();
    let third = cp("d", &["--history", &place]);
    assert_eq!(warnings(&third), 1, "{}", third.stderr);
    assert_eq!(fs::read_to_string(&own).expect("read").len(), 5000);
    assert_eq!(waiting(&rig), 1);
    // Waiting rows are listed too.
    rig.ok(rig.packtrain().args(["diagnose", &id(&third)]));
    fs::remove_file(&own).expect("removed");
    let fourth = cp("e", &["--history", &place]);
    assert_eq!(warnings(&fourth), 0, "{}", fourth.stderr);
    assert_eq!(waiting(&rig), 0, "it was taken along");
    assert_eq!(rows(&rig, &["--history", &place]).len(), 2);
}

#[test]
fn without_a_history_there_is_still_diagnose() {
    let rig = Rig::local();
    tree::file(&rig.path("a"), 1000, 1);
    fs::create_dir_all(rig.path("config/packtrain")).expect("made");
    fs::write(rig.path("config/packtrain/config.toml"), "history = 'none'\n").expect("written");
    let ended = rig.ok(rig.cp().arg(rig.path("a")).arg(rig.path("b")));
    assert_eq!(warnings(&ended), 0, "{}", ended.stderr);
    assert!(!rig.path("state/packtrain/history.db").exists());
    rig.ok(rig.packtrain().args(["diagnose", "last"]));
}

#[test]
fn rows_beyond_the_limit_go() {
    let rig = Rig::local();
    tree::file(&rig.path("a"), 1000, 1);
    for n in 0..4 {
        let mut command = rig.cp();
        command.args(["--history-rows", "2"]);
        rig.ok(command.arg(rig.path("a")).arg(rig.path(&format!("b{n}"))));
    }
    let targets: Vec<String> = rows(&rig, &[])
        .iter()
        .map(|row| row["target"].as_str().expect("text").to_owned())
        .collect();
    assert_eq!(targets.len(), 2);
    assert!(targets[0].ends_with("/b3") && targets[1].ends_with("/b2"), "{targets:?}");
    let mut command = rig.cp();
    command.args(["--history-age", "1ms"]).arg(rig.path("a")).arg(rig.path("c"));
    rig.ok(&mut command);
    assert!(rows(&rig, &[]).is_empty(), "all are older than a millisecond");
}

#[test]
fn what_was_killed_is_in_the_history_too() {
    let rig = Rig::local();
    tree::file(&rig.path("a"), 64 * MIB, 1);
    let mut command = rig.cp();
    command.args(["--rate", "40mbit"]).arg(rig.path("a")).arg(rig.path("b"));
    let running = rig.start(&mut command);
    wait_until("the copy begins", || waiting(&rig) == 1);
    assert_eq!(rows(&rig, &[])[0]["ended"], "running");
    send("KILL", running.pid());
    running.wait();
    // The file is not written any more; one minute without a write is enough.
    let dir = rig.path("state/packtrain/transfers");
    for file in fs::read_dir(dir).expect("there").flatten() {
        let file = fs::File::options().write(true).open(file.path()).expect("a file");
        file.set_modified(std::time::UNIX_EPOCH + Duration::from_secs(1 << 30)).expect("set");
    }
    assert_eq!(rows(&rig, &[])[0]["ended"], "killed");
    tree::file(&rig.path("c"), 1000, 1);
    rig.ok(rig.cp().arg(rig.path("c")).arg(rig.path("d")));
    assert_eq!(waiting(&rig), 0);
    let all = rows(&rig, &[]);
    assert_eq!((all.len(), &all[1]["ended"]), (2, &"killed".into()));
    assert_eq!(rows(&rig, &["--failed"]).len(), 1);
}

/// Two databases of one name would not represent two machines, so the remote end has its own state.
fn far_rows(rig: &Rig) -> Vec<Value> {
    let mut command = rig.packtrain();
    command.env("XDG_STATE_HOME", rig.path("far-state")).args(["history", "--json"]);
    rig.ok(&mut command).json_lines()
}

fn holds(dir: &Path, secret: &str) -> bool {
    fs::read_dir(dir).expect("a folder").flatten().any(|item| {
        let path = item.path();
        let within = |bytes: Vec<u8>| bytes.windows(secret.len()).any(|w| w == secret.as_bytes());
        if path.is_dir() { holds(&path, secret) } else { fs::read(&path).is_ok_and(within) }
    })
}

#[test]
fn both_ends_of_a_server_keep_rows_and_no_secret() {
    let rig = Rig::local();
    tree::file(&rig.path("a"), 4 * MIB, 1);
    fs::create_dir_all(rig.path("root")).expect("a folder");
    let (server, port) = serve(&rig, &[]);
    let ticket = fs::read_to_string(rig.path("ticket")).expect("a ticket");
    let mut put = rig.cp();
    // Slow enough that the streams are sampled while they run.
    put.args(["--transport", "tcp", "--streams", "1", "--rate", "10mbit"]);
    put.args(["--json", "--ticket", ticket.trim()]);
    let put = rig.ok(put.arg(rig.path("a")).arg(format!("pt://127.0.0.1:{port}/b")));
    let near = &rows(&rig, &[])[0];
    assert_eq!((&near["role"], &near["side"]), (&"source".into(), &"caller".into()));
    assert_eq!((&near["to_host"], &near["streams"]), (&"127.0.0.1".into(), &1.into()));
    assert_eq!((&near["id"], &near["transport"]), (&id(&put).into(), &"tcp".into()));
    assert!(near["tcp_info"].is_object(), "{near}");
    wait_until("the server's row", || !far_rows(&rig).is_empty());
    let far = &far_rows(&rig)[0];
    assert_eq!((&far["role"], &far["side"]), (&"sink".into(), &"called".into()));
    assert_eq!((&far["from_host"], &far["ended"]), (&"127.0.0.1".into(), &"done".into()));
    assert_eq!((&far["bytes_moved"], &far["target"]), (&(4 * MIB).into(), &"b".into()));
    assert!(far["peer"].as_str().is_some_and(|peer| peer.starts_with("127.0.0.1:")), "{far}");
    drop(server);
    let secret = ticket.trim();
    for secret in [secret, &secret[..secret.len() / 2], &secret[secret.len() / 2..]] {
        assert!(!holds(&rig.path("state"), secret) && !holds(&rig.path("far-state"), secret));
    }
}

#[test]
fn measurements_leave_rows() {
    let rig = Rig::local();
    let port = free_port();
    for (transport, more) in [("tcp", &["--parallel", "2"][..]), ("udt4", &[])] {
        let at = format!("127.0.0.1:{port}");
        let mut server = rig.packtrain();
        server.env("XDG_STATE_HOME", rig.path("far-state"));
        server.env("XDG_CONFIG_HOME", rig.path("far-config"));
        server.args(["perf", "server", "--listen", &at, "--tests", "1"]);
        if transport == "udt4" {
            server.args(["--transport", "udt4"]);
        } else {
            server.arg("--ticket-file").arg(rig.path("ticket"));
        }
        let mut server = rig.start(&mut server);
        // A client of udt4 repeats its request until the server runs.
        while transport == "tcp" && !fs::metadata(rig.path("ticket")).is_ok_and(|t| t.len() > 0) {
            assert!(!server.ended(), "{}", server.stderr());
            std::thread::sleep(Duration::from_millis(25));
        }
        let mut client = rig.packtrain();
        client.args(["perf", "client", &at, "--transport", transport, "--seconds", "1"]);
        client.args(["--interval", "200ms"]).args(more);
        if transport == "tcp" {
            client.arg("--ticket").arg(format!("@{}", rig.path("ticket").display()));
        }
        rig.ok(&mut client);
        let ended = server.wait();
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        let near = &rows(&rig, &[])[0];
        assert_eq!((&near["kind"], &near["transport"]), (&"perf".into(), &transport.into()));
        assert_eq!(near["streams"], if transport == "tcp" { 2 } else { 1 });
        assert!(near["throughput_bps"].as_u64().is_some_and(|bps| bps > 0), "{near}");
        assert!(near["series"].as_array().is_some_and(|points| points.len() > 1), "{near}");
        let far = &far_rows(&rig)[0];
        assert_eq!((&far["kind"], &far["role"]), (&"perf".into(), &"sink".into()), "{far}");
        assert!(far["bytes"].as_u64().is_some_and(|bytes| bytes > 0), "{far}");
    }
}

#[test]
fn a_site_keeps_its_history_on_postgresql() {
    let Some(server) = Server::start() else { return };
    let rig = Rig::local();
    tree::file(&rig.path("a"), 1000, 1);
    fs::create_dir_all(rig.path("config/packtrain")).expect("made");
    let config = format!("history = '{}'\n", server.url(""));
    fs::write(rig.path("config/packtrain/config.toml"), config).expect("written");
    let mut copies = 0;
    loop {
        // Rows wait until the database is available, then they are stored.
        copies += 1;
        let ended = rig.ok(rig.cp().arg(rig.path("a")).arg(rig.path(&format!("b{copies}"))));
        assert!(!ended.stderr.contains("pass"), "{}", ended.stderr);
        if waiting(&rig) == 0 {
            break;
        }
        assert_eq!(warnings(&ended), 1, "{}", ended.stderr);
        assert!(copies < 100, "{}\n{}", ended.stderr, server.log());
        std::thread::sleep(Duration::from_millis(200));
    }
    assert_eq!(rows(&rig, &[]).len(), copies);
    assert!(!rig.path("state/packtrain/history.db").exists());
    rig.ok(rig.packtrain().args(["diagnose", "last"]));
    let mut command = rig.packtrain();
    let shown = rig.ok(command.args(["config", "show"]));
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains("postgresql://tester@") && !shown.contains("w%25rd"), "{shown}");
    let mut command = rig.packtrain();
    let help = rig.ok(command.args(["cp", "--help"]));
    assert!(!String::from_utf8_lossy(&help.stdout).contains("w%25rd"), "help quotes the URL");
}

#[test]
fn two_copies_at_once_leave_two_rows() {
    let rig = Rig::local();
    fs::create_dir(rig.path("src")).expect("a folder");
    tree::file(&rig.path("src/f"), MIB, 1);
    let start = |n: u32| {
        let mut command = rig.cp();
        command.arg(contents(&rig.path("src"))).arg(rig.path(&format!("dst{n}")));
        rig.start(&mut command)
    };
    let all: Vec<_> = (0..6).map(start).collect();
    for running in all {
        let ended = running.wait();
        assert_eq!((ended.code, warnings(&ended)), (0, 0), "{}", ended.stderr);
    }
    assert_eq!(rows(&rig, &[]).len(), 6);
}

#[test]
#[ignore = "needs namespaces; `cargo xtask test` runs it"]
fn a_state_directory_without_room_or_right_costs_one_warning() {
    for (what, options, fill) in [
        ("read-only", "ro", ""),
        ("full", "size=64k", "dd if=/dev/zero of=state/fill bs=1k count=999 2>dd\n"),
    ] {
        let rig = Rig::local();
        tree::file(&rig.path("a"), 5 * MIB, 1);
        fs::create_dir(rig.path("state")).expect("a folder");
        let script = format!(
            "mount -t tmpfs -o {options} none state || exit 99\n{fill}\
             \"$0\" cp a b 2>first; echo $? >first.code\ncmp a b >differ 2>&1\n"
        );
        let Some(()) = in_namespace(&rig, &script) else { return };
        let read = |name: &str| fs::read_to_string(rig.path(name)).unwrap_or_default();
        assert_eq!(read("first.code").trim(), "0", "{what}: {}", read("first"));
        assert_eq!(read("differ"), "", "{what}");
        let said = read("first").lines().filter(|line| line.contains("history")).count();
        assert_eq!(said, 1, "{what}: {}", read("first"));
    }
}

#[test]
#[ignore = "needs an ssh server; `cargo xtask test` runs it"]
fn over_ssh_both_ends_keep_a_row() {
    let Some(rig) = Rig::ssh() else { return };
    tree::file(&rig.path("a"), 2 * MIB, 1);
    let mut command = rig.cp();
    command.args(["--transport", "pipe"]).arg(rig.path("a")).arg(rig.far("b"));
    rig.ok(&mut command);
    let near = &rows(&rig, &[])[0];
    assert_eq!((&near["role"], &near["transport"]), (&"source".into(), &"pipe".into()));
    let far = &far_rows(&rig)[0];
    assert_eq!((&far["role"], &far["side"]), (&"sink".into(), &"called".into()));
    assert_eq!(far["bytes_moved"], 2 * MIB);
}
