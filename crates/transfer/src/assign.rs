//! Which transport moves which range.
//!
//! Ranges that wait are in one pool, in offset order. Only the best-ranked transports that work
//! get any, each as much as its window allows; what it gives back, or has when it closes, goes
//! back to the pool. When the pool is empty an idle transport steals the tail of what a slower
//! one still has.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use packtrain_object::ChunkIndex;
use packtrain_units::{ByteCount, DataRate, Duration, Offset, RangeSet, Time};

use crate::action::SourceAction;
use crate::fallback::Health;
use crate::limits::{GRANT_ROOM, HEALTH_EVERY, MAX_GRANT, MIN_STEAL, WINDOW_START};
use crate::transport::TransportId;

/// How long a victim must still need for a steal to be worth it.
const STEAL_SPAN: Duration = Duration::from_millis(500);
/// How much a policed transport is ranked behind its own rank.
const BEHIND: u32 = 1 << 16;

/// The pool and the transports.
#[derive(Debug, Default)]
pub(crate) struct Assigner {
    pool: RangeSet,
    lanes: BTreeMap<TransportId, Lane>,
    looked: Time,
}

#[derive(Debug)]
struct Lane {
    rank: u8,
    /// What it has and has not placed.
    assigned: RangeSet,
    /// What of that it was asked back.
    revoking: RangeSet,
    health: Health,
}

/// The transports that get ranges: those of this standing.
#[derive(Clone, Copy, Debug)]
struct Active {
    standing: (Time, u32),
    /// Whether there is one that is not on trial.
    proven: bool,
}

impl Assigner {
    /// Transports, and ranges in all its sets.
    pub(crate) fn held(&self) -> usize {
        let sets = self.lanes.values().flat_map(|lane| [&lane.assigned, &lane.revoking]);
        let ranges: usize = sets.chain([&self.pool]).map(|set| set.iter().count()).sum();
        self.lanes.len() + ranges
    }

    /// A transport is ready.
    pub(crate) fn on_up(&mut self, now: Time, id: TransportId, rank: u8) {
        let lane = Lane {
            rank,
            assigned: RangeSet::new(),
            revoking: RangeSet::new(),
            health: Health::new(now),
        };
        if let Some(old) = self.lanes.insert(id, lane) {
            self.pool.insert_all(&old.assigned);
        }
    }

    /// These bytes wait to be moved.
    pub(crate) fn add(&mut self, range: Range<Offset>) {
        self.pool.insert(range);
    }

    /// These bytes need not be moved any more.
    pub(crate) fn withdraw(&mut self, range: &Range<Offset>, out: &mut VecDeque<SourceAction>) {
        self.pool.remove(range.clone());
        for (&id, lane) in &mut self.lanes {
            let parts: Vec<_> = lane.assigned.intersect(range.clone()).collect();
            for part in parts {
                lane.revoke(id, part, out);
            }
        }
    }

    /// These bytes are at the sink after all; who moves them now may go on, nobody begins.
    pub(crate) fn forget_waiting(&mut self, range: &Range<Offset>) {
        self.pool.remove(range.clone());
    }

    /// What of these bytes transports have.
    pub(crate) fn under_way(&self, range: &Range<Offset>) -> Vec<Range<Offset>> {
        self.lanes.values().flat_map(|lane| lane.assigned.intersect(range.clone())).collect()
    }

    /// A transport placed these bytes; tells which of them it had.
    pub(crate) fn on_placed(
        &mut self,
        now: Time,
        id: TransportId,
        range: &Range<Offset>,
    ) -> Vec<Range<Offset>> {
        let Some(lane) = self.lanes.get_mut(&id) else { return Vec::new() };
        let parts: Vec<_> = lane.assigned.intersect(range.clone()).collect();
        let bytes = lane.drop(range);
        if bytes > ByteCount::ZERO {
            lane.health.on_placed(now, bytes);
        }
        parts
    }

    /// A transport gave these bytes back; those in `unplaced` go to the pool. Tells which of them
    /// it had.
    pub(crate) fn on_returned(
        &mut self,
        now: Time,
        id: TransportId,
        range: &Range<Offset>,
        unplaced: &RangeSet,
    ) -> Vec<Range<Offset>> {
        let Some(lane) = self.lanes.get_mut(&id) else { return Vec::new() };
        let parts: Vec<_> = lane.assigned.intersect(range.clone()).collect();
        for part in &parts {
            if lane.revoking.remove(part.clone()) < part.end.since(part.start) {
                lane.health.on_refused(now);
            }
            lane.drop(part);
            for open in unplaced.intersect(part.clone()) {
                self.pool.insert(open);
            }
        }
        parts
    }

    /// A transport is over. Tells which bytes it had.
    pub(crate) fn on_closed(&mut self, id: TransportId, unplaced: &RangeSet) -> Vec<Range<Offset>> {
        let Some(lane) = self.lanes.remove(&id) else { return Vec::new() };
        let parts: Vec<_> = lane.assigned.iter().collect();
        for part in &parts {
            for open in unplaced.intersect(part.clone()) {
                self.pool.insert(open);
            }
        }
        parts
    }

    /// How many transports there are.
    pub(crate) fn transports(&self) -> usize {
        self.lanes.len()
    }

    /// Looks for stalled and policed transports, at most once in [`HEALTH_EVERY`]. Ranges from
    /// `quiet` on wait for their source (a stream) and say nothing about a transport.
    pub(crate) fn on_timeout(
        &mut self,
        now: Time,
        quiet: Option<Offset>,
        out: &mut VecDeque<SourceAction>,
    ) {
        if now.since(self.looked) < HEALTH_EVERY {
            return;
        }
        // Also when there is nothing to compare: `poll_timeout` must not stay in the past.
        self.looked = now;
        if self.lanes.len() < 2 {
            return;
        }
        let ids: Vec<_> = self.lanes.keys().copied().collect();
        for id in ids {
            let best_other = self.best_other(now, id);
            let replaceable =
                self.lanes.iter().any(|(other, lane)| *other != id && !lane.health.is_on_trial());
            let Some(lane) = self.lanes.get_mut(&id) else { continue };
            let first = lane.assigned.first().map(|range| range.start);
            if first.is_none_or(|at| quiet.is_some_and(|quiet| at >= quiet)) {
                continue;
            }
            if lane.health.is_stalling(now, replaceable) {
                lane.health.stall(now);
            } else if lane.health.is_policed(now, best_other) {
                lane.health.police(now);
            } else {
                continue;
            }
            lane.revoke_all(id, out);
        }
    }

    /// When [`Assigner::on_timeout`] and [`Assigner::assign`] are wanted next.
    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        let watched = self.lanes.len() > 1 && self.lanes.values().any(|l| !l.assigned.is_empty());
        let waiting = !self.pool.is_empty() && !self.lanes.is_empty();
        (watched || waiting).then(|| self.looked + HEALTH_EVERY)
    }

    /// Hands out what waits.
    pub(crate) fn assign(&mut self, now: Time, out: &mut VecDeque<SourceAction>) {
        if self.lanes.is_empty() {
            return;
        }
        let Some(active) = self.active(now) else { return };
        while !self.pool.is_empty() {
            // A trial that fails must not be what the end waits for.
            let plenty = self.pool.len_bytes() > WINDOW_START;
            let next = self
                .lanes
                .iter_mut()
                .filter(|(_, lane)| lane.is_active(now, active) && lane.room() > 0)
                .filter(|(_, lane)| !lane.is_on_trial(active) || plenty)
                .min_by_key(|(_, lane)| lane.time_left());
            let Some((&id, lane)) = next else { return };
            let grant = ByteCount(lane.room().min(MAX_GRANT));
            for range in take_grant(&mut self.pool, grant) {
                lane.assigned.insert(range.clone());
                out.push_back(SourceAction::Assign(id, range));
            }
            lane.health.on_assigned(now);
        }
        self.steal(now, active, out);
    }

    /// Which transports get ranges now. One on trial after a stall does not keep others from
    /// theirs.
    fn active(&self, now: Time) -> Option<Active> {
        let best = |trial: bool| {
            self.lanes
                .values()
                .filter(|lane| !lane.health.is_paused(now) && lane.health.is_on_trial() == trial)
                .map(|lane| lane.standing(now))
                .min()
        };
        let proven = best(false).map(|standing| Active { standing, proven: true });
        proven.or_else(|| best(true).map(|standing| Active { standing, proven: false }))
    }

    fn best_other(&self, now: Time, id: TransportId) -> DataRate {
        self.lanes
            .iter()
            .filter(|(other, lane)| **other != id && lane.health.stalled_until() <= now)
            .map(|(_, lane)| lane.health.shown())
            .max()
            .unwrap_or_default()
    }

    /// Asks the slowest transport for half of what it has left, for one that has nothing.
    fn steal(&mut self, now: Time, active: Active, out: &mut VecDeque<SourceAction>) {
        let idle = |lane: &&Lane| {
            lane.assigned.is_empty() && lane.is_active(now, active) && !lane.is_on_trial(active)
        };
        let Some(thief) = self.lanes.values().find(idle) else { return };
        let (rank, rate) = (thief.rank, thief.health.rate());
        let victim = self
            .lanes
            .iter_mut()
            .filter(|(_, lane)| lane.revoking.is_empty() && lane.load() >= MIN_STEAL)
            .filter(|(_, lane)| {
                rank <= lane.rank || rate.as_bps() / 2 > lane.health.rate().as_bps()
            })
            .max_by_key(|(_, lane)| lane.time_left());
        let Some((&id, lane)) = victim.filter(|(_, lane)| lane.time_left() >= STEAL_SPAN) else {
            return;
        };
        let mut tail = lane.assigned.clone();
        let on_trial = lane.health.is_on_trial();
        let mut left = if on_trial { lane.load() } else { lane.load() / 2 };
        while let Some(part) = tail.pop_back(ByteCount(left)) {
            left -= part.end.since(part.start).get();
            lane.revoke(id, part, out);
        }
    }
}

/// Takes about `most` from the front: to the end of a chunk, with all that waits in the last one,
/// so that no two transports share a chunk (unless one gave back a part of it).
fn take_grant(pool: &mut RangeSet, most: ByteCount) -> Vec<Range<Offset>> {
    let Some(mut range) = pool.pop_front(most) else { return Vec::new() };
    let boundary = ChunkIndex::of(range.end).start();
    let was_cut = pool.first().is_some_and(|next| next.start == range.end);
    if was_cut && range.start < boundary && boundary < range.end {
        pool.insert(boundary..range.end);
        range.end = boundary;
    }
    let end = ChunkIndex::of(Offset(range.end.0 - 1)).range().end;
    let mut grant = vec![range];
    while let Some(next) = pool.first().filter(|next| next.start < end)
        && let Some(part) = pool.pop_front(end.since(next.start))
    {
        match grant.last_mut() {
            Some(last) if last.end == part.start => last.end = part.end,
            _ => grant.push(part),
        }
    }
    grant
}

impl Lane {
    /// Less is better: first whoever is not aside for stalling, then by rank.
    fn standing(&self, now: Time) -> (Time, u32) {
        let aside = self.health.stalled_until();
        let aside = if aside > now { aside } else { Time::ZERO };
        let behind = if self.health.is_behind(now) { BEHIND } else { 0 };
        (aside, u32::from(self.rank) + behind)
    }

    fn is_active(&self, now: Time, active: Active) -> bool {
        let standing = self.standing(now);
        let better = standing < active.standing && self.is_on_trial(active);
        !self.health.is_paused(now) && (standing == active.standing || better)
    }

    /// Whether it gets ranges only to see whether it works again.
    fn is_on_trial(&self, active: Active) -> bool {
        active.proven && self.health.is_on_trial()
    }

    /// Bytes it has and keeps.
    fn load(&self) -> u64 {
        (self.assigned.len_bytes() - self.revoking.len_bytes()).get()
    }

    /// Bytes it may be given; nothing unless it is worth an action.
    fn room(&self) -> u64 {
        let room = self.health.window().saturating_sub(self.load());
        if room >= GRANT_ROOM { room } else { 0 }
    }

    /// How long it will take for what it has; before its rate is known, as at 10 Mbit/s.
    fn time_left(&self) -> Duration {
        let rate = self.health.rate();
        let rate = if rate == DataRate::ZERO { DataRate::from_mbps(10) } else { rate };
        rate.time_for(ByteCount(self.load()))
    }

    fn drop(&mut self, range: &Range<Offset>) -> ByteCount {
        self.revoking.remove(range.clone());
        let bytes = self.assigned.remove(range.clone());
        if self.assigned.is_empty() {
            self.health.on_idle();
        }
        bytes
    }

    fn revoke(&mut self, id: TransportId, range: Range<Offset>, out: &mut VecDeque<SourceAction>) {
        let fresh: Vec<_> = self.revoking.gaps(range).collect();
        for part in fresh {
            self.revoking.insert(part.clone());
            out.push_back(SourceAction::Revoke(id, part));
        }
    }

    fn revoke_all(&mut self, id: TransportId, out: &mut VecDeque<SourceAction>) {
        let all: Vec<_> = self.assigned.iter().collect();
        for range in all {
            self.revoke(id, range, out);
        }
    }
}

#[cfg(test)]
#[path = "assign_tests.rs"]
mod tests;
