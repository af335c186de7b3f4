//! `-X` and `-A`: extended attributes of users, and POSIX access control lists.

use std::collections::BTreeMap;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, UNIX_EPOCH};

use rustix::fs::XattrFlags;

use crate::rig::{Rig, contents, skipped, slash};
use crate::tree::{self, MIB};

const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";

fn set(path: &Path, name: &str, value: &[u8]) -> bool {
    rustix::fs::setxattr(path, name, value, XattrFlags::empty()).is_ok()
}

fn get(path: &Path, name: &str) -> Option<Vec<u8>> {
    let mut value = vec![0; 70_000];
    let len = rustix::fs::getxattr(path, name, &mut value[..]).ok()?;
    value.truncate(len);
    Some(value)
}

/// A list of the owner, a user, the owning group, a mask and others, as Linux stores it.
fn list(user: u32, permissions: u16) -> Vec<u8> {
    let none = u32::MAX;
    let mut bytes = 2u32.to_le_bytes().to_vec();
    for (tag, bits, id) in
        [(1u16, 6u16, none), (2, permissions, user), (4, 4, none), (16, 6, none), (32, 0, none)]
    {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(bits.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

/// An empty file of a fixed time, so that only its attributes can differ.
fn unchanged(path: &Path) {
    let time = UNIX_EPOCH + Duration::from_secs(1_500_000_000);
    File::create(path).and_then(|file| file.set_modified(time)).expect("a file");
}

/// Files and directories with attributes and lists; false if the file system has none.
fn source(dir: &Path) -> bool {
    fs::create_dir_all(dir.join("sub/empty")).expect("a directory");
    for name in ["plain", "read-only", "sub/inner", "changed"] {
        fs::write(dir.join(name), name).expect("a file");
    }
    tree::file(&dir.join("large"), 5 * MIB, 3);
    unchanged(&dir.join("none"));
    let mut all = set(&dir.join("plain"), "user.text", b"value");
    all &= set(&dir.join("plain"), "user.empty", b"");
    all &= set(&dir.join("read-only"), "user.bytes", b"\0\xff\n");
    all &= set(&dir.join("large"), "user.large", &[7; 3000]);
    all &= set(&dir.join("sub"), "user.directory", b"d");
    all &= set(&dir.join("sub/empty"), "user.directory", b"e");
    all &= set(&dir.join("changed"), "user.new", b"new");
    all &= set(&dir.join("plain"), ACCESS, &list(1234, 6));
    all &= set(&dir.join("large"), ACCESS, &list(7, 4));
    all &= set(&dir.join("sub"), DEFAULT, &list(99, 2));
    fs::set_permissions(dir.join("read-only"), Permissions::from_mode(0o444)).expect("a mode");
    all
}

/// Attributes and lists of all names.
fn survey(dir: &Path, names: &[&str]) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let attributes = [
        "user.text",
        "user.empty",
        "user.bytes",
        "user.large",
        "user.directory",
        "user.new",
        "user.old",
        ACCESS,
        DEFAULT,
    ];
    for name in names {
        let path = dir.join(name);
        let mode = fs::metadata(&path).expect(name).permissions().mode();
        found.insert(format!("{name} mode"), format!("{mode:o}").into_bytes());
        for attribute in attributes {
            if let Some(value) = get(&path, attribute) {
                found.insert(format!("{name} {attribute}"), value);
            }
        }
    }
    found
}

const NAMES: [&str; 8] =
    ["plain", "read-only", "sub", "sub/inner", "sub/empty", "changed", "large", "none"];

/// An older copy with attributes and lists of its own.
fn target(dir: &Path) {
    fs::create_dir_all(dir.join("sub")).expect("a directory");
    fs::write(dir.join("changed"), "another size").expect("a file");
    unchanged(&dir.join("none"));
    set(&dir.join("changed"), "user.old", b"old");
    set(&dir.join("none"), "user.old", b"old");
    set(&dir.join("none"), ACCESS, &list(5, 6));
    set(&dir.join("sub"), "user.old", b"old");
    // What is made in it inherits this list.
    set(&dir.join("sub"), DEFAULT, &list(8, 6));
}

#[test]
fn attributes_and_lists_are_made_equal_and_compared() {
    let rig = Rig::local();
    let (src, dst) = (rig.path("src"), rig.path("dst"));
    if !source(&src) {
        return skipped("this file system has no attributes or no access control lists");
    }
    target(&dst);
    rig.ok(rig.cp().args(["-A", "-X"]).arg(contents(&src)).arg(&dst));
    assert_eq!(survey(&src, &NAMES), survey(&dst, &NAMES));
    let verify = || {
        let mut verify = rig.packtrain();
        verify.args(["verify", "-A", "-X"]).arg(contents(&src)).arg(&dst);
        rig.run(&mut verify)
    };
    assert_eq!(verify().code, 0);
    // Only attributes and lists change: nothing is moved.
    assert!(
        set(&src.join("plain"), "user.text", b"another") && set(&src.join("none"), "user.n", b"n")
    );
    assert!(set(&src.join("sub/inner"), ACCESS, &list(3, 4)));
    let ended = verify();
    assert_eq!(ended.code, 13, "{}", ended.stderr);
    let told = String::from_utf8_lossy(&ended.stdout);
    assert!(told.contains("plain") && told.contains("sub/inner"), "{told}");
    let copy =
        |flags: &[&str]| rig.ok(rig.cp().arg("--json").args(flags).arg(contents(&src)).arg(&dst));
    assert_eq!(copy(&["-AX", "--dry-run"]).number("metadata"), 3);
    assert_eq!(get(&dst.join("none"), "user.n"), None, "a dry run changes nothing");
    assert_eq!(copy(&["-AX"]).number("bytes_moved"), 0);
    assert_eq!(get(&dst.join("none"), "user.n"), Some(b"n".to_vec()));
    assert_eq!(verify().code, 0);
    // Without the options they stay as they are.
    assert!(set(&dst.join("plain"), "user.old", b"kept"));
    copy(&[]);
    assert_eq!(get(&dst.join("plain"), "user.old"), Some(b"kept".to_vec()));
}

#[test]
fn other_namespaces_are_never_copied() {
    let rig = Rig::local();
    fs::create_dir_all(rig.path("src")).expect("a directory");
    fs::write(rig.path("src/f"), "f").expect("a file");
    // Only root may set these.
    if !set(&rig.path("src/f"), "trusted.mine", b"x") || !set(&rig.path("src/f"), "user.a", b"b") {
        return skipped("trusted attributes need root");
    }
    set(&rig.path("src/f"), "security.mine", b"x");
    rig.ok(rig.cp().args(["-A", "-X"]).arg(contents(&rig.path("src"))).arg(rig.path("dst")));
    let names = ["user.a", "trusted.mine", "security.mine"];
    let has = names.map(|name| get(&rig.path("dst/f"), name).is_some());
    assert_eq!(has, [true, false, false]);
}

#[test]
fn attributes_and_lists_end_as_rsync_leaves_them() {
    let version = Command::new("rsync").arg("--version").output();
    let Ok(version) = version else { return skipped("no rsync") };
    let version = String::from_utf8_lossy(&version.stdout).into_owned();
    if version.contains("no xattrs") || version.contains("no ACLs") {
        return skipped("rsync has no attributes or no access control lists");
    }
    let rig = Rig::local();
    for (nth, flags) in ["-aX", "-aA", "-aAX", "-a", "-aHAX"].into_iter().enumerate() {
        let dir = rig.path(&format!("case-{nth}"));
        if !source(&dir.join("src")) {
            return skipped("this file system has no attributes or no access control lists");
        }
        for side in ["theirs", "ours"] {
            target(&dir.join(side));
        }
        let from = contents(&dir.join("src"));
        let rsync = Command::new("rsync").arg(flags).arg(&from).arg(dir.join("theirs")).output();
        let rsync = rsync.expect("rsync");
        assert!(rsync.status.success(), "{flags}: {}", String::from_utf8_lossy(&rsync.stderr));
        let mut cp = rig.packtrain();
        rig.ok(cp.args(["cp", "--history", "none", flags]).arg(&from).arg(dir.join("ours")));
        let (theirs, ours) =
            (survey(&dir.join("theirs"), &NAMES), survey(&dir.join("ours"), &NAMES));
        for (name, value) in &theirs {
            // A file that replaces another one has no attributes of it; rsync copies them over.
            let is_replaced = !flags.contains('X') && name == "changed user.old";
            assert!(is_replaced || ours.get(name) == Some(value), "{flags}: {name}: {value:?}");
        }
        for name in ours.keys() {
            assert!(theirs.contains_key(name), "{flags}: {name} is only ours");
        }
    }
}

#[test]
#[ignore = "needs an ssh server; `cargo xtask test` runs it"]
fn attributes_and_lists_arrive_over_ssh_in_both_directions() {
    let Some(rig) = Rig::ssh() else { return };
    let src = rig.path("src");
    if !source(&src) {
        return skipped("this file system has no attributes or no access control lists");
    }
    for (from, to, name) in [
        (contents(&src), rig.far("up"), "up"),
        (slash(&rig.far("src")), rig.path("down").into_os_string(), "down"),
    ] {
        rig.ok(rig.cp().arg("-AX").arg(&from).arg(&to));
        assert_eq!(survey(&src, &NAMES), survey(&rig.path(name), &NAMES), "{name}");
    }
}
