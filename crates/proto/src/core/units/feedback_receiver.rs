//! The receiver of each unit feedback behind one interface.

use packtrain_units::{Duration, Time};

use crate::fobs::{self, Bitmap};
use crate::sabul;
use crate::stats::FlowStats;
use crate::udt::{self, Impossible, Message, UnitStatus};

/// A receiver of unit feedback.
#[derive(Debug)]
pub(super) enum FeedbackReceiver {
    /// UDT's.
    Udt(Box<udt::Receiver>),
    /// FOBS's.
    Fobs(Box<fobs::Receiver>),
    /// SABUL's.
    Sabul(Box<sabul::Receiver>),
}

/// Dispatches to the receiver.
macro_rules! dispatch {
    ($self:expr, $receiver:ident => $answer:expr) => {
        match $self {
            FeedbackReceiver::Udt($receiver) => $answer,
            FeedbackReceiver::Fobs($receiver) => $answer,
            FeedbackReceiver::Sabul($receiver) => $answer,
        }
    };
}

impl FeedbackReceiver {
    /// How this unit relates to what has arrived.
    pub(super) fn check(&self, unit: u64) -> UnitStatus {
        dispatch!(self, receiver => receiver.check(unit))
    }

    /// These units arrived and were placed.
    pub(super) fn take(&mut self, now: Time, first: u64, count: u32) {
        dispatch!(self, receiver => receiver.take(now, first, count));
    }

    /// Packets arrived in one batch, duplicates included; `first` and `last` are its first and last
    /// unit.
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

    /// The first unit that has not arrived.
    pub(super) fn next(&self) -> u64 {
        dispatch!(self, receiver => receiver.next())
    }

    /// One past the highest unit that arrived.
    pub(super) fn top(&self) -> u64 {
        dispatch!(self, receiver => receiver.top())
    }

    /// Number of units that arrived beyond a missing one.
    pub(super) fn held(&self) -> u64 {
        dispatch!(self, receiver => receiver.held())
    }

    /// The smoothed round trip, once known.
    pub(super) fn rtt(&self) -> Option<Duration> {
        match self {
            Self::Udt(receiver) => receiver.rtt(),
            Self::Fobs(receiver) => receiver.rtt(),
            Self::Sabul(_) => None,
        }
    }

    /// The owner has room for this many units from `next` on.
    pub(super) fn set_room(&mut self, now: Time, units: u64) {
        match self {
            Self::Udt(receiver) => receiver.set_room(now, units),
            Self::Fobs(receiver) => receiver.set_room(now, units),
            Self::Sabul(receiver) => receiver.set_room(units),
        }
    }

    /// The sender asks for feedback, because it waits for room or has heard nothing.
    pub(super) fn request_feedback(&mut self, now: Time) {
        match self {
            Self::Udt(receiver) => receiver.request_feedback(now),
            Self::Fobs(receiver) => receiver.request_feedback(now),
            Self::Sabul(receiver) => receiver.request_feedback(),
        }
    }

    /// Handles a message of the sender.
    pub(super) fn on_message(&mut self, now: Time, message: &Message) -> Result<(), Impossible> {
        match self {
            Self::Udt(receiver) => receiver.on_message(now, message),
            Self::Fobs(receiver) => receiver.on_message(now, message),
            Self::Sabul(_) => Err(Impossible),
        }
    }

    /// FOBS: handles a request for a complete acknowledgement.
    pub(super) fn on_bitmap_request(&mut self, now: Time, rtt: Duration) -> Result<(), Impossible> {
        match self {
            Self::Fobs(receiver) => {
                receiver.on_bitmap_request(now, rtt);
                Ok(())
            }
            Self::Udt(_) | Self::Sabul(_) => Err(Impossible),
        }
    }

    /// SABUL: handles a message of the reliable channel.
    pub(super) fn on_reliable_message(
        &mut self,
        now: Time,
        word: &sabul::Message,
    ) -> Result<(), Impossible> {
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

    /// When the next timer is due.
    pub(super) fn poll_timeout(&self) -> Option<Time> {
        dispatch!(self, receiver => receiver.poll_timeout())
    }

    /// The next message to the sender.
    pub(super) fn poll_message(&mut self, now: Time) -> Option<Message> {
        match self {
            Self::Udt(receiver) => receiver.poll_message(now),
            Self::Fobs(_) | Self::Sabul(_) => None,
        }
    }

    /// SABUL: the next message to the sender.
    pub(super) fn poll_reliable_message(&mut self, now: Time) -> Option<sabul::Message> {
        match self {
            Self::Udt(_) | Self::Fobs(_) => None,
            Self::Sabul(receiver) => receiver.poll_message(now),
        }
    }

    /// FOBS: the next bitmap to the sender.
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
