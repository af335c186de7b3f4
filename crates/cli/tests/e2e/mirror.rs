//! What `--delete` keeps, how owners and modes are set, and which destinations are refused.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, UNIX_EPOCH};

use crate::rig::{Ended, Rig, contents, is_root, skipped};
use crate::server::{serve, ticket};
use crate::tree;

/// An account that is not root and owns no file.
const SOMEBODY: u32 = 54_321;

/// Writes small files with their directories.
fn files(rig: &Rig, names: &[&str]) {
    for name in names {
        let path = rig.path(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
        fs::write(path, "x").expect("a file");
    }
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).expect("metadata").mode() & 0o7777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("a mode");
}

fn mirror(rig: &Rig, more: &[&str], sources: &[&str]) -> Ended {
    let mut command = rig.cp();
    command.arg("--delete").args(more);
    for source in sources {
        match source.strip_suffix('/') {
            Some(name) => command.arg(contents(&rig.path(name))),
            None => command.arg(rig.path(source)),
        };
    }
    rig.run(command.arg(rig.path("dst")))
}

#[test]
fn delete_keeps_excluded_names_at_any_depth() {
    let rig = Rig::local();
    let kept = [
        "dst/old/keep.log",
        "dst/old/deep/keep.log",
        "dst/old/secret/inside",
        "dst/old/.f.packtrain-0011aabb",
        "dst/old/.packtrain-0011aabb.journal",
        "dst/.packtrain-0011aabb.lock",
    ];
    let gone = ["dst/old/data", "dst/old/deep/data", "dst/stray/deep/data", "dst/old/empty/data"];
    files(&rig, &["src/f", "elsewhere/data"]);
    files(&rig, &kept);
    files(&rig, &gone);
    symlink("../../elsewhere", rig.path("dst/stray/link")).expect("a link");
    let rules = ["--exclude", "*.log", "--exclude", "secret/"];
    let told = mirror(&rig, &[&rules[..], &["--dry-run", "-v"]].concat(), &["src/"]);
    assert_eq!(told.code, 0, "{}", told.stderr);
    assert!(gone.iter().all(|name| rig.path(name).exists()), "a dry run deletes nothing");
    let ended = mirror(&rig, &[&rules[..], &["--json"]].concat(), &["src/"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    for name in kept {
        assert!(rig.path(name).exists(), "{name} was deleted");
    }
    for name in gone.into_iter().chain(["dst/stray", "dst/old/empty"]) {
        assert!(!rig.path(name).exists(), "{name} was not deleted");
    }
    assert!(rig.path("elsewhere/data").exists(), "a link was followed");
    // Four files, a link, and stray, stray/deep and old/empty.
    assert_eq!(ended.number("deleted"), 8);
}

#[test]
fn a_source_without_files_deletes_nothing() {
    let rig = Rig::local();
    files(&rig, &["full/f", "dst/mnt/data", "dst/full/stray", "dst/mnt/sub/data"]);
    fs::create_dir_all(rig.path("mnt/sub/empty")).expect("a folder");
    for sources in [&["mnt"][..], &["mnt/"]] {
        let refused = mirror(&rig, &[], sources);
        assert_eq!(refused.code, 2, "{sources:?}: {}", refused.stderr);
        assert!(refused.stderr.contains("--force-delete"), "{}", refused.stderr);
    }
    // Next to a full source it is spared, and the part of the full source is cleaned.
    let beside = mirror(&rig, &[], &["full", "mnt"]);
    assert_eq!(beside.code, 23, "{}", beside.stderr);
    assert!(beside.stderr.contains("mnt"), "{}", beside.stderr);
    assert!(!rig.path("dst/full/stray").exists());
    // A directory that two sources share is not cleaned because of one of them.
    let merged = mirror(&rig, &[], &["full/", "mnt/"]);
    assert_eq!(merged.code, 23, "{}", merged.stderr);
    for name in ["dst/mnt/data", "dst/mnt/sub/data", "dst/full/f"] {
        assert!(rig.path(name).exists(), "{name} was deleted");
    }
    let forced = mirror(&rig, &["--force-delete"], &["mnt"]);
    assert_eq!(forced.code, 0, "{}", forced.stderr);
    assert!(!rig.path("dst/mnt/data").exists());
}

/// More files than the source lists by name.
#[test]
fn thousands_of_sources_without_files_are_all_spared() {
    let rig = Rig::local();
    files(&rig, &["full/f", "dst/d7/precious", "dst/full/stray"]);
    let names: Vec<String> = (0..4100).map(|n| format!("d{n}")).collect();
    for name in &names {
        fs::create_dir(rig.path(name)).expect("a folder");
    }
    let sources: Vec<&str> = names.iter().map(String::as_str).chain(["full"]).collect();
    let ended = mirror(&rig, &[], &sources);
    assert_eq!(ended.code, 23, "{}", ended.stderr);
    assert!(rig.path("dst/d7/precious").exists());
    assert!(rig.path("dst/full/f").exists());
}

#[test]
fn two_names_of_one_file_are_written_in_place() {
    let rig = Rig::local();
    files(&rig, &["src/a", "src/b", "dst/a"]);
    fs::write(rig.path("src/a"), vec![7; 5 << 20]).expect("a file");
    fs::write(rig.path("src/b"), vec![7; 5 << 20]).expect("a file");
    fs::hard_link(rig.path("dst/a"), rig.path("dst/b")).expect("a link");
    let mut command = rig.cp();
    command.arg("--inplace").arg(contents(&rig.path("src"))).arg(rig.path("dst"));
    let ended = rig.run(&mut command);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert_eq!(fs::read(rig.path("dst/b")).expect("a file"), vec![7; 5 << 20]);
}

#[test]
fn no_more_names_are_deleted_than_allowed() {
    let rig = Rig::local();
    files(&rig, &["src/f", "dst/a", "dst/b", "dst/d/x", "dst/d/y"]);
    let left = || {
        let names = ["dst/a", "dst/b", "dst/d/x", "dst/d/y", "dst/d"];
        names.into_iter().filter(|name| rig.path(name).exists()).count()
    };
    for (limit, gone) in [("0", 0), ("2", 2)] {
        for dry in [&["--dry-run"][..], &[]] {
            let more = [&["--max-delete", limit, "--json"][..], dry].concat();
            let ended = mirror(&rig, &more, &["src/"]);
            assert_eq!(ended.code, 23, "{}", ended.stderr);
            assert!(ended.stderr.contains("--max-delete"), "{}", ended.stderr);
            assert_eq!(ended.number("deleted"), gone);
            assert_eq!(left() as u64, if dry.is_empty() { 5 - gone } else { 5 });
        }
    }
    let ended = mirror(&rig, &["--max-delete", "3"], &["src/"]);
    assert_eq!((ended.code, left()), (0, 0), "{}", ended.stderr);
}

/// Whose end receives is asked: the reason is in its words at the caller too.
#[test]
fn a_server_says_why_it_deleted_nothing() {
    let rig = Rig::local();
    files(&rig, &["src/f", "root/dst/a", "root/dst/b"]);
    let (_server, port) = serve(&rig, &[]);
    for more in [&[][..], &["--dry-run"]] {
        let mut put = rig.cp();
        put.args(["--delete", "--max-delete", "0", "--json", "--ticket", &ticket(&rig)]).args(more);
        put.arg(contents(&rig.path("src"))).arg(format!("pt://127.0.0.1:{port}/dst"));
        let ended = rig.run(&mut put);
        assert_eq!(ended.code, 23, "{}", ended.stderr);
        let why = "not deleted, and 1 more names were not: --max-delete 0 is reached";
        assert!(ended.stderr.contains(why), "{}", ended.stderr);
        let last = ended.json_lines().pop().expect("a last line");
        let failed = last["failed_files"].as_array().expect("a list");
        assert_eq!(failed.len(), 1, "{last}");
        assert!(failed[0].to_string().contains(why), "{last}");
        assert!(rig.path("root/dst/a").exists() && rig.path("root/dst/b").exists());
    }
}

/// A dry run with a target that the real run makes: here and at a server.
#[test]
fn a_dry_run_takes_a_missing_target_for_an_empty_one() {
    let rig = Rig::local();
    files(&rig, &["src/f"]);
    let (_server, port) = serve(&rig, &[]);
    let (here, there) = (rig.path("new").into_os_string(), format!("pt://127.0.0.1:{port}/new"));
    let own = ticket(&rig);
    for (to, ticket) in [(here, &[][..]), (there.into(), &["--ticket", own.as_str()])] {
        let run = |more: &[&str]| {
            let mut put = rig.cp();
            put.args(["--delete", "-v"]).args(ticket).args(more);
            rig.ok(put.arg(contents(&rig.path("src"))).arg(&to))
        };
        let dry = run(&["--dry-run"]);
        let told = format!("{}{}", String::from_utf8_lossy(&dry.stdout), dry.stderr);
        let moves = |name: &str| told.lines().any(|line| line == format!("to move   {name}"));
        assert!(moves("./") && moves("f") && !told.contains("failed"), "{told}");
        run(&[]);
    }
    let mut check = rig.packtrain();
    check.arg("verify").arg(contents(&rig.path("src"))).arg(rig.path("missing"));
    let ended = rig.run(&mut check);
    assert_ne!(ended.code, 0);
    assert!(ended.stderr.contains("there is no directory missing"), "{}", ended.stderr);
}

/// A file replaces a directory with three names in it.
#[test]
fn what_makes_room_is_counted_limited_and_named_in_a_dry_run() {
    let rig = Rig::local();
    files(&rig, &["src/f", "src/d", "dst/d/x", "dst/d/e/y", "dst/stray"]);
    let there = ["dst/d/x", "dst/d/e/y", "dst/stray"];
    let all_there = || there.iter().all(|name| rig.path(name).exists());
    // Four names, with the directories d and d/e, are removed to make room; the stray file is the
    // fifth.
    let names = ["d/x", "d/e/y", "d/e", "d", "stray"];
    let dry = mirror(&rig, &["--dry-run", "--json", "-v"], &["src/"]);
    assert_eq!((dry.code, dry.number("deleted")), (0, 5), "{}", dry.stderr);
    assert!(all_there());
    for limit in ["3", "0"] {
        for dry in [&["--dry-run"][..], &[]] {
            let ended =
                mirror(&rig, &[&["--max-delete", limit, "--json"][..], dry].concat(), &["src/"]);
            assert_eq!((ended.code, ended.number("deleted")), (23, 0), "{}", ended.stderr);
            assert!(ended.stderr.contains(&format!("--max-delete {limit}")), "{}", ended.stderr);
            assert!(all_there(), "nothing is removed by halves");
        }
    }
    let ended = mirror(&rig, &["--max-delete", "4", "--json"], &["src/"]);
    assert_eq!((ended.code, ended.number("deleted")), (23, 4), "{}", ended.stderr);
    assert!(rig.path("dst/d").is_file() && rig.path("dst/stray").exists());
    let _ = fs::remove_file(rig.path("dst/d"));
    files(&rig, &["dst/d/x", "dst/d/e/y"]);
    let ended = mirror(&rig, &["--max-delete", "5", "--json", "-v"], &["src/"]);
    assert_eq!((ended.code, ended.number("deleted")), (0, 5), "{}", ended.stderr);
    for ended in [dry, ended] {
        let told = String::from_utf8_lossy(&ended.stdout).into_owned();
        for name in names {
            assert!(told.contains(&format!("\"{name}\"")), "{name} is not named: {told}");
        }
    }
    assert!(rig.path("dst/d").is_file() && !rig.path("dst/stray").exists());
}

#[test]
fn delete_with_a_list_cleans_only_listed_directories() {
    let rig = Rig::local();
    files(&rig, &["src/a/b/f", "src/c/f", "dst/a/stray", "dst/a/b/stray", "dst/c/f", "dst/stray"]);
    fs::write(rig.path("list"), "a/b\n").expect("a list");
    let list = rig.path("list").display().to_string();
    let ended = mirror(&rig, &["--files-from", &list], &["src/"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(!rig.path("dst/a/b/stray").exists() && rig.path("dst/a/b/f").exists());
    for name in ["dst/a/stray", "dst/c/f", "dst/stray"] {
        assert!(rig.path(name).exists(), "{name} was deleted");
    }
}

#[test]
fn a_listed_name_that_is_not_there_is_named_and_is_23() {
    let rig = Rig::local();
    files(&rig, &["src/there"]);
    for (names, copied) in [("typo\nthere\n", true), ("typo\n", false)] {
        fs::write(rig.path("list"), names).expect("a list");
        let mut command = rig.cp();
        command.arg("--files-from").arg(rig.path("list"));
        let ended = rig.run(command.arg(rig.path("src")).arg(rig.path("dst")));
        assert_eq!(ended.code, 23, "{}", ended.stderr);
        assert!(ended.stderr.contains("typo"), "{}", ended.stderr);
        assert_eq!(rig.path("dst/there").is_file(), copied);
        let _ = fs::remove_dir_all(rig.path("dst"));
    }
}

#[test]
fn a_directory_takes_over_its_own_time_and_mode() {
    let rig = Rig::local();
    files(&rig, &["src/f", "dst/g"]);
    set_mode(&rig.path("src"), 0o750);
    let time = UNIX_EPOCH + Duration::new(1_000_000_000, 5);
    fs::File::open(rig.path("src")).and_then(|dir| dir.set_modified(time)).expect("a time");
    for _ in 0..2 {
        rig.ok(rig.cp().arg(contents(&rig.path("src"))).arg(rig.path("dst")));
        let meta = fs::metadata(rig.path("dst")).expect("metadata");
        assert_eq!(meta.modified().expect("a time"), time);
        assert_eq!(mode(&rig.path("dst")), 0o750);
    }
}

#[test]
fn set_id_bits_do_not_come_without_the_owner() {
    let rig = Rig::local();
    files(&rig, &["src/f", "src/big", "src/d/f"]);
    tree::file(&rig.path("src/big"), 6 * tree::MIB, 1);
    for name in ["src/f", "src/big", "src/d"] {
        if is_root() {
            chown(rig.path(name), Some(1234), Some(1234)).expect("an owner");
        }
        set_mode(&rig.path(name), 0o7755);
    }
    let modes = |dir: &str| ["f", "big", "d"].map(|name| mode(&rig.path(dir).join(name)));
    rig.ok(rig.cp().arg(contents(&rig.path("src"))).arg(rig.path("plain")));
    assert_eq!(modes("plain"), [0o755, 0o755, 0o1755]);
    // Again: a file with the right content and wrong mode bits loses these bits.
    set_mode(&rig.path("plain/f"), 0o4755);
    rig.ok(rig.cp().arg(contents(&rig.path("src"))).arg(rig.path("plain")));
    assert_eq!(modes("plain"), [0o755, 0o755, 0o1755]);
    if !is_root() {
        return;
    }
    rig.ok(rig.cp().arg("--preserve").arg(contents(&rig.path("src"))).arg(rig.path("owned")));
    assert_eq!(modes("owned"), [0o7755, 0o7755, 0o7755]);
    assert_eq!(fs::metadata(rig.path("owned/f")).expect("metadata").uid(), 1234);
}

#[test]
fn a_server_sets_no_owner_unless_it_is_told_to() {
    let rig = Rig::local();
    files(&rig, &["src/f"]);
    if !is_root() {
        return skipped("owners are given by root");
    }
    chown(rig.path("src/f"), Some(1234), Some(1234)).expect("an owner");
    set_mode(&rig.path("src/f"), 0o6755);
    for (more, uid, bits) in [(&[][..], 0, 0o755), (&["--allow-owner"][..], 1234, 0o6755)] {
        let (server, port) = serve(&rig, more);
        let mut put = rig.cp();
        put.args(["--preserve", "--ticket", &ticket(&rig)]);
        put.arg(contents(&rig.path("src"))).arg(format!("pt://127.0.0.1:{port}/dst"));
        let ended = rig.ok(&mut put);
        assert_eq!(ended.stderr.contains("--allow-owner"), more.is_empty(), "{}", ended.stderr);
        assert_eq!(fs::metadata(rig.path("root/dst/f")).expect("metadata").uid(), uid);
        assert_eq!(mode(&rig.path("root/dst/f")), bits);
        drop(server);
        fs::remove_file(rig.path("ticket")).expect("a ticket");
    }
}

#[test]
fn who_may_not_set_owners_keeps_the_files() {
    let rig = Rig::local();
    if !is_root() {
        return skipped("only root becomes somebody else");
    }
    files(&rig, &["src/a", "src/d/b", "src/c"]);
    tree::file(&rig.path("src/c"), 6 * tree::MIB, 1);
    set_mode(&rig.path("src/a"), 0o4755);
    set_mode(&rig.path(""), 0o755);
    for name in ["dst", "state", "config"] {
        fs::create_dir(rig.path(name)).expect("a folder");
        chown(rig.path(name), Some(SOMEBODY), Some(SOMEBODY)).expect("an owner");
    }
    let ours = rig.path("packtrain");
    fs::copy(env!("CARGO_BIN_EXE_packtrain"), &ours).expect("a copy of the command");
    set_mode(&ours, 0o755);
    if Command::new(&ours).arg("--version").uid(SOMEBODY).gid(SOMEBODY).output().is_err() {
        return skipped("somebody else cannot reach this folder");
    }
    let mut command = Command::new(&ours);
    command.env("XDG_STATE_HOME", rig.path("state")).env("XDG_CONFIG_HOME", rig.path("config"));
    command.args(["cp", "-r", "--preserve", "--json"]).uid(SOMEBODY).gid(SOMEBODY);
    command.arg(contents(&rig.path("src"))).arg(rig.path("dst"));
    let ended = rig.run(&mut command);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert_eq!(ended.stderr.matches("could not be set").count(), 1, "{}", ended.stderr);
    // Three files, d and the destination itself.
    assert_eq!(ended.number("not_owned"), 5);
    assert_eq!(fs::read(rig.path("dst/d/b")).expect("a file"), b"x");
    let meta = fs::metadata(rig.path("dst/a")).expect("metadata");
    assert_eq!((meta.uid(), meta.mode() & 0o7777), (SOMEBODY, 0o755));
}

#[test]
fn one_kind_takes_the_place_of_another() {
    let rig = Rig::local();
    files(&rig, &["src/file", "src/dir/f", "src/gone/f", "dst/dir", "dst/full/f", "elsewhere/f"]);
    fs::remove_dir_all(rig.path("src/gone")).expect("removed");
    files(&rig, &["src/full"]);
    fs::create_dir(rig.path("dst/file")).expect("a folder");
    fs::create_dir(rig.path("src/was-link")).expect("a folder");
    files(&rig, &["src/was-link/f"]);
    symlink("../elsewhere", rig.path("dst/was-link")).expect("a link");
    let ended = rig.run(rig.cp().arg(contents(&rig.path("src"))).arg(rig.path("dst")));
    assert_eq!(ended.code, 23, "{}", ended.stderr);
    assert!(ended.stderr.contains("full") && ended.stderr.contains("--delete"), "{}", ended.stderr);
    assert!(rig.path("dst/file").is_file() && rig.path("dst/dir/f").is_file());
    assert!(!rig.path("dst/was-link").is_symlink() && rig.path("dst/was-link/f").is_file());
    assert_eq!(fs::read_dir(rig.path("elsewhere")).expect("a folder").count(), 1);
    assert!(rig.path("dst/full/f").exists());
    let ended = mirror(&rig, &[], &["src/"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(rig.path("dst/full").is_file());
}

#[test]
fn what_is_wrong_with_a_destination_is_named() {
    let rig = Rig::local();
    files(&rig, &["src/f", "file"]);
    let file = rig.path("src/f");
    let cases = [
        (rig.path("src"), rig.path("file"), "file: is not a directory", 7),
        (file.clone(), rig.path("file/x"), "file: is not a directory", 7),
        (file.clone(), rig.path("no/such/x"), "/no: no such directory; make it first", 4),
        (rig.path("src"), rig.path("no/such"), "/no: no such directory; make it first", 4),
        (file, "/proc/packtrain".into(), "/proc: no file can be made in this directory", 7),
    ];
    for (source, dest, text, code) in cases {
        let ended = rig.run(rig.cp().arg(&source).arg(&dest));
        assert!(ended.stderr.contains(text), "{}: {}", dest.display(), ended.stderr);
        assert_eq!(ended.code, code, "{}: {}", dest.display(), ended.stderr);
    }
}

#[test]
fn a_link_that_leads_nowhere_is_copied_as_a_link() {
    let rig = Rig::local();
    symlink("nowhere", rig.path("link")).expect("a link");
    fs::create_dir(rig.path("dst")).expect("a folder");
    rig.ok(rig.cp().arg(rig.path("link")).arg(rig.path("dst")));
    rig.ok(rig.cp().arg(rig.path("link")).arg(rig.path("new")));
    for copy in ["dst/link", "new"] {
        let target = fs::read_link(rig.path(copy)).expect("a link");
        assert_eq!(target, Path::new("nowhere"), "{copy}");
    }
    let within = rig.run(rig.cp().arg(contents(&rig.path("link"))).arg(rig.path("dst")));
    assert_eq!(within.code, 3, "{}", within.stderr);
}
