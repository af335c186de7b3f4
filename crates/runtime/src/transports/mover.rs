//! Moving ranges over something that keeps their order: the pipe, or the memory of this process. It
//! is the one worker of a [`RangeScheduler`]; the peer of a pipe tells how many bytes it took in all.

use parking_lot::{Condvar, Mutex, MutexGuard};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use packtrain_net::limit::RateLimiter;
use packtrain_object::ChunkIndex;
use packtrain_transfer::range_scheduler::{RangeScheduler, Worker, WorkerId};
use packtrain_transfer::{Failure, FailureKind, TransportEvent};
use packtrain_units::{ByteCount, Duration, Offset, Time};

use crate::reader::{Reader, Slice};
use packtrain_service::executor::spawn;

/// Nobody compares the progress of the one worker with that of others.
const NO_TIME: Time = Time::ZERO;

/// What became of bytes that were handed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// The peer will say that it took them.
    UnderWay,
    /// The peer has them.
    Placed,
    /// Nobody takes any more.
    Over,
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
    ranges: Mutex<RangeScheduler<()>>,
    /// The one worker.
    worker: WorkerId,
    changed: Condvar,
    waiting: AtomicU8,
    report: Box<dyn Fn(TransportEvent) + Send + Sync>,
}

/// A mover; clones are the same.
#[derive(Clone)]
pub(super) struct Mover(Arc<Shared>);

impl Mover {
    /// A mover whose thread calls `send` with each piece in turn, of `largest` bytes at most.
    pub(super) fn start(
        name: &str,
        reader: Reader,
        report: impl Fn(TransportEvent) + Send + Sync + 'static,
        limiter: Option<RateLimiter>,
        largest: ByteCount,
        mut send: impl FnMut(Offset, Slice) -> Sent + Send + 'static,
    ) -> Self {
        let mut ranges = RangeScheduler::default();
        let worker = ranges.add_worker(Duration::ZERO, ());
        let (ranges, changed) = (Mutex::new(ranges), Condvar::new());
        let waiting = AtomicU8::default();
        let report = Box::new(report);
        let mover = Self(Arc::new(Shared { ranges, worker, changed, waiting, report }));
        let this = mover.clone();
        spawn(name, move || {
            let max = limiter.as_ref().map_or(largest, |limiter| limiter.quantum(largest));
            while let Some(range) = this.next(max) {
                this.waits(Waiting::Bytes);
                let lack = |part: &Range<Offset>| this.revoke(part);
                let all = reader.read_range(range, lack, |at, slice| {
                    let size = ByteCount(slice.len() as u64);
                    this.ranges().grant(NO_TIME, this.0.worker, at..at + size);
                    if let Some(limiter) = &limiter {
                        this.waits(Waiting::Pace);
                        if !this.sleep(limiter.reserve(size)) {
                            return false;
                        }
                    }
                    this.waits(Waiting::Out);
                    match send(at, slice) {
                        Sent::UnderWay => true,
                        Sent::Placed => {
                            this.all_placed();
                            true
                        }
                        Sent::Over => false,
                    }
                });
                if !all {
                    let text = "the connection that carries the data is gone";
                    let gone = Failure::new(FailureKind::Temporary, text);
                    return (this.0.report)(TransportEvent::Closed(gone));
                }
            }
        });
        mover
    }

    fn ranges(&self) -> MutexGuard<'_, RangeScheduler<()>> {
        self.0.ranges.lock()
    }

    fn waits(&self, what: Waiting) {
        self.0.waiting.store(what as u8, Ordering::Relaxed);
    }

    /// What its thread does now.
    pub(super) fn waiting(&self) -> Waiting {
        let one = Waiting::of(self.0.waiting.load(Ordering::Relaxed));
        // What the system has taken from us is not there yet.
        let out = one == Waiting::Work
            && self.ranges().worker(self.0.worker).is_some_and(|worker| !worker.is_idle());
        if out { Waiting::Out } else { one }
    }

    /// The next range to move, of `max` bytes at most.
    fn next(&self, max: ByteCount) -> Option<Range<Offset>> {
        let mut ranges = self.ranges();
        while !ranges.closed {
            let within = |first: &Range<Offset>| {
                ChunkIndex::of(first.start).range().end.min(first.start + max)
            };
            if let Some(next) = ranges.reserve(within) {
                return Some(next.range);
            }
            self.waits(Waiting::Work);
            self.0.changed.wait(&mut ranges);
        }
        None
    }

    /// Sleeps for `wait`; false if it is closed before. A peer that names a very low rate must not
    /// keep the thread after its session.
    fn sleep(&self, wait: Duration) -> bool {
        let mut ranges = self.ranges();
        self.0.changed.wait_while_for(&mut ranges, |ranges| !ranges.closed, wait.to_std());
        !ranges.closed
    }

    pub(super) fn assign(&self, range: Range<Offset>) {
        self.ranges().add(range);
        self.0.changed.notify_all();
    }

    /// Gives back what of `range` the peer has not taken.
    pub(super) fn revoke(&self, range: &Range<Offset>) {
        let returned = self.ranges().revoke(range);
        for part in returned {
            (self.0.report)(TransportEvent::Returned(part));
        }
    }

    /// The peer took `total` bytes in all.
    pub(super) fn taken(&self, total: u64) {
        let placed = self.ranges().progress(NO_TIME, self.0.worker, total);
        for part in placed.iter() {
            (self.0.report)(TransportEvent::Placed(part));
        }
    }

    /// The peer has the whole object: what is under way arrived, although the word of it has not
    /// come yet.
    pub(super) fn all_placed(&self) {
        self.taken(u64::MAX);
    }

    /// Bytes the peer took.
    pub(super) fn moved(&self) -> ByteCount {
        ByteCount(self.ranges().worker(self.0.worker).map_or(0, Worker::done))
    }

    /// Ends the thread as soon as it comes back from sending; it does not wait for its pace.
    pub(super) fn close(&self) {
        self.ranges().closed = true;
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use crossbeam_channel::unbounded;
    use packtrain_disk::SourceFile;
    use packtrain_object::{EntryId, Piece};
    use packtrain_os::clock;
    use packtrain_transfer::message::MAX_DATA;
    use packtrain_units::DataRate;

    use super::*;
    use crate::reader::PieceSource;

    const LARGEST: ByteCount = ByteCount(MAX_DATA as u64);

    fn outcome(taken: bool) -> Sent {
        if taken { Sent::UnderWay } else { Sent::Over }
    }

    /// Entry 1 cannot be read.
    struct Half;

    impl PieceSource for Half {
        fn read(&self, piece: &Piece, out: &mut [u8]) -> Result<Option<Arc<SourceFile>>, Failure> {
            out.fill(7);
            match piece.entry {
                EntryId(1) => Err(Failure::new(FailureKind::Unreadable, "no")),
                _ => Ok(None),
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
        let out = move |at, slice: Slice| outcome(send.send((at, slice.bytes().to_vec())).is_ok());
        let mover = Mover::start("test", reader.clone(), report, None, LARGEST, out);
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
        fn read(&self, _: &Piece, out: &mut [u8]) -> Result<Option<Arc<SourceFile>>, Failure> {
            out.fill(3);
            Ok(None)
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
                let out = move |_, slice: Slice| outcome(send.send(slice.len() as u64).is_ok());
                Mover::start("test", reader.clone(), |_| {}, limiter, LARGEST, out)
            })
            .collect();
        for round in 0..2 {
            // Nothing moves for a while, as in an outage: that gives no credit.
            std::thread::sleep(std::time::Duration::from_millis(600));
            let begun = clock::now();
            for mover in &movers {
                let start = whole.start + ByteCount(round * (2 << 20));
                mover.assign(start..start + ByteCount(2 << 20));
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
    fn a_mover_that_waits_for_its_pace_ends_when_it_is_closed() {
        // The second piece would go after nine hours.
        let limiter = RateLimiter::new(DataRate::from_bps(1), Duration::from_millis(20));
        let reader = Reader::new(Plain, Arc::default(), |_| {});
        let range = Offset(0)..Offset(MAX_DATA as u64);
        let piece = Piece { entry: EntryId(0), file_offset: 0, range: range.clone(), whole: true };
        reader.announce(ChunkIndex(0), vec![piece]);
        let (send, sent) = unbounded();
        let (tell, told) = unbounded();
        let report = move |event| drop(tell.send(event));
        let out = move |_, slice: Slice| outcome(send.send(slice.len()).is_ok());
        let mover = Mover::start("test", reader.clone(), report, Some(limiter), LARGEST, out);
        mover.assign(range);
        let limit = std::time::Duration::from_secs(60);
        sent.recv_timeout(limit).expect("the first piece");
        while mover.waiting() != Waiting::Pace {
            std::thread::yield_now();
        }
        mover.close();
        // The thread drops what it would send with when it ends.
        let over = sent.recv_timeout(limit);
        assert_eq!(over, Err(crossbeam_channel::RecvTimeoutError::Disconnected));
        assert!(matches!(told.try_recv(), Ok(TransportEvent::Closed(_))));
        reader.close();
    }

    #[test]
    fn at_a_low_rate_no_large_piece_goes_at_once() {
        let limiter = RateLimiter::new(DataRate::from_bps(100_000), Duration::from_millis(20));
        let quantum = limiter.quantum(LARGEST);
        let whole = Offset(0)..Offset(MAX_DATA as u64);
        let reader = Reader::new(Plain, Arc::default(), |_| {});
        let piece = Piece { entry: EntryId(0), file_offset: 0, range: whole.clone(), whole: false };
        reader.announce(ChunkIndex(0), vec![piece]);
        let (send, sent) = unbounded();
        let out = move |_, slice: Slice| outcome(send.send(slice.len() as u64).is_ok());
        let mover = Mover::start("test", reader.clone(), |_| {}, Some(limiter), LARGEST, out);
        mover.assign(whole);
        for _ in 0..3 {
            let size = sent.recv_timeout(std::time::Duration::from_secs(60)).unwrap();
            assert!(size <= quantum.get(), "a piece of {size} bytes, at most {quantum}");
        }
        mover.close();
        reader.close();
    }
}
