//! A full and a read-only disk: a small tmpfs in a mount namespace.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use packtrain_disk::{JournalFile, Kind, Meta, Root, Trouble, classify, write};
use packtrain_object::RelPath;

/// Set in the namespace: the directory to mount on.
const INSIDE: &str = "PACKTRAIN_TEST_MOUNTS";

fn rel(path: &str) -> RelPath {
    RelPath::new(path.as_bytes().to_vec()).unwrap()
}

/// Runs the test `name` again in a namespace with mounts, and returns the directory for them there.
/// `None` outside: the test has run, or was skipped.
fn in_namespace(name: &str) -> Option<PathBuf> {
    if let Some(dir) = std::env::var_os(INSIDE) {
        return Some(dir.into());
    }
    let unshare = || {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount"]);
        command
    };
    let allowed = unshare().args(["mount", "-t", "tmpfs", "none", "/tmp"]).output();
    if !allowed.is_ok_and(|out| out.status.success()) {
        packtrain_testkit::skip("no mount namespace here (unshare --user --map-root-user --mount)");
        return None;
    }
    let dir = tempfile::tempdir().unwrap();
    let me = std::env::current_exe().unwrap();
    let out = unshare()
        .arg(me)
        .args(["--exact", name, "--nocapture"])
        .env(INSIDE, dir.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&out.stdout) + String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{text}");
    assert!(text.contains("1 passed"), "{text}");
    None
}

fn mount(dir: &Path, options: &str) {
    fs::create_dir_all(dir).unwrap();
    let mounted =
        Command::new("mount").args(["-t", "tmpfs", "-o", options, "none"]).arg(dir).status();
    assert!(mounted.unwrap().success());
}

/// Uses all free space.
fn fill(dir: &Path) {
    let mut file = fs::File::create(dir.join("filler")).unwrap();
    for size in [1 << 16, 1 << 12] {
        while file.write_all(&vec![1; size]).is_ok() {}
    }
}

#[test]
fn a_full_disk_is_told_and_the_journal_still_has_room() {
    let Some(dir) = in_namespace("a_full_disk_is_told_and_the_journal_still_has_room") else {
        return;
    };
    mount(&dir, "size=4m");
    let root = Arc::new(Root::open(&dir).unwrap());
    let (mut journal, _) = JournalFile::open(&root, &rel(".journal")).unwrap();
    let temp = root.open_temp(&rel("big"), "t", 64 << 20, false).unwrap();
    fill(&dir);

    let error = write::write_all_at(&temp, 0, &[1; 1 << 16]).unwrap_err();
    assert_eq!(root.trouble(&error), Trouble::Full);
    assert!(root.trouble(&error).is_full());
    let error = root.write_small(&rel("small"), "t", &[1; 1 << 16]).unwrap_err();
    assert_eq!(classify(&error), Trouble::Full);
    assert_eq!(root.temp_stat(&rel("small"), "t").unwrap(), None, "nothing half written stays");

    // The records of the last minutes of a TiB file fit into the reserved space.
    for _ in 0..100 {
        journal.append(&[7; 1000]).unwrap();
    }
    journal.sync().unwrap();
    drop(journal);
    let (_, held) = JournalFile::open(&root, &rel(".journal")).unwrap();
    assert_eq!(held.len(), 100_000);

    // With free space, the same temporary is continued.
    fs::remove_file(dir.join("filler")).unwrap();
    write::write_all_at(&temp, 0, &[1; 1 << 16]).unwrap();
    root.sync().unwrap();
}

#[test]
fn a_compaction_that_finds_no_room_leaves_the_old_journal() {
    let name = "a_compaction_that_finds_no_room_leaves_the_old_journal";
    let Some(dir) = in_namespace(name) else { return };
    mount(&dir, "size=4m");
    let root = Arc::new(Root::open(&dir).unwrap());
    let (mut journal, _) = JournalFile::open(&root, &rel(".journal")).unwrap();
    journal.append(b"old").unwrap();
    fill(&dir);
    assert_eq!(classify(&journal.replace(&[1; 1 << 18]).unwrap_err()), Trouble::Full);
    journal.append(b" and more").unwrap();
    assert_eq!(JournalFile::read(&root, &rel(".journal")).unwrap(), b"old and more");
    assert_eq!(root.list(&RelPath::root()).unwrap().len(), 2, "no temporary stays");
}

#[test]
fn a_disk_without_inodes_is_told_from_a_full_one() {
    let Some(dir) = in_namespace("a_disk_without_inodes_is_told_from_a_full_one") else { return };
    mount(&dir, "size=4m,nr_inodes=8");
    let root = Root::open(&dir).unwrap();
    let error = (0..20)
        .find_map(|n| root.write_small(&rel(&format!("f{n}")), "t", b"").err())
        .expect("no inodes for twenty files");
    assert_eq!(root.trouble(&error), Trouble::FullInodes);
    assert!(root.trouble(&error).sentence().contains("inodes"));
    assert_eq!(root.free_space().unwrap().inodes, Some(0));
}

#[test]
fn a_read_only_disk_is_told() {
    let Some(dir) = in_namespace("a_read_only_disk_is_told") else { return };
    mount(&dir, "ro");
    let root = Root::open(&dir).unwrap();
    for error in [
        root.write_small(&rel("f"), "t", b"").unwrap_err(),
        root.make_dir(&rel("d"), 0o755).unwrap_err(),
        root.open_temp(&rel("f"), "t", 1, true).unwrap_err(),
    ] {
        assert_eq!(classify(&error), Trouble::ReadOnly);
    }
}

#[test]
fn another_file_system_beneath_the_root_is_used_and_synced() {
    let name = "another_file_system_beneath_the_root_is_used_and_synced";
    let Some(dir) = in_namespace(name) else { return };
    mount(&dir, "size=4m");
    mount(&dir.join("other"), "size=4m");
    let root = Root::open(&dir).unwrap();
    root.make_dir(&rel("other/d"), 0o755).unwrap();
    root.write_small(&rel("other/d/f"), "t", b"x").unwrap();
    root.sync().unwrap();
    root.commit(&rel("other/d/f"), "t", &Meta::default()).unwrap();
    root.sync().unwrap();
    let (here, there) = (RelPath::root(), rel("other/d/f"));
    let (here, there) = (root.stat(&here).unwrap().unwrap(), root.stat(&there).unwrap().unwrap());
    assert_eq!(there.kind, Kind::File);
    assert_ne!(here.dev, there.dev);
}
