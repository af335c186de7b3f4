//! The sender of each unit feedback behind one interface.

use packtrain_cc::CongestionController;
use packtrain_units::{ByteCount, DataRate, Duration, Time};

use crate::sabul;
use crate::stats::{FlowStats, Limit};
use crate::udt::{self, HostUpdate, Impossible, Message, Permit};

/// A sender of unit feedback.
#[derive(Debug)]
pub(super) enum FeedbackSender {
    /// UDT's, also used for FOBS.
    Udt(Box<udt::Sender>),
    /// SABUL's.
    Sabul(Box<sabul::Sender>),
}

/// Dispatches to the sender.
macro_rules! dispatch {
    ($self:expr, $sender:ident => $answer:expr) => {
        match $self {
            FeedbackSender::Udt($sender) => $answer,
            FeedbackSender::Sabul($sender) => $answer,
        }
    };
}

impl FeedbackSender {
    /// UDT's sender.
    pub(super) fn udt(&self) -> Option<&udt::Sender> {
        match self {
            Self::Udt(sender) => Some(sender),
            Self::Sabul(_) => None,
        }
    }

    /// UDT's sender, mutable.
    pub(super) fn udt_mut(&mut self) -> Option<&mut udt::Sender> {
        match self {
            Self::Udt(sender) => Some(sender),
            Self::Sabul(_) => None,
        }
    }

    /// The units that may be sent now, if there are `fresh` new units.
    pub(super) fn poll(&mut self, now: Time, fresh: u64) -> Option<Permit> {
        dispatch!(self, sender => sender.poll(now, fresh))
    }

    /// The units that `poll` allowed are not in memory.
    pub(super) fn app_limited(&mut self) {
        dispatch!(self, sender => sender.app_limited());
    }

    /// What limits it.
    pub(super) fn limit(&self) -> Limit {
        dispatch!(self, sender => sender.limit())
    }

    /// Units were sent.
    pub(super) fn on_sent(
        &mut self,
        now: Time,
        first: u64,
        count: u32,
        wire: ByteCount,
        again: bool,
    ) {
        dispatch!(self, sender => sender.on_sent(now, first, count, wire, again));
    }

    /// All units below have arrived or were dropped.
    pub(super) fn acked(&self) -> u64 {
        dispatch!(self, sender => sender.acked())
    }

    /// Number of units known to have arrived, as the breaker counts them.
    pub(super) fn arrived(&self) -> u64 {
        match self {
            Self::Udt(sender) => sender.acked(),
            Self::Sabul(sender) => sender.received(),
        }
    }

    /// The same including units beyond a gap, where the feedback reports them.
    pub(super) fn received(&self) -> u64 {
        match self {
            Self::Udt(sender) => sender.received().unwrap_or(sender.acked()),
            Self::Sabul(sender) => sender.received(),
        }
    }

    /// The number that the next new unit gets.
    pub(super) fn next(&self) -> u64 {
        dispatch!(self, sender => sender.next())
    }

    /// Units reported lost so far.
    pub(super) fn lost(&self) -> u64 {
        dispatch!(self, sender => sender.lost())
    }

    /// Handles a message of the receiver that came in a datagram.
    pub(super) fn on_message(&mut self, now: Time, message: &Message) -> Result<(), Impossible> {
        self.udt_mut().ok_or(Impossible)?.on_message(now, message)
    }

    /// SABUL: handles a message of the reliable channel.
    pub(super) fn on_reliable_message(
        &mut self,
        now: Time,
        word: &sabul::Message,
    ) -> Result<(), Impossible> {
        match self {
            Self::Udt(_) => Err(Impossible),
            Self::Sabul(sender) => sender.on_message(now, word),
        }
    }

    /// Takes the receiving host's counters; the controller gets them with the next feedback.
    pub(super) fn on_host(&mut self, update: HostUpdate) {
        dispatch!(self, sender => sender.on_host(update));
    }

    /// The controller, for calls other than feedback.
    pub(super) fn controller_mut(&mut self) -> &mut dyn CongestionController {
        dispatch!(self, sender => sender.controller_mut())
    }

    /// The controller's rate, without the ceiling.
    pub(super) fn controller_rate(&self) -> Option<DataRate> {
        dispatch!(self, sender => sender.controller_rate())
    }

    /// Sets the owner's limit on the rate.
    pub(super) fn set_ceiling(&mut self, ceiling: Option<DataRate>) {
        dispatch!(self, sender => sender.set_ceiling(ceiling));
    }

    /// These units will not be sent again.
    pub(super) fn drop_units(&mut self, first: u64, end: u64) {
        dispatch!(self, sender => sender.drop_units(first, end));
    }

    /// Runs the timers that are due.
    pub(super) fn handle_timeout(&mut self, now: Time) {
        dispatch!(self, sender => sender.handle_timeout(now));
    }

    /// When the next timer is due, pacing included.
    pub(super) fn poll_timeout(&self) -> Option<Time> {
        dispatch!(self, sender => sender.poll_timeout())
    }

    /// When the next timer is due, without pacing: for an owner that has nothing to send.
    pub(super) fn timers(&self) -> Option<Time> {
        dispatch!(self, sender => sender.timers())
    }

    /// How often silence caused a retransmission of the last unit, and how often of everything.
    pub(super) fn silences(&self) -> (u64, u64) {
        self.udt().map_or((0, 0), udt::Sender::silences)
    }

    /// The next message to the receiver in a datagram.
    pub(super) fn poll_message(&mut self, now: Time) -> Option<Message> {
        self.udt_mut()?.poll_message(now)
    }

    /// SABUL: the next message to the receiver on the reliable channel.
    pub(super) fn poll_reliable_message(&mut self) -> Option<sabul::Message> {
        match self {
            Self::Udt(_) => None,
            Self::Sabul(sender) => sender.poll_message(),
        }
    }

    /// The smoothed round trip, once known.
    pub(super) fn rtt(&self) -> Option<Duration> {
        dispatch!(self, sender => sender.rtt())
    }

    /// Writes its gauges.
    pub(super) fn gauges(&self, stats: &mut FlowStats) {
        dispatch!(self, sender => sender.gauges(stats));
    }
}
