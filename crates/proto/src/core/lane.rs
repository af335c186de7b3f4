//! One lane: one socket of a flow, with its own path, packet numbers and tail probes.

use std::net::SocketAddr;

use packtrain_units::{Duration, Time};

use crate::core::ledger::Ledger;
use crate::core::socket_drops::SocketDrops;
use crate::core::window::Window;
use crate::path::Path;

/// Unanswered tail probes after which a lane carries no data while another lane can.
const DEAD_PROBES: u32 = 3;
/// Maximum gap between two tail probes.
const MAX_TAIL_PROBE_GAP: Duration = Duration::from_secs(1);

/// The state of one lane at one end.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) path: Path,
    /// Received packet numbers.
    pub(crate) window: Window,
    /// Drops of the local host at this socket.
    pub(crate) drops: SocketDrops,
    /// Sent trains.
    pub(crate) ledger: Ledger,
    /// Number after that of the newest packet that gave a round-trip sample.
    pub(crate) measured_to: u64,
    /// When a packet was last sent or acknowledged.
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

    /// Whether data may be sent on it.
    pub(crate) fn is_open(&self) -> bool {
        self.path.remote().is_some()
    }

    /// Whether its last tail probes all remained unanswered.
    pub(crate) fn is_dead(&self) -> bool {
        self.probes >= DEAD_PROBES
    }

    /// A packet sent on it was acknowledged.
    pub(crate) fn on_progress(&mut self, now: Time) {
        self.active_at = now;
        self.probes = 0;
    }

    /// When a tail probe is due, if a packet sent on it is unacknowledged. `overdue` is the maximum
    /// time that a report takes.
    pub(crate) fn tail_at(&self, overdue: Duration) -> Option<Time> {
        if self.ledger.is_settled() || !self.is_open() {
            return None;
        }
        let gap = (overdue * (1 << self.probes.min(10))).min(MAX_TAIL_PROBE_GAP.max(overdue));
        Some(self.active_at + gap)
    }

    /// A tail probe is sent. Returns true if the lane has just become dead.
    pub(crate) fn on_tail_probe(&mut self, now: Time) -> bool {
        self.active_at = now;
        self.probes += 1;
        self.probes == DEAD_PROBES
    }
}
