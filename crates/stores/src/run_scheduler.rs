//! What a download adds to the common [`RangeScheduler`], whose workers are its streams: runs,
//! serial files, and digests.
//!
//! Streams take *runs*: adjacent pieces of one file, one request each, long enough that the round
//! trip before a request's first byte matters little, and short enough that a new stream finds
//! something that waits. What arrives is counted in blocks (256 KiB, the unit whose digests add up
//! to those of chunks). When nothing waits, an idle stream takes the second half of the run that
//! would end last, or all of one that stands still. That ends a connection, because a response
//! cannot be cut short, so it is done only where it saves a second. A file of a server without
//! ranges is one *serial* run, from its first byte on. No I/O, no clock.

use std::collections::BTreeMap;
use std::ops::Range;

use packtrain_object::{BLOCK, ChunkIndex, Digest, EntryId, Piece, digest};
use packtrain_transfer::message::PieceDigest;
use packtrain_transfer::range_scheduler::{RangeScheduler, Thresholds, size};
use packtrain_units::{ByteCount, Duration, Offset, Time};

use packtrain_runtime::transports::StreamId;

/// A run is no shorter than this where there is more, and than [`RUN_LEAST_SPAN`].
const RUN_LEAST: u64 = 1 << 20;
/// A stream's run takes at least so long, where there is more.
const RUN_LEAST_SPAN: Duration = Duration::from_millis(500);
/// A stream's run takes at most so long: until then, what it has is out of reach of others.
const RUN_MOST_SPAN: Duration = Duration::from_secs(2);
/// The first run of a stream, whose rate is unknown.
const RUN_FIRST: u64 = 16 << 20;
/// A run is no longer: so much is fetched again at most where a server answers nonsense.
const RUN_MOST: u64 = 256 << 20;
/// When a run is shared: its stream stands still, or needs longer than `gain` for the rest. Both
/// streams then need half as long, and each a new connection, which begins slowly.
const THRESHOLDS: Thresholds = Thresholds {
    still: (Duration::from_secs(3), 0),
    gain: Duration::from_secs(2),
    ..Thresholds::NEVER
};

/// One request's worth.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// Whose bytes.
    pub(super) entry: EntryId,
    /// Where in the file it begins.
    pub(super) file_at: u64,
    /// Where in the object it lies.
    pub(super) range: Range<Offset>,
}

/// What a stream is to do.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Take {
    /// Fetch this.
    Run(Run),
    /// Wait: there may be something later.
    Wait,
    /// End.
    Over,
}

/// What became of a block.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Block {
    /// It was wanted and is the first of its kind.
    pub(super) is_new: bool,
    /// A piece is complete with it.
    pub(super) piece: Option<(ChunkIndex, PieceDigest)>,
    /// The stream's run goes on behind it.
    pub(super) goes_on: bool,
}

/// A file, as far as runs are concerned.
#[derive(Clone, Copy, Debug, PartialEq)]
struct File {
    entry: EntryId,
    /// Where its first byte lies in the object.
    begin: Offset,
    /// Where it ends, if it can only be had from its begin to its end.
    serial: Option<Offset>,
}

/// A piece some of whose blocks have no digest yet.
#[derive(Debug)]
struct Work {
    file: File,
    piece: Piece,
    blocks: Vec<Option<Digest>>,
    left: usize,
}

/// Which runs are fetched by which stream.
#[derive(Debug)]
pub(super) struct RunScheduler {
    /// A stream's tag is the file of its run.
    ranges: RangeScheduler<Option<File>>,
    /// By their begins; all that is open lies in them.
    works: BTreeMap<Offset, Work>,
    /// The end of what was ever assigned.
    reach: Offset,
    /// Whether the server ends the connection after each response.
    closes: bool,
}

impl Default for RunScheduler {
    fn default() -> Self {
        let ranges = RangeScheduler::new(THRESHOLDS);
        Self { ranges, works: BTreeMap::new(), reach: Offset::ZERO, closes: false }
    }
}

impl RunScheduler {
    /// These bytes of a piece are to be fetched. `serial` is the size of a file that can only be
    /// had as a whole.
    pub(super) fn add(&mut self, piece: &Piece, range: &Range<Offset>, serial: Option<ByteCount>) {
        let start = piece.range.start.max(range.start);
        let end = piece.range.end.min(range.end);
        if start >= end {
            return;
        }
        // Whole blocks, whatever was asked for.
        let skip = start.since(piece.range.start).get() / BLOCK.get();
        let reach = end.since(piece.range.start).get().div_ceil(BLOCK.get());
        let start = piece.range.start + ByteCount(skip * BLOCK.get());
        let end = piece.range.end.min(piece.range.start + ByteCount(reach * BLOCK.get()));
        let begin = Offset(piece.range.start.get() - piece.file_offset);
        let file = File { entry: piece.entry, begin, serial: serial.map(|size| begin + size) };
        self.expect(piece, file, skip as usize..reach as usize);
        match file.serial {
            // Whoever has the file gets to it by itself.
            Some(_) => self.ranges.add_ahead(start..end),
            None => self.ranges.add(start..end),
        }
        self.reach = self.reach.max(end);
    }

    /// Digests of these blocks are to be made, perhaps anew.
    fn expect(&mut self, piece: &Piece, file: File, blocks: Range<usize>) {
        let count = size(&piece.range).div_ceil(BLOCK.get()) as usize;
        let new = || Work { file, piece: piece.clone(), blocks: vec![None; count], left: count };
        let work = self.works.entry(piece.range.start).or_insert_with(new);
        work.file = file;
        if let Some(blocks) = work.blocks.get_mut(blocks) {
            blocks.fill(None);
        }
        work.left = work.blocks.iter().filter(|block| block.is_none()).count();
    }

    /// The piece that has the byte at `at`, if digests of it are missing.
    fn work(&self, at: Offset) -> Option<&Work> {
        let (_, work) = self.works.range(..=at).next_back()?;
        work.piece.range.contains(&at).then_some(work)
    }

    /// A new stream.
    pub(super) fn join(&mut self) -> StreamId {
        self.ranges.add_worker(Duration::ZERO, None)
    }

    /// A stream is over.
    pub(super) fn leave(&mut self, id: StreamId) {
        self.ranges.leave(id);
    }

    /// How many streams there are, those that are to end aside.
    pub(super) fn count(&self) -> usize {
        self.ranges.staying().count()
    }

    /// Lets one stream go, as soon as its run is over.
    pub(super) fn retire_one(&mut self) {
        let least = self.ranges.staying().min_by_key(|(_, stream)| size(&stream.rest()));
        if let Some(id) = least.map(|(id, _)| id) {
            self.ranges.update(id, |stream| stream.retiring = true);
        }
    }

    /// Files of one piece that wait, up to `most`.
    pub(super) fn files_waiting(&self, most: usize) -> usize {
        let waiting = self.ranges.waiting();
        let whole = self.works.values().map(|work| &work.piece).filter(|piece| piece.whole);
        whole.filter(|piece| waiting.contains_range(&piece.range)).take(most).count()
    }

    /// What a stream is to do next.
    pub(super) fn take(&mut self, now: Time, id: StreamId) -> Take {
        let Some(stream) = self.ranges.worker(id) else { return Take::Over };
        if self.ranges.closed || stream.retiring {
            return Take::Over;
        }
        let Some((file, range)) = self.front(now, id).or_else(|| self.share(now, id)) else {
            return Take::Wait;
        };
        self.ranges.update(id, |stream| stream.tag = Some(file));
        Take::Run(Run { entry: file.entry, file_at: range.start.since(file.begin).get(), range })
    }

    /// The first of what waits: for one stream all, for several half of each one's share, so that
    /// runs become shorter towards the end and all end at about the same time. If each run needs a
    /// connection of its own, runs are long instead.
    fn front(&mut self, now: Time, id: StreamId) -> Option<(File, Range<Offset>)> {
        let waiting = self.ranges.waiting().len_bytes().get();
        let share = match self.count() as u64 {
            0 | 1 => waiting,
            count if self.closes => waiting / count,
            count => waiting / (2 * count),
        };
        let stream = self.ranges.worker(id).filter(|stream| stream.done_since_start() > 0);
        let most = match stream.map(|stream| stream.rate_since_start(now)) {
            _ if self.closes => share.clamp(RUN_LEAST, RUN_MOST),
            Some(rate) => {
                let least = rate.bytes_in(RUN_LEAST_SPAN).get().max(RUN_LEAST);
                let most = rate.bytes_in(RUN_MOST_SPAN).get().clamp(least, RUN_MOST.max(least));
                share.clamp(least, most)
            }
            None => share.clamp(RUN_LEAST, RUN_FIRST),
        };
        let first = self.ranges.waiting().first()?;
        let file = self.work(first.start)?.file;
        let mut range = first.start..first.start;
        while size(&range) < most
            && range.end < first.end
            && let Some(work) = self.work(range.end).filter(|work| work.file == file)
        {
            range.end = work.piece.range.end.min(first.end);
        }
        if let Some(end) = file.serial {
            range = file.begin..end;
        }
        self.ranges.reserve_all(&range);
        self.ranges.grant(now, id, range.clone());
        Some((file, range))
    }

    /// Part of what another stream has.
    fn share(&mut self, now: Time, thief: StreamId) -> Option<(File, Range<Offset>)> {
        let may = |file: &Option<File>| file.is_some_and(|file| file.serial.is_none());
        let (victim, range) = self.ranges.steal(now, thief, BLOCK, may)?;
        Some((self.ranges.worker(victim)?.tag?, range))
    }

    /// A stream has the block at `range`, and it is placed.
    pub(super) fn block(
        &mut self,
        now: Time,
        id: StreamId,
        range: &Range<Offset>,
        digest: Digest,
    ) -> Block {
        let is_new = self.ranges.place(now, id, range);
        let goes_on = self.ranges.worker(id).is_some_and(|stream| {
            let rest = stream.rest();
            // More of a serial file may be assigned later.
            let serial = stream.tag.is_some_and(|file| file.serial.is_some());
            (serial && rest.start < rest.end) || self.ranges.open().overlaps(&rest)
        });
        let piece = if is_new { self.hashed(range, digest) } else { None };
        Block { is_new, piece, goes_on: goes_on && !self.ranges.closed }
    }

    fn hashed(
        &mut self,
        range: &Range<Offset>,
        digest: Digest,
    ) -> Option<(ChunkIndex, PieceDigest)> {
        let (_, work) = self.works.range_mut(..=range.start).next_back()?;
        let begin = work.piece.range.start;
        let slot = work.blocks.get_mut((range.start.since(begin).get() / BLOCK.get()) as usize)?;
        work.left -= usize::from(slot.is_none());
        *slot = Some(digest);
        if work.left > 0 {
            return None;
        }
        let Work { piece, blocks, .. } = self.works.remove(&begin)?;
        let blocks: Vec<Digest> = blocks.into_iter().flatten().collect();
        let digest = digest::piece_from_blocks(piece.whole, &blocks, size(&piece.range))?;
        Some((ChunkIndex::of(begin), PieceDigest { entry: piece.entry, digest }))
    }

    /// Whether a block that arrives in order is wanted: yes, not any more, or not known yet.
    pub(super) fn wants(&self, range: &Range<Offset>) -> Option<bool> {
        if self.ranges.open().contains_range(range) {
            return Some(true);
        }
        (range.start < self.reach).then_some(false)
    }

    /// A stream's run is over; what it did not fetch waits again. Whether it brought anything.
    pub(super) fn ran(&mut self, id: StreamId) -> bool {
        let brought = self.ranges.worker(id).is_some_and(|stream| stream.done_since_start() > 0);
        self.ranges.give_back(id);
        self.ranges.update(id, |stream| stream.tag = None);
        brought
    }

    /// Takes back what of `range` is open, in whole blocks; that is what it gives. A block arrives
    /// whole or not at all.
    pub(super) fn revoke(&mut self, range: &Range<Offset>) -> Vec<Range<Offset>> {
        let mut whole = range.clone();
        if let Some(Work { piece, .. }) = self.work(range.start) {
            let skip = range.start.since(piece.range.start).get() / BLOCK.get();
            whole.start = piece.range.start + ByteCount(skip * BLOCK.get());
        }
        if let Some(Work { piece, .. }) = self.work(range.end) {
            let reach = range.end.since(piece.range.start).get().div_ceil(BLOCK.get());
            whole.end = piece.range.end.min(piece.range.start + ByteCount(reach * BLOCK.get()));
        }
        self.ranges.revoke(&whole)
    }

    /// Whether streams have all they can do: if not, their rate says nothing of the path.
    pub(super) fn is_busy(&self) -> bool {
        let streams = self.ranges.workers().count();
        let busy = self.ranges.workers().filter(|(_, stream)| stream.tag.is_some()).count();
        busy > 0 && (busy == streams || !self.ranges.waiting().is_empty())
    }

    /// The server ends the connection after each response.
    pub(super) fn note_closing(&mut self) {
        self.closes = true;
    }

    /// What lies before this has a place, or had one.
    pub(super) fn reach(&mut self, end: Offset) {
        self.reach = self.reach.max(end);
    }

    /// Whether there ever was anything to fetch.
    pub(super) fn is_used(&self) -> bool {
        self.ranges.is_used()
    }

    /// Bytes that were assigned and have not arrived.
    pub(super) fn open_bytes(&self) -> ByteCount {
        self.ranges.open().len_bytes()
    }

    /// Bytes that arrived, each once.
    pub(super) fn moved(&self) -> ByteCount {
        self.ranges.counters().placed
    }

    /// Bytes that arrived a second time.
    pub(super) fn twice(&self) -> ByteCount {
        self.ranges.counters().placed_twice
    }

    /// Nobody gets anything any more.
    pub(super) fn close(&mut self) {
        self.ranges.closed = true;
    }
}

#[cfg(test)]
#[path = "run_scheduler_tests.rs"]
mod tests;
