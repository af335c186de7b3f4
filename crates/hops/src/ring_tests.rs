use proptest::prelude::*;

use super::*;

fn pool(bytes: u64, sessions: u32) -> Arc<Pool> {
    Arc::new(Pool::new(ByteCount(bytes), sessions, ByteCount(bytes)))
}

fn byte(at: u64) -> u8 {
    (at.wrapping_mul(0x9e37_79b9) >> 11) as u8
}

fn bytes(range: Range<u64>) -> Vec<u8> {
    range.map(byte).collect()
}

#[test]
fn what_is_missing_at_the_head_finds_room_when_there_is_none() {
    // Two directions of one session, without shared memory.
    let pool = pool(2 * MIN_DIRECTION, 1);
    pool.join();
    let ring = Ring::new(&pool);
    assert_eq!(
        ring.place(MIN_DIRECTION, &bytes(MIN_DIRECTION..MIN_DIRECTION + 100)),
        Placed::NoRoom
    );
    assert_eq!(ring.place(9_000, &bytes(9_000..9_100)), Placed::New);
    assert_eq!(ring.append(&bytes(0..MIN_DIRECTION + 5)), MIN_DIRECTION as usize);
    assert_eq!(ring.room(), ByteCount::ZERO);
    assert_eq!(ring.append(&[1]), 0);
    ring.release(0..100);
    // The head's block is still in use, so no memory was freed.
    assert_eq!((ring.head(), ring.append(&[1])), (100, 0));
    ring.release(100..BLOCK);
    assert_eq!(ring.append(&bytes(MIN_DIRECTION..MIN_DIRECTION + 10)), 10);
    let mut out = vec![0; 10];
    assert_eq!(ring.fill(MIN_DIRECTION, &mut out), Fill::Ready);
    assert_eq!(out, bytes(MIN_DIRECTION..MIN_DIRECTION + 10));
    assert_eq!(ring.fill(10, &mut out), Fill::Failed, "it was let go");
}

#[test]
fn one_that_does_not_read_keeps_no_more_than_its_share() {
    let pool = pool(4 << 20, 16);
    (0..8).for_each(|_| pool.join());
    let rings: Vec<_> = (0..4).map(|_| Ring::new(&pool)).collect();
    let most = bytes(0..8 << 20);
    let first = rings[0].append(&most) as u64;
    assert!(first < (4 << 20) / 4 + MIN_DIRECTION, "{first}");
    for ring in &rings[1..] {
        let count = ring.append(&most) as u64;
        // Some memory is left for later directions.
        assert!(count + first / 8 > first, "{count} of {first}");
    }
    let (now, _) = pool.lent();
    assert!(now.get() <= 4 << 20);
    drop(rings);
    assert_eq!(pool.lent().0, ByteCount::ZERO);
}

#[test]
fn an_end_before_what_came_is_refused() {
    let pool = pool(1 << 20, 1);
    let ring = Ring::new(&pool);
    assert_eq!(ring.place(500, &[1; 100]), Placed::New);
    assert!(!ring.finish(599));
    assert!(ring.finish(600) && !ring.finish(601) && ring.finish(600));
    assert_eq!(ring.place(600, &[1]), Placed::NoRoom);
    assert_eq!(ring.append(&[1; 1000]), 600);
}

#[test]
fn what_overtakes_the_switch_waits_beyond_what_comes_by_tcp() {
    let pool = pool(1 << 20, 1);
    pool.join();
    let ring = Ring::new(&pool);
    ring.append(&bytes(0..40_000));
    // The switch at offset 70,000 is still in transit behind 30,000 bytes.
    assert_eq!(ring.place(71_000, &bytes(71_000..72_000)), Placed::New);
    assert_eq!(ring.place(70_000, &bytes(70_000..71_000)), Placed::New);
    assert_eq!(ring.edge(), 40_000);
    assert_eq!(ring.append(&bytes(40_000..60_000)), 20_000);
    assert_eq!(ring.edge(), 60_000);
    assert_eq!(ring.append(&bytes(60_000..70_000)), 10_000);
    assert_eq!(ring.edge(), 72_000);
    let mut out = vec![0; 72_000];
    assert_eq!(ring.copy(0, &mut out), 72_000);
    assert_eq!(out, bytes(0..72_000));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// For any order of arrival, duplication and release, the bytes that are read are right, and no
    /// more memory is lent than the pool has.
    #[test]
    fn bytes_come_out_in_order_and_whole(
        steps in prop::collection::vec((0u64..60_000, 1u64..9_000, 0u8..4), 1..200),
        spare in 0u64..40,
    ) {
        let total = 2 * MIN_DIRECTION + spare * BLOCK;
        let pool = pool(total, 1);
        pool.join();
        let ring = Ring::new(&pool);
        let (mut taken, mut acked) = (0, RangeSet::new());
        for (ahead, len, what) in steps {
            let head = ring.head();
            match what {
                0 => {
                    let edge = ring.edge();
                    ring.append(&bytes(edge..edge + len));
                }
                1 => {
                    let at = (head + ahead).saturating_sub(4_000);
                    ring.place(at, &bytes(at..at + len));
                }
                2 => {
                    let mut out = vec![0; len as usize];
                    let count = ring.copy(taken, &mut out) as u64;
                    prop_assert_eq!(&out[..count as usize], &bytes(taken..taken + count)[..]);
                    taken += count;
                }
                // Acknowledgements come in any order.
                _ => {
                    let from = (head + ahead).min(taken);
                    let to = (from + len).min(taken);
                    ring.release(from..to);
                    acked.insert(Offset(from)..Offset(to));
                    acked.insert(Offset(0)..Offset(ring.head()));
                }
            }
            prop_assert!(ring.head() <= taken && taken <= ring.edge());
            let first = acked.first().filter(|first| first.start.get() == 0);
            prop_assert_eq!(first.map_or(0, |first| first.end.get()), ring.head());
            prop_assert!(pool.lent().0.get() <= total);
        }
        // Missing bytes can be placed after a release.
        ring.release(0..taken);
        while taken < 300_000 {
            let edge = ring.edge();
            ring.append(&bytes(edge..edge + 5_000));
            let mut out = vec![0; 5_000];
            let count = ring.copy(taken, &mut out) as u64;
            prop_assert!(count > 0);
            prop_assert_eq!(&out[..count as usize], &bytes(taken..taken + count)[..]);
            taken += count;
            ring.release(0..taken);
        }
    }
}
