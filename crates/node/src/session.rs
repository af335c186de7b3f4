//! What both ends of a transfer share: who watches it and who stops it.

use packtrain_transfer::message::{Message, Open};
use packtrain_transfer::{Failure, FailureKind, FileReport, SinkTotals, SourceTotals};
use packtrain_units::{Duration, Time};

use crate::api::{Notice, StopHandle};
use crate::control::ControlSender;
use crate::diagnose::Part;

/// Watches one end of a transfer. Calls come from its thread and must not block for long.
pub(crate) trait Observer: Send + Sync {
    /// A file is done.
    fn file(&self, path: &[u8], report: &FileReport);
    /// How far the source is, a few times a second.
    fn source(&self, totals: &SourceTotals);
    /// How far the sink is, a few times a second.
    fn sink(&self, totals: &SinkTotals);
    /// Which transport moves the data now.
    fn transport(&self, name: &str);
    /// Something to say.
    fn notice(&self, notice: &Notice);
    /// Whether evidence is kept here; otherwise it goes to the other end.
    fn keeps(&self) -> bool {
        false
    }
    /// An end tells of itself, once a second.
    fn part(&self, _: Part) {}
    /// A called end: its caller was let in and asks for this; `perf` is the number of flows of a
    /// measurement.
    fn asked(&self, _: &Open, _perf: Option<u32>, _transport: &str) {}
    /// What earlier transfers to a machine measured with how many streams.
    fn earlier(&self, _to: &str) -> Vec<packtrain_plan::streams::Sample> {
        Vec::new()
    }
    /// What goes to the other end as this end's part.
    fn saw(&self, _: &Part) {}
}

/// The wish to end, taken once.
#[derive(Clone, Debug)]
pub(crate) struct Stop {
    handle: StopHandle,
    taken: bool,
}

impl Stop {
    pub(crate) fn new(handle: StopHandle) -> Self {
        Self { handle, taken: false }
    }

    /// The failure to end with, the first time it is asked after somebody wished the end.
    pub(crate) fn take(&mut self) -> Option<Failure> {
        if self.taken {
            return None;
        }
        let failure = self.asked();
        self.taken = failure.is_some();
        failure
    }

    /// The failure to end with, if somebody wished the end.
    pub(crate) fn asked(&self) -> Option<Failure> {
        self.handle.requested().map(|_| Failure::new(FailureKind::Cancelled, "stopped on request"))
    }
}

/// Silence after which the other end is asked whether it is there.
const ASK_AFTER: Duration = Duration::from_secs(30);
/// Silence after which it is not: a machine that sleeps or a process that was stopped.
const SILENT_AFTER: Duration = Duration::from_secs(150);

/// Whether the other end is alive.
#[derive(Debug)]
pub(crate) struct Pulse {
    heard: Time,
    asked: Time,
    over: bool,
}

impl Pulse {
    pub(crate) fn new(now: Time) -> Self {
        Self { heard: now, asked: now, over: false }
    }

    /// Something came.
    pub(crate) fn heard(&mut self, now: Time) {
        self.heard = now;
    }

    /// Asks after some silence; the failure to end with, once, after too much.
    pub(crate) fn check(&mut self, now: Time, tx: &ControlSender) -> Option<Failure> {
        let silence = now.since(self.heard);
        if silence >= SILENT_AFTER && !self.over {
            self.over = true;
            let text = format!("nothing heard from the other end for {silence}");
            return Some(Failure::new(FailureKind::Temporary, text));
        }
        if silence >= ASK_AFTER && now.since(self.asked) >= ASK_AFTER {
            self.asked = now;
            tx.send(&Message::Ping(now.as_nanos()));
        }
        None
    }
}
