//! Controlled delay (RFC 8289): drops at the head when the waiting time has been too long for an
//! interval.

use packtrain_units::{Duration, Time};

use super::{Arriving, Backlog, Discipline, DropTail, Release, Verdict};
use crate::config::CoDelConfig;

/// CoDel with the names of RFC 8289 section 5.
#[derive(Clone, Copy, Debug)]
pub struct CoDel {
    config: CoDelConfig,
    tail: DropTail,
    /// The largest packet seen, in bytes: if no more than this waits, there is no standing queue.
    maxpacket: u32,
    first_above_time: Option<Time>,
    drop_next: Time,
    count: u32,
    lastcount: u32,
    dropping: bool,
    /// The position in the procedure `dodeque` of the RFC for the next packet.
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The transmitter requests a packet.
    Fresh,
    /// A packet was dropped to enter the dropping state: the next is sent in any case.
    Entering,
    /// A packet was dropped in the dropping state.
    Dropping,
}

impl CoDel {
    /// An empty queue.
    pub fn new(config: CoDelConfig) -> Self {
        Self {
            config,
            tail: DropTail::new(config.limit),
            maxpacket: 0,
            first_above_time: None,
            drop_next: Time::ZERO,
            count: 0,
            lastcount: 0,
            dropping: false,
            stage: Stage::Fresh,
        }
    }

    /// Whether the wait has been above the target for an interval: `ok_to_drop`.
    fn above(&mut self, now: Time, waited: Duration, behind: u64) -> bool {
        if waited < self.config.target || behind <= u64::from(self.maxpacket) {
            self.first_above_time = None;
            return false;
        }
        let since = *self.first_above_time.get_or_insert(now + self.config.interval);
        // If it was set just now, it is an interval ahead.
        now >= since
    }

    /// The interval between drops shrinks with their number, so that TCP's rate falls linearly (RFC
    /// 8289 section 5.4).
    fn control_law(&self, from: Time) -> Time {
        let interval = self.config.interval.as_nanos() as f64;
        from + Duration::from_nanos((interval / f64::from(self.count.max(1)).sqrt()) as u64)
    }

    fn enter(&mut self, now: Time) {
        self.dropping = true;
        // Dropping ended recently: continue near the rate that sufficed then.
        let delta = self.count.wrapping_sub(self.lastcount);
        let recent = now.since(self.drop_next) < self.config.interval * 16;
        self.count = if delta > 1 && recent { delta } else { 1 };
        self.drop_next = self.control_law(now);
        self.lastcount = self.count;
    }

    fn in_dropping(&mut self, now: Time) -> Release {
        if self.dropping && now >= self.drop_next {
            self.count = self.count.saturating_add(1);
            self.stage = Stage::Dropping;
            return Release::Drop;
        }
        self.stage = Stage::Fresh;
        Release::Send
    }
}

impl Discipline for CoDel {
    fn admit(&mut self, arriving: Arriving, backlog: &mut Backlog) -> Verdict {
        self.maxpacket = self.maxpacket.max(arriving.size);
        self.tail.admit(arriving, backlog)
    }

    fn decides_at_head(&self) -> bool {
        true
    }

    fn release(&mut self, now: Time, waited: Duration, backlog: &Backlog) -> Release {
        let above = self.above(now, waited, backlog.bytes_at_most().get());
        match self.stage {
            Stage::Entering => {
                self.enter(now);
                self.stage = Stage::Fresh;
                Release::Send
            }
            Stage::Fresh if !self.dropping && above => {
                self.stage = Stage::Entering;
                Release::Drop
            }
            Stage::Fresh => {
                self.dropping &= above;
                self.in_dropping(now)
            }
            Stage::Dropping if above => {
                self.drop_next = self.control_law(self.drop_next);
                self.in_dropping(now)
            }
            Stage::Dropping => {
                self.dropping = false;
                self.in_dropping(now)
            }
        }
    }

    /// The packet itself is the one that is sent after a drop, as in Linux.
    fn mark(&mut self, now: Time) {
        match std::mem::replace(&mut self.stage, Stage::Fresh) {
            Stage::Entering => self.enter(now),
            Stage::Dropping => self.drop_next = self.control_law(self.drop_next),
            Stage::Fresh => {}
        }
    }
}

#[cfg(test)]
#[path = "codel_tests.rs"]
mod tests;
