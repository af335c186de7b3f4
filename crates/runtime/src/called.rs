//! The history row of a responder: a transfer as a server, or a process started by ssh, observed
//! it.

use parking_lot::Mutex;

use packtrain_history::{Ended, Kind, Role, Row, Side};
use packtrain_os::clock;
use packtrain_transfer::message::{Open, Role as Asked};
use packtrain_transfer::{Failure, FileReport, SinkTotals, SourceTotals};
use packtrain_units::{ByteCount, Duration, Time};

use crate::session::Observer;
use crate::transports::Moved;
use packtrain_service::evidence::{Evidence, Part, PartRole};
use packtrain_service::history::{
    self, Earlier, Series, begin, finish_cp, finish_failed, of_evidence,
};
use packtrain_service::{HistoryConfig, Notice, Outcome, TransportShare};

/// Observes one responder for its row.
pub struct Called {
    keep: HistoryConfig,
    begun: Time,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// None until the initiator was admitted.
    row: Option<Row>,
    evidence: Evidence,
    series: Series,
    bytes: ByteCount,
}

impl Called {
    /// Collects a row for the history `keep`.
    pub fn new(keep: HistoryConfig) -> Self {
        Self { keep, begun: clock::now(), state: Mutex::default() }
    }

    fn state(&self) -> parking_lot::MutexGuard<'_, State> {
        self.state.lock()
    }

    fn progress(&self, bytes: ByteCount) {
        let at = clock::now().since(self.begun);
        let mut state = self.state();
        state.bytes = state.bytes.max(bytes);
        let bytes = state.bytes;
        state.series.note(at, bytes);
    }

    /// The row, if the initiator was admitted. `peer` is its address, with its key if it has one.
    pub fn row(
        &self,
        peer: &str,
        elapsed: Duration,
        result: &Result<(packtrain_transfer::Outcome, Moved), Failure>,
    ) -> Option<Row> {
        let mut state = self.state();
        let mut row = state.row.take()?;
        peer.clone_into(&mut row.peer);
        let far = peer.split(' ').next().unwrap_or_default();
        let far = far
            .parse::<std::net::SocketAddr>()
            .map_or_else(|_| far.to_owned(), |address| address.ip().to_canonical().to_string());
        match row.role {
            Role::Sink => (row.from_host, row.to_host) = (far, row.host.clone()),
            _ => (row.from_host, row.to_host) = (row.host.clone(), far),
        }
        of_evidence(&mut row, &state.evidence);
        match result {
            Ok((outcome, moved)) => finish_cp(&mut row, &outcome_of(outcome, moved, elapsed)),
            Err(failure) => finish_failed(&mut row, failure.kind, &failure.text),
        }
        if row.ended == Ended::Cancelled {
            // The signal was sent to the initiator; this process did not end by one.
            row.exit_code = None;
        }
        if row.kind == Kind::Perf {
            let bytes = row.transports.iter().map(|one| one.bytes.get()).sum();
            (row.bytes, row.bytes_moved) = (ByteCount(bytes), ByteCount(bytes));
            if bytes > 0 && !elapsed.is_zero() {
                row.throughput = packtrain_units::DataRate::from_bytes_over(row.bytes, elapsed);
            }
        }
        row.series = state.series.end(elapsed, row.bytes_moved);
        Some(row)
    }
}

/// The outcome of a transfer at a responder.
pub fn outcome_of(
    outcome: &packtrain_transfer::Outcome,
    moved: &Moved,
    elapsed: Duration,
) -> Outcome {
    let share =
        |(name, bytes): &(String, ByteCount)| TransportShare { name: name.clone(), bytes: *bytes };
    Outcome {
        transport: moved.shares.first().map_or("none", |share| share.0.as_str()).to_owned(),
        shares: moved.shares.iter().map(share).collect(),
        retransmitted: moved.retransmitted,
        streams: moved.streams.clone(),
        loss_cause: moved.causes.clone(),
        rtt: moved.rtt,
        held_by: moved.held.map(|by| by.word().to_owned()),
        summary: outcome.summary,
        elapsed,
        failure: outcome.failure.clone(),
        failed: outcome.failed.clone(),
        ..Outcome::default()
    }
}

impl Observer for Called {
    fn file(&self, _: &[u8], _: &FileReport) {}

    fn source(&self, totals: &SourceTotals) {
        self.progress(totals.placed);
    }

    fn sink(&self, totals: &SinkTotals) {
        self.progress(totals.verified);
    }

    fn transport(&self, _: &str) {}

    fn notice(&self, _: &Notice) {}

    fn asked(&self, open: &Open, perf: Option<u32>, transport: &str) {
        let kind = match (perf, open.options.verify) {
            (Some(_), _) => Kind::Perf,
            (None, true) => Kind::Verify,
            (None, false) => Kind::Cp,
        };
        if open.options.dry_run && kind == Kind::Cp {
            return;
        }
        let mut row = begin(kind, Side::Called);
        let first = open.paths.first().map(|path| packtrain_service::paths::show(path));
        let more = open.paths.len().saturating_sub(1);
        let paths = match (first, more) {
            (None, _) => String::new(),
            (Some(first), 0) => first,
            (Some(first), more) => format!("{first} and {more} more"),
        };
        match open.role {
            Asked::Sink => (row.role, row.target) = (Role::Sink, paths),
            Asked::Source => (row.role, row.source) = (Role::Source, paths),
        }
        transport.clone_into(&mut row.transport);
        row.streams = perf;
        self.state().row = Some(row);
    }

    fn earlier(&self, to: &str) -> Earlier {
        history::earlier_to(&self.keep, to)
    }

    fn saw(&self, part: &Part) {
        let evidence = &mut self.state().evidence;
        match part.role {
            PartRole::Source => {
                evidence.source = Some(part.end.clone());
                evidence.path.clone_from(&part.path);
            }
            PartRole::Sink => evidence.sink = Some(part.end.clone()),
        }
    }
}
