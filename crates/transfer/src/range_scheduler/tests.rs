use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

const SPACE: u64 = 240;
const LIMITS: Thresholds = Thresholds {
    still: (Duration::from_millis(100), 2),
    max_still: Duration::from_millis(400),
    overdue: (Duration::from_millis(300), 3),
    gain: Duration::from_millis(10),
    rate_span: Duration::from_millis(50),
};

fn range(from: u64, to: u64) -> Range<Offset> {
    Offset(from)..Offset(to)
}

fn ms(n: u64) -> Time {
    Time::ZERO + Duration::from_millis(n)
}

fn take(ranges: &mut RangeScheduler<()>, now: Time, id: WorkerId, most: u64) -> Reserved {
    let next = ranges.reserve(|first| first.start + ByteCount(most)).expect("something waits");
    ranges.grant(now, id, next.range.clone());
    next
}

#[test]
fn what_was_handed_out_before_comes_first_and_not_to_who_had_it() {
    let mut ranges = RangeScheduler::new(LIMITS);
    let [slow, quick] = [(); 2].map(|()| ranges.add_worker(Duration::ZERO, ()));
    ranges.add(range(50, 100));
    ranges.add(range(0, 40));
    assert_eq!(take(&mut ranges, ms(0), slow, 30).range, range(0, 30), "lower offsets first");
    take(&mut ranges, ms(0), slow, 30);
    assert!(!ranges.reassign(ms(99)));
    assert!(ranges.reassign(ms(100)), "it stands still");
    assert!(ranges.worker(slow).is_some_and(Worker::is_still));
    let next = take(&mut ranges, ms(100), quick, 100);
    assert_eq!((next.range, next.not), (range(0, 30), Some(slow)));
    assert_eq!(ranges.counters().handed_again, ByteCount(40));
    // The first copy comes after all; it is placed, and the second one is not.
    assert_eq!(ranges.progress(ms(110), slow, 30).len_bytes(), ByteCount(30));
    assert!(!ranges.worker(slow).is_some_and(Worker::is_still));
    assert!(ranges.progress(ms(120), quick, 30).is_empty());
    // What else the slow one has waits for others, until it arrives.
    assert_eq!(ranges.copies, [Reserved { range: range(30, 40), not: Some(slow) }]);
    ranges.progress(ms(130), slow, 40);
    assert!(ranges.copies.is_empty());
    assert!(ranges.waiting().iter().eq([range(50, 100)]));
    assert_eq!(ranges.counters().placed, ByteCount(40));
}

#[test]
fn what_is_overdue_and_what_would_come_last_is_handed_out_again() {
    let mut ranges = RangeScheduler::new(LIMITS);
    let [slow, quick] = [(); 2].map(|()| ranges.add_worker(Duration::ZERO, ()));
    ranges.add(range(0, 100));
    for _ in 0..10 {
        take(&mut ranges, ms(0), slow, 10);
    }
    // It moves, and its rate is 200 bytes a second.
    ranges.progress(ms(50), slow, 10);
    // 90 bytes take it 450 ms. The other one, at 10 Mbit/s, takes the second half of that.
    assert!(ranges.reassign(ms(60)));
    let first = ranges.copies.front().map(|copy| copy.range.clone());
    assert_eq!(first, Some(range(50, 60)), "half, in whole pieces");
    let pieces: Vec<u64> =
        (0..5).map(|_| size(&take(&mut ranges, ms(60), quick, 90).range)).collect();
    assert_eq!(pieces, [10; 5]);
    ranges.progress(ms(70), quick, 50);
    for (now, done) in [(130, 20), (200, 30), (290, 40)] {
        ranges.progress(ms(now), slow, done);
        assert!(ranges.worker(slow).is_some_and(|one| !one.is_stalled(ms(now))));
    }
    assert!(ranges.reassign(ms(300)), "the last piece is overdue");
    assert_eq!(take(&mut ranges, ms(300), quick, 90).range, range(40, 50));
    assert_eq!(ranges.progress(ms(310), quick, 60).len_bytes(), ByteCount(10));
    assert!(ranges.open().is_empty());
}

#[test]
fn copies_from_before_a_range_is_added_again_do_not_count() {
    let mut ranges = RangeScheduler::new(LIMITS);
    let one = ranges.add_worker(Duration::ZERO, ());
    ranges.add(range(0, 100));
    take(&mut ranges, ms(0), one, 60);
    assert_eq!(ranges.revoke(&range(20, 40)), [range(20, 40)]);
    ranges.add(range(20, 30));
    let placed = ranges.progress(ms(1), one, 60);
    assert!(placed.iter().eq([range(0, 20), range(40, 60)]), "{placed:?}");
    assert_eq!(take(&mut ranges, ms(2), one, 60).range, range(20, 30));
    assert_eq!(ranges.progress(ms(3), one, u64::MAX).len_bytes(), ByteCount(10));
}

#[test]
fn a_thief_takes_half_of_what_would_end_last_and_all_of_what_stands_still() {
    const NO_RATE: Thresholds = Thresholds { rate_span: Duration::MAX, ..LIMITS };
    let mut ranges = RangeScheduler::new(NO_RATE);
    let [one, two, three] = [(); 3].map(|()| ranges.add_worker(Duration::ZERO, ()));
    ranges.add(range(0, 100));
    take(&mut ranges, ms(0), one, 100);
    assert!(ranges.place(ms(50), one, &range(0, 10)));
    assert_eq!(ranges.steal(ms(50), two, ByteCount(10), |()| false), None);
    let half = ranges.steal(ms(50), two, ByteCount(10), |()| true);
    assert_eq!(half, Some((one, range(60, 100))), "it keeps five times ten");
    assert_eq!(ranges.worker(one).map(Worker::rest), Some(range(10, 60)));
    assert!(ranges.place(ms(140), two, &range(60, 70)));
    let all = ranges.steal(ms(150), three, ByteCount(10), |()| true);
    assert_eq!(all, Some((one, range(10, 60))));
    assert!(ranges.worker(one).is_some_and(Worker::is_idle));
    // What the victim still brings is placed, and the thief's copy is not.
    assert!(ranges.place(ms(150), one, &range(10, 20)));
    assert!(!ranges.place(ms(160), three, &range(10, 20)));
    assert_eq!(
        (ranges.counters().placed, ranges.counters().placed_twice),
        (ByteCount(30), ByteCount(10))
    );
}

#[test]
fn what_a_victim_has_passed_and_is_open_again_waits() {
    let mut ranges = RangeScheduler::new(LIMITS);
    let [one, two] = [(); 2].map(|()| ranges.add_worker(Duration::ZERO, ()));
    ranges.add(range(0, 5));
    take(&mut ranges, ms(1), one, 5);
    assert!(ranges.place(ms(1), one, &range(0, 4)));
    ranges.add_ahead(range(0, 5));
    let stolen = ranges.steal(ms(200), two, ByteCount(4), |()| true);
    assert_eq!(stolen, Some((one, range(4, 5))));
    assert!(ranges.waiting().contains_range(&range(0, 4)), "{ranges:?}");
}

/// What a worker moves: granted ranges and the step of each grant.
type Sending = VecDeque<(Range<Offset>, usize)>;

/// A scheduler, and what is true of it without looking into it.
struct World {
    ranges: RangeScheduler<()>,
    /// Whether workers report ranges, and can be stopped, or report totals.
    blocks: bool,
    now: Time,
    step: usize,
    /// In which step each open byte was opened.
    opened: Vec<Option<usize>>,
    /// What was read ahead.
    ready: Vec<Reserved>,
    workers: BTreeMap<WorkerId, (Sending, u64)>,
}

impl World {
    fn new(blocks: bool) -> Self {
        let opened = vec![None; SPACE as usize];
        let (ranges, workers) = (RangeScheduler::new(LIMITS), BTreeMap::new());
        Self { ranges, blocks, now: ms(1), step: 0, opened, ready: Vec::new(), workers }
    }

    fn add_worker(&mut self) -> WorkerId {
        let id = self.ranges.add_worker(Duration::from_millis(20), ());
        self.workers.insert(id, (Sending::new(), 0));
        id
    }

    fn bytes(&mut self, range: &Range<Offset>) -> &mut [Option<usize>] {
        &mut self.opened[range.start.get() as usize..range.end.get() as usize]
    }

    fn add(&mut self, range: Range<Offset>, step: usize) {
        for byte in self.bytes(&range).iter_mut().filter(|byte| byte.is_none()) {
            *byte = Some(step);
        }
        self.ranges.add(range);
    }

    /// Opens a part of what a worker holds: it comes to that by itself.
    fn add_ahead(&mut self, id: WorkerId) {
        let held = &self.ranges.workers[&id].held;
        let Some(held) = held.iter().find(|held| !held.reassigned) else { return };
        let range = held.range.clone();
        for byte in self.bytes(&range).iter_mut().filter(|byte| byte.is_none()) {
            *byte = Some(0);
        }
        self.ranges.add_ahead(range);
    }

    /// What is dropped from what was read ahead is taken back as a whole.
    fn revoke(&mut self, mut range: Range<Offset>) {
        self.ready.retain(|Reserved { range: ready, .. }| {
            let keep = ready.end <= range.start || range.end <= ready.start;
            if !keep {
                range = range.start.min(ready.start)..range.end.max(ready.end);
            }
            keep
        });
        for part in self.ranges.revoke(&range) {
            assert!(self.bytes(&part).iter_mut().all(|byte| byte.take().is_some()));
        }
    }

    fn reserve(&mut self, most: u64) {
        self.ready.extend(self.ranges.reserve(|first| first.start + ByteCount(most)));
    }

    fn take(&mut self, id: WorkerId, most: u64) {
        if self.blocks && !self.workers[&id].0.is_empty() {
            return;
        }
        self.reserve(most);
        let mine = self.ready.iter().position(|ready| ready.not != Some(id));
        let Some(n) = mine.filter(|_| !self.ranges.workers[&id].retiring) else { return };
        let range = self.ready.remove(n).range;
        self.ranges.grant(self.now, id, range.clone());
        self.sends(id, range);
    }

    fn sends(&mut self, id: WorkerId, range: Range<Offset>) {
        let step = self.step;
        self.workers.get_mut(&id).expect("it is there").0.push_back((range, step));
    }

    fn placed(&mut self, range: &Range<Offset>, granted: usize) {
        for byte in self.bytes(range) {
            let opened = byte.take().expect("placed once, and only what is open");
            assert!(opened <= granted, "a copy from before it was added");
        }
    }

    /// What a worker moves arrives: a piece, or a block of it.
    fn arrive(&mut self, id: WorkerId) {
        let (sending, total) = self.workers.get_mut(&id).expect("it is there");
        let Some((first, granted)) = sending.pop_front() else { return };
        if !self.blocks {
            *total += size(&first);
            let total = *total;
            for part in self.ranges.progress(self.now, id, total).iter() {
                self.placed(&part, granted);
            }
            return;
        }
        let end = first.end.min(first.start + ByteCount(4));
        if end < first.end {
            sending.push_front((end..first.end, granted));
        }
        let over = sending.is_empty();
        let block = first.start..end;
        if self.ranges.place(self.now, id, &block) {
            self.placed(&block, usize::MAX);
        }
        if over {
            self.ranges.give_back(id);
        }
    }

    fn give_back(&mut self, id: WorkerId) {
        if self.blocks {
            self.ranges.give_back(id);
            self.workers.get_mut(&id).expect("it is there").0.clear();
        }
    }

    fn retire(&mut self, id: WorkerId) {
        self.ranges.update(id, |worker| worker.retiring = true);
    }

    fn leave(&mut self, id: WorkerId) {
        self.ranges.leave(id);
        self.workers.remove(&id);
    }

    fn relieve(&mut self, id: WorkerId) {
        if !self.blocks {
            self.ranges.reassign(self.now);
        } else if self.workers[&id].0.is_empty()
            && let Some((_, stolen)) = self.ranges.steal(self.now, id, ByteCount(4), |()| true)
        {
            self.sends(id, stolen);
        }
    }

    /// Every open byte is in exactly one place.
    fn check(&self) {
        let ranges = &self.ranges;
        let held = ranges.workers.values().flat_map(|worker| &worker.held);
        let held = held.filter(|held| !held.reassigned).map(|held| held.range.clone());
        let mut found = RangeSet::new();
        let copies = ranges.copies.iter().map(|copy| copy.range.clone());
        let waiting: Vec<_> = ranges.waiting.iter().chain(copies).collect();
        assert!(waiting.iter().all(|range| ranges.open.contains_range(range)), "{ranges:?}");
        for place in waiting.into_iter().chain(ranges.reserved.iter()).chain(held) {
            for part in ranges.open.intersect(place) {
                assert_eq!(found.insert(part.clone()).get(), size(&part), "twice: {ranges:?}");
            }
        }
        assert_eq!(found, ranges.open, "lost: {ranges:?}");
        let open = self.opened.iter().filter(|byte| byte.is_some()).count();
        assert_eq!(ranges.open.len_bytes(), ByteCount(open as u64));
    }
}

#[derive(Clone, Debug)]
enum Step {
    Add(u64, u64),
    AddAhead(usize),
    Revoke(u64, u64),
    Reserve(u64),
    Take(usize, u64),
    Arrive(usize),
    Pass(u64, usize),
    GiveBack(usize),
    Leave(usize),
    Retire(usize),
    Join,
    Clear,
}

fn step() -> impl Strategy<Value = Step> {
    let span = || (0..SPACE - 1).prop_flat_map(|at| (Just(at), at + 1..SPACE.min(at + 80)));
    prop_oneof![
        4 => span().prop_map(|(from, to)| Step::Add(from, to)),
        1 => (0..6usize).prop_map(Step::AddAhead),
        2 => span().prop_map(|(from, to)| Step::Revoke(from, to)),
        2 => (1..12u64).prop_map(Step::Reserve),
        12 => (0..6usize, 1..24u64).prop_map(|(n, most)| Step::Take(n, most)),
        12 => (0..6usize).prop_map(Step::Arrive),
        4 => (1..300u64, 0..6usize).prop_map(|(millis, n)| Step::Pass(millis, n)),
        1 => (0..6usize).prop_map(Step::GiveBack),
        1 => (0..6usize).prop_map(Step::Leave),
        1 => (0..6usize).prop_map(Step::Retire),
        2 => Just(Step::Join),
        1 => (0..40u8).prop_map(|n| if n == 0 { Step::Clear } else { Step::Join }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    /// Whatever is added, taken back and moved by whomever: every open byte is in one place, is
    /// placed once, and one good worker moves all that is left.
    #[test]
    fn every_open_byte_is_in_one_place_and_none_is_lost(
        blocks in any::<bool>(),
        steps in prop::collection::vec(step(), 1..150),
    ) {
        let mut world = World::new(blocks);
        world.add_worker();
        for (n, step) in steps.into_iter().enumerate() {
            world.step = n + 1;
            let ids: Vec<WorkerId> = world.workers.keys().copied().collect();
            let pick = |n: usize| ids.get(n % ids.len().max(1)).copied();
            match step {
                Step::Add(from, to) => world.add(range(from, to), n + 1),
                Step::AddAhead(n) => if let Some(id) = pick(n) { world.add_ahead(id); },
                Step::Revoke(from, to) => world.revoke(range(from, to)),
                Step::Reserve(most) => world.reserve(most),
                Step::Take(n, most) => if let Some(id) = pick(n) { world.take(id, most); },
                Step::Arrive(n) => if let Some(id) = pick(n) { world.arrive(id); },
                Step::Pass(millis, n) => {
                    world.now += Duration::from_millis(millis);
                    if let Some(id) = pick(n) { world.relieve(id); }
                }
                Step::GiveBack(n) => if let Some(id) = pick(n) { world.give_back(id); },
                Step::Leave(n) => if let Some(id) = pick(n) { world.leave(id); },
                Step::Retire(n) => if let Some(id) = pick(n) { world.retire(id); },
                Step::Join => if ids.len() < 6 { world.add_worker(); },
                Step::Clear => {
                    world.revoke(range(0, SPACE));
                }
            }
            world.check();
        }
        let last = world.add_worker();
        if blocks {
            for id in world.workers.keys().copied().collect::<Vec<_>>() {
                world.give_back(id);
            }
        }
        for _ in 0..2000 {
            if world.ranges.open().is_empty() {
                break;
            }
            world.step += 1;
            world.now += Duration::from_millis(20);
            world.relieve(last);
            world.take(last, 16);
            world.arrive(last);
            world.check();
        }
        prop_assert!(world.ranges.open().is_empty(), "{:?}", world.ranges);
    }
}
