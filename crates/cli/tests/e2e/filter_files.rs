//! Files of filter rules in the directories of the source (`: FILE`, `-F`).

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::Command;

use rustix::fs::{CWD, FileType, Mode};

use crate::rig::{Ended, Rig, contents, skipped, slash};
use crate::server::{serve, ticket};

/// Writes files with their contents, with their directories.
fn files(at: &Path, files: &[(&str, &str)]) {
    for (name, text) in files {
        let path = at.join(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
        fs::write(path, text).expect("a file");
    }
}

/// The files below a directory, sorted.
fn listed(at: &Path) -> Vec<String> {
    let (mut found, mut waiting) = (Vec::new(), vec![at.to_path_buf()]);
    while let Some(dir) = waiting.pop() {
        for item in fs::read_dir(dir).expect("a listing") {
            let path = item.expect("a name").path();
            if path.is_dir() {
                waiting.push(path);
            } else {
                let below = path.strip_prefix(at).expect("below");
                found.push(below.to_str().expect("text").to_owned());
            }
        }
    }
    found.sort();
    found
}

const SOURCE: &[(&str, &str)] = &[
    (".rules", "- *.log\n- /top\n- cache/\n"),
    ("data", "new"),
    ("run.log", "hidden"),
    ("top", "hidden"),
    ("sub/.rules", "+ keep.log\n- /own\n"),
    ("sub/keep.log", "new"),
    ("sub/own", "hidden"),
    ("sub/top", "new"),
    ("file", "new"),
];
/// What is at the target before: `file` is a directory there.
const BEFORE: &[(&str, &str)] = &[
    ("stale", "gone"),
    ("old.log", "stays"),
    ("top", "stays"),
    ("cache/x", "stays"),
    ("stray/cache/x", "stays"),
    ("stray/x", "gone"),
    ("sub/old.log", "stays"),
    ("sub/own", "stays"),
    ("sub/deep/own", "gone"),
    ("sub/keep.log", "old"),
    // Rules at the target have no effect. The file stays, because the source leaves it out.
    ("sub/deep/.rules", "P *\n"),
    ("file/x", "gone"),
];
const AFTER: &[&str] = &[
    "cache/x",
    "data",
    "file",
    "old.log",
    "stray/cache/x",
    "sub/deep/.rules",
    "sub/keep.log",
    "sub/old.log",
    "sub/own",
    "sub/top",
    "top",
];

fn mirror(rig: &Rig, more: &[&str], from: OsString, to: OsString) -> Ended {
    let mut command = rig.cp();
    command.args(["--delete", "--filter=:e .rules"]).args(more).arg(from).arg(to);
    rig.run(&mut command)
}

#[test]
fn delete_keeps_what_the_files_of_the_source_exclude() {
    let rig = Rig::local();
    files(&rig.path("src"), SOURCE);
    files(&rig.path("dst"), BEFORE);
    let (from, to) = (contents(&rig.path("src")), rig.path("dst").into_os_string());
    let nowhere = rig.path("nowhere").into_os_string();
    let told = mirror(&rig, &["--dry-run", "--json"], from.clone(), nowhere);
    assert_eq!((told.code, told.number("deleted")), (0, 0), "{}", told.stderr);
    let told = mirror(&rig, &["--dry-run", "--json"], from.clone(), to.clone());
    assert_eq!(told.code, 0, "{}", told.stderr);
    assert_eq!(listed(&rig.path("dst")).len(), BEFORE.len(), "a dry run changes nothing");
    let ended = mirror(&rig, &["--json"], from, to);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert_eq!(listed(&rig.path("dst")), AFTER);
    assert_eq!(told.number("deleted"), ended.number("deleted"));
    let mut verify = rig.packtrain();
    verify.args(["verify", "--filter=:e .rules"]).arg(contents(&rig.path("src")));
    rig.ok(verify.arg(rig.path("dst")));
}

#[test]
fn a_file_makes_no_room_by_removing_what_the_rules_exclude() {
    let rig = Rig::local();
    files(&rig.path("src"), &[(".rules", "- precious\n"), ("file", "new"), ("a", "")]);
    files(&rig.path("dst"), &[("file/precious", "stays"), ("file/x", "gone"), ("stray", "stays")]);
    let (from, to) = (contents(&rig.path("src")), rig.path("dst").into_os_string());
    let ended = mirror(&rig, &[], from, to);
    assert_eq!(ended.code, 23, "{}", ended.stderr);
    assert!(ended.stderr.contains("protected by a filter"), "{}", ended.stderr);
    // After the failure nothing else is deleted.
    assert_eq!(listed(&rig.path("dst")), ["a", "file/precious", "stray"]);
}

#[test]
fn a_bad_file_fails_its_directory_and_nothing_is_deleted() {
    let rig = Rig::local();
    files(&rig.path("src"), &[("a", ""), ("bad/.rules", "frob x\n"), ("bad/secret", "")]);
    files(&rig.path("dst"), &[("stray", ""), ("bad/stray", "")]);
    let (from, to) = (contents(&rig.path("src")), rig.path("dst").into_os_string());
    let ended = mirror(&rig, &[], from, to);
    assert_eq!(ended.code, 23, "{}", ended.stderr);
    assert!(ended.stderr.contains("filter file `.rules`"), "{}", ended.stderr);
    assert!(ended.stderr.contains("frob x"), "{}", ended.stderr);
    assert_eq!(listed(&rig.path("dst")), ["a", "bad/stray", "stray"]);
}

#[test]
fn more_than_one_source_or_a_list_is_refused_where_names_are_deleted() {
    let rig = Rig::local();
    files(&rig.path(""), &[("one/a", ""), ("two/b", ""), ("dst/stray", ""), ("list", "a\n")]);
    let rule = "--filter=: .rules";
    let mut two = rig.cp();
    two.args(["--delete", rule]).arg(rig.path("one")).arg(rig.path("two"));
    let mut list = rig.cp();
    list.args(["--delete", rule, "--files-from"]).arg(rig.path("list")).arg(rig.path("one"));
    for mut command in [two, list] {
        let refused = rig.run(command.arg(rig.path("dst")));
        assert_eq!(refused.code, 2, "{}", refused.stderr);
        assert!(refused.stderr.contains("exactly one source"), "{}", refused.stderr);
    }
    // Without --delete several sources have their own rules.
    files(&rig.path(""), &[("one/.rsync-filter", "- x\n"), ("one/x", ""), ("two/x", "")]);
    let mut copy = rig.cp();
    rig.ok(copy.arg("-FF").arg(rig.path("one")).arg(rig.path("two")).arg(rig.path("dst")));
    assert_eq!(listed(&rig.path("dst")), ["one/a", "stray", "two/b", "two/x"]);
}

#[test]
fn a_filter_file_is_not_removed_before_what_it_excludes() {
    let rig = Rig::local();
    files(&rig.path("src"), &[(".rsync-filter", "- precious\n"), ("precious", ""), ("a", "")]);
    let copy = |rules: &str| {
        let mut copy = rig.cp();
        copy.args(["--remove-source-files", rules]).arg(contents(&rig.path("src")));
        rig.run(copy.arg(rig.path("dst")))
    };
    let refused = copy("-F");
    assert_eq!(refused.code, 2, "{}", refused.stderr);
    assert!(refused.stderr.contains("-FF"), "{}", refused.stderr);
    let moved = copy("-FF");
    assert_eq!(moved.code, 0, "{}", moved.stderr);
    assert_eq!(listed(&rig.path("src")), [".rsync-filter", "precious"]);
    assert_eq!(listed(&rig.path("dst")), ["a"]);
}

#[test]
fn a_server_reads_the_files_of_its_root_and_none_elsewhere() {
    let rig = Rig::local();
    let (_server, port) = serve(&rig, &[]);
    files(&rig.path("root/src"), SOURCE);
    files(&rig.path("dst"), BEFORE);
    files(&rig.path(""), &[("outside", "- data\n")]);
    let place = OsString::from(format!("pt://127.0.0.1:{port}/src/"));
    let ticket = ticket(&rig);
    let fetch = || mirror(&rig, &["--ticket", &ticket], place.clone(), rig.path("dst").into());
    let ended = fetch();
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert_eq!(listed(&rig.path("dst")), AFTER);
    // A pipe in the place of a file does not stop the server, and a link leads nowhere.
    let pipe = rig.path("root/src/sub/.rules");
    fs::remove_file(&pipe).expect("removed");
    rustix::fs::mknodat(CWD, &pipe, FileType::Fifo, Mode::RWXU, 0).expect("a pipe");
    fs::create_dir(rig.path("root/src/link")).expect("a folder");
    fs::write(rig.path("root/src/link/data"), "").expect("a file");
    std::os::unix::fs::symlink("../../../outside", rig.path("root/src/link/.rules"))
        .expect("a link");
    let ended = fetch();
    assert_eq!(ended.code, 23, "{}", ended.stderr);
    for why in ["a pipe", "symbolic link"] {
        assert!(ended.stderr.contains(why), "{why}: {}", ended.stderr);
    }
    assert!(!rig.path("dst/link/data").exists());
    // To the server: it deletes by the rules of the caller's files.
    files(&rig.path("own"), SOURCE);
    files(&rig.path("root/up"), BEFORE);
    let up = OsString::from(format!("pt://127.0.0.1:{port}/up"));
    let ended = mirror(&rig, &["--ticket", &ticket], contents(&rig.path("own")), up);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert_eq!(listed(&rig.path("root/up")), AFTER);
}

#[test]
#[ignore = "needs an ssh server; `cargo xtask test` runs it"]
fn over_ssh_the_source_reads_the_files_in_each_direction() {
    let Some(rig) = Rig::ssh() else { return };
    files(&rig.path("src"), SOURCE);
    let (near, far) = (contents(&rig.path("src")), slash(&rig.far("src")));
    for (from, to, name) in [
        (near, rig.far("far"), "far"),
        (far.clone(), rig.path("near").into_os_string(), "near"),
        (far, rig.far("other"), "other"),
    ] {
        files(&rig.path(name), BEFORE);
        let ended = mirror(&rig, &[], from, to);
        assert_eq!(ended.code, 0, "{name}: {}", ended.stderr);
        assert_eq!(listed(&rig.path(name)), AFTER, "{name}");
    }
}

#[test]
fn rsync_with_late_deletion_leaves_the_same_files() {
    if Command::new("rsync").arg("--version").output().is_err() {
        return skipped("no rsync");
    }
    let rig = Rig::local();
    files(&rig.path("src"), SOURCE);
    // rsync reads rules at the target; it has none of its own here.
    let before: Vec<_> =
        BEFORE.iter().filter(|(name, _)| !name.ends_with(".rules")).copied().collect();
    for name in ["ours", "theirs"] {
        files(&rig.path(name), &before);
    }
    let rule = "--filter=: .rules";
    let mut ours = rig.cp();
    ours.args(["--delete", rule]).arg(contents(&rig.path("src"))).arg(rig.path("ours"));
    rig.ok(&mut ours);
    let mut theirs = Command::new("rsync");
    theirs.args(["-rlpt", "--delete-after", rule]);
    let ended = theirs.arg(contents(&rig.path("src"))).arg(rig.path("theirs")).output();
    assert!(ended.expect("rsync").status.success());
    assert_eq!(listed(&rig.path("ours")), listed(&rig.path("theirs")));
}
