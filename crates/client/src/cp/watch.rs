//! From what the two state machines count to what a person wants to see.

use parking_lot::Mutex;
use std::fs::{DirBuilder, File};
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_channel::{RecvTimeoutError, bounded};
use packtrain_disk::{Kind, LeftoverName, Lock, Root};
use packtrain_object::{RelPath, SourceName};
use packtrain_os::{clock, entropy, process};
use packtrain_transfer::{FailureKind, FileReport, Outcome, SinkTotals, SourceTotals};
use packtrain_units::{ByteCount, DataRate, Duration, Time};

use packtrain_diagnose::recorder::Recorder;
use packtrain_hops::route::Routes;
use packtrain_runtime::session::Observer;
use packtrain_runtime::sink::Destination;
use packtrain_service::ceilings::Ceilings;
use packtrain_service::evidence::Part;
use packtrain_service::{
    CpRequest, Location, Notice, NoticeLevel, ProgressSnapshot, Reporter, RequestError, StopHandle,
    executor,
};

use super::stopped;

/// How often a copy to standard output looks for a request to stop.
const STOP_INTERVAL: std::time::Duration = std::time::Duration::from_millis(100);

/// How much of the past the shown rate remembers.
const MEMORY: f64 = 3.0;

/// Watches a transfer for its reporter.
pub(super) struct Watch<'a> {
    pub(super) reporter: &'a dyn Reporter,
    rate: Mutex<Rate>,
    differing: AtomicU64,
    metadata: AtomicU64,
    pauses: Mutex<Pauses>,
    transport: Mutex<Current>,
    book: Recorder,
    /// The rate and the streams that were asked for.
    asked: (Option<u64>, Option<u32>),
    /// The command's routes over depots.
    pub(super) routes: Routes,
}

/// How much of a transfer must be seen before its rest is estimated.
const ESTIMATE_AFTER: Duration = Duration::from_secs(3);

/// A reader of standard output that takes longer is told.
const SLOW_OUTPUT: Duration = Duration::from_secs(2);

/// How long no byte may arrive before this is reported as an outage.
const OUTAGE_AFTER: Duration = Duration::from_secs(10);

#[derive(Default)]
struct Rate {
    at: Option<Time>,
    bytes: u64,
    smooth: Option<f64>,
    /// When the first byte was seen.
    first: Option<Time>,
}

impl Rate {
    /// The smoothed rate. `bytes` were moved until `now`.
    fn update(&mut self, now: Time, bytes: u64) -> DataRate {
        if bytes > 0 {
            self.first.get_or_insert(now);
        }
        if let Some(before) = self.at {
            let span = now.since(before).as_secs_f64();
            if span < 0.05 {
                return self.current();
            }
            let late = bytes.saturating_sub(self.bytes) as f64 * 8.0 / span;
            let keep = (-span / MEMORY).exp();
            // The wait for the first byte is not part of the rate.
            let first = bytes > 0 && self.bytes == 0;
            self.smooth = match self.smooth {
                Some(old) if !first => Some(old * keep + late * (1.0 - keep)),
                _ => Some(late),
            };
        }
        (self.at, self.bytes) = (Some(now), bytes);
        self.current()
    }

    fn current(&self) -> DataRate {
        DataRate::from_bps(self.smooth.unwrap_or(0.0) as u64)
    }

    /// The time that `left` takes, once the rate is known.
    fn remaining(&self, now: Time, left: ByteCount) -> Option<Duration> {
        let known = self.first.is_some_and(|first| now.since(first) >= ESTIMATE_AFTER);
        let rate = self.current();
        (known && rate > DataRate::ZERO)
            .then(|| rate.time_for(left))
            .filter(|eta| *eta < Duration::from_secs(100 * 86_400))
    }
}

/// Finds times in which nothing moves, and tells of each once.
#[derive(Default)]
struct Pauses {
    /// The bytes at the last change, and its time.
    last: Option<(u64, Time)>,
    /// An outage that was told.
    told: bool,
}

impl Pauses {
    /// What there is to say now. `over`: all that was asked for has arrived.
    fn update(&mut self, now: Time, bytes: u64, over: bool) -> Option<String> {
        let (before, at) = *self.last.get_or_insert((bytes, now));
        if bytes != before || over {
            self.last = Some((bytes, now));
            let paused = now.since(at).to_readable();
            let told = std::mem::take(&mut self.told);
            return told.then(|| format!("data arrives again, after {paused}"));
        }
        // Before the first byte, the ends still look at what there is to do.
        let out = bytes > 0 && !self.told && now.since(at) >= OUTAGE_AFTER;
        self.told |= out;
        out.then(|| format!("no data has arrived for {}", now.since(at).to_readable()))
    }
}

/// Which transport moves the data, and which did before.
#[derive(Default)]
struct Current {
    name: String,
    used: Vec<String>,
}

impl Current {
    /// The transport is `name` now. What there is to say, if an earlier one is back.
    fn set(&mut self, name: &str) -> Option<String> {
        if self.name == name {
            return None;
        }
        name.clone_into(&mut self.name);
        if self.used.iter().any(|used| used == name) {
            return Some(format!("the data goes over {name} again"));
        }
        self.used.push(name.to_owned());
        None
    }
}

/// What an end knows of the progress.
struct Known {
    /// Bytes moved.
    moved: ByteCount,
    /// Bytes found at the target.
    present: ByteCount,
    /// All bytes, if that is known.
    total: Option<ByteCount>,
    files: u64,
    files_total: Option<u64>,
}

impl From<&SourceTotals> for Known {
    fn from(totals: &SourceTotals) -> Self {
        // How long a pipe is, is not known before its end.
        let present = totals.present;
        let whole = (!totals.stream_open).then_some(totals.known);
        let moved = match whole {
            // Repeats count as placed too.
            Some(whole) => totals.placed.min(whole.saturating_sub(present)),
            None => totals.placed,
        };
        // The sink reports the files that it named, and not those that it found unchanged.
        let counted = totals.walk_done && present == ByteCount::ZERO;
        Self {
            moved,
            present,
            total: whole.filter(|_| totals.walk_done),
            files: totals.files,
            files_total: counted.then_some(totals.files_known),
        }
    }
}

impl From<&SinkTotals> for Known {
    fn from(totals: &SinkTotals) -> Self {
        Self {
            moved: totals.verified,
            present: totals.present,
            total: (totals.manifest_done && !totals.stream_open).then_some(totals.known),
            files: totals.files + totals.files_present,
            files_total: totals.manifest_done.then_some(totals.files_known),
        }
    }
}

impl<'a> Watch<'a> {
    pub(super) fn new(reporter: &'a dyn Reporter, request: &CpRequest, routes: Routes) -> Self {
        let local = |l: &Location| matches!(l, Location::Local(_));
        let here = local(&request.dest) && request.sources.iter().all(local);
        let name = if here { "local" } else { request.transport.name() };
        let transport = Mutex::new(Current { name: name.to_owned(), used: Vec::new() });
        let ssh = |l: &Location| matches!(l, Location::Ssh { .. });
        let far = request.sources.iter().any(ssh) || ssh(&request.dest);
        let to = packtrain_service::paths::show(request.dest.path());
        let what = format!("{} to {to}", if request.options.verify { "verify" } else { "cp" });
        let book = Recorder::open(request.row(), what, request.history.clone(), here, far);
        let asked = (request.options.rate_bps, request.streams);
        let (rate, pauses) = (Mutex::default(), Mutex::default());
        let (differing, metadata) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { reporter, rate, differing, metadata, pauses, transport, book, asked, routes }
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

    /// Progress of a transfer between two other machines, in the sink's words and with the totals
    /// of the source's manifest.
    pub(super) fn relayed(&self, totals: &SinkTotals) {
        let known = Known::from(totals);
        // The sink does not say which files it found.
        let files_total = known.files_total.filter(|_| totals.present == ByteCount::ZERO);
        self.show(&Known { files_total, ..known });
    }

    fn show(&self, known: &Known) {
        self.book.progress(known.moved, known.files);
        let now = clock::now();
        let done = known.moved + known.present;
        let left = known.total.map(|total| total.saturating_sub(done));
        let (rate, eta) = {
            let mut rate = self.rate.lock();
            let current = rate.update(now, known.moved.get());
            (current, left.and_then(|left| rate.remaining(now, left)))
        };
        let over = left == Some(ByteCount::ZERO);
        let said = self.pauses.lock().update(now, done.get(), over);
        if let Some(text) = said {
            self.say(Notice::new(NoticeLevel::Info, text));
        }
        self.reporter.progress(&ProgressSnapshot {
            bytes_done: done,
            bytes_present: known.present,
            bytes_total: known.total,
            files_done: known.files,
            files_total: known.files_total,
            rate,
            eta,
            verdict: None,
            transport: self.transport.lock().name.clone(),
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
        self.show(&totals.into());
    }

    fn sink(&self, totals: &SinkTotals) {
        self.show(&totals.into());
    }

    fn transport(&self, name: &str) {
        let said = self.transport.lock().set(name);
        if let Some(text) = said {
            self.say(Notice::new(NoticeLevel::Info, text));
        }
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
    stop: StopHandle,
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
        Self::make(request)
    }

    /// A place for one file.
    pub(super) fn make(request: &CpRequest) -> Result<Self, RequestError> {
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
        Ok(Self { dir, stop: request.stop.clone(), _lock })
    }

    /// A file of which `names` is the source's, if that is known.
    pub(super) fn destination(&self, names: Option<Vec<SourceName>>) -> Destination {
        use std::os::unix::ffi::OsStrExt;
        let path = self.dir.join("out").as_os_str().as_bytes().to_vec();
        Destination { path, confined: None, sources: 1, names, owners: false }
    }

    /// Writes what was received to standard output, if nothing failed. If that takes long, the user
    /// is told, because everything else that is reported is about the transfer.
    pub(super) fn emit(&self, outcome: &Outcome, watch: &Watch<'_>) -> Result<(), RequestError> {
        if outcome.failure.is_some() || outcome.summary.failed > 0 || !outcome.failed.is_empty() {
            return Ok(());
        }
        let failed = |e: io::Error| {
            RequestError::new(FailureKind::TargetRefused, format!("standard output: {e}"))
        };
        let name = RelPath::new(b"out".to_vec()).map_err(|e| failed(io::Error::other(e)))?;
        let root = Root::open(&self.dir).map_err(failed)?;
        let refused = |kind, text: &str| Err(RequestError::new(kind, text));
        match root.stat(&name).map_err(failed)?.map(|stat| stat.kind) {
            Some(Kind::File) => {}
            // The link of another machine leads to a file of this one here.
            Some(Kind::Symlink) => {
                let text = "the source is a symbolic link: add -L for the file that it leads to";
                return refused(FailureKind::Usage, text);
            }
            Some(Kind::Directory | Kind::Special) => {
                return refused(FailureKind::Usage, "the source is not a file: name one file");
            }
            None => {
                let text = "nothing was chosen for standard output: the options leave the source \
                            out, or it is not a file";
                return refused(FailureKind::SourceMissing, text);
            }
        }
        let file = root.open_read(&name).map_err(failed)?;
        // Open, it needs no name: a reader that takes its time leaves nothing behind if this
        // process is killed.
        let _ = std::fs::remove_file(self.dir.join("out"));
        let out = process::stdout().map_err(failed)?;
        let out = out.as_fd().try_clone_to_owned().map_err(failed)?;
        let begun = clock::now();
        let is_stopped = || self.stop.requested().is_some();
        let Some(copied) = copy_out(file, out.into(), is_stopped).map_err(failed)? else {
            return Err(stopped::wish(&self.stop).into());
        };
        let took = clock::now().since(begun);
        if took >= SLOW_OUTPUT {
            let rate = DataRate::from_bytes_over(ByteCount(copied), took);
            let text = format!(
                "all data had arrived; the reader of standard output took {} more, at {rate}",
                took.to_readable()
            );
            watch.say(Notice::new(NoticeLevel::Info, text));
        }
        Ok(())
    }
}

/// Copies a file to standard output. The reader may stand still, so a thread of its own writes; none if
/// a request to stop came first. The thread then ends with the process.
fn copy_out(
    mut file: File,
    mut out: File,
    is_stopped: impl Fn() -> bool,
) -> io::Result<Option<u64>> {
    let (done, ended) = bounded(1);
    executor::spawn("stdout", move || {
        let _ = done.send(io::copy(&mut file, &mut out));
    });
    loop {
        match ended.recv_timeout(STOP_INTERVAL) {
            Ok(copied) => return copied.map(Some),
            Err(RecvTimeoutError::Timeout) if is_stopped() => return Ok(None),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Err(io::Error::other("the copy failed")),
        }
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
    fn a_reader_that_stands_still_does_not_hold_a_stop() {
        use std::io::{Read as _, Seek as _, Write as _};
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(&vec![7; 4 << 20]).expect("room");
        let begin = |mut file: &File| {
            file.rewind().expect("a file");
            file.try_clone().expect("a handle")
        };
        // More than a pipe holds.
        let (_reader, out) = io::pipe().expect("a pipe");
        let out = File::from(std::os::fd::OwnedFd::from(out));
        assert_eq!(copy_out(begin(&file), out, || true).expect("no error"), None);
        let other = tempfile::tempfile().expect("a file");
        let out = other.try_clone().expect("a handle");
        file = begin(&file);
        assert_eq!(copy_out(begin(&file), out, || false).expect("no error"), Some(4 << 20));
        let mut arrived = Vec::new();
        begin(&other).read_to_end(&mut arrived).expect("it is there");
        assert_eq!(arrived.len(), 4 << 20);
    }

    fn at(seconds: u64) -> Time {
        Time::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn a_pipe_shows_what_it_gave_and_no_end() {
        let pipe = SourceTotals {
            walk_done: true,
            stream_open: true,
            placed: ByteCount(7),
            ..SourceTotals::default()
        };
        let known = Known::from(&pipe);
        assert_eq!((known.moved, known.total), (ByteCount(7), None));
        let ended = SourceTotals { stream_open: false, known: ByteCount(5), ..pipe };
        let known = Known::from(&ended);
        assert_eq!((known.moved, known.total), (ByteCount(5), Some(ByteCount(5))));
    }

    #[test]
    fn what_was_there_counts_as_done_and_not_as_moved() {
        let sink = SinkTotals {
            manifest_done: true,
            known: ByteCount(100),
            present: ByteCount(60),
            verified: ByteCount(10),
            files: 1,
            files_present: 2,
            files_known: 5,
            ..SinkTotals::default()
        };
        let known = Known::from(&sink);
        assert_eq!((known.moved, known.present), (ByteCount(10), ByteCount(60)));
        assert_eq!(known.total, Some(ByteCount(100)));
        assert_eq!((known.files, known.files_total), (3, Some(5)));
        // A source does not learn which files the sink found.
        let source = SourceTotals {
            walk_done: true,
            known: ByteCount(100),
            present: ByteCount(60),
            placed: ByteCount(55),
            files: 1,
            files_known: 5,
            ..SourceTotals::default()
        };
        let known = Known::from(&source);
        assert_eq!((known.moved, known.files, known.files_total), (ByteCount(40), 1, None));
    }

    #[test]
    fn the_rest_is_estimated_once_there_is_a_rate() {
        let mut rate = Rate::default();
        let left = ByteCount(1_000_000);
        assert_eq!(rate.update(at(0), 0), DataRate::ZERO);
        assert_eq!(rate.update(at(9), 0), DataRate::ZERO);
        assert_eq!(rate.update(at(10), 125_000), DataRate::from_bps(1_000_000));
        assert_eq!(rate.remaining(at(10), left), None, "one moment is no rate");
        assert_eq!(rate.update(at(11), 250_000), DataRate::from_bps(1_000_000));
        assert_eq!(rate.remaining(at(11), left), None, "one second is little");
        assert_eq!(rate.update(at(13), 500_000), DataRate::from_bps(1_000_000));
        assert_eq!(rate.remaining(at(13), left), Some(Duration::from_secs(8)));
    }

    #[test]
    fn each_outage_and_its_end_are_told_once() {
        let mut pauses = Pauses::default();
        assert_eq!(pauses.update(at(0), 0, false), None);
        assert_eq!(pauses.update(at(50), 0, false), None, "nothing was asked for yet");
        assert_eq!(pauses.update(at(51), 1, false), None);
        assert_eq!(pauses.update(at(60), 1, false), None);
        let told = pauses.update(at(61), 1, false);
        assert_eq!(told.as_deref(), Some("no data has arrived for 10 s"));
        assert_eq!(pauses.update(at(75), 1, false), None);
        let told = pauses.update(at(76), 2, false);
        assert_eq!(told.as_deref(), Some("data arrives again, after 25 s"));
        assert_eq!(pauses.update(at(80), 3, true), None);
        assert_eq!(pauses.update(at(180), 3, true), None, "all is there: the disk syncs");
    }

    #[test]
    fn a_transport_that_comes_back_is_told() {
        let mut current = Current::default();
        assert_eq!(current.set("native"), None);
        assert_eq!(current.set("native"), None);
        assert_eq!(current.set("tcp"), None, "the reason was told");
        let told = current.set("native");
        assert_eq!(told.as_deref(), Some("the data goes over native again"));
    }
}
