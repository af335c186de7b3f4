//! Slow workers are relieved: by second copies of what they sent, or by taking from their tail.

use std::ops::Range;

use packtrain_units::{ByteCount, Offset, Time};

use super::worker::Held;
use super::{RangeScheduler, WorkerId, size};

impl<T: Default> RangeScheduler<T> {
    /// Queues a second copy of what a worker has that stands still, of what a worker has had for
    /// too long, and, if nothing waits, of half of what the worker has that would end last. Tells
    /// whether anything changed.
    pub fn reassign(&mut self, now: Time) -> bool {
        let before = self.counters.handed_again;
        let (overdue, rtts) = self.thresholds.overdue;
        let ids: Vec<_> = self.workers.keys().copied().collect();
        for id in ids {
            let others = self.workers.iter().any(|(other, one)| *other != id && one.is_willing());
            let Some(worker) = self.workers.get_mut(&id) else { continue };
            if !others || worker.held.is_empty() {
                continue;
            }
            worker.still |= worker.is_stalled(now);
            let (still, overdue) = (worker.still, overdue.max(worker.srtt * rtts));
            let held = worker.held.iter_mut();
            let late = held.filter(|held| still || now.since(held.at) >= overdue);
            let late = relieve(late, u64::MAX);
            self.copy(&late, id);
        }
        if self.is_drained() {
            self.relieve_last();
        }
        self.counters.handed_again != before
    }

    /// Nothing waits: the idle workers take from the one that would end last.
    fn relieve_last(&mut self) {
        let idle = self.workers.values().filter(|one| one.is_willing() && one.held.is_empty());
        let Some(quick) = idle.min_by_key(|worker| worker.srtt) else { return };
        let (rate, srtt) = (quick.likely_rate(), quick.srtt);
        let last = self.workers.iter_mut().max_by_key(|(_, worker)| worker.time_left());
        let Some((&id, worker)) = last else { return };
        let half = worker.load().get() / 2;
        let alone = srtt + rate.time_for(ByteCount(half)) + self.thresholds.gain;
        if worker.time_left() > alone {
            let mut late = relieve(worker.held.iter_mut().rev(), half);
            late.reverse();
            self.copy(&late, id);
        }
    }

    fn copy(&mut self, ranges: &[Range<Offset>], not: WorkerId) {
        ranges.iter().for_each(|range| self.hand_out_again(range, Some(not)));
    }

    /// Takes the second half of the tail of the worker that would end last, or all of it if that
    /// worker stands still, for `thief`, which is idle. The victim keeps a multiple of `grid`, and
    /// must be one that can be stopped: `may` tells which are. Gives the victim and the range.
    pub fn steal(
        &mut self,
        now: Time,
        thief: WorkerId,
        grid: ByteCount,
        may: impl Fn(&T) -> bool,
    ) -> Option<(WorkerId, Range<Offset>)> {
        let others = self.workers.iter_mut().filter(|(id, one)| **id != thief && may(&one.tag));
        let victims = others.filter(|(_, one)| self.open.overlaps(&one.rest()));
        let (&id, victim) = victims.max_by_key(|(_, one)| one.rest_time(now))?;
        let (still, gain) = (victim.is_stalled(now), self.thresholds.gain);
        if victim.rest_time(now) < gain || (!still && now.since(victim.since) < gain) {
            return None;
        }
        let rest = victim.rest();
        let half = size(&rest).div_ceil(2).div_ceil(grid.get()) * grid.get();
        let start = if still { rest.start } else { rest.end.min(rest.start + ByteCount(half)) };
        let stolen = (start < rest.end).then_some(start..rest.end)?;
        let passed = victim.cut(now, start);
        // What the victim has passed and was opened again waits: nobody else comes to it.
        self.waiting.extend(self.open.intersect(passed.unwrap_or(start..start)));
        self.reserved.extend(self.open.intersect(stolen.clone()));
        self.grant(now, thief, stolen.clone());
        Some((id, stolen))
    }
}

/// Frees a worker from the first `bytes` of these, in whole ranges, and gives them.
fn relieve<'a>(held: impl Iterator<Item = &'a mut Held>, bytes: u64) -> Vec<Range<Offset>> {
    let mut left = bytes;
    let mut ranges = Vec::new();
    for held in held.filter(|held| !held.reassigned) {
        held.reassigned = true;
        ranges.push(held.range.clone());
        left = left.saturating_sub(size(&held.range));
        if left == 0 {
            break;
        }
    }
    ranges
}
