//! The thread that lists the sources.

use parking_lot::{Condvar, Mutex};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

use crossbeam_channel::Sender;
use packtrain_disk::walk::WalkFailure;
use packtrain_disk::{Trouble, WalkOptions, Walker};
use packtrain_object::{Entry, EntryKind, Mtime, NO_MODE, RelPath};
use packtrain_os::clock;
use packtrain_transfer::message::Options;
use packtrain_transfer::{Failure, FailureKind, filters};

use super::{News, Table};
use crate::confinement::Confinement;
use crate::meters::Meters;
use crate::pack::Unpacked;
use crate::traces::is_trace;
use packtrain_service::executor::spawn;
use packtrain_service::paths::show;

/// Entries handed over at once.
const BATCH: usize = 1_024;

/// What is to be read.
#[derive(Clone, Debug)]
pub enum SourceSpec {
    /// Paths on this machine, as typed.
    Paths(Vec<Vec<u8>>),
    /// Paths below a directory that nothing leads out of (a server's root).
    Confined(Confinement, Vec<Vec<u8>>),
    /// Standard input, to be called this.
    Stdin(Vec<u8>),
    /// A session that depots keep.
    Kept(Unpacked),
}

impl SourceSpec {
    pub(super) fn is_stream(&self) -> bool {
        matches!(self, Self::Stdin(_))
    }
}

/// How many entries the walk may hand over.
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

    /// Waits until entries are wanted; false when none ever will be.
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
    news: Sender<News>,
) {
    spawn("walk", move || {
        let result = match spec {
            SourceSpec::Stdin(name) => stream(name, &table, &news),
            SourceSpec::Kept(kept) => {
                list(&kept, &table, &credit, &news);
                Ok(())
            }
            SourceSpec::Paths(paths) => prepare(&options).and_then(|prepared| {
                let paths: Vec<PathBuf> = paths
                    .iter()
                    .map(|p| PathBuf::from(OsStr::from_bytes(&crate::sink::expand_home(p))))
                    .collect();
                walk(Walker::new(&paths, prepared), &meters, &table, &credit, &news)
            }),
            SourceSpec::Confined(root, paths) => prepare(&options).and_then(|prepared| {
                let root = root
                    .root()
                    .map_err(|e| Failure::new(FailureKind::Fatal, format!("{root}: {e}")))?;
                let walker = Walker::beneath(&root, paths, prepared);
                walk(walker, &meters, &table, &credit, &news)
            }),
        };
        if let Err(failure) = result {
            let _ = news.send(News::Refuse(failure));
        }
    });
}

fn stream(name: Vec<u8>, table: &Table, news: &Sender<News>) -> Result<(), Failure> {
    let path = RelPath::new(name)
        .map_err(|e| Failure::new(FailureKind::Usage, format!("the target's name: {e}")))?;
    let wall = clock::wall();
    let nanos = (wall.as_nanos() % 1_000_000_000) as u32;
    let mtime = Mtime { secs: (wall.as_nanos() / 1_000_000_000) as i64, nanos };
    let entry = Entry { path, kind: EntryKind::Stream, mode: NO_MODE, mtime, uid: 0, gid: 0 };
    table.push_nothing();
    let _ = news.send(News::Entries(vec![entry]));
    let _ = news.send(News::WalkEnd(Vec::new(), Vec::new()));
    Ok(())
}

/// The entries of a session that depots keep; nothing of it is below a root here.
fn list(kept: &Unpacked, table: &Table, credit: &Credit, news: &Sender<News>) {
    for batch in kept.batches() {
        batch.iter().for_each(|_| table.push_nothing());
        if !credit.take(batch.len()) {
            return;
        }
        let _ = news.send(News::Entries(batch.to_vec()));
    }
    let _ = news.send(News::WalkEnd(Vec::new(), Vec::new()));
}

fn prepare(options: &Options) -> Result<WalkOptions, Failure> {
    let filters = filters(options)?;
    let (recursive, files_from) = (options.recursive, options.files_from.clone());
    Ok(WalkOptions { recursive, filters, files_from })
}

/// Walks over the sources and hands over what it finds, what each step takes measured.
fn walk(
    mut walker: Walker,
    meters: &Meters,
    table: &Table,
    credit: &Credit,
    news: &Sender<News>,
) -> Result<(), Failure> {
    table.set_roots(walker.roots().to_vec());
    let names = walker.target_names();
    let sources = names.len();
    let mut brought = vec![false; sources];
    let walker = std::iter::from_fn(|| meters.names.run(0, || walker.next()));
    let (mut batch, mut failed) = (Vec::with_capacity(BATCH), Vec::new());
    let (mut any, mut missing) = (false, 0);
    for item in walker {
        match item {
            // Our own traces in a source are nobody's data; at a target of the same name they would
            // be taken for that target's.
            Ok(item)
                if item.entry.kind != EntryKind::Directory
                    && is_trace(item.entry.path.file_name()) => {}
            Ok(item) => {
                any = true;
                if item.entry.kind != EntryKind::Directory
                    && let Some(brought) = brought.get_mut(item.argument)
                {
                    *brought = true;
                }
                table.push(item.root, item.source, &item.entry);
                batch.push(item.entry);
            }
            // A missing or unfit source ends the transfer before anything was moved.
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
        if batch.len() >= BATCH {
            if !credit.take(batch.len()) {
                return Ok(());
            }
            let _ =
                news.send(News::Entries(std::mem::replace(&mut batch, Vec::with_capacity(BATCH))));
        }
    }
    let all_missing = !any && missing > 0 && missing >= sources && missing == failed.len();
    if all_missing {
        return Err(failed.swap_remove(0).1);
    }
    if !batch.is_empty() {
        let _ = news.send(News::Entries(batch));
    }
    let empty = names.into_iter().zip(brought).filter(|(_, brought)| !brought);
    let _ = news.send(News::WalkEnd(failed, empty.map(|(name, _)| name).collect()));
    Ok(())
}

fn explain(failure: &WalkFailure) -> Failure {
    let path = show(&failure.path);
    let trouble = packtrain_disk::classify(&failure.error);
    let (kind, text) = match trouble {
        Trouble::NotFound if failure.is_source => {
            (FailureKind::SourceMissing, format!("{path}: no such file or directory"))
        }
        // It may have been there once, but a mistake in the list is more likely.
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
