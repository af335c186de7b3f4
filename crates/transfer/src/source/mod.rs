//! The source: the end that reads files and sends them.
//!
//! [`manifest`] packs entries into segments and tracks which ones the sink has examined. [`held`]
//! keeps entries while they may still be read. [`ranges`] tracks which requested ranges are not
//! placed, [`removal`] which files are being removed, and [`changed`] which pieces are compared with old versions at the sink. [`crate::assign`] assigns them to transports. This file routes events between them.

mod changed;
mod held;
mod manifest;
mod messages;
mod ranges;
mod removal;

use std::collections::VecDeque;
use std::ops::Range;

use packtrain_object::{ChunkIndex, Digest, Entry, EntryId, EntryKind, Layout, Piece};
use packtrain_units::{ByteCount, Offset, Time};

use crate::action::{Outcome, SourceAction};
use crate::assign::Assigner;
use crate::failure::{Failure, FailureKind, Failures};
use crate::limits::{
    MAX_DIGESTS, MAX_ENTRY_ATTRIBUTES, MAX_ENTRY_PATHS, MAX_OUTSTANDING, MAX_OUTSTANDING_PATHS,
};
use crate::message::{Message, Options, PieceDigest, Progress};
use crate::transport::{TransportEvent, TransportId};
use changed::Compared;
use held::Held;
use manifest::Segments;
use messages::AskedRoots;
use ranges::Needs;
use removal::Removal;

/// The source's state machine.
#[derive(Debug)]
pub struct Source {
    options: Options,
    layout: Layout,
    held: Held,
    segments: Segments,
    needs: Needs,
    /// Entries whose root digests were requested.
    asked: AskedRoots,
    /// Pieces that are compared with old versions at the sink.
    compared: Compared,
    removal: Removal,
    assigner: Assigner,
    failures: Failures,
    progress: Progress,
    totals: SourceTotals,
    /// Start of the stream entry, while its end is not known.
    stream: Option<(EntryId, Offset)>,
    out: VecDeque<SourceAction>,
    over: bool,
}

/// Progress of a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceTotals {
    /// Entries that the walk has found.
    pub entries: u64,
    /// Whether the walk is over.
    pub walk_done: bool,
    /// Bytes of all files found; a stream counts when it has ended.
    pub known: ByteCount,
    /// Whether a stream that has not ended is among them.
    pub stream_open: bool,
    /// Of those, bytes that the sink already has.
    pub present: ByteCount,
    /// Bytes that the sink requested, repeats included.
    pub needed: ByteCount,
    /// Bytes that transports placed, repeats included.
    pub placed: ByteCount,
    /// Moved bytes that the sink verified.
    pub verified: ByteCount,
    /// Bytes durable at the sink, including those that it already had.
    pub durable: ByteCount,
    /// Files complete at the sink. Unchanged files do not count.
    pub files: u64,
    /// Files that the walk has found.
    pub files_known: u64,
    /// Bytes of requested pieces that are being compared with old versions at the sink. They count
    /// neither as present nor as needed yet.
    pub comparing: ByteCount,
}

impl Source {
    /// A source for one transfer.
    pub fn new(options: Options, _now: Time) -> Self {
        Self {
            held: Held::new(options.removes_source()),
            options,
            layout: Layout::new(),
            segments: Segments::default(),
            needs: Needs::default(),
            asked: AskedRoots::default(),
            compared: Compared::default(),
            removal: Removal::default(),
            assigner: Assigner::default(),
            failures: Failures::default(),
            progress: Progress::default(),
            totals: SourceTotals::default(),
            stream: None,
            out: VecDeque::new(),
            over: false,
        }
    }

    /// The options of the transfer.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// The number of entries to take from the walk now; at zero the walk pauses. This many entries
    /// fit in [`MAX_OUTSTANDING_PATHS`] whatever the length of their paths.
    pub fn walk_credit(&self) -> usize {
        if self.over || self.totals.walk_done {
            return 0;
        }
        let extra = &self.options.extra;
        let attributes = if extra.xattrs || extra.acls { MAX_ENTRY_ATTRIBUTES } else { 0 };
        let room = MAX_OUTSTANDING_PATHS.get().saturating_sub(self.held.paths());
        let room = room / (MAX_ENTRY_PATHS + attributes);
        let room = usize::try_from(room).unwrap_or(usize::MAX);
        MAX_OUTSTANDING.saturating_sub(self.held.len()).min(room)
    }

    /// Adds entries that the walk found: parents before children, a stream last.
    pub fn on_entries(&mut self, now: Time, entries: Vec<Entry>) {
        for entry in entries {
            if self.over || self.totals.walk_done {
                return;
            }
            if let Err(failure) = self.take_entry(entry) {
                self.cancel(now, failure);
                return;
            }
        }
        self.segments.on_entries(now, &mut self.out);
    }

    fn take_entry(&mut self, entry: Entry) -> Result<(), Failure> {
        if let Err(error) = packtrain_object::manifest::check_entry(&entry) {
            let failure = Failure::new(FailureKind::Unreadable, error.to_string());
            self.segments.add_failed(entry.path.as_bytes().to_vec(), failure.clone());
            self.failures.add(entry.path.into_bytes(), failure);
            return Ok(());
        }
        let too_many = || Failure::new(FailureKind::Fatal, "more than 2^32 entries");
        let id = self.segments.next_id().ok_or_else(too_many)?;
        let range = self
            .layout
            .try_push(id, &entry.kind)
            .map_err(|error| Failure::new(FailureKind::Fatal, error.to_string()))?;
        match entry.kind {
            EntryKind::Stream => self.stream = range.clone().map(|range| (id, range.start)),
            _ => self.totals.known += ByteCount(entry.size().unwrap_or_default()),
        }
        self.totals.entries += 1;
        self.totals.files_known += u64::from(entry.is_file());
        self.segments.add(entry.clone());
        self.held.add(id, entry, range);
        Ok(())
    }

    /// The walk is over. `failed` lists everything that it could not read, `empty` the sources
    /// without a file, by their paths at the target.
    pub fn on_walk_end(
        &mut self,
        _now: Time,
        failed: Vec<(Vec<u8>, Failure)>,
        empty: Vec<Vec<u8>>,
    ) {
        if self.over || self.totals.walk_done {
            return;
        }
        for (path, failure) in failed {
            self.failures.add(path.clone(), failure.clone());
            self.segments.add_failed(path, failure);
        }
        self.totals.walk_done = true;
        self.segments.end(empty, &mut self.out);
    }

    /// The walk found a file of rules in a directory. The sink gets it if it deletes or compares.
    pub fn on_rules(&mut self, number: u32, dir: Vec<u8>, text: Vec<u8>) {
        // Without an entry the sink removes nothing, and a manifest begins with a segment.
        let useful = self.options.reports_rules() && self.segments.was_sent(EntryId(0));
        if useful && !self.over && !self.totals.walk_done {
            self.send(Message::Rules { number, dir, text });
        }
    }

    /// A message for the state machine arrived; the driver handles others itself. On an error the
    /// transfer is already cancelled.
    pub fn on_message(&mut self, now: Time, message: Message) -> Result<(), Failure> {
        if self.over {
            return Ok(());
        }
        let taken = self.take_message(now, message);
        if let Err(failure) = &taken {
            self.cancel(now, failure.clone());
        }
        self.assign(now);
        taken
    }

    /// The reader has read the needed pieces of this chunk.
    pub fn on_chunk_read(&mut self, _now: Time, chunk: ChunkIndex, digests: Vec<PieceDigest>) {
        if self.over {
            return;
        }
        for pieces in digests.chunks(MAX_DIGESTS) {
            self.send(Message::Digests { chunk, pieces: pieces.to_vec() });
        }
    }

    /// The reader found that this assigned range is a hole, which reads as zeros.
    pub fn on_hole(&mut self, now: Time, range: Range<Offset>) {
        if self.over {
            return;
        }
        let parts = self.needs.take_unplaced(&range);
        for part in parts {
            self.totals.placed += part.end.since(part.start);
            self.assigner.withdraw(&part, &mut self.out);
            self.send(Message::Hole(part));
        }
        self.assign(now);
    }

    /// This entry failed; no more data of it follows.
    pub fn on_entry_failed(&mut self, now: Time, id: EntryId, failure: Failure) {
        if self.over || self.held.get(id).is_none() {
            return;
        }
        self.send(Message::SourceFailed { entry: id, failure: failure.clone() });
        self.drop_entry(id, failure);
        self.assign(now);
    }

    /// The stream ended, after `size` bytes.
    pub fn on_stream_end(&mut self, now: Time, id: EntryId, size: u64) {
        let Some((stream, start)) = self.stream.filter(|_| !self.over) else { return };
        if stream != id || self.layout.end_stream(id, size).is_err() {
            return;
        }
        self.stream = None;
        let beyond = start + ByteCount(size)..packtrain_object::SPACE_END;
        self.assigner.withdraw(&beyond, &mut self.out);
        self.needs.forget(&beyond);
        self.held.end_stream(id, size, &beyond);
        self.totals.known += ByteCount(size);
        self.send(Message::StreamEnd { entry: id, size });
        self.assign(now);
    }

    /// The root digest that a `HashFile` requested; none if the file could not be read.
    pub fn on_root(&mut self, _now: Time, id: EntryId, digest: Option<Digest>) {
        if !self.over {
            self.send(Message::Root { entry: id, digest });
        }
    }

    /// A transport reported an event.
    pub fn on_transport_event(&mut self, now: Time, id: TransportId, event: TransportEvent) {
        if self.over {
            return;
        }
        match event {
            TransportEvent::Up { rank } => self.assigner.on_up(now, id, rank),
            TransportEvent::Placed(range) => {
                for part in self.assigner.on_placed(now, id, &range) {
                    let (bytes, resend) = self.needs.placed(&part);
                    self.totals.placed += bytes;
                    for part in resend {
                        self.assigner.add(part);
                    }
                }
            }
            TransportEvent::Returned(range) => {
                for part in self.assigner.on_returned(now, id, &range, self.needs.unplaced()) {
                    self.needs.returned(&part);
                }
            }
            TransportEvent::Closed(_) => {
                for part in self.assigner.on_closed(id, self.needs.unplaced()) {
                    self.needs.returned(&part);
                }
            }
        }
        self.assign(now);
    }

    /// Number of transports that are up.
    pub fn transports(&self) -> usize {
        self.assigner.transports()
    }

    /// The time of `poll_timeout` has come.
    pub fn on_timeout(&mut self, now: Time) {
        if self.over {
            return;
        }
        self.segments.on_timeout(now, &mut self.out);
        let stream_start = self.stream.map(|(_, start)| start);
        self.assigner.on_timeout(now, stream_start, &mut self.out);
        self.assign(now);
    }

    /// When to call `on_timeout` next.
    pub fn poll_timeout(&self) -> Option<Time> {
        if self.over {
            return None;
        }
        [self.segments.poll_timeout(), self.assigner.poll_timeout()].into_iter().flatten().min()
    }

    /// Number of entries, ranges and actions held. Tests check that completed ones are released.
    #[doc(hidden)]
    pub fn held(&self) -> usize {
        let wanted = self.needs.held() + self.compared.len() + self.assigner.held();
        self.held.len() + wanted + self.out.len()
    }

    /// The next action.
    pub fn poll_action(&mut self) -> Option<SourceAction> {
        self.out.pop_front()
    }

    /// The layout of the entries so far.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// An entry, while its data may still be read.
    pub fn entry(&self, id: EntryId) -> Option<&Entry> {
        self.held.get(id)
    }

    /// The pieces of this chunk that the sink requested and has not verified, in offset order. The
    /// driver reports digests for these.
    pub fn pieces_needed(&self, chunk: ChunkIndex) -> Vec<Piece> {
        let mut pieces = self.layout.pieces(chunk);
        pieces.retain(|piece| self.needs.is_wanted(&piece.range));
        pieces
    }

    /// The progress.
    pub fn totals(&self) -> SourceTotals {
        let comparing = self.compared.bytes();
        SourceTotals { stream_open: self.layout.stream_open(), comparing, ..self.totals }
    }

    /// Ends the transfer early. Data that is durable at the sink stays durable.
    pub fn cancel(&mut self, _now: Time, failure: Failure) {
        if !self.over {
            self.send(Message::Cancel(failure.clone()));
            self.finish(Some(failure));
        }
    }

    fn send(&mut self, message: Message) {
        self.out.push_back(SourceAction::Send(message));
    }

    fn assign(&mut self, now: Time) {
        if !self.over {
            self.assigner.assign(now, &mut self.out);
        }
    }

    /// Stops moving an entry that failed at either end.
    fn drop_entry(&mut self, id: EntryId, failure: Failure) {
        if let Some(path) = self.held.path(id) {
            self.failures.add(path, failure);
        }
        if let Some(range) = self.held.drop_entry(id) {
            self.needs.forget(&range);
            self.compared.forget(&range);
            self.assigner.withdraw(&range, &mut self.out);
        }
    }

    fn finish(&mut self, failure: Option<Failure>) {
        let mut outcome =
            Outcome { summary: Default::default(), failure, failed: self.failures.take() };
        outcome.summary.bytes_moved = self.progress.verified;
        outcome.summary.files_moved = self.progress.files;
        outcome.summary.bytes_durable = self.progress.moved_durable(self.totals.present.get());
        outcome.summary.chunks_again = self.progress.again;
        outcome.summary.bytes_same = self.compared.same();
        outcome.summary.removed = self.removal.removed();
        outcome.summary.failed = self.failures.count();
        outcome.summary.vanished = self.failures.vanished();
        self.finish_as(outcome);
    }

    fn finish_as(&mut self, outcome: Outcome) {
        self.over = true;
        self.out.push_back(SourceAction::Finished(outcome));
    }
}

#[cfg(test)]
mod tests;
