//! Reporters that forward all events and record what a row needs.

use parking_lot::Mutex;
use std::net::SocketAddr;

use packtrain_history::{Kind, Point, Role, Row, Side};
use packtrain_os::clock;
use packtrain_transfer::FileReport;
use packtrain_units::{ByteCount, Time};

use super::Series;
use super::draft::{begin, finish_cp, finish_failed, finish_perf};
use super::keeper;
use crate::{
    CpRequest, HistoryConfig, Notice, NoticeLevel, Outcome, PerfClientRequest, PerfInterval,
    PerfOutcome, PerfReporter, ProgressSnapshot, Reporter, RequestError,
};

fn lock<T>(of: &Mutex<T>) -> parking_lot::MutexGuard<'_, T> {
    of.lock()
}

/// Stores a row; returns a notice if it failed.
fn kept(keep: &HistoryConfig, row: &Row) -> Option<Notice> {
    keeper::keep(keep, row).map(|text| Notice::new(NoticeLevel::Warning, text))
}

/// Records a copy without a packtrain end at the other side.
pub struct CopyRecorder<'a> {
    inner: &'a dyn Reporter,
    begun: Time,
    series: Mutex<Series>,
}

impl<'a> CopyRecorder<'a> {
    /// Forwards events to `inner`.
    pub fn new(inner: &'a dyn Reporter) -> Self {
        Self { inner, begun: clock::now(), series: Mutex::default() }
    }

    /// Stores the row.
    pub fn finish(self, request: &CpRequest, result: &mut Result<Outcome, RequestError>) {
        let mut row = request.row();
        let elapsed = clock::now().since(self.begun);
        row.began = row.began.saturating_sub(elapsed);
        match result {
            Ok(outcome) => {
                finish_cp(&mut row, outcome);
                outcome.id.clone_from(&row.id);
            }
            Err(error) => finish_failed(&mut row, error.kind, &error.text),
        }
        row.elapsed = elapsed;
        row.series = lock(&self.series).end(elapsed, row.bytes_moved);
        if let Some(notice) = kept(&request.history, &row) {
            self.inner.notice(&notice);
        }
    }
}

impl Reporter for CopyRecorder<'_> {
    fn progress(&self, snapshot: &ProgressSnapshot) {
        lock(&self.series).note(clock::now().since(self.begun), snapshot.bytes_done);
        self.inner.progress(snapshot);
    }

    fn file(&self, path: &[u8], report: &FileReport) {
        self.inner.file(path, report);
    }

    fn notice(&self, notice: &Notice) {
        self.inner.notice(notice);
    }

    fn sending_program(&self, host: &str, sent: ByteCount, of: ByteCount) {
        self.inner.sending_program(host, sent, of);
    }

    fn corrupted(&self, depot: &str) {
        self.inner.corrupted(depot);
    }

    fn interrupted(&self) {
        self.inner.interrupted();
    }
}

/// Records the client of a measurement.
pub struct PerfClientRecorder<'a> {
    inner: &'a dyn PerfReporter,
    points: Mutex<Vec<Point>>,
    row: Row,
}

/// Maximum number of recorded intervals.
const INTERVALS: usize = 512;

impl<'a> PerfClientRecorder<'a> {
    /// Forwards events to `inner`; the row describes `request`.
    pub fn new(inner: &'a dyn PerfReporter, request: &PerfClientRequest) -> Self {
        let mut row = begin(Kind::Perf, Side::Caller);
        let host = crate::host::split_host(&request.server);
        let host = host.map_or_else(|| request.server.clone(), |(host, _)| host);
        let here = row.host.clone();
        (row.role, row.from_host, row.to_host) =
            if request.reverse { (Role::Sink, host, here) } else { (Role::Source, here, host) };
        row.peer.clone_from(&request.server);
        row.controller = request.cc.clone().unwrap_or_default();
        row.streams = Some(request.parallel);
        Self { inner, points: Mutex::default(), row }
    }

    /// Stores the row.
    pub fn finish(mut self, keep: &HistoryConfig, result: &Result<PerfOutcome, RequestError>) {
        match result {
            Ok(outcome) => finish_perf(&mut self.row, outcome),
            Err(error) => finish_failed(&mut self.row, error.kind, &error.text),
        }
        self.row.series = std::mem::take(&mut *lock(&self.points));
        if let Some(notice) = kept(keep, &self.row) {
            self.inner.notice(&notice);
        }
    }
}

impl PerfReporter for PerfClientRecorder<'_> {
    fn listening(&self, address: SocketAddr, fingerprint: Option<&str>) {
        self.inner.listening(address, fingerprint);
    }

    fn interval(&self, interval: &PerfInterval) {
        let mut points = lock(&self.points);
        if points.len() < INTERVALS {
            points.push(Point { at: interval.to, rate: interval.goodput() });
        }
        drop(points);
        self.inner.interval(interval);
    }

    fn finished(&self, peer: &str, outcome: &PerfOutcome) {
        self.inner.finished(peer, outcome);
    }

    fn notice(&self, notice: &Notice) {
        self.inner.notice(notice);
    }
}

/// Records the tests of a measurement server.
pub struct PerfServerRecorder<'a> {
    inner: &'a dyn PerfReporter,
    keep: &'a HistoryConfig,
}

impl<'a> PerfServerRecorder<'a> {
    /// Forwards events to `inner`; rows go to `keep`.
    pub const fn new(inner: &'a dyn PerfReporter, keep: &'a HistoryConfig) -> Self {
        Self { inner, keep }
    }
}

impl PerfReporter for PerfServerRecorder<'_> {
    fn listening(&self, address: SocketAddr, fingerprint: Option<&str>) {
        self.inner.listening(address, fingerprint);
    }

    fn interval(&self, interval: &PerfInterval) {
        self.inner.interval(interval);
    }

    fn finished(&self, peer: &str, outcome: &PerfOutcome) {
        let mut row = begin(Kind::Perf, Side::Called);
        row.began = row.began.saturating_sub(outcome.elapsed);
        // The client chooses the direction. The server sees it only in the processor use.
        row.role = if outcome.cpu_sender.is_some() { Role::Source } else { Role::Sink };
        let far = peer.parse::<SocketAddr>();
        let far = far.map_or_else(|_| peer.to_owned(), |a| a.ip().to_canonical().to_string());
        (row.from_host, row.to_host) = match row.role {
            Role::Source => (row.host.clone(), far),
            _ => (far, row.host.clone()),
        };
        peer.clone_into(&mut row.peer);
        row.streams = Some(1);
        finish_perf(&mut row, outcome);
        self.inner.finished(peer, outcome);
        if let Some(notice) = kept(self.keep, &row) {
            self.inner.notice(&notice);
        }
    }

    fn notice(&self, notice: &Notice) {
        self.inner.notice(notice);
    }
}
