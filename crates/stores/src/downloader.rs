//! The streams of a fetch: connections that take runs from the range scheduler, each in a task of its own,
//! and how many of them there are.

mod get;

use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use packtrain_object::{ChunkIndex, EntryId, Piece};
use packtrain_os::clock;
use packtrain_transfer::message::PieceDigest;
use packtrain_transfer::{Failure, FailureKind};
use packtrain_units::{ByteCount, Duration, Offset, Time};
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::answer::Trouble;
use super::body::Pace;
use super::connection_pool::{ConnectionPool, Sockets, StreamCount};
use super::http::{Client, Connection};
use super::range_scheduler::{RangeScheduler, Take};
use super::remote::{Objects, Remote};
use get::Get;
use packtrain_runtime::control::PayloadSink;
use packtrain_runtime::transports::StreamId;
use packtrain_service::ceilings::HeldBy;
use packtrain_service::{StreamsReport, executor};

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

/// What the streams are made of.
pub(super) struct Parts {
    pub(super) client: Arc<Client>,
    pub(super) objects: Objects,
    /// Where bytes go.
    pub(super) payload: Arc<OnceLock<Arc<dyn PayloadSink>>>,
    pub(super) pace: Pace,
    pub(super) count: StreamCount,
    pub(super) most: u32,
    pub(super) tell: Box<dyn Fn(FetchNews) + Send + Sync>,
}

pub(super) struct Shared {
    pub(super) client: Arc<Client>,
    objects: Objects,
    payload: Arc<OnceLock<Arc<dyn PayloadSink>>>,
    pace: Pace,
    range_scheduler: Mutex<RangeScheduler>,
    work: Notify,
    sockets: Sockets,
    tell: Box<dyn Fn(FetchNews) + Send + Sync>,
    /// The most streams the server takes.
    cap: Mutex<u32>,
    /// Nanoseconds that streams waited for the disk.
    held: AtomicU64,
}

/// The streams.
pub(super) struct Lines {
    shared: Arc<Shared>,
    connection_pool: ConnectionPool,
    held: u64,
    tasks: BTreeMap<StreamId, AbortHandle>,
    streams: Vec<AbortHandle>,
}

impl Lines {
    pub(super) fn new(parts: Parts) -> Self {
        let Parts { client, objects, payload, pace, count, most, tell } = parts;
        let connection_pool = ConnectionPool::new(count, most, true);
        let shared = Shared {
            client,
            objects,
            payload,
            pace,
            range_scheduler: Mutex::default(),
            work: Notify::new(),
            sockets: connection_pool.sockets(),
            tell,
            cap: Mutex::new(most),
            held: AtomicU64::new(0),
        };
        Self {
            shared: Arc::new(shared),
            connection_pool,
            held: 0,
            tasks: BTreeMap::new(),
            streams: Vec::new(),
        }
    }

    /// These bytes of a piece are to be fetched.
    pub(super) fn assign(&self, pieces: &[Piece], range: &Range<Offset>) {
        let mut range_scheduler = self.shared.range_scheduler();
        for piece in pieces {
            let serial = self.shared.object(piece.entry).filter(|object| !object.ranges);
            range_scheduler.add(piece, range, serial.and_then(|object| object.size));
        }
        drop(range_scheduler);
        self.shared.work.notify_waiters();
    }

    /// The object of unknown length is to be fetched; what lies in `range` has a place.
    pub(super) fn stream(&mut self, entry: EntryId, start: Offset, range: &Range<Offset>) {
        self.shared.range_scheduler().reach(range.end);
        self.shared.work.notify_waiters();
        if self.streams.is_empty() {
            let shared = Arc::clone(&self.shared);
            let task = executor::handle().spawn(async move {
                if let Some(object) = shared.object(entry)
                    && let Err(trouble) = get::stream(&shared, entry, &object, start).await
                {
                    shared.tell(FetchNews::Hopeless(trouble.failure()));
                }
            });
            self.streams.push(task.abort_handle());
        }
    }

    /// Takes back what of `range` is not there; that is what it gives.
    pub(super) fn revoke(&self, range: &Range<Offset>) -> Vec<Range<Offset>> {
        self.shared.range_scheduler().revoke(range)
    }

    /// Looks after the streams, a few times in each sample's time.
    pub(super) fn poll(&mut self, now: Time) {
        self.sample(now);
        let there = self.shared.range_scheduler().count() as u32;
        let wanted = self.wanted();
        for _ in there..wanted {
            self.add();
        }
        for _ in wanted..there {
            self.shared.range_scheduler().retire_one();
        }
        if wanted < there {
            self.shared.work.notify_waiters();
        }
    }

    fn wanted(&self) -> u32 {
        let range_scheduler = self.shared.range_scheduler();
        if !range_scheduler.is_used() {
            return 0;
        }
        let small = range_scheduler.files_waiting(SMALL_FILES) as u32;
        drop(range_scheduler);
        self.connection_pool.wanted(small, *self.shared.cap.lock())
    }

    fn sample(&mut self, now: Time) {
        let gone: Vec<StreamId> =
            self.tasks.iter().filter(|(_, task)| task.is_finished()).map(|(id, _)| *id).collect();
        for id in gone {
            self.tasks.remove(&id);
            self.connection_pool.gone(id);
        }
        let shared = &self.shared;
        let before = &mut self.held;
        self.connection_pool.look(now, |span, streams| {
            let held = shared.held.load(Ordering::Relaxed);
            let waited = Duration::from_nanos(held - *before);
            *before = held;
            // Whoever waits for the disk or the pace half of the time says nothing of the path.
            let most = span * streams / 2;
            !shared.pace.is_set() && waited < most && shared.range_scheduler().is_busy()
        });
    }

    fn add(&mut self) {
        let id = self.shared.range_scheduler().join();
        let shared = Arc::clone(&self.shared);
        let task = executor::handle().spawn(async move {
            let mut connection = None;
            shared.work_as(id, &mut connection).await;
            shared.sockets.forget(id);
            shared.range_scheduler().leave(id);
            shared.work.notify_waiters();
        });
        self.tasks.insert(id, task.abort_handle());
        self.connection_pool.came(self.shared.range_scheduler().count() as u32);
    }

    /// Bytes that arrived and were wanted.
    pub(super) fn moved(&self) -> ByteCount {
        self.shared.range_scheduler().moved()
    }

    /// Bytes that arrived twice.
    pub(super) fn twice(&self) -> ByteCount {
        self.shared.range_scheduler().twice()
    }

    /// Whose ceiling of the rate held the transfer, if one did.
    pub(super) fn limited_by(&self) -> Option<HeldBy> {
        self.shared.pace.held()
    }

    /// The least round trip.
    pub(super) fn min_rtt(&self) -> Option<Duration> {
        self.connection_pool.min_rtt()
    }

    /// What the streams did.
    pub(super) fn report(&self) -> Option<StreamsReport> {
        self.connection_pool.report(self.twice())
    }

    /// Ends them all.
    pub(super) fn close(&mut self) {
        self.shared.range_scheduler().close();
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
    pub(super) fn range_scheduler(&self) -> MutexGuard<'_, RangeScheduler> {
        self.range_scheduler.lock()
    }

    pub(super) fn object(&self, id: EntryId) -> Option<Arc<Remote>> {
        self.objects.lock().get(&id).cloned()
    }

    pub(super) fn tell(&self, news: FetchNews) {
        (self.tell)(news);
    }

    /// Puts bytes in their place, waiting for room.
    pub(super) fn place(&self, at: Offset, bytes: &[u8]) {
        let Some(payload) = self.payload.get() else { return };
        let begun = clock::now();
        tokio::task::block_in_place(|| {
            // Nothing refuses payload within one process.
            let _ = payload.payload(at, bytes);
        });
        self.held.fetch_add(clock::now().since(begun).as_nanos(), Ordering::Relaxed);
    }

    /// Waits until so many bytes may have come.
    pub(super) async fn pace(&self, bytes: usize) {
        let wait = self.pace.wait(ByteCount(bytes as u64));
        if !wait.is_zero() {
            tokio::time::sleep(wait.to_std()).await;
        }
    }

    /// Waits until there may be something else to do.
    pub(super) async fn wait(&self) {
        let _ = tokio::time::timeout(LOOK_AGAIN.to_std(), self.work.notified()).await;
    }

    /// A connection for this line to this server, the one it has or a new one.
    pub(super) async fn connection<'a>(
        &self,
        id: StreamId,
        held: &'a mut Option<Connection>,
        url: &packtrain_service::weburl::WebUrl,
    ) -> Result<&'a mut Connection, Trouble> {
        if !held.as_ref().is_some_and(|held| held.is_for(url)) {
            *held = None;
            let made = self.client.connect(url).await?;
            self.sockets.has(id, &made);
            *held = Some(made);
        }
        held.as_mut().ok_or_else(|| Trouble::later("no connection"))
    }

    async fn work_as(&self, id: StreamId, connection: &mut Option<Connection>) {
        let mut failed = 0;
        let mut before = ByteCount::ZERO;
        loop {
            let take = self.range_scheduler().take(clock::now(), id);
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
            let brought = self.range_scheduler().ran(id);
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
                    let now = self.range_scheduler().moved();
                    // Whoever was cut off on its way may go on at once.
                    failed = if brought { 1 } else { failed + 1 };
                    if failed == 1 {
                        before = now;
                    }
                    let alone = self.range_scheduler().count() <= 1;
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
        let fewer = (self.range_scheduler().count() as u32).saturating_sub(1).max(1);
        let mut cap = self.cap.lock();
        if fewer < *cap {
            *cap = fewer;
            self.tell(FetchNews::Say(format!("no more than {fewer} streams from now on: {text}")));
        }
    }
}
