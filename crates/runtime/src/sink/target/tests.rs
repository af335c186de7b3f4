//! Messages of failures, and files that are closed for another transfer.

use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use packtrain_disk::Kept;
use packtrain_object::manifest::encode_segment;
use packtrain_transfer::message::{Backup, ExtraOptions, Message};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::*;
use crate::assembly::PieceTarget;
use crate::confinement::Confinement;
use crate::sink::Destination;
use crate::sink::open::open;

/// What is said of a full disk at this destination.
fn said(path: &[u8], confined: Option<&Path>) -> String {
    let confined = confined.map(|root| Confinement::open(root).expect("a directory"));
    let destination =
        Destination { path: path.to_vec(), confined, sources: 1, names: None, owners: false };
    let nothing = (Vec::new(), Vec::new());
    let (failures, empty) = nothing;
    let end = Message::ManifestEnd { entries: 0, failed: 0, vanished: 0, failures, empty };
    let options = Options::default();
    let target = open(&destination, &end, &options).expect("a directory").target(&options, false);
    target.failure(&entry(), "cannot be written", &Errno::NOSPC.into()).text
}

fn entry() -> Entry {
    let kind = EntryKind::File { size: 1 };
    let path = RelPath::new(b"f".to_vec()).expect("a path");
    let mtime = packtrain_object::Mtime { secs: 0, nanos: 0 };
    let extras = packtrain_object::Extras::default();
    Entry { path, kind, mode: 0o644, mtime, uid: 0, gid: 0, extras }
}

#[test]
fn a_client_of_a_server_is_not_told_where_its_root_is() {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::create_dir(dir.path().join("up")).expect("a directory");
    for (path, shown) in [(&b"up"[..], "up: "), (b"/up/", "/up/: "), (b"", "/: ")] {
        let text = said(path, Some(dir.path()));
        assert!(text.starts_with(shown) && text.contains("is full"), "{text}");
        assert!(!text.contains(&dir.path().display().to_string()), "{text}");
    }
    let own = dir.path().as_os_str().as_encoded_bytes();
    assert!(said(own, None).starts_with(&format!("{}: ", dir.path().display())));
}

#[test]
fn a_link_to_a_directory_below_the_root_of_a_server_is_one() {
    use std::os::unix::fs::symlink;
    let dir = tempfile::tempdir().expect("a directory");
    let at = |name: &str| dir.path().join(name);
    for made in ["root/releases/5", "outside"] {
        std::fs::create_dir_all(at(made)).expect("a directory");
    }
    std::fs::write(at("root/file"), "old").expect("written");
    for (to, name) in [
        ("releases/5", "current"),
        ("file", "other"),
        ("nothing", "dangling"),
        ("../outside", "out"),
    ] {
        symlink(to, at("root").join(name)).expect("a link");
    }
    let put = |name: &str| -> Result<(), Failure> {
        let confined = Some(Confinement::open(&at("root")).expect("a directory"));
        let (path, owners) = (name.as_bytes().to_vec(), false);
        let destination = Destination { path, confined, sources: 1, names: None, owners };
        let first = Message::Manifest(encode_segment(EntryId(0), &[entry()]));
        let options = Options::default();
        let target = Arc::new(open(&destination, &first, &options)?.target(&options, false));
        SharedTarget(Arc::clone(&target)).write_small(EntryId(0), &entry(), b"x")?;
        target.commit(EntryId(0), &entry())
    };
    let is_link = |name: &str| at("root").join(name).is_symlink();
    put("current").expect("put into the directory");
    assert!(is_link("current"));
    assert_eq!(std::fs::read(at("root/releases/5/f")).expect("it is there"), b"x");
    // As anywhere, a link to a file or to nothing is replaced.
    for name in ["other", "dangling"] {
        put(name).expect("put in the place of the link");
        assert!(!is_link(name) && at("root").join(name).is_file());
    }
    let failure = put("out").expect_err("it leads out");
    assert_eq!(failure.kind, FailureKind::TargetRefused);
    assert!(is_link("out") && std::fs::read_dir(at("outside")).expect("it").next().is_none());
}

#[test]
fn closed_files_are_free_for_another_transfer() {
    let dir = tempfile::tempdir().expect("a directory");
    let options = Options { inplace: true, ..Options::default() };
    let target = || {
        let root = Arc::new(Root::open(dir.path()).expect("a directory"));
        let (shown, tag) = (b"d".to_vec(), "0".to_owned());
        Target::new((root, shown), RelPath::root(), None, tag, options.clone(), false)
    };
    let (one, other, entry) = (target(), target(), entry());
    one.file(EntryId(0), &entry).expect("it is free");
    one.mark_dirty(EntryId(0), &one.file(EntryId(0), &entry).expect("it is open"));
    let failure = other.file(EntryId(0), &entry).expect_err("it is locked");
    assert!(failure.text.contains("has locked it"), "{}", failure.text);
    one.close_all();
    other.file(EntryId(0), &entry).expect("it is free again");
    assert!(one.dirty.lock().many, "what was written is still to be synced");
}

#[test]
fn same_bytes_in_place_are_written_again() {
    let dir = tempfile::tempdir().expect("a directory");
    let options = Options { inplace: true, ..Options::default() };
    let root = Arc::new(Root::open(dir.path()).expect("a directory"));
    let target =
        Target::new((root, b"d".to_vec()), RelPath::root(), None, "0".into(), options, false);
    let target = SharedTarget(Arc::new(target));
    let entry = Entry { kind: EntryKind::File { size: 3 }, ..entry() };
    let path = dir.path().join("f");
    let long_ago = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1);
    std::fs::write(&path, "old").expect("written");
    let there = File::options().write(true).open(&path).expect("it is there");
    there.set_modified(long_ago).expect("an old time");
    target.write_old(EntryId(0), &entry, 0, b"old").expect("written");
    assert_eq!(std::fs::read(&path).expect("readable"), b"old");
    let time = there.metadata().expect("open").modified().expect("a time");
    assert_ne!(time, long_ago, "the write-back of an earlier run may have failed");
}

#[test]
fn a_file_that_changes_its_owner_keeps_its_bits() {
    const NOBODY: u32 = 65_534;
    if !geteuid().is_root() {
        packtrain_testkit::skip("another user's file needs root");
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let options = Options { preserve_mode: true, preserve_owner: true, ..Options::default() };
    let root = Arc::new(Root::open(dir.path()).expect("a directory"));
    let target =
        Target::new((root, b"d".to_vec()), RelPath::root(), None, "0".into(), options, true);
    let path = dir.path().join("f");
    std::fs::write(&path, "x").expect("written");
    for (mode, owner) in [(0o4755, (NOBODY, 0)), (0o2755, (0, NOBODY)), (0o6711, (0, 0))] {
        std::os::unix::fs::chown(&path, Some(owner.0), Some(owner.1)).expect("changed");
        std::fs::set_permissions(&path, Permissions::from_mode(mode)).expect("changed");
        let entry = Entry { mode, ..entry() };
        target.settle(&entry).expect("settled");
        let found = std::fs::metadata(&path).expect("it is there");
        assert_eq!((found.mode() & 0o7777, found.uid(), found.gid()), (mode, 0, 0));
    }
}

#[test]
fn an_earlier_backup_of_another_kind_gives_way_only_in_a_directory_for_backups() {
    for prefix in ["", "p"] {
        let dir = tempfile::tempdir().expect("a directory");
        let base = dir.path().join(prefix);
        let target = |backup: Backup| {
            let options = Options {
                extra: Box::new(ExtraOptions { backup: Some(backup), ..ExtraOptions::default() }),
                ..Options::default()
            };
            let root = Arc::new(Root::open(dir.path()).expect("a directory"));
            let prefix = match prefix {
                "" => RelPath::root(),
                prefix => RelPath::new(prefix.into()).expect("a path"),
            };
            Target::new((root, b"d".to_vec()), prefix, None, "0".to_owned(), options, false)
        };
        let write = |name: &str, text: &str| {
            let path = base.join(name);
            std::fs::create_dir_all(path.parent().expect("it has one")).expect("made");
            std::fs::write(path, text).expect("written");
        };
        let read = |name: &str| std::fs::read_to_string(base.join(name)).ok();
        let inside = Backup { suffix: Vec::new(), dir: Some(b"BK".to_vec()) };
        // x was a file and is a directory; z the reverse.
        write("BK/x", "file");
        write("BK/z/y", "old");
        write("x/y", "new");
        write("z", "file");
        let target_inside = target(inside);
        for name in ["x/y", "z"] {
            let place = target_inside.below(name.as_bytes()).expect("a path");
            assert_eq!(target_inside.back_up(&place), Ok(Kept::Linked), "{prefix} {name}");
        }
        assert_eq!(read("BK/x/y").as_deref(), Some("new"));
        assert_eq!(read("BK/z").as_deref(), Some("file"));
        // A source that has such names itself may have just written them.
        write("BK/w/y", "copied");
        write("w", "file");
        let filled = target(Backup { suffix: Vec::new(), dir: Some(b"BK".to_vec()) });
        let path = RelPath::new(b"BK/w".to_vec()).expect("a path");
        filled.examine(&Entry { path, ..entry() });
        assert!(filled.back_up(&filled.below(b"w").expect("a path")).is_err());
        assert_eq!(read("BK/w/y").as_deref(), Some("copied"));
        // Beside it, a directory of that name is no backup.
        write("z~/mine", "mine");
        let beside = target(Backup { suffix: b"~".to_vec(), dir: None });
        let place = beside.below(b"z").expect("a path");
        assert!(beside.back_up(&place).is_err());
        assert_eq!(read("z~/mine").as_deref(), Some("mine"));
    }
}
