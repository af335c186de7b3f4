//! What waits to be sent, what each stream has sent, and what goes to another one.
//!
//! Streams take pieces from one queue as fast as each of them moves, so a slow one takes few. Every
//! open byte is in the queue, at the feeder, ready, or sent by a stream that answers for it; when
//! that stream stands still, dies, or would be the last to end, its pieces go to the front of the
//! queue for the others. The receiver takes whichever copy comes first.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use packtrain_net::limit::RateLimiter;
use packtrain_object::{ChunkIndex, RangeSet};
use packtrain_plan::route::PathId;
use packtrain_units::{ByteCount, DataRate, Duration, Offset, Time};

use crate::reader::Slice;

/// Bytes that are read and wait for a stream, at most.
const READY: u64 = 4 << 20;
/// A stream that moved nothing for so long, and for so many round trips, stands still.
const STILL: Duration = Duration::from_secs(1);
const STILL_RTTS: u64 = 8;
/// The longest it is waited for, however slow it was before.
const STILL_MOST: Duration = Duration::from_secs(8);
/// What a stream has had for so long is old: others wait for it.
const OLD: Duration = Duration::from_secs(4);
const OLD_RTTS: u64 = 16;
/// A stream that will end this much later than an idle one could gives pieces to the idle one.
const LATER: Duration = Duration::from_millis(60);
/// A depot that takes much and passes on little would have the rest of a transfer in its memory, and
/// nothing would be left for other ways. So a stream over depots has no more under way than this,
/// and as much again as has arrived: it doubles with each round trip, as in slow start.
const AHEAD: u64 = 1 << 20;
/// The largest piece, a block of the receiver's, and the smallest.
const PIECE: u64 = 256 << 10;
const PIECE_LEAST: u64 = 16 << 10;
/// A piece takes a slow stream no longer than this.
const PIECE_SPAN: Duration = Duration::from_millis(250);
/// Over how long a stream's rate is taken.
const RATE_SPAN: Duration = Duration::from_millis(200);

/// Names a stream within a transfer; none is used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(u32);

impl StreamId {
    /// One of this number.
    pub const fn numbered(number: u32) -> Self {
        Self(number)
    }
}

/// Bytes to be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) range: Range<Offset>,
    /// Who had them before and is not to get them again.
    not: Option<StreamId>,
}

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

#[derive(Debug)]
struct Sent {
    /// Taken when the peer took so much in all.
    end: u64,
    range: Range<Offset>,
    at: Time,
    /// Another one answers for it now.
    reassigned: bool,
}

#[derive(Debug)]
struct Stream {
    way: PathId,
    sent: VecDeque<Sent>,
    total: u64,
    taken: u64,
    /// When it last moved something, or got its first piece while it had none.
    moved: Time,
    /// Since when what it takes is counted for its rate.
    since: Time,
    since_taken: u64,
    rate: DataRate,
    srtt: Duration,
    still: bool,
    retiring: bool,
}

/// Which bytes each TCP stream of a transfer sends.
#[derive(Debug, Default)]
pub(super) struct StripeScheduler {
    queue: VecDeque<Wanted>,
    /// Assigned and neither placed nor returned.
    open: RangeSet,
    ready: VecDeque<Ready>,
    ready_bytes: u64,
    lines: BTreeMap<StreamId, Stream>,
    next: u32,
    /// Placed by these streams, each byte once.
    placed: u64,
    /// Taken by streams of each way.
    by_way: BTreeMap<PathId, u64>,
    /// Handed out once more than needed.
    again: u64,
    closed: bool,
    used: bool,
    /// No piece is larger, in bytes, if a rate limit asks for small ones.
    max_piece: Option<ByteCount>,
}

impl StripeScheduler {
    /// A scheduler whose pieces keep to what a rate limit asks for.
    pub(super) fn limited(limiter: Option<&RateLimiter>) -> Self {
        let max_piece = limiter.map(|limiter| limiter.quantum(ByteCount(PIECE)));
        Self { max_piece, ..Self::default() }
    }

    pub(super) fn close(&mut self) {
        self.closed = true;
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    pub(super) fn assign(&mut self, range: Range<Offset>) {
        self.used = true;
        self.open.insert(range.clone());
        self.queue.push_back(Wanted { range, not: None });
    }

    /// Takes back what of `range` is open; that is what it gives.
    pub(super) fn revoke(&mut self, range: &Range<Offset>) -> Vec<Range<Offset>> {
        let returned: Vec<_> = self.open.intersect(range.clone()).collect();
        for part in &returned {
            self.open.remove(part.clone());
        }
        for wanted in std::mem::take(&mut self.queue) {
            for part in without(&wanted.range, range) {
                self.queue.push_back(Wanted { range: part, not: wanted.not });
            }
        }
        for ready in std::mem::take(&mut self.ready) {
            let whole = ready.at..ready.at + ByteCount(ready.slice.len() as u64);
            if whole.end <= range.start || range.end <= whole.start {
                self.ready.push_back(ready);
                continue;
            }
            self.ready_bytes -= ready.slice.len() as u64;
            // The rest of it is read anew.
            for part in without(&whole, range) {
                self.queue.push_front(Wanted { range: part, not: ready.not });
            }
        }
        returned
    }

    /// What is to be read next; none while there is nothing or enough is ready.
    pub(super) fn next(&mut self) -> Option<Wanted> {
        if self.ready_bytes >= READY || self.lines.is_empty() {
            return None;
        }
        let most = self.piece();
        let first = self.queue.front_mut()?;
        let chunk_end = ChunkIndex::of(first.range.start).range().end;
        let grid = Offset(first.range.start.get() / most * most) + ByteCount(most);
        let end = first.range.end.min(chunk_end).min(grid);
        let piece = Wanted { range: first.range.start..end, not: first.not };
        if end == first.range.end {
            self.queue.pop_front();
        } else {
            first.range.start = end;
        }
        Some(piece)
    }

    /// How large pieces are: with many streams, or slow ones, each has less at a time.
    fn piece(&self) -> u64 {
        let shared = match self.lines.len() {
            0..=8 => PIECE,
            9..=16 => PIECE / 2,
            _ => PIECE / 4,
        };
        let rates = self.lines.values().map(|line| line.rate).filter(|rate| *rate > DataRate::ZERO);
        let slowest = rates.min().map_or(PIECE, |rate| rate.bytes_in(PIECE_SPAN).get());
        let wanted = shared.min(slowest).max(PIECE_LEAST);
        let wanted = self.max_piece.map_or(wanted, |most| wanted.min(most.get()));
        // A power of two, so that pieces fill the receiver's blocks.
        1 << wanted.ilog2()
    }

    /// Whether there is nothing to read for.
    pub(super) fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.ready.is_empty()
    }

    /// Whether nothing is ready for the streams.
    pub(super) fn is_starved(&self) -> bool {
        self.ready.is_empty()
    }

    /// Whether anything was ever assigned.
    pub(super) fn is_used(&self) -> bool {
        self.used
    }

    /// Whether something was sent and not taken.
    pub(super) fn is_out(&self) -> bool {
        self.lines.values().any(|line| !line.sent.is_empty())
    }

    /// These bytes were read for `wanted`; what was taken back meanwhile is dropped.
    pub(super) fn read(&mut self, wanted: &Wanted, slice: Slice) {
        let range = wanted.range.start..wanted.range.start + ByteCount(slice.len() as u64);
        for part in self.open.intersect(range.clone()) {
            let Some(slice) = slice.part(part.clone()) else { continue };
            self.ready_bytes += slice.len() as u64;
            let ready = Ready { at: part.start, slice, not: wanted.not };
            // What others wait for goes first.
            if wanted.not.is_some() {
                self.ready.push_front(ready);
            } else {
                self.ready.push_back(ready);
            }
        }
    }

    /// A new stream on a way.
    pub(super) fn add(&mut self, now: Time, srtt: Duration, way: PathId) -> StreamId {
        let id = StreamId(self.next);
        self.next += 1;
        let line = Stream {
            way,
            sent: VecDeque::new(),
            total: 0,
            taken: 0,
            moved: now,
            since: now,
            since_taken: 0,
            rate: DataRate::ZERO,
            srtt,
            still: false,
            retiring: false,
        };
        self.lines.insert(id, line);
        id
    }

    /// What this stream is to do next.
    pub(super) fn take(&mut self, now: Time, id: StreamId) -> Take {
        let Some(line) = self.lines.get_mut(&id).filter(|line| !line.retiring) else {
            return Take::Over;
        };
        if self.closed {
            return Take::Over;
        }
        if line.still || line.is_ahead() {
            return Take::Later;
        }
        let Some(n) = self.ready.iter().position(|ready| ready.not != Some(id)) else {
            return if self.ready.is_empty() { Take::Wait } else { Take::Later };
        };
        let Some(ready) = self.ready.remove(n) else { return Take::Wait };
        let size = ready.slice.len() as u64;
        self.ready_bytes -= size;
        if line.sent.is_empty() {
            (line.moved, line.since, line.since_taken) = (now, now, line.taken);
        }
        line.total += size;
        let range = ready.at..ready.at + ByteCount(size);
        line.sent.push_back(Sent { end: line.total, range, at: now, reassigned: false });
        Take::Piece(ready.at, ready.slice)
    }

    /// The peer took `total` bytes of this stream in all; gives what is placed by that.
    pub(super) fn taken(&mut self, now: Time, id: StreamId, total: u64) -> RangeSet {
        let mut placed = RangeSet::new();
        let Some(line) = self.lines.get_mut(&id) else { return placed };
        let total = total.min(line.total);
        if total <= line.taken {
            return placed;
        }
        *self.by_way.entry(line.way).or_default() += total - line.taken;
        (line.taken, line.moved, line.still) = (total, now, false);
        while let Some(sent) = line.sent.pop_front_if(|sent| sent.end <= total) {
            for part in self.open.intersect(sent.range).collect::<Vec<_>>() {
                self.open.remove(part.clone());
                self.placed += part.end.since(part.start).get();
                placed.insert(part);
            }
        }
        let span = now.since(line.since);
        if span >= RATE_SPAN {
            let rate = DataRate::from_bytes_over(ByteCount(total - line.since_taken), span);
            let old = line.rate;
            line.rate = match old {
                DataRate::ZERO => rate,
                old => DataRate::from_bps(old.as_bps() / 2 + rate.as_bps() / 2),
            };
            (line.since, line.since_taken) = (now, total);
        }
        placed
    }

    /// This stream is over: what it answered for goes to the others. Tells whether it had anything;
    /// none if it was over before.
    pub(super) fn lost(&mut self, id: StreamId) -> Option<bool> {
        let line = self.lines.remove(&id)?;
        let mut had = false;
        for sent in line.sent.iter().rev().filter(|sent| !sent.reassigned) {
            had = true;
            self.again(&sent.range, None);
        }
        Some(had)
    }

    /// What is still open of `range` goes to the front of the queue.
    fn again(&mut self, range: &Range<Offset>, not: Option<StreamId>) {
        let parts: Vec<_> = self.open.intersect(range.clone()).collect();
        for range in parts.into_iter().rev() {
            self.again += range.end.since(range.start).get();
            self.queue.push_front(Wanted { range, not });
        }
    }

    /// Lets this stream end once all it sent is taken.
    pub(super) fn retire(&mut self, id: StreamId) {
        if let Some(line) = self.lines.get_mut(&id) {
            line.retiring = true;
        }
    }

    /// The round trip of a stream, as the kernel sees it.
    pub(super) fn measured(&mut self, id: StreamId, srtt: Duration) {
        if let Some(line) = self.lines.get_mut(&id) {
            line.srtt = srtt;
        }
    }

    /// Relieves streams that stand still, that have something for too long, or that would end last.
    /// Tells whether anything changed.
    pub(super) fn reassign(&mut self, now: Time) -> bool {
        let before = self.again;
        let ids: Vec<_> = self.lines.keys().copied().collect();
        for &id in &ids {
            let others = self.lines.iter().any(|(other, l)| *other != id && l.is_willing());
            let Some(line) = self.lines.get_mut(&id) else { continue };
            if !others || line.sent.is_empty() {
                continue;
            }
            if now.since(line.moved) >= line.patience() {
                line.still = true;
            }
            let old = OLD.max(line.srtt * OLD_RTTS);
            let still = line.still;
            let stuck: Vec<_> = line
                .sent
                .iter_mut()
                .filter(|sent| !sent.reassigned && (still || now.since(sent.at) >= old))
                .map(|sent| {
                    sent.reassigned = true;
                    sent.range.clone()
                })
                .collect();
            for range in stuck.iter().rev() {
                self.again(range, Some(id));
            }
        }
        if self.is_idle() {
            self.reassign_last();
        }
        self.again != before
    }

    /// Nothing waits: the idle streams take from the one that would end last.
    fn reassign_last(&mut self) {
        let idle = self.lines.values().filter(|line| line.is_willing() && line.sent.is_empty());
        let Some(quick) = idle.min_by_key(|line| line.srtt) else { return };
        let (rate, srtt) = (quick.likely_rate(), quick.srtt);
        let last = self.lines.iter_mut().max_by_key(|(_, line)| line.time_left());
        let Some((&id, line)) = last else { return };
        let mut left = line.left() / 2;
        let alone = srtt + rate.time_for(ByteCount(left)) + LATER;
        if line.time_left() <= alone {
            return;
        }
        let mut moved = Vec::new();
        for sent in line.sent.iter_mut().rev().filter(|sent| !sent.reassigned) {
            sent.reassigned = true;
            let size = sent.range.end.since(sent.range.start).get();
            moved.push(sent.range.clone());
            left = left.saturating_sub(size);
            if left == 0 {
                break;
            }
        }
        for range in &moved {
            self.again(range, Some(id));
        }
    }

    /// The stream of a way that would be missed least.
    pub(super) fn slowest(&self, way: PathId) -> Option<StreamId> {
        let staying = self.lines.iter().filter(|(_, line)| !line.retiring && line.way == way);
        staying.min_by_key(|(id, line)| (!line.still, line.rate, id.0)).map(|(id, _)| *id)
    }

    /// Streams that are there to stay.
    pub(super) fn count(&self) -> usize {
        self.lines.values().filter(|line| !line.retiring).count()
    }

    /// Streams of a way that are there to stay.
    pub(super) fn count_on(&self, way: PathId) -> usize {
        self.lines.values().filter(|line| !line.retiring && line.way == way).count()
    }

    /// All streams of a way.
    pub(super) fn lines_on(&self, way: PathId) -> Vec<StreamId> {
        let there = self.lines.iter().filter(|(_, line)| line.way == way);
        there.map(|(id, _)| *id).collect()
    }

    /// Bytes the peer took of streams of a way.
    pub(super) fn delivered(&self, way: PathId) -> ByteCount {
        ByteCount(self.by_way.get(&way).copied().unwrap_or(0))
    }

    /// Whether streams of a way have something under way, and the peer has taken none of it for
    /// longer than patience lasts.
    pub(super) fn is_frozen(&self, now: Time, way: PathId) -> bool {
        let mut busy = self.lines.values().filter(|l| l.way == way && !l.sent.is_empty());
        let mut some = false;
        busy.all(|line| {
            some = true;
            now.since(line.moved) >= line.patience()
        }) && some
    }

    /// Bytes that these streams placed, each byte once, however often it was sent.
    pub(super) fn moved(&self) -> ByteCount {
        ByteCount(self.placed)
    }

    /// The peer has the whole object: what is under way arrived, although the word of it has not
    /// come yet.
    pub(super) fn all_placed(&mut self, now: Time) {
        let ids: Vec<_> = self.lines.iter().map(|(id, line)| (*id, line.total)).collect();
        for (id, total) in ids {
            self.taken(now, id, total);
        }
    }

    /// Bytes handed out once more than needed.
    pub(super) fn sent_again(&self) -> ByteCount {
        ByteCount(self.again)
    }

    /// All that is open, as one transport gives it back when its last stream is gone.
    pub(super) fn give_up(&mut self) {
        self.queue.clear();
        self.ready.clear();
        self.ready_bytes = 0;
        self.open = RangeSet::new();
    }
}

impl Wanted {
    /// The part of it that was read from `at` on.
    pub(super) fn from(&self, at: Offset) -> Self {
        Self { range: at..self.range.end.max(at), not: self.not }
    }
}

impl Stream {
    fn is_willing(&self) -> bool {
        !self.still && !self.retiring
    }

    /// Whether what a depot took of it is more than is known to arrive behind it.
    fn is_ahead(&self) -> bool {
        self.way != PathId::DIRECT && self.total - self.taken >= AHEAD + self.taken
    }

    /// How long it may move nothing.
    fn patience(&self) -> Duration {
        let front = self.sent.front().map_or(0, |sent| sent.end - self.taken);
        let piece = if self.rate > DataRate::ZERO {
            self.rate.time_for(ByteCount(front)) * 4
        } else {
            Duration::ZERO
        };
        STILL.max(self.srtt * STILL_RTTS).max(piece.min(STILL_MOST))
    }

    /// Bytes it answers for.
    fn left(&self) -> u64 {
        let open = self.sent.iter().filter(|sent| !sent.reassigned);
        open.map(|sent| sent.range.end.since(sent.range.start).get()).sum()
    }

    /// Its rate; before that is known 10 Mbit/s.
    fn likely_rate(&self) -> DataRate {
        if self.rate == DataRate::ZERO { DataRate::from_mbps(10) } else { self.rate }
    }

    /// How long it will take for what it answers for.
    fn time_left(&self) -> Duration {
        self.likely_rate().time_for(ByteCount(self.left()))
    }
}

/// The parts of `whole` outside of `hole`.
fn without(whole: &Range<Offset>, hole: &Range<Offset>) -> Vec<Range<Offset>> {
    if whole.end <= hole.start || hole.end <= whole.start {
        return vec![whole.clone()];
    }
    let before = whole.start..hole.start;
    let after = hole.end..whole.end;
    [before, after].into_iter().filter(|part| part.start < part.end).collect()
}

#[cfg(test)]
#[path = "stripe_scheduler_tests.rs"]
mod tests;
