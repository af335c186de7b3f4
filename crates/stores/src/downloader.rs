//! The transport of a fetch: connections that take runs from the scheduler, each in a task of
//! its own, and how many of them there are.

mod get;

use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use packtrain_object::{ChunkIndex, EntryId, Piece};
use packtrain_os::clock;
use packtrain_transfer::message::PieceDigest;
use packtrain_transfer::{Custody, Failure, FailureKind, Transport, TransportEvent};
use packtrain_units::{Backoff, ByteCount, Duration, Offset, Time};
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::answer::Trouble;
use super::body::Pace;
use super::comparison::Comparisons;
use super::connection_pool::{ConnectionPool, Sockets};
use super::http::{Client, Connection};
use super::remote::{Objects, Remote};
use super::run_scheduler::{RunScheduler, Take};
use get::Get;
use packtrain_runtime::control::PayloadSink;
use packtrain_runtime::source::ContentReports;
use packtrain_runtime::transports::offer::Offer;
use packtrain_runtime::transports::transport::{Inbox, Outbox, SourceContext, SourceTransport};
use packtrain_runtime::transports::{Moved, StreamCount, StreamId};
use packtrain_service::{StreamsReport, executor};

/// The waits after requests that failed in a row.
const RETRY: Backoff = Backoff::new(Duration::from_millis(250), Duration::from_secs(8));
/// The shortest wait, whatever the server asks for.
const RETRY_LEAST: Duration = Duration::from_millis(125);
/// Failures in a row of one stream, while nobody else moves anything, that end the fetch.
const TRIES: u32 = 5;
/// Failures in a row while others move: the server wants no more than those.
const CROWDED: u32 = 3;
/// Files of one request that are asked for beside each other, whatever the path would take.
const SMALL_FILES: usize = 16;
/// A further stream is opened only if there is so much for each.
const WORTH_A_STREAM: u64 = 8 << 20;
/// A stream that has nothing looks again after this: somebody may be in need of relief.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// What the streams are made of.
pub(super) struct Parts {
    pub(super) client: Arc<Client>,
    pub(super) objects: Objects,
    /// Where bytes go.
    pub(super) payload: Arc<OnceLock<Arc<dyn PayloadSink>>>,
    pub(super) pace: Pace,
    pub(super) count: StreamCount,
    pub(super) most: u32,
    /// Where digests and failures of entries go.
    pub(super) reports: ContentReports,
    pub(super) comparisons: Arc<Comparisons>,
    /// What it is called: `https`, `http` or `s3`.
    pub(super) name: &'static str,
}

pub(super) struct Shared {
    pub(super) client: Arc<Client>,
    objects: Objects,
    payload: Arc<OnceLock<Arc<dyn PayloadSink>>>,
    pace: Pace,
    range_scheduler: Mutex<RunScheduler>,
    work: Notify,
    sockets: Sockets,
    events: OnceLock<Outbox<TransportEvent>>,
    reports: ContentReports,
    comparisons: Arc<Comparisons>,
    /// What is about to be assigned.
    prepared: Mutex<Prepared>,
    /// The most streams the server takes.
    cap: Mutex<u32>,
    /// Nanoseconds that streams waited for the disk.
    held: AtomicU64,
}

/// What the next assignment is of.
#[derive(Default)]
enum Prepared {
    #[default]
    Nothing,
    Pieces(Vec<Piece>),
    /// The object of unknown length, which begins here.
    Stream(EntryId, Offset),
}

/// The streams of a fetch as a transport.
pub(super) struct Downloader {
    name: &'static str,
    over: bool,
    /// Blocks are fetched whole; what was assigned of them is reported.
    custody: Custody,
    ready: VecDeque<TransportEvent>,
    events: Inbox<TransportEvent>,
    shared: Arc<Shared>,
    connection_pool: ConnectionPool,
    held: u64,
    tasks: BTreeMap<StreamId, AbortHandle>,
    streams: Vec<AbortHandle>,
}

impl Downloader {
    pub(super) fn new(parts: Parts) -> Self {
        let Parts { client, objects, payload, pace, count, most, reports, comparisons, name } =
            parts;
        let connection_pool = ConnectionPool::new(count, most, true);
        let shared = Shared {
            client,
            objects,
            payload,
            pace,
            range_scheduler: Mutex::default(),
            work: Notify::new(),
            sockets: connection_pool.sockets(),
            events: OnceLock::new(),
            reports,
            comparisons,
            prepared: Mutex::default(),
            cap: Mutex::new(most),
            held: AtomicU64::new(0),
        };
        Self {
            name,
            over: false,
            custody: Custody::default(),
            ready: VecDeque::new(),
            events: Inbox::default(),
            shared: Arc::new(shared),
            connection_pool,
            held: 0,
            tasks: BTreeMap::new(),
            streams: Vec::new(),
        }
    }

    /// What hands over the pieces of each assignment.
    pub(super) fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.shared)
    }

    /// The object of unknown length is to be fetched; what lies in `range` has a place.
    fn stream(&mut self, entry: EntryId, start: Offset, range: &Range<Offset>) {
        self.shared.range_scheduler().reach(range.end);
        if self.streams.is_empty() {
            let shared = Arc::clone(&self.shared);
            let task = executor::handle().spawn(async move {
                if let Some(object) = shared.object(entry)
                    && let Err(trouble) = get::stream(&shared, entry, &object, start).await
                {
                    shared.fail(trouble.failure());
                }
            });
            self.streams.push(task.abort_handle());
        }
    }

    /// Looks after the streams, a few times in each sample's time.
    fn look_after(&mut self, now: Time) {
        self.sample(now);
        let there = self.shared.range_scheduler().count() as u32;
        let wanted = self.wanted(there);
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

    fn wanted(&mut self, there: u32) -> u32 {
        let range_scheduler = self.shared.range_scheduler();
        if !range_scheduler.is_used() {
            return 0;
        }
        let small = range_scheduler.files_waiting(SMALL_FILES) as u32;
        let open = range_scheduler.open_bytes().get();
        drop(range_scheduler);
        // A connection that has little to bring ends before it is up to speed.
        let fed = u32::try_from(open / WORTH_A_STREAM).unwrap_or(u32::MAX).max(there);
        self.connection_pool.wanted(small, fed, *self.shared.cap.lock())
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
}

impl Transport for Downloader {
    fn name(&self) -> &'static str {
        self.name
    }

    fn assign(&mut self, range: Range<Offset>) {
        // The driver assigns only what this transport does not own.
        let _ = self.custody.on_assign(&range);
        let prepared = std::mem::take(&mut *self.shared.prepared.lock());
        match prepared {
            Prepared::Stream(entry, start) => self.stream(entry, start, &range),
            Prepared::Pieces(pieces) => {
                let mut range_scheduler = self.shared.range_scheduler();
                for piece in &pieces {
                    let serial = self.shared.object(piece.entry).filter(|object| !object.ranges);
                    range_scheduler.add(piece, &range, serial.and_then(|object| object.size));
                }
            }
            Prepared::Nothing => self.shared.report(TransportEvent::Returned(range)),
        }
        self.shared.work.notify_waiters();
    }

    fn revoke(&mut self, range: Range<Offset>) {
        let returned = self.shared.range_scheduler().revoke(&range);
        returned.into_iter().for_each(|part| self.shared.report(TransportEvent::Returned(part)));
    }

    fn poll_event(&mut self, now: Time) -> Option<TransportEvent> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            let Some(event) = self.events.next().filter(|_| !self.over) else {
                self.look_after(now);
                return None;
            };
            self.over |= matches!(event, TransportEvent::Closed(_));
            self.ready.extend(self.custody.admit(event));
        }
    }

    fn close(&mut self) {
        self.shared.range_scheduler().close();
        for task in self.tasks.values().chain(&self.streams) {
            task.abort();
        }
    }
}

impl SourceTransport for Downloader {
    fn start(&mut self, context: &SourceContext, _offer: &mut Offer) {
        let events = self.events.outbox(&context.wake);
        events.send(TransportEvent::Up { rank: 0 });
        let _ = self.shared.events.set(events);
    }

    fn is_over(&self) -> bool {
        self.over
    }

    fn account(&mut self, moved: &mut Moved) {
        let range_scheduler = self.shared.range_scheduler();
        let twice = range_scheduler.twice();
        moved.shares.push((self.name.to_owned(), range_scheduler.moved()));
        drop(range_scheduler);
        moved.retransmitted += twice;
        moved.rtt = moved.rtt.or(self.connection_pool.min_rtt());
        moved.held = self.shared.pace.held().or(moved.held);
    }

    fn report_streams(&self) -> Option<StreamsReport> {
        self.connection_pool.report(self.shared.range_scheduler().twice())
    }
}

impl Drop for Downloader {
    fn drop(&mut self) {
        self.close();
    }
}

impl Shared {
    pub(super) fn range_scheduler(&self) -> MutexGuard<'_, RunScheduler> {
        self.range_scheduler.lock()
    }

    pub(super) fn object(&self, id: EntryId) -> Option<Arc<Remote>> {
        self.objects.lock().get(&id).cloned()
    }

    /// The next assignment is of these pieces.
    pub(super) fn prepare(&self, pieces: Vec<Piece>) {
        *self.prepared.lock() = Prepared::Pieces(pieces);
    }

    /// The next assignment is of the object of unknown length, which begins here.
    pub(super) fn prepare_stream(&self, entry: EntryId, start: Offset) {
        *self.prepared.lock() = Prepared::Stream(entry, start);
    }

    pub(super) fn report(&self, event: TransportEvent) {
        if let Some(events) = self.events.get() {
            events.send(event);
        }
    }

    /// A piece is complete.
    pub(super) fn fetched(&self, chunk: ChunkIndex, digest: PieceDigest) {
        self.comparisons.fetched(digest.entry);
        self.reports.read(chunk, vec![digest]);
    }

    /// The object of unknown length ended.
    pub(super) fn stream_end(&self, entry: EntryId, size: u64) {
        self.reports.stream_end(entry, size);
    }

    /// The fetch cannot go on.
    fn fail(&self, failure: Failure) {
        self.report(TransportEvent::Closed(failure));
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
                    return self.fail(failure);
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
                        return self.fail(failure);
                    }
                    let wait = pause.unwrap_or(RETRY.after(failed - 1)).max(RETRY_LEAST);
                    tokio::time::sleep(wait.to_std()).await;
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
                self.fail(failure);
            }
            _ => self.reports.entry_failed(entry, failure),
        }
    }

    /// The server serves others and not this stream: it has enough of us.
    fn crowded(&self, text: &str) {
        let fewer = (self.range_scheduler().count() as u32).saturating_sub(1).max(1);
        let mut cap = self.cap.lock();
        if fewer < *cap {
            *cap = fewer;
            self.reports.warn(format!("no more than {fewer} streams from now on: {text}"));
        }
    }
}

#[cfg(test)]
#[path = "downloader_tests.rs"]
mod tests;
