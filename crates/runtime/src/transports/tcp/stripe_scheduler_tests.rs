use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const MIB: u64 = 1 << 20;

fn range(from: u64, to: u64) -> Range<Offset> {
    Offset(from)..Offset(to)
}

fn ms(n: u64) -> Time {
    Time::from_nanos(n * 1_000_000)
}

impl Default for StripeScheduler {
    fn default() -> Self {
        Self::limited(None)
    }
}

/// A scheduler, what each stream was handed and the peer has not taken, and what was placed.
#[derive(Default)]
struct World {
    stripe_scheduler: StripeScheduler,
    has: BTreeMap<StreamId, VecDeque<u64>>,
    taken: BTreeMap<StreamId, u64>,
    placed: RangeSet,
    now: Time,
}

impl World {
    fn with(streams: usize, bytes: u64) -> (Self, Vec<StreamId>) {
        let mut world = Self { now: ms(1000), ..Self::default() };
        let ids = (0..streams).map(|_| world.add()).collect();
        world.stripe_scheduler.ranges.add(range(0, bytes));
        (world, ids)
    }

    fn add(&mut self) -> StreamId {
        self.add_on(PathId::DIRECT)
    }

    fn add_on(&mut self, path: PathId) -> StreamId {
        let id = self.stripe_scheduler.ranges.add_worker(Duration::from_millis(20), path);
        self.has.insert(id, VecDeque::new());
        self.taken.insert(id, 0);
        id
    }

    fn retire(&mut self, id: StreamId) {
        self.stripe_scheduler.ranges.update(id, |stream| stream.retiring = true);
    }

    /// The feeder's part.
    fn feed(&mut self) {
        while let Some(wanted) = self.stripe_scheduler.next() {
            let size = wanted.range.end.since(wanted.range.start).get();
            assert!(size <= PIECE);
            let slice = Slice::owned(wanted.range.start, vec![0; size as usize]);
            self.stripe_scheduler.read(&wanted, slice);
        }
    }

    /// A stream takes up to `most` pieces; how many it got.
    fn take(&mut self, id: StreamId, most: usize) -> usize {
        for n in 0..most {
            self.feed();
            match self.stripe_scheduler.take(self.now, id) {
                Take::Piece(_, slice) => {
                    let pieces = self.has.get_mut(&id).expect("it is there");
                    pieces.push_back(slice.len() as u64);
                }
                _ => return n,
            }
        }
        most
    }

    /// The peer takes what a stream was handed, `most` pieces of it.
    fn arrive(&mut self, id: StreamId, most: usize) {
        for _ in 0..most {
            let Some(size) = self.has.get_mut(&id).and_then(VecDeque::pop_front) else { return };
            let total = self.taken.get_mut(&id).expect("it is there");
            *total += size;
            for part in self.stripe_scheduler.taken(self.now, id, *total).iter() {
                let size = part.end.since(part.start);
                assert_eq!(self.placed.insert(part), size, "placed once");
            }
        }
    }

    fn pass(&mut self, millis: u64) {
        self.now += Duration::from_millis(millis);
        self.stripe_scheduler.ranges.reassign(self.now);
    }

    fn done(&self) -> u64 {
        self.placed.len_bytes().get()
    }
}

#[test]
fn a_stream_that_stands_still_does_not_hold_the_end() {
    let (mut world, ids) = World::with(2, 8 * MIB);
    let (quick, frozen) = (ids[0], ids[1]);
    assert_eq!(world.take(frozen, 4), 4);
    for _ in 0..200 {
        world.take(quick, 2);
        world.arrive(quick, 2);
        world.pass(10);
    }
    assert_eq!(world.done(), 8 * MIB, "the other one moved it all");
    assert!(
        matches!(world.stripe_scheduler.take(world.now, frozen), Take::Later),
        "it gets nothing new"
    );
    assert_eq!(world.stripe_scheduler.ranges.counters().handed_again, ByteCount(4 * PIECE));
    // It comes back: what it had is there already, and it may go on.
    world.arrive(frozen, 4);
    assert_eq!(world.done(), 8 * MIB);
    assert!(matches!(world.stripe_scheduler.take(world.now, frozen), Take::Wait));
}

#[test]
fn a_depot_gets_no_more_than_it_is_seen_to_pass_on() {
    let (mut world, _) = World::with(0, 64 * MIB);
    let id = world.add_on(PathId::numbered(1));
    let most = 1000;
    assert_eq!(world.take(id, most), 4, "a mebibyte");
    assert_eq!(world.take(id, most), 0, "nothing came through");
    for expected in [4, 8, 16] {
        let under_way = world.has[&id].len();
        world.arrive(id, under_way);
        let taken = world.take(id, most);
        assert_eq!(taken, under_way + expected, "as much again as arrived");
    }
    let direct = world.add();
    assert!(world.take(direct, most) > 100, "the rest is for others");
}

#[test]
fn a_slow_stream_is_relieved_at_the_end() {
    let (mut world, ids) = World::with(2, 8 * MIB);
    let (quick, slow) = (ids[0], ids[1]);
    let mut end = None;
    for tick in 0..2000u64 {
        // 200 Mbit/s and, of pieces it holds four of, a hundredth of that.
        world.take(quick, 1);
        if world.has[&slow].len() < 4 {
            world.take(slow, 1);
        }
        world.arrive(quick, 1);
        if tick % 100 == 99 {
            world.arrive(slow, 1);
        }
        world.pass(10);
        if world.done() == 8 * MIB {
            end = Some(tick);
            break;
        }
    }
    // Alone the quick one takes 32 ticks; what the slow one holds would take it 400.
    let end = end.expect("it ends");
    assert!(end < 150, "after {end} ticks");
}

#[test]
fn what_a_lost_stream_had_is_moved_by_the_others() {
    let (mut world, ids) = World::with(3, 4 * MIB);
    world.take(ids[0], 3);
    world.take(ids[1], 3);
    world.arrive(ids[0], 1);
    assert_eq!(world.stripe_scheduler.lost(ids[0]), Some(true));
    assert_eq!(world.stripe_scheduler.lost(ids[0]), None, "only once");
    assert_eq!(world.stripe_scheduler.lost(ids[2]), Some(false), "it had nothing");
    while world.take(ids[1], 8) > 0 {
        world.arrive(ids[1], 8);
    }
    world.arrive(ids[1], 8);
    assert_eq!(world.done(), 4 * MIB);
    assert_eq!(world.stripe_scheduler.ranges.counters().placed, ByteCount(4 * MIB));
    assert!(world.stripe_scheduler.ranges.counters().handed_again > ByteCount::ZERO);
}

#[test]
fn what_is_under_way_when_the_peer_has_all_counts_once() {
    let (mut world, ids) = World::with(2, 4 * MIB);
    world.take(ids[0], 3);
    assert_eq!(world.stripe_scheduler.lost(ids[0]), Some(true));
    while world.take(ids[1], 8) > 0 {
        if world.has[&ids[1]].len() > 2 {
            world.arrive(ids[1], 1);
        }
    }
    assert!(
        world.stripe_scheduler.ranges.counters().placed < ByteCount(4 * MIB),
        "the last word has not come"
    );
    world.stripe_scheduler.all_placed(world.now);
    assert_eq!(world.stripe_scheduler.ranges.counters().placed, ByteCount(4 * MIB));
    world.stripe_scheduler.all_placed(world.now);
    assert_eq!(world.stripe_scheduler.ranges.counters().placed, ByteCount(4 * MIB));
}

#[test]
fn a_retired_stream_ends_and_takes_nothing_more() {
    let (mut world, ids) = World::with(2, 2 * MIB);
    world.take(ids[0], 2);
    world.retire(ids[0]);
    assert!(matches!(world.stripe_scheduler.take(world.now, ids[0]), Take::Over));
    assert_eq!(world.stripe_scheduler.ranges.staying().count(), 1);
    world.arrive(ids[0], 2);
    assert_eq!(world.stripe_scheduler.lost(ids[0]), Some(false), "all it had was taken");
}

#[test]
fn a_peer_that_says_it_took_more_than_was_sent_places_nothing_more() {
    let (mut world, ids) = World::with(1, MIB);
    world.take(ids[0], 1);
    let placed = world.stripe_scheduler.taken(world.now, ids[0], u64::MAX);
    assert_eq!(placed.len_bytes(), ByteCount(PIECE));
    assert!(
        world.stripe_scheduler.taken(world.now, StreamId::numbered(77), 5).is_empty(),
        "a stream that never was"
    );
}

#[derive(Clone, Debug)]
enum Step {
    Take(usize, usize),
    Arrive(usize, usize),
    Pass(u64),
    Lose(usize),
    Retire(usize),
    Add,
    Revoke(u64, u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..6usize, 1..5usize).prop_map(|(n, most)| Step::Take(n, most)),
        8 => (0..6usize, 1..5usize).prop_map(|(n, most)| Step::Arrive(n, most)),
        4 => (1..3000u64).prop_map(Step::Pass),
        1 => (0..6usize).prop_map(Step::Lose),
        1 => (0..6usize).prop_map(Step::Retire),
        1 => Just(Step::Add),
        1 => (0..16 * MIB, 1..MIB).prop_map(|(at, len)| Step::Revoke(at, len)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn every_byte_is_placed_or_given_back_exactly_once(
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let total = 16 * MIB + 12_345;
        let (mut world, _) = World::with(3, total);
        let mut back = RangeSet::new();
        for step in steps {
            let ids: Vec<StreamId> = world.has.keys().copied().collect();
            let pick = |n: usize| ids.get(n % ids.len().max(1)).copied();
            match step {
                Step::Take(n, most) => if let Some(id) = pick(n) { world.take(id, most); },
                Step::Arrive(n, most) => if let Some(id) = pick(n) { world.arrive(id, most); },
                Step::Pass(millis) => world.pass(millis),
                Step::Lose(n) => if let Some(id) = pick(n) {
                    world.stripe_scheduler.lost(id);
                    world.has.remove(&id);
                },
                Step::Retire(n) => if let Some(id) = pick(n) { world.retire(id); },
                Step::Add => { world.add(); }
                Step::Revoke(at, len) => {
                    for part in world.stripe_scheduler.revoke(&range(at, at + len)) {
                        let size = part.end.since(part.start);
                        prop_assert_eq!(back.insert(part), size);
                    }
                }
            }
        }
        // Whatever happened, one good stream moves the rest.
        let last = world.add();
        for _ in 0..10_000 {
            if world.done() + back.len_bytes().get() == total {
                break;
            }
            world.take(last, 4);
            world.arrive(last, 4);
            world.pass(100);
        }
        prop_assert_eq!(world.done() + back.len_bytes().get(), total);
        for part in back.iter() {
            prop_assert_eq!(world.placed.intersect(part).count(), 0);
        }
    }
}

#[test]
fn at_a_low_rate_pieces_are_small() {
    let limiter = RateLimiter::new(DataRate::from_bps(20_000), Duration::from_millis(20));
    let quantum = limiter.quantum(ByteCount(PIECE)).get();
    let mut world = World {
        stripe_scheduler: StripeScheduler::limited(Some(&limiter)),
        now: ms(1000),
        ..World::default()
    };
    let id = world.add();
    world.stripe_scheduler.ranges.add(range(0, MIB));
    assert!(world.take(id, 10) == 10);
    let largest = world.has[&id].iter().max();
    assert!(
        largest <= Some(&quantum),
        "a piece of {largest:?} bytes, the limit asks for {quantum}"
    );
}
