//! A root and the operations beneath it.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::sync::Arc;

use packtrain_disk::{Kind, Meta, Root, Trouble, classify, write};
use packtrain_object::{Mtime, RelPath};

fn rel(path: &str) -> RelPath {
    RelPath::new(path.as_bytes().to_vec()).unwrap()
}

fn place() -> (tempfile::TempDir, Root) {
    let dir = tempfile::tempdir().unwrap();
    let root = Root::create(&dir.path().join("made/for/this")).unwrap();
    (dir, root)
}

const NEW: Meta<'static> = Meta {
    mode: Some(0o640),
    mtime: Some(Mtime { secs: 1_000_000_000, nanos: 123_456_789 }),
    owner: None,
    attributes: None,
    acls: None,
};

#[test]
fn a_file_takes_its_name_when_it_is_complete() {
    let (_dir, root) = place();
    root.make_dir(&rel("d"), 0o755).unwrap();
    let target = rel("d/file");
    fs::write(root.path().join("d/file"), "old").unwrap();

    let temp = root.open_temp(&target, "t1", 1 << 20, false).unwrap();
    write::write_all_at(&temp, 4096, b"new").unwrap();
    drop(temp);
    assert_eq!(fs::read(root.path().join("d/file")).unwrap(), b"old", "until the end");
    let stat = root.temp_stat(&target, "t1").unwrap().unwrap();
    assert_eq!((stat.size, stat.mode, stat.kind), (1 << 20, 0o600, Kind::File));
    assert!(root.path().join("d/.file.packtrain-t1").exists());

    // Reopened, it keeps its content and gets another length.
    let mut again = root.open_temp(&target, "t1", 4099, true).unwrap();
    let mut held = Vec::new();
    again.read_to_end(&mut held).unwrap();
    assert_eq!((held.len(), &held[4096..]), (4099, &b"new"[..]));
    drop(again);

    root.commit(&target, "t1", &NEW).unwrap();
    let stat = root.stat(&target).unwrap().unwrap();
    assert_eq!((stat.size, stat.mode, Some(stat.mtime)), (4099, 0o640, NEW.mtime));
    assert_eq!(root.temp_stat(&target, "t1").unwrap(), None);
    assert_eq!(root.list(&rel("d")).unwrap().len(), 1);
}

#[test]
fn without_keeping_a_temporary_begins_anew() {
    let (_dir, root) = place();
    let target = rel("f");
    root.open_temp(&target, "t", 3, false).unwrap().write_all(b"abc").unwrap();
    let mut held = Vec::new();
    root.open_temp(&target, "t", 3, false).unwrap().read_to_end(&mut held).unwrap();
    assert_eq!(held, [0; 3]);
    root.remove_temp(&target, "t").unwrap();
    root.remove_temp(&target, "t").unwrap();
    assert!(root.commit(&target, "t", &NEW).is_err());
}

#[test]
fn small_files_are_written_and_committed() {
    let (_dir, root) = place();
    for n in 0..300 {
        root.make_dir(&rel(&format!("d{n}")), 0o755).unwrap();
        let target = rel(&format!("d{n}/f"));
        root.write_small(&target, "t", format!("{n}").as_bytes()).unwrap();
    }
    root.sync().unwrap();
    for n in (0..300).rev() {
        root.commit(&rel(&format!("d{n}/f")), "t", &NEW).unwrap();
        assert_eq!(
            fs::read(root.path().join(format!("d{n}/f"))).unwrap(),
            format!("{n}").as_bytes()
        );
    }
}

#[test]
fn without_a_mode_the_old_files_or_the_masks_is_kept() {
    let (_dir, root) = place();
    fs::write(root.path().join("old"), "").unwrap();
    fs::set_permissions(root.path().join("old"), fs::Permissions::from_mode(0o751)).unwrap();
    for name in ["old", "new"] {
        root.write_small(&rel(name), "t", b"x").unwrap();
        root.commit(&rel(name), "t", &Meta::default()).unwrap();
    }
    assert_eq!(root.stat(&rel("old")).unwrap().unwrap().mode, 0o751);
    fs::write(root.path().join("plain"), "").unwrap();
    let plain = fs::metadata(root.path().join("plain")).unwrap().mode() & 0o7777;
    assert_eq!(root.stat(&rel("new")).unwrap().unwrap().mode, plain);
}

#[test]
fn names_of_255_bytes_have_temporaries_of_their_own() {
    let (_dir, root) = place();
    let one = rel(&("é".repeat(127) + "1"));
    let two = rel(&("é".repeat(127) + "2"));
    for (path, bytes) in [(&one, b"1"), (&two, b"2")] {
        root.write_small(path, "0123456789abcdef", bytes).unwrap();
    }
    for item in root.list(&RelPath::root()).unwrap() {
        assert!(item.name.len() <= 255);
        String::from_utf8(item.name).expect("cut between characters");
    }
    for (path, bytes) in [(&one, b"1"), (&two, b"2")] {
        root.commit(path, "0123456789abcdef", &NEW).unwrap();
        assert_eq!(fs::read(root.path().join(path.to_string())).unwrap(), bytes);
    }
    for bad in ["", "a/b", &"x".repeat(65)] {
        assert!(root.write_small(&one, bad, b"").is_err());
    }
}

#[test]
fn no_link_leads_out() {
    let (dir, root) = place();
    let outside = dir.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("secret"), "s").unwrap();
    for (name, target) in [
        ("abs", outside.to_str().unwrap()),
        ("up", "../../../outside"),
        ("magic", "/proc/self/cwd"),
    ] {
        symlink(target, root.path().join(name)).unwrap();
        let beneath = rel(&format!("{name}/secret"));
        let attempts = [
            root.stat(&beneath).map(drop),
            root.open_read(&beneath).map(drop),
            root.make_dir(&rel(&format!("{name}/d")), 0o755),
            root.make_symlink(&beneath, b"x"),
            root.write_small(&beneath, "t", b"x"),
            root.open_temp(&beneath, "t", 1, true).map(drop),
            root.commit(&beneath, "t", &NEW),
            root.settle(&beneath, &NEW),
            root.remove(&beneath),
            root.removal_dir(&beneath).map(drop),
            root.list(&beneath).map(drop),
            // A directory where the link is.
            root.make_dir(&rel(name), 0o755),
        ];
        for (at, attempt) in attempts.into_iter().enumerate() {
            let error = attempt.expect_err(&format!("attempt {at} by {name}"));
            assert_eq!(classify(&error), Trouble::Escapes, "attempt {at} by {name}: {error}");
        }
        assert!(root.list(&rel(name)).is_err());
        assert!(root.open_read(&rel(name)).is_err(), "the last component is not followed");
    }
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
    assert_eq!(fs::read(outside.join("secret")).unwrap(), b"s");
}

#[test]
fn a_link_put_where_a_temporary_goes_is_not_written_through() {
    let (dir, root) = place();
    let victim = dir.path().join("victim");
    fs::write(&victim, "precious").unwrap();
    let trap = root.path().join(".f.packtrain-t");
    for keep in [true, false] {
        symlink(&victim, &trap).unwrap();
        root.open_temp(&rel("f"), "t", 1, keep).unwrap().write_all(b"x").unwrap();
        fs::remove_file(&trap).unwrap();
    }
    symlink(&victim, &trap).unwrap();
    root.write_small(&rel("f"), "t", b"x").unwrap();
    fs::remove_file(&trap).unwrap();
    // A hard link to another file is not accepted as a temporary either.
    fs::hard_link(&victim, &trap).unwrap();
    root.open_temp(&rel("f"), "t", 1, true).unwrap().write_all(b"x").unwrap();
    fs::remove_file(&trap).unwrap();
    symlink(&victim, &trap).unwrap();
    assert!(root.commit(&rel("f"), "t", &NEW).is_err());
    assert_eq!(fs::read(&victim).unwrap(), b"precious");
    assert_ne!(fs::metadata(&victim).unwrap().mode() & 0o777, 0o640);
}

#[test]
fn a_link_that_stays_within_is_followed_on_the_way() {
    let (_dir, root) = place();
    root.make_dir(&rel("real"), 0o755).unwrap();
    root.make_symlink(&rel("alias"), b"real").unwrap();
    root.make_dir(&rel("alias"), 0o755).unwrap();
    root.write_small(&rel("alias/f"), "t", b"x").unwrap();
    root.commit(&rel("alias/f"), "t", &NEW).unwrap();
    assert_eq!(fs::read(root.path().join("real/f")).unwrap(), b"x");
}

#[test]
fn links_are_made_replaced_and_settled() {
    let (dir, root) = place();
    let victim = dir.path().join("victim");
    fs::write(&victim, "").unwrap();
    fs::set_permissions(&victim, fs::Permissions::from_mode(0o600)).unwrap();
    let link = rel("l");
    root.make_symlink(&link, b"first").unwrap();
    root.make_symlink(&link, victim.to_str().unwrap().as_bytes()).unwrap();
    assert_eq!(root.read_link(&link).unwrap(), victim.to_str().unwrap().as_bytes());
    root.settle(&link, &NEW).unwrap();
    assert_eq!(Some(root.stat(&link).unwrap().unwrap().mtime), NEW.mtime);
    assert_eq!(fs::metadata(&victim).unwrap().mode() & 0o777, 0o600);
    assert_ne!(fs::metadata(&victim).unwrap().mtime(), 1_000_000_000);
    // It replaces a file, but not a directory.
    fs::write(root.path().join("f"), "").unwrap();
    root.make_symlink(&rel("f"), b"x").unwrap();
    root.make_dir(&rel("d"), 0o755).unwrap();
    let error = root.make_symlink(&rel("d"), b"x").unwrap_err();
    assert_eq!(classify(&error), Trouble::IsDirectory);
    assert_eq!(root.list(&RelPath::root()).unwrap().len(), 3, "no temporary stays");
}

#[test]
fn directories_are_made_kept_and_settled() {
    let (_dir, root) = place();
    let d = rel("d");
    root.make_dir(&d, 0o500).unwrap();
    assert_eq!(root.stat(&d).unwrap().unwrap().mode & 0o700, 0o700, "writable while we work");
    root.settle(&d, &Meta { mode: Some(0o555), ..NEW }).unwrap();
    let stat = root.stat(&d).unwrap().unwrap();
    assert_eq!((stat.mode, Some(stat.mtime)), (0o555, NEW.mtime));
    root.make_dir(&d, 0o555).unwrap();
    assert_eq!(root.stat(&d).unwrap().unwrap().mode, 0o755, "writable again");
    fs::write(root.path().join("f"), "").unwrap();
    assert_eq!(classify(&root.make_dir(&rel("f"), 0o755).unwrap_err()), Trouble::NotDirectory);
    assert_eq!(classify(&root.make_dir(&rel("f/d"), 0o755).unwrap_err()), Trouble::NotDirectory);
    assert_eq!(classify(&root.make_dir(&rel("no/d"), 0o755).unwrap_err()), Trouble::NotFound);
    root.settle(&RelPath::root(), &NEW).unwrap();
    let here = root.stat(&RelPath::root()).unwrap().unwrap();
    assert_eq!((here.mode, Some(here.mtime)), (0o640, NEW.mtime));
    root.settle(&RelPath::root(), &Meta { mode: Some(0o755), ..Meta::default() }).unwrap();
}

#[test]
fn a_directory_in_a_files_place_is_told() {
    let (_dir, root) = place();
    root.make_dir(&rel("f"), 0o755).unwrap();
    root.write_small(&rel("f"), "t", b"x").unwrap();
    let error = root.commit(&rel("f"), "t", &NEW).unwrap_err();
    assert_eq!(classify(&error), Trouble::IsDirectory);
    assert!(root.temp_stat(&rel("f"), "t").unwrap().is_some(), "the temporary stays");
    assert_eq!(classify(&root.open_read(&rel("f")).unwrap_err()), Trouble::IsDirectory);
}

#[test]
fn names_are_removed_over_no_link_and_directories_only_when_empty() {
    let (dir, root) = place();
    let outside = dir.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("f"), "").unwrap();
    fs::create_dir_all(root.path().join("t/a/b")).unwrap();
    fs::create_dir_all(root.path().join("t/other")).unwrap();
    fs::write(root.path().join("t/other/f"), "").unwrap();
    symlink(&outside, root.path().join("t/out")).unwrap();
    symlink("other", root.path().join("t/link")).unwrap();
    // In the cache, which must drop it.
    root.write_small(&rel("t/a/b/x"), "t", b"").unwrap();
    let mut open = root.removal_dir(&rel("t")).unwrap();
    for link in ["out", "link"] {
        assert!(open.list(link.as_bytes()).is_err(), "{link}");
        let within = format!("{link}/f");
        assert!(open.remove(within.as_bytes(), Kind::File).is_err(), "{link}");
    }
    assert!(open.remove(b"../outside/f", Kind::File).is_err());
    assert!(open.remove(b"", Kind::Directory).is_err());
    let full = open.remove(b"a/b", Kind::Directory).unwrap_err();
    assert_eq!(classify(&full), Trouble::NotEmpty);
    open.remove(b"a/b/.x.packtrain-t", Kind::File).unwrap();
    open.remove(b"a/b", Kind::Directory).unwrap();
    open.remove(b"link", Kind::Symlink).unwrap();
    assert_eq!(open.list(b"a").unwrap(), []);
    assert!(outside.join("f").exists() && root.path().join("t/other/f").exists());
    // Created again under the same name, the new directory is written to.
    fs::create_dir(root.path().join("t/a/b")).unwrap();
    root.write_small(&rel("t/a/b/x"), "t", b"").unwrap();
    assert!(root.path().join("t/a/b/.x.packtrain-t").exists());
}

#[test]
fn a_directory_deleted_by_others_and_made_again_is_found() {
    let (_dir, root) = place();
    root.make_dir(&rel("d"), 0o755).unwrap();
    root.write_small(&rel("d/x"), "t", b"").unwrap();
    fs::remove_dir_all(root.path().join("d")).unwrap();
    fs::create_dir(root.path().join("d")).unwrap();
    root.write_small(&rel("d/x"), "t", b"").unwrap();
    assert!(root.path().join("d/.x.packtrain-t").exists());
    fs::remove_dir_all(root.path().join("d")).unwrap();
    assert_eq!(classify(&root.write_small(&rel("d/x"), "t", b"").unwrap_err()), Trouble::NotFound);
}

#[test]
fn a_very_deep_tree_is_removed_without_many_open_files() {
    let (_dir, root) = place();
    let mut paths = vec![String::from("x")];
    for depth in 0..1100 {
        root.make_dir(&rel(&paths[depth]), 0o755).unwrap();
        paths.push(format!("{}/x", paths[depth]));
    }
    let mut open = root.removal_dir(&RelPath::root()).unwrap();
    for path in paths[..1100].iter().rev() {
        open.remove(path.as_bytes(), Kind::Directory).unwrap();
    }
    assert!(root.list(&RelPath::root()).unwrap().is_empty());
}

#[test]
fn sparse_temporaries_take_no_space() {
    let (_dir, root) = place();
    let file = root.open_temp(&rel("f"), "t", 1 << 30, false).unwrap();
    write::write_all_at(&file, 1 << 29, &[1; 4096]).unwrap();
    file.sync_all().unwrap();
    let stat = root.temp_stat(&rel("f"), "t").unwrap().unwrap();
    root.sync_temp(&rel("f"), "t").unwrap();
    assert!(root.sync_temp(&rel("g"), "t").is_err());
    assert!(stat.is_sparse() && stat.blocks * 512 < 1 << 20, "{} blocks", stat.blocks);
}

#[test]
fn names_are_bytes() {
    let (_dir, root) = place();
    let odd = RelPath::new(b"\xff\n\x01 \\".to_vec()).unwrap();
    root.write_small(&odd, "t", b"x").unwrap();
    root.commit(&odd, "t", &NEW).unwrap();
    assert_eq!(root.list(&RelPath::root()).unwrap()[0].name, odd.as_bytes());
}

#[test]
fn threads_share_a_root() {
    let (_dir, root) = place();
    let root = Arc::new(root);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let root = &root;
            scope.spawn(move || {
                for n in 0..50 {
                    root.make_dir(&rel(&format!("d{n}")), 0o755).unwrap();
                    let target = rel(&format!("d{n}/f{thread}"));
                    root.write_small(&target, "t", b"x").unwrap();
                    root.commit(&target, "t", &NEW).unwrap();
                }
            });
        }
    });
    assert_eq!(root.list(&rel("d49")).unwrap().len(), 4);
    assert!(root.free_space().unwrap().available.get() > 0);
}

#[test]
fn a_root_must_be_a_directory() {
    let (dir, _root) = place();
    fs::write(dir.path().join("f"), "").unwrap();
    assert_eq!(classify(&Root::open(&dir.path().join("f")).unwrap_err()), Trouble::NotDirectory);
    assert_eq!(
        classify(&Root::create(&dir.path().join("f/x")).unwrap_err()),
        Trouble::NotDirectory
    );
    assert_eq!(classify(&Root::open(&dir.path().join("no")).unwrap_err()), Trouble::NotFound);
}
