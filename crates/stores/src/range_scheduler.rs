//! What is to be fetched, by whom, and what of it is there.
//!
//! Streams take *runs*: adjacent pieces of one file, one request each, long enough that the round
//! trip before a request's first byte does not matter. What arrives is counted in blocks (256 KiB,
//! the unit whose digests add up to those of chunks). When nothing waits, an idle stream takes the
//! second half of the run that would end last, or all of one that stands still. A file of a server
//! without ranges is one *serial* run, from its first byte on. No I/O, no clock.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use packtrain_object::{BLOCK, ChunkIndex, Digest, EntryId, Piece, RangeSet, digest};
use packtrain_transfer::message::PieceDigest;
use packtrain_units::{ByteCount, Duration, Offset, Time};

use packtrain_runtime::transports::StreamId;

/// A run is no shorter than this where there is more.
const RUN_LEAST: u64 = 1 << 20;
/// A run is no longer: so much is fetched again at most where a server answers nonsense.
const RUN_MOST: u64 = 256 << 20;
/// Whoever had nothing for so long stands still.
const STILL: Duration = Duration::from_secs(3);
/// A run is shared only if its stream needs so long for the rest.
const WORTH: Duration = Duration::from_millis(400);

/// One request's worth.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// Whose bytes.
    pub(super) entry: EntryId,
    /// Where in the file it begins.
    pub(super) file_at: u64,
    /// Where in the object it lies.
    pub(super) range: Range<Offset>,
    /// All of its file.
    pub(super) whole: bool,
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

#[derive(Clone, Debug)]
struct Todo {
    entry: EntryId,
    file_at: u64,
    end: Offset,
    whole: bool,
    /// The file's place in the object, if it can only be had from its begin to its end.
    serial: Option<(Offset, Offset)>,
}

#[derive(Debug)]
struct Line {
    run: Option<Running>,
    retiring: bool,
}

#[derive(Debug)]
struct Running {
    entry: EntryId,
    file_at: u64,
    begin: Offset,
    at: Offset,
    end: Offset,
    began: Time,
    moved: Time,
    serial: Option<(Offset, Offset)>,
}

#[derive(Debug)]
struct Work {
    piece: Piece,
    blocks: Vec<Option<Digest>>,
    left: usize,
}

/// Which ranges are fetched by which stream.
#[derive(Debug, Default)]
pub(super) struct RangeScheduler {
    todo: BTreeMap<Offset, Todo>,
    waiting: u64,
    /// Assigned and neither placed nor returned.
    open: RangeSet,
    works: HashMap<ChunkIndex, Vec<Work>>,
    lines: BTreeMap<StreamId, Line>,
    next: u32,
    /// The end of what was ever assigned.
    reach: Offset,
    /// Bytes that arrived and were wanted, and those that came twice.
    moved: u64,
    twice: u64,
    closed: bool,
}

impl RangeScheduler {
    /// These bytes of a piece are to be fetched. `serial` is the size of a file that can only be
    /// had as a whole.
    pub(super) fn add(&mut self, piece: &Piece, range: &Range<Offset>, serial: Option<ByteCount>) {
        let start = piece.range.start.max(range.start);
        let end = piece.range.end.min(range.end);
        if start >= end {
            return;
        }
        // Whole blocks, whatever was asked for.
        let skip = start.since(piece.range.start).get() / BLOCK.get() * BLOCK.get();
        let reach = end.since(piece.range.start).get().div_ceil(BLOCK.get()) * BLOCK.get();
        let start = piece.range.start + ByteCount(skip);
        let end = piece.range.end.min(piece.range.start + ByteCount(reach));
        self.expect(piece, skip / BLOCK.get(), reach / BLOCK.get());
        let serial = serial.map(|size| {
            let begin = Offset(piece.range.start.get() - piece.file_offset);
            (begin, begin + size)
        });
        let running = serial.is_some() && self.runs().any(|run| run.serial == serial);
        let fresh: Vec<_> = self.open.gaps(start..end).collect();
        for part in fresh {
            let file_at = piece.file_offset + part.start.since(piece.range.start).get();
            let whole = piece.whole && part == piece.range;
            // Whoever has the file gets to it by itself.
            if !running {
                let todo = Todo { entry: piece.entry, file_at, end: part.end, whole, serial };
                self.waiting += size(&part);
                self.todo.insert(part.start, todo);
            }
            self.open.insert(part);
        }
        self.reach = self.reach.max(end);
    }

    fn runs(&self) -> impl Iterator<Item = &Running> {
        self.lines.values().filter_map(|line| line.run.as_ref())
    }

    /// Digests of these blocks are to be made, perhaps anew.
    fn expect(&mut self, piece: &Piece, first: u64, last: u64) {
        let count = size(&piece.range).div_ceil(BLOCK.get()) as usize;
        let works = self.works.entry(ChunkIndex::of(piece.range.start)).or_default();
        let at = match works.iter().position(|work| work.piece.entry == piece.entry) {
            Some(at) => at,
            None => {
                let blocks = vec![None; count];
                works.push(Work { piece: piece.clone(), blocks, left: count });
                works.len() - 1
            }
        };
        let work = &mut works[at];
        for block in work.blocks.iter_mut().take(last as usize).skip(first as usize) {
            *block = None;
        }
        work.left = work.blocks.iter().filter(|block| block.is_none()).count();
    }

    /// A new stream.
    pub(super) fn join(&mut self) -> StreamId {
        let id = StreamId::numbered(self.next);
        self.next += 1;
        self.lines.insert(id, Line { run: None, retiring: false });
        id
    }

    /// A stream is over; whether it had something.
    pub(super) fn leave(&mut self, id: StreamId) -> bool {
        let had = self.give_back(id);
        self.lines.remove(&id);
        had
    }

    /// How many streams there are, those that are to end aside.
    pub(super) fn count(&self) -> usize {
        self.lines.values().filter(|line| !line.retiring).count()
    }

    /// Lets one stream go, as soon as its run is over.
    pub(super) fn retire_one(&mut self) {
        let idle = |line: &Line| line.run.as_ref().map_or(0, |run| size(&(run.at..run.end)));
        let least = self.lines.values_mut().filter(|line| !line.retiring).min_by_key(|l| idle(l));
        if let Some(line) = least {
            line.retiring = true;
        }
    }

    /// Files of which nothing was fetched yet and that wait, up to `most`.
    pub(super) fn files_waiting(&self, most: usize) -> usize {
        let starts = self.todo.values().filter(|todo| todo.whole);
        starts.take(most).count()
    }

    /// What a stream is to do next.
    pub(super) fn take(&mut self, now: Time, id: StreamId) -> Take {
        let lines = self.count().max(1) as u64;
        let Some(line) = self.lines.get(&id) else { return Take::Over };
        if self.closed || line.retiring {
            return Take::Over;
        }
        let front = self.front(self.waiting / lines);
        let Some((run, serial)) = front.or_else(|| Some((self.share(now, id)?, None))) else {
            return Take::Wait;
        };
        let running = Running {
            entry: run.entry,
            file_at: run.file_at,
            begin: run.range.start,
            at: run.range.start,
            end: run.range.end,
            began: now,
            moved: now,
            serial,
        };
        if let Some(line) = self.lines.get_mut(&id) {
            line.run = Some(running);
        }
        Take::Run(run)
    }

    /// The first of what waits, about `share` of it.
    fn front(&mut self, share: u64) -> Option<(Run, Option<(Offset, Offset)>)> {
        let (start, first) = self.todo.pop_first()?;
        let Todo { entry, file_at, mut end, whole, serial } = first;
        if let Some((begin, file_end)) = serial {
            self.waiting -= size(&(start..end));
            self.forget_todo(&(begin..file_end));
            return Some((Run { entry, file_at: 0, range: begin..file_end, whole: true }, serial));
        }
        let most = share.clamp(RUN_LEAST, RUN_MOST);
        while end.since(start).get() < most
            && let Some(next) = self.todo.first_entry()
            && *next.key() == end
            && next.get().entry == entry
            && next.get().file_at == file_at + end.since(start).get()
        {
            end = next.remove().end;
        }
        self.waiting -= size(&(start..end));
        Some((Run { entry, file_at, range: start..end, whole }, None))
    }

    /// Part of what another stream has.
    fn share(&mut self, now: Time, thief: StreamId) -> Option<Run> {
        let left = |run: &Running| {
            let span = now.since(run.began).as_secs_f64();
            let rate = size(&(run.begin..run.at)) as f64 / span.max(1e-3);
            let rest = size(&(run.at..run.end)) as f64;
            let still = now.since(run.moved) >= STILL;
            let seconds = if still || rate <= 0.0 { f64::from(u32::MAX) } else { rest / rate };
            (seconds, still)
        };
        let others = self.lines.iter_mut().filter(|(id, _)| **id != thief);
        let runs = others
            .filter_map(|(_, line)| line.run.as_mut())
            .filter(|run| run.at < run.end && run.serial.is_none());
        let victim = runs.max_by(|a, b| left(a).0.total_cmp(&left(b).0))?;
        let (seconds, still) = left(victim);
        if seconds < WORTH.as_secs_f64() || (!still && now.since(victim.began) < WORTH) {
            return None;
        }
        let rest = size(&(victim.at..victim.end));
        let keep = if still { 0 } else { rest.div_ceil(2).div_ceil(BLOCK.get()) * BLOCK.get() };
        let cut = victim.at + ByteCount(keep.min(rest));
        if cut >= victim.end {
            return None;
        }
        let file_at = victim.file_at + cut.since(victim.begin).get();
        let run = Run { entry: victim.entry, file_at, range: cut..victim.end, whole: false };
        victim.end = cut;
        // Somebody else answers for it: it is not looked at as still again.
        victim.moved = now;
        Some(run)
    }

    /// A stream has the block at `range`, and it is placed.
    pub(super) fn block(
        &mut self,
        now: Time,
        id: StreamId,
        range: &Range<Offset>,
        digest: Digest,
    ) -> Block {
        let mut done = Block::default();
        if let Some(run) = self.lines.get_mut(&id).and_then(|line| line.run.as_mut()) {
            run.at = run.at.max(range.end);
            run.moved = now;
            done.goes_on = run.at < run.end && !self.closed;
        }
        done.is_new = self.open.contains_range(range);
        if !done.is_new {
            self.twice += size(range);
            return done;
        }
        self.moved += size(range);
        self.open.remove(range.clone());
        self.forget_todo(range);
        done.piece = self.hashed(range, digest);
        done
    }

    fn hashed(
        &mut self,
        range: &Range<Offset>,
        digest: Digest,
    ) -> Option<(ChunkIndex, PieceDigest)> {
        let chunk = ChunkIndex::of(range.start);
        let works = self.works.get_mut(&chunk)?;
        let at = works.iter().position(|work| work.piece.range.contains(&range.start))?;
        let work = &mut works[at];
        let n = (range.start.since(work.piece.range.start).get() / BLOCK.get()) as usize;
        let slot = work.blocks.get_mut(n)?;
        work.left -= usize::from(slot.is_none());
        *slot = Some(digest);
        if work.left > 0 {
            return None;
        }
        let work = works.swap_remove(at);
        if works.is_empty() {
            self.works.remove(&chunk);
        }
        let blocks: Vec<Digest> = work.blocks.into_iter().flatten().collect();
        let digest = digest::piece_from_blocks(work.piece.whole, &blocks, size(&work.piece.range))?;
        Some((chunk, PieceDigest { entry: work.piece.entry, digest }))
    }

    /// Whether a block that arrives in order is wanted: yes, not any more, or not known yet.
    pub(super) fn wants(&self, range: &Range<Offset>) -> Option<bool> {
        if self.open.contains_range(range) {
            return Some(true);
        }
        (range.start < self.reach).then_some(false)
    }

    /// A stream gives up its run; what it did not fetch waits again. Whether there was any.
    pub(super) fn give_back(&mut self, id: StreamId) -> bool {
        let Some(run) = self.lines.get_mut(&id).and_then(|line| line.run.take()) else {
            return false;
        };
        let rest = run.at..run.end;
        let (entry, begin, file_at, serial) = (run.entry, run.begin, run.file_at, run.serial);
        let rest = serial.map_or(rest, |(begin, end)| begin..end);
        let parts: Vec<_> = self.open.intersect(rest).collect();
        for part in &parts {
            let file_at = file_at + part.start.since(begin).get();
            let todo = Todo { entry, file_at, end: part.end, whole: false, serial };
            self.waiting += size(part);
            self.todo.insert(part.start, todo);
        }
        !parts.is_empty()
    }

    /// A stream's run is over; whether it brought anything.
    pub(super) fn ran(&mut self, id: StreamId) -> bool {
        let run = self.lines.get(&id).and_then(|line| line.run.as_ref());
        let brought = run.is_some_and(|run| run.at > run.begin);
        self.give_back(id);
        brought
    }

    /// Takes back what of `range` is open, in whole blocks; that is what it gives.
    pub(super) fn revoke(&mut self, range: &Range<Offset>) -> Vec<Range<Offset>> {
        let range = &self.whole_blocks(range);
        let returned: Vec<_> = self.open.intersect(range.clone()).collect();
        for part in &returned {
            self.open.remove(part.clone());
            self.forget_todo(part);
        }
        for line in self.lines.values_mut() {
            let Some(run) = &mut line.run else { continue };
            if run.at < range.end && range.start < run.end {
                // The tail is cut off; where the middle was meant the rest comes as not wanted.
                run.end =
                    if range.start <= run.at && range.end >= run.end { run.at } else { run.end };
            }
        }
        returned
    }

    /// The range with the rest of its first and last block: a block arrives whole or not at all.
    fn whole_blocks(&self, range: &Range<Offset>) -> Range<Offset> {
        let mut whole = range.clone();
        let works = ChunkIndex::covering(range).filter_map(|chunk| self.works.get(&chunk));
        for piece in works.flatten().map(|work| &work.piece.range) {
            let block = |at: Offset| at.since(piece.start).get() / BLOCK.get();
            if piece.contains(&range.start) {
                whole.start = piece.start + ByteCount(block(range.start) * BLOCK.get());
            }
            if piece.start < range.end && range.end < piece.end {
                let last = Offset(range.end.get() - 1);
                let end = piece.start + ByteCount((block(last) + 1) * BLOCK.get());
                whole.end = end.min(piece.end);
            }
        }
        whole
    }

    fn forget_todo(&mut self, range: &Range<Offset>) {
        let first = self.todo.range(..=range.start).next_back().map_or(range.start, |(at, _)| *at);
        let touched: Vec<Offset> = self.todo.range(first..range.end).map(|(at, _)| *at).collect();
        for start in touched {
            let Some(todo) = self.todo.remove(&start) else { continue };
            self.waiting -= size(&(start..todo.end));
            let mut keep = |from: Offset, end: Offset| {
                if from < end {
                    let file_at = todo.file_at + from.since(start).get();
                    self.waiting += size(&(from..end));
                    let whole = todo.whole && from == start && end == todo.end;
                    self.todo.insert(from, Todo { file_at, end, whole, ..todo.clone() });
                }
            };
            keep(start, todo.end.min(range.start));
            keep(start.max(range.end), todo.end);
        }
    }

    /// Whether streams have all they can do: if not, their rate says nothing of the path.
    pub(super) fn is_busy(&self) -> bool {
        self.lines.values().any(|line| line.run.is_some())
            && (!self.todo.is_empty() || self.lines.values().all(|line| line.run.is_some()))
    }

    /// What lies before this has a place, or had one.
    pub(super) fn reach(&mut self, end: Offset) {
        self.reach = self.reach.max(end);
    }

    /// Whether there ever was anything to fetch.
    pub(super) fn is_used(&self) -> bool {
        self.moved > 0 || !self.open.is_empty()
    }

    /// Bytes that arrived, each once.
    pub(super) fn moved(&self) -> ByteCount {
        ByteCount(self.moved)
    }

    /// Bytes that arrived a second time.
    pub(super) fn twice(&self) -> ByteCount {
        ByteCount(self.twice)
    }

    /// Nobody gets anything any more.
    pub(super) fn close(&mut self) {
        self.closed = true;
    }
}

fn size(range: &Range<Offset>) -> u64 {
    range.end.since(range.start).get()
}

#[cfg(test)]
#[path = "range_scheduler_tests.rs"]
mod tests;
