//! Puts units that arrived on several lanes in order before the feedback sees them.
//!
//! UDT treats every gap as a loss at once. Within a lane that is right, because a socket keeps the
//! order of arrival. Between lanes, a gap only means that another socket was read first. Units
//! beyond a gap are therefore held until every lane in use has delivered a unit beyond it, or for
//! `HOLD`. With one lane nothing is held.

use packtrain_units::{Duration, Time};

use crate::config::limits::LANES;

/// Time after which a gap counts as a loss in any case: a thread reads all its sockets in less.
const HOLD: Duration = Duration::from_millis(2);
/// A lane without arrivals for this long is not waited for.
const IN_USE: Duration = Duration::from_millis(5);
/// Maximum held runs.
const MAX_HELD_RUNS: usize = 1_024;

/// The held units, and the progress of each lane.
#[derive(Debug, Default)]
pub(super) struct Order {
    /// In order, not adjacent.
    held: Vec<Run>,
    /// One past the highest unit of each lane, and the time of its last arrival.
    lanes: [Option<(u64, Time)>; LANES],
    /// Until this time, more lanes may have come into use than have delivered units.
    unsettled: Time,
}

/// Units beyond a gap, and the arrival time of the first of them.
#[derive(Clone, Copy, Debug)]
struct Run {
    first: u64,
    end: u64,
    since: Time,
}

impl Order {
    /// Nothing is held.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// How many units are held.
    pub(super) fn len(&self) -> u64 {
        self.held.iter().map(|run| run.end - run.first).sum()
    }

    /// Whether some of `first..end` are held.
    #[inline]
    pub(super) fn overlaps(&self, first: u64, end: u64) -> bool {
        let at = self.held.partition_point(|run| run.end <= first);
        self.held.get(at).is_some_and(|run| run.first < end)
    }

    /// A batch on `lane` contained units up to before `end`.
    #[inline]
    pub(super) fn on_batch(&mut self, now: Time, lane: u8, end: u64) {
        let index = usize::from(lane);
        let many = self.lanes.iter().enumerate().any(|(i, lane)| i != index && lane.is_some());
        let Some(lane) = self.lanes.get_mut(index) else { return };
        if many && !lane.as_ref().is_some_and(|lane| in_use(now, lane)) {
            self.unsettled = now + HOLD;
        }
        let top = lane.map_or(end, |(top, _)| top.max(end));
        *lane = Some((top, now));
    }

    /// Holds units beyond a gap, none of them held yet.
    pub(super) fn hold(&mut self, now: Time, first: u64, end: u64) {
        let at = self.held.partition_point(|run| run.end < first);
        let next = self.held.get(at + 1).copied().filter(|next| next.first == end);
        match self.held.get_mut(at) {
            Some(run) if run.end == first => {
                run.end = next.map_or(end, |next| next.end);
                if next.is_some() {
                    self.held.remove(at + 1);
                }
            }
            Some(run) if run.first == end => run.first = first,
            _ => self.held.insert(at, Run { first, end, since: now }),
        }
    }

    /// The next run to release to the feedback, which has progressed to `top`.
    pub(super) fn pop(&mut self, now: Time, top: u64) -> Option<(u64, u64)> {
        let run = self.held.first()?;
        let told = run.first <= top
            || now >= run.since + HOLD
            || self.held.len() > MAX_HELD_RUNS
            || self.is_passed(now, run.first);
        told.then(|| self.held.remove(0)).map(|run| (run.first, run.end))
    }

    /// Takes the next held run without waiting.
    pub(super) fn pop_all(&mut self) -> Option<(u64, u64)> {
        (!self.held.is_empty()).then(|| self.held.remove(0)).map(|run| (run.first, run.end))
    }

    /// When the next gap counts as a loss.
    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.held.first().map(|run| run.since + HOLD)
    }

    /// Whether every lane in use has delivered a unit above `unit`.
    fn is_passed(&self, now: Time, unit: u64) -> bool {
        let mut lanes = self.lanes.iter().flatten().filter(|lane| in_use(now, lane));
        now >= self.unsettled && lanes.all(|(top, _)| *top > unit)
    }
}

fn in_use(now: Time, (_, heard): &(u64, Time)) -> bool {
    now < *heard + IN_USE
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn us(n: u64) -> Time {
        Time::ZERO + Duration::from_micros(n)
    }

    #[test]
    fn one_lane_holds_nothing() {
        let mut order = Order::default();
        order.hold(us(1), 10, 20);
        order.on_batch(us(1), 0, 20);
        assert_eq!(order.pop(us(1), 5), Some((10, 20)));
        assert!(order.is_empty() && order.poll_timeout().is_none());
    }

    #[test]
    fn a_gap_is_lost_when_all_lanes_have_passed_it() {
        let mut order = Order::default();
        order.on_batch(us(0), 0, 10);
        order.on_batch(us(0), 1, 20);
        let us = |n: u64| us(2_000 + n);
        // 20..30 will arrive on lane 0; lane 1 is read first.
        order.hold(us(1), 30, 40);
        order.on_batch(us(1), 1, 40);
        assert_eq!(order.pop(us(1), 20), None);
        assert!(order.overlaps(35, 36) && !order.overlaps(20, 30) && !order.overlaps(40, 50));
        order.on_batch(us(2), 0, 50);
        assert_eq!(order.pop(us(2), 20), Some((30, 40)));
    }

    #[test]
    fn a_gap_is_lost_in_time_and_a_quiet_lane_is_not_waited_for() {
        let mut order = Order::default();
        order.on_batch(us(0), 0, 10);
        order.hold(us(100), 30, 40);
        order.on_batch(us(100), 1, 40);
        assert_eq!(order.pop(us(2_099), 20), None);
        assert_eq!(order.poll_timeout(), Some(us(2_100)));
        assert_eq!(order.pop(us(2_100), 20), Some((30, 40)));
        order.hold(us(5_050), 60, 70);
        order.on_batch(us(5_050), 1, 70);
        assert_eq!(order.pop(us(5_050), 40), Some((60, 70)));
    }

    proptest! {
        #[test]
        fn every_unit_comes_out_once_and_in_order(
            trains in prop::collection::vec((1u64..50, 0u8..4, 0u64..3, any::<bool>()), 1..200),
        ) {
            // Trains rotate over lanes; each lane is read late by up to this many rounds.
            let mut order = Order::default();
            let (mut first, mut arrivals) = (0u64, Vec::new());
            let mut min = [0u64; 4];
            for (i, (len, lane, late, lost)) in trains.iter().enumerate() {
                let at = (i as u64 + late).max(min[usize::from(*lane)]);
                min[usize::from(*lane)] = at;
                if !lost {
                    arrivals.push((at, i, first, first + len, *lane));
                }
                first += len;
            }
            arrivals.sort_unstable();
            let (mut top, mut told, mut now) = (0u64, Vec::new(), us(0));
            for (at, _, first, end, lane) in &arrivals {
                now = us(at * 10);
                if *first <= top {
                    told.push((*first, *end));
                    top = top.max(*end);
                } else {
                    prop_assert!(!order.overlaps(*first, *end));
                    order.hold(now, *first, *end);
                }
                order.on_batch(now, *lane, *end);
                while let Some(run) = order.pop(now, top) {
                    prop_assert!(run.0 >= top, "in order");
                    told.push(run);
                    top = run.1;
                }
            }
            now += HOLD;
            while let Some(run) = order.pop(now, top) {
                told.push(run);
                top = run.1;
            }
            prop_assert!(order.is_empty());
            let mut units: Vec<u64> = told.iter().flat_map(|(a, b)| *a..*b).collect();
            units.sort_unstable();
            let mut sent: Vec<u64> = arrivals.iter().flat_map(|a| a.2..a.3).collect();
            sent.sort_unstable();
            prop_assert_eq!(units, sent);
        }
    }
}
