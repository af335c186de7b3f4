//! The receiving end.

use packtrain_cc::udt::Variant;
use packtrain_units::{Duration, Time};

use super::message::{Impossible, Message};
use crate::stats::FlowStats;

/// How a receiver is to be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReceiverConfig {
    /// Whose rules.
    pub(crate) variant: Variant,
    /// The first unit's number.
    pub(crate) first: u64,
    /// Most units accepted beyond the first that is missing.
    pub(crate) window: u64,
    /// Most units that the sender sends back to back, as far as known: with 1 the estimators are
    /// the paper's unless packets come in batches.
    pub(crate) train: u32,
}

/// What a unit's number says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// To be placed.
    New,
    /// It is here already, or was dropped.
    Again,
    /// Beyond what the window admits.
    Outside,
}

/// The receiving end of a flow.
#[derive(Debug)]
pub(crate) struct Receiver {
    config: ReceiverConfig,
}

impl Receiver {
    /// A receiver that starts now.
    pub(crate) fn new(config: ReceiverConfig, now: Time) -> Self {
        let _ = now;
        Self { config }
    }

    /// What this unit is to it.
    pub(crate) fn check(&self, unit: u64) -> Seen {
        let _ = unit;
        Seen::New
    }

    /// These units came and were placed; what they show to be missing is asked for at once.
    pub(crate) fn take(&mut self, now: Time, first: u64, count: u32) {
        let _ = (now, first, count);
    }

    /// Packets came that the host gave in one batch: so many, the first and the last of them
    /// these units, the last at `at`. `joined` if the wire tells that the sender sent `first`
    /// right behind the unit before it; a wire that cannot tell says `first % 16 == 1`. Once a
    /// batch, a lone packet being one; repeats count too.
    pub(crate) fn on_batch(&mut self, at: Time, first: u64, last: u64, packets: u32, joined: bool) {
        let _ = (at, first, last, packets, joined);
    }

    /// The sender said this.
    pub(crate) fn on_message(&mut self, now: Time, message: &Message) -> Result<(), Impossible> {
        let _ = (now, message);
        Ok(())
    }

    /// What to tell the sender.
    pub(crate) fn poll_message(&mut self, now: Time) -> Option<Message> {
        let _ = now;
        None
    }

    /// The owner has room for so many units from `next` on.
    pub(crate) fn set_room(&mut self, now: Time, units: u64) {
        let _ = (now, units);
    }

    /// Runs the timers that are due.
    pub(crate) fn handle_timeout(&mut self, now: Time) {
        let _ = now;
    }

    /// When something happens by itself.
    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        None
    }

    /// The first unit that has not come: all below have, or were dropped.
    pub(crate) fn next(&self) -> u64 {
        0
    }

    /// The smoothed round trip, once measured.
    pub(crate) fn rtt(&self) -> Option<Duration> {
        None
    }

    /// Writes its gauges.
    pub(crate) fn gauges(&self, stats: &mut FlowStats) {
        let _ = stats;
    }
}
