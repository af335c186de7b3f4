//! The streams of a fetch: connections that take runs from the ledger, each in a task of its own,
//! and how many of them there are.

use std::collections::BTreeMap;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use packtrain_io::clock;
use packtrain_io::tcp::tcp_info;
use packtrain_object::{ChunkIndex, EntryId, Piece};
use packtrain_transfer::message::PieceDigest;
use packtrain_transfer::{Failure, FailureKind};
use packtrain_units::{ByteCount, DataRate, Duration, Offset, Time};
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::answer::Trouble;
use super::get::Get;
use super::ledger::{Ledger, Take};
use super::receiver::Receiver;
use super::remote::{Objects, Remote};
use super::wire::{Client, Connection};
use crate::api::{StreamEnd, StreamsReport};
use crate::control::PayloadSink;
use crate::runtime;
use crate::transports::{Auto, LineId, Reading, Record};

/// How often the kernel is asked about the streams.
const SAMPLE: Duration = Duration::from_millis(50);
/// The wait after a request that failed; doubles with each in a row, up to the longest.
const RETRY: Duration = Duration::from_millis(250);
const RETRY_MOST: Duration = Duration::from_secs(8);
/// Failures in a row of one stream, while nobody else moves anything, that end the fetch.
const TRIES: u32 = 5;
/// Failures in a row while others move: the server wants no more than those.
const CROWDED: u32 = 3;
/// Files of one request that are asked for beside each other, whatever the path would take.
const SMALL_FILES: usize = 16;
/// A stream that has nothing looks again after this: somebody may be in need of relief.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// What the streams tell.
#[derive(Debug)]
pub(super) enum FetchNews {
    /// These bytes are placed.
    Placed(Range<Offset>),
    /// A piece is complete.
    Digest(ChunkIndex, PieceDigest),
    /// Nothing more comes of this entry.
    Failed(EntryId, Failure),
    /// The object of unknown length ended.
    StreamEnd(EntryId, u64),
    /// It cannot go on.
    Hopeless(Failure),
    /// Something to say.
    Say(String),
}

/// How many streams there are to be.
pub(super) enum Count {
    /// So many.
    Fixed(u32),
    /// As many as turn out to be best.
    Auto(Box<Auto>),
}

/// What the streams are made of.
pub(super) struct Parts {
    pub(super) client: Arc<Client>,
    pub(super) objects: Objects,
    /// Where bytes go.
    pub(super) payload: Arc<OnceLock<Arc<dyn PayloadSink>>>,
    pub(super) rate: Option<DataRate>,
    pub(super) count: Count,
    pub(super) most: u32,
    pub(super) tell: Box<dyn Fn(FetchNews) + Send + Sync>,
}

pub(super) struct Shared {
    pub(super) client: Arc<Client>,
    objects: Objects,
    payload: Arc<OnceLock<Arc<dyn PayloadSink>>>,
    rate: Option<DataRate>,
    due: Mutex<Time>,
    ledger: Mutex<Ledger>,
    work: Notify,
    sockets: Mutex<BTreeMap<LineId, (Arc<OwnedFd>, Time)>>,
    tell: Box<dyn Fn(FetchNews) + Send + Sync>,
    /// The most streams the server takes.
    cap: Mutex<u32>,
    /// Nanoseconds that streams waited for the disk.
    held: AtomicU64,
}

/// The streams.
pub(super) struct Lines {
    shared: Arc<Shared>,
    count: Count,
    most: u32,
    sampled: Time,
    held: u64,
    receiver: Receiver,
    record: Record,
    tasks: BTreeMap<LineId, AbortHandle>,
    streams: Vec<AbortHandle>,
}

impl Lines {
    pub(super) fn new(parts: Parts) -> Self {
        let Parts { client, objects, payload, rate, count, most, tell } = parts;
        let shared = Shared {
            client,
            objects,
            payload,
            rate,
            due: Mutex::new(Time::ZERO),
            ledger: Mutex::default(),
            work: Notify::new(),
            sockets: Mutex::default(),
            tell,
            cap: Mutex::new(most),
            held: AtomicU64::new(0),
        };
        Self {
            shared: Arc::new(shared),
            count,
            most,
            sampled: Time::ZERO,
            held: 0,
            receiver: Receiver::default(),
            record: Record::new(clock::now()),
            tasks: BTreeMap::new(),
            streams: Vec::new(),
        }
    }

    /// These bytes of a piece are to be fetched.
    pub(super) fn assign(&self, pieces: &[Piece], range: &Range<Offset>) {
        let mut ledger = self.shared.ledger();
        for piece in pieces {
            let serial = self.shared.object(piece.entry).filter(|object| !object.ranges);
            ledger.add(piece, range, serial.and_then(|object| object.size));
        }
        drop(ledger);
        self.shared.work.notify_waiters();
    }

    /// The object of unknown length is to be fetched; what lies in `range` has a place.
    pub(super) fn stream(&mut self, entry: EntryId, start: Offset, range: &Range<Offset>) {
        self.shared.ledger().reach(range.end);
        self.shared.work.notify_waiters();
        if self.streams.is_empty() {
            let shared = Arc::clone(&self.shared);
            let task = runtime::handle().spawn(async move {
                if let Some(object) = shared.object(entry)
                    && let Err(trouble) = super::get::stream(&shared, entry, &object, start).await
                {
                    shared.tell(FetchNews::Hopeless(trouble.failure()));
                }
            });
            self.streams.push(task.abort_handle());
        }
    }

    /// Takes back what of `range` is not there; that is what it gives.
    pub(super) fn revoke(&self, range: &Range<Offset>) -> Vec<Range<Offset>> {
        self.shared.ledger().revoke(range)
    }

    /// Looks after the streams, a few times in each sample's time.
    pub(super) fn poll(&mut self, now: Time) {
        if now.since(self.sampled) >= SAMPLE {
            let span = now.since(self.sampled);
            self.sampled = now;
            self.sample(now, span);
        }
        let there = self.shared.ledger().count() as u32;
        let wanted = self.wanted();
        for _ in there..wanted {
            self.add(now);
        }
        for _ in wanted..there {
            self.shared.ledger().retire_one();
        }
        if wanted < there {
            self.shared.work.notify_waiters();
        }
    }

    fn wanted(&self) -> u32 {
        let ledger = self.shared.ledger();
        if !ledger.is_used() {
            return 0;
        }
        let small = ledger.files_waiting(SMALL_FILES) as u32;
        drop(ledger);
        let wanted = match &self.count {
            Count::Fixed(n) => *n,
            Count::Auto(auto) => auto.target().max(small),
        };
        wanted.min(*self.shared.cap.lock().expect("no holder panics")).clamp(1, self.most)
    }

    fn sample(&mut self, now: Time, span: Duration) {
        let gone: Vec<LineId> =
            self.tasks.iter().filter(|(_, task)| task.is_finished()).map(|(id, _)| *id).collect();
        for id in gone {
            self.tasks.remove(&id);
            self.receiver.forget(id);
            self.record.ended(None, StreamEnd::Retired);
        }
        let mut readings = Vec::new();
        let sockets = self.shared.sockets.lock().expect("no holder panics").clone();
        for (line, (socket, since)) in sockets {
            let Ok(info) = tcp_info(&socket) else { continue };
            let info = self.receiver.see(now, line, info, true);
            readings.push(Reading { line, age: now.since(since), info });
        }
        self.record.look(now, &readings);
        let held = self.shared.held.load(Ordering::Relaxed);
        let waited = Duration::from_nanos(held - self.held);
        self.held = held;
        // Whoever waits for the disk or the pace half of the time says nothing of the path.
        let most = span * readings.len() as u64 / 2;
        let busy = self.shared.rate.is_none() && waited < most && self.shared.ledger().is_busy();
        if let Count::Auto(auto) = &mut self.count {
            auto.look(now, &readings, busy);
        }
    }

    fn add(&mut self, now: Time) {
        let id = self.shared.ledger().join();
        let shared = Arc::clone(&self.shared);
        let task = runtime::handle().spawn(async move {
            let mut connection = None;
            shared.work_as(id, &mut connection).await;
            shared.sockets.lock().expect("no holder panics").remove(&id);
            shared.ledger().leave(id);
            shared.work.notify_waiters();
        });
        let _ = now;
        self.tasks.insert(id, task.abort_handle());
        self.record.came(self.shared.ledger().count() as u32);
    }

    /// Bytes that arrived and were wanted.
    pub(super) fn moved(&self) -> ByteCount {
        self.shared.ledger().moved()
    }

    /// Bytes that arrived twice.
    pub(super) fn twice(&self) -> ByteCount {
        self.shared.ledger().twice()
    }

    /// The least round trip.
    pub(super) fn min_rtt(&self) -> Option<Duration> {
        self.record.min_rtt()
    }

    /// What the streams did.
    pub(super) fn report(&self) -> Option<StreamsReport> {
        let mut report = self.record.report()?;
        report.moved_twice = self.twice();
        match &self.count {
            Count::Fixed(n) => report.asked = Some(*n),
            Count::Auto(auto) => report.reasons = auto.reasons(),
        }
        Some(report)
    }

    /// Ends them all.
    pub(super) fn close(&mut self) {
        self.shared.ledger().close();
        for task in self.tasks.values().chain(&self.streams) {
            task.abort();
        }
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        self.close();
    }
}

impl Shared {
    pub(super) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().expect("no holder panics")
    }

    pub(super) fn object(&self, id: EntryId) -> Option<Arc<Remote>> {
        self.objects.lock().expect("no holder panics").get(&id).cloned()
    }

    pub(super) fn tell(&self, news: FetchNews) {
        (self.tell)(news);
    }

    /// Puts bytes in their place, waiting for room.
    pub(super) fn place(&self, at: Offset, bytes: &[u8]) {
        let Some(payload) = self.payload.get() else { return };
        let begun = clock::now();
        tokio::task::block_in_place(|| payload.payload(at, bytes));
        self.held.fetch_add(clock::now().since(begun).as_nanos(), Ordering::Relaxed);
    }

    /// Waits until so many bytes may have come.
    pub(super) async fn pace(&self, bytes: usize) {
        let Some(rate) = self.rate else { return };
        let wait = {
            let now = clock::now();
            let mut due = self.due.lock().expect("no holder panics");
            *due = (*due).max(now) + rate.time_for(ByteCount(bytes as u64));
            due.since(now)
        };
        tokio::time::sleep(wait.to_std()).await;
    }

    /// Waits until there may be something else to do.
    pub(super) async fn wait(&self) {
        let _ = tokio::time::timeout(LOOK_AGAIN.to_std(), self.work.notified()).await;
    }

    /// A connection for this line to this server, the one it has or a new one.
    pub(super) async fn connection<'a>(
        &self,
        id: LineId,
        held: &'a mut Option<Connection>,
        url: &url::Url,
    ) -> Result<&'a mut Connection, Trouble> {
        if !held.as_ref().is_some_and(|held| held.is_for(url)) {
            *held = None;
            let made = self.client.connect(url).await?;
            let socket = (made.socket(), clock::now());
            self.sockets.lock().expect("no holder panics").insert(id, socket);
            *held = Some(made);
        }
        held.as_mut().ok_or_else(|| Trouble::later("no connection"))
    }

    async fn work_as(&self, id: LineId, connection: &mut Option<Connection>) {
        let mut failed = 0;
        let mut before = ByteCount::ZERO;
        loop {
            let take = self.ledger().take(clock::now(), id);
            let run = match take {
                Take::Run(run) => run,
                Take::Over => return,
                Take::Wait => {
                    self.wait().await;
                    continue;
                }
            };
            let trouble = match self.object(run.entry) {
                Some(object) => Get::new(self, id, &object, &run).go(connection).await.err(),
                None => None,
            };
            let brought = self.ledger().ran(id);
            let Some(trouble) = trouble else {
                failed = 0;
                continue;
            };
            *connection = None;
            self.work.notify_waiters();
            match trouble {
                Trouble::Never(failure) => self.never(run.entry, failure),
                Trouble::Later(text, _) if brought && !self.is_marked(run.entry) => {
                    // The rest may be another version's: from its begin, then.
                    let failure = Failure::new(FailureKind::Temporary, text);
                    return self.tell(FetchNews::Hopeless(failure));
                }
                Trouble::Later(text, pause) => {
                    let now = self.ledger().moved();
                    // Whoever was cut off on its way may go on at once.
                    failed = if brought { 1 } else { failed + 1 };
                    if failed == 1 {
                        before = now;
                    }
                    let alone = self.ledger().count() <= 1;
                    if failed >= CROWDED && now > before && !alone {
                        return self.crowded(&text);
                    }
                    if failed >= TRIES && now == before {
                        let failure = Failure::new(FailureKind::Temporary, text);
                        return self.tell(FetchNews::Hopeless(failure));
                    }
                    let wait = (RETRY * (1 << failed.min(6) >> 1)).min(RETRY_MOST);
                    tokio::time::sleep(pause.unwrap_or(wait).max(RETRY / 2).to_std()).await;
                }
            }
        }
    }

    /// Whether versions of an object can be told apart.
    fn is_marked(&self, entry: EntryId) -> bool {
        self.object(entry).is_none_or(|object| object.version.is_known())
    }

    fn never(&self, entry: EntryId, failure: Failure) {
        match failure.kind {
            // These say nothing of one file only.
            FailureKind::NotAuthorised | FailureKind::Usage | FailureKind::Fatal => {
                self.tell(FetchNews::Hopeless(failure));
            }
            _ => self.tell(FetchNews::Failed(entry, failure)),
        }
    }

    /// The server serves others and not this stream: it has enough of us.
    fn crowded(&self, text: &str) {
        let fewer = (self.ledger().count() as u32).saturating_sub(1).max(1);
        let mut cap = self.cap.lock().expect("no holder panics");
        if fewer < *cap {
            *cap = fewer;
            self.tell(FetchNews::Say(format!("no more than {fewer} streams from now on: {text}")));
        }
    }
}
