//! Moving ranges over something that keeps their order: the pipe.
//!
//! What was sent and not yet taken by the peer is kept as a queue of ranges; the peer tells how
//! many bytes it took in all.

use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use packtrain_net::limit::RateLimiter;
use packtrain_object::{ChunkIndex, RangeSet};
use packtrain_transfer::message::MAX_DATA;
use packtrain_transfer::{Failure, FailureKind, TransportEvent};
use packtrain_units::{ByteCount, Offset};

use crate::reader::{Reader, Slice};
use packtrain_service::executor::spawn;

#[derive(Default)]
struct State {
    queue: VecDeque<Range<Offset>>,
    /// Assigned and neither placed nor returned.
    open: RangeSet,
    /// Sent, in order, with the running total at which each is taken.
    sent: VecDeque<(u64, Range<Offset>)>,
    total: u64,
    taken: u64,
    closed: bool,
}

/// What a mover's thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waiting {
    /// It has nothing to move.
    Work,
    /// It waits for the reader.
    Bytes,
    /// It waits for its pace.
    Pace,
    /// It hands bytes on, or waits until it may.
    Out,
}

impl Waiting {
    /// From its number.
    pub(super) fn of(number: u8) -> Self {
        const ALL: [Waiting; 4] = [Waiting::Work, Waiting::Bytes, Waiting::Pace, Waiting::Out];
        ALL[usize::from(number).min(3)]
    }
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    waiting: AtomicU8,
    report: Box<dyn Fn(TransportEvent) + Send + Sync>,
}

/// A mover; clones are the same.
#[derive(Clone)]
pub(super) struct Mover(Arc<Shared>);

impl Mover {
    /// A mover whose thread calls `send` with each piece in turn; false from it ends the thread.
    pub(super) fn start(
        name: &str,
        reader: Reader,
        report: impl Fn(TransportEvent) + Send + Sync + 'static,
        limiter: Option<RateLimiter>,
        mut send: impl FnMut(Offset, Slice) -> bool + Send + 'static,
    ) -> Self {
        let (state, changed) = (Mutex::default(), Condvar::new());
        let waiting = AtomicU8::default();
        let report = Box::new(report);
        let mover = Self(Arc::new(Shared { state, changed, waiting, report }));
        let this = mover.clone();
        spawn(name, move || {
            let max = ByteCount(MAX_DATA as u64);
            let max = limiter.as_ref().map_or(max, |limiter| limiter.quantum(max));
            while let Some(range) = this.next(max) {
                this.waits(Waiting::Bytes);
                // Not to be had: verified meanwhile, or the reader is closing.
                let Some(chunk) = reader.get(ChunkIndex::of(range.start)) else {
                    this.revoke(&range);
                    continue;
                };
                let readable = chunk.readable(&range);
                let mut missing = range.start;
                for part in &readable {
                    if missing < part.start {
                        this.revoke(&(missing..part.start));
                    }
                    missing = part.end;
                }
                if missing < range.end {
                    this.revoke(&(missing..range.end));
                }
                // What cannot be read belongs to an entry that failed: the source takes it back.
                for part in readable {
                    let Some(slice) = Slice::new(&chunk, part.clone()) else {
                        // More of the chunk is wanted than was read: it is read anew.
                        this.revoke(&part);
                        continue;
                    };
                    this.sending(part.clone());
                    if let Some(limiter) = &limiter {
                        this.waits(Waiting::Pace);
                        let wait = limiter.reserve(part.end.since(part.start));
                        std::thread::sleep(wait.to_std());
                    }
                    this.waits(Waiting::Out);
                    if !send(part.start, slice) {
                        let text = "the connection that carries the data is gone";
                        let gone = Failure::new(FailureKind::Temporary, text);
                        return (this.0.report)(TransportEvent::Closed(gone));
                    }
                }
            }
        });
        mover
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock()
    }

    fn waits(&self, what: Waiting) {
        self.0.waiting.store(what as u8, Ordering::Relaxed);
    }

    /// What its thread does now.
    pub(super) fn waiting(&self) -> Waiting {
        let one = Waiting::of(self.0.waiting.load(Ordering::Relaxed));
        // What the system has taken from us is not there yet.
        let out = one == Waiting::Work && !self.state().sent.is_empty();
        if out { Waiting::Out } else { one }
    }

    /// The next range to move, of `max` bytes at most.
    fn next(&self, max: ByteCount) -> Option<Range<Offset>> {
        let mut state = self.state();
        loop {
            if state.closed {
                return None;
            }
            if let Some(range) = state.queue.front().cloned() {
                let chunk_end = ChunkIndex::of(range.start).range().end;
                let end = range.end.min(chunk_end).min(range.start + max);
                if end == range.end {
                    state.queue.pop_front();
                } else if let Some(first) = state.queue.front_mut() {
                    first.start = end;
                }
                return Some(range.start..end);
            }
            self.waits(Waiting::Work);
            self.0.changed.wait(&mut state);
        }
    }

    fn sending(&self, range: Range<Offset>) {
        let mut state = self.state();
        state.total += range.end.since(range.start).get();
        let total = state.total;
        state.sent.push_back((total, range));
    }

    pub(super) fn assign(&self, range: Range<Offset>) {
        let mut state = self.state();
        state.open.insert(range.clone());
        state.queue.push_back(range);
        self.0.changed.notify_all();
    }

    /// Gives back what of `range` the peer has not taken.
    pub(super) fn revoke(&self, range: &Range<Offset>) {
        let mut state = self.state();
        let returned: Vec<_> = state.open.intersect(range.clone()).collect();
        for part in &returned {
            state.open.remove(part.clone());
        }
        let queue = std::mem::take(&mut state.queue);
        for waiting in queue {
            if waiting.end <= range.start || range.end <= waiting.start {
                state.queue.push_back(waiting);
                continue;
            }
            if waiting.start < range.start {
                state.queue.push_back(waiting.start..range.start);
            }
            if range.end < waiting.end {
                state.queue.push_back(range.end..waiting.end);
            }
        }
        drop(state);
        for part in returned {
            (self.0.report)(TransportEvent::Returned(part));
        }
    }

    /// The peer took `total` bytes in all.
    pub(super) fn taken(&self, total: u64) {
        let mut state = self.state();
        state.taken = state.taken.max(total);
        let taken = state.taken;
        let mut placed = RangeSet::new();
        while let Some((_, range)) = state.sent.pop_front_if(|(end, _)| *end <= taken) {
            for part in state.open.intersect(range).collect::<Vec<_>>() {
                state.open.remove(part.clone());
                placed.insert(part);
            }
        }
        drop(state);
        for part in placed.iter() {
            (self.0.report)(TransportEvent::Placed(part));
        }
    }

    /// The peer has the whole object: what is under way arrived, although the word of it has not
    /// come yet.
    pub(super) fn all_placed(&self) {
        let sent = self.state().sent.back().map(|(end, _)| *end);
        if let Some(total) = sent {
            self.taken(total);
        }
    }

    /// Bytes the peer took.
    pub(super) fn moved(&self) -> ByteCount {
        ByteCount(self.state().taken)
    }

    /// Ends the thread as soon as it comes back from sending.
    pub(super) fn close(&self) {
        self.state().closed = true;
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use crossbeam_channel::unbounded;
    use packtrain_object::{EntryId, Piece};
    use packtrain_os::clock;
    use packtrain_units::{DataRate, Duration};

    use super::*;
    use crate::reader::PieceSource;

    /// Entry 1 cannot be read.
    struct Half;

    impl PieceSource for Half {
        fn read(&self, piece: &Piece, out: &mut [u8]) -> Result<(), Failure> {
            out.fill(7);
            match piece.entry {
                EntryId(1) => Err(Failure::new(FailureKind::Unreadable, "no")),
                _ => Ok(()),
            }
        }
    }

    #[test]
    fn what_cannot_be_read_comes_back_and_the_rest_is_sent() {
        let piece = |id: u32, start: u64| Piece {
            entry: EntryId(id),
            file_offset: 0,
            range: Offset(start)..Offset(start + 100),
            whole: true,
        };
        let reader = Reader::new(Half, Arc::default(), |_| {});
        reader.announce(ChunkIndex(0), vec![piece(0, 0), piece(1, 100), piece(2, 200)]);
        let (tell, told) = unbounded();
        let (send, sent) = unbounded();
        let report = move |event| drop(tell.send(event));
        let mover = Mover::start("test", reader.clone(), report, None, move |at, slice| {
            send.send((at, slice.bytes().to_vec())).is_ok()
        });
        mover.assign(Offset(0)..Offset(300));
        let wait = std::time::Duration::from_secs(20);
        for start in [0, 200] {
            assert_eq!(sent.recv_timeout(wait).unwrap(), (Offset(start), vec![7; 100]));
        }
        mover.taken(200);
        let mut heard = Vec::new();
        while heard.len() < 3 {
            heard.push(told.recv_timeout(wait).unwrap());
        }
        assert_eq!(
            heard,
            [
                TransportEvent::Returned(Offset(100)..Offset(200)),
                TransportEvent::Placed(Offset(0)..Offset(100)),
                TransportEvent::Placed(Offset(200)..Offset(300)),
            ]
        );
        assert_eq!(mover.moved(), ByteCount(200));
        mover.close();
        reader.close();
    }

    struct Plain;

    impl PieceSource for Plain {
        fn read(&self, _: &Piece, out: &mut [u8]) -> Result<(), Failure> {
            out.fill(3);
            Ok(())
        }
    }

    #[test]
    fn two_transports_at_once_and_after_a_pause_have_one_rate() {
        const RATE: DataRate = DataRate::from_mbps(40);
        let whole = Offset(0)..ChunkIndex(0).range().end;
        let reader = Reader::new(Plain, Arc::default(), |_| {});
        let piece = Piece { entry: EntryId(0), file_offset: 0, range: whole.clone(), whole: false };
        reader.announce(ChunkIndex(0), vec![piece]);
        let burst = Duration::from_millis(20);
        let limiter = RateLimiter::new(RATE, burst);
        let (send, sent) = unbounded();
        let movers: Vec<Mover> = (0..2)
            .map(|_| {
                let send = send.clone();
                let limiter = Some(limiter.clone());
                let out = move |_, slice: Slice| send.send(slice.len() as u64).is_ok();
                Mover::start("test", reader.clone(), |_| {}, limiter, out)
            })
            .collect();
        for _ in 0..2 {
            // Nothing moves for a while, as in an outage: that gives no credit.
            std::thread::sleep(std::time::Duration::from_millis(600));
            let begun = clock::now();
            for mover in &movers {
                mover.assign(whole.start..whole.start + ByteCount(2 << 20));
            }
            let (mut bytes, mut pieces) = (0, 0);
            while bytes < 4 << 20 {
                bytes += sent.recv_timeout(std::time::Duration::from_secs(60)).unwrap();
                pieces += 1;
                let most = RATE.bytes_in(clock::now().since(begun) + burst).get();
                // A piece of each may go at once.
                let most = most + 2 * MAX_DATA as u64;
                assert!(bytes <= most, "{bytes} bytes in {pieces} pieces, at most {most}");
            }
        }
        for mover in movers {
            mover.close();
        }
        reader.close();
    }

    #[test]
    fn at_a_low_rate_no_large_piece_goes_at_once() {
        let limiter = RateLimiter::new(DataRate::from_bps(100_000), Duration::from_millis(20));
        let quantum = limiter.quantum(ByteCount(MAX_DATA as u64));
        let whole = Offset(0)..Offset(MAX_DATA as u64);
        let reader = Reader::new(Plain, Arc::default(), |_| {});
        let piece = Piece { entry: EntryId(0), file_offset: 0, range: whole.clone(), whole: false };
        reader.announce(ChunkIndex(0), vec![piece]);
        let (send, sent) = unbounded();
        let out = move |_, slice: Slice| send.send(slice.len() as u64).is_ok();
        let mover = Mover::start("test", reader.clone(), |_| {}, Some(limiter), out);
        mover.assign(whole);
        for _ in 0..3 {
            let size = sent.recv_timeout(std::time::Duration::from_secs(60)).unwrap();
            assert!(size <= quantum.get(), "a piece of {size} bytes, at most {quantum}");
        }
        mover.close();
        reader.close();
    }
}
