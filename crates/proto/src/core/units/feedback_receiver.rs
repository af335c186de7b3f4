//! The receiver of whichever feedback counts in units: one set of names for all of them.

use packtrain_units::{Duration, Time};

use crate::fobs::{self, Bitmap};
use crate::sabul;
use crate::stats::FlowStats;
use crate::udt::{self, Impossible, Message, Seen};

/// A feedback's receiver.
#[derive(Debug)]
pub(super) enum FeedbackReceiver {
    /// UDT's.
    Udt(Box<udt::Receiver>),
    /// FOBS's.
    Fobs(Box<fobs::Receiver>),
    /// SABUL's.
    Sabul(Box<sabul::Receiver>),
}

/// Asks the one there is.
macro_rules! ask {
    ($self:expr, $receiver:ident => $answer:expr) => {
        match $self {
            FeedbackReceiver::Udt($receiver) => $answer,
            FeedbackReceiver::Fobs($receiver) => $answer,
            FeedbackReceiver::Sabul($receiver) => $answer,
        }
    };
}

impl FeedbackReceiver {
    /// What this unit is to it.
    pub(super) fn check(&self, unit: u64) -> Seen {
        ask!(self, receiver => receiver.check(unit))
    }

    /// These units came and were placed.
    pub(super) fn take(&mut self, now: Time, first: u64, count: u32) {
        ask!(self, receiver => receiver.take(now, first, count));
    }

    /// Packets came in one batch, repeats among them: the first and the last of them these units.
    pub(super) fn on_batch(
        &mut self,
        (now, at): (Time, Time),
        first: u64,
        last: u64,
        packets: u32,
        joined: bool,
    ) {
        match self {
            Self::Udt(receiver) => receiver.on_batch(at, first, last, packets, joined),
            Self::Fobs(receiver) => receiver.on_batch(now, at, last),
            Self::Sabul(_) => {}
        }
    }

    /// The first unit that has not come.
    pub(super) fn next(&self) -> u64 {
        ask!(self, receiver => receiver.next())
    }

    /// Behind the highest unit that came.
    pub(super) fn top(&self) -> u64 {
        ask!(self, receiver => receiver.top())
    }

    /// How many units came that are beyond a missing one.
    pub(super) fn held(&self) -> u64 {
        ask!(self, receiver => receiver.held())
    }

    /// The smoothed round trip, once known.
    pub(super) fn rtt(&self) -> Option<Duration> {
        match self {
            Self::Udt(receiver) => receiver.rtt(),
            Self::Fobs(receiver) => receiver.rtt(),
            Self::Sabul(_) => None,
        }
    }

    /// The owner has room for so many units from `next` on.
    pub(super) fn set_room(&mut self, now: Time, units: u64) {
        match self {
            Self::Udt(receiver) => receiver.set_room(now, units),
            Self::Fobs(receiver) => receiver.set_room(now, units),
            Self::Sabul(receiver) => receiver.set_room(units),
        }
    }

    /// The sender said this.
    pub(super) fn on_message(&mut self, now: Time, message: &Message) -> Result<(), Impossible> {
        match self {
            Self::Udt(receiver) => receiver.on_message(now, message),
            Self::Fobs(receiver) => receiver.on_message(now, message),
            Self::Sabul(_) => Err(Impossible),
        }
    }

    /// FOBS: the sender wants everything told.
    pub(super) fn on_ask(&mut self, now: Time, rtt: Duration) -> Result<(), Impossible> {
        match self {
            Self::Fobs(receiver) => {
                receiver.on_ask(now, rtt);
                Ok(())
            }
            Self::Udt(_) | Self::Sabul(_) => Err(Impossible),
        }
    }

    /// SABUL: the sender said this by the channel that loses nothing.
    pub(super) fn on_word(&mut self, now: Time, word: &sabul::Message) -> Result<(), Impossible> {
        match self {
            Self::Sabul(receiver) => receiver.on_message(now, word),
            Self::Udt(_) | Self::Fobs(_) => Err(Impossible),
        }
    }

    /// Runs the timers that are due.
    pub(super) fn handle_timeout(&mut self, now: Time) {
        match self {
            Self::Udt(receiver) => receiver.handle_timeout(now),
            Self::Fobs(_) => {}
            Self::Sabul(receiver) => receiver.handle_timeout(now),
        }
    }

    /// When something happens by itself.
    pub(super) fn poll_timeout(&self) -> Option<Time> {
        ask!(self, receiver => receiver.poll_timeout())
    }

    /// What to tell the sender.
    pub(super) fn poll_message(&mut self, now: Time) -> Option<Message> {
        match self {
            Self::Udt(receiver) => receiver.poll_message(now),
            Self::Fobs(_) | Self::Sabul(_) => None,
        }
    }

    /// SABUL: what to tell the sender.
    pub(super) fn poll_word(&mut self, now: Time) -> Option<sabul::Message> {
        match self {
            Self::Udt(_) | Self::Fobs(_) => None,
            Self::Sabul(receiver) => receiver.poll_message(now),
        }
    }

    /// FOBS: what to tell the sender.
    pub(super) fn poll_bitmap(&mut self, now: Time) -> Option<Bitmap> {
        match self {
            Self::Udt(_) | Self::Sabul(_) => None,
            Self::Fobs(receiver) => receiver.poll_bitmap(now),
        }
    }

    /// Writes its gauges.
    pub(super) fn gauges(&self, stats: &mut FlowStats) {
        match self {
            Self::Udt(receiver) => receiver.gauges(stats),
            Self::Fobs(receiver) => stats.rtt = receiver.rtt(),
            Self::Sabul(_) => {}
        }
    }
}
