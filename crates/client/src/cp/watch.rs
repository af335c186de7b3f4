//! From what the two state machines count to what a person wants to see.

use parking_lot::Mutex;
use std::fs::DirBuilder;
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use packtrain_disk::{LeftoverName, Lock, Root};
use packtrain_object::{RelPath, SourceName};
use packtrain_os::{clock, entropy};
use packtrain_transfer::{FailureKind, FileReport, SinkTotals, SourceTotals};
use packtrain_units::{ByteCount, DataRate, Duration, Time};

use packtrain_diagnose::recorder::Recorder;
use packtrain_hops::route::Routes;
use packtrain_runtime::session::Observer;
use packtrain_runtime::sink::Destination;
use packtrain_service::ceilings::Ceilings;
use packtrain_service::evidence::Part;
use packtrain_service::{
    CpRequest, Location, Notice, NoticeLevel, ProgressSnapshot, Reporter, RequestError,
};

/// How much of the past the shown rate remembers.
const MEMORY: f64 = 3.0;

/// Watches a transfer for its reporter.
pub(super) struct Watch<'a> {
    pub(super) reporter: &'a dyn Reporter,
    rate: Mutex<Rate>,
    differing: AtomicU64,
    metadata: AtomicU64,
    transport: Mutex<String>,
    book: Recorder,
    /// The rate and the streams that were asked for.
    asked: (Option<u64>, Option<u32>),
    /// The command's routes over depots.
    pub(super) routes: Routes,
}

#[derive(Default)]
struct Rate {
    at: Option<Time>,
    bytes: u64,
    smooth: Option<f64>,
}

impl Rate {
    fn update(&mut self, bytes: u64) -> DataRate {
        let now = clock::now();
        if let Some(before) = self.at {
            let span = now.since(before).as_secs_f64();
            if span < 0.05 {
                return DataRate::from_bps(self.smooth.unwrap_or(0.0) as u64);
            }
            let late = bytes.saturating_sub(self.bytes) as f64 * 8.0 / span;
            let keep = (-span / MEMORY).exp();
            self.smooth = Some(self.smooth.map_or(late, |old| old * keep + late * (1.0 - keep)));
        }
        (self.at, self.bytes) = (Some(now), bytes);
        DataRate::from_bps(self.smooth.unwrap_or(0.0) as u64)
    }
}

/// Bytes done and to do, as a source sees them. How long a pipe is, is not known before its end.
fn source_bytes(totals: &SourceTotals) -> (ByteCount, Option<ByteCount>) {
    if totals.stream_open {
        return (totals.placed, None);
    }
    let whole = totals.known.saturating_sub(totals.present);
    (totals.placed.min(whole), totals.walk_done.then_some(whole))
}

impl<'a> Watch<'a> {
    pub(super) fn new(reporter: &'a dyn Reporter, request: &CpRequest, routes: Routes) -> Self {
        let local = |l: &Location| matches!(l, Location::Local(_));
        let here = local(&request.dest) && request.sources.iter().all(local);
        let name = if here { "local" } else { request.transport.name() };
        let transport = Mutex::new(name.to_owned());
        let ssh = |l: &Location| matches!(l, Location::Ssh { .. });
        let far = request.sources.iter().any(ssh) || ssh(&request.dest);
        let to = packtrain_service::paths::show(request.dest.path());
        let what = format!("{} to {to}", if request.options.verify { "verify" } else { "cp" });
        let book = Recorder::open(request.row(), what, request.history.clone(), here, far);
        let asked = (request.options.rate_bps, request.streams);
        let (rate, differing, metadata) = (Mutex::default(), AtomicU64::new(0), AtomicU64::new(0));
        Self { reporter, rate, differing, metadata, transport, book, asked, routes }
    }

    /// Files that differ or are missing, as far as reports told.
    pub(super) fn differing(&self) -> u64 {
        self.differing.load(Ordering::Relaxed)
    }

    /// Files whose mode or time would be set, as far as reports told.
    pub(super) fn metadata(&self) -> u64 {
        self.metadata.load(Ordering::Relaxed)
    }

    /// The evidence so far.
    pub(super) fn book(&self) -> &Recorder {
        &self.book
    }

    pub(super) fn say(&self, notice: Notice) {
        self.reporter.notice(&notice);
    }

    /// The other end has limits, which are told where they change something.
    pub(super) fn limits(&self, peer: &Ceilings, own: &Ceilings) {
        if let Some(text) = peer.notice(own, self.asked.0, self.asked.1) {
            self.say(Notice::new(NoticeLevel::Info, text));
        }
    }

    fn show(&self, done: ByteCount, total: Option<ByteCount>, files: (u64, Option<u64>)) {
        self.book.progress(done, files.0);
        let rate = self.rate.lock().update(done.get());
        let left = total.map(|t| t.saturating_sub(done));
        let eta = left
            .filter(|_| rate > DataRate::ZERO)
            .map(|left| rate.time_for(left))
            .filter(|eta| *eta < Duration::from_secs(100 * 86_400));
        self.reporter.progress(&ProgressSnapshot {
            bytes_done: done,
            bytes_total: total,
            files_done: files.0,
            files_total: files.1,
            rate,
            eta,
            verdict: None,
            transport: self.transport.lock().clone(),
        });
    }
}

impl Observer for Watch<'_> {
    fn file(&self, path: &[u8], report: &FileReport) {
        if matches!(report, FileReport::Differs | FileReport::Missing) {
            self.differing.fetch_add(1, Ordering::Relaxed);
        }
        if *report == FileReport::Metadata {
            self.metadata.fetch_add(1, Ordering::Relaxed);
        }
        self.reporter.file(path, report);
    }

    fn source(&self, totals: &SourceTotals) {
        // Where the sink is here too, its word counts: it knows what is safe.
        let (done, total) = source_bytes(totals);
        let entries = totals.walk_done.then_some(totals.entries);
        self.show(done, total, (totals.files, entries));
    }

    fn sink(&self, totals: &SinkTotals) {
        let whole = totals.known.saturating_sub(totals.present);
        let total = (totals.manifest_done && !totals.stream_open).then_some(whole);
        let entries = totals.manifest_done.then_some(totals.entries);
        self.show(totals.verified, total, (totals.files, entries));
    }

    fn transport(&self, name: &str) {
        name.clone_into(&mut self.transport.lock());
    }

    fn notice(&self, notice: &Notice) {
        self.reporter.notice(notice);
    }

    fn keeps(&self) -> bool {
        true
    }

    fn part(&self, part: Part) {
        self.book.part(part);
    }
}

/// Passes notices on, and nothing else: the other end is watched.
pub(super) struct Notices<'a>(pub(super) &'a Watch<'a>);

impl Observer for Notices<'_> {
    fn file(&self, _: &[u8], _: &FileReport) {}
    fn source(&self, _: &SourceTotals) {}
    fn sink(&self, _: &SinkTotals) {}
    fn transport(&self, _: &str) {}
    fn notice(&self, notice: &Notice) {
        self.0.notice(notice);
    }

    fn keeps(&self) -> bool {
        true
    }

    fn part(&self, part: Part) {
        self.0.part(part);
    }
}

/// Standard output as a destination: received into a directory of its own, verified, then
/// written out in order.
///
/// The directory is this user's alone, and its lock tells `packtrain clean` that it is in use.
pub(super) struct Spool {
    dir: PathBuf,
    _lock: Lock,
}

impl Spool {
    pub(super) fn new(request: &CpRequest) -> Result<Self, RequestError> {
        if request.sources.len() > 1 || request.options.recursive {
            let text = "standard output takes one file: name one source and leave -r out";
            return Err(RequestError::new(FailureKind::Usage, text));
        }
        if !request.sources[0].is_remote() {
            return Err(RequestError::new(FailureKind::Usage, "to standard output: use cat"));
        }
        Self::make()
    }

    /// A place for one file.
    pub(super) fn make() -> Result<Self, RequestError> {
        let dir = std::env::temp_dir().join(format!(".packtrain-{:016x}.output", entropy::seed()));
        let failed = |why: String| {
            let text = format!("{}: {why}; set TMPDIR to a place with room", dir.display());
            RequestError::new(FailureKind::TargetRefused, text)
        };
        DirBuilder::new().mode(0o700).create(&dir).map_err(|e| failed(e.to_string()))?;
        let root = Arc::new(Root::open(&dir).map_err(|e| failed(e.to_string()))?);
        let name = RelPath::new(LeftoverName::lock_of("00000000").into_bytes())
            .map_err(|e| failed(e.to_string()))?;
        let who = format!("process {} of packtrain", std::process::id());
        let _lock = Lock::take(&root, &name, &who).map_err(|e| failed(e.to_string()))?;
        Ok(Self { dir, _lock })
    }

    /// A file of which `names` is the source's, if that is known.
    pub(super) fn destination(&self, names: Option<Vec<SourceName>>) -> Destination {
        use std::os::unix::ffi::OsStrExt;
        let path = self.dir.join("out").as_os_str().as_bytes().to_vec();
        Destination { path, confined: None, sources: 1, names, owners: false }
    }

    /// Writes what was received to standard output.
    pub(super) fn emit(&self) -> Result<(), RequestError> {
        let failed = |e: io::Error| {
            RequestError::new(FailureKind::TargetRefused, format!("standard output: {e}"))
        };
        let path = self.dir.join("out");
        let mut file = std::fs::File::open(&path).map_err(failed)?;
        // Open, it needs no name: a reader that takes its time leaves nothing behind if this
        // process is killed.
        let _ = std::fs::remove_file(&path);
        let mut out = io::stdout().lock();
        io::copy(&mut file, &mut out).map_err(failed)?;
        out.flush().map_err(failed)
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        // A temporary directory that stays is the system's to clean.
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_shows_what_it_gave_and_no_end() {
        let pipe = SourceTotals {
            walk_done: true,
            stream_open: true,
            placed: ByteCount(7),
            ..SourceTotals::default()
        };
        assert_eq!(source_bytes(&pipe), (ByteCount(7), None));
        let ended = SourceTotals { stream_open: false, known: ByteCount(5), ..pipe };
        assert_eq!(source_bytes(&ended), (ByteCount(5), Some(ByteCount(5))));
    }
}
