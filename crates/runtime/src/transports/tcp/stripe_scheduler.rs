//! What TCP adds to the common [`RangeScheduler`], whose workers are its streams: bytes are read
//! ahead into one queue, from which streams take pieces as fast as each of them moves, so a slow
//! one takes few.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use packtrain_net::limit::RateLimiter;
use packtrain_object::ChunkIndex;
use packtrain_plan::route::PathId;
use packtrain_transfer::range_scheduler::{RangeScheduler, Thresholds, Worker, WorkerId, without};
use packtrain_units::{ByteCount, DataRate, Duration, Offset, RangeSet, Time};

use crate::reader::Slice;

/// Bytes that are read and wait for a stream, at most.
const READY: u64 = 4 << 20;
/// When a stream is slow.
const THRESHOLDS: Thresholds = Thresholds {
    still: (Duration::from_secs(1), 8),
    max_still: Duration::from_secs(8),
    overdue: (Duration::from_secs(4), 16),
    gain: Duration::from_millis(60),
    rate_span: Duration::from_millis(200),
};
/// A depot that takes much and passes on little would have the rest of a transfer in its memory, and
/// nothing would be left for other paths. So a stream over depots has no more under way than this,
/// and as much again as has arrived: it doubles with each round trip, as in slow start.
const AHEAD: u64 = 1 << 20;
/// The largest piece, a block of the receiver's, and the smallest.
const PIECE: u64 = 256 << 10;
const PIECE_LEAST: u64 = 16 << 10;
/// A piece takes a slow stream no longer than this.
const PIECE_SPAN: Duration = Duration::from_millis(250);

/// Names a stream within a transfer; none is used twice.
pub type StreamId = WorkerId;

/// Bytes to be read.
pub(super) use packtrain_transfer::range_scheduler::Reserved as Wanted;

/// What a stream is to do.
#[derive(Debug)]
pub(super) enum Take {
    /// Send this.
    Piece(Offset, Slice),
    /// Wait until there is something.
    Wait,
    /// Look again after a moment: what there is is not for it.
    Later,
    /// End.
    Over,
}

#[derive(Debug)]
struct Ready {
    at: Offset,
    slice: Slice,
    not: Option<StreamId>,
}

/// Which bytes each TCP stream of a transfer sends.
#[derive(Debug)]
pub(super) struct StripeScheduler {
    /// The streams and their paths.
    pub(super) ranges: RangeScheduler<PathId>,
    /// Reserved bytes that are read.
    ready: VecDeque<Ready>,
    /// Taken by streams of each path.
    by_path: BTreeMap<PathId, u64>,
    /// No piece is larger, in bytes, if a rate limit asks for small ones.
    max_piece: Option<ByteCount>,
}

impl StripeScheduler {
    /// A scheduler whose pieces keep to what a rate limit asks for.
    pub(super) fn limited(limiter: Option<&RateLimiter>) -> Self {
        Self {
            ranges: RangeScheduler::new(THRESHOLDS),
            ready: VecDeque::new(),
            by_path: BTreeMap::new(),
            max_piece: limiter.map(|limiter| limiter.quantum(ByteCount(PIECE))),
        }
    }

    /// Takes back what of `range` is open; that is what it gives.
    pub(super) fn revoke(&mut self, range: &Range<Offset>) -> Vec<Range<Offset>> {
        for Ready { at, slice, not } in std::mem::take(&mut self.ready) {
            for part in without(&(at..at + ByteCount(slice.len() as u64)), range) {
                let at = part.start;
                self.ready.extend(slice.part(part).map(|slice| Ready { at, slice, not }));
            }
        }
        self.ranges.revoke(range)
    }

    /// What is to be read next; none while there is nothing or enough is ready.
    pub(super) fn next(&mut self) -> Option<Wanted> {
        let ready: usize = self.ready.iter().map(|ready| ready.slice.len()).sum();
        if ready as u64 >= READY || self.ranges.workers().next().is_none() {
            return None;
        }
        let most = self.piece();
        self.ranges.reserve(|first| {
            let grid = Offset(first.start.get() / most * most) + ByteCount(most);
            ChunkIndex::of(first.start).range().end.min(grid)
        })
    }

    /// How large pieces are: with many streams, or slow ones, each has less at a time.
    fn piece(&self) -> u64 {
        let shared = match self.ranges.workers().count() {
            0..=8 => PIECE,
            9..=16 => PIECE / 2,
            _ => PIECE / 4,
        };
        let rates = self.ranges.workers().map(|(_, stream)| stream.rate());
        let slowest = rates.filter(|rate| *rate > DataRate::ZERO).min();
        let slowest = slowest.map_or(PIECE, |rate| rate.bytes_in(PIECE_SPAN).get());
        let wanted = shared.min(slowest).max(PIECE_LEAST);
        let wanted = self.max_piece.map_or(wanted, |most| wanted.min(most.get()));
        // A power of two, so that pieces fill the receiver's blocks.
        1 << wanted.ilog2()
    }

    /// Whether there is nothing to read for.
    pub(super) fn is_idle(&self) -> bool {
        self.ranges.is_drained() && self.ready.is_empty()
    }

    /// Whether nothing is ready for the streams.
    pub(super) fn is_starved(&self) -> bool {
        self.ready.is_empty()
    }

    /// These bytes were read for `wanted`; what was taken back meanwhile is dropped.
    pub(super) fn read(&mut self, wanted: &Wanted, slice: Slice) {
        let range = wanted.range.start..wanted.range.start + ByteCount(slice.len() as u64);
        for part in self.ranges.reserved().intersect(range) {
            let Some(slice) = slice.part(part.clone()) else { continue };
            let ready = Ready { at: part.start, slice, not: wanted.not };
            // What others wait for goes first.
            if wanted.not.is_some() {
                self.ready.push_front(ready);
            } else {
                self.ready.push_back(ready);
            }
        }
    }

    /// What this stream is to do next.
    pub(super) fn take(&mut self, now: Time, id: StreamId) -> Take {
        let stream = self.ranges.worker(id).filter(|stream| !stream.retiring);
        let Some(stream) = stream.filter(|_| !self.ranges.closed) else { return Take::Over };
        if stream.is_still() || is_ahead(stream) {
            return Take::Later;
        }
        let Some(n) = self.ready.iter().position(|ready| ready.not != Some(id)) else {
            return if self.ready.is_empty() { Take::Wait } else { Take::Later };
        };
        let Some(Ready { at, slice, .. }) = self.ready.remove(n) else { return Take::Wait };
        self.ranges.grant(now, id, at..at + ByteCount(slice.len() as u64));
        Take::Piece(at, slice)
    }

    /// The peer took `total` bytes of this stream in all; gives what is placed by that.
    pub(super) fn taken(&mut self, now: Time, id: StreamId, total: u64) -> RangeSet {
        let before = self.ranges.worker(id).map_or(0, Worker::done);
        let placed = self.ranges.progress(now, id, total);
        if let Some(stream) = self.ranges.worker(id) {
            *self.by_path.entry(stream.tag).or_default() += stream.done() - before;
        }
        placed
    }

    /// This stream is over: what it answered for goes to the others. Tells whether it had anything;
    /// none if it was over before.
    pub(super) fn lost(&mut self, id: StreamId) -> Option<bool> {
        let had = self.ranges.worker(id)?.load() > ByteCount::ZERO;
        self.ranges.leave(id);
        Some(had)
    }

    /// The streams of a path.
    pub(super) fn on(&self, path: PathId) -> impl Iterator<Item = (StreamId, &Worker<PathId>)> {
        self.ranges.workers().filter(move |(_, stream)| stream.tag == path)
    }

    /// The stream of a path that would be missed least.
    pub(super) fn slowest(&self, path: PathId) -> Option<StreamId> {
        let staying = self.on(path).filter(|(_, stream)| !stream.retiring);
        let least = staying.min_by_key(|(id, stream)| (!stream.is_still(), stream.rate(), *id));
        least.map(|(id, _)| id)
    }

    /// Streams of a path that are there to stay.
    pub(super) fn count_on(&self, path: PathId) -> usize {
        self.on(path).filter(|(_, stream)| !stream.retiring).count()
    }

    /// Bytes the peer took of streams of a path.
    pub(super) fn delivered(&self, path: PathId) -> ByteCount {
        ByteCount(self.by_path.get(&path).copied().unwrap_or(0))
    }

    /// Whether streams of a path have something under way, and the peer has taken none of it for
    /// longer than they are waited for.
    pub(super) fn is_frozen(&self, now: Time, path: PathId) -> bool {
        let mut busy = self.on(path).filter(|(_, stream)| !stream.is_idle()).peekable();
        busy.peek().is_some() && busy.all(|(_, stream)| stream.is_stalled(now))
    }

    /// The peer has the whole object: what is under way arrived, although the word of it has not
    /// come yet.
    pub(super) fn all_placed(&mut self, now: Time) {
        let ids: Vec<_> = self.ranges.workers().map(|(id, _)| id).collect();
        for id in ids {
            self.taken(now, id, u64::MAX);
        }
    }

    /// All that is open, as one transport gives it back when its last stream is gone.
    pub(super) fn give_up(&mut self) {
        self.revoke(&(Offset::ZERO..Offset(u64::MAX)));
    }
}

/// Whether what a depot took of a stream is more than is known to arrive behind it.
fn is_ahead(stream: &Worker<PathId>) -> bool {
    stream.tag != PathId::DIRECT && stream.under_way() >= AHEAD + stream.done()
}

#[cfg(test)]
#[path = "stripe_scheduler_tests.rs"]
mod tests;
