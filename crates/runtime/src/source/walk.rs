//! The thread that lists the sources.

use parking_lot::{Condvar, Mutex};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

use crossbeam_channel::Sender;
use packtrain_disk::walk::{NotRead, WalkFailure};
use packtrain_disk::{Trouble, WalkOptions, Walker, glob};
use packtrain_object::{Entry, EntryId, EntryKind, Mtime, NO_MODE, RelPath};
use packtrain_os::clock;
use packtrain_transfer::message::Options;
use packtrain_transfer::{Failure, FailureKind, filters};

use super::links::HardLinks;
use super::{SourceEvent, Table};
use crate::confinement::Confinement;
use crate::meters::Meters;
use crate::not_kept::NotKept;
use crate::pack::Unpacked;
use crate::skipped::Skipped;
use crate::traces::{IS_WORKING_FILE, is_working_file};
use packtrain_service::executor::spawn;
use packtrain_service::paths::show;

/// Entries passed on at once.
const BATCH: usize = 1_024;
/// Bytes of extended attributes passed on at once.
const BATCH_BYTES: usize = 4 << 20;
/// Steps of the walk that are measured at once.
const STEPS: usize = 64;

/// The sources to read.
#[derive(Clone, Debug)]
pub enum SourceSpec {
    /// Local paths from the command line.
    Paths(Vec<Vec<u8>>),
    /// Paths confined to a directory (a server's root).
    Confined(Confinement, Vec<Vec<u8>>),
    /// Standard input, with its name at the target.
    Stdin(Vec<u8>),
    /// A session that depots store.
    Kept(Unpacked),
}

impl SourceSpec {
    pub(super) fn is_stream(&self) -> bool {
        matches!(self, Self::Stdin(_))
    }
}

/// Number of entries that the walk may pass on.
#[derive(Debug, Default)]
pub(crate) struct Credit {
    state: Mutex<(usize, bool)>,
    changed: Condvar,
}

impl Credit {
    pub(super) fn set(&self, credit: usize) {
        self.state.lock().0 = credit;
        self.changed.notify_all();
    }

    pub(super) fn close(&self) {
        self.state.lock().1 = true;
        self.changed.notify_all();
    }

    /// Waits until entries are wanted; false if the transfer ended.
    fn take(&self, count: usize) -> bool {
        let mut state = self.state.lock();
        while state.0 == 0 && !state.1 {
            self.changed.wait(&mut state);
        }
        state.0 = state.0.saturating_sub(count);
        !state.1
    }
}

pub(super) fn start(
    spec: SourceSpec,
    options: Options,
    table: Arc<Table>,
    credit: Arc<Credit>,
    meters: Arc<Meters>,
    news: Sender<SourceEvent>,
) {
    spawn("walk", move || {
        let result = match spec {
            SourceSpec::Stdin(name) => stream(name, &table, &news),
            SourceSpec::Kept(kept) => {
                list(&kept, &table, &credit, &news);
                Ok(())
            }
            SourceSpec::Paths(paths) => prepare(&options).and_then(|prepared| {
                let paths = paths.iter().map(|path| crate::sink::expand_home(path)).collect();
                let paths = expanded(paths, &options, glob::expand)?;
                let paths: Vec<PathBuf> =
                    paths.iter().map(|path| PathBuf::from(OsStr::from_bytes(path))).collect();
                let links = tracked_links(&options);
                check_rules(&prepared, paths.len())?;
                let walker = Walker::new(&paths, prepared);
                check_removal(&options, &walker)?;
                walk(walker, links, &meters, &table, &credit, &news)
            }),
            SourceSpec::Confined(root, paths) => prepare(&options).and_then(|prepared| {
                let root = root.served()?;
                let expand = |path: &[u8]| glob::expand_beneath(&root, path);
                let paths = expanded(paths, &options, expand)?;
                check_rules(&prepared, paths.len())?;
                let walker = Walker::beneath(&root, paths, prepared);
                check_removal(&options, &walker)?;
                walk(walker, tracked_links(&options), &meters, &table, &credit, &news)
            }),
        };
        if let Err(failure) = result {
            let _ = news.send(SourceEvent::Refuse(failure));
        }
    });
}

fn stream(name: Vec<u8>, table: &Table, news: &Sender<SourceEvent>) -> Result<(), Failure> {
    let path = RelPath::new(name)
        .map_err(|e| Failure::new(FailureKind::Usage, format!("the target's name: {e}")))?;
    let wall = clock::wall();
    let nanos = (wall.as_nanos() % 1_000_000_000) as u32;
    let mtime = Mtime { secs: (wall.as_nanos() / 1_000_000_000) as i64, nanos };
    let entry = Entry {
        path,
        kind: EntryKind::Stream,
        mode: NO_MODE,
        mtime,
        uid: 0,
        gid: 0,
        extras: Default::default(),
    };
    table.push_nothing();
    let _ = news.send(SourceEvent::Entries(vec![entry]));
    let _ = news.send(SourceEvent::WalkEnd(Vec::new(), Vec::new()));
    Ok(())
}

/// Lists the entries of a session that depots store; they have no local files.
fn list(kept: &Unpacked, table: &Table, credit: &Credit, news: &Sender<SourceEvent>) {
    for batch in kept.batches() {
        batch.iter().for_each(|_| table.push_nothing());
        if !credit.take(batch.len()) {
            return;
        }
        let _ = news.send(SourceEvent::Entries(batch.to_vec()));
    }
    let _ = news.send(SourceEvent::WalkEnd(Vec::new(), Vec::new()));
}

/// The sources, with patterns replaced by what they match if the request has patterns.
fn expanded(
    paths: Vec<Vec<u8>>,
    options: &Options,
    expand: impl Fn(&[u8]) -> std::io::Result<Vec<Vec<u8>>>,
) -> Result<Vec<Vec<u8>>, Failure> {
    if !options.extra.patterns {
        return Ok(paths);
    }
    let mut all = Vec::with_capacity(paths.len());
    for path in paths {
        let found = expand(&path).map_err(|error| {
            Failure::new(FailureKind::Usage, format!("{}: {error}", show(&path)))
        })?;
        if found.is_empty() {
            let text = format!("{}: the pattern matches nothing", show(&path));
            return Err(Failure::new(FailureKind::SourceMissing, text));
        }
        if all.len() + found.len() > glob::MAX_MATCHES {
            let text = format!("the patterns match more than {} paths", glob::MAX_MATCHES);
            return Err(Failure::new(FailureKind::Usage, text));
        }
        all.extend(found);
    }
    Ok(all)
}

fn prepare(options: &Options) -> Result<WalkOptions, Failure> {
    let filters = filters(options)?;
    if options.removes_source() && !filters.exclude_own_files() {
        // The next try would not find the rules, and remove what they exclude.
        let text = "--remove-source-files would remove filter files before the names that they \
                    exclude: leave these files out, with -FF or ':e FILE' before other rules of files";
        return Err(Failure::new(FailureKind::Usage, text));
    }
    Ok(WalkOptions {
        recursive: options.recursive,
        report_rules: filters.has_files() && options.reports_rules(),
        filters,
        files_from: options.files_from.clone(),
        copy_links: options.extra.copy_links,
        one_file_system: options.extra.one_file_system,
        attributes: options.extra.xattrs,
        acls: options.extra.acls,
    })
}

/// Checks a request whose sink needs the files of rules. Their paths must tell to which source they
/// belong, and the entry of their directory must come first.
fn check_rules(options: &WalkOptions, sources: usize) -> Result<(), Failure> {
    if !options.report_rules || sources <= 1 && options.files_from.is_none() {
        return Ok(());
    }
    let text = "with filter rules in files of each directory, --delete and verify need exactly one \
                source and no --files-from: copy the sources one by one, or give the rules \
                themselves with --filter";
    Err(Failure::new(FailureKind::Usage, text))
}

/// Checks sources whose files are removed: no two may have files of the same name at the target. The
/// first file may be removed before the walk, or the next try, gets to the second one, which would
/// then replace the only copy.
fn check_removal(options: &Options, walker: &Walker) -> Result<(), Failure> {
    let mut names = walker.target_names();
    if !options.removes_source() || names.len() <= 1 {
        return Ok(());
    }
    names.sort_unstable();
    let text = match names.windows(2).find(|pair| pair[0] == pair[1]) {
        _ if names[0].is_empty() => {
            "--remove-source-files takes the contents of a directory (SRC/) only as its single \
             source, because files of the same name would replace each other: move the sources one \
             by one, or leave out the slash"
                .to_owned()
        }
        Some(pair) => format!(
            "two sources are called `{}`, and with --remove-source-files one would replace the \
             other: move them one by one, to different directories",
            show(&pair[0])
        ),
        None => return Ok(()),
    };
    Err(Failure::new(FailureKind::Usage, text))
}

/// The table of files with several names, if they are kept.
fn tracked_links(options: &Options) -> Option<HardLinks> {
    options.extra.hard_links.then(HardLinks::default)
}

/// Walks the sources, passes on the entries and measures each step.
fn walk(
    mut walker: Walker,
    mut links: Option<HardLinks>,
    meters: &Meters,
    table: &Table,
    credit: &Credit,
    news: &Sender<SourceEvent>,
) -> Result<(), Failure> {
    table.set_roots(walker.roots().to_vec());
    let names = walker.target_names();
    let sources = names.len();
    let mut brought = vec![false; sources];
    let steps = || -> Vec<_> { walker.by_ref().take(STEPS).collect() };
    let mut measured = std::iter::repeat_with({
        let mut steps = steps;
        move || meters.names.run_counted(0, &mut steps, |items| items.len() as u64)
    });
    let walker = std::iter::from_fn(|| measured.next().filter(|items| !items.is_empty())).flatten();
    let (mut batch, mut failed) = (Vec::with_capacity(BATCH), Vec::new());
    let (mut any, mut missing, mut count) = (false, 0, 0);
    let (mut not_kept, mut batch_bytes) = (NotKept::default(), 0);
    let (mut mounts, mut special) = (Vec::new(), Skipped::default());
    for item in walker {
        match item {
            Ok(item) if is_working_file(&item.entry) => {
                let path = item.entry.path.as_bytes();
                if names.iter().any(|name| name == path) {
                    let failure = Failure::new(FailureKind::Unreadable, IS_WORKING_FILE);
                    failed.push((path.to_vec(), failure));
                }
            }
            Ok(mut item) => {
                any = true;
                if let Some(links) = &mut links {
                    let (id, path) = (EntryId(count), item.entry.path.as_bytes().len());
                    item.entry.extras.hard_link =
                        links.find(id, &item.entry.kind, item.identity, item.names, path);
                }
                count = count.saturating_add(1);
                match item.no_attributes {
                    None => {}
                    Some(NotRead::Unsupported) => not_kept.unsupported_attributes += 1,
                    Some(NotRead::TooLarge) => not_kept.large_attributes += 1,
                }
                match item.no_acls {
                    None => {}
                    Some(NotRead::Unsupported) => not_kept.unsupported_acls += 1,
                    Some(NotRead::TooLarge) => not_kept.large_acls += 1,
                }
                batch_bytes += item.entry.extras.bytes();
                if item.entry.kind != EntryKind::Directory
                    && let Some(brought) = brought.get_mut(item.argument)
                {
                    *brought = true;
                }
                if item.is_mount_point {
                    mounts.push(item.entry.path.as_bytes().to_vec());
                }
                table.push(item.root, item.source, &item.entry, item.identity);
                if item.rules.is_empty() {
                    batch.push(item.entry);
                } else {
                    // The rules come before the entries in their directory.
                    let dir = item.entry.path.as_bytes().to_vec();
                    batch.push(item.entry);
                    if !pass_on(&mut batch, credit, news) {
                        return Ok(());
                    }
                    batch_bytes = 0;
                    for (number, text) in item.rules {
                        let _ = news.send(SourceEvent::Rules(number, dir.clone(), text));
                    }
                }
            }
            Err(failure) if failure.is_special => special.add(failure.path),
            // A source that is missing or unusable ends the transfer before anything is moved.
            Err(failure) if failure.is_source && sources == 1 && !any => {
                return Err(explain(&failure));
            }
            Err(failure) => {
                let why = explain(&failure);
                let is_missing = why.kind == FailureKind::SourceMissing && failure.is_source;
                missing += usize::from(is_missing);
                failed.push((failure.path, why));
            }
        }
        if batch.len() >= BATCH || batch_bytes >= BATCH_BYTES {
            batch_bytes = 0;
            if !pass_on(&mut batch, credit, news) {
                return Ok(());
            }
        }
    }
    let all_missing = !any && missing > 0 && missing >= sources && missing == failed.len();
    if all_missing {
        return Err(failed.swap_remove(0).1);
    }
    if !batch.is_empty() {
        let _ = news.send(SourceEvent::Entries(batch));
    }
    not_kept.untracked_links = links.as_ref().map_or(0, HardLinks::untracked);
    if not_kept != NotKept::default() {
        let _ = news.send(SourceEvent::NotKept(not_kept));
    }
    if special.count > 0 {
        let _ = news.send(SourceEvent::Skipped(special));
    }
    let empty = names.into_iter().zip(brought).filter(|(_, brought)| !brought);
    // What other file systems hold is not known, so nothing is deleted below these directories.
    let empty = empty.map(|(name, _)| name).chain(mounts).collect();
    let _ = news.send(SourceEvent::WalkEnd(failed, empty));
    Ok(())
}

/// Passes entries on when they are wanted; false if the transfer ended.
fn pass_on(batch: &mut Vec<Entry>, credit: &Credit, news: &Sender<SourceEvent>) -> bool {
    if !credit.take(batch.len()) {
        return false;
    }
    let entries = std::mem::replace(batch, Vec::with_capacity(BATCH));
    let _ = news.send(SourceEvent::Entries(entries));
    true
}

/// What a failure of the walk means for the user.
pub(crate) fn explain(failure: &WalkFailure) -> Failure {
    let path = show(&failure.path);
    let trouble = packtrain_disk::classify(&failure.error);
    let (kind, text) = match trouble {
        Trouble::NotFound if failure.is_source => {
            (FailureKind::SourceMissing, format!("{path}: no such file or directory"))
        }
        // The file may have existed before, but a mistake in the list is more likely.
        Trouble::NotFound if failure.is_named => {
            (FailureKind::SourceMissing, "is named by --files-from and is not there".to_owned())
        }
        Trouble::NotFound => {
            (FailureKind::Vanished, format!("{path}: vanished while it was listed"))
        }
        Trouble::IsDirectory => {
            (FailureKind::Usage, format!("{path}: is a directory; use -r to copy directories"))
        }
        Trouble::Escapes => {
            let text = format!("{path}: leads out of the served directory");
            (FailureKind::NotAuthorised, text)
        }
        Trouble::Denied => {
            (FailureKind::Unreadable, format!("{path}: may not be read by this user"))
        }
        _ => (FailureKind::Unreadable, format!("{path}: {}", failure.error)),
    };
    Failure::new(kind, text)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use packtrain_transfer::message::ExtraOptions;

    use super::*;
    use crate::source::collect;

    /// What a walk that removes these sources says, of a directory with `a/f`, `b/f` and `b/g`.
    fn refusal(sources: &[&str], edit: impl FnOnce(&mut Options)) -> Option<String> {
        let dir = tempfile::tempdir().expect("a directory");
        for (sub, name) in [("a", "f"), ("b", "f"), ("b", "g")] {
            fs::create_dir_all(dir.path().join(sub)).expect("a directory");
            fs::write(dir.path().join(sub).join(name), sub).expect("a file");
        }
        let extra = Box::new(ExtraOptions { remove_source_files: true, ..Default::default() });
        let mut options = Options { recursive: true, extra, ..Options::default() };
        edit(&mut options);
        let root = dir.path().as_os_str().as_bytes();
        let local = sources.iter().map(|path| [root, b"/", path.as_bytes()].concat()).collect();
        let served = sources.iter().map(|path| path.as_bytes().to_vec()).collect();
        let confinement = Confinement::open(dir.path()).expect("a directory");
        let [here, there] = [SourceSpec::Paths(local), SourceSpec::Confined(confinement, served)]
            .map(|spec| collect(spec, &options).err());
        assert_eq!(here, there, "{sources:?}");
        here.map(|failure| {
            assert_eq!(failure.kind, FailureKind::Usage);
            failure.text
        })
    }

    #[test]
    fn sources_that_share_names_are_not_removed() {
        let none = |_: &mut Options| {};
        let keeps = |options: &mut Options| options.extra.remove_source_files = false;
        let patterns = |options: &mut Options| options.extra.patterns = true;
        for sources in [&["a/f", "b/f"][..], &["a/f", "b/g", "a/f"]] {
            let text = refusal(sources, none).expect("they have one name");
            assert!(text.contains("two sources are called `f`"), "{text}");
        }
        assert!(refusal(&["*/f"], patterns).is_some());
        for sources in [["a/", "b/"], ["a/", "b"], ["b/g", "a/."]] {
            let text = refusal(&sources, none).expect("contents may have any name");
            assert!(text.contains("only as its single source"), "{text}");
        }
        for sources in [&["a/"][..], &["a", "b"], &["a/f", "b/g"]] {
            assert_eq!(refusal(sources, none), None, "{sources:?}");
        }
        assert_eq!(refusal(&["b/*"], patterns), None);
        // Nothing is removed.
        assert_eq!(refusal(&["a/", "b/"], |options| options.dry_run = true), None);
        assert_eq!(refusal(&["a/", "b/"], keeps), None);
    }
}
