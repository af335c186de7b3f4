//! Explains why a destination cannot be opened or created, and names the component at fault.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use packtrain_disk::{Kind, Root, Trouble};
use packtrain_object::RelPath;
use packtrain_transfer::{Failure, FailureKind};

use super::target::kind_of;
use packtrain_service::paths::show;

/// What exists at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum There {
    Nothing,
    Directory,
    /// A link whose target does not exist.
    Dangling,
    Other,
}

/// The failure to open or create `path`.
pub(super) fn free(path: &[u8], error: &io::Error) -> Failure {
    let look = |path: &[u8]| {
        let path = Path::new(OsStr::from_bytes(if path.is_empty() { b"." } else { path }));
        match (std::fs::metadata(path), std::fs::symlink_metadata(path)) {
            (Ok(meta), _) if meta.is_dir() => There::Directory,
            (Ok(_), _) => There::Other,
            (Err(_), Ok(meta)) if meta.is_symlink() => There::Dangling,
            _ => There::Nothing,
        }
    };
    explain(path, error, look)
}

/// The failure to take a lock in the directory that messages call `shown`.
pub(super) fn locked(shown: &[u8], error: &io::Error) -> Failure {
    explain(shown, error, |_| There::Directory)
}

/// The same below a root.
pub(super) fn confined(root: &Root, path: &[u8], error: &io::Error) -> Failure {
    let look = |path: &[u8]| {
        let parts = path.split(|b| *b == b'/').filter(|part| !matches!(*part, b"" | b"."));
        let clean = parts.collect::<Vec<_>>().join(&b'/');
        let stat = RelPath::new(clean).ok().and_then(|place| root.stat(&place).ok().flatten());
        match stat.map(|stat| stat.kind) {
            None => There::Nothing,
            // A link may lead to a directory; if it does not, the error shows it.
            Some(Kind::Directory | Kind::Symlink) => There::Directory,
            Some(Kind::File | Kind::Special) => There::Other,
        }
    };
    explain(path, error, look)
}

fn explain(path: &[u8], error: &io::Error, look: impl Fn(&[u8]) -> There) -> Failure {
    let trouble = packtrain_disk::classify(error);
    let refused = |path: &[u8], text: &str| {
        Failure::new(FailureKind::TargetRefused, format!("{}: {text}", show(path)))
    };
    if !matches!(trouble, Trouble::NotFound | Trouble::NotDirectory | Trouble::Exists) {
        return Failure::new(kind_of(trouble), format!("{}: {}", show(path), trouble.sentence()));
    }
    let not_there = |path: &[u8]| {
        let text = format!("{}: no such directory; make it first, or add --mkpath", show(path));
        Failure::new(FailureKind::TargetMissing, text)
    };
    // From the top: the first component that is not a directory is the cause.
    let trimmed = path.iter().rposition(|b| *b != b'/').map_or(path, |last| &path[..=last]);
    let ends = trimmed.iter().enumerate().filter(|(at, b)| **b == b'/' && *at > 0);
    for end in ends.map(|(at, _)| at).chain([trimmed.len()]) {
        let above = &trimmed[..end];
        match look(above) {
            There::Directory => {}
            There::Other => return refused(above, "is not a directory"),
            There::Dangling => return refused(above, "is a link to something that is not there"),
            There::Nothing if end < trimmed.len() => return not_there(above),
            There::Nothing => return refused(above, "cannot be made in that directory"),
        }
    }
    refused(trimmed, "no file can be made in this directory")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_named() {
        let dir = tempfile::tempdir().expect("a folder");
        let at = |name: &str| dir.path().join(name).into_os_string().into_encoded_bytes();
        std::fs::create_dir(dir.path().join("d")).expect("a folder");
        std::fs::write(dir.path().join("f"), "").expect("a file");
        std::os::unix::fs::symlink("nowhere", dir.path().join("link")).expect("a link");
        let not_found = io::Error::from(io::ErrorKind::NotFound);
        let said = |name: &str| free(&at(name), &not_found);
        for (name, wrong, text, kind) in [
            ("x/y/z", "x", "make it first", FailureKind::TargetMissing),
            ("d/x/y/", "d/x", "make it first", FailureKind::TargetMissing),
            ("f", "f", "is not a directory", FailureKind::TargetRefused),
            ("f/x", "f", "is not a directory", FailureKind::TargetRefused),
            ("link/", "link", "a link to something", FailureKind::TargetRefused),
            ("d", "d", "no file can be made", FailureKind::TargetRefused),
            ("d/x", "d/x", "cannot be made", FailureKind::TargetRefused),
        ] {
            let failure = said(name);
            assert_eq!(failure.kind, kind, "{name}: {failure}");
            let named = format!("{}: ", show(&at(wrong)));
            assert!(failure.text.starts_with(&named), "{name}: {failure}");
            assert!(failure.text.contains(text), "{name}: {failure}");
            let root = Root::open(dir.path()).expect("a root");
            if wrong != "link" {
                let failure = confined(&root, name.as_bytes(), &not_found);
                assert_eq!(failure.kind, kind, "{name} below a root: {failure}");
                assert!(failure.text.starts_with(&format!("{wrong}: ")), "{name}: {failure}");
            }
        }
    }
}
