//! `-H`: names of one file at the source are names of one file at the target.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, UNIX_EPOCH};

use crate::rig::{Rig, contents, skipped, slash};
use crate::tree::{self, MIB};

const SECONDS: u64 = 1_500_000_000;

fn file(path: &Path, text: &str, seconds: u64) {
    fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
    fs::write(path, text).expect("a file");
    age(path, seconds);
}

fn age(path: &Path, seconds: u64) {
    let time = UNIX_EPOCH + Duration::from_secs(seconds);
    File::open(path).and_then(|file| file.set_modified(time)).expect("a time");
}

fn link(dir: &Path, first: &str, further: &str) {
    let further = dir.join(further);
    fs::create_dir_all(further.parent().expect("a parent")).expect("a directory");
    fs::hard_link(dir.join(first), further).expect("a hard link");
}

/// Groups of small, large and empty files, within a directory and across directories.
fn source(dir: &Path) {
    file(&dir.join("a/first"), "one file", SECONDS);
    link(dir, "a/first", "a/second");
    link(dir, "a/first", "z/deep/third");
    file(&dir.join("b/alone"), "alone", SECONDS);
    file(&dir.join("empty"), "", SECONDS);
    link(dir, "empty", "empty too");
    tree::file(&dir.join("b/large"), 9 * MIB + 5, 3);
    age(&dir.join("b/large"), SECONDS);
    link(dir, "b/large", "z/large");
    link(dir, "b/large", "c/large");
    // A group of which one name lies outside of the source.
    file(&dir.join("b/outside"), "outside", SECONDS);
    fs::hard_link(dir.join("b/outside"), dir.with_extension("outside")).expect("a hard link");
}

/// Of each file its size, the begin of its content, its time, and the first name of the file.
type Survey = BTreeMap<PathBuf, (u64, Vec<u8>, i64, PathBuf)>;

/// Every file of a directory.
fn survey(dir: &Path) -> Survey {
    let mut files = BTreeMap::new();
    let mut firsts = BTreeMap::new();
    let mut all = Vec::new();
    list(dir, &mut all);
    all.sort();
    for path in all {
        let stat = fs::symlink_metadata(&path).expect("there");
        let name = path.strip_prefix(dir).expect("below").to_path_buf();
        let first = firsts.entry(stat.ino()).or_insert_with(|| name.clone()).clone();
        let mut content = fs::read(&path).expect("readable");
        content.truncate(64);
        files.insert(name, (stat.len(), content, stat.mtime(), first));
    }
    files
}

fn list(dir: &Path, all: &mut Vec<PathBuf>) {
    for item in fs::read_dir(dir).expect("a listing").flatten() {
        match item.file_type().expect("a kind").is_dir() {
            true => list(&item.path(), all),
            false => all.push(item.path()),
        }
    }
}

fn inode(path: &Path) -> u64 {
    fs::metadata(path).unwrap_or_else(|e| panic!("{}: {e}", path.display())).ino()
}

#[test]
fn groups_arrive_once_and_a_second_run_changes_nothing() {
    let rig = Rig::local();
    source(&rig.path("src"));
    let copy = |flags: &[&str]| {
        let mut cp = rig.cp();
        rig.ok(cp.arg("--json").args(flags).arg(contents(&rig.path("src"))).arg(rig.path("dst")))
    };
    let ended = copy(&["-H"]);
    assert_eq!(survey(&rig.path("src")), survey(&rig.path("dst")));
    let moved = 9 * MIB + 5 + "one file".len() as u64 + "alone".len() as u64 + 7;
    assert_eq!(ended.number("bytes_moved"), moved, "each content once");
    let before = inode(&rig.path("dst/z/large"));
    let ended = copy(&["-H"]);
    assert_eq!((ended.number("bytes_moved"), ended.number("files_moved")), (0, 0));
    assert_eq!(inode(&rig.path("dst/z/large")), before);
    // A name that became a file of its own is linked again, without its content.
    fs::remove_file(rig.path("dst/z/large")).expect("there");
    fs::copy(rig.path("dst/b/large"), rig.path("dst/z/large")).expect("a copy");
    age(&rig.path("dst/z/large"), SECONDS);
    let mut verify = rig.packtrain();
    verify.args(["verify", "-H"]).arg(contents(&rig.path("src"))).arg(rig.path("dst"));
    let ended = rig.run(&mut verify);
    assert_eq!(ended.code, 13, "{}", ended.stderr);
    let told = String::from_utf8_lossy(&ended.stdout);
    assert!(told.contains("z/large"), "{told}");
    let ended = copy(&["-H", "--dry-run"]);
    assert_eq!(ended.number("bytes_moved"), 0);
    assert_ne!(inode(&rig.path("dst/z/large")), before, "a dry run changes nothing");
    assert_eq!(copy(&["-H"]).number("bytes_moved"), 0);
    assert_eq!(survey(&rig.path("src")), survey(&rig.path("dst")));
    let mut verify = rig.packtrain();
    verify.args(["verify", "-H"]).arg(contents(&rig.path("src"))).arg(rig.path("dst"));
    rig.ok(&mut verify);
    // Without the option each name is a file of its own.
    let mut cp = rig.cp();
    rig.ok(cp.arg(contents(&rig.path("src"))).arg(rig.path("plain")));
    assert_ne!(inode(&rig.path("plain/a/first")), inode(&rig.path("plain/a/second")));
}

#[test]
fn a_changed_group_leaves_names_outside_of_it_alone() {
    let rig = Rig::local();
    let (src, dst) = (rig.path("src"), rig.path("dst"));
    for dir in [&src, &dst] {
        tree::file(&dir_made(dir).join("a"), 5 * MIB, 3);
        age(&dir.join("a"), SECONDS);
        link(dir, "a", "b");
    }
    // The target has a further name of the file, which the source does not have.
    link(&dst, "a", "kept");
    let old = fs::read(dst.join("kept")).expect("there");
    let mut bytes = fs::read(src.join("a")).expect("there");
    bytes[7] ^= 1;
    fs::write(src.join("a"), &bytes).expect("writable");
    age(&src.join("a"), SECONDS + 9);
    rig.ok(rig.cp().args(["-H", "--backup"]).arg(contents(&src)).arg(&dst));
    assert_eq!(inode(&dst.join("a")), inode(&dst.join("b")));
    assert!(fs::read(dst.join("b")).expect("there") == bytes);
    for name in ["kept", "a~", "b~"] {
        assert!(fs::read(dst.join(name)).expect("there") == old, "{name}");
    }
}

fn dir_made(dir: &Path) -> &Path {
    fs::create_dir_all(dir).expect("a directory");
    dir
}

/// The target of the comparison with rsync: names that are linked wrongly, or not at all.
fn target(dir: &Path) {
    file(&dir.join("a/first"), "one file", SECONDS);
    file(&dir.join("a/second"), "one file", SECONDS);
    file(&dir.join("z/deep/third"), "another", SECONDS - 50);
    file(&dir.join("b/alone"), "alone", SECONDS);
    link(dir, "b/alone", "b/outside");
}

/// A target of which the first name of a group has something else.
fn target_of_others(dir: &Path) {
    file(&dir.join("a/first"), "something else", SECONDS + 100);
    file(&dir.join("b/large"), "short", SECONDS - 100);
    file(&dir.join("empty"), "not empty", SECONDS + 100);
}

#[test]
fn hard_links_end_as_rsync_leaves_them() {
    if Command::new("rsync").arg("--version").output().is_err() {
        return skipped("no rsync");
    }
    let rig = Rig::local();
    let mut failed = Vec::new();
    let targets: [fn(&Path); 3] = [|_| {}, target, target_of_others];
    for (nth, flags) in [
        &["-aH"][..],
        &["-aHc"],
        &["-aH", "--delete"],
        &["-aHu"],
        &["-aH", "--ignore-existing"],
        &["-aH", "--existing"],
        &["-aH", "--size-only"],
        &["-aHb"],
        &["-aHn"],
        &["-aH", "--max-size=1K"],
        &["-aH", "--exclude=first"],
        &["-aH", "--exclude=/b/", "--delete"],
        &["-aH", "--chmod=F640"],
        &["-aHW"],
    ]
    .into_iter()
    .enumerate()
    {
        for (kind, target) in targets.iter().enumerate() {
            let dir = rig.path(&format!("case-{nth}-{kind}"));
            source(&dir.join("src"));
            for side in ["theirs", "ours"] {
                target(dir_made(&dir.join(side)));
            }
            let mut rsync = Command::new("rsync");
            let rsync = rsync.args(flags).arg(contents(&dir.join("src"))).arg(dir.join("theirs"));
            let rsync = rsync.output().expect("rsync");
            assert!(rsync.status.success(), "{}", String::from_utf8_lossy(&rsync.stderr));
            // cp has no short form of --checksum.
            let ours = flags.iter().map(|flag| if *flag == "-aHc" { "-aH" } else { flag });
            let checksum = (flags[0] == "-aHc").then_some("--checksum");
            let mut cp = rig.packtrain();
            cp.args(["cp", "--history", "none"]).args(ours).args(checksum);
            rig.ok(cp.arg(contents(&dir.join("src"))).arg(dir.join("ours")));
            let (theirs, ours) = (survey(&dir.join("theirs")), survey(&dir.join("ours")));
            if theirs != ours {
                let differ = |from: &Survey, other: &Survey| {
                    let names = from.iter().filter(|(name, what)| other.get(*name) != Some(what));
                    names.map(|(name, what)| format!("{name:?} {what:?}")).collect::<Vec<_>>()
                };
                failed.push(format!(
                    "{flags:?}, target {kind}:\n rsync: {:#?}\n cp: {:#?}",
                    differ(&theirs, &ours),
                    differ(&ours, &theirs)
                ));
            }
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn what_cannot_keep_hard_links_refuses_the_option() {
    let rig = Rig::local();
    file(&rig.path("src/f"), "f", SECONDS);
    let mut moves = rig.cp();
    moves.args(["-H", "--remove-source-files"]).arg(rig.path("src")).arg(rig.path("dst"));
    assert_eq!(rig.run(&mut moves).code, 2);
    let mut store = rig.cp();
    let ended = rig.run(store.arg("-H").arg(rig.path("src")).arg("s3://bucket/key"));
    assert_eq!(ended.code, 2);
    assert!(ended.stderr.contains("--hard-links needs packtrain"), "{}", ended.stderr);
}

#[test]
#[ignore = "needs an ssh server; `cargo xtask test` runs it"]
fn groups_arrive_over_ssh_in_both_directions_and_between_two_places() {
    let Some(rig) = Rig::ssh() else { return };
    source(&rig.path("src"));
    let (far_source, far) = (slash(&rig.far("src")), rig.far("far"));
    for (from, to, name) in [
        (contents(&rig.path("src")), far, "far"),
        (far_source.clone(), rig.path("near").into_os_string(), "near"),
        (far_source, rig.far("other"), "other"),
    ] {
        rig.ok(rig.cp().arg("-H").arg(&from).arg(&to));
        let arrived = survey(&rig.path(name));
        assert!(survey(&rig.path("src")) == arrived, "{name}: {arrived:?}");
        let mut verify = rig.packtrain();
        verify.args(["verify", "-H"]);
        rig.reach(&mut verify);
        rig.ok(verify.arg(OsStr::from_bytes(from.as_bytes())).arg(&to));
    }
}
