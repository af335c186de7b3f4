//! The sending end.

use packtrain_cc::CongestionController;
use packtrain_cc::udt::Variant;
use packtrain_units::{ByteCount, DataRate, Duration, Time};

use super::message::{Impossible, Message};
use crate::stats::{FlowStats, Limit};

/// How a sender is to be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SenderConfig {
    /// Whose rules.
    pub(crate) variant: Variant,
    /// The first unit's number.
    pub(crate) first: u64,
    /// Wire bytes of a full datagram (UDP payload).
    pub(crate) datagram: ByteCount,
    /// Most units back to back: 1 is the paper's pacing by packet.
    pub(crate) train: u32,
    /// Most unacknowledged units that the owner can hold.
    pub(crate) window: u64,
}

/// Leave to send. What has not left, or not all, is offered again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leave {
    /// These units again.
    Again {
        /// The first of them.
        first: u64,
        /// How many at most.
        count: u32,
    },
    /// So many new units, from `Sender::next` on.
    Fresh {
        /// How many at most.
        count: u32,
        /// The first of them leaves right behind the unit before it, unpaced: a wire that can
        /// tells the receiver so (every other unit of a train follows at once anyhow).
        joined: bool,
    },
}

/// The sending end of a flow.
#[derive(Debug)]
pub(crate) struct Sender {
    config: SenderConfig,
    controller: Box<dyn CongestionController>,
}

impl Sender {
    /// A sender that starts now.
    pub(crate) fn new(
        config: SenderConfig,
        controller: Box<dyn CongestionController>,
        now: Time,
    ) -> Self {
        let _ = now;
        Self { config, controller }
    }

    /// What may leave now, if the owner has `fresh` new units ready. None: wait for
    /// `poll_timeout`, for a message or for more units; `limit` says why.
    pub(crate) fn poll(&mut self, now: Time, fresh: u64) -> Option<Leave> {
        let _ = (now, fresh);
        None
    }

    /// Units left: `again`, or new ones, of so many wire bytes together.
    pub(crate) fn on_sent(
        &mut self,
        now: Time,
        first: u64,
        count: u32,
        wire: ByteCount,
        again: bool,
    ) {
        let _ = (now, first, count, wire, again);
    }

    /// The receiver said this.
    pub(crate) fn on_message(&mut self, now: Time, message: &Message) -> Result<(), Impossible> {
        let _ = (now, message);
        Ok(())
    }

    /// What to tell the receiver.
    pub(crate) fn poll_message(&mut self, now: Time) -> Option<Message> {
        let _ = now;
        None
    }

    /// Sent units that are not to be sent again, since the owner cannot or must not; the receiver
    /// is told.
    pub(crate) fn drop_units(&mut self, first: u64, end: u64) {
        let _ = (first, end);
    }

    /// Runs the timers that are due.
    pub(crate) fn handle_timeout(&mut self, now: Time) {
        let _ = now;
    }

    /// When something happens by itself.
    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        None
    }

    /// All units below have arrived, or were dropped.
    pub(crate) fn acked(&self) -> u64 {
        0
    }

    /// The number that the next new unit gets.
    pub(crate) fn next(&self) -> u64 {
        0
    }

    /// What keeps it from sending more.
    pub(crate) fn limit(&self) -> Limit {
        Limit::Idle
    }

    /// The smoothed round trip, once known.
    pub(crate) fn rtt(&self) -> Option<Duration> {
        None
    }

    /// The owner's own limit on the rate.
    pub(crate) fn set_ceiling(&mut self, ceiling: Option<DataRate>) {
        let _ = ceiling;
    }

    /// Writes its gauges.
    pub(crate) fn gauges(&self, stats: &mut FlowStats) {
        let _ = stats;
    }
}
