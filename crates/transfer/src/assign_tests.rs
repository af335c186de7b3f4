use packtrain_object::CHUNK;
use proptest::prelude::*;

use super::*;
use crate::limits::{FIRST_WITHIN, HEALTH_EVERY, STALL_AFTER, WINDOW_START};

const MIB: u64 = 1 << 20;

fn range(from: u64, to: u64) -> Range<Offset> {
    Offset(from * MIB)..Offset(to * MIB)
}

/// Assigner, what is not placed, and what each transport has by its own account.
#[derive(Default)]
struct World {
    assigner: Assigner,
    unplaced: RangeSet,
    has: BTreeMap<TransportId, RangeSet>,
    out: VecDeque<SourceAction>,
    now: Time,
}

impl World {
    fn with(range: Range<Offset>) -> Self {
        let mut world = Self { now: Time::from_nanos(1), ..Self::default() };
        world.unplaced.insert(range.clone());
        world.assigner.add(range);
        world
    }

    fn up(&mut self, id: u32, rank: u8) {
        self.assigner.on_up(self.now, TransportId(id), rank);
        self.has.insert(TransportId(id), RangeSet::new());
        self.act();
    }

    /// Carries out what is asked; transports give back at once.
    fn act(&mut self) {
        for round in 0.. {
            assert!(round < 10_000, "it goes round and round: {:?}", self.assigner);
            self.assigner.assign(self.now, &mut self.out);
            let Some(action) = self.out.pop_front() else { return };
            match action {
                SourceAction::Assign(id, range) => {
                    let before: Vec<_> =
                        self.has.values().flat_map(|had| had.intersect(range.clone())).collect();
                    assert_eq!(before, vec![], "assigned while another has it");
                    self.has.get_mut(&id).expect("up").insert(range);
                }
                SourceAction::Revoke(id, range) => {
                    let parts: Vec<_> = self.has[&id].intersect(range).collect();
                    for part in parts {
                        self.has.get_mut(&id).expect("up").remove(part.clone());
                        self.assigner.on_returned(self.now, id, &part, &self.unplaced);
                    }
                }
                other => panic!("{other:?}"),
            }
        }
    }

    fn place(&mut self, id: u32, bytes: u64) -> u64 {
        let has = self.has.get_mut(&TransportId(id)).expect("up");
        let Some(range) = has.pop_front(ByteCount(bytes)) else { return 0 };
        for part in self.assigner.on_placed(self.now, TransportId(id), &range) {
            self.unplaced.remove(part);
        }
        self.act();
        range.end.since(range.start).get()
    }

    fn pass(&mut self, span: Duration) {
        self.now += span;
        self.assigner.on_timeout(self.now, None, &mut self.out);
        self.act();
    }

    fn load(&self, id: u32) -> u64 {
        self.has[&TransportId(id)].len_bytes().get()
    }
}

#[test]
fn the_best_rank_gets_its_window_and_no_other_gets_any() {
    let mut world = World::with(range(0, 1000));
    world.up(1, 20);
    assert_eq!(world.load(1), WINDOW_START.get());
    world.up(2, 0);
    assert_eq!(world.load(2), WINDOW_START.get());
    for _ in 0..64 {
        world.place(1, MIB);
    }
    assert_eq!(world.load(1), 0, "the worse one only finishes what it has");
    world.place(2, 10 * MIB);
    assert!(world.load(2) > WINDOW_START.get() - CHUNK.get(), "but for a part of a chunk");
}

#[test]
fn a_stalled_transport_loses_its_ranges_and_is_tried_again() {
    let mut world = World::with(range(0, 4000));
    world.up(1, 0);
    world.up(2, 10);
    assert_eq!((world.load(1), world.load(2)), (64 * MIB, 0));
    for _ in 0..20 {
        world.pass(Duration::from_millis(250));
        world.place(2, MIB / 4);
    }
    assert_eq!(world.load(1), 0);
    assert!(world.load(2) > 60 * MIB, "{}", world.load(2));
    let mut probe = 0;
    for _ in 0..48 {
        world.pass(Duration::from_millis(250));
        world.place(2, 2 * MIB);
        assert!(world.load(2) > 60 * MIB, "the trial costs the other nothing");
        probe = world.load(1).max(probe);
    }
    assert!(probe > 0 && probe <= 4 * MIB, "{probe}");
    // It works again and gets all.
    for _ in 0..200 {
        world.pass(Duration::from_millis(250));
        world.place(1, 4 * MIB);
        world.place(2, 2 * MIB);
    }
    assert_eq!(world.load(2), 0);
    assert!(world.load(1) > 60 * MIB);
}

/// When a transport loses its ranges, after it placed so much at once and then nothing.
fn stalls_after(world: &mut World, id: u32, placed: u64) -> Duration {
    let mut waited = Duration::ZERO;
    world.place(id, placed);
    while world.load(id) > 0 {
        assert!(waited < STALL_AFTER * 4, "it keeps what it does not move");
        world.pass(HEALTH_EVERY / 2);
        waited += HEALTH_EVERY / 2;
    }
    waited
}

#[test]
fn a_transport_that_never_placed_anything_stalls_sooner() {
    for (placed, wanted) in [(0, FIRST_WITHIN), (MIB, STALL_AFTER)] {
        let mut world = World::with(range(0, 4000));
        world.up(1, 0);
        world.up(2, 10);
        let waited = stalls_after(&mut world, 1, placed);
        assert!(waited >= wanted && waited <= wanted + HEALTH_EVERY, "{placed} {waited}");
        // The other one is the last that may work: it is not given up as soon.
        let waited = stalls_after(&mut world, 2, 0);
        assert!(waited >= STALL_AFTER, "{placed} {waited}");
    }
}

#[test]
fn two_transports_share_no_chunk() {
    let mut world = World { now: Time::from_nanos(1), ..World::default() };
    // Chunks of which parts are not wanted, and ends within chunks.
    for from in [1, 5, 30, 31, 33, 34, 90, 158, 162, 165, 247, 301] {
        let range = Offset(from * MIB + 7)..Offset((from + 60) * MIB - 100);
        let gap = Offset((from + 11) * MIB)..Offset((from + 11) * MIB + 5);
        world.unplaced.insert(range.clone());
        world.assigner.add(range);
        world.unplaced.remove(gap.clone());
        world.assigner.forget_waiting(&gap);
    }
    world.up(1, 0);
    world.up(2, 0);
    let chunks = |has: &RangeSet| -> std::collections::BTreeSet<_> {
        has.iter().flat_map(|range| ChunkIndex::covering(&range)).collect()
    };
    let mut rounds = 0;
    while !world.assigner.pool.is_empty() {
        let [one, two] = [1, 2].map(|id| chunks(&world.has[&TransportId(id)]));
        assert!(one.is_disjoint(&two), "{one:?} {two:?}");
        world.pass(Duration::from_millis(10));
        world.place(1, 3 * MIB + 11);
        world.place(2, 5 * MIB + 1);
        rounds += 1;
    }
    assert!(rounds > 10, "{rounds}");
}

#[test]
fn the_only_transport_is_never_revoked() {
    let mut world = World::with(range(0, 100));
    world.up(1, 0);
    world.pass(STALL_AFTER * 10);
    assert_eq!(world.load(1), 64 * MIB);
}

#[test]
fn a_stream_that_waits_is_no_stall() {
    let mut world = World::with(range(0, 100));
    world.up(1, 0);
    world.up(2, 10);
    for _ in 0..40 {
        world.now += Duration::from_millis(500);
        world.assigner.on_timeout(world.now, Some(Offset(0)), &mut world.out);
        world.act();
    }
    assert_eq!(world.load(1), 64 * MIB);
}

#[test]
fn an_idle_transport_steals_the_tail() {
    let mut world = World::with(range(0, 100));
    world.up(1, 0);
    world.up(2, 0);
    assert_eq!(world.load(1) + world.load(2), 100 * MIB);
    while world.load(2) > 4 * MIB {
        world.pass(Duration::from_millis(100));
        world.place(2, 4 * MIB);
        world.place(1, MIB / 64);
    }
    let slow = world.load(1);
    for _ in 0..6 {
        world.pass(Duration::from_millis(100));
        world.place(2, 4 * MIB);
    }
    assert!(world.load(1) <= slow / 2 + MIB, "{} of {slow}", world.load(1));
}

#[test]
fn a_policed_transport_gives_way() {
    let mut world = World::with(range(0, 4000));
    world.up(2, 10);
    for _ in 0..30 {
        world.pass(Duration::from_millis(100));
        world.place(2, 10 * MIB);
    }
    world.up(1, 0);
    for _ in 0..80 {
        world.pass(Duration::from_millis(100));
        world.place(1, MIB);
        world.place(2, 10 * MIB);
    }
    assert_eq!(world.load(1), 0, "100 MiB/s was shown, 10 is too little");
    assert!(world.load(2) > 0);
}

#[test]
fn a_transport_that_refuses_is_not_asked_at_once() {
    let mut world = World::with(range(0, 10));
    world.up(1, 0);
    let all = world.has.get_mut(&TransportId(1)).unwrap().pop_front(ByteCount(10 * MIB)).unwrap();
    world.assigner.on_returned(world.now, TransportId(1), &all, &world.unplaced);
    world.act();
    assert_eq!(world.load(1), 0);
    world.pass(Duration::from_millis(300));
    assert_eq!(world.load(1), 10 * MIB);
}

#[derive(Clone, Debug)]
enum Event {
    Up(u32, u8),
    Close(u32),
    Place(u32, u64),
    Return(u32, u64),
    Pass(u64),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        (0u32..4, 0u8..3).prop_map(|(id, rank)| Event::Up(id, rank)),
        (0u32..4).prop_map(Event::Close),
        (0u32..4, 1u64..(8 << 20)).prop_map(|(id, bytes)| Event::Place(id, bytes)),
        (0u32..4, 1u64..(8 << 20)).prop_map(|(id, bytes)| Event::Return(id, bytes)),
        (1u64..5000).prop_map(Event::Pass),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Whatever transports do, what is not placed is waiting or with exactly one of them, and
    /// one that lasts gets all of it done.
    #[test]
    fn no_byte_is_lost(events in proptest::collection::vec(event(), 1..120)) {
        let mut world = World::with(range(0, 300));
        for event in events {
            match event {
                Event::Up(id, rank) => if !world.has.contains_key(&TransportId(id)) {
                    world.up(id, rank);
                }
                Event::Close(id) => if world.has.remove(&TransportId(id)).is_some() {
                    world.assigner.on_closed(TransportId(id), &world.unplaced);
                    world.act();
                }
                Event::Place(id, bytes) => if world.has.contains_key(&TransportId(id)) {
                    world.place(id, bytes);
                }
                Event::Return(id, bytes) => if let Some(has) = world.has.get_mut(&TransportId(id))
                    && let Some(range) = has.pop_front(ByteCount(bytes))
                {
                    world.assigner.on_returned(world.now, TransportId(id), &range, &world.unplaced);
                    world.act();
                }
                Event::Pass(ms) => world.pass(Duration::from_millis(ms)),
            }
            let held: u64 = world.has.values().map(|has| has.len_bytes().get()).sum();
            let waiting = world.assigner.pool.len_bytes().get();
            prop_assert_eq!(held + waiting, world.unplaced.len_bytes().get());
        }
        world.up(9, 0);
        for _ in 0..10_000 {
            if world.unplaced.is_empty() {
                break;
            }
            world.pass(Duration::from_millis(260));
            world.place(9, 8 * MIB);
        }
        prop_assert!(world.unplaced.is_empty(), "{:?}", world.unplaced);
    }
}

#[test]
fn closed_transports_give_all_back() {
    let mut world = World::with(range(0, 100));
    world.up(1, 0);
    world.has.remove(&TransportId(1));
    world.assigner.on_closed(TransportId(1), &world.unplaced);
    assert_eq!(world.assigner.pool.len_bytes().get(), 100 * MIB);
    world.up(2, 7);
    assert_eq!(world.load(2), 64 * MIB);
}
