//! One lane: a socket's worth of a flow, with its own path, packet numbers and tail probes.

use std::net::SocketAddr;

use packtrain_units::{Duration, Time};

use crate::core::ledger::Ledger;
use crate::core::socket_drops::SocketDrops;
use crate::core::window::Window;
use crate::path::Path;

/// Tail probes without an answer after which a lane carries no data while another can.
const DEAD_PROBES: u32 = 3;
/// The longest gap between two tail probes.
const MAX_TAIL_PROBE_GAP: Duration = Duration::from_secs(1);

/// The state of one lane at one end.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) path: Path,
    /// What arrived by it.
    pub(crate) window: Window,
    /// What of that the host itself dropped.
    pub(crate) drops: SocketDrops,
    /// What left by it.
    pub(crate) ledger: Ledger,
    /// Newest packet that gave a sample of the round trip, plus one.
    pub(crate) measured_to: u64,
    /// When something was last sent or acknowledged.
    pub(crate) active_at: Time,
    probes: u32,
}

impl Lane {
    pub(crate) fn new(candidates: Vec<SocketAddr>, now: Time) -> Self {
        Self {
            path: Path::new(candidates, now),
            window: Window::new(),
            drops: SocketDrops::default(),
            ledger: Ledger::default(),
            measured_to: 0,
            active_at: now,
            probes: 0,
        }
    }

    /// Whether data may leave by it.
    pub(crate) fn is_open(&self) -> bool {
        self.path.remote().is_some()
    }

    /// Whether its last tail probes all went without an answer.
    pub(crate) fn is_dead(&self) -> bool {
        self.probes >= DEAD_PROBES
    }

    /// Something sent by it was acknowledged.
    pub(crate) fn on_progress(&mut self, now: Time) {
        self.active_at = now;
        self.probes = 0;
    }

    /// When a tail probe is due, if anything sent by it is open. `overdue` is how long a report
    /// may take.
    pub(crate) fn tail_at(&self, overdue: Duration) -> Option<Time> {
        if self.ledger.is_settled() || !self.is_open() {
            return None;
        }
        let gap = (overdue * (1 << self.probes.min(10))).min(MAX_TAIL_PROBE_GAP.max(overdue));
        Some(self.active_at + gap)
    }

    /// A tail probe leaves; true if the lane has just died.
    pub(crate) fn on_tail_probe(&mut self, now: Time) -> bool {
        self.active_at = now;
        self.probes += 1;
        self.probes == DEAD_PROBES
    }
}
