//! Pieces of which the sink has an older version. Pieces that are the same there do not travel.

use std::collections::BTreeMap;
use std::ops::Range;

use packtrain_object::{CHUNK, Digest, EntryKind};
use packtrain_units::{ByteCount, Offset, Time};

use super::Source;
use crate::action::SourceAction;
use crate::failure::{Failure, protocol};
use crate::limits::MAX_COMPARED;
use crate::message::Message;

/// Pieces that the driver reads for comparison, by their start.
#[derive(Debug, Default)]
pub(super) struct Compared {
    /// The range of each piece and the digest of the sink's old version.
    waiting: BTreeMap<Offset, (Range<Offset>, Digest)>,
    bytes: ByteCount,
    /// Bytes that were the same.
    same: u64,
}

impl Compared {
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Bytes of the pieces that wait.
    pub(super) fn bytes(&self) -> ByteCount {
        self.bytes
    }

    /// Bytes that were the same.
    pub(super) fn same(&self) -> u64 {
        self.same
    }

    fn add(&mut self, range: Range<Offset>, digest: Digest) {
        self.bytes += range.end.since(range.start);
        self.waiting.insert(range.start, (range, digest));
    }

    /// The pieces of this range are no longer wanted.
    pub(super) fn forget(&mut self, range: &Range<Offset>) {
        let within = self.waiting.range(range.clone());
        let gone: Vec<_> = within.map(|(start, _)| *start).collect();
        for start in gone {
            self.take(start);
        }
    }

    fn take(&mut self, start: Offset) -> Option<(Range<Offset>, Digest)> {
        let (range, digest) = self.waiting.remove(&start)?;
        self.bytes -= range.end.since(range.start);
        Some((range, digest))
    }
}

impl Source {
    pub(super) fn take_need_changed(
        &mut self,
        start: Offset,
        digest: Digest,
    ) -> Result<(), Failure> {
        let piece = self.layout.piece_at(start);
        let piece = piece.filter(|piece| piece.range.start == start && piece.size() == CHUNK);
        let piece = piece.filter(|piece| !piece.whole);
        let piece = piece.filter(|piece| self.segments.was_sent(piece.entry));
        let Some(piece) = piece else {
            return Err(protocol("an old version of what is no piece of a large file"));
        };
        if self.compared.len() >= MAX_COMPARED {
            return Err(protocol("more old versions than are compared at once"));
        }
        let entry = self.held.get(piece.entry);
        if entry.is_some_and(|entry| entry.kind == EntryKind::Stream) {
            return Err(protocol("an old version of a stream"));
        }
        // The sink may not have received yet that the entry failed. A piece that was requested before
        // moves already.
        let is_live = self.held.live(piece.range.clone()).eq([piece.range.clone()]);
        if !is_live || self.needs.is_any_wanted(&piece.range) {
            return Ok(());
        }
        self.needs.want(&piece.range);
        self.compared.add(piece.range.clone(), digest);
        self.out.push_back(SourceAction::Compare(piece));
        Ok(())
    }

    /// Answer to `Compare`: the digest of the piece that starts here; none if it could not be read.
    pub fn on_compared(&mut self, now: Time, start: Offset, digest: Option<Digest>) {
        let Some((range, old)) = self.compared.take(start).filter(|_| !self.over) else { return };
        // The entry may have failed meanwhile, or the sink may have requested the piece in another
        // way.
        let open: Vec<_> = self.needs.unplaced().intersect(range.clone()).collect();
        if open != [range.clone()] || !self.assigner.under_way(&range).is_empty() {
            return;
        }
        if digest == Some(old) {
            self.needs.take_unplaced(&range);
            self.compared.same += range.end.since(range.start).get();
            self.send(Message::Same(start));
        } else {
            // An error of the read is reported by the reader, which reads the piece for a transport.
            self.totals.needed += range.end.since(range.start);
            self.assigner.add(range);
        }
        self.assign(now);
    }
}
