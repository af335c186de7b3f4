//! The seam between a transfer and what moves its bytes.
//!
//! A transport owns a range from [`assign`](Transport::assign) until it reports each byte of it
//! once: as [`Placed`](TransportEvent::Placed), as [`Returned`](TransportEvent::Returned), or all
//! that is left by [`Closed`](TransportEvent::Closed). The [`Source`](crate::Source) decides which
//! transport gets which range and needs nothing else of it, so a new way to move bytes is one
//! implementation of [`Transport`]. [`Custody`] follows what a transport owns and finds each breach
//! of these rules.

#[cfg(feature = "testing")]
pub mod exercise;

use std::fmt;
use std::ops::Range;

use packtrain_units::{Offset, RangeSet, Time};

use crate::failure::Failure;

/// One transport of a transfer, for as long as the transfer lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransportId(pub u32);

/// What a transport reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TransportEvent {
    /// It takes ranges from now on. Of the transports that are up the source uses those with the
    /// lowest rank.
    Up {
        /// Its rank.
        rank: u8,
    },
    /// The peer holds these bytes.
    Placed(Range<Offset>),
    /// The transport will not move these bytes.
    Returned(Range<Offset>),
    /// It is down, or does not come up; every range that it still owns is returned by this. It may
    /// come up later.
    Closed(Failure),
}

/// Moves ranges of the object from the source to the sink. Its threads do the work; the calls
/// return at once.
pub trait Transport: Send {
    /// Its name, as `--transport` and the reports spell it.
    fn name(&self) -> &'static str;

    /// Gives it a range to move, after those that it was given before. It owns no part of the range
    /// yet.
    fn assign(&mut self, range: Range<Offset>);

    /// Asks for a range back. The transport reports all that it owns of the range as `Returned`,
    /// or as `Placed` where the peer has it already.
    fn revoke(&mut self, range: Range<Offset>);

    /// The next event. The driver calls it until it gives none, at least every 100 ms and whenever
    /// the transport asked for it.
    fn poll_event(&mut self, now: Time) -> Option<TransportEvent>;

    /// The sink has the whole object: what is under way has arrived, although the transport does
    /// not know it yet.
    fn on_complete(&mut self) {}

    /// Ends it. No event is asked for afterwards.
    fn close(&mut self);
}

/// What one transport owns, by its calls and events.
#[derive(Clone, Debug, Default)]
pub struct Custody {
    up: bool,
    owned: RangeSet,
}

/// A rule of [`Transport`] that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Breach {
    /// A range was assigned to a transport that is not up.
    Down(Range<Offset>),
    /// A range was assigned to its owner again.
    AssignedTwice(Range<Offset>),
    /// A transport reported a range of which it does not own all.
    NotOwned(Range<Offset>),
    /// It came up while it was up.
    UpTwice,
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = |range: &Range<Offset>| format!("{}..{}", range.start.get(), range.end.get());
        match self {
            Self::Down(range) => write!(f, "{} assigned to a transport that is down", at(range)),
            Self::AssignedTwice(range) => write!(f, "{} assigned to its owner again", at(range)),
            Self::NotOwned(range) => write!(f, "{} reported without being owned", at(range)),
            Self::UpTwice => write!(f, "came up while it was up"),
        }
    }
}

impl Custody {
    /// A range is about to be assigned.
    ///
    /// # Errors
    /// The transport is down, or owns some of it.
    pub fn on_assign(&mut self, range: &Range<Offset>) -> Result<(), Breach> {
        if !self.up {
            return Err(Breach::Down(range.clone()));
        }
        if self.owned.intersect(range.clone()).next().is_some() {
            return Err(Breach::AssignedTwice(range.clone()));
        }
        self.owned.insert(range.clone());
        Ok(())
    }

    /// The transport reported this.
    ///
    /// # Errors
    /// It may not.
    pub fn on_event(&mut self, event: &TransportEvent) -> Result<(), Breach> {
        match event {
            TransportEvent::Up { .. } if self.up => return Err(Breach::UpTwice),
            TransportEvent::Up { .. } => self.up = true,
            TransportEvent::Placed(range) | TransportEvent::Returned(range) => {
                if !self.owned.contains_range(range) {
                    return Err(Breach::NotOwned(range.clone()));
                }
                self.owned.remove(range.clone());
            }
            TransportEvent::Closed(_) => *self = Self::default(),
        }
        Ok(())
    }

    /// The parts of an event that concern what the transport owns; the rest is dropped.
    pub fn admit(&mut self, event: TransportEvent) -> Vec<TransportEvent> {
        let parts: Vec<_> = match &event {
            TransportEvent::Placed(range) => {
                self.owned.intersect(range.clone()).map(TransportEvent::Placed).collect()
            }
            TransportEvent::Returned(range) => {
                self.owned.intersect(range.clone()).map(TransportEvent::Returned).collect()
            }
            TransportEvent::Up { .. } | TransportEvent::Closed(_) => vec![event],
        };
        parts.into_iter().filter(|part| self.on_event(part).is_ok()).collect()
    }

    /// Whether the transport takes ranges.
    pub fn is_up(&self) -> bool {
        self.up
    }

    /// What it owns.
    pub fn owned(&self) -> &RangeSet {
        &self.owned
    }
}

#[cfg(test)]
mod tests {
    use packtrain_object::CHUNK;

    use super::*;
    use crate::failure::FailureKind;

    fn range(from: u64, to: u64) -> Range<Offset> {
        Offset(from)..Offset(to)
    }

    #[test]
    fn each_rule_is_checked() {
        let up = TransportEvent::Up { rank: 3 };
        let closed = TransportEvent::Closed(Failure::new(FailureKind::Temporary, "gone"));
        let mut custody = Custody::default();
        assert_eq!(custody.on_assign(&range(0, 9)), Err(Breach::Down(range(0, 9))));
        assert_eq!(custody.on_event(&closed), Ok(()), "it does not come up yet");
        assert_eq!(custody.on_event(&up), Ok(()));
        assert_eq!(custody.on_event(&up), Err(Breach::UpTwice));
        assert_eq!(custody.on_assign(&range(0, CHUNK.get())), Ok(()));
        assert_eq!(custody.on_assign(&range(5, 6)), Err(Breach::AssignedTwice(range(5, 6))));
        assert_eq!(custody.on_event(&TransportEvent::Placed(range(0, 10))), Ok(()));
        let again = TransportEvent::Returned(range(9, 12));
        assert_eq!(custody.on_event(&again), Err(Breach::NotOwned(range(9, 12))));
        assert_eq!(custody.on_event(&closed), Ok(()));
        assert!(custody.owned().is_empty() && !custody.is_up());
    }
}
