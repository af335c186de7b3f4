use super::*;
use std::io::Write;
use std::os::unix::fs::FileExt;

fn place() -> (tempfile::TempDir, Root, RelPath) {
    let dir = tempfile::tempdir().unwrap();
    let root = Root::open(dir.path()).unwrap();
    (dir, root, RelPath::new(b"file".to_vec()).unwrap())
}

#[test]
fn a_file_that_shrinks_or_is_written_has_changed() {
    let (dir, root, rel) = place();
    let path = dir.path().join("file");
    std::fs::write(&path, b"0123456789").unwrap();
    let source = SourceFile::open(&root, &rel).unwrap();
    let mut out = [0; 4];
    source.read_exact_at(3, &mut out).unwrap();
    assert_eq!(&out, b"3456");
    assert!(source.matches(10, source.mtime()) && !source.matches(9, source.mtime()));
    source.check_unchanged().unwrap();

    let writer = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    writer.set_len(5).unwrap();
    assert!(matches!(source.read_exact_at(3, &mut out), Err(ReadError::Changed)));
    assert!(matches!(source.check_unchanged(), Err(ReadError::Changed)));
    // The same length again, with another time.
    writer.set_len(10).unwrap();
    writer.set_modified(std::time::UNIX_EPOCH).unwrap();
    assert!(matches!(source.check_unchanged(), Err(ReadError::Changed)));
}

#[test]
fn a_file_replaced_by_name_is_still_the_one_that_was_opened() {
    let (dir, root, rel) = place();
    std::fs::write(dir.path().join("file"), b"old").unwrap();
    let source = SourceFile::open(&root, &rel).unwrap();
    std::fs::write(dir.path().join("new"), b"newer").unwrap();
    std::fs::rename(dir.path().join("new"), dir.path().join("file")).unwrap();
    source.check_unchanged().unwrap();
    let mut out = [0; 3];
    source.read_exact_at(0, &mut out).unwrap();
    assert_eq!(&out, b"old");
}

#[test]
fn holes_are_found_and_data_is_not_taken_for_one() {
    let (dir, root, rel) = place();
    let file = std::fs::File::create(dir.path().join("file")).unwrap();
    let mib = 1 << 20;
    file.set_len(16 * mib).unwrap();
    file.write_all_at(&[1; 4096], 4 * mib).unwrap();
    file.write_all_at(&[1; 4096], 12 * mib).unwrap();
    file.sync_all().unwrap();
    let source = SourceFile::open(&root, &rel).unwrap();
    if !source.may_have_holes() {
        packtrain_testkit::skip("the file system of the temporary directory has no sparse files");
        return;
    }
    let first = source.next_hole(0).unwrap().expect("a hole at the start");
    assert_eq!(first, 0..4 * mib);
    let second = source.next_hole(4 * mib).unwrap().expect("a hole after the data");
    assert!(second.start > 4 * mib && second.end == 12 * mib, "{second:?}");
    assert_eq!(source.next_hole(13 * mib).unwrap(), Some(13 * mib..16 * mib));
    assert_eq!(source.next_hole(16 * mib).unwrap(), None);
}

#[test]
fn small_and_full_files_are_always_read() {
    let (dir, root, rel) = place();
    let mut file = std::fs::File::create(dir.path().join("file")).unwrap();
    file.set_len(1 << 20).unwrap();
    let source = SourceFile::open(&root, &rel).unwrap();
    assert!(!source.may_have_holes());
    assert_eq!(source.next_hole(0).unwrap(), None);

    file.write_all(&vec![0; 3 << 20]).unwrap();
    file.sync_all().unwrap();
    let source = SourceFile::open(&root, &rel).unwrap();
    assert_eq!(source.next_hole(0).unwrap(), None, "written zeros are data");
}

#[test]
fn what_is_no_regular_file_is_refused() {
    let (dir, root, rel) = place();
    std::os::unix::fs::symlink("/etc/passwd", dir.path().join("file")).unwrap();
    assert!(SourceFile::open(&root, &rel).is_err());
    std::fs::remove_file(dir.path().join("file")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, dir.path().join("file"), rustix::fs::Mode::RWXU).unwrap();
    assert!(SourceFile::open(&root, &rel).is_err(), "and it did not hang");
}

#[test]
fn a_small_file_is_read_whole_or_has_changed() {
    let (dir, root, rel) = place();
    let path = dir.path().join("file");
    std::fs::write(&path, b"0123456789").unwrap();
    let mtime = SourceFile::open(&root, &rel).unwrap().mtime();
    let read = |len: usize, mtime| {
        let mut out = vec![0; len];
        SmallSource::open(&root, &rel).unwrap().read(mtime, &mut out).map(|()| out)
    };
    assert_eq!(read(10, mtime).unwrap(), b"0123456789");
    let other = Mtime { secs: mtime.secs, nanos: mtime.nanos ^ 1 };
    for (len, mtime) in [(9, mtime), (11, mtime), (10, other)] {
        assert!(matches!(read(len, mtime), Err(ReadError::Changed)), "{len}");
    }
    // Opened, and then written.
    let opened = SmallSource::open(&root, &rel).unwrap();
    let writer = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    writer.write_all_at(b"x", 0).unwrap();
    writer.set_modified(std::time::UNIX_EPOCH).unwrap();
    assert!(matches!(opened.read(mtime, &mut [0; 10]), Err(ReadError::Changed)));
}

#[test]
fn nothing_but_a_file_is_read_as_a_small_one() {
    let (dir, root, rel) = place();
    let read = || {
        let opened = SmallSource::open(&root, &rel)?;
        match opened.read(Mtime { secs: 0, nanos: 0 }, &mut [0; 3]) {
            Err(ReadError::Io(error)) => Err(error),
            other => panic!("{other:?}"),
        }
    };
    let kind = |error: std::io::Error| error.kind();
    std::fs::create_dir(dir.path().join("file")).unwrap();
    assert_eq!(read().map_err(kind), Err::<(), _>(std::io::ErrorKind::IsADirectory));
    std::fs::remove_dir(dir.path().join("file")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, dir.path().join("file"), rustix::fs::Mode::RWXU).unwrap();
    assert_eq!(read().map_err(kind), Err(std::io::ErrorKind::Unsupported), "and it did not hang");
    std::fs::remove_file(dir.path().join("file")).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", dir.path().join("file")).unwrap();
    assert!(SmallSource::open(&root, &rel).is_err());
}
