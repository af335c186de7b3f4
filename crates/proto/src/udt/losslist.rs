//! The receiver's missing units, and when each loss is to be reported again.
//!
//! The set of missing units is a [`UnitSet`]. Each reported range also waits in the queue for its
//! number of reports. Times within a queue only increase, so the next due range is at the front. A
//! range whose units have all arrived is skipped when it is due, and removed when such ranges are
//! the majority. Memory is bounded by the losses, work by the packets.

use std::collections::VecDeque;

use packtrain_cc::udt::Variant;
use packtrain_units::{Duration, Time};

use super::unitset::UnitSet;

/// A loss is reported again k round trips after its last report, k from 2 (section III.E).
const FIRST_K: u64 = 2;
/// k grows by one a report up to here.
const MAX_K: u64 = 17;
/// Minimum ranges before stale ones are removed.
const MIN_SWEEP: usize = 64;

/// The receiver's loss list.
#[derive(Debug)]
pub(crate) struct LossList {
    missing: UnitSet,
    /// Reported ranges by number of reports, oldest report first.
    queues: Vec<VecDeque<Reported>>,
    entries: usize,
    /// ns-2's agent of 2003 has no k: each round of the NAK timer reports all losses.
    every_round: bool,
}

#[derive(Clone, Copy, Debug)]
struct Reported {
    at: Time,
    first: u64,
    end: u64,
}

impl LossList {
    pub(crate) fn new(variant: Variant, window: u64) -> Self {
        let every_round = variant == Variant::Ns2;
        let count = if every_round { 1 } else { (MAX_K - FIRST_K + 1) as usize };
        Self {
            missing: UnitSet::new(window),
            queues: vec![VecDeque::new(); count],
            entries: 0,
            every_round,
        }
    }

    /// Number of missing units.
    pub(crate) fn len(&self) -> u64 {
        self.missing.len()
    }

    /// Whether this unit is missing.
    pub(crate) fn contains(&self, unit: u64) -> bool {
        self.missing.contains(unit)
    }

    /// The first missing unit in `first..end`.
    pub(crate) fn first_in(&self, first: u64, end: u64) -> Option<u64> {
        self.missing.first_in(first, end)
    }

    /// The missing units of `first..end` as ranges.
    pub(crate) fn runs(&self, first: u64, end: u64) -> impl Iterator<Item = (u64, u64)> {
        self.missing.runs(first, end)
    }

    /// Makes room for queries up to `end`; all units below `floor` have arrived.
    pub(crate) fn cover(&mut self, floor: u64, end: u64) {
        if !self.missing.is_empty() {
            self.missing.cover(floor, end);
        }
    }

    /// `first..end` are missing and are reported now; all units below `floor` have arrived.
    pub(crate) fn insert(&mut self, now: Time, floor: u64, first: u64, end: u64) {
        self.missing.cover(floor, end);
        self.missing.insert(first, end);
        self.queues[0].push_back(Reported { at: now, first, end });
        self.entries += 1;
        if self.entries > MIN_SWEEP && self.entries as u64 > self.missing.len() * 2 {
            self.sweep();
        }
    }

    /// These units arrived; returns how many of them were missing.
    pub(crate) fn remove(&mut self, first: u64, end: u64) -> u64 {
        self.missing.remove(first, end)
    }

    /// When the first report is due again at this round trip. Its units may all have arrived since.
    pub(crate) fn due(&self, rtt: Duration) -> Option<Time> {
        if self.missing.is_empty() {
            return None;
        }
        let fronts = self.queues.iter().enumerate();
        fronts.filter_map(|(i, q)| Some(q.front()?.at + self.report_delay(i, rtt))).min()
    }

    /// The losses that are due, each range once; they count as reported now.
    pub(crate) fn report(&mut self, now: Time, rtt: Duration, out: &mut Vec<(u64, u64)>) {
        // The queue with the most reports first: a range that moves to the next queue is not
        // visited twice.
        for i in (0..self.queues.len()).rev() {
            let report_delay = self.report_delay(i, rtt);
            let into = (i + 1).min(self.queues.len() - 1);
            for _ in 0..self.queues[i].len() {
                let Some(front) = self.queues[i].front() else { break };
                if front.at + report_delay > now {
                    break;
                }
                let Reported { first, end, .. } = *front;
                self.queues[i].pop_front();
                self.entries -= 1;
                for (first, end) in self.missing.runs(first, end) {
                    out.push((first, end));
                    self.queues[into].push_back(Reported { at: now, first, end });
                    self.entries += 1;
                }
            }
        }
    }

    fn report_delay(&self, queue: usize, rtt: Duration) -> Duration {
        if self.every_round { Duration::ZERO } else { rtt * (FIRST_K + queue as u64) }
    }

    /// Removes reports without missing units.
    fn sweep(&mut self) {
        let missing = &self.missing;
        for queue in &mut self.queues {
            queue.retain(|r| missing.first_in(r.first, r.end).is_some());
        }
        self.entries = self.queues.iter().map(VecDeque::len).sum();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    const RTT: Duration = Duration::from_millis(10);

    fn at(ms: u64) -> Time {
        Time::ZERO + Duration::from_millis(ms)
    }

    #[test]
    fn a_loss_is_reported_after_2_then_3_then_4_round_trips() {
        let mut list = LossList::new(Variant::Paper, 1_000);
        list.insert(at(0), 0, 5, 8);
        let mut told = Vec::new();
        for ms in 0..200 {
            let mut out = Vec::new();
            assert_eq!(list.due(RTT).is_some_and(|due| due <= at(ms)), ms == due_next(&told));
            list.report(at(ms), RTT, &mut out);
            if !out.is_empty() {
                assert_eq!(out, [(5, 8)]);
                told.push(ms);
            }
        }
        assert_eq!(told, [20, 50, 90, 140]);
        fn due_next(told: &[u64]) -> u64 {
            [20, 50, 90, 140, 200][told.len()]
        }
    }

    #[test]
    fn ns2_reports_everything_each_round() {
        let mut list = LossList::new(Variant::Ns2, 1_000);
        list.insert(at(0), 0, 5, 8);
        list.remove(6, 7);
        for round in 1..5 {
            let mut out = Vec::new();
            list.report(at(round * 10), RTT, &mut out);
            assert_eq!(out, [(5, 6), (7, 8)]);
        }
    }

    #[test]
    fn what_came_since_leaves_no_memory_behind() {
        let mut list = LossList::new(Variant::Grid, 1 << 16);
        for unit in 0..1_000_000u64 {
            let unit = unit * 2;
            list.insert(at(0), unit, unit, unit + 1);
            list.remove(unit, unit + 1);
            assert!(list.entries <= MIN_SWEEP + 1);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        #[test]
        fn reports_what_a_naive_list_reports(
            steps in prop::collection::vec((0..4u64, 0..20u64, 1..9u64, any::<u16>()), 1..80),
        ) {
            let mut list = LossList::new(Variant::Paper, 1 << 14);
            // Unit to (last report, k).
            let mut naive: BTreeMap<u64, (Time, u64)> = BTreeMap::new();
            let (mut now, mut next, mut ms) = (at(0), 0u64, 0u64);
            for (wait, gap, len, pick) in steps {
                ms += wait * 7;
                now = now.max(at(ms));
                let first = next + gap;
                next = first + len;
                list.insert(now, 0, first, next);
                naive.extend((first..next).map(|u| (u, (now, 2))));
                let gone = u64::from(pick) % next;
                prop_assert_eq!(list.remove(gone, gone + 3), {
                    (gone..gone + 3).filter(|u| naive.remove(u).is_some()).count() as u64
                });
                let mut out = Vec::new();
                list.report(now, RTT, &mut out);
                let mut told: Vec<u64> = out.into_iter().flat_map(|(a, b)| a..b).collect();
                told.sort_unstable();
                let mut due = Vec::new();
                for (unit, (at, k)) in &mut naive {
                    if *at + RTT * *k <= now {
                        due.push(*unit);
                        (*at, *k) = (now, *k + 1);
                    }
                }
                prop_assert_eq!(told, due);
                prop_assert_eq!(list.len(), naive.len() as u64);
            }
        }
    }
}
