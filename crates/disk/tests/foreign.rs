//! Files that another user planted under the names of temporaries, journals and locks.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::sync::Arc;

use packtrain_disk::{JournalFile, Lock, LockError, Meta, Root};
use packtrain_object::RelPath;

const NOBODY: u32 = 65_534;
const TAG: &str = "0a1b2c3d";

fn rel(path: &str) -> RelPath {
    RelPath::new(path.as_bytes().to_vec()).unwrap()
}

fn place() -> (tempfile::TempDir, Arc<Root>) {
    let dir = tempfile::tempdir().unwrap();
    let root = Arc::new(Root::open(dir.path()).unwrap());
    (dir, root)
}

/// The same directory, opened by a later run.
fn later(dir: &tempfile::TempDir) -> Arc<Root> {
    Arc::new(Root::open(dir.path()).unwrap())
}

/// Whether this process is root; otherwise reports the test as skipped.
fn is_root() -> bool {
    if fs::metadata("/proc/self").is_ok_and(|me| me.uid() == 0) {
        return true;
    }
    packtrain_testkit::skip("another user's file needs root");
    false
}

fn plant(at: &Path, content: &str, mode: u32, owner: Option<u32>) {
    fs::write(at, content).unwrap();
    fs::set_permissions(at, fs::Permissions::from_mode(mode)).unwrap();
    if let Some(owner) = owner {
        chown(at, Some(owner), Some(owner)).unwrap();
    }
}

#[test]
fn another_users_file_is_never_filled() {
    if !is_root() {
        return;
    }
    let (dir, _) = place();
    let trap = dir.path().join(format!(".f.packtrain-{TAG}"));
    for mode in [0o666, 0o600] {
        plant(&trap, "planted", mode, Some(NOBODY));
        let mut held = fs::File::open(&trap).unwrap();
        let root = later(&dir);
        assert_eq!(root.temp_stat(&rel("f"), TAG).unwrap(), None, "it counts as nothing");
        root.open_temp(&rel("f"), TAG, 6, true).unwrap().write_all(b"secret").unwrap();
        root.commit(&rel("f"), TAG, &Meta { mode: Some(0o600), ..Meta::default() }).unwrap();
        let made = fs::metadata(dir.path().join("f")).unwrap();
        assert_eq!((made.uid(), made.mode() & 0o7777), (0, 0o600));
        assert_eq!(fs::read(dir.path().join("f")).unwrap(), b"secret");
        let mut seen = String::new();
        held.read_to_string(&mut seen).unwrap();
        assert_eq!(seen, "planted", "whoever held the planted file learns nothing");
        assert!(!trap.exists());
    }
}

#[test]
fn a_file_that_others_may_write_is_not_trusted() {
    let (dir, _) = place();
    plant(&dir.path().join(format!(".f.packtrain-{TAG}")), "planted", 0o666, None);
    let root = later(&dir);
    assert_eq!(root.temp_stat(&rel("f"), TAG).unwrap(), None);
    let mut held = Vec::new();
    root.open_temp(&rel("f"), TAG, 7, true).unwrap().read_to_end(&mut held).unwrap();
    assert_eq!(held, [0; 7], "made anew");
}

#[test]
fn a_pipe_does_not_hold_and_a_second_name_does_not_mislead() {
    let (dir, _) = place();
    let trap = dir.path().join(format!(".f.packtrain-{TAG}"));
    let victim = dir.path().join("victim");
    fs::write(&victim, "precious").unwrap();
    let mkfifo = || {
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mkfifoat(rustix::fs::CWD, &trap, mode).unwrap();
    };
    let plants: [&dyn Fn(); 3] =
        [&mkfifo, &|| symlink(&victim, &trap).unwrap(), &|| fs::hard_link(&victim, &trap).unwrap()];
    for plant in plants {
        plant();
        let root = later(&dir);
        assert_eq!(root.temp_stat(&rel("f"), TAG).unwrap(), None);
        root.open_temp(&rel("f"), TAG, 3, true).unwrap().write_all(b"new").unwrap();
        root.commit(&rel("f"), TAG, &Meta::default()).unwrap();
        assert_eq!(fs::read(dir.path().join("f")).unwrap(), b"new");
        assert!(fs::symlink_metadata(dir.path().join("f")).unwrap().is_file());
    }
    assert_eq!(fs::read(&victim).unwrap(), b"precious");
}

/// A name that cannot be removed (here a directory; otherwise another user's file in a directory
/// with the sticky bit) does not stop a transfer, and a later transfer finds what the first left.
#[test]
fn a_name_that_cannot_be_had_is_no_denial_of_service() {
    let (dir, root) = place();
    for name in ["f", "g", "h"] {
        fs::create_dir(dir.path().join(format!(".{name}.packtrain-{TAG}"))).unwrap();
    }
    root.open_temp(&rel("f"), TAG, 5, true).unwrap().write_all(b"begun").unwrap();
    root.write_small(&rel("g"), TAG, b"small").unwrap();
    root.commit(&rel("g"), TAG, &Meta::default()).unwrap();
    root.write_ready(&rel("h"), TAG, b"ready", 0o644, &Meta::default()).unwrap();
    root.commit_ready(&rel("h"), TAG).unwrap();
    assert_eq!(fs::read(dir.path().join("g")).unwrap(), b"small");
    assert_eq!(fs::read(dir.path().join("h")).unwrap(), b"ready");

    let root = later(&dir);
    assert_eq!(root.temp_stat(&rel("f"), TAG).unwrap().unwrap().size, 5);
    let mut held = Vec::new();
    root.open_temp(&rel("f"), TAG, 5, true).unwrap().read_to_end(&mut held).unwrap();
    assert_eq!(held, b"begun");
    root.commit(&rel("f"), TAG, &Meta::default()).unwrap();
    let left = fs::read_dir(dir.path()).unwrap().flatten().filter(|e| e.path().is_file()).count();
    assert_eq!(left, 3, "no temporary stays");
}

/// The temporary is replaced between two writes of one run: the other file is not written, and no
/// incomplete file gets the target's name.
#[test]
fn a_temporary_that_is_replaced_in_the_middle_of_a_run_fails() {
    let (dir, root) = place();
    let temp = dir.path().join(format!(".f.packtrain-{TAG}"));
    drop(root.open_temp(&rel("f"), TAG, 4, true).unwrap());
    // The inode number is not reused as long as the first file exists.
    fs::rename(&temp, dir.path().join("aside")).unwrap();
    plant(&temp, "else", 0o600, None);
    assert!(root.open_temp(&rel("f"), TAG, 4, true).is_err());
    assert!(root.commit(&rel("f"), TAG, &Meta::default()).is_err());
    assert!(!dir.path().join("f").exists());
    assert_eq!(fs::read(&temp).unwrap(), b"else");
}

#[test]
fn what_no_run_goes_on_from_is_removed_and_the_rest_stays() {
    let (dir, root) = place();
    drop(root.open_temp(&rel("resumable"), TAG, 4, true).unwrap());
    drop(root.open_temp(&rel("anew"), TAG, 4, false).unwrap());
    root.write_small(&rel("small"), TAG, b"x").unwrap();
    assert!(root.has_temp(&rel("anew")) && !root.has_temp(&rel("other")));
    root.remove_unfinished_temps(TAG);
    let names: Vec<_> =
        fs::read_dir(dir.path()).unwrap().flatten().map(|e| e.file_name()).collect();
    assert_eq!(names, [format!(".resumable.packtrain-{TAG}").as_str()]);
}

#[test]
fn a_lock_that_is_not_ours_is_neither_written_nor_waited_for() {
    let (dir, root) = place();
    let at = dir.path().join(".lock");
    let victim = dir.path().join("victim");
    fs::write(&victim, "precious").unwrap();
    fs::hard_link(&victim, &at).unwrap();
    drop(Lock::take(&root, &rel(".lock"), "me").unwrap());
    assert_eq!(fs::read(&victim).unwrap(), b"precious", "it was not cut to nothing");
    symlink(&victim, &at).unwrap();
    drop(Lock::take(&root, &rel(".lock"), "me").unwrap());
    assert_eq!(fs::read(&victim).unwrap(), b"precious");
    fs::create_dir(&at).unwrap();
    assert!(matches!(Lock::take(&root, &rel(".lock"), "me"), Err(LockError::Foreign)));
    fs::remove_dir(&at).unwrap();
    if is_root() {
        plant(&at, "mine for ever", 0o666, Some(NOBODY));
        let held = fs::File::open(&at).unwrap();
        rustix::fs::flock(&held, rustix::fs::FlockOperation::LockExclusive).unwrap();
        let lock = Lock::take(&root, &rel(".lock"), "me").unwrap();
        assert_eq!(fs::metadata(&at).unwrap().uid(), 0);
        assert!(matches!(Lock::take(&root, &rel(".lock"), "you"), Err(LockError::Held { .. })));
        drop(lock);
    }
}

#[test]
fn an_existing_lock_is_taken_without_making_one() {
    let (dir, root) = place();
    assert!(Lock::take_existing(&root, &rel(".lock")).unwrap().is_none());
    let held = Lock::take(&root, &rel(".lock"), "process 7").unwrap();
    match Lock::take_existing(&root, &rel(".lock")) {
        Err(LockError::Held { who }) => assert_eq!(who, "process 7"),
        other => panic!("{other:?}"),
    }
    drop(held);
    plant(&dir.path().join(".lock"), "dead", 0o600, None);
    drop(Lock::take_existing(&root, &rel(".lock")).unwrap().unwrap());
    assert!(dir.path().join(".lock").exists(), "only looked at");
    Lock::take_existing(&root, &rel(".lock")).unwrap().unwrap().remove_file();
    assert!(!dir.path().join(".lock").exists());
}

#[test]
fn another_users_journal_vouches_for_nothing() {
    if !is_root() {
        return;
    }
    let (dir, root) = place();
    plant(&dir.path().join(".packtrain-x.journal"), "lies", 0o600, Some(NOBODY));
    let at = rel(".packtrain-x.journal");
    assert!(JournalFile::read(&root, &at).unwrap().is_empty());
    JournalFile::discard(&root, &at).unwrap();
    let (_, held) = JournalFile::open(&root, &at).unwrap();
    assert!(held.is_empty());
    assert_eq!(fs::metadata(dir.path().join(".packtrain-x.journal")).unwrap().uid(), 0);
}

/// Two writers of one file in place exclude each other, by whatever name they open it.
#[test]
fn one_writer_in_place_at_a_time() {
    let (dir, root) = place();
    let first = root.open_in_place(&rel("f"), Some(3), false).unwrap();
    fs::hard_link(dir.path().join("f"), dir.path().join("g")).unwrap();
    let other = Root::open(dir.path()).unwrap();
    let error = other.open_in_place(&rel("g"), None, false).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ResourceBusy);
    // One transfer may have both names of the file in its tree.
    root.open_in_place(&rel("g"), None, false).unwrap();
    drop(first);
    other.open_in_place(&rel("g"), None, false).unwrap();
}

/// A directory that is removed while it is listed is not an empty one: `--delete` would take its
/// names for removed too.
#[test]
fn a_removed_directory_is_not_an_empty_one() {
    let (dir, root) = place();
    fs::create_dir(dir.path().join("d")).unwrap();
    let mut opened = root.removal_dir(&rel("d")).unwrap();
    assert!(opened.list(b"").unwrap().is_empty());
    fs::remove_dir(dir.path().join("d")).unwrap();
    assert_eq!(opened.list(b"").unwrap_err().kind(), std::io::ErrorKind::NotFound);
}
