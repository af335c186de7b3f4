//! Which worker moves which range, where several share the work: streams of one transport, or the
//! connections of a download.
//!
//! Every open byte is in exactly one place: it waits, it is reserved while it is read ahead for
//! whichever worker comes first, or one worker answers for it. A slow worker is relieved in one of
//! two ways. Bytes that were sent cannot be recalled: [`RangeScheduler::reassign`] queues a second
//! copy, and from then on whoever takes that copy answers for it. A request can be cut short:
//! [`RangeScheduler::steal`] moves the tail of its range to an idle worker. The copy that arrives
//! first is placed, later ones are not.

mod relief;
mod worker;

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use packtrain_units::{ByteCount, Duration, Offset, RangeSet, Time};

use worker::Held;
pub use worker::{Thresholds, Worker, WorkerId};

/// A range that was taken off the queue for whichever worker comes first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reserved {
    /// The bytes.
    pub range: Range<Offset>,
    /// The worker that has a copy of them under way, and does not get them again.
    pub not: Option<WorkerId>,
}

/// What a scheduler has counted, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    /// Placed, each byte once.
    pub placed: ByteCount,
    /// Brought by [`RangeScheduler::place`] after another copy was placed.
    pub placed_twice: ByteCount,
    /// Queued for a second worker.
    pub handed_again: ByteCount,
}

/// Open ranges, and the workers that share them. `T` is what the owner knows about a worker.
#[derive(Debug, Default)]
pub struct RangeScheduler<T> {
    thresholds: Thresholds,
    /// Added and neither placed nor taken back.
    open: RangeSet,
    /// What waits for any worker; it is taken in offset order.
    waiting: RangeSet,
    /// What waits for any worker but one; it is taken before all else.
    copies: VecDeque<Reserved>,
    reserved: RangeSet,
    workers: BTreeMap<WorkerId, Worker<T>>,
    next_worker: u32,
    counters: Counters,
    /// Set by the owner when nothing is to be granted any more.
    pub closed: bool,
}

impl<T: Default> RangeScheduler<T> {
    /// No ranges and no workers. Without thresholds no worker counts as slow.
    pub fn new(thresholds: Thresholds) -> Self {
        Self { thresholds, ..Self::default() }
    }

    /// Opens a range; what of it is not open yet waits. Copies of it that are under way from
    /// before do not count: the receiver may have dropped them.
    pub fn add(&mut self, range: Range<Offset>) {
        let gaps: Vec<_> = self.open.gaps(range).collect();
        for gap in gaps {
            self.workers.values_mut().for_each(|worker| worker.forget(&gap));
            self.waiting.insert(gap.clone());
            self.open.insert(gap);
        }
    }

    /// Opens a range. A worker comes to it by itself if it was granted it before and moves ranges
    /// in order; otherwise the range waits.
    pub fn add_ahead(&mut self, range: Range<Offset>) {
        if self.workers.values().any(|worker| worker.answers_for(&range)) {
            self.open.insert(range);
        } else {
            self.add(range);
        }
    }

    /// Closes what of `range` is open, and gives that. What workers have of it is not recalled.
    pub fn revoke(&mut self, range: &Range<Offset>) -> Vec<Range<Offset>> {
        let returned = self.open.intersect(range.clone()).collect();
        self.shut(range);
        returned
    }

    /// A worker starts.
    pub fn add_worker(&mut self, srtt: Duration, tag: T) -> WorkerId {
        let id = WorkerId::numbered(self.next_worker);
        self.next_worker += 1;
        let worker = Worker { tag, srtt, thresholds: self.thresholds, ..Worker::default() };
        self.workers.insert(id, worker);
        id
    }

    /// Takes the first range that waits off the queue, up to where `cut` says. It is granted to a
    /// worker later.
    pub fn reserve(&mut self, cut: impl FnOnce(&Range<Offset>) -> Offset) -> Option<Reserved> {
        let (mut range, not) = match self.copies.pop_front() {
            Some(Reserved { range, not }) => (range, not),
            None => (self.waiting.first()?, None),
        };
        let end = cut(&range).min(range.end);
        if not.is_some() && end < range.end {
            self.copies.push_front(Reserved { range: end..range.end, not });
        }
        range.end = end;
        self.waiting.remove(range.clone());
        self.reserved.insert(range.clone());
        Some(Reserved { range, not })
    }

    /// Reserves all of `range`, waiting or not open yet. No worker may answer for any of it.
    pub fn reserve_all(&mut self, range: &Range<Offset>) {
        self.waiting.remove(range.clone());
        self.reserved.insert(range.clone());
    }

    /// This worker answers for `range` from now on, as far as it is still reserved, and moves it
    /// after all that it was granted before.
    pub fn grant(&mut self, now: Time, id: WorkerId, range: Range<Offset>) {
        let Some(worker) = self.workers.get_mut(&id) else { return };
        if worker.held.is_empty() {
            (worker.moved, worker.since, worker.since_done) = (now, now, worker.done);
        }
        for part in self.reserved.intersect(range.clone()) {
            let end = worker.granted + size(&(range.start..part.end));
            worker.held.push_back(Held { end, range: part, at: now, reassigned: false });
        }
        worker.granted += size(&range);
        self.reserved.remove(range);
    }

    /// The peer has taken `total` bytes of this worker in all, in the order in which they were
    /// granted. Gives what is placed by that.
    pub fn progress(&mut self, now: Time, id: WorkerId, total: u64) -> RangeSet {
        let mut placed = RangeSet::new();
        while let Some(worker) = self.workers.get_mut(&id) {
            if worker.done < total.min(worker.granted) {
                worker.advance(now, total.min(worker.granted));
            }
            let Some(held) = worker.held.pop_front_if(|held| held.end <= total) else { break };
            placed.extend(self.open.intersect(held.range.clone()));
            self.shut(&held.range);
        }
        self.counters.placed += placed.len_bytes();
        placed
    }

    /// This worker has brought all of `range`, a part of what it was granted. Whether that is the
    /// first copy; only then it is placed.
    pub fn place(&mut self, now: Time, id: WorkerId, range: &Range<Offset>) -> bool {
        if let Some(worker) = self.workers.get_mut(&id) {
            worker.pass(now, range);
        }
        if !self.open.contains_range(range) {
            self.counters.placed_twice += ByteCount(size(range));
            return false;
        }
        self.shut(range);
        self.counters.placed += ByteCount(size(range));
        true
    }

    /// What this worker answers for waits again.
    pub fn give_back(&mut self, id: WorkerId) {
        let Some(worker) = self.workers.get_mut(&id) else { return };
        worker.granted = worker.done;
        for held in std::mem::take(&mut worker.held).iter().filter(|held| !held.reassigned) {
            self.hand_out_again(&held.range, None);
        }
    }

    /// This worker is over: gives back what it answers for.
    pub fn leave(&mut self, id: WorkerId) {
        self.give_back(id);
        self.workers.remove(&id);
    }

    /// What is still open of `range` waits once more.
    fn hand_out_again(&mut self, range: &Range<Offset>, not: Option<WorkerId>) {
        for range in self.open.intersect(range.clone()) {
            self.counters.handed_again += ByteCount(size(&range));
            if not.is_some() {
                self.copies.push_back(Reserved { range, not });
            } else {
                self.waiting.insert(range);
            }
        }
    }

    /// Nothing of `range` is open or waits any more.
    fn shut(&mut self, range: &Range<Offset>) {
        for set in [&mut self.open, &mut self.waiting, &mut self.reserved] {
            set.remove(range.clone());
        }
        if self.copies.iter().any(|copy| overlap(&copy.range, range)) {
            for Reserved { range: copy, not } in std::mem::take(&mut self.copies) {
                let parts = without(&copy, range).map(|range| Reserved { range, not });
                self.copies.extend(parts);
            }
        }
    }

    /// A worker.
    pub fn worker(&self, id: WorkerId) -> Option<&Worker<T>> {
        self.workers.get(&id)
    }

    /// Changes public fields of a worker.
    pub fn update(&mut self, id: WorkerId, change: impl FnOnce(&mut Worker<T>)) {
        if let Some(worker) = self.workers.get_mut(&id) {
            change(worker);
        }
    }

    /// All workers.
    pub fn workers(&self) -> impl Iterator<Item = (WorkerId, &Worker<T>)> {
        self.workers.iter().map(|(id, worker)| (*id, worker))
    }

    /// Workers that are there to stay.
    pub fn staying(&self) -> impl Iterator<Item = (WorkerId, &Worker<T>)> {
        self.workers().filter(|(_, worker)| !worker.retiring)
    }

    /// What was added and neither placed nor taken back.
    pub fn open(&self) -> &RangeSet {
        &self.open
    }

    /// What waits for any worker.
    pub fn waiting(&self) -> &RangeSet {
        &self.waiting
    }

    /// What is reserved.
    pub fn reserved(&self) -> &RangeSet {
        &self.reserved
    }

    /// Whether nothing waits and nothing is reserved.
    pub fn is_drained(&self) -> bool {
        self.waiting.is_empty() && self.copies.is_empty() && self.reserved.is_empty()
    }

    /// Whether anything was placed or is open.
    pub fn is_used(&self) -> bool {
        self.counters.placed > ByteCount::ZERO || !self.open.is_empty()
    }

    /// What was counted so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }
}

/// The parts of `whole` outside of `hole`.
pub fn without(
    whole: &Range<Offset>,
    hole: &Range<Offset>,
) -> impl Iterator<Item = Range<Offset>> + use<> {
    let before = whole.start..whole.end.min(hole.start);
    let after = whole.start.max(hole.end)..whole.end;
    [before, after].into_iter().filter(|part| part.start < part.end)
}

fn overlap(one: &Range<Offset>, other: &Range<Offset>) -> bool {
    one.start < other.end && other.start < one.end
}

/// Bytes of a range.
pub fn size(range: &Range<Offset>) -> u64 {
    range.end.since(range.start).get()
}

#[cfg(test)]
mod tests;
