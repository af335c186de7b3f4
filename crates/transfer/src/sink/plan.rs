//! Requests ranges in the order of the object, limited by the window: this bounds the memory for
//! plans, whatever the size of the object.

use std::collections::VecDeque;
use std::ops::Range;

use packtrain_object::{CHUNK, ChunkIndex, Piece};
use packtrain_units::Offset;

use super::Sink;
use crate::action::{ChunkPlan, SinkAction};
use crate::limits::MAX_RANGES;
use crate::message::Message;

/// Chunks to request.
#[derive(Debug, Default)]
pub(super) struct Planner {
    /// Runs of chunks, in the order in which they were decided.
    spans: VecDeque<Range<u64>>,
    /// Chunks to request again, before all others.
    again: VecDeque<ChunkIndex>,
}

impl Planner {
    /// Number of runs and chunks held.
    pub(super) fn held(&self) -> usize {
        self.spans.len() + self.again.len()
    }

    /// Adds all chunks of a large file.
    pub(super) fn add_file(&mut self, range: &Range<Offset>) {
        let first = ChunkIndex::of(range.start).0;
        let end = range.end.0.div_ceil(CHUNK.get());
        self.add(first..end);
    }

    /// Adds a chunk of small files.
    pub(super) fn add_chunk(&mut self, chunk: ChunkIndex) {
        self.add(chunk.0..chunk.0 + 1);
    }

    /// Adds a chunk of an earlier run whose digest did not match, or a further part of a chunk.
    pub(super) fn add_again(&mut self, chunk: ChunkIndex) {
        self.again.push_back(chunk);
    }

    /// Drops everything at or beyond `end`.
    pub(super) fn cut(&mut self, end: Offset) {
        let end = end.0.div_ceil(CHUNK.get());
        for span in &mut self.spans {
            span.end = span.end.min(end);
        }
        self.again.retain(|chunk| chunk.0 < end);
    }

    /// Drops the part of the first run before `chunk`.
    fn skip_to(&mut self, chunk: ChunkIndex) {
        if let Some(span) = self.spans.front_mut() {
            span.start = span.start.max(chunk.0).min(span.end);
        }
    }

    /// Drops everything.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    fn add(&mut self, span: Range<u64>) {
        match self.spans.back_mut() {
            Some(last) if last.end == span.start => last.end = span.end,
            _ => self.spans.push_back(span),
        }
    }

    fn next(&mut self) -> Option<(ChunkIndex, bool)> {
        if let Some(chunk) = self.again.pop_front() {
            return Some((chunk, true));
        }
        while let Some(span) = self.spans.front_mut() {
            if let Some(chunk) = span.next() {
                return Some((ChunkIndex(chunk), false));
            }
            self.spans.pop_front();
        }
        None
    }
}

impl Sink {
    pub(super) fn plan_more(&mut self) {
        self.plan_late();
        let (mut first, mut again) = (Vec::new(), Vec::new());
        while self.chunks.has_room()
            && self.changed.has_room()
            && let Some((chunk, is_again)) = self.planner.next()
        {
            let pieces = self.needed_pieces(chunk, is_again);
            if pieces.is_empty() {
                if !is_again {
                    self.skip_if_gone(chunk);
                }
                continue;
            }
            if !is_again && self.hash_old(chunk, &pieces) {
                continue;
            }
            let ranges = if is_again { &mut again } else { &mut first };
            self.expect(chunk, pieces, ranges);
        }
        self.send_need(first, false);
        self.send_need(again, true);
    }

    /// If this chunk belongs to a file that failed, skips all chunks of the file. There may be very
    /// many of them, as with a stream of unknown length.
    fn skip_if_gone(&mut self, chunk: ChunkIndex) {
        let Some(piece) = self.layout.piece_at(chunk.start()) else { return };
        if !self.entries.is_moving(piece.entry)
            && let Some(range) = self.layout.range_of(piece.entry)
        {
            self.planner.skip_to(ChunkIndex::of(range.end));
        }
    }

    /// The pieces of a chunk that must be moved. Those that an earlier run left are requested only
    /// again: if the run of the file reaches such a chunk later, it may be moved and verified already.
    fn needed_pieces(&self, chunk: ChunkIndex, is_again: bool) -> Vec<Piece> {
        let mut pieces = self.layout.pieces(chunk);
        pieces.retain(|piece| {
            self.entries.is_moving(piece.entry)
                && !self.chunks.is_asked(piece)
                && (is_again || !self.resumed.has(piece.entry, piece.file_offset / CHUNK.get()))
        });
        pieces
    }

    /// Expects these pieces and adds their ranges to `ranges`.
    pub(super) fn expect(
        &mut self,
        chunk: ChunkIndex,
        pieces: Vec<Piece>,
        ranges: &mut Vec<Range<Offset>>,
    ) {
        if pieces.is_empty() {
            return;
        }
        for piece in &pieces {
            self.tally.needed(piece.size().get());
            match ranges.last_mut() {
                Some(last) if last.end == piece.range.start => last.end = piece.range.end,
                _ => ranges.push(piece.range.clone()),
            }
        }
        self.chunks.expect(chunk, &pieces);
        let pieces = pieces
            .into_iter()
            .filter_map(|piece| {
                let entry = self.entries.get(piece.entry)?.entry.clone();
                Some((piece, entry))
            })
            .collect();
        self.out.push_back(SinkAction::Expect(ChunkPlan { chunk, pieces }));
    }

    pub(super) fn send_need(&mut self, mut ranges: Vec<Range<Offset>>, again: bool) {
        // An account of less than what is asked for now is none.
        self.accounted &= ranges.is_empty();
        ranges.sort_unstable_by_key(|range| range.start);
        for ranges in ranges.chunks(MAX_RANGES) {
            let ranges = ranges.to_vec();
            self.send(Message::Need { segment: None, ranges, present: 0, again });
        }
    }

    /// Reports the bytes found present since the last report, if any.
    pub(super) fn send_present(&mut self) {
        let present = self.tally.take_present();
        if present > 0 {
            self.send(Message::Need { segment: None, ranges: Vec::new(), present, again: false });
        }
    }
}
