//! Finds the objects to fetch and makes the entries of the transfer from them.

use std::collections::BTreeSet;
use std::sync::Arc;

use packtrain_object::{Entry, EntryKind, Filters, Mtime, NO_MODE, RelPath};
use packtrain_os::clock;
use packtrain_transfer::message::Options;
use packtrain_transfer::{Failure, FailureKind};
use packtrain_units::ByteCount;
use percent_encoding::percent_decode_str;

use super::answer::Trouble;
use super::http::Client;
use super::remote::{Place, Remote, probe};
use super::s3::Bucket;
use packtrain_service::weburl::WebUrl;

/// The file name for an address without one.
const NAMELESS: &[u8] = b"index.html";
/// Maximum objects in one transfer: their list is held in memory.
const MAX_OBJECTS: usize = 1 << 20;

/// The requested sources.
#[derive(Clone, Debug)]
pub(super) enum Asked {
    /// These addresses.
    Web(Vec<WebUrl>),
    /// These keys of a bucket, or the objects below them.
    Keys(Arc<Bucket>, Vec<String>),
}

/// The objects found.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Entries in manifest order, and the object of each file.
    pub(super) entries: Vec<(Entry, Option<Remote>)>,
    /// Objects that cannot be fetched.
    pub(super) failed: Vec<(Vec<u8>, Failure)>,
    /// Notices for the user.
    pub(super) say: Vec<String>,
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
                    Ok(object) => found.add_file(web_name(url), object),
                    Err(Trouble::Never(f)) if urls.len() > 1 && one_only(&f) => {
                        found.failed.push((url.to_string().into_bytes(), f));
                    }
                    Err(trouble) => return Err(trouble),
                }
            }
        }
        Asked::Keys(bucket, keys) => {
            let mut made = BTreeSet::new();
            for key in keys {
                if options.recursive {
                    found.add_below(client, bucket, key, &filters, &mut made).await?;
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
    fn add_file(&mut self, name: Vec<u8>, object: Remote) {
        let path = match RelPath::new(name.clone()) {
            Ok(path) => path,
            Err(e) => {
                let failure = Failure::new(FailureKind::Unreadable, format!("no file's name: {e}"));
                return self.failed.push((name, failure));
            }
        };
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
        let entry =
            Entry { path, kind, mode: NO_MODE, mtime, uid: 0, gid: 0, extras: Default::default() };
        self.entries.push((entry, Some(object)));
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
        self.add_file(own, object);
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
        made: &mut BTreeSet<Vec<u8>>,
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
        if let (true, Some(first)) = (inside, all.first()) {
            // The root entry makes the target a directory instead of the new name of a file.
            let mtime = Mtime { secs: first.version.mtime().secs, nanos: 0 };
            self.directory(RelPath::root(), mtime, made);
        }
        for one in all {
            let below = one.key.strip_prefix(&prefix).unwrap_or(&one.key);
            let whole = match top {
                "" => below.to_owned(),
                top if below.is_empty() => format!("{top}/"),
                top => format!("{top}/{below}"),
            };
            let is_dir = whole.ends_with('/') || whole.is_empty();
            let path = whole.trim_end_matches('/').as_bytes().to_vec();
            if path.is_empty() || filters.excludes_within(&path, is_dir) {
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
            let mtime = Mtime { secs: one.version.mtime().secs, nanos: 0 };
            self.directories(&checked, mtime, made);
            if is_dir {
                self.directory(checked, mtime, made);
                continue;
            }
            let place = Place::Bucket(Arc::clone(bucket), one.key.clone());
            let (name, size) = (bucket.show(&one.key), Some(ByteCount(one.size)));
            // A list does not tell how the tags were made, so they cannot serve as checksums.
            let (version, sum) = (one.version, None);
            let object = Remote { name, size, version, ranges: true, place, sum };
            self.add_file(path, object);
        }
        Ok(())
    }

    /// Adds the parent directories of a path, outermost first.
    fn directories(&mut self, path: &RelPath, mtime: Mtime, made: &mut BTreeSet<Vec<u8>>) {
        let mut above = Vec::new();
        let mut at = path.parent();
        while let Some(dir) = at.filter(|dir| !dir.is_root()) {
            at = dir.parent();
            above.push(dir);
        }
        for dir in above.into_iter().rev() {
            self.directory(dir, mtime, made);
        }
    }

    fn directory(&mut self, path: RelPath, mtime: Mtime, made: &mut BTreeSet<Vec<u8>>) {
        if made.insert(path.as_bytes().to_vec()) {
            let kind = EntryKind::Directory;
            let entry = Entry {
                path,
                kind,
                mode: NO_MODE,
                mtime,
                uid: 0,
                gid: 0,
                extras: Default::default(),
            };
            self.entries.push((entry, None));
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
}
