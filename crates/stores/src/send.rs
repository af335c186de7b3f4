//! Uploads local files to a store. A store accepts whole objects and numbered parts, but no bytes
//! at an offset, and keeps its own list of the parts that it has. So an upload has no sink and no
//! journal. It shares the walk, the streams, their tuning and the report with other copies.

mod put;
mod upload_queue;
mod upload_state;

use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender, unbounded};
use packtrain_disk::{Root, SourceFile, WalkOptions, Walker};
use packtrain_object::{EntryKind, Mtime, RelPath};
use packtrain_os::clock;
use packtrain_transfer::message::{Options, Resume, Summary};
use packtrain_transfer::{Failure, FailureKind, FileReport, Outcome, SinkTotals};
use packtrain_units::{ByteCount, Duration, Time};
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::answer::Trouble;
use super::body::Pace;
use super::connection_pool::{ConnectionPool, Sockets};
use super::http::Client;
use super::s3::{Bucket, RETRY};
use packtrain_runtime::session::{Observer, Stop};
use packtrain_runtime::skipped::Skipped;
use packtrain_runtime::traces::{IS_WORKING_FILE, is_working_file};
use packtrain_runtime::transports::{Moved, StreamId};
use packtrain_service::paths::show;
use packtrain_service::{Notice, NoticeLevel, executor};
use put::Put;
use upload_queue::{Job, Take, UploadQueue};

/// Maximum attempts at one request.
const MAX_ATTEMPTS: u32 = 6;
/// Maximum files sent in parallel while the files are small.
const SMALL_FILES: usize = 16;
/// Maximum failures that are kept with their paths.
const MAX_FAILED: usize = 100;

/// A file to send.
struct Item {
    /// Its path below the target.
    path: RelPath,
    key: String,
    /// Its name in texts to the user.
    name: String,
    size: ByteCount,
    mtime: Mtime,
    root: Arc<Root>,
    source: RelPath,
}

impl Item {
    fn shown(&self) -> String {
        show(self.source.as_bytes())
    }

    fn changed(&self) -> Trouble {
        let text =
            format!("{}: changed while it was sent; run the same command again", self.shown());
        Trouble::never(FailureKind::Changed, text)
    }
}

/// Messages from streams.
enum StreamEvent {
    /// This many bytes were sent.
    Bytes(ByteCount),
    /// This many bytes were in the store from an earlier run.
    Resumed(ByteCount),
    /// The file with this index is complete or failed.
    Done(usize, FileReport),
    /// The whole upload failed.
    Failed(Failure),
    /// An upload that was given up stays in the store.
    NotAborted,
    /// The store did not list the parts of an upload of an earlier run.
    BegunAnew,
}

struct Work {
    client: Client,
    bucket: Arc<Bucket>,
    items: Vec<Item>,
    options: Options,
    upload_queue: Mutex<UploadQueue>,
    wake: Notify,
    sockets: Sockets,
    pace: Arc<Pace>,
    events: Sender<StreamEvent>,
    /// Current and target number of streams.
    streams: Mutex<(u32, u32)>,
}

/// Parameters of an upload.
pub(super) struct Setup<'a> {
    pub(super) client: Client,
    pub(super) bucket: Arc<Bucket>,
    /// The key or prefix from the command line.
    pub(super) key: String,
    /// The paths from the command line.
    pub(super) paths: Vec<Vec<u8>>,
    pub(super) options: Options,
    pub(super) observer: &'a dyn Observer,
    pub(super) connection_pool: ConnectionPool,
    pub(super) pace: Pace,
    pub(super) stop: Stop,
}

/// Uploads all files.
pub(super) fn run(setup: Setup<'_>) -> Result<(Outcome, Moved), Failure> {
    let Setup { client, bucket, key, paths, options, observer, connection_pool, pace, stop } =
        setup;
    let Walked { items, failed, special } = walk(&bucket, &key, &paths, &options)?;
    if special.count > 0 {
        observer.notice(&special.notice());
    }
    let (events, received) = unbounded();
    let known = items.iter().map(|item| item.size).sum();
    let work = Work {
        client,
        bucket,
        upload_queue: Mutex::new(UploadQueue::new(items.len())),
        items,
        options,
        wake: Notify::new(),
        sockets: connection_pool.sockets(),
        pace: Arc::new(pace),
        events,
        streams: Mutex::default(),
    };
    let mut runner = Runner {
        work: Arc::new(work),
        observer,
        connection_pool,
        stop,
        events: received,
        tasks: BTreeMap::new(),
        next: 0,
        reported_at: Time::ZERO,
        known,
        summary: Summary::default(),
        failure: None,
        failed: Vec::new(),
        not_aborted: 0,
        begun_anew: 0,
    };
    for (path, failure) in failed {
        runner.fail(path, failure);
    }
    Ok(runner.run())
}

/// What the walk over the sources found.
#[derive(Default)]
struct Walked {
    /// The files with their keys.
    items: Vec<Item>,
    /// Entries that cannot be sent.
    failed: Vec<(Vec<u8>, Failure)>,
    /// What is never copied.
    special: Skipped,
}

fn walk(
    bucket: &Bucket,
    key: &str,
    paths: &[Vec<u8>],
    options: &Options,
) -> Result<Walked, Failure> {
    let filters = packtrain_transfer::filters(options)?;
    let recursive = options.recursive;
    let walk_options = WalkOptions { recursive, filters, ..WalkOptions::default() };
    let sources: Vec<PathBuf> = paths
        .iter()
        .map(|path| PathBuf::from(OsStr::from_bytes(&packtrain_runtime::sink::expand_home(path))))
        .collect();
    let walker = Walker::new(&sources, walk_options);
    let (roots, names) = (walker.roots().to_vec(), walker.target_names());
    let Walked { mut items, mut failed, mut special } = Walked::default();
    let mut only_file = paths.len() == 1;
    for found in walker {
        let found = match found {
            Ok(found) => found,
            Err(e) if e.is_special => {
                special.add(e.path);
                continue;
            }
            Err(e) => {
                let failure = walk_failure(&e);
                if e.is_source && paths.len() == 1 {
                    return Err(failure);
                }
                failed.push((e.path, failure));
                continue;
            }
        };
        let mut fail = |why: &str| {
            let failure = Failure::new(FailureKind::Unreadable, why);
            failed.push((found.entry.path.as_bytes().to_vec(), failure));
        };
        if is_working_file(&found.entry) {
            if names.iter().any(|name| name == found.entry.path.as_bytes()) {
                fail(IS_WORKING_FILE);
            }
            continue;
        }
        match found.entry.kind {
            EntryKind::File { size } => {
                let Ok(below) = std::str::from_utf8(found.entry.path.as_bytes()) else {
                    fail("its name is no text, which a key has to be");
                    continue;
                };
                let below = below.to_owned();
                items.push(Item {
                    key: below.clone(),
                    name: String::new(),
                    path: found.entry.path,
                    size: ByteCount(size),
                    mtime: found.entry.mtime,
                    root: Arc::clone(&roots[found.root]),
                    source: found.source,
                });
            }
            EntryKind::Directory => only_file = false,
            EntryKind::Symlink { .. } => fail("a symbolic link, which a store has none of"),
            EntryKind::Stream => fail("a stream"),
        }
    }
    let exact = only_file && items.len() == 1 && !key.is_empty() && !key.ends_with('/');
    for item in &mut items {
        if exact {
            key.clone_into(&mut item.key);
        } else if !key.is_empty() {
            item.key = format!("{}/{}", key.trim_end_matches('/'), item.key);
        }
        item.name = bucket.show(&item.key);
    }
    Ok(Walked { items, failed, special })
}

fn walk_failure(failure: &packtrain_disk::walk::WalkFailure) -> Failure {
    let path = show(&failure.path);
    match packtrain_disk::classify(&failure.error) {
        packtrain_disk::Trouble::NotFound if failure.is_source => {
            Failure::new(FailureKind::SourceMissing, format!("{path}: no such file or directory"))
        }
        packtrain_disk::Trouble::IsDirectory => {
            let text = format!("{path}: is a directory; use -r to copy directories");
            Failure::new(FailureKind::Usage, text)
        }
        _ => Failure::new(FailureKind::Unreadable, format!("{path}: {}", failure.error)),
    }
}

struct Runner<'a> {
    work: Arc<Work>,
    observer: &'a dyn Observer,
    connection_pool: ConnectionPool,
    stop: Stop,
    events: Receiver<StreamEvent>,
    tasks: BTreeMap<StreamId, AbortHandle>,
    next: u32,
    reported_at: Time,
    known: ByteCount,
    summary: Summary,
    failure: Option<Failure>,
    failed: Vec<(Vec<u8>, Failure)>,
    /// Number of uploads that were given up and stay in the store.
    not_aborted: usize,
    /// Number of uploads of earlier runs whose parts the store did not list.
    begun_anew: usize,
}

impl Runner<'_> {
    fn run(mut self) -> (Outcome, Moved) {
        while self.failure.is_none() {
            let over = self.work.upload_queue().is_over();
            let step = std::time::Duration::from_millis(20);
            while let Ok(item) = self.events.try_recv() {
                self.take(item);
            }
            if over {
                break;
            }
            if let Ok(item) = self.events.recv_timeout(step) {
                self.take(item);
            }
            let now = clock::now();
            self.streams(now);
            if let Some(failure) = self.stop.take() {
                self.failure = Some(failure);
            }
            self.report_progress(now);
        }
        self.work.upload_queue().close();
        for task in self.tasks.values() {
            task.abort();
        }
        self.finish_open_uploads();
        self.warn_of_uploads();
        self.reported_at = Time::ZERO;
        self.report_progress(clock::now());
        let bytes = ByteCount(self.summary.bytes_moved);
        let is_sent = bytes.get() > 0 && !self.work.options.dry_run;
        let shares = if is_sent { vec![("s3".to_owned(), bytes)] } else { Vec::new() };
        let streams = self.connection_pool.report(ByteCount::ZERO);
        let retransmitted = streams.as_ref().map_or(ByteCount::ZERO, |s| s.retransmitted);
        let rtt = self.connection_pool.min_rtt();
        let held = self.work.pace.held();
        let moved = Moved { shares, retransmitted, rtt, streams, held, ..Moved::default() };
        let outcome = Outcome { summary: self.summary, failure: self.failure, failed: self.failed };
        (outcome, moved)
    }

    fn streams(&mut self, now: Time) {
        let gone: Vec<StreamId> =
            self.tasks.iter().filter(|(_, task)| task.is_finished()).map(|(id, _)| *id).collect();
        for id in gone {
            self.tasks.remove(&id);
            self.connection_pool.gone(id);
        }
        let work = &self.work;
        self.connection_pool
            .look(now, |_, streams| !work.pace.is_set() && work.upload_queue().is_busy(streams));
        let waiting = work.upload_queue().waiting(SMALL_FILES);
        let wanted = self.connection_pool.wanted(waiting as u32, u32::MAX, u32::MAX);
        let new = {
            let mut streams = work.streams.lock();
            streams.1 = wanted;
            let new = wanted.saturating_sub(streams.0).min(waiting as u32);
            streams.0 += new;
            new
        };
        for _ in 0..new {
            let id = StreamId::numbered(self.next);
            self.next += 1;
            let work = Arc::clone(&self.work);
            let task = executor::handle().spawn(async move { work.serve(id).await });
            self.tasks.insert(id, task.abort_handle());
            self.connection_pool.came(self.tasks.len() as u32);
        }
    }

    fn take(&mut self, item: StreamEvent) {
        match item {
            // The store has confirmed them.
            StreamEvent::Bytes(bytes) => {
                self.summary.bytes_moved += bytes.get();
                self.summary.bytes_durable = self.summary.bytes_moved;
            }
            StreamEvent::Resumed(bytes) => self.summary.bytes_resumed += bytes.get(),
            StreamEvent::Failed(failure) => self.failure = Some(failure),
            StreamEvent::NotAborted => self.not_aborted += 1,
            StreamEvent::BegunAnew => self.begun_anew += 1,
            StreamEvent::Done(n, report) => {
                let size = self.work.items[n].size.get();
                match &report {
                    FileReport::Failed(failure) => {
                        let path = self.work.items[n].path.as_bytes().to_vec();
                        return self.fail(path, failure.clone());
                    }
                    FileReport::Unchanged => self.summary.unchanged += 1,
                    _ => self.summary.files_moved += 1,
                }
                // What a dry run would send.
                if self.work.options.dry_run && report == FileReport::Moved {
                    self.summary.bytes_moved += size;
                }
                self.summary.entries += 1;
                self.summary.bytes += size;
                self.report(self.work.items[n].path.as_bytes(), &report);
            }
        }
    }

    fn fail(&mut self, path: Vec<u8>, failure: Failure) {
        self.summary.failed += 1;
        self.summary.vanished += u64::from(failure.kind == FailureKind::Vanished);
        self.report(&path, &FileReport::Failed(failure.clone()));
        if self.failed.len() < MAX_FAILED {
            self.failed.push((path, failure));
        }
    }

    fn report(&self, path: &[u8], report: &FileReport) {
        if self.work.options.report_files || self.work.options.dry_run {
            self.observer.file(path, report);
        }
    }

    /// Aborts the unfinished uploads with `--no-resume`; otherwise reports that they stay in the
    /// store.
    fn finish_open_uploads(&mut self) {
        let open: Vec<(usize, upload_queue::Upload)> = (0..self.work.items.len())
            .filter_map(|n| Some((n, self.work.upload_queue().drop_file(n)?)))
            .collect();
        if open.is_empty() {
            return;
        }
        if self.work.options.resume == Resume::Off {
            let limit = std::time::Duration::from_secs(10);
            let mut aborted = 0;
            let abort = async {
                for (n, upload) in &open {
                    aborted += usize::from(self.work.give_up(*n, &upload.id).await);
                }
            };
            let _ = executor::handle().block_on(async { tokio::time::timeout(limit, abort).await });
            self.not_aborted += open.len() - aborted;
            return;
        }
        let text = format!(
            "{} unfinished upload(s) stay in the store, and are paid for there, until the same \
             command completes them",
            open.len()
        );
        self.observer.notice(&Notice::new(NoticeLevel::Warning, text));
    }

    fn warn_of_uploads(&self) {
        if self.begun_anew > 0 {
            let text = format!(
                "the store did not list the parts of {} unfinished upload(s), so cp began from the \
                 beginning: to resume, the account needs the permission to list parts",
                self.begun_anew
            );
            self.observer.notice(&Notice::new(NoticeLevel::Warning, text));
        }
        if self.not_aborted == 0 {
            return;
        }
        let text = format!(
            "{} unfinished upload(s) could not be removed from the store, and are paid for there: \
             remove them by a rule of the bucket",
            self.not_aborted
        );
        self.observer.notice(&Notice::new(NoticeLevel::Warning, text));
    }

    fn report_progress(&mut self, now: Time) {
        if now.since(self.reported_at) < Duration::from_millis(100) {
            return;
        }
        self.reported_at = now;
        let summary = &self.summary;
        let (moved, resumed) = (summary.bytes_moved, summary.bytes_resumed);
        let unchanged = summary.bytes.saturating_sub(moved + resumed);
        let present = if summary.unchanged > 0 { unchanged + resumed } else { resumed };
        self.observer.transport("s3");
        self.observer.sink(&SinkTotals {
            entries: self.work.items.len() as u64,
            manifest_done: true,
            known: self.known,
            stream_open: false,
            present: ByteCount(present),
            needed: self.known,
            verified: ByteCount(moved),
            durable: ByteCount(moved),
            files: summary.files_moved,
            files_known: self.work.items.len() as u64,
            files_present: summary.unchanged,
        });
    }
}

impl Work {
    fn upload_queue(&self) -> MutexGuard<'_, UploadQueue> {
        self.upload_queue.lock()
    }

    fn send_event(&self, event: StreamEvent) {
        let _ = self.events.send(event);
    }

    /// Opens the file and checks that it did not change since the walk.
    fn open(&self, item: &Item) -> Result<Arc<SourceFile>, Trouble> {
        let file = SourceFile::open(&item.root, &item.source).map_err(|e| {
            let kind = match packtrain_disk::classify(&e) {
                packtrain_disk::Trouble::NotFound => FailureKind::Vanished,
                _ => FailureKind::Unreadable,
            };
            Trouble::never(kind, format!("{}: {e}", item.shown()))
        })?;
        if file.matches(item.size.get(), item.mtime) {
            Ok(Arc::new(file))
        } else {
            Err(item.changed())
        }
    }

    /// The file's mtime as stored in the metadata of the object.
    fn mtime(&self, item: &Item) -> Option<String> {
        self.options.preserve_times.then(|| put::write_mtime(item.mtime))
    }

    async fn serve(&self, id: StreamId) {
        let mut held = None;
        loop {
            if self.is_surplus() {
                break self.sockets.forget(id);
            }
            let take = self.upload_queue().take();
            let job = match take {
                Take::Job(job) => job,
                Take::Over => {
                    self.streams.lock().0 -= 1;
                    break self.sockets.forget(id);
                }
                Take::Wait => {
                    let limit = std::time::Duration::from_millis(100);
                    let _ = tokio::time::timeout(limit, self.wake.notified()).await;
                    continue;
                }
            };
            self.run_job(id, job, &mut held).await;
            self.upload_queue().done();
            self.wake.notify_waiters();
        }
    }

    /// Whether there is one stream too many; if so, counts the caller as ended.
    fn is_surplus(&self) -> bool {
        let mut streams = self.streams.lock();
        let surplus = streams.0 > streams.1;
        streams.0 -= u32::from(surplus);
        surplus
    }

    async fn run_job(&self, id: StreamId, job: Job, held: &mut Option<super::http::Connection>) {
        let (Job::Check(n) | Job::Part(n, _) | Job::Complete(n)) = job;
        let mut backoff = RETRY;
        loop {
            let done = Put { work: self, stream: id, held: &mut *held }.run(job).await;
            let Err(trouble) = done else { return };
            *held = None;
            match trouble {
                Trouble::Later(_, pause) if backoff.failures() + 1 < MAX_ATTEMPTS => {
                    let wait = backoff.next_wait();
                    tokio::time::sleep(pause.unwrap_or(wait).to_std()).await;
                }
                Trouble::Later(text, _) => {
                    let failure = Failure::new(FailureKind::Temporary, text);
                    return self.send_event(StreamEvent::Failed(failure));
                }
                Trouble::Never(failure) => return self.fail_job(job, n, failure).await,
            }
        }
    }

    async fn fail_job(&self, job: Job, n: usize, failure: Failure) {
        let upload = self.upload_queue().drop_file(n);
        if let Some(upload) = upload {
            if !self.give_up(n, &upload.id).await {
                self.send_event(StreamEvent::NotAborted);
            }
        } else if matches!(job, Job::Part(..)) {
            // Another stream failed at the same file and reported it.
            return;
        }
        match failure.kind {
            // These failures affect all files.
            FailureKind::NotAuthorised
            | FailureKind::Usage
            | FailureKind::Fatal
            | FailureKind::TargetMissing => {
                self.send_event(StreamEvent::Failed(failure));
            }
            // An upload that is gone was begun anew, so the bucket is missing.
            FailureKind::SourceMissing => {
                self.send_event(StreamEvent::Failed(Failure {
                    kind: FailureKind::TargetMissing,
                    ..failure
                }));
            }
            _ => self.send_event(StreamEvent::Done(n, FileReport::Failed(failure))),
        }
    }

    async fn give_up(&self, n: usize, upload: &str) -> bool {
        let mut held = None;
        let stream = StreamId::numbered(u32::MAX);
        let put = &mut Put { work: self, stream, held: &mut held };
        let is_aborted = put.abort(&self.items[n], upload).await;
        self.sockets.forget(stream);
        is_aborted
    }
}
