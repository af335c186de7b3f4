//! All streams of a transfer at its sending end, one transport to the rest: a thread that reads
//! ahead for them, and two tasks for each.

use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use packtrain_net::limit::RateLimiter;
use packtrain_net::tcp::{TcpInfo, tcp_info, tune};
use packtrain_os::clock;
use packtrain_plan::route::{PathId, Seen};
use packtrain_transfer::TransportEvent;
use packtrain_units::{ByteCount, Duration, Offset, Time};
use tokio::sync::Notify;

use super::source::StreamNews;
use super::stripe_scheduler::{StreamId, StripeScheduler, Take, Wanted};
use super::{Tasks, TcpStream, wire};
use crate::reader::{Reader, Slice};
use crate::transports::mover::Waiting;
use crate::transports::transport::Outbox;
use packtrain_service::executor::spawn;

/// What a stream has in its socket beyond what is on its way, at a rate: enough until its task is
/// awake again, little enough to be no loss when another stream takes over.
const UNSENT: Duration = Duration::from_millis(10);
const UNSENT_LEAST: ByteCount = ByteCount(64 << 10);
const UNSENT_MOST: ByteCount = ByteCount(2 << 20);
/// A stream that waits for the ceiling of the rate looks again after this.
const PACE: std::time::Duration = std::time::Duration::from_millis(100);
/// A stream that has something it may not take looks again after this.
const LATER: std::time::Duration = std::time::Duration::from_millis(20);

struct Shared {
    stripe_scheduler: Mutex<StripeScheduler>,
    /// Tells the feeder that there is something to read, or room.
    room: Condvar,
    /// Tells streams that something is ready.
    ready: Notify,
    /// Tells all of them that they are to look.
    all: Notify,
    sockets: Mutex<BTreeMap<StreamId, Socket>>,
    waiting: AtomicU8,
    /// What the transport shares with others, if there is a ceiling.
    limiter: Option<RateLimiter>,
    outbox: Outbox<StreamNews>,
}

struct Socket {
    socket: OwnedFd,
    path: PathId,
    since: Time,
    unsent: ByteCount,
}

/// What the kernel says of a stream.
#[derive(Clone, Debug)]
pub struct Reading {
    /// Which stream.
    pub stream: StreamId,
    /// Which path it takes.
    pub path: PathId,
    /// How long it is there.
    pub age: Duration,
    /// The kernel's figures.
    pub info: TcpInfo,
}

/// The streams; clones are the same.
#[derive(Clone)]
pub(in crate::transports) struct Group(Arc<Shared>);

impl Group {
    /// A group without streams, and its thread.
    pub(super) fn start(
        reader: Reader,
        outbox: Outbox<StreamNews>,
        limiter: Option<RateLimiter>,
    ) -> Self {
        let group = Self(Arc::new(Shared {
            stripe_scheduler: Mutex::new(StripeScheduler::limited(limiter.as_ref())),
            room: Condvar::new(),
            ready: Notify::new(),
            all: Notify::new(),
            sockets: Mutex::default(),
            waiting: AtomicU8::new(Waiting::Work as u8),
            limiter,
            outbox,
        }));
        let feeder = group.clone();
        spawn("tcp-feed", move || feeder.feed(&reader));
        group
    }

    fn stripe_scheduler(&self) -> MutexGuard<'_, StripeScheduler> {
        self.0.stripe_scheduler.lock()
    }

    fn sockets(&self) -> MutexGuard<'_, BTreeMap<StreamId, Socket>> {
        self.0.sockets.lock()
    }

    fn waits(&self, what: Waiting) {
        self.0.waiting.store(what as u8, Ordering::Relaxed);
    }

    fn report(&self, event: TransportEvent) {
        self.0.outbox.send(StreamNews::Event(event));
    }

    /// What its streams wait for.
    pub(in crate::transports) fn waiting(&self) -> Waiting {
        let one = Waiting::of(self.0.waiting.load(Ordering::Relaxed));
        // What the system has taken from us is not there yet.
        let out = one == Waiting::Work
            && self.stripe_scheduler().ranges.workers().any(|(_, stream)| !stream.is_idle());
        if out { Waiting::Out } else { one }
    }

    fn feed(&self, reader: &Reader) {
        while let Some(Wanted { range, not }) = self.next() {
            self.waits(Waiting::Bytes);
            let end = range.end;
            let lack = |part: &Range<Offset>| self.revoke(part);
            reader.read_range(range, lack, |at, slice| {
                self.stripe_scheduler().read(&Wanted { range: at..end, not }, slice);
                self.0.ready.notify_one();
                true
            });
        }
        // Streams that wait learn of the end.
        self.0.all.notify_waiters();
    }

    fn next(&self) -> Option<Wanted> {
        let mut stripe_scheduler = self.stripe_scheduler();
        while !stripe_scheduler.ranges.closed {
            if let Some(wanted) = stripe_scheduler.next() {
                return Some(wanted);
            }
            let paced = self.0.limiter.as_ref().is_some_and(|one| one.due() > clock::now());
            self.waits(match (stripe_scheduler.is_idle(), paced) {
                (true, _) => Waiting::Work,
                (false, true) => Waiting::Pace,
                (false, false) => Waiting::Out,
            });
            self.0.room.wait(&mut stripe_scheduler);
        }
        None
    }

    /// Starts moving over a connection.
    pub(super) fn add(&self, tasks: &Tasks, stream: TcpStream, path: PathId) -> Option<Reading> {
        let now = clock::now();
        let socket = stream.get_ref().0.as_fd().try_clone_to_owned();
        let info = tcp_info(&stream.get_ref().0).ok();
        let _ = tune::set_notsent_lowat(&stream.get_ref().0, UNSENT_LEAST);
        let srtt = info.as_ref().map_or(Duration::ZERO, |info| info.srtt);
        let id = self.stripe_scheduler().ranges.add_worker(srtt, path);
        if let Ok(socket) = socket {
            let socket = Socket { socket, path, since: now, unsent: UNSENT_LEAST };
            self.sockets().insert(id, socket);
        }
        self.0.room.notify_all();
        wire::send(self, id, tasks, stream);
        info.map(|info| Reading { stream: id, path, age: Duration::ZERO, info })
    }

    /// What this stream sends next; none when it is to end.
    pub(super) async fn piece(&self, id: StreamId) -> Option<(Offset, Slice)> {
        loop {
            let (ready, all) = (self.0.ready.notified(), self.0.all.notified());
            let take = {
                let mut stripe_scheduler = self.stripe_scheduler();
                let now = clock::now();
                let wait = match &self.0.limiter {
                    // Under the lock, so that no two streams use the same room.
                    Some(limiter) if !stripe_scheduler.ranges.closed => limiter.due().since(now),
                    _ => Duration::ZERO,
                };
                if wait.is_zero() {
                    let take = stripe_scheduler.take(now, id);
                    if let Take::Piece(_, slice) = &take {
                        if let Some(limiter) = &self.0.limiter {
                            limiter.charge(ByteCount(slice.len() as u64));
                        }
                        self.0.room.notify_all();
                    }
                    Ok(take)
                } else {
                    Err(wait)
                }
            };
            let take = match take {
                Ok(take) => take,
                Err(wait) => {
                    // The word that woke it may have been for another.
                    self.0.ready.notify_one();
                    tokio::time::sleep(wait.to_std().min(PACE)).await;
                    continue;
                }
            };
            match take {
                Take::Piece(at, slice) => return Some((at, slice)),
                Take::Over => {
                    // The word that woke it may have been for another.
                    self.0.ready.notify_one();
                    return None;
                }
                Take::Later => {
                    // What is ready is for another, and so is the word that woke this one.
                    self.0.ready.notify_one();
                    tokio::time::sleep(LATER).await;
                }
                Take::Wait => tokio::select! {
                    () = ready => {}
                    () = all => {}
                },
            }
        }
    }

    /// The peer took so much of this stream.
    pub(super) fn taken(&self, id: StreamId, total: u64) {
        // Under the lock, so that nothing is reported after all was given up.
        let mut stripe_scheduler = self.stripe_scheduler();
        let placed = stripe_scheduler.taken(clock::now(), id, total);
        placed.iter().for_each(|part| self.report(TransportEvent::Placed(part)));
    }

    /// This stream is over.
    pub(super) fn over(&self, id: StreamId, why: &str) {
        let socket = self.sockets().remove(&id);
        let path = socket.as_ref().map_or(PathId::DIRECT, |socket| socket.path);
        let last = socket.and_then(|socket| socket.reading(id, clock::now()));
        let Some(had) = self.stripe_scheduler().lost(id) else { return };
        self.0.room.notify_all();
        let last = last.map(Box::new);
        self.0.outbox.send(StreamNews::Over { why: why.to_owned(), had, way: path, last });
    }

    pub(in crate::transports) fn assign(&self, range: Range<Offset>) {
        self.stripe_scheduler().ranges.add(range);
        self.0.room.notify_all();
    }

    /// Gives back what of `range` the peer has not taken.
    pub(in crate::transports) fn revoke(&self, range: &Range<Offset>) {
        let mut stripe_scheduler = self.stripe_scheduler();
        let returned = stripe_scheduler.revoke(range);
        returned.into_iter().for_each(|part| self.report(TransportEvent::Returned(part)));
        drop(stripe_scheduler);
        self.0.room.notify_all();
    }

    /// Helps streams that do badly, see `RangeScheduler::reassign`.
    pub(super) fn reassign(&self, now: Time) {
        if self.stripe_scheduler().ranges.reassign(now) {
            self.0.room.notify_all();
        }
    }

    /// Gives the streams of a path up, whatever they have under way: others move that.
    pub(super) fn cut(&self, path: PathId) {
        let streams: Vec<_> = self.stripe_scheduler().on(path).map(|(id, _)| id).collect();
        for id in streams {
            if let Some(socket) = self.sockets().get(&id) {
                // Its tasks wake up to that.
                let _ = tune::shut(&socket.socket);
            }
            self.over(id, "another path is taken");
        }
        self.0.all.notify_waiters();
    }

    /// Lets the slowest stream of a path end.
    pub(super) fn retire_one(&self, path: PathId) {
        let mut stripe_scheduler = self.stripe_scheduler();
        if let Some(id) = stripe_scheduler.slowest(path) {
            stripe_scheduler.ranges.update(id, |stream| stream.retiring = true);
        }
        drop(stripe_scheduler);
        self.0.all.notify_waiters();
    }

    /// What the kernel says of all of them.
    pub(super) fn readings(&self, now: Time) -> Vec<Reading> {
        let mut sockets = self.sockets();
        let mut readings = Vec::new();
        for (id, socket) in sockets.iter_mut() {
            let Some(reading) = socket.reading(*id, now) else { continue };
            let info = &reading.info;
            let rate = info.delivery_rate.unwrap_or_default();
            let unsent = rate.bytes_in(UNSENT).clamp(UNSENT_LEAST, UNSENT_MOST);
            if unsent > socket.unsent || unsent.get() * 2 < socket.unsent.get() {
                socket.unsent = unsent;
                let _ = tune::set_notsent_lowat(&socket.socket, unsent);
            }
            readings.push(reading);
        }
        drop(sockets);
        let mut stripe_scheduler = self.stripe_scheduler();
        for reading in &readings {
            let srtt = reading.info.srtt;
            stripe_scheduler.ranges.update(reading.stream, |stream| stream.srtt = srtt);
        }
        readings
    }

    /// Whether nothing is ready for the streams.
    pub(super) fn is_starved(&self) -> bool {
        self.stripe_scheduler().is_starved()
    }

    /// Whether it ever got anything to move.
    pub(super) fn is_used(&self) -> bool {
        self.stripe_scheduler().ranges.is_used()
    }

    /// Streams that are there to stay.
    pub(super) fn count(&self) -> usize {
        self.stripe_scheduler().ranges.staying().count()
    }

    /// Streams of a path that are there to stay.
    pub(super) fn count_on(&self, path: PathId) -> usize {
        self.stripe_scheduler().count_on(path)
    }

    /// How a path does.
    pub(super) fn seen(&self, now: Time, path: PathId) -> Seen {
        let stripe_scheduler = self.stripe_scheduler();
        Seen {
            streams: stripe_scheduler.count_on(path) as u32,
            delivered: stripe_scheduler.delivered(path),
            frozen: stripe_scheduler.is_frozen(now, path),
        }
    }

    /// The last stream is gone, and nothing is open any more.
    pub(super) fn give_up(&self) {
        self.stripe_scheduler().give_up();
    }

    /// The peer has the whole object.
    pub(in crate::transports) fn all_placed(&self) {
        self.stripe_scheduler().all_placed(clock::now());
    }

    /// Bytes the peer took, each once.
    pub(in crate::transports) fn moved(&self) -> ByteCount {
        self.stripe_scheduler().ranges.counters().placed
    }

    /// Bytes handed out once more than needed.
    pub(super) fn sent_again(&self) -> ByteCount {
        self.stripe_scheduler().ranges.counters().handed_again
    }

    /// Ends its thread and its streams.
    pub(in crate::transports) fn close(&self) {
        self.stripe_scheduler().ranges.closed = true;
        self.0.room.notify_all();
        self.0.all.notify_waiters();
    }
}

impl Socket {
    fn reading(&self, id: StreamId, now: Time) -> Option<Reading> {
        let info = tcp_info(&self.socket).ok()?;
        Some(Reading { stream: id, path: self.path, age: now.since(self.since), info })
    }
}

#[cfg(test)]
#[path = "group_tests.rs"]
mod tests;
