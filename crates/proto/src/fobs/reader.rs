//! Converts bitmaps to acknowledgements and losses at the sending end.
//!
//! A unit that a bitmap misses is lost if the previous bitmap reached as far, or if this one
//! reaches well beyond it: packets overtake each other by a few places. A retransmitted unit does
//! not count as lost again before a bitmap could have contained it.

use std::collections::VecDeque;

use packtrain_units::{Duration, Time};

use super::Bitmap;
use crate::udt::{self, Ack, Impossible, UnitSet};

/// Later units that must have overtaken a unit for it to be lost.
const OVERTAKEN: u64 = 64;
/// Time that a bitmap may take beside the round trip: its interval and a late thread at either end.
const REPORT_SLACK: Duration = Duration::from_millis(15);
/// Minimum and maximum interval at which the sender requests a complete acknowledgement and sends
/// its round trip.
const REQUEST_INTERVAL: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));
/// Maximum ranges of losses in one message.
const MAX_LOSS_RANGES: usize = 4_096;

/// The sender's knowledge beside its units in flight.
#[derive(Debug)]
pub(crate) struct Reader {
    /// Number and top of the newest bitmap, and the top of the previous one.
    newest: Option<(u64, u64)>,
    before: u64,
    /// Retransmitted units that no bitmap can contain yet, and when they were sent.
    young: UnitSet,
    again: VecDeque<(Time, u64, u64)>,
    /// Units below this are not in these sets.
    floor: u64,
    rtt: Option<(Duration, Duration)>,
    latest: Option<Duration>,
    requested_at: Option<Time>,
}

impl Reader {
    /// Creates a reader for this many units in flight.
    pub(crate) fn new(window: u64) -> Self {
        Self {
            newest: None,
            before: 0,
            young: UnitSet::new(window),
            again: VecDeque::new(),
            floor: 0,
            rtt: None,
            latest: None,
            requested_at: None,
        }
    }

    /// These units were retransmitted.
    pub(crate) fn on_retransmitted(
        &mut self,
        now: Time,
        (acked, next): (u64, u64),
        first: u64,
        end: u64,
    ) {
        self.young.remove(self.floor, acked);
        self.floor = acked;
        self.young.cover(acked, next);
        self.young.insert(first.max(acked), end.min(next));
        self.again.push_back((now, first, end));
    }

    /// Whether a request is due, with the round trip to send. If so, it counts as sent.
    pub(crate) fn poll_request(&mut self, now: Time) -> Option<Duration> {
        let rtt = self.rtt.map_or(Duration::ZERO, |(rtt, _)| rtt);
        let gap = rtt.clamp(REQUEST_INTERVAL.0, REQUEST_INTERVAL.1);
        let due = self.requested_at.is_none_or(|at| now >= at + gap);
        due.then(|| {
            self.requested_at = Some(now);
            rtt
        })
    }

    /// The round-trip sample of the last bitmap, if it gave one.
    pub(crate) fn take_latest(&mut self) -> Option<Duration> {
        self.latest.take()
    }

    /// Converts a bitmap to messages for UDT's sender, the acknowledgement first.
    pub(crate) fn read(
        &mut self,
        now: Time,
        bitmap: &Bitmap,
        sender: &udt::Sender,
    ) -> Result<(Ack, Vec<(u64, u64)>), Impossible> {
        let sent = sender.next();
        let Bitmap { next, top, start, end, held, .. } = *bitmap;
        let inside = next <= start
            && start <= end
            && end <= top.max(next)
            && top <= sent
            && held <= top.max(next) - next;
        if !inside || next > sent || bitmap.newest.is_some_and(|(unit, _)| unit >= sent) {
            return Err(Impossible);
        }
        self.measure(now, bitmap, sender);
        let newer = self.newest.is_none_or(|(number, _)| bitmap.number > number);
        if newer {
            self.before = self.newest.map_or(0, |(_, top)| top);
            self.newest = Some((bitmap.number, top));
        }
        let (rtt, rtt_var) = self.rtt.unwrap_or_default();
        let ack = Ack {
            number: bitmap.number as u32,
            next,
            light: false,
            early: false,
            rtt,
            rtt_var,
            room: bitmap.room,
            arrival: None,
            capacity: None,
        };
        let current = self.newest.is_some_and(|(number, _)| bitmap.number == number);
        let lost = if current { self.losses(now, bitmap, sender) } else { Vec::new() };
        Ok((ack, lost))
    }

    /// The newly detected losses.
    fn losses(&mut self, now: Time, bitmap: &Bitmap, sender: &udt::Sender) -> Vec<(u64, u64)> {
        self.expire_young(now, sender.acked(), sender.next());
        let limit = self.before.max(bitmap.end.saturating_sub(OVERTAKEN));
        let mut lost = Vec::new();
        for (first, end) in bitmap.missing() {
            let (mut at, end) = (first.max(sender.acked()), end.min(limit));
            while at < end && lost.len() < MAX_LOSS_RANGES {
                // Neither young units nor those that wait for retransmission.
                let young = self.young.first_in(at, end).unwrap_or(end);
                let owed = sender.first_pending(at, end).unwrap_or(end);
                let stop = young.min(owed);
                if at < stop {
                    lost.push((at, stop));
                }
                at = if young == stop && stop < end {
                    self.young.run_end(stop, end)
                } else if stop < end {
                    sender.pending_end(stop, end)
                } else {
                    end
                };
            }
        }
        lost
    }

    /// Removes units from `young` that were sent long enough ago for a bitmap to contain them.
    fn expire_young(&mut self, now: Time, acked: u64, next: u64) {
        if self.young.is_empty() {
            (self.floor, _) = (acked, self.again.clear());
            return;
        }
        self.young.remove(self.floor, acked);
        self.floor = acked;
        let report_time =
            self.rtt.map_or(Duration::from_secs(1), |(rtt, var)| rtt + var * 4 + REPORT_SLACK);
        while let Some((at, first, end)) = self.again.front().copied() {
            if now < at + report_time && end > acked {
                break;
            }
            self.again.pop_front();
            self.young.remove(first.max(acked), end);
        }
        self.young.cover(acked, next);
    }

    /// Measures the round trip of the unit that raised the top last.
    fn measure(&mut self, now: Time, bitmap: &Bitmap, sender: &udt::Sender) {
        let newest = self.newest.map_or(0, |(_, top)| top);
        let Some((unit, age)) = bitmap.newest.filter(|(unit, _)| *unit >= newest) else { return };
        let Some(sent) = sender.sent_at(unit) else { return };
        if !self.young.is_empty() && self.young.contains(unit) {
            return;
        }
        let Some(sample) = Some(now.since(sent) - age).filter(|s| !s.is_zero()) else { return };
        self.latest = Some(sample);
        // RFC 6298 section 2.
        self.rtt = Some(match self.rtt {
            None => (sample, sample / 2),
            Some((rtt, var)) => {
                let apart = rtt.max(sample) - rtt.min(sample);
                ((rtt * 7 + sample) / 8, (var * 3 + apart) / 4)
            }
        });
    }
}
