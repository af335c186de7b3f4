//! Expands the patterns of source paths, as a shell would: `dir/*.nc`.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use packtrain_object::{NamePattern, RelPath};

use super::root::{Root, join};

/// Maximum number of paths that a pattern stands for.
pub const MAX_MATCHES: usize = 100_000;
/// Most parts of a path with patterns: each lists the directories that those before it match.
const MAX_PATTERNS: usize = 16;

/// The paths that `pattern` matches, sorted; links are followed, as in a shell. A path that exists
/// under the very name of the pattern stands for itself. Empty if nothing matches.
///
/// # Errors
/// The pattern is invalid or matches too much. A directory that cannot be read matches nothing.
pub fn expand(pattern: &[u8]) -> io::Result<Vec<Vec<u8>>> {
    expand_with(pattern, |dir| {
        let dir = if dir.is_empty() { b"." } else { dir };
        Root::open(Path::new(OsStr::from_bytes(dir)))
    })
}

/// Like [`expand`], beneath a root that no path leaves.
///
/// # Errors
/// As [`expand`].
pub fn expand_beneath(root: &Root, pattern: &[u8]) -> io::Result<Vec<Vec<u8>>> {
    expand_with(pattern, |dir| root.open_beneath(dir))
}

fn expand_with(
    pattern: &[u8],
    open: impl Fn(&[u8]) -> io::Result<Root>,
) -> io::Result<Vec<Vec<u8>>> {
    let parts: Vec<&[u8]> = pattern.split(|b| *b == b'/').collect();
    let patterns = parts.iter().filter(|part| NamePattern::is_pattern(part)).count();
    if patterns > MAX_PATTERNS {
        let why = format!("has more than {MAX_PATTERNS} names with patterns");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    // What the pattern matches so far; the first part of an absolute path is empty.
    let mut found: Vec<Vec<u8>> = vec![Vec::new()];
    for (at, part) in parts.iter().enumerate() {
        let mut next = Vec::new();
        for path in &found {
            if part.is_empty() {
                // A slash at the beginning, at the end, or a double one.
                next.push([path, &b"/"[..]].concat());
                continue;
            }
            let base = path.clone();
            let child = |name: &[u8]| match base.last() {
                None | Some(b'/') => [&base[..], name].concat(),
                Some(_) => join(&base, name),
            };
            if matches!(*part, b"." | b"..") || !NamePattern::is_pattern(part) {
                next.push(child(part));
                continue;
            }
            let Ok(dir) = open(&base) else { continue };
            if exists(&dir, part) {
                next.push(child(part));
                continue;
            }
            let matcher = NamePattern::new(part)
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
            let Ok(items) = dir.list(&RelPath::root()) else { continue };
            next.extend(items.iter().filter(|i| matcher.matches(&i.name)).map(|i| child(&i.name)));
            if next.len() > MAX_MATCHES {
                let why = format!("matches more than {MAX_MATCHES} paths: name a directory");
                return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
            }
        }
        // A name that follows a pattern exists below some of what the pattern matched.
        let after = parts[..at].iter().any(|part| NamePattern::is_pattern(part));
        if after {
            next.retain(|path| is_there(path, &open));
        }
        found = next;
    }
    if !parts.iter().any(|part| NamePattern::is_pattern(part)) {
        return Ok(found);
    }
    found.sort_unstable();
    Ok(found)
}

fn exists(dir: &Root, name: &[u8]) -> bool {
    RelPath::try_from(name.to_vec()).is_ok_and(|name| matches!(dir.stat(&name), Ok(Some(_))))
}

fn is_there(path: &[u8], open: &impl Fn(&[u8]) -> io::Result<Root>) -> bool {
    if path.ends_with(b"/") {
        return open(path).is_ok();
    }
    let at = path.iter().rposition(|b| *b == b'/').map_or(0, |at| at + 1);
    let (dir, name) = path.split_at(at);
    match name {
        b"." | b".." => open(path).is_ok(),
        name => open(dir).is_ok_and(|dir| exists(&dir, name)),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn texts(found: Vec<Vec<u8>>) -> Vec<String> {
        found.into_iter().map(|path| String::from_utf8(path).expect("text")).collect()
    }

    #[test]
    fn patterns_stand_for_what_a_shell_finds() {
        let dir = tempfile::tempdir().expect("a directory");
        let base = dir.path().join("base");
        for sub in ["a", "b", ".hidden"] {
            fs::create_dir_all(base.join(sub)).expect("fine");
        }
        for name in ["a/x.nc", "a/y.nc", "a/z.txt", "b/x.nc", ".hidden/x.nc", "a/.s.nc", "[lit]"] {
            fs::write(base.join(name), name).expect("fine");
        }
        fs::write(dir.path().join("secret.nc"), "no").expect("fine");
        symlink("..", base.join("up")).expect("fine");
        symlink("a", base.join("link")).expect("fine");
        let root = Root::open(&base).expect("open");
        for (pattern, wanted) in [
            ("a/*.nc", &["a/x.nc", "a/y.nc"][..]),
            ("/a/*.nc", &["/a/x.nc", "/a/y.nc"]),
            ("[ab]/x.nc", &["a/x.nc", "b/x.nc"]),
            ("?/", &["a/", "b/"]),
            ("link/?.txt", &["link/z.txt"]),
            ("a/.*.nc", &["a/.s.nc"]),
            ("[lit]", &["[lit]"]),
            ("*/nothing", &[]),
            ("none*", &[]),
            ("plain/name", &["plain/name"]),
            // Neither a link nor `..` leads out.
            ("up/*.nc", &[]),
            ("../*.nc", &[]),
            ("*/../../*.nc", &[]),
        ] {
            let found = expand_beneath(&root, pattern.as_bytes()).expect(pattern);
            assert_eq!(texts(found), wanted, "{pattern}");
        }
        assert!(expand_beneath(&root, b"a/[x").is_err());
        assert!(expand_beneath(&root, "*/../".repeat(17).as_bytes()).is_err());
        let free = format!("{}/base/?/x.nc", dir.path().display());
        let found = texts(expand(free.as_bytes()).expect("fine"));
        assert_eq!(found.len(), 2);
        assert!(found[0].ends_with("/base/a/x.nc"), "{found:?}");
    }
}
