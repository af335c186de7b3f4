//! Encodes entries into segments and tracks their answers.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use packtrain_object::manifest::{MAX_SEGMENT_BYTES, MAX_SEGMENT_ENTRIES, encode_segment, fitting};
use packtrain_object::{Entry, EntryId, Layout};
use packtrain_units::{Offset, Time};

use crate::action::SourceAction;
use crate::failure::{Failure, FailureKind, protocol};
use crate::limits::{MAX_EMPTY_SOURCES, MAX_FAILED, SEGMENT_DELAY};
use crate::message::Message;

/// Maximum bytes of an encoded entry besides its path and target.
const ENTRY_BYTES: usize = 64;
/// A segment is sent when it reaches this size.
const SEGMENT_TARGET_BYTES: usize = MAX_SEGMENT_BYTES / 4;

/// Entries that wait to be sent, and segments that wait for an answer.
#[derive(Debug, Default)]
pub(super) struct Segments {
    pending: Vec<Entry>,
    pending_bytes: usize,
    /// Entries sent so far.
    sent: u32,
    /// First entry and count of each segment that the sink has not answered.
    unanswered: BTreeMap<EntryId, u32>,
    flush_at: Option<Time>,
    failed: u64,
    vanished: u64,
    failures: Vec<(Vec<u8>, Failure)>,
}

impl Segments {
    /// The id of the next entry; none if ids are exhausted.
    pub(super) fn next_id(&self) -> Option<EntryId> {
        let id = self.sent.checked_add(u32::try_from(self.pending.len()).ok()?)?;
        (id < u32::MAX).then_some(EntryId(id))
    }

    /// Adds an entry to the next segment.
    pub(super) fn add(&mut self, entry: Entry) {
        self.pending_bytes += encoded_bytes(&entry);
        self.pending.push(entry);
    }

    /// Adds a file or directory that the walk could not read.
    pub(super) fn add_failed(&mut self, path: Vec<u8>, failure: Failure) {
        self.failed += 1;
        self.vanished += u64::from(failure.kind == FailureKind::Vanished);
        if self.failures.len() < MAX_FAILED {
            self.failures.push((path, failure.bounded()));
        }
    }

    /// Sends full segments, and the first segment at once.
    pub(super) fn on_entries(&mut self, now: Time, out: &mut VecDeque<SourceAction>) {
        while self.pending.len() >= MAX_SEGMENT_ENTRIES
            || self.pending_bytes >= SEGMENT_TARGET_BYTES
        {
            self.flush(out);
        }
        if self.sent == 0 {
            self.flush(out);
        } else if !self.pending.is_empty() && self.flush_at.is_none() {
            self.flush_at = Some(now + SEGMENT_DELAY);
        }
    }

    /// The walk is over; `empty` lists the sources without a file.
    pub(super) fn end(&mut self, empty: Vec<Vec<u8>>, out: &mut VecDeque<SourceAction>) {
        while !self.pending.is_empty() {
            self.flush(out);
        }
        out.push_back(SourceAction::Send(Message::ManifestEnd {
            entries: u64::from(self.sent),
            failed: self.failed,
            vanished: self.vanished,
            failures: std::mem::take(&mut self.failures),
            empty: bounded(empty),
        }));
    }

    pub(super) fn on_timeout(&mut self, now: Time, out: &mut VecDeque<SourceAction>) {
        if self.flush_at.is_some_and(|at| at <= now) {
            self.flush(out);
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.flush_at
    }

    /// The sink examined the segment that starts at `first`. Returns its number of entries.
    pub(super) fn answered(&mut self, first: EntryId) -> Result<u32, Failure> {
        self.unanswered.remove(&first).ok_or_else(|| protocol("an answer to no segment"))
    }

    /// Whether this entry was sent to the sink.
    pub(super) fn was_sent(&self, id: EntryId) -> bool {
        id.0 < self.sent
    }

    /// Whether this range lies within the object as laid out so far.
    pub(super) fn is_laid_out(&self, range: &Range<Offset>, layout: &Layout) -> bool {
        range.end <= layout.end()
    }

    /// The first unanswered segment, and its number of entries.
    #[cfg(test)]
    pub(super) fn first_unanswered(&self) -> Option<(EntryId, u32)> {
        self.unanswered.first_key_value().map(|(id, count)| (*id, *count))
    }

    fn flush(&mut self, out: &mut VecDeque<SourceAction>) {
        self.flush_at = None;
        let count = fitting(&self.pending);
        if count == 0 {
            return;
        }
        let first = EntryId(self.sent);
        let bytes = encode_segment(first, &self.pending[..count]);
        out.push_back(SourceAction::Send(Message::Manifest(bytes)));
        self.pending.drain(..count);
        self.pending_bytes = self.pending.iter().map(encoded_bytes).sum();
        self.sent += count as u32;
        self.unanswered.insert(first, count as u32);
    }
}

/// About the bytes of an encoded entry.
fn encoded_bytes(entry: &Entry) -> usize {
    ENTRY_BYTES + entry.path.as_bytes().len() + entry.extras.bytes()
}

/// These paths; if they do not fit in a message, the root, which contains all of them.
fn bounded(paths: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    let bytes: usize = paths.iter().map(|path| ENTRY_BYTES + path.len()).sum();
    let fits = paths.len() <= MAX_EMPTY_SOURCES && bytes <= MAX_SEGMENT_BYTES / 2;
    if fits { paths } else { vec![Vec::new()] }
}
