//! The threads for operations on names and for syncs.

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crossbeam_channel::{Receiver, Sender, unbounded};
use packtrain_disk::write;
use packtrain_object::{Entry, EntryId, EntryKind, RelPath};
use packtrain_transfer::{DeletePlan, Failure, FailureKind, LinkPlan};

use super::Answer;
use super::delete;
use super::target::{Target, kind_of};
use crate::assembly::PieceTarget;
use crate::meters::Meters;
use packtrain_service::executor::spawn;

/// Operations on names, executed in order.
pub(super) enum MetaJob {
    Examine(EntryId, Vec<Entry>),
    Symlink(EntryId, Entry),
    Empty(EntryId, Entry),
    Link(Box<LinkPlan>),
    Hash(EntryId, Entry),
    /// Names the fresh directories that a sync covered. These files in them are not verified.
    Publish(Vec<EntryId>),
    Commit(Vec<(EntryId, Entry)>),
    Settle(Vec<(EntryId, Entry)>),
    Discard(EntryId, Entry),
    Abandon(Vec<RelPath>),
    Delete(DeletePlan),
    /// Queues a sync after all jobs before this one.
    Then(SyncJob),
    /// Dropped after all jobs before this one.
    Done(Sender<()>),
    Stop,
}

/// Sync operations.
pub(super) enum SyncJob {
    Sync(u64),
    /// The journal, and names: those of this run, or all.
    Journal {
        token: u64,
        journal: Option<File>,
        names: bool,
    },
    Stop,
}

pub(super) fn start_meta(
    target: Arc<Target>,
    meters: Arc<Meters>,
    answer: Sender<Answer>,
    sync: Sender<SyncJob>,
) -> Sender<MetaJob> {
    let (jobs, queue) = unbounded();
    spawn("meta", move || {
        for job in &queue {
            let job = match job {
                MetaJob::Stop => return,
                MetaJob::Then(next) => {
                    let _ = sync.send(next);
                    continue;
                }
                MetaJob::Done(waiting) => {
                    drop(waiting);
                    continue;
                }
                job => job,
            };
            if let Some(done) = meters.names.run_many(job.count(), 0, || meta(&target, job)) {
                let _ = answer.send(done);
            }
        }
    });
    jobs
}

impl MetaJob {
    /// Number of entries that it concerns.
    fn count(&self) -> u64 {
        let count = match self {
            Self::Examine(_, entries) => entries.len(),
            Self::Commit(entries) | Self::Settle(entries) => entries.len(),
            _ => 1,
        };
        count as u64
    }
}

fn meta(target: &Arc<Target>, job: MetaJob) -> Option<Answer> {
    match job {
        MetaJob::Examine(first, entries) => {
            Some(Answer::Examined(first, entries.iter().map(|e| target.examine(e)).collect()))
        }
        MetaJob::Symlink(id, entry) => Some(Answer::Made(id, target.make_symlink(&entry))),
        MetaJob::Empty(id, entry) => {
            let shared = super::SharedTarget(Arc::clone(target));
            Some(Answer::Made(id, shared.write_small(id, &entry, &[])))
        }
        MetaJob::Link(plan) => Some(Answer::Linked(plan.id, target.link(&plan))),
        MetaJob::Hash(id, entry) => Some(Answer::TargetRoot(id, target.hash(&entry))),
        MetaJob::Publish(unverified) => {
            target.publish(&unverified);
            None
        }
        MetaJob::Commit(entries) => {
            let commit = |(id, entry): &(EntryId, Entry)| (*id, target.commit(*id, entry));
            Some(Answer::Committed(entries.iter().map(commit).collect()))
        }
        MetaJob::Settle(entries) => {
            if entries.iter().any(|(_, entry)| entry.kind == EntryKind::Directory) {
                // The end of the transfer: everything else is in its place.
                target.make_empty_directories();
            }
            for (_, entry) in &entries {
                // The content is correct, so this is no failure of the entry.
                if target.settle(entry).is_err() {
                    target.note_unsettled();
                }
            }
            None
        }
        MetaJob::Discard(id, entry) => {
            target.discard(id, &entry);
            None
        }
        MetaJob::Abandon(paths) => {
            target.abandon(&paths);
            None
        }
        MetaJob::Delete(plan) => Some(Answer::Deleted(delete::delete(target, &plan))),
        MetaJob::Then(_) | MetaJob::Done(_) | MetaJob::Stop => None,
    }
}

pub(super) fn start_sync(
    target: Arc<Target>,
    meters: Arc<Meters>,
    answer: Sender<Answer>,
) -> Sender<SyncJob> {
    let (jobs, queue): (_, Receiver<SyncJob>) = unbounded();
    spawn("sync", move || {
        for job in &queue {
            let done = meters.sync.run(0, || match job {
                SyncJob::Sync(token) => Some(Answer::Synced(token, sync_data(&target))),
                SyncJob::Journal { token, journal, names } => {
                    let journal = journal.map_or(Ok(()), |file| write::sync_data(&file));
                    let journal = journal.map_err(|e| failure(&target, "the journal", &e));
                    // Renames since the last sync must become durable too.
                    let renamed = target.renamed.swap(false, Ordering::AcqRel);
                    let all = names || renamed || target.options().removes_source();
                    let names = || if all { sync_names(&target) } else { Ok(()) };
                    Some(Answer::JournalSynced(token, journal.and_then(|()| names())))
                }
                SyncJob::Stop => None,
            });
            let Some(done) = done else { return };
            let _ = answer.send(done);
        }
    });
    jobs
}

fn sync_data(target: &Target) -> Result<(), Failure> {
    target.sync().map_err(|e| failure(target, "cannot sync the target", &e))
}

fn sync_names(target: &Target) -> Result<(), Failure> {
    target.root.sync().map_err(|e| failure(target, "cannot sync the target", &e))
}

fn failure(target: &Target, what: &str, error: &std::io::Error) -> Failure {
    let trouble = target.root.trouble(error);
    let kind = match kind_of(trouble) {
        FailureKind::TargetFull => FailureKind::TargetFull,
        _ => FailureKind::Fatal,
    };
    Failure::new(kind, format!("{what}: {}", trouble.sentence()))
}
