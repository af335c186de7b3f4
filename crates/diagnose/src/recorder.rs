//! Stores the measurements of a running transfer's ends, and its row in the history.

use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;

use crossbeam_channel::{Sender, bounded};
use packtrain_history::{Ended, Kind, Row};
use packtrain_os::clock;
use packtrain_units::{ByteCount, Time};

use super::{Diagnosis, judge_record};
use packtrain_service::evidence::{Evidence, Part, PartRole, Record};
use packtrain_service::executor::spawn;
use packtrain_service::history::{self, Series, Spool};
use packtrain_service::{HistoryConfig, Notice, NoticeLevel, Outcome, RequestError};

/// How often throughput is sampled.
const TICK: std::time::Duration = std::time::Duration::from_millis(250);
/// The row is written every fourth sample: once per second.
const WRITE: u32 = 4;

/// The recorder of one transfer.
pub struct Recorder {
    state: Arc<Mutex<State>>,
    /// Whether another writer owns the file from now on. It is held during a write, so that a slow
    /// disk delays no thread that adds measurements.
    over: Arc<Mutex<bool>>,
    keep: HistoryConfig,
    spool: Option<Spool>,
    /// Dropping it ends the thread that writes.
    _end: Sender<()>,
}

struct State {
    row: Row,
    record: Record,
    series: Series,
    begun: Time,
    ssh: bool,
}

impl State {
    fn note(&mut self) {
        let elapsed = clock::now().since(self.begun);
        self.record.written = clock::wall();
        self.record.evidence.elapsed = elapsed;
        self.series.note(elapsed, self.record.evidence.bytes);
    }

    /// The current version of the row.
    fn row(&mut self) -> Row {
        let evidence = &self.record.evidence;
        history::of_evidence(&mut self.row, evidence);
        self.row.elapsed = evidence.elapsed;
        (self.row.bytes_moved, self.row.files) = (evidence.bytes, evidence.files);
        self.row.series = self.series.points();
        self.row.evidence = serde_json::to_string(&self.record).ok();
        self.row.clone()
    }
}

impl Recorder {
    /// Starts to record the transfer of `row`; `what` describes it.
    pub fn open(row: Row, what: String, keep: HistoryConfig, local: bool, ssh: bool) -> Self {
        let record = Record {
            id: row.id.clone(),
            pid: row.pid,
            began: row.began,
            what,
            compares: row.kind == Kind::Verify,
            evidence: Evidence { local, ..Evidence::default() },
            ..Record::default()
        };
        let (series, begun) = (Series::default(), clock::now());
        let state = Arc::new(Mutex::new(State { row, record, series, begun, ssh }));
        let over = Arc::new(Mutex::new(false));
        let (end, ended) = bounded::<()>(0);
        let spool = Spool::in_state();
        let (watched, files, done) = (Arc::clone(&state), spool.clone(), Arc::clone(&over));
        spawn("record", move || {
            if let Some(spool) = &files {
                spool.prune();
            }
            for tick in 0u32.. {
                let row = {
                    let mut state = watched.lock();
                    state.note();
                    tick.is_multiple_of(WRITE).then(|| state.row())
                };
                let done = done.lock();
                if *done {
                    return;
                }
                if let (Some(spool), Some(row)) = (&files, row) {
                    // The file is optional: a full disk is reported by the transfer itself.
                    let _ = spool.write(&row);
                }
                drop(done);
                if ended.recv_timeout(TICK) != Err(crossbeam_channel::RecvTimeoutError::Timeout) {
                    return;
                }
            }
        });
        Self { state, over, keep, spool, _end: end }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// The id of the transfer.
    pub fn id(&self) -> String {
        self.state().record.id.clone()
    }

    /// Adds the measurements of an end.
    pub fn part(&self, part: Part) {
        let mut state = self.state();
        let ssh = state.ssh;
        let evidence = &mut state.record.evidence;
        match part.role {
            PartRole::Source => {
                evidence.source = Some(part.end);
                if let Some(mut path) = part.path {
                    path.ssh = ssh;
                    evidence.path = Some(path);
                }
            }
            PartRole::Sink => evidence.sink = Some(part.end),
        }
    }

    /// Updates the progress.
    pub fn progress(&self, bytes: ByteCount, files: u64) {
        let evidence = &mut self.state().record.evidence;
        evidence.bytes = evidence.bytes.max(bytes);
        evidence.files = evidence.files.max(files);
    }

    /// Ends the measurements and returns the diagnosis.
    pub fn judge(&self, bytes: ByteCount, files: u64) -> Diagnosis {
        self.progress(bytes, files);
        let mut state = self.state();
        state.note();
        state.record.over = true;
        judge_record(&state.record)
    }

    /// Stores the row of a finished transfer; a dry run has none.
    pub fn close(&self, outcome: &Outcome, dry: bool) -> Option<Notice> {
        *self.over.lock() = true;
        let mut state = self.state();
        let mut row = state.row();
        history::finish_cp(&mut row, outcome);
        row.series = state.series.end(outcome.elapsed, row.bytes_moved);
        drop(state);
        if dry {
            if let Some(spool) = &self.spool {
                spool.remove(&row);
            }
            return None;
        }
        self.keep(&row)
    }

    /// Stores the row of a transfer that failed before there was an outcome.
    pub fn fail(&self, error: &RequestError) -> Option<Notice> {
        *self.over.lock() = true;
        let mut state = self.state();
        state.record.over = true;
        let mut row = state.row();
        drop(state);
        history::finish_failed(&mut row, error.kind, &error.text);
        self.keep(&row)
    }

    fn keep(&self, row: &Row) -> Option<Notice> {
        debug_assert_ne!(row.ended, Ended::Running, "it is over");
        let said = history::keep(&self.keep, row);
        said.map(|text| Notice::new(NoticeLevel::Warning, text))
    }
}
