//! Lists of digests as `b3sum` and `sha256sum` write and check them, for `packtrain verify
//! --manifest-out` and `--manifest`: of a directory of this machine, or of what the other end answers
//! to a [`Query`](crate::query::Query).
//!
//! A line is the digest in hexadecimal, two spaces and the path. If the path has a backslash or a
//! line break, the line begins with a backslash, and these characters are written `\\`, `\n`, `\r`.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use packtrain_disk::{Root, SourceFile, WalkOptions, Walker};
use packtrain_object::{CHUNK, EntryKind, RelPath};
use packtrain_service::paths::show;
use packtrain_transfer::message::Options;
use packtrain_transfer::{Failure, FailureKind, FileReport, filters};
use packtrain_units::escape;

pub use crate::handshake::HashKind;
use crate::source::explain;
use crate::traces::is_trace;

/// Files that could not be read, with the reasons.
pub type Unread = Vec<(Vec<u8>, Failure)>;

/// The digest of one file.
pub type Sum = [u8; 32];

/// Counts of a check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Files whose content is that of the list.
    pub same: u64,
    /// Files that differ or are missing.
    pub differing: u64,
    /// Files that the list does not have.
    pub extra: u64,
    /// Files that could not be read.
    pub failed: u64,
}

/// The digest of each file of a directory, in the order of the paths.
pub type OnDigest<'a> = dyn FnMut(&[u8], Result<Sum, Failure>) + 'a;

/// A directory whose files have digests: it calls back for each of them.
///
/// # Errors
/// The directory cannot be read at all.
pub type Digests<'a> = dyn FnOnce(&mut OnDigest<'_>) -> Result<(), Failure> + 'a;

/// The digests of the files in `dir` of this machine that the filters of `options` include. Links,
/// pipes and working files of packtrain are left out, and so is the file `out`.
///
/// # Errors
/// `dir` cannot be opened, or a filter is invalid.
pub fn of_directory(
    dir: &Path,
    options: &Options,
    kind: HashKind,
    out: Option<&Path>,
    on_digest: &mut OnDigest<'_>,
) -> Result<(), Failure> {
    let own = out.and_then(|out| std::fs::canonicalize(out).ok());
    // With a slash: the contents of the directory.
    let contents: PathBuf = dir.join("");
    let named = contents.as_os_str().as_bytes().to_vec();
    let walker = Walker::new(&[contents], walk_options(options)?);
    each_file(walker, &named, |path, file| {
        let is_own = own.as_deref().is_some_and(|own| is_file(dir, path, own));
        if file.is_err() || !is_own {
            on_digest(path, file.and_then(|file| digest(&file, kind, || Ok(()))));
        }
        Ok(())
    })
}

/// The same of the directory that a caller names: beneath the root of a server, or by a path that may
/// lead anywhere. `check` is called at least for every 4 MiB that are read; an error of it ends the
/// walk.
///
/// # Errors
/// The directory cannot be opened or leads out of the root, a filter is invalid, or `check` fails.
pub fn of_asked(
    root: Option<&Root>,
    dir: &[u8],
    options: &Options,
    kind: HashKind,
    mut check: impl FnMut() -> Result<(), Failure>,
    on_digest: &mut OnDigest<'_>,
) -> Result<(), Failure> {
    let options = walk_options(options)?;
    // An empty path is the root, or the directory in which ssh starts.
    let dir = if dir.is_empty() && root.is_none() { b"." } else { dir };
    let contents = [dir.strip_suffix(b"/").unwrap_or(dir), b"/"].concat();
    let walker = match root {
        Some(root) => Walker::beneath(root, vec![contents.clone()], options),
        None => Walker::new(&[PathBuf::from(OsStr::from_bytes(&contents))], options),
    };
    each_file(walker, &contents, |path, file| {
        check()?;
        let sum = match file {
            Ok(file) => {
                let mut stopped = None;
                let sum =
                    digest(&file, kind, || check().map_err(|why| stopped.insert(why).clone()));
                if let Some(why) = stopped {
                    return Err(why);
                }
                sum
            }
            Err(failure) => Err(failure),
        };
        on_digest(path, sum);
        Ok(())
    })
}

/// The list of a directory, and its files that could not be read.
///
/// # Errors
/// The directory cannot be read.
pub fn write(digests: Box<Digests<'_>>) -> Result<(Vec<u8>, Unread), Failure> {
    let (mut list, mut failed) = (Vec::new(), Vec::new());
    digests(&mut |path, sum| match sum {
        Ok(sum) => list.extend(line(path, &sum)),
        Err(failure) => failed.push((path.to_vec(), failure)),
    })?;
    Ok((list, failed))
}

/// Compares the files of a directory with a list, and reports those that differ, are missing or are
/// not in the list. The filters of `options` apply to the list too.
///
/// # Errors
/// The directory cannot be read, or the list or a filter is malformed.
pub fn check(
    digests: Box<Digests<'_>>,
    options: &Options,
    list: &[u8],
    mut report: impl FnMut(&[u8], &FileReport),
) -> Result<Checked, Failure> {
    let filters = filters(options)?;
    if filters.has_files() {
        let text = "filter rules in files of each directory do not apply to a list: give the rules \
                    themselves with --filter";
        return Err(Failure::new(FailureKind::Usage, text));
    }
    let mut wanted = parse(list)?;
    wanted.retain(|path, _| !filters.excludes_within(path.as_bytes(), false));
    let mut checked = Checked::default();
    digests(&mut |path, found| {
        let sum = RelPath::try_from(path.to_vec()).ok().and_then(|path| wanted.remove(&path));
        let outcome = match (sum, found) {
            // It may be a directory, of which the list has no line.
            (_, Err(failure)) => FileReport::Failed(failure),
            (None, Ok(_)) => FileReport::Deleted,
            (Some(sum), Ok(found)) if found == sum => FileReport::Unchanged,
            (Some(_), Ok(_)) => FileReport::Differs,
        };
        match &outcome {
            FileReport::Unchanged => checked.same += 1,
            FileReport::Deleted => checked.extra += 1,
            FileReport::Failed(_) => checked.failed += 1,
            _ => checked.differing += 1,
        }
        report(path, &outcome);
    })?;
    for path in wanted.keys() {
        checked.differing += 1;
        report(path.as_bytes(), &FileReport::Missing);
    }
    Ok(checked)
}

fn walk_options(options: &Options) -> Result<WalkOptions, Failure> {
    let filters = filters(options)?;
    Ok(WalkOptions { recursive: true, filters, ..WalkOptions::default() })
}

/// Calls `work` for each regular file of a walk over the contents of the directory `contents`, in its
/// order, and for each path there that cannot be read. Paths are relative to the directory.
fn each_file(
    mut walker: Walker,
    contents: &[u8],
    mut work: impl FnMut(&[u8], Result<SourceFile, Failure>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let roots = walker.roots().to_vec();
    for item in &mut walker {
        match item {
            Ok(item) if is_trace(item.entry.path.file_name()) => {}
            Ok(item) => {
                let EntryKind::File { .. } = item.entry.kind else { continue };
                let Some(root) = roots.get(item.root) else { continue };
                let opened = SourceFile::open(root, &item.source);
                work(item.entry.path.as_bytes(), opened.map_err(|e| unreadable(&e)))?;
            }
            Err(failure) if failure.is_special => {}
            Err(failure) if failure.is_source => return Err(explain(&failure)),
            Err(failure) => {
                let path = failure.path.strip_prefix(contents).unwrap_or(&failure.path);
                work(path, Err(explain(&failure)))?;
            }
        }
    }
    Ok(())
}

fn is_file(dir: &Path, path: &[u8], own: &Path) -> bool {
    let full = dir.join(OsStr::from_bytes(path));
    full.file_name() == own.file_name() && std::fs::canonicalize(full).is_ok_and(|full| full == own)
}

fn unreadable(error: &io::Error) -> Failure {
    Failure::new(FailureKind::Unreadable, error.to_string())
}

/// The digest of a file; `check` is called before each chunk.
fn digest(
    file: &SourceFile,
    kind: HashKind,
    mut check: impl FnMut() -> Result<(), Failure>,
) -> Result<Sum, Failure> {
    let mut buffer = vec![0; CHUNK.get() as usize];
    let (mut blake, mut sha) =
        (blake3::Hasher::new(), aws_lc_rs::digest::Context::new(&aws_lc_rs::digest::SHA256));
    let mut at = 0;
    loop {
        check()?;
        let n = file.file().read_at(&mut buffer, at).map_err(|e| unreadable(&e))?;
        if n == 0 {
            break;
        }
        match kind {
            HashKind::Blake3 => {
                blake.update(&buffer[..n]);
            }
            HashKind::Sha256 => sha.update(&buffer[..n]),
        }
        at += n as u64;
    }
    let changed = |_| Failure::new(FailureKind::Changed, "changed while it was read");
    file.check_unchanged().map_err(changed)?;
    let mut sum = Sum::default();
    match kind {
        HashKind::Blake3 => sum.copy_from_slice(blake.finalize().as_bytes()),
        HashKind::Sha256 => sum.copy_from_slice(sha.finish().as_ref()),
    }
    Ok(sum)
}

fn line(path: &[u8], sum: &Sum) -> Vec<u8> {
    let mut out = Vec::with_capacity(path.len() + 68);
    let is_plain = !path.iter().any(|b| matches!(b, b'\\' | b'\n' | b'\r'));
    if !is_plain {
        out.push(b'\\');
    }
    out.extend_from_slice(escape::hex(sum).as_bytes());
    out.extend_from_slice(b"  ");
    for &byte in path {
        match byte {
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            byte => out.push(byte),
        }
    }
    out.push(b'\n');
    out
}

/// Parses a list. Every path must lie below the directory.
fn parse(list: &[u8]) -> Result<BTreeMap<RelPath, Sum>, Failure> {
    let mut all = BTreeMap::new();
    for (number, line) in list.split(|b| *b == b'\n').enumerate() {
        if line.is_empty() {
            continue;
        }
        let wrong = |why: &str| {
            let text = format!("line {} of the manifest: {why}", number + 1);
            Failure::new(FailureKind::Usage, text)
        };
        let (sum, name) = parse_line(line).ok_or_else(|| {
            wrong("write a digest of 64 hexadecimal digits, two spaces and a path")
        })?;
        let clean = name.strip_prefix(b"./").unwrap_or(&name).to_vec();
        let path = RelPath::try_from(clean)
            .map_err(|error| wrong(&format!("`{}`: {error}", show(&name))))?;
        if path.is_root() {
            return Err(wrong("there is no path"));
        }
        if all.insert(path, sum).is_some_and(|before| before != sum) {
            return Err(wrong(&format!("`{}` has a second digest", show(&name))));
        }
    }
    Ok(all)
}

fn parse_line(line: &[u8]) -> Option<(Sum, Vec<u8>)> {
    let (escaped, line) = match line.strip_prefix(b"\\") {
        Some(rest) => (true, rest),
        None => (false, line),
    };
    let (hex, rest) = line.split_at_checked(64)?;
    let mut sum = Sum::default();
    for (byte, pair) in sum.iter_mut().zip(hex.chunks(2)) {
        let text =
            std::str::from_utf8(pair).ok().filter(|t| t.bytes().all(|b| b.is_ascii_hexdigit()));
        *byte = u8::from_str_radix(text?, 16).ok()?;
    }
    // An asterisk marks a file that was read as binary.
    let name = rest.strip_prefix(b"  ").or_else(|| rest.strip_prefix(b" *"))?;
    if !escaped {
        return Some((sum, name.to_vec()));
    }
    let mut out = Vec::with_capacity(name.len());
    let mut bytes = name.iter();
    while let Some(&byte) = bytes.next() {
        out.push(match byte {
            b'\\' => match bytes.next()? {
                b'\\' => b'\\',
                b'n' => b'\n',
                b'r' => b'\r',
                _ => return None,
            },
            byte => byte,
        });
    }
    Some((sum, out))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const EMPTY: &str = "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262";

    fn tree() -> tempfile::TempDir {
        let dir = tempfile::tempdir().expect("a directory");
        fs::create_dir(dir.path().join("sub")).expect("fine");
        fs::write(dir.path().join("a"), "").expect("fine");
        fs::write(dir.path().join("sub/new\nline\\"), "x").expect("fine");
        std::os::unix::fs::symlink("a", dir.path().join("link")).expect("fine");
        dir
    }

    fn digests(dir: &Path) -> Box<Digests<'_>> {
        let options = Options::default();
        Box::new(move |on_digest| of_directory(dir, &options, HashKind::Blake3, None, on_digest))
    }

    #[test]
    fn a_list_is_that_of_b3sum_and_is_read_again() {
        let dir = tree();
        let (list, failed) = write(digests(dir.path())).expect("a directory");
        assert!(failed.is_empty());
        let text = String::from_utf8(list.clone()).expect("text");
        let mut lines = text.lines();
        assert_eq!(lines.next(), Some(format!("{EMPTY}  a").as_str()));
        let second = lines.next().expect("two files");
        assert!(second.starts_with('\\') && second.ends_with("  sub/new\\nline\\\\"), "{second}");
        assert_eq!(lines.next(), None);
        let mut reports = Vec::new();
        let mut check = |list: &[u8]| {
            let note = |path: &[u8], report: &FileReport| {
                reports.push((path.to_vec(), report.clone()));
            };
            let checked = super::check(digests(dir.path()), &Options::default(), list, note);
            (checked.expect("a good list"), std::mem::take(&mut reports))
        };
        assert_eq!(check(&list).0, Checked { same: 2, ..Checked::default() });
        let other = format!("{}  a\n{EMPTY} *./gone\n", EMPTY.replace("af", "00"));
        let (checked, reports) = check(other.as_bytes());
        assert_eq!(checked, Checked { differing: 2, extra: 1, ..Checked::default() });
        assert_eq!(reports[0], (b"a".to_vec(), FileReport::Differs));
        assert_eq!(reports[1], (b"sub/new\nline\\".to_vec(), FileReport::Deleted));
        assert_eq!(reports[2], (b"gone".to_vec(), FileReport::Missing));
    }

    #[test]
    fn a_directory_that_cannot_be_read_is_a_failed_path_of_the_list() {
        let dir = tree();
        fs::write(dir.path().join("sub/.rules"), "nonsense").expect("fine");
        let options = Options { filters: vec![": .rules".to_owned()], ..Options::default() };
        let path = dir.path().as_os_str().as_bytes();
        let root = Root::open(dir.path()).expect("a directory");
        let here: Box<Digests<'_>> = Box::new(|on_digest| {
            of_directory(dir.path(), &options, HashKind::Blake3, None, on_digest)
        });
        let asked = |root, path| -> Box<Digests<'_>> {
            let options = &options;
            Box::new(move |on_digest| {
                of_asked(root, path, options, HashKind::Blake3, || Ok(()), on_digest)
            })
        };
        for digests in [here, asked(None, path), asked(Some(&root), b"/"), asked(Some(&root), b"")]
        {
            let (list, failed) = write(digests).expect("the rest is read");
            assert_eq!(String::from_utf8(list).expect("text"), format!("{EMPTY}  a\n"));
            let [(path, failure)] = &failed[..] else { panic!("{failed:?}") };
            assert_eq!((&path[..], failure.kind), (&b"sub"[..], FailureKind::Unreadable));
        }
        // It is not an extra name, which would be no failure.
        let unread = |on_digest: &mut OnDigest<'_>| {
            on_digest(b"sub", Err(Failure::new(FailureKind::Unreadable, "no permission")));
            Ok(())
        };
        let checked = check(Box::new(unread), &Options::default(), b"", |_, _| {});
        assert_eq!(checked, Ok(Checked { failed: 1, ..Checked::default() }));
    }

    #[test]
    fn a_hostile_list_is_refused() {
        for (line, why) in [
            (format!("{EMPTY}  ../up"), ".."),
            (format!("{EMPTY}  /etc/passwd"), "/etc/passwd"),
            (format!("{EMPTY}  a/../../b"), ".."),
            (format!("{EMPTY}  "), "line 1"),
            (format!("{EMPTY}  a\0b"), "line 1"),
            (format!("{EMPTY} a"), "64 hexadecimal digits"),
            (EMPTY[1..].to_owned() + "  a", "64 hexadecimal digits"),
            (format!("+{}  a", &EMPTY[1..]), "64 hexadecimal digits"),
            (format!("\\{EMPTY}  a\\x"), "64 hexadecimal digits"),
            (format!("{EMPTY}  a\n{}  a", EMPTY.replace("af", "00")), "line 2"),
        ] {
            let failure = parse(line.as_bytes()).expect_err(&line);
            assert!(failure.text.contains(why), "{line}: {}", failure.text);
        }
        assert!(write(digests(Path::new("/nonexistent"))).is_err());
    }
}
