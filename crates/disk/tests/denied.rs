//! Permissions of an ordinary user. Root runs these tests again without its privileges over files.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

use packtrain_disk::{Meta, Root, Trouble, WalkOptions, Walker, classify};
use packtrain_object::RelPath;

/// Set in the run without privileges.
const INSIDE: &str = "PACKTRAIN_TEST_ORDINARY";

fn rel(path: &str) -> RelPath {
    RelPath::new(path.as_bytes().to_vec()).unwrap()
}

/// Whether permissions apply to this process. As root it runs the test `name` again in a user
/// namespace that maps no other user; its own files are still its own there.
fn bound(name: &str) -> bool {
    if !rustix::process::geteuid().is_root() || std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let out = Command::new("unshare")
        .arg("--user")
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(INSIDE, "1")
        .output();
    match out {
        Ok(out) if String::from_utf8_lossy(&out.stdout).contains("running 1 test") => {
            let text = String::from_utf8_lossy(&out.stdout) + String::from_utf8_lossy(&out.stderr);
            assert!(out.status.success() && text.contains("1 passed"), "{text}");
        }
        _ => packtrain_testkit::skip("root without user namespaces: permissions are not tested"),
    }
    false
}

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn an_unreadable_directory_or_file_is_a_failure_of_its_own() {
    if !bound("an_unreadable_directory_or_file_is_a_failure_of_its_own") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let d = dir.path().join("d");
    fs::create_dir_all(d.join("shut/x")).unwrap();
    fs::write(d.join("z"), "").unwrap();
    mode(&d.join("shut"), 0);
    let walker = Walker::new(
        std::slice::from_ref(&d),
        WalkOptions { recursive: true, ..Default::default() },
    );
    let (found, failed): (Vec<_>, Vec<_>) = walker.partition(Result::is_ok);
    mode(&d.join("shut"), 0o755);
    let names: Vec<_> =
        found.into_iter().map(|item| item.unwrap().entry.path.to_string()).collect();
    assert_eq!(names, ["d", "d/shut", "d/z"]);
    let failure = failed.into_iter().next().unwrap().unwrap_err();
    assert_eq!(classify(&failure.error), Trouble::Denied);
    assert!(failure.path.ends_with(b"d/shut") && !failure.is_source);

    mode(&d.join("z"), 0);
    let root = Root::open(&d).unwrap();
    assert_eq!(classify(&root.open_read(&rel("z")).unwrap_err()), Trouble::Denied);
}

#[test]
fn a_directory_without_write_permission_still_takes_its_files() {
    if !bound("a_directory_without_write_permission_still_takes_its_files") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let root = Root::open(dir.path()).unwrap();
    root.make_dir(&rel("d"), 0o755).unwrap();
    root.settle(&rel("d"), &Meta { mode: Some(0o500), ..Meta::default() }).unwrap();
    assert_eq!(classify(&root.write_small(&rel("d/f"), "t", b"").unwrap_err()), Trouble::Denied);
    root.make_dir(&rel("d"), 0o500).unwrap();
    root.write_small(&rel("d/f"), "t", b"").unwrap();
    root.commit(&rel("d/f"), "t", &Meta { mode: Some(0o400), ..Meta::default() }).unwrap();
    // Even a directory that cannot be read or entered is made accessible, and a read-only file is
    // replaced.
    for shut in [0o000, 0o300, 0o400] {
        root.settle(&rel("d"), &Meta { mode: Some(shut), ..Meta::default() }).unwrap();
        root.make_dir(&rel("d"), 0o500).unwrap();
        root.write_small(&rel("d/f"), "t", b"new").unwrap();
        root.commit(&rel("d/f"), "t", &Meta { mode: Some(0o400), ..Meta::default() }).unwrap();
    }
    assert_eq!(fs::read(dir.path().join("d/f")).unwrap(), b"new");
    assert_eq!(fs::metadata(dir.path().join("d/f")).unwrap().mode() & 0o777, 0o400);
}

#[test]
fn a_root_that_can_be_entered_but_not_listed_takes_files() {
    if !bound("a_root_that_can_be_entered_but_not_listed_takes_files") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let drop_box = dir.path().join("drop");
    fs::create_dir(&drop_box).unwrap();
    mode(&drop_box, 0o300);
    let root = Root::open(&drop_box).unwrap();
    root.write_small(&rel("f"), "t", b"x").unwrap();
    root.sync().unwrap();
    root.commit(&rel("f"), "t", &Meta::default()).unwrap();
    assert_eq!(classify(&root.list(&RelPath::root()).unwrap_err()), Trouble::Denied);
    mode(&drop_box, 0o500);
    assert_eq!(classify(&root.write_small(&rel("g"), "t", b"x").unwrap_err()), Trouble::Denied);
    mode(&drop_box, 0o700);
    assert_eq!(fs::read(drop_box.join("f")).unwrap(), b"x");
}

#[test]
fn an_owner_we_may_not_give_is_left_and_counted_and_no_file_acts_for_it() {
    if !bound("an_owner_we_may_not_give_is_left_and_counted_and_no_file_acts_for_it") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let root = Root::open(dir.path()).unwrap();
    let meta = Meta { owner: Some((0, 0)), mode: Some(0o7755), ..Meta::default() };
    root.write_small(&rel("f"), "t", b"x").unwrap();
    root.commit(&rel("f"), "t", &meta).unwrap();
    root.write_ready(&rel("g"), "t", b"x", 0o7755, &meta).unwrap();
    root.commit_ready(&rel("g"), "t").unwrap();
    root.make_dir(&rel("d"), 0o700).unwrap();
    root.settle(&rel("d"), &meta).unwrap();
    assert_eq!(root.not_owned(), 3);
    for (name, mode) in [("f", 0o755), ("g", 0o755), ("d", 0o1755)] {
        let stat = root.stat(&rel(name)).unwrap().unwrap();
        assert_ne!(stat.uid, 0, "{name}");
        assert_eq!(stat.mode, mode, "{name}");
    }
    // A file of its own owner is not foreign.
    let own = root.stat(&rel("f")).unwrap().unwrap();
    let meta = Meta { owner: Some((own.uid, own.gid)), mode: Some(0o4755), ..Meta::default() };
    root.settle(&rel("f"), &meta).unwrap();
    assert_eq!(root.not_owned(), 3);
    assert_eq!(root.stat(&rel("f")).unwrap().unwrap().mode, 0o4755);
}
