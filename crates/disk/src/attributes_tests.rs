use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;
use crate::Meta;

const TAG: &str = "0123456789abcdef";

fn rel(path: &str) -> RelPath {
    RelPath::new(path.as_bytes().to_vec()).expect("a path")
}

fn attributes(pairs: &[(&str, &str)]) -> Attributes {
    let owned = |(name, value): &(&str, &str)| (name.as_bytes().into(), value.as_bytes().into());
    Attributes::new(pairs.iter().map(owned).collect()).expect("attributes")
}

/// A directory, if its file system has attributes of users.
fn place() -> Option<(tempfile::TempDir, Root)> {
    let dir = tempfile::tempdir().expect("a directory");
    let root = Root::open(dir.path()).expect("open");
    fs::write(dir.path().join("f"), "text").expect("fine");
    if root.read_attributes(&rel("f")).expect("readable") == Attributed::Unsupported {
        packtrain_testkit::skip("this file system has no extended attributes of users");
        return None;
    }
    Some((dir, root))
}

#[test]
fn attributes_are_made_equal_and_no_other_namespace_is_touched() {
    let Some((dir, root)) = place() else { return };
    let at = dir.path().join("f");
    let set = |name: &str, value: &str| {
        rustix::fs::setxattr(&at, name, value.as_bytes(), XattrFlags::empty())
    };
    set("user.old", "x").expect("supported");
    set("user.changed", "x").expect("supported");
    // Only root may do this.
    let has_trusted = set("trusted.mine", "x").is_ok();
    fs::set_permissions(&at, Permissions::from_mode(0o444)).expect("fine");
    let wanted = attributes(&[("changed", "y"), ("new", "a\0b"), ("empty", "")]);
    let meta = Meta { attributes: Some(&wanted), ..Meta::default() };
    root.settle(&rel("f"), &meta).expect("fine");
    assert_eq!(root.read_attributes(&rel("f")).expect("fine"), Attributed::Has(wanted));
    assert_eq!(fs::metadata(&at).expect("there").permissions().mode() & 0o777, 0o444);
    let mut value = [0; 8];
    let trusted = rustix::fs::getxattr(&at, "trusted.mine", &mut value[..]);
    assert_eq!(trusted.is_ok(), has_trusted, "other namespaces stay");
    root.settle(&rel("f"), &Meta { attributes: Some(&attributes(&[])), ..Meta::default() })
        .unwrap();
    assert_eq!(root.read_attributes(&rel("f")).expect("fine"), Attributed::Has(attributes(&[])));
    assert_eq!(root.not_attributed(), 0);
}

#[test]
fn files_have_their_attributes_when_they_get_their_names() {
    let Some((dir, root)) = place() else { return };
    let wanted = attributes(&[("a", "b")]);
    let meta = Meta { mode: Some(0o400), attributes: Some(&wanted), ..Meta::default() };
    root.write_small(&rel("small"), TAG, b"x").unwrap();
    root.commit(&rel("small"), TAG, &meta).unwrap();
    root.write_ready(&rel("ready"), TAG, b"x", 0o400, &meta).unwrap();
    root.commit_ready(&rel("ready"), TAG).unwrap();
    root.plan_dir(&rel("d"), 0o755, TAG);
    for (id, mode) in [(1, 0o400), (2, 0o644)] {
        let file = rel(&format!("d/f{id}"));
        assert!(root.write_fresh(packtrain_object::EntryId(id), &file, b"x", mode, &meta).unwrap());
    }
    root.seal_trees();
    assert!(root.publish_trees(TAG, &[]).is_empty());
    root.settle(&rel("d"), &Meta { mode: Some(0o555), ..meta }).unwrap();
    for (name, mode) in
        [("small", 0o400), ("ready", 0o400), ("d/f1", 0o400), ("d/f2", 0o644), ("d", 0o555)]
    {
        let has = root.read_attributes(&rel(name)).expect(name);
        assert_eq!(has, Attributed::Has(wanted.clone()), "{name}");
        let there = fs::metadata(dir.path().join(name)).expect(name).permissions().mode();
        assert_eq!(there & 0o777, mode, "{name}");
    }
    assert_eq!(root.not_attributed(), 0);
}

#[test]
fn links_are_not_followed_and_what_does_not_fit_is_counted() {
    let Some((dir, root)) = place() else { return };
    symlink("f", dir.path().join("l")).expect("fine");
    let one = attributes(&[("a", "b")]);
    root.settle(&rel("l"), &Meta { attributes: Some(&one), ..Meta::default() }).unwrap();
    assert_eq!(root.read_attributes(&rel("f")).expect("fine"), Attributed::Has(attributes(&[])));
    assert_eq!(root.not_attributed(), 0);
}
