//! Fresh trees: what has its name is what a sync covered, and nothing else.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;

use packtrain_disk::{Meta, Root, Trouble, WalkOptions, Walker, classify};
use packtrain_object::{EntryId, Mtime, RelPath};

const NOBODY: u32 = 65_534;
const TAG: &str = "0a1b2c3d";
const MTIME: Mtime = Mtime { secs: 1_000_000_000, nanos: 5 };
const META: Meta<'static> =
    Meta { mode: None, mtime: Some(MTIME), owner: None, attributes: None, acls: None };

fn rel(path: &str) -> RelPath {
    RelPath::new(path.as_bytes().to_vec()).unwrap()
}

fn place() -> (tempfile::TempDir, Root) {
    let dir = tempfile::tempdir().unwrap();
    let root = Root::open(dir.path()).unwrap();
    (dir, root)
}

fn is_root() -> bool {
    if fs::metadata("/proc/self").is_ok_and(|me| me.uid() == 0) {
        return true;
    }
    packtrain_testkit::skip("another user's file needs root");
    false
}

/// All paths below a directory, sorted.
fn names(dir: &Path) -> Vec<String> {
    let (mut found, mut waiting) = (Vec::new(), vec![dir.to_path_buf()]);
    while let Some(at) = waiting.pop() {
        for item in fs::read_dir(&at).unwrap().flatten() {
            let path = item.path();
            found.push(path.strip_prefix(dir).unwrap().to_string_lossy().into_owned());
            if item.file_type().unwrap().is_dir() {
                waiting.push(path);
            }
        }
    }
    found.sort();
    found
}

fn write(root: &Root, id: u32, path: &str, mode: u32) -> bool {
    root.write_fresh(EntryId(id), &rel(path), path.as_bytes(), mode, &META).unwrap()
}

/// Plans a directory and makes it at once.
fn make(root: &Root, path: &str, mode: u32) {
    root.plan_dir(&rel(path), mode, TAG);
    assert!(root.make_planned().is_empty());
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

/// Seals, syncs and publishes as a sink does.
fn publish(root: &Root, unverified: &[u32]) -> Vec<(Vec<u8>, std::io::Error)> {
    root.seal_trees();
    root.sync().unwrap();
    let unverified: Vec<EntryId> = unverified.iter().map(|id| EntryId(*id)).collect();
    root.publish_trees(TAG, &unverified)
}

#[test]
fn files_have_their_names_only_when_the_tree_has_its_own() {
    let (dir, root) = place();
    make(&root, "d", 0o750);
    make(&root, "d/e", 0o755);
    let modes = [(1, "d/a", 0o644), (2, "d/e/b", 0o600), (3, "d/e/c", 0o666), (4, "d/f", 0o444)];
    for (id, path, mode) in modes {
        assert!(write(&root, id, path, mode));
        assert_eq!(root.stat(&rel(path)).unwrap().unwrap().size, path.len() as u64);
    }
    root.make_symlink(&rel("d/l"), b"a").unwrap();
    let hidden = format!(".d.packtrain-{TAG}");
    let below = ["", "/a", "/e", "/e/b", "/e/c", "/f", "/l"];
    assert_eq!(names(dir.path()), below.map(|path| format!("{hidden}{path}")));
    assert_eq!(mode(&dir.path().join(&hidden)), 0o700, "nobody else enters it");
    assert!(!root.has_sealed_trees() && root.sealed_files().is_empty());
    assert!(publish(&root, &[]).is_empty());
    assert_eq!(names(dir.path()), below.map(|path| format!("d{path}")));
    let umask = fs::metadata(dir.path().join("d")).unwrap();
    assert_eq!(umask.mode() & 0o7777 & !0o750, 0, "no more than was asked for");
    for (id, path, wanted) in modes {
        let at = dir.path().join(path);
        assert_eq!(fs::read(&at).unwrap(), path.as_bytes());
        assert_eq!((mode(&at), fs::metadata(&at).unwrap().mtime()), (wanted, MTIME.secs), "{path}");
        root.take_named(EntryId(id), &rel(path)).expect("published").unwrap();
        assert!(root.take_named(EntryId(id), &rel(path)).is_none(), "once");
    }
    assert!(!root.has_temps());
}

#[test]
fn what_comes_after_the_seal_is_a_temporary() {
    let (dir, root) = place();
    make(&root, "d", 0o755);
    assert!(write(&root, 1, "d/1", 0o644));
    assert!(root.seal_trees());
    assert!(!write(&root, 2, "d/2", 0o644), "the sync may have begun");
    root.write_ready(&rel("d/2"), TAG, b"2", 0o644, &META).unwrap();
    // A directory that is made now is a tree of its own, inside.
    make(&root, "d/sub", 0o755);
    assert!(write(&root, 3, "d/sub/3", 0o644));
    assert_eq!(root.sealed_files(), [EntryId(1)]);
    assert!(root.publish_trees(TAG, &[]).is_empty());
    let sub = format!("d/.sub.packtrain-{TAG}");
    let temp = format!("d/.2.packtrain-{TAG}");
    assert_eq!(
        names(dir.path()),
        ["d".to_owned(), temp, sub.clone(), sub + "/3", "d/1".to_owned()]
    );
    root.commit_ready(&rel("d/2"), TAG).unwrap();
    assert!(publish(&root, &[]).is_empty());
    assert_eq!(names(dir.path()), ["d", "d/1", "d/2", "d/sub", "d/sub/3"]);
}

#[test]
fn nothing_unverified_gets_a_name() {
    let (dir, root) = place();
    make(&root, "d", 0o755);
    for id in 1..=4 {
        assert!(write(&root, id, &format!("d/{id}"), 0o644));
    }
    // Written again, because its digest was wrong.
    assert!(root.write_fresh(EntryId(1), &rel("d/1"), b"right", 0o644, &META).unwrap());
    // Failed at the source.
    assert!(root.discard_fresh(EntryId(4)) && !root.discard_fresh(EntryId(4)));
    assert!(publish(&root, &[2, 3]).is_empty());
    let temp = |id| format!("d/.{id}.packtrain-{TAG}");
    assert_eq!(names(dir.path()), ["d".to_owned(), temp(2), temp(3), "d/1".to_owned()]);
    assert_eq!(fs::read(dir.path().join("d/1")).unwrap(), b"right");
    assert!(root.take_named(EntryId(2), &rel("d/2")).is_none(), "it has no name");
    // Verified in the meantime, or written again.
    root.commit_ready(&rel("d/2"), TAG).unwrap();
    root.write_ready(&rel("d/3"), TAG, b"new", 0o644, &META).unwrap();
    root.commit_ready(&rel("d/3"), TAG).unwrap();
    assert_eq!(names(dir.path()), ["d", "d/1", "d/2", "d/3"]);
    assert_eq!(fs::read(dir.path().join("d/3")).unwrap(), b"new");
}

#[test]
fn a_directory_that_appears_meanwhile_takes_the_content() {
    let (dir, root) = place();
    make(&root, "d", 0o755);
    make(&root, "d/e", 0o755);
    make(&root, "d/only", 0o755);
    for (id, path) in [(1, "d/1"), (2, "d/e/2"), (3, "d/only/3"), (4, "d/4"), (5, "d/5")] {
        assert!(write(&root, id, path, 0o644));
    }
    fs::create_dir_all(dir.path().join("d/e")).unwrap();
    fs::create_dir(dir.path().join("d/4")).unwrap();
    for theirs in ["d/1", "d/theirs", "d/e/theirs"] {
        fs::write(dir.path().join(theirs), "theirs").unwrap();
    }
    assert!(publish(&root, &[5]).is_empty());
    let temp = format!("d/.5.packtrain-{TAG}");
    let wanted =
        ["d", &temp, "d/1", "d/4", "d/e", "d/e/2", "d/e/theirs", "d/only", "d/only/3", "d/theirs"];
    assert_eq!(names(dir.path()), wanted);
    assert_eq!(fs::read(dir.path().join("d/1")).unwrap(), b"d/1", "replaced, as by a rename");
    for (id, path) in [(1, "d/1"), (2, "d/e/2"), (3, "d/only/3")] {
        root.take_named(EntryId(id), &rel(path)).expect("named").unwrap();
    }
    // Where a directory is in the way, that file fails alone.
    let error = root.take_named(EntryId(4), &rel("d/4")).expect("known").unwrap_err();
    assert_eq!(classify(&error), Trouble::IsDirectory);
    root.commit_ready(&rel("d/5"), TAG).unwrap();
    // The directory is used under its name from now on.
    root.write_ready(&rel("d/e/6"), TAG, b"6", 0o644, &META).unwrap();
    root.commit_ready(&rel("d/e/6"), TAG).unwrap();
    assert_eq!(fs::read(dir.path().join("d/e/6")).unwrap(), b"6");
}

#[test]
fn what_cannot_move_into_a_directory_that_appears_meanwhile_is_told() {
    let (dir, root) = place();
    make(&root, "d", 0o755);
    assert!(write(&root, 1, "d/file", 0o644) && write(&root, 2, "d/in_the_way", 0o644));
    for link in ["d/link", "d/other"] {
        root.make_symlink(&rel(link), b"file").unwrap();
    }
    for empty in ["d/empty", "d/merged"] {
        make(&root, empty, 0o755);
    }
    for theirs in ["d/in_the_way", "d/link", "d/merged"] {
        fs::create_dir_all(dir.path().join(theirs)).unwrap();
    }
    fs::write(dir.path().join("d/empty"), "theirs").unwrap();
    let mut told = publish(&root, &[]);
    told.sort_by(|(one, _), (other, _)| one.cmp(other));
    let told: Vec<_> = told.iter().map(|(path, error)| (&path[..], classify(error))).collect();
    let wanted = [(&b"d/empty"[..], Trouble::NotDirectory), (b"d/link", Trouble::IsDirectory)];
    assert_eq!(told, wanted, "a file tells its own failure");
    root.take_named(EntryId(1), &rel("d/file")).expect("known").unwrap();
    root.take_named(EntryId(2), &rel("d/in_the_way")).expect("known").unwrap_err();
    let left = ["d", "d/empty", "d/file", "d/in_the_way", "d/link", "d/merged", "d/other"];
    assert_eq!(names(dir.path()), left);
    assert!(publish(&root, &[]).is_empty(), "once");
}

#[test]
fn a_tree_of_this_run_is_not_removed_for_another_of_its_hidden_name() {
    let (dir, root) = place();
    fs::create_dir(dir.path().join("a")).unwrap();
    // Two paths to one directory, as two names that differ in case where case does not count.
    symlink("a", dir.path().join("b")).unwrap();
    make(&root, "a/d", 0o755);
    assert!(write(&root, 1, "a/d/1", 0o644));
    make(&root, "b/d", 0o755);
    assert!(write(&root, 2, "b/d/2", 0o644) && write(&root, 3, "a/d/3", 0o644));
    assert!(publish(&root, &[]).is_empty());
    for (id, path) in [(1, "a/d/1"), (2, "b/d/2"), (3, "a/d/3")] {
        root.take_named(EntryId(id), &rel(path)).expect("known").unwrap();
    }
    assert_eq!(names(dir.path()), ["a", "a/d", "a/d/1", "a/d/2", "a/d/3", "b"]);
}

#[test]
fn something_else_that_appears_meanwhile_stays() {
    for is_link in [false, true] {
        let (dir, root) = place();
        fs::create_dir(dir.path().join("other")).unwrap();
        make(&root, "d", 0o755);
        make(&root, "good", 0o755);
        assert!(write(&root, 1, "d/1", 0o644) && write(&root, 2, "good/2", 0o644));
        match is_link {
            true => symlink("other", dir.path().join("d")).unwrap(),
            false => fs::write(dir.path().join("d"), "theirs").unwrap(),
        }
        let failed = publish(&root, &[]);
        assert_eq!(failed.len(), 1);
        assert_eq!((&failed[0].0[..], classify(&failed[0].1)), (&b"d"[..], Trouble::NotDirectory));
        assert!(root.take_named(EntryId(1), &rel("d/1")).expect("known").is_err());
        assert!(
            root.naming_error(&rel("d/later")).is_err() && root.naming_error(&rel("d2")).is_ok()
        );
        root.take_named(EntryId(2), &rel("good/2")).expect("known").unwrap();
        root.finish_trees(TAG);
        assert_eq!(names(dir.path()), ["d", "good", "good/2", "other"], "and no hidden directory");
    }
}

#[test]
fn a_later_run_replaces_its_own_tree() {
    let (dir, root) = place();
    make(&root, "d", 0o755);
    make(&root, "d/e", 0o755);
    assert!(write(&root, 1, "d/e/stale", 0o644));
    drop(root);
    // The first run was killed.
    let later = Root::open(dir.path()).unwrap();
    make(&later, "d", 0o755);
    assert!(write(&later, 1, "d/new", 0o644));
    assert!(publish(&later, &[]).is_empty());
    assert_eq!(names(dir.path()), ["d", "d/new"], "nothing of a run that synced nothing");
}

#[test]
fn another_users_directory_is_neither_used_nor_removed() {
    if !is_root() {
        return;
    }
    let (dir, root) = place();
    let trap = dir.path().join(format!(".d.packtrain-{TAG}"));
    fs::create_dir(&trap).unwrap();
    fs::write(trap.join("planted"), "planted").unwrap();
    chown(&trap, Some(NOBODY), Some(NOBODY)).unwrap();
    fs::set_permissions(&trap, fs::Permissions::from_mode(0o777)).unwrap();
    make(&root, "d", 0o755);
    assert!(write(&root, 1, "d/1", 0o644));
    assert!(publish(&root, &[]).is_empty());
    assert_eq!(names(&dir.path().join("d")), ["1"]);
    assert_eq!(names(&trap), ["planted"]);
    // A link there is removed, not followed.
    let victim = dir.path().join("victim");
    fs::create_dir(&victim).unwrap();
    symlink(&victim, dir.path().join(format!(".x.packtrain-{TAG}"))).unwrap();
    make(&root, "x", 0o755);
    assert!(write(&root, 2, "x/2", 0o644));
    assert!(names(&victim).is_empty());
}

#[test]
fn a_tree_that_was_replaced_gets_no_name() {
    let (dir, root) = place();
    make(&root, "d", 0o755);
    assert!(write(&root, 1, "d/1", 0o644));
    let hidden = dir.path().join(format!(".d.packtrain-{TAG}"));
    fs::rename(&hidden, dir.path().join("stolen")).unwrap();
    fs::create_dir(&hidden).unwrap();
    fs::write(hidden.join("1"), "planted").unwrap();
    assert_eq!(publish(&root, &[]).len(), 1);
    assert!(root.take_named(EntryId(1), &rel("d/1")).expect("known").is_err());
    assert!(!dir.path().join("d").exists());
}

#[test]
fn a_directory_with_a_group_gives_it_to_all_below() {
    if !is_root() {
        return;
    }
    let (dir, root) = place();
    chown(dir.path(), None, Some(NOBODY)).unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o2775)).unwrap();
    make(&root, "d", 0o755);
    make(&root, "d/e", 0o755);
    assert!(write(&root, 1, "d/e/1", 0o640));
    assert!(publish(&root, &[]).is_empty());
    for (path, mode) in [("d", 0o2755), ("d/e", 0o2755), ("d/e/1", 0o640)] {
        let stat = fs::metadata(dir.path().join(path)).unwrap();
        assert_eq!((stat.gid(), stat.mode() & 0o7777), (NOBODY, mode), "{path}");
    }
}

#[test]
fn a_default_acl_is_inherited_as_without_a_tree() {
    let (dir, root) = place();
    // Owner rwx, a named user r-x, group r-x, mask r-x, others none.
    let entries: [(u16, u16, u32); 5] =
        [(1, 7, u32::MAX), (2, 5, 1234), (4, 5, u32::MAX), (16, 5, u32::MAX), (32, 0, u32::MAX)];
    let mut acl = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        acl.extend(tag.to_le_bytes());
        acl.extend(permissions.to_le_bytes());
        acl.extend(id.to_le_bytes());
    }
    let name = "system.posix_acl_default";
    let flags = rustix::fs::XattrFlags::empty();
    if rustix::fs::setxattr(dir.path(), name, &acl, flags).is_err() {
        packtrain_testkit::skip("this file system has no ACLs");
        return;
    }
    let acl_of = |path: &str, name: &str| {
        let mut value = vec![0; 256];
        let len = rustix::fs::getxattr(dir.path().join(path), name, &mut value[..]).unwrap_or(0);
        value.truncate(len);
        value
    };
    root.make_dir(&rel("plain"), 0o777).unwrap();
    make(&root, "d", 0o777);
    for (id, file, wanted) in [(1, "a", 0o644), (2, "b", 0o644), (3, "c", 0o777), (4, "d", 0o600)] {
        assert!(write(&root, id, &format!("d/{file}"), wanted));
        let plain = rel(&format!("plain/{file}"));
        root.write_ready(&plain, TAG, b"x", wanted, &META).unwrap();
        root.commit_ready(&plain, TAG).unwrap();
    }
    assert!(publish(&root, &[]).is_empty());
    for (fresh, plain) in [("d", "plain"), ("d/a", "plain/a"), ("d/c", "plain/c")] {
        assert_eq!(mode(&dir.path().join(fresh)), mode(&dir.path().join(plain)), "{fresh}");
        let access = "system.posix_acl_access";
        assert!(!acl_of(fresh, access).is_empty(), "{fresh}: the named user is there");
        assert_eq!(acl_of(fresh, access), acl_of(plain, access), "{fresh}");
    }
    assert_eq!(acl_of("d", name), acl);
    for (file, wanted) in [("a", 0o644), ("b", 0o644), ("c", 0o777), ("d", 0o600)] {
        assert_eq!(mode(&dir.path().join("d").join(file)), wanted, "{file}");
    }
}

#[test]
fn an_early_end_keeps_what_can_be_resumed_and_nothing_unsynced() {
    let (dir, root) = place();
    make(&root, "d", 0o755);
    assert!(write(&root, 1, "d/1", 0o644));
    root.open_temp(&rel("d/big"), TAG, 9, true).unwrap().write_all(b"resumable").unwrap();
    root.open_temp(&rel("d/middle"), TAG, 9, false).unwrap().write_all(b"x").unwrap();
    root.finish_trees(TAG);
    root.remove_unfinished_temps(TAG);
    assert_eq!(names(dir.path()), ["d".to_owned(), format!("d/.big.packtrain-{TAG}")]);
    let later = Root::open(dir.path()).unwrap();
    assert_eq!(later.temp_stat(&rel("d/big"), TAG).unwrap().map(|stat| stat.size), Some(9));
}

#[test]
fn more_directories_than_can_be_open_at_once() {
    let (dir, root) = place();
    for n in 0..150 {
        let (one, two) = (format!("top/{n}"), format!("top/{n}/x"));
        if n == 0 {
            make(&root, "top", 0o755);
        }
        make(&root, &one, 0o755);
        make(&root, &two, 0o755);
        if n == 75 {
            // From here on trees within a sealed tree.
            assert!(root.seal_trees());
        }
    }
    let is_open = |n: u32| n > 75;
    for n in (0..150).rev() {
        let path = format!("top/{n}/x/f");
        assert_eq!(write(&root, n, &path, 0o644), is_open(n), "{n}");
        if !is_open(n) {
            root.write_ready(&rel(&path), TAG, b"x", 0o644, &META).unwrap();
        }
    }
    assert!(publish(&root, &[]).is_empty());
    for n in 0..150 {
        let path = rel(&format!("top/{n}/x/f"));
        match is_open(n) {
            true => root.take_named(EntryId(n), &path).expect("named").unwrap(),
            false => root.commit_ready(&path, TAG).unwrap(),
        }
        assert!(dir.path().join(format!("top/{n}/x/f")).is_file());
    }
    assert_eq!(names(dir.path()).len(), 1 + 3 * 150);
}

#[test]
fn a_directory_is_made_when_something_is_put_into_it() {
    let (dir, root) = place();
    for path in ["d", "d/a", "d/b", "d/b/empty", "e"] {
        root.plan_dir(&rel(path), 0o755, TAG);
    }
    assert!(names(dir.path()).is_empty());
    assert!(write(&root, 1, "d/a/1", 0o644));
    assert!(root.seal_trees());
    // Nothing was in it at the seal: it is a tree of its own.
    assert!(write(&root, 2, "d/b/2", 0o644));
    assert!(root.publish_trees(TAG, &[]).is_empty());
    let tree = format!("d/.b.packtrain-{TAG}");
    let wanted = ["d".to_owned(), tree.clone(), format!("{tree}/2"), "d/a".into(), "d/a/1".into()];
    assert_eq!(names(dir.path()), wanted);
    // Links and temporaries are put into it too.
    root.make_symlink(&rel("e/l"), b"x").unwrap();
    root.write_ready(&rel("d/b/empty/3"), TAG, b"3", 0o644, &META).unwrap();
    assert!(publish(&root, &[]).is_empty());
    root.commit_ready(&rel("d/b/empty/3"), TAG).unwrap();
    root.plan_dir(&rel("last"), 0o755, TAG);
    root.plan_dir(&rel("last/inside"), 0o755, TAG);
    assert!(root.make_planned().is_empty() && publish(&root, &[]).is_empty());
    let wanted = [
        "d",
        "d/a",
        "d/a/1",
        "d/b",
        "d/b/2",
        "d/b/empty",
        "d/b/empty/3",
        "e",
        "e/l",
        "last",
        "last/inside",
    ];
    assert_eq!(names(dir.path()), wanted);
    // One that cannot be made fails, and what is put into it.
    fs::write(dir.path().join("file"), "").unwrap();
    for path in ["file/x", "file/x/y"] {
        root.plan_dir(&rel(path), 0o755, TAG);
    }
    let error = root.write_fresh(EntryId(9), &rel("file/x/y/f"), b"", 0o644, &META).unwrap_err();
    assert_eq!(classify(&error), Trouble::NotDirectory);
    assert_eq!(root.make_planned().len(), 2);
}

#[test]
fn the_walk_does_not_enter_trees_of_other_transfers() {
    let dir = tempfile::tempdir().unwrap();
    for path in [".d.packtrain-0a1b2c3d", ".user.packtrain-notes", "d"] {
        fs::create_dir(dir.path().join(path)).unwrap();
        fs::write(dir.path().join(path).join("f"), "").unwrap();
    }
    let options = WalkOptions { recursive: true, ..WalkOptions::default() };
    let found = Walker::new(&[dir.path().join(".")], options)
        .map(|item| item.unwrap().entry.path.to_string())
        .filter(|path| path.ends_with("/f"))
        .collect::<Vec<_>>();
    assert_eq!(found, [".user.packtrain-notes/f", "d/f"]);
}
