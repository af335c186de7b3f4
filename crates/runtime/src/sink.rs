//! The sink: drives the sink's state machine with a disk.
//!
//! Threads: this thread drives the machine and appends to the journal; `meta` examines targets,
//! makes directories and renames files, in the order of its queue; `sync` syncs; the assembly's
//! writers write and hash. Network threads only place data in memory.

mod delete;
mod files;
mod journal;
mod notices;
mod open;
mod reports;
mod target;
mod unusable;

use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender, bounded, never, select, unbounded};
use packtrain_disk::{JournalFile, Lock};
use packtrain_object::EntryKind;
use packtrain_os::clock;
use packtrain_transfer::message::{Message, Options, Resume};
use packtrain_transfer::{Failure, FailureKind, Linked, Outcome, Sink, SinkAction, unexpected};
use packtrain_units::{Duration, Time};

use crate::assembly::{self, Assembly, WriteEvent};
use crate::control::{Control, Incoming};
use crate::meters::{EndWatch, Meters};
use crate::session::{Observer, Pulse, Stop};
use crate::skipped::Skipped;
use crate::target_failures::TargetFailures;
use crate::transports::offer::ControlMessage;
use crate::transports::{Moved, SinkTransports};
use packtrain_service::cipher;
use packtrain_service::evidence::{self, Part, PartRole};

/// Interval of the checks whether the memory is full.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);
use files::{MetaJob, SyncJob};
use journal::Journal;
use open::Opened;
pub use open::{Destination, IN_USE, SingleFile, expand_home, single_file};
use reports::Reports;
pub use target::{Leftovers, hash_file, kind_of};
use target::{SharedTarget, Target};

/// Answers of the threads.
#[derive(Debug)]
pub(crate) enum Answer {
    Written(WriteEvent),
    Examined(packtrain_object::EntryId, Vec<packtrain_transfer::TargetState>),
    Made(packtrain_object::EntryId, Result<(), Failure>),
    Linked(packtrain_object::EntryId, Result<Linked, Failure>),
    Committed(Vec<(packtrain_object::EntryId, Result<(), Failure>)>),
    Deleted(Vec<(Vec<u8>, Result<(), Failure>)>),
    TargetRoot(packtrain_object::EntryId, Option<packtrain_object::Digest>),
    Synced(u64, Result<(), Failure>),
    JournalSynced(u64, Result<(), Failure>),
}

/// Tells the user once what the source skipped, and what it could not keep: a repeated message has no
/// new information.
#[derive(Debug, Default)]
struct ToldOnce {
    skipped: bool,
    not_kept: bool,
}

impl ToldOnce {
    fn take(&mut self, bytes: &[u8], observer: &dyn Observer) {
        match ControlMessage::decode(bytes) {
            Some(ControlMessage::Skipped(count, first)) if !self.skipped => {
                self.skipped = true;
                observer.notice(&Skipped { count, first }.notice());
            }
            Some(ControlMessage::NotKept(left)) if !self.not_kept => {
                self.not_kept = true;
                left.notices().iter().for_each(|notice| observer.notice(notice));
            }
            _ => {}
        }
    }
}

/// Parameters of a sink.
pub struct SinkSetup<'a> {
    /// The connection to the source.
    pub control: Control,
    /// The options of the transfer.
    pub options: Options,
    /// Where the files are written.
    pub destination: Destination,
    /// Observes the transfer.
    pub observer: &'a dyn Observer,
    /// Receives the data.
    pub transports: SinkTransports,
    /// Requests to stop.
    pub stop: Stop,
    /// Whether the source compares pieces with their old versions here, so that only changed ones
    /// are moved.
    pub changed_pieces: bool,
}

/// Runs a sink to its end.
pub fn run(mut setup: SinkSetup<'_>) -> (Outcome, Moved) {
    let none = |outcome| (outcome, Moved::default());
    setup.transports.bind();
    let mut told = ToldOnce::default();
    let first = loop {
        match wait_first(&setup) {
            First::Message(Message::Channel(bytes)) => {
                told.take(&bytes, setup.observer);
                if let Err(failure) = setup.transports.on_channel(&bytes) {
                    setup.control.tx.send(&Message::Cancel(failure.clone()));
                    return none(ended(failure));
                }
            }
            First::Message(message @ Message::Manifest(_)) => break message,
            First::Message(message @ Message::ManifestEnd { .. }) => break message,
            First::Message(Message::Refused(failure) | Message::Cancel(failure)) => {
                return none(ended(failure));
            }
            First::Message(Message::Bye) => {
                let text = "the sending end left before it began";
                return none(ended(Failure::new(FailureKind::Temporary, text)));
            }
            // Other messages would have to be buffered until the destination is open, so a hostile
            // peer could exhaust the memory with them.
            First::Message(other) => {
                let failure = unexpected(&other);
                setup.control.tx.send(&Message::Cancel(failure.clone()));
                return none(ended(failure));
            }
            First::Over(failure) => {
                setup.control.tx.send(&Message::Cancel(failure.clone()));
                return none(ended(failure));
            }
        }
    };
    let opened = match open::open(&setup.destination, &first, &setup.options) {
        Ok(opened) => opened,
        Err(failure) => {
            setup.control.tx.send(&Message::Refused(failure.clone()));
            return none(ended(failure));
        }
    };
    let lock = match opened.lock(&setup.options) {
        Ok(lock) => lock,
        Err(failure) => {
            setup.control.tx.send(&Message::Refused(failure.clone()));
            return none(ended(failure));
        }
    };
    match Runner::new(setup, &opened, lock, told) {
        Ok(runner) => runner.run(first),
        Err(failure) => none(ended(failure)),
    }
}

enum First {
    Message(Message),
    Over(Failure),
}

fn wait_first(setup: &SinkSetup<'_>) -> First {
    loop {
        if let Some(failure) = setup.stop.asked() {
            return First::Over(failure);
        }
        match setup.control.rx.recv_timeout(std::time::Duration::from_millis(100)) {
            Ok(Incoming::Message(message)) => return First::Message(message),
            Ok(Incoming::Closed(failure)) => return First::Over(failure),
            Err(crossbeam_channel::RecvTimeoutError::Timeout) => {}
            Err(crossbeam_channel::RecvTimeoutError::Disconnected) => {
                return First::Over(Failure::new(FailureKind::Temporary, "the connection is gone"));
            }
        }
    }
}

/// The outcome of an end that failed before it started.
pub fn ended(failure: Failure) -> Outcome {
    Outcome { summary: Default::default(), failure: Some(failure), failed: Vec::new() }
}

struct Runner<'a> {
    setup: SinkSetup<'a>,
    sink: Sink,
    target: Arc<Target>,
    assembly: Assembly,
    journal: Journal,
    meta: Sender<MetaJob>,
    sync: Sender<SyncJob>,
    answers: Receiver<Answer>,
    outcome: Option<Outcome>,
    reported_at: Time,
    reports: Reports,
    gone: bool,
    pulse: Pulse,
    watch: EndWatch,
    checked_at: Time,
    lock: Option<Lock>,
    /// Whether the destination does not change any more.
    is_finished: bool,
    told: ToldOnce,
    target_failures: TargetFailures,
}

impl<'a> Runner<'a> {
    fn new(
        setup: SinkSetup<'a>,
        opened: &Opened,
        lock: Option<Lock>,
        told: ToldOnce,
    ) -> Result<Self, Failure> {
        let refuse = |failure: Failure| {
            setup.control.tx.send(&Message::Refused(failure.clone()));
            failure
        };
        let held = if setup.options.resume == Resume::Off {
            if lock.is_some() {
                // The journal would describe a temporary that this run creates anew.
                let _ = JournalFile::discard(&opened.root, &opened.journal);
            }
            Vec::new()
        } else {
            JournalFile::read(&opened.root, &opened.journal).unwrap_or_default()
        };
        let now = clock::now();
        let relayed = setup.transports.is_relayed();
        let requested = opened.requested.clone();
        let sink = Sink::new(setup.options.clone(), requested, &held, opened.transfer, now);
        let mut sink = sink.map_err(refuse)?;
        if setup.changed_pieces && !setup.options.extra.whole_file {
            sink = sink.with_changed_pieces();
        }
        let target = Arc::new(opened.target(&setup.options, setup.destination.owners));
        let (answer, answers) = unbounded();
        let meters = Arc::<Meters>::default();
        let assembly = {
            let answer = answer.clone();
            Assembly::new(SharedTarget(Arc::clone(&target)), Arc::clone(&meters), move |event| {
                let _ = answer.send(Answer::Written(event));
            })
        };
        let sync = files::start_sync(Arc::clone(&target), Arc::clone(&meters), answer.clone());
        let meta =
            files::start_meta(Arc::clone(&target), Arc::clone(&meters), answer, sync.clone());
        let root = Arc::clone(&opened.root);
        let journal = Journal::new(root, opened.journal.clone());
        let _ = setup.control.payload.set(setup.transports.pipe(&assembly));
        let suite = setup.transports.is_sealed().then(cipher::suite);
        Ok(Self {
            setup,
            sink,
            target,
            assembly,
            journal,
            meta,
            sync,
            answers,
            outcome: None,
            reported_at: Time::ZERO,
            reports: Reports::default(),
            gone: false,
            pulse: Pulse::new(now, relayed),
            watch: EndWatch::new(meters, assembly::THREADS, suite),
            checked_at: now,
            lock,
            is_finished: false,
            told,
            target_failures: TargetFailures::default(),
        })
    }

    fn run(mut self, first: Message) -> (Outcome, Moved) {
        self.setup.transports.start(&self.assembly);
        self.message(first);
        self.perform_actions();
        while self.outcome.is_none() {
            let wait = self.next_timeout().to_std();
            // A closed connection delivers no more messages.
            let control = if self.gone { never() } else { self.setup.control.rx.clone() };
            let answers = self.answers.clone();
            select! {
                recv(control) -> incoming => match incoming {
                    Ok(Incoming::Message(message)) => {
                        self.pulse.on_message(clock::now());
                        self.message(message);
                    }
                    Ok(Incoming::Closed(failure)) => {
                        self.gone = true;
                        self.sink.cancel(clock::now(), failure);
                    }
                    Err(_) => {
                        self.gone = true;
                        let gone = Failure::new(FailureKind::Temporary, "the connection is gone");
                        self.sink.cancel(clock::now(), gone);
                    }
                },
                recv(answers) -> answer => {
                    if let Ok(answer) = answer {
                        self.answer(answer);
                    }
                    while let Ok(answer) = self.answers.try_recv() {
                        self.answer(answer);
                    }
                },
                default(wait) => {}
            }
            self.setup.transports.tell_ways();
            for notice in self.setup.transports.said() {
                self.setup.observer.notice(&notice);
            }
            let now = clock::now();
            if self.sink.poll_timeout().is_some_and(|at| at <= now) {
                self.sink.on_timeout(now);
            }
            if let Some(failure) = self.pulse.check(now, &self.setup.control.tx) {
                self.sink.cancel(now, failure);
            }
            if let Some(failure) = self.setup.stop.take() {
                self.sink.cancel(clock::now(), failure);
            }
            self.perform_actions();
            self.report_progress();
        }
        self.finish_destination(false);
        self.send_reports();
        let moved = self.setup.transports.close();
        let _ = self.meta.send(MetaJob::Stop);
        let _ = self.sync.send(SyncJob::Stop);
        self.reported_at = Time::ZERO;
        self.report_progress();
        let none = || ended(Failure::new(FailureKind::Fatal, "no outcome"));
        (self.outcome.unwrap_or_else(none), moved)
    }

    fn next_timeout(&self) -> Duration {
        let now = clock::now();
        let tick = Duration::from_millis(200);
        self.sink.poll_timeout().map_or(tick, |at| at.since(now).min(tick))
    }

    fn message(&mut self, message: Message) {
        match message {
            Message::Channel(bytes) => {
                self.told.take(&bytes, self.setup.observer);
                if let Some(ControlMessage::Part(bytes)) = ControlMessage::decode(&bytes) {
                    if let Some(part) = evidence::decode(&bytes) {
                        self.setup.observer.part(part);
                    }
                } else if let Err(failure) = self.setup.transports.on_channel(&bytes) {
                    self.sink.cancel(clock::now(), failure);
                } else if self.setup.transports.take_account() {
                    self.sink.on_accounted();
                }
            }
            Message::Pong(_) if self.pulse.on_pong() => {}
            message => {
                // After an error the machine is already cancelled, and its actions inform the peer.
                let _ = self.sink.on_message(clock::now(), message);
            }
        }
    }

    fn answer(&mut self, answer: Answer) {
        let removed = self.target.room().take();
        if !removed.is_empty() {
            self.tell_target_failures(&removed);
            self.sink.on_removed(removed);
        }
        if let Answer::Deleted(results) = &answer {
            self.tell_target_failures(results);
        }
        let sink = &mut self.sink;
        match answer {
            Answer::Written(WriteEvent::Written(chunk, hashes)) => sink.on_written(chunk, hashes),
            Answer::Written(WriteEvent::Failed(entry, failure)) => {
                sink.on_write_failed(entry, failure);
            }
            Answer::Written(WriteEvent::Rehashed(chunk, entry, digest)) => {
                sink.on_rehashed(chunk, entry, digest);
            }
            Answer::Written(WriteEvent::OldHashed(chunk, entry, digest)) => {
                sink.on_old_hashed(chunk, entry, digest);
            }
            Answer::Written(WriteEvent::Copied(chunk, entry, digest)) => {
                sink.on_copied(chunk, entry, digest);
            }
            Answer::Examined(first, states) => sink.on_examined(clock::now(), first, states),
            Answer::Made(entry, result) => sink.on_made(entry, result),
            Answer::Linked(entry, result) => sink.on_linked(entry, result),
            Answer::Committed(results) => {
                for (entry, result) in results {
                    sink.on_committed(entry, result);
                }
            }
            Answer::Deleted(results) => sink.on_deleted(results),
            Answer::TargetRoot(entry, digest) => sink.on_target_root(entry, digest),
            Answer::Synced(token, Ok(())) => {
                if self.target.root.has_sealed_trees() {
                    let mut files = self.target.root.sealed_files();
                    files.retain(|id| !sink.is_verified(*id));
                    // Before the files of the sync are committed.
                    let _ = self.meta.send(MetaJob::Publish(files));
                }
                sink.on_synced(token);
            }
            Answer::JournalSynced(token, Ok(())) => {
                sink.on_not_owned(self.target.not_owned());
                sink.on_journal_synced(token);
            }
            Answer::Synced(token, Err(failure)) | Answer::JournalSynced(token, Err(failure)) => {
                sink.on_sync_failed(token, failure);
            }
        }
    }

    fn perform_actions(&mut self) {
        while let Some(action) = self.sink.poll_action() {
            self.perform(action);
        }
    }

    fn perform(&mut self, action: SinkAction) {
        match action {
            SinkAction::Send(message) => {
                if matches!(message, Message::Finished(_) | Message::Cancel(_)) {
                    self.finish_destination(matches!(message, Message::Finished(_)));
                    self.send_reports();
                    self.report_evidence();
                }
                self.setup.control.tx.send(&message);
            }
            SinkAction::Examine(first, entries) => self.meta(MetaJob::Examine(first, entries)),
            SinkAction::AddRules { number, dir, text } => {
                // On this thread: entries that make room follow.
                if let Err(failure) = self.target.add_rules(number, &dir, &text) {
                    self.sink.cancel(clock::now(), failure);
                }
            }
            SinkAction::MakeDirectory(id, entry) => {
                // On this thread, because files in the directory may arrive before another thread
                // runs.
                let made = self.target.make_directory(&entry);
                self.sink.on_made(id, made);
            }
            SinkAction::MakeSymlink(id, entry) => self.meta(MetaJob::Symlink(id, entry)),
            SinkAction::MakeEmpty(id, entry) => self.meta(MetaJob::Empty(id, entry)),
            SinkAction::Link(plan) => self.meta(MetaJob::Link(Box::new(plan))),
            SinkAction::Expect(plan) => self.assembly.expect(plan),
            SinkAction::Zero(range) => self.assembly.zero(range),
            SinkAction::Unexpect(range) => self.assembly.unexpect(&range),
            SinkAction::Rehash(chunk, piece, entry) => self.assembly.rehash(chunk, piece, entry),
            SinkAction::HashOld(chunk, piece, entry) => self.assembly.hash_old(chunk, piece, entry),
            SinkAction::CopyOld(chunk, piece, entry) => self.assembly.copy_old(chunk, piece, entry),
            SinkAction::HashTarget(id, entry) => self.meta(MetaJob::Hash(id, entry)),
            SinkAction::Journal(bytes) => self.journal_append(&bytes),
            SinkAction::RewriteJournal(bytes) => self.journal_rewrite(&bytes),
            SinkAction::RemoveJournal => self.journal_remove(),
            SinkAction::RemoveLock => self.finish_destination(true),
            SinkAction::Sync(token) => self.sync(SyncJob::Sync(token)),
            SinkAction::JournalSync { token, names } => {
                let journal = self.journal.file.as_ref().and_then(|file| file.handle().ok());
                // Queued after the renames and metadata that the sync must cover.
                self.meta(MetaJob::Then(SyncJob::Journal { token, journal, names }));
            }
            SinkAction::Commit(entries) => self.meta(MetaJob::Commit(entries)),
            SinkAction::Settle(entries) => self.meta(MetaJob::Settle(entries)),
            SinkAction::Discard(id, entry) => self.meta(MetaJob::Discard(id, entry)),
            SinkAction::Abandon(paths) => self.meta(MetaJob::Abandon(paths)),
            SinkAction::Delete(plan) => self.meta(MetaJob::Delete(plan)),
            SinkAction::EndStream(id, size) => {
                if let Some(entry) = self.sink.entry(id).cloned() {
                    self.assembly.end_stream(id, size);
                    let sized = packtrain_object::Entry {
                        kind: EntryKind::File { size: size.get() },
                        ..entry
                    };
                    if let Err(failure) = self.target.set_len(id, &sized, size.get()) {
                        self.sink.on_write_failed(id, failure);
                    }
                }
            }
            SinkAction::Report(path, report) => {
                self.setup.observer.file(&path, &report);
                if let Some(full) = self.reports.push(path, report) {
                    self.setup.control.tx.send(&full);
                }
            }
            SinkAction::Finished(outcome) => self.outcome = Some(outcome),
        }
    }

    /// Finishes all work at the destination. The initiator may end on the next message, and its
    /// user then sees the destination in this state.
    fn finish_destination(&mut self, complete: bool) {
        if std::mem::replace(&mut self.is_finished, true) {
            return;
        }
        self.assembly.close_and_wait();
        let (working, done) = bounded::<()>(0);
        self.meta(MetaJob::Done(working));
        // Returns when the job is dropped, after all jobs before it.
        let _ = done.recv();
        if self.lock.is_none() {
            return;
        }
        self.target.root.finish_trees(&self.target.tag);
        self.target.root.remove_unfinished_temps(&self.target.tag);
        if complete {
            self.report_leftovers();
            self.report_not_kept();
            self.report_changed();
        }
        // Whoever takes the lock of the destination next also takes those of the files.
        self.target.close_all();
        self.lock = None;
    }

    fn meta(&self, job: MetaJob) {
        let _ = self.meta.send(job);
    }

    fn sync(&self, job: SyncJob) {
        let _ = self.sync.send(job);
    }

    /// Sends reports of files to the other end.
    fn send_reports(&mut self) {
        if let Some(last) = self.reports.take() {
            self.setup.control.tx.send(&last);
        }
    }

    /// Reports the evidence of this end, to the observer here or to the initiator.
    fn report_evidence(&mut self) {
        let (net, buffers) = self.setup.transports.evidence();
        let end = self.watch.read(net, buffers);
        let part = Part { role: PartRole::Sink, end, path: None };
        if self.setup.observer.keeps() {
            self.setup.observer.part(part);
        } else {
            self.setup.observer.saw(&part);
            self.setup.control.tx.send(&Message::Channel(ControlMessage::part(&part)));
        }
    }

    fn report_progress(&mut self) {
        let now = clock::now();
        if now.since(self.checked_at) >= CHECK_INTERVAL {
            self.checked_at = now;
            self.watch.add_memory_sample(self.assembly.is_full());
        }
        if self.watch.is_due(now) {
            self.report_evidence();
        }
        if now.since(self.reported_at) >= Duration::from_millis(200) {
            self.reported_at = now;
            self.send_reports();
            if let Some(name) = self.setup.transports.current() {
                self.setup.observer.transport(&name);
            }
            self.setup.observer.sink(&self.sink.totals());
        }
    }
}
