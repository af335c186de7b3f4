//! Copies on one machine: the files that arrive, that are skipped and that are refused.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::rig::{Rig, contents};
use crate::tree::{self, MIB, assert_same};

#[test]
fn an_odd_tree_arrives_whole() {
    let rig = Rig::local();
    tree::odd(&rig.path("src"));
    rig.ok(rig.cp().arg(contents(&rig.path("src"))).arg(rig.path("dst")));
    assert_same(&rig.path("src"), &rig.path("dst"));
    let sparse = tree::allocated(&rig.path("dst/sparse"));
    assert!(sparse < 8 * MIB, "the sparse file takes {sparse} bytes");
}

#[test]
fn without_a_slash_the_folder_itself_arrives() {
    let rig = Rig::local();
    tree::odd(&rig.path("src"));
    fs::create_dir(rig.path("dst")).expect("a folder");
    rig.ok(rig.cp().arg(rig.path("src")).arg(rig.path("dst")));
    assert_same(&rig.path("src"), &rig.path("dst/src"));
}

#[test]
fn a_second_run_moves_nothing() {
    let rig = Rig::local();
    tree::odd(&rig.path("src"));
    let mut first = rig.cp();
    let ended = rig.ok(first.arg("--json").arg(contents(&rig.path("src"))).arg(rig.path("dst")));
    assert!(ended.number("bytes_moved") > 20 * MIB);
    let mut second = rig.cp();
    let ended = rig.ok(second.arg("--json").arg(contents(&rig.path("src"))).arg(rig.path("dst")));
    assert_eq!(ended.number("bytes_moved"), 0);
    assert_same(&rig.path("src"), &rig.path("dst"));
}

#[test]
fn checksum_sees_what_size_and_time_hide() {
    let rig = Rig::local();
    fs::create_dir_all(rig.path("src")).expect("a folder");
    fs::create_dir_all(rig.path("dst")).expect("a folder");
    for (dir, seed) in [("src", 1), ("dst", 2)] {
        let path = rig.path(dir).join("f");
        tree::file(&path, 5 * MIB, seed);
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_500_000_000);
        fs::File::open(&path).and_then(|f| f.set_modified(time)).expect("a time");
    }
    let plain =
        rig.ok(rig.cp().args(["--json"]).arg(contents(&rig.path("src"))).arg(rig.path("dst")));
    assert_eq!(plain.number("bytes_moved"), 0);
    let mut verify = rig.packtrain();
    verify.arg("verify").arg(contents(&rig.path("src"))).arg(rig.path("dst"));
    let verdict = rig.run(&mut verify);
    assert_ne!(verdict.code, 0, "verify must see the difference");
    rig.ok(rig.cp().arg("--checksum").arg(contents(&rig.path("src"))).arg(rig.path("dst")));
    assert_same(&rig.path("src"), &rig.path("dst"));
    rig.ok(&mut verify);
}

#[test]
fn dry_run_changes_nothing() {
    let rig = Rig::local();
    tree::odd(&rig.path("src"));
    rig.ok(rig.cp().arg("--dry-run").arg(contents(&rig.path("src"))).arg(rig.path("dst")));
    let left = fs::read_dir(rig.path("dst")).map_or(0, Iterator::count);
    assert_eq!(left, 0, "dry run left {left} entries");
}

#[test]
fn delete_acts_and_refuses_an_empty_source() {
    let rig = Rig::local();
    tree::odd(&rig.path("src"));
    rig.ok(rig.cp().arg(contents(&rig.path("src"))).arg(rig.path("dst")));
    fs::create_dir_all(rig.path("dst/extra/deep")).expect("a folder");
    tree::file(&rig.path("dst/extra/deep/file"), 10, 1);
    tree::file(&rig.path("dst/extra file"), 10, 1);
    rig.ok(rig.cp().arg("--delete").arg(contents(&rig.path("src"))).arg(rig.path("dst")));
    assert_same(&rig.path("src"), &rig.path("dst"));

    fs::create_dir(rig.path("nothing")).expect("a folder");
    let refused =
        rig.run(rig.cp().arg("--delete").arg(contents(&rig.path("nothing"))).arg(rig.path("dst")));
    assert_ne!(refused.code, 0);
    assert!(refused.stderr.contains("--force-delete"), "{}", refused.stderr);
    assert!(rig.path("dst/plain").exists(), "deleted in spite of the refusal");
}

#[test]
fn several_sources_and_filters() {
    let rig = Rig::local();
    for name in ["one", "two"] {
        fs::create_dir(rig.path(name)).expect("a folder");
        tree::file(&rig.path(name).join("keep.dat"), 100, 1);
        tree::file(&rig.path(name).join("skip.tmp"), 100, 1);
    }
    fs::create_dir(rig.path("dst")).expect("a folder");
    let mut command = rig.cp();
    command.args(["--exclude", "*.tmp"]).arg(rig.path("one")).arg(rig.path("two"));
    rig.ok(command.arg(rig.path("dst")));
    assert!(rig.path("dst/one/keep.dat").exists() && rig.path("dst/two/keep.dat").exists());
    assert!(!rig.path("dst/one/skip.tmp").exists() && !rig.path("dst/two/skip.tmp").exists());
}

#[test]
fn usage_errors_are_2_and_missing_sources_3() {
    let rig = Rig::local();
    assert_eq!(rig.run(rig.cp().arg("only-one")).code, 2);
    assert_eq!(rig.run(rig.cp().args(["--no-such-flag", "a", "b"])).code, 2);
    assert_eq!(rig.run(rig.cp().args(["--rate", "500", "a", "b"])).code, 2, "a unit is missing");
    let ended = rig.run(rig.cp().args(["--transport", "pigeon", "a", "b"]));
    assert_eq!(ended.code, 2, "no such transport: {}", ended.stderr);
    let missing = rig.run(rig.cp().arg(rig.path("not there")).arg(rig.path("dst")));
    assert_eq!(missing.code, 3, "{}", missing.stderr);
    assert!(missing.stderr.contains("not there"), "{}", missing.stderr);
}

#[test]
fn modes_survive_a_strange_umask() {
    let rig = Rig::local();
    fs::create_dir(rig.path("src")).expect("a folder");
    tree::file(&rig.path("src/f"), 10, 1);
    fs::set_permissions(rig.path("src/f"), fs::Permissions::from_mode(0o666)).expect("mode");
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", "umask 077; exec \"$0\" cp -r \"$1\" \"$2\""]);
    shell.arg(env!("CARGO_BIN_EXE_packtrain"));
    shell.arg(contents(&rig.path("src"))).arg(rig.path("dst"));
    shell.env("XDG_STATE_HOME", rig.path("state")).env("XDG_CONFIG_HOME", rig.path("config"));
    rig.ok(&mut shell);
    assert_same(&rig.path("src"), &rig.path("dst"));
}

#[test]
fn a_rate_holds_between_two_local_places_too() {
    let rig = Rig::local();
    tree::file(&rig.path("f"), 4 * MIB, 1);
    let start = std::time::Instant::now();
    rig.ok(rig.cp().args(["--rate", "8mbit"]).arg(rig.path("f")).arg(rig.path("g")));
    // Four seconds at this rate; the first burst is not limited.
    assert!(start.elapsed().as_millis() > 2000, "the rate was ignored");
}
