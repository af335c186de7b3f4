//! Queue disciplines: which packets may wait for the transmitter.
//!
//! # How to add a queue
//!
//! Implement [`Discipline`]: `admit` gets arriving packets and returns for how many of the first of
//! them the same decision holds, accepted or dropped. Returning one packet at a time is always
//! correct; returning many makes trains cheap. Pass it to [`Link::with_queue`], and run the train
//! test with it (`tests/trains.rs`): a train must have the same outcome as its packets one by one.
//!
//! ```
//! use packtrain_link::{Arriving, Backlog, Discipline, DropCause, Verdict};
//!
//! /// Takes every packet while less than a given number wait, then every second one.
//! #[derive(Debug)]
//! struct Halving { from: u64, odd: bool }
//!
//! impl Discipline for Halving {
//!     fn admit(&mut self, arriving: Arriving, backlog: &mut Backlog) -> Verdict {
//!         if backlog.packets(arriving.pace.first) < self.from {
//!             return Verdict::Take(1);
//!         }
//!         self.odd = !self.odd;
//!         if self.odd { Verdict::Take(1) } else { Verdict::Drop(1, DropCause::Early) }
//!     }
//! }
//! ```
//!
//! Packets whose transport understands congestion marks are marked where a queue says
//! [`DropCause::Early`], or drops at its head: the link does that for every queue.
//!
//! A queue that decides when packets leave it, as CoDel does, returns true from `decides_at_head`
//! and implements `release`. The link then keeps the packets until that time.
//!
//! [`Link::with_queue`]: crate::Link::with_queue

mod backlog;
mod codel;
mod droptail;
mod red;

use std::fmt::Debug;

use packtrain_units::{Duration, Time};

pub use backlog::Backlog;
pub use codel::CoDel;
pub use droptail::DropTail;
pub use red::Red;

use crate::config::QueueConfig;
use crate::element::{DropCause, Pace};

/// Packets that arrive at a queue: equal in size, at equal gaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arriving {
    /// Arrival times.
    pub pace: Pace,
    /// Number of packets; at least one.
    pub count: u32,
    /// Bytes of each.
    pub size: u32,
}

impl Arriving {
    /// How many of them arrive before `end`, at least one.
    pub fn before(&self, end: Time) -> u32 {
        if self.pace.gap.is_zero() {
            return self.count;
        }
        let n = end.since(self.pace.first).as_nanos().div_ceil(self.pace.gap.as_nanos());
        u32::try_from(n).unwrap_or(u32::MAX).clamp(1, self.count)
    }
}

/// The decision on the first of the arriving packets: at least one, at most all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// This many are accepted.
    Take(u32),
    /// This many are dropped, with the cause.
    Drop(u32, DropCause),
}

/// The decision on the packet at the head of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// It is sent.
    Send,
    /// It is dropped, and the next one is considered.
    Drop,
}

/// Decides which packets may wait, and optionally which are sent.
pub trait Discipline: Debug + Send {
    /// Packets arrive. The decision holds for the returned number of them; the rest is passed in
    /// again. The effect of earlier packets of a train on `backlog` is visible only then, so a
    /// decision on many packets must not depend on it.
    fn admit(&mut self, arriving: Arriving, backlog: &mut Backlog) -> Verdict;

    /// Packets are to be dropped early that can be marked instead: whether the first of them fit.
    /// An early drop is a signal, and a queue that is full drops all the same.
    fn fits(&self, arriving: Arriving, backlog: &mut Backlog) -> bool {
        let _ = (arriving, backlog);
        true
    }

    /// Whether `release` is called; constant.
    fn decides_at_head(&self) -> bool {
        false
    }

    /// A packet reaches the head of the queue at `now`, after waiting for `waited`; `backlog` has
    /// the packets behind it.
    fn release(&mut self, now: Time, waited: Duration, backlog: &Backlog) -> Release {
        let _ = (now, waited, backlog);
        Release::Send
    }

    /// The packet that `release` has just decided to drop is marked and sent instead.
    fn mark(&mut self, now: Time) {
        let _ = now;
    }
}

/// The disciplines of this crate, called directly, and any other through a pointer.
#[derive(Debug)]
pub(crate) enum Queue {
    DropTail(DropTail),
    Red(Red),
    CoDel(CoDel),
    Own(Box<dyn Discipline>),
}

impl Queue {
    pub(crate) fn new(config: &QueueConfig, seed: u64) -> Self {
        match config {
            QueueConfig::DropTail(limit) => Self::DropTail(DropTail::new(*limit)),
            QueueConfig::Red(red) => Self::Red(Red::new(red.clone(), seed)),
            QueueConfig::CoDel(codel) => Self::CoDel(CoDel::new(*codel)),
        }
    }
}

impl Discipline for Queue {
    #[inline]
    fn admit(&mut self, arriving: Arriving, backlog: &mut Backlog) -> Verdict {
        match self {
            Self::DropTail(queue) => queue.admit(arriving, backlog),
            Self::Red(queue) => queue.admit(arriving, backlog),
            Self::CoDel(queue) => queue.admit(arriving, backlog),
            Self::Own(queue) => queue.admit(arriving, backlog),
        }
    }

    #[inline]
    fn decides_at_head(&self) -> bool {
        match self {
            Self::DropTail(_) | Self::Red(_) => false,
            Self::CoDel(_) => true,
            Self::Own(queue) => queue.decides_at_head(),
        }
    }

    fn fits(&self, arriving: Arriving, backlog: &mut Backlog) -> bool {
        match self {
            Self::Red(queue) => queue.fits(arriving, backlog),
            Self::Own(queue) => queue.fits(arriving, backlog),
            Self::DropTail(_) | Self::CoDel(_) => true,
        }
    }

    fn mark(&mut self, now: Time) {
        match self {
            Self::CoDel(queue) => queue.mark(now),
            Self::Own(queue) => queue.mark(now),
            Self::DropTail(_) | Self::Red(_) => {}
        }
    }

    fn release(&mut self, now: Time, waited: Duration, backlog: &Backlog) -> Release {
        match self {
            Self::CoDel(queue) => queue.release(now, waited, backlog),
            Self::Own(queue) => queue.release(now, waited, backlog),
            Self::DropTail(_) | Self::Red(_) => Release::Send,
        }
    }
}
