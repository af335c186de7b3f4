//! One lane: one socket of a flow, with its own path, packet numbers and tail probes.

use std::net::SocketAddr;

use packtrain_units::{Duration, Time};

use crate::core::delay::Delay;
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
    /// Queueing delay on its way: each lane may take a path of its own.
    pub(crate) delay: Delay,
    /// Number after that of the newest packet that gave a round-trip sample.
    pub(crate) measured_to: u64,
    /// When a packet was last acknowledged, or the first one was sent after all had been: the start
    /// of the wait for feedback (RFC 6298 section 5, rules 5.1 and 5.3). Sending more does not
    /// extend the wait, so that a black hole shows while data still leaves.
    waiting_since: Time,
    probes: u32,
}

impl Lane {
    /// `known`: the peer is known to be at all of the candidates.
    pub(crate) fn new(candidates: Vec<SocketAddr>, known: bool, now: Time) -> Self {
        Self {
            path: Path::new(candidates, known, now),
            window: Window::new(),
            drops: SocketDrops::default(),
            ledger: Ledger::default(),
            delay: Delay::default(),
            measured_to: 0,
            waiting_since: now,
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
        self.waiting_since = now;
        self.probes = 0;
    }

    /// A train or tracked packet is about to be sent on it.
    pub(crate) fn on_sending(&mut self, now: Time) {
        if self.ledger.is_settled() {
            self.waiting_since = now;
        }
    }

    /// When a tail probe is due, if a packet sent on it is unacknowledged. `overdue` is the maximum
    /// time that a report takes.
    pub(crate) fn tail_at(&self, overdue: Duration) -> Option<Time> {
        if self.ledger.is_settled() || !self.is_open() {
            return None;
        }
        let gap = (overdue * (1 << self.probes.min(10))).min(MAX_TAIL_PROBE_GAP.max(overdue));
        Some(self.waiting_since + gap)
    }

    /// A tail probe is sent.
    pub(crate) fn on_tail_probe(&mut self, now: Time) {
        self.waiting_since = now;
        self.probes += 1;
    }
}
