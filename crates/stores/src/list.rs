//! Finds the objects to fetch and makes the entries of the transfer from them.

use std::collections::HashMap;
use std::sync::Arc;

use packtrain_object::{
    Entry, EntryKind, Filters, Mtime, NO_MODE, PATH_TAKEN, RelPath, directories_above,
};
use packtrain_os::clock;
use packtrain_transfer::message::Options;
use packtrain_transfer::{Failure, FailureKind};
use packtrain_units::ByteCount;
use percent_encoding::percent_decode_str;

use super::answer::Trouble;
use super::http::Client;
use super::remote::{Place, Remote, probe};
use super::s3::{Bucket, Listed, MAX_NAME_BYTES};
use packtrain_service::weburl::WebUrl;

/// The file name for an address without one.
const NAMELESS: &[u8] = b"index.html";
/// Maximum objects in one transfer: their list is held in memory.
const MAX_OBJECTS: usize = 1 << 20;
/// Maximum objects and directories in one transfer.
const MAX_ENTRIES: usize = 1 << 21;

/// The requested sources.
#[derive(Clone, Debug)]
pub(super) enum Asked {
    /// These addresses.
    Web(Vec<WebUrl>),
    /// These keys of a bucket, or the objects below them.
    Keys(Arc<Bucket>, Vec<String>),
}

/// The objects found.
#[derive(Debug)]
pub(super) struct Found {
    /// Entries in manifest order, and the object of each file.
    pub(super) entries: Vec<(Entry, Option<Remote>)>,
    /// Objects that cannot be fetched.
    pub(super) failed: Vec<(Vec<u8>, Failure)>,
    /// The target paths of the sources without a file.
    pub(super) empty: Vec<Vec<u8>>,
    /// Notices for the user.
    pub(super) say: Vec<String>,
    /// The number of the entry with each path.
    taken: HashMap<Vec<u8>, usize>,
    /// The length that all paths together may still have.
    bytes_left: usize,
}

impl Default for Found {
    fn default() -> Self {
        Self {
            entries: Vec::new(),
            failed: Vec::new(),
            empty: Vec::new(),
            say: Vec::new(),
            taken: HashMap::new(),
            bytes_left: MAX_NAME_BYTES,
        }
    }
}

/// Finds the requested objects.
pub(super) async fn find(
    client: &Client,
    asked: &Asked,
    options: &Options,
) -> Result<Found, Trouble> {
    let mut found = Found::default();
    let filters = packtrain_transfer::filters(options).map_err(Trouble::Never)?;
    if filters.has_files() {
        let text = "filter rules in files of each directory are not read from stores: give the rules \
                    themselves with --filter";
        return Err(Trouble::Never(Failure::new(FailureKind::Usage, text)));
    }
    match asked {
        Asked::Web(urls) => {
            // Excluded sources are skipped, as in any other transfer.
            for url in urls.iter().filter(|url| !filters.excludes(&web_name(url), false)) {
                match probe(client, url).await {
                    Ok(object) => {
                        found.add_file(web_name(url), object)?;
                    }
                    Err(Trouble::Never(f)) if urls.len() > 1 && one_only(&f) => {
                        found.failed.push((url.to_string().into_bytes(), f));
                    }
                    Err(trouble) => return Err(trouble),
                }
            }
        }
        Asked::Keys(bucket, keys) => {
            for key in keys {
                if options.recursive {
                    found.add_below(client, bucket, key, &filters).await?;
                } else {
                    found.add_key(client, bucket, key, &filters).await?;
                }
            }
        }
    }
    // A file of unknown length must be the last entry.
    found.entries.sort_by_key(|(entry, _)| entry.kind == EntryKind::Stream);
    let streams = found.entries.iter().filter(|(e, _)| e.kind == EntryKind::Stream).count();
    if streams > 1 {
        let text = "the servers do not tell the lengths of these files: fetch one at a time";
        return Err(Trouble::never(FailureKind::Usage, text));
    }
    Ok(found)
}

/// Whether a failure affects only one file.
fn one_only(failure: &Failure) -> bool {
    matches!(failure.kind, FailureKind::SourceMissing | FailureKind::Unreadable)
}

fn now() -> Mtime {
    let nanos = clock::wall().as_nanos();
    Mtime { secs: (nanos / 1_000_000_000) as i64, nanos: (nanos % 1_000_000_000) as u32 }
}

/// The last component of an address as a file name.
pub(super) fn web_name(url: &WebUrl) -> Vec<u8> {
    let last = url.path().rsplit('/').next().unwrap_or_default();
    let name: Vec<u8> = percent_decode_str(last).collect();
    let fit = !name.is_empty() && name != b"." && name != b".." && !name.contains(&b'/');
    if fit { name } else { NAMELESS.to_vec() }
}

impl Found {
    /// Adds a file. Returns whether it is in the transfer, from this source or an earlier one.
    fn add_file(&mut self, name: Vec<u8>, object: Remote) -> Result<bool, Trouble> {
        let path = match RelPath::new(name.clone()) {
            Ok(path) => path,
            Err(e) => {
                let failure = Failure::new(FailureKind::Unreadable, format!("no file's name: {e}"));
                self.failed.push((name, failure));
                return Ok(false);
            }
        };
        if let Some(earlier) = self.taken.get(path.as_bytes()) {
            let same = self.entries[*earlier].1.as_ref();
            let is_same = same.is_some_and(|earlier| earlier.place.is_same(&object.place));
            if !is_same {
                let failure = Failure::new(FailureKind::Unreadable, PATH_TAKEN);
                self.failed.push((object.name.into_bytes(), failure));
            }
            return Ok(is_same);
        }
        if object.size.is_none() {
            let name = &object.name;
            self.say.push(format!("{name}: of unknown length: one stream, and no resuming"));
        } else if !object.ranges && object.size > Some(ByteCount::ZERO) {
            let why = if object.version.is_known() {
                "the server gives no ranges"
            } else {
                "the server says nothing by which versions could be told apart (ETag, Last-Modified)"
            };
            self.say.push(format!("{}: {why}: one stream, from its beginning", object.name));
        }
        let kind = match object.size {
            Some(size) => EntryKind::File { size: size.get() },
            None => EntryKind::Stream,
        };
        // Without a validator the file counts as a new one each time: it is neither skipped nor
        // resumed.
        let known = object.version.is_known();
        let mtime = if known { object.version.mtime() } else { now() };
        self.push(path, kind, mtime, Some(object))?;
        Ok(true)
    }

    /// Adds an entry. A key can be hundreds of directories, each with its own path, so both their
    /// number and their length are limited.
    fn push(
        &mut self,
        path: RelPath,
        kind: EntryKind,
        mtime: Mtime,
        object: Option<Remote>,
    ) -> Result<(), Trouble> {
        let bytes_left = self.bytes_left.checked_sub(path.as_bytes().len());
        let Some(bytes_left) = bytes_left.filter(|_| self.entries.len() < MAX_ENTRIES) else {
            let text = format!(
                "more than {MAX_ENTRIES} objects and directories, or paths of more than {}: copy \
                 parts of them",
                ByteCount(MAX_NAME_BYTES as u64)
            );
            return Err(Trouble::never(FailureKind::Usage, text));
        };
        self.bytes_left = bytes_left;
        self.taken.insert(path.as_bytes().to_vec(), self.entries.len());
        let entry =
            Entry { path, kind, mode: NO_MODE, mtime, uid: 0, gid: 0, extras: Default::default() };
        self.entries.push((entry, object));
        Ok(())
    }

    fn has_file(&self, path: &[u8]) -> bool {
        let entry = self.taken.get(path).map(|at| &self.entries[*at].0);
        entry.is_some_and(|entry| entry.kind != EntryKind::Directory)
    }

    async fn add_key(
        &mut self,
        client: &Client,
        bucket: &Arc<Bucket>,
        key: &str,
        filters: &Filters,
    ) -> Result<(), Trouble> {
        if key.is_empty() || key.ends_with('/') {
            let text = format!("{}: names no object: use -r for all below it", bucket.show(key));
            return Err(Trouble::never(FailureKind::Usage, text));
        }
        let own = key.rsplit('/').next().unwrap_or_default().as_bytes().to_vec();
        if filters.excludes(&own, false) {
            return Ok(());
        }
        let head = bucket.head(client, key).await?;
        let place = Place::Bucket(Arc::clone(bucket), key.to_owned());
        let (size, version) = (Some(ByteCount(head.size)), head.version);
        let (name, sum) = (bucket.show(key), head.sum);
        let object = Remote { name, size, version, ranges: true, place, sum };
        self.add_file(own, object)?;
        Ok(())
    }

    /// Adds the objects below a key. As with directories, `KEY/` means its contents and `KEY` the
    /// directory itself.
    async fn add_below(
        &mut self,
        client: &Client,
        bucket: &Arc<Bucket>,
        key: &str,
        filters: &Filters,
    ) -> Result<(), Trouble> {
        let trimmed = key.trim_end_matches('/');
        let prefix = if trimmed.is_empty() { String::new() } else { format!("{trimmed}/") };
        let inside = key.is_empty() || key.ends_with('/');
        let top = if inside { "" } else { trimmed.rsplit('/').next().unwrap_or_default() };
        let all = bucket.list(client, &prefix, MAX_OBJECTS).await?;
        if all.is_empty() && !prefix.is_empty() {
            // The key may name an object instead of a directory.
            return match inside {
                false => self.add_key(client, bucket, key, filters).await,
                true => {
                    let text = format!("{}: there is nothing below it", bucket.show(key));
                    Err(Trouble::never(FailureKind::SourceMissing, text))
                }
            };
        }
        self.add_listed(bucket, &prefix, top, all, filters)
    }

    /// Adds the objects of a list of all keys with a prefix, below the directory `top` (empty for
    /// the destination itself).
    pub(super) fn add_listed(
        &mut self,
        bucket: &Arc<Bucket>,
        prefix: &str,
        top: &str,
        all: Vec<Listed>,
        filters: &Filters,
    ) -> Result<(), Trouble> {
        if let ("", Some(first)) = (top, all.first()) {
            // The root entry makes the target a directory instead of the new name of a file.
            let mtime = Mtime { secs: first.version.mtime().secs, nanos: 0 };
            self.directory(RelPath::root(), mtime)?;
        }
        let mut any = false;
        for one in all {
            let below = one.key.strip_prefix(prefix).unwrap_or(&one.key);
            let whole = match top {
                "" => below.to_owned(),
                top if below.is_empty() => format!("{top}/"),
                top => format!("{top}/{below}"),
            };
            let is_dir = whole.ends_with('/') || whole.is_empty();
            let path = whole.trim_end_matches('/').as_bytes().to_vec();
            // The marker of the source's own directory. With content it fails below.
            let own = path.is_empty() && one.size == 0;
            if own || !path.is_empty() && filters.excludes_within(&path, is_dir) {
                continue;
            }
            let checked = match RelPath::new(path.clone()) {
                Ok(checked) if !(is_dir && one.size > 0) => checked,
                _ => {
                    let text = "a key that is no path of a file here";
                    let failure = Failure::new(FailureKind::Unreadable, text);
                    self.failed.push((one.key.into_bytes(), failure));
                    continue;
                }
            };
            // A store may have `a` as well as `a/b`. All above a directory are directories.
            let is_below_file = directories_above(&path)
                .rev()
                .find(|dir| self.taken.contains_key(*dir))
                .is_some_and(|dir| self.has_file(dir));
            if is_below_file || is_dir && self.has_file(&path) {
                let failure = Failure::new(FailureKind::Unreadable, PATH_TAKEN);
                self.failed.push((bucket.show(&one.key).into_bytes(), failure));
                continue;
            }
            let mtime = Mtime { secs: one.version.mtime().secs, nanos: 0 };
            self.directories(&checked, mtime)?;
            if is_dir {
                self.directory(checked, mtime)?;
                continue;
            }
            let place = Place::Bucket(Arc::clone(bucket), one.key.clone());
            let (name, size) = (bucket.show(&one.key), Some(ByteCount(one.size)));
            // A list does not tell how the tags were made, so they cannot serve as checksums.
            let (version, sum) = (one.version, None);
            let object = Remote { name, size, version, ranges: true, place, sum };
            any |= self.add_file(path, object)?;
        }
        if !any {
            self.empty.push(top.as_bytes().to_vec());
        }
        Ok(())
    }

    /// Adds the parent directories of a path, outermost first. All above one that is there are
    /// there.
    fn directories(&mut self, path: &RelPath, mtime: Mtime) -> Result<(), Trouble> {
        let above: Vec<&[u8]> = directories_above(path.as_bytes()).collect();
        let there = above.iter().rposition(|dir| self.taken.contains_key(*dir));
        for dir in &above[there.map_or(0, |at| at + 1)..] {
            if let Ok(dir) = RelPath::new(dir.to_vec()) {
                self.directory(dir, mtime)?;
            }
        }
        Ok(())
    }

    fn directory(&mut self, path: RelPath, mtime: Mtime) -> Result<(), Trouble> {
        match self.taken.contains_key(path.as_bytes()) {
            true => Ok(()),
            false => self.push(path, EntryKind::Directory, mtime, None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_the_last_part_of_an_address() {
        let name = |text: &str| String::from_utf8(web_name(&WebUrl::parse(text).unwrap())).unwrap();
        assert_eq!(name("https://h/a/b%20c.iso?x=/y#z"), "b c.iso");
        for nameless in ["https://h", "https://h/a/", "https://h/%2e%2e", "https://h/..%2fx"] {
            assert_eq!(name(nameless), "index.html", "{nameless}");
        }
    }

    /// A web file of this name at this address.
    fn add(found: &mut Found, name: &str, url: &str) {
        let url = WebUrl::parse(url).unwrap();
        let version = super::super::answer::Version::default();
        let (size, name) = (Some(ByteCount(1)), name.as_bytes().to_vec());
        let place = Place::Web { at: url.clone().into(), asked: url.clone() };
        let object =
            Remote { name: url.to_string(), size, version, ranges: true, place, sum: None };
        found.add_file(name, object).unwrap();
    }

    #[test]
    fn the_second_of_one_path_fails_unless_it_is_the_same_object() {
        let mut found = Found::default();
        add(&mut found, "x", "http://h/1/x");
        add(&mut found, "x", "http://h/1/x");
        add(&mut found, "y", "http://h/1/y");
        assert!(found.failed.is_empty());
        add(&mut found, "x", "http://h/2/x");
        let paths: Vec<_> = found.entries.iter().map(|(e, _)| e.path.as_bytes()).collect();
        assert_eq!(paths, [b"x", b"y"]);
        let failed: Vec<_> = found.failed.iter().map(|(path, _)| path.as_slice()).collect();
        assert_eq!(failed, [b"http://h/2/x"]);
        assert!(found.has_file(b"x"));
        found.directory(RelPath::new(b"x".to_vec()).unwrap(), now()).unwrap();
        found.directory(RelPath::new(b"d".to_vec()).unwrap(), now()).unwrap();
        assert_eq!(found.entries.len(), 3);
        assert!(!found.has_file(b"d"));
        add(&mut found, "d", "http://h/d");
        assert_eq!(found.failed.len(), 2);
    }
    fn bucket() -> Arc<Bucket> {
        let url = "http://h:9".parse().unwrap();
        let style = rusty_s3::UrlStyle::Path;
        let place = rusty_s3::Bucket::new(url, style, "b", "us-east-1").unwrap();
        Arc::new(Bucket { place, credentials: None })
    }

    fn listed(all: &[(&str, u64)]) -> Vec<Listed> {
        let one = |&(key, size): &(&str, u64)| Listed {
            key: key.to_owned(),
            size,
            version: super::super::answer::Version::default(),
        };
        all.iter().map(one).collect()
    }

    #[test]
    fn sources_without_a_file_are_told() {
        let (bucket, all) = (bucket(), Filters::default());
        let mut found = Found::default();
        found.add_listed(&bucket, "a/", "a", listed(&[("a/f", 1)]), &all).unwrap();
        assert!(found.empty.is_empty());
        // Markers of directories, and a file whose path is taken.
        let markers = listed(&[("p/c/", 0), ("p/c/x/", 0)]);
        found.add_listed(&bucket, "p/c/", "c", markers, &all).unwrap();
        found.add_listed(&bucket, "q/", "", listed(&[("q/a/f", 1)]), &all).unwrap();
        assert_eq!(found.empty, [b"c".to_vec(), Vec::new()]);
        assert_eq!(found.failed.len(), 1);
    }

    #[test]
    fn directories_of_deep_keys_are_limited() {
        // Each key has 4 KB, and makes 2,000 directories of its own with paths of 4 MB.
        let key = |n: usize| format!("{n:04}{}/f", "/a".repeat(2000));
        let keys: Vec<String> = (0..10).map(key).collect();
        let all = listed(&keys.iter().map(|key| (key.as_str(), 0)).collect::<Vec<_>>());
        let mut found = Found { bytes_left: 10_000_000, ..Found::default() };
        let ended = found.add_listed(&bucket(), "", "", all, &Filters::default());
        assert_eq!(ended.unwrap_err().failure().kind, FailureKind::Usage);
        let bytes: usize = found.entries.iter().map(|(e, _)| e.path.as_bytes().len()).sum();
        assert!(bytes <= 10_000_000, "{bytes}");
        // What a tree has is not.
        let mut found = Found::default();
        let all = listed(&[("a/b/c", 1), ("a/b/d/e", 1), ("f", 1), ("a/b/c/x", 1)]);
        found.add_listed(&bucket(), "", "", all, &Filters::default()).unwrap();
        let paths: Vec<_> = found.entries.iter().map(|(e, _)| e.path.as_bytes()).collect();
        assert_eq!(paths, [&b""[..], b"a", b"a/b", b"a/b/c", b"a/b/d", b"a/b/d/e", b"f"]);
        assert_eq!(found.failed.len(), 1, "below a file");
    }

    #[test]
    fn a_marker_with_content_is_reported() {
        for (prefix, top) in [("p/", ""), ("p/", "p")] {
            let mut found = Found::default();
            let all = listed(&[("p/", 0), ("p/", 5), ("p/f", 1), ("p/d/", 7)]);
            found.add_listed(&bucket(), prefix, top, all, &Filters::default()).unwrap();
            let failed: Vec<_> = found.failed.iter().map(|(path, _)| path.as_slice()).collect();
            assert_eq!(failed, [&b"p/"[..], b"p/d/"], "{top}");
        }
    }
}
