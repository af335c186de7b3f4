//! Loss detection by time (RFC 8985), as in Linux.

use std::ops::Range;

use packtrain_units::{Duration, Time};

use super::input::Delivered;
use super::log::Transmission;
use super::sender::{Phase, Sender};
use crate::agent::Ctx;
use crate::train::Sack;

/// Segments delivered out of order that end the wait for late ones while no reordering was seen
/// (section 6.2 step 4).
const DUP_THRESH: u64 = 3;
/// Maximum delay of a lone segment's acknowledgement at the receiver (section 7.2).
const MAX_RECEIVER_DELAY: Duration = Duration::from_millis(200);
/// Two ticks of the Linux timer.
const TIMER_SLACK: Duration = Duration::from_millis(2);

/// State of RFC 8985: RACK.xmit_ts and so on.
#[derive(Clone, Debug)]
pub(super) struct Rack {
    /// Send index and time of the newest transmission known to have been delivered.
    newest: Option<(u64, Time)>,
    /// Its round trip.
    rtt: Duration,
    /// RACK.reordering_seen.
    pub(super) reordered: bool,
    /// RACK.reo_wnd_mult, in quarters of the minimum round trip; raised at most once a round when a
    /// retransmission turned out to be unnecessary.
    quarters: u64,
    /// The next raise is allowed when this send index is acknowledged.
    raise_after: u64,
}

impl Default for Rack {
    fn default() -> Self {
        Self { newest: None, rtt: Duration::ZERO, reordered: false, quarters: 1, raise_after: 0 }
    }
}

impl Rack {
    /// Section 6.2 step 2.
    #[inline]
    pub(super) fn delivered(&mut self, by: Option<&Transmission>, now: Time) {
        if let Some(by) = by
            && self.newest.is_none_or(|(index, _)| index < by.index)
        {
            self.newest = Some((by.index, by.at));
            self.rtt = now.since(by.at);
        }
    }

    /// Section 7.2.
    #[inline]
    pub(super) fn probe_timeout(&self, srtt: Duration, outstanding: u64) -> Duration {
        srtt * 2 + if outstanding == 1 { MAX_RECEIVER_DELAY } else { TIMER_SLACK }
    }
}

impl Sender {
    pub(super) fn rack_detect(
        &mut self,
        now: Time,
        sack: Option<&Sack>,
        delivered: &mut Delivered,
    ) {
        if let Some(newest) = &delivered.newest {
            // An acknowledgement too soon after a retransmission belongs to the original
            // transmission.
            let rtt = now.since(newest.at);
            if !newest.again || rtt >= self.rto.min() {
                self.rack.delivered(Some(newest), now);
            }
        }
        if delivered.advanced > 0 {
            self.timers.probed = false;
        }
        if sack.is_some_and(|sack| sack.duplicate.is_some())
            && self.largest_acked.is_some_and(|largest| largest >= self.rack.raise_after)
        {
            self.rack.raise_after = self.index;
            self.rack.quarters += 1;
        }
        if self.rack_find(now) > 0 {
            delivered.lost = true;
        }
    }

    /// Section 6.2 step 4.
    fn reordering_window(&self) -> Duration {
        let patient = self.rack.reordered;
        let repairing = self.phase != Phase::Open;
        if !patient && (repairing || self.board.sacked.count() >= DUP_THRESH) {
            return Duration::ZERO;
        }
        let srtt = self.rto.rtt().map_or(Duration::ZERO, |rtt| rtt.smoothed);
        (self.rto.min() * self.rack.quarters / 4).min(srtt)
    }

    /// Section 6.2 step 5: segments sent before the newest delivered transmission that should have
    /// been acknowledged by now are lost; those that should be acknowledged soon set the timer.
    /// Returns the number of losses.
    fn rack_find(&mut self, now: Time) -> u64 {
        self.timers.reorder = Time::MAX;
        let Some((newest, _)) = self.rack.newest else { return 0 };
        let timeout = self.rack.rtt + self.reordering_window();
        let mut lost = 0;
        // First transmissions, in the order of sending.
        let mut at = self.board.judged.max(self.una);
        while let Some(Range { start: from, end: to }) = self.board.sacked.first_gap(at..self.nxt) {
            let Some(burst) = self.log.around(from).copied() else { break };
            let first = burst.of(from);
            if first.index >= newest {
                break;
            }
            if first.at + timeout > now {
                self.timers.reorder = self.timers.reorder.min(first.at + timeout);
                break;
            }
            // The segments of this burst that are old enough.
            let most = to.min(burst.segment + burst.count).min(from + (newest - first.index));
            let mut end = from + 1;
            while end < most && burst.of(end).at + timeout <= now {
                end += 1;
            }
            lost += self.lose_run(from, end);
            at = end;
            self.board.judged = end;
        }
        // Retransmissions, also in the order of sending.
        while let Some((segment, by)) = self.board.oldest_again() {
            if by.index >= newest {
                break;
            }
            if by.at + timeout > now {
                self.timers.reorder = self.timers.reorder.min(by.at + timeout);
                break;
            }
            // The reduction for this round was made: a controller of the window is not notified.
            if self.self_governed() || self.phase == Phase::Open {
                self.record_lost(by, 1);
            }
            self.board.mark_lost(segment, segment + 1);
            lost += 1;
        }
        lost
    }

    pub(super) fn on_reordering_timer(&mut self, now: Time, ctx: &mut Ctx<'_>) {
        let delivered = Delivered { lost: self.rack_find(now) > 0, ..Delivered::default() };
        if !delivered.lost {
            return;
        }
        let entered = self.enter_recovery();
        self.feedback(now, &delivered, false);
        self.reduce(entered, &delivered);
        self.output(now, ctx);
        if entered {
            self.arm(now);
        }
    }
}
