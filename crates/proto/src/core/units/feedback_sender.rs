//! The sender of whichever feedback counts in units: one set of names for all of them.

use packtrain_cc::CongestionController;
use packtrain_units::{ByteCount, DataRate, Duration, Time};

use crate::sabul;
use crate::stats::{FlowStats, Limit};
use crate::udt::{self, HostNews, Impossible, Leave, Message};

/// A feedback's sender.
#[derive(Debug)]
pub(super) enum FeedbackSender {
    /// UDT's, which serves FOBS too.
    Udt(Box<udt::Sender>),
    /// SABUL's.
    Sabul(Box<sabul::Sender>),
}

/// Asks the one there is.
macro_rules! ask {
    ($self:expr, $sender:ident => $answer:expr) => {
        match $self {
            FeedbackSender::Udt($sender) => $answer,
            FeedbackSender::Sabul($sender) => $answer,
        }
    };
}

impl FeedbackSender {
    /// UDT's, if it is that.
    pub(super) fn udt(&self) -> Option<&udt::Sender> {
        match self {
            Self::Udt(sender) => Some(sender),
            Self::Sabul(_) => None,
        }
    }

    /// The same, to be changed.
    pub(super) fn udt_mut(&mut self) -> Option<&mut udt::Sender> {
        match self {
            Self::Udt(sender) => Some(sender),
            Self::Sabul(_) => None,
        }
    }

    /// What may leave now, if there are `fresh` new units.
    pub(super) fn poll(&mut self, now: Time, fresh: u64) -> Option<Leave> {
        ask!(self, sender => sender.poll(now, fresh))
    }

    /// What keeps it from sending more.
    pub(super) fn limit(&self) -> Limit {
        ask!(self, sender => sender.limit())
    }

    /// Units left.
    pub(super) fn on_sent(
        &mut self,
        now: Time,
        first: u64,
        count: u32,
        wire: ByteCount,
        again: bool,
    ) {
        ask!(self, sender => sender.on_sent(now, first, count, wire, again));
    }

    /// All units below have arrived, or were dropped.
    pub(super) fn acked(&self) -> u64 {
        ask!(self, sender => sender.acked())
    }

    /// How many units are known to have arrived, by whatever the breaker is to count.
    pub(super) fn arrived(&self) -> u64 {
        match self {
            Self::Udt(sender) => sender.acked(),
            Self::Sabul(sender) => sender.received(),
        }
    }

    /// The same with those beyond a gap, where the feedback tells of them.
    pub(super) fn came(&self) -> u64 {
        match self {
            Self::Udt(sender) => sender.came().unwrap_or(sender.acked()),
            Self::Sabul(sender) => sender.received(),
        }
    }

    /// The number that the next new unit gets.
    pub(super) fn next(&self) -> u64 {
        ask!(self, sender => sender.next())
    }

    /// Units that were reported lost so far.
    pub(super) fn lost(&self) -> u64 {
        ask!(self, sender => sender.lost())
    }

    /// The receiver said this by datagram.
    pub(super) fn on_message(&mut self, now: Time, message: &Message) -> Result<(), Impossible> {
        self.udt_mut().ok_or(Impossible)?.on_message(now, message)
    }

    /// SABUL: the receiver said this by the channel that loses nothing.
    pub(super) fn on_word(&mut self, now: Time, word: &sabul::Message) -> Result<(), Impossible> {
        match self {
            Self::Udt(_) => Err(Impossible),
            Self::Sabul(sender) => sender.on_message(now, word),
        }
    }

    /// The receiving host told this; the controller hears it with the next feedback.
    pub(super) fn on_host(&mut self, news: HostNews) {
        ask!(self, sender => sender.on_host(news));
    }

    /// The controller, for what is no feedback.
    pub(super) fn controller_mut(&mut self) -> &mut dyn CongestionController {
        ask!(self, sender => sender.controller_mut())
    }

    /// The controller's rate, whatever the ceiling.
    pub(super) fn controller_rate(&self) -> Option<DataRate> {
        ask!(self, sender => sender.controller_rate())
    }

    /// The owner's own limit on the rate.
    pub(super) fn set_ceiling(&mut self, ceiling: Option<DataRate>) {
        ask!(self, sender => sender.set_ceiling(ceiling));
    }

    /// These units are not to be sent again.
    pub(super) fn drop_units(&mut self, first: u64, end: u64) {
        ask!(self, sender => sender.drop_units(first, end));
    }

    /// Runs the timers that are due.
    pub(super) fn handle_timeout(&mut self, now: Time) {
        ask!(self, sender => sender.handle_timeout(now));
    }

    /// When something happens by itself.
    pub(super) fn poll_timeout(&self) -> Option<Time> {
        ask!(self, sender => sender.poll_timeout())
    }

    /// The same for an owner that would not send anything now anyhow.
    pub(super) fn timers(&self) -> Option<Time> {
        ask!(self, sender => sender.timers())
    }

    /// How often nothing was heard for so long that something was repeated, and everything.
    pub(super) fn silences(&self) -> (u64, u64) {
        self.udt().map_or((0, 0), udt::Sender::silences)
    }

    /// What to tell the receiver by datagram.
    pub(super) fn poll_message(&mut self, now: Time) -> Option<Message> {
        self.udt_mut()?.poll_message(now)
    }

    /// SABUL: what to tell the receiver by the channel that loses nothing.
    pub(super) fn poll_word(&mut self) -> Option<sabul::Message> {
        match self {
            Self::Udt(_) => None,
            Self::Sabul(sender) => sender.poll_message(),
        }
    }

    /// The smoothed round trip, once known.
    pub(super) fn rtt(&self) -> Option<Duration> {
        ask!(self, sender => sender.rtt())
    }

    /// Writes its gauges.
    pub(super) fn gauges(&self, stats: &mut FlowStats) {
        ask!(self, sender => sender.gauges(stats));
    }
}
