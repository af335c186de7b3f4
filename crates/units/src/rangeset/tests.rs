use proptest::prelude::*;

use super::*;

const SPACE: usize = 160;

fn range(a: u64, b: u64) -> Range<Offset> {
    Offset(a)..Offset(b)
}

/// The oracle: one bit an offset.
#[derive(Clone)]
struct Bits([bool; SPACE]);

impl Bits {
    fn runs(&self, from: usize, to: usize, value: bool) -> Vec<Range<Offset>> {
        let mut runs = Vec::new();
        let mut start = None;
        for i in from..=to {
            let hit = i < to && self.0[i] == value;
            match (hit, start) {
                (true, None) => start = Some(i),
                (false, Some(s)) => {
                    runs.push(range(s as u64, i as u64));
                    start = None;
                }
                _ => {}
            }
        }
        runs
    }

    fn fill(&mut self, from: u64, to: u64, value: bool) -> ByteCount {
        let mut changed = 0;
        for i in from..to {
            changed += u64::from(self.0[i as usize] != value);
            self.0[i as usize] = value;
        }
        ByteCount(changed)
    }
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Insert(u64, u64),
    Remove(u64, u64),
    RemoveWith(u64, u64),
    PopFront(u64),
    PopBack(u64),
}

fn op() -> impl Strategy<Value = Op> {
    let end = 0..SPACE as u64;
    prop_oneof![
        4 => (end.clone(), end.clone()).prop_map(|(a, b)| Op::Insert(a, b)),
        4 => (0..SPACE as u64 - 8, 0..8u64).prop_map(|(a, n)| Op::Insert(a, a + n)),
        2 => (end.clone(), end.clone()).prop_map(|(a, b)| Op::Remove(a, b)),
        2 => (end.clone(), end).prop_map(|(a, b)| Op::RemoveWith(a, b)),
        1 => (0..12u64).prop_map(Op::PopFront),
        1 => (0..12u64).prop_map(Op::PopBack),
    ]
}

fn popped(bits: &mut Bits, run: Option<Range<Offset>>) -> Option<Range<Offset>> {
    let run = run.filter(|r| r.start < r.end)?;
    bits.fill(run.start.0, run.end.0, false);
    Some(run)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn agrees_with_one_bit_an_offset(
        ops in prop::collection::vec(op(), 1..60),
        (a, b) in (0..SPACE, 0..SPACE),
    ) {
        let mut set = RangeSet::new();
        let mut bits = Bits([false; SPACE]);
        for op in ops {
            match op {
                Op::Insert(a, b) => {
                    prop_assert_eq!(set.insert(range(a, b)), bits.fill(a, b, true));
                }
                Op::Remove(a, b) => {
                    prop_assert_eq!(set.remove(range(a, b)), bits.fill(a, b, false));
                }
                Op::RemoveWith(a, b) => {
                    let (mut removed, was) = (Vec::new(), bits.runs(a.min(b) as usize, b as usize, true));
                    set.remove_with(range(a, b), |part| removed.push(part));
                    prop_assert_eq!(removed, was);
                    bits.fill(a, b, false);
                }
                Op::PopFront(max) => {
                    let run = bits.runs(0, SPACE, true).first().cloned();
                    let run = run.map(|r| r.start..r.end.min(r.start + ByteCount(max)));
                    prop_assert_eq!(set.pop_front(ByteCount(max)), popped(&mut bits, run));
                }
                Op::PopBack(max) => {
                    let run = bits.runs(0, SPACE, true).last().cloned();
                    let run = run.map(|r| Offset(r.start.0.max(r.end.0.saturating_sub(max)))..r.end);
                    prop_assert_eq!(set.pop_back(ByteCount(max)), popped(&mut bits, run));
                }
            }
            let runs = bits.runs(0, SPACE, true);
            prop_assert_eq!(set.iter().collect::<Vec<_>>(), runs.clone());
            let bytes = bits.0.iter().filter(|b| **b).count() as u64;
            prop_assert_eq!(set.len_bytes(), ByteCount(bytes));
            prop_assert_eq!(set.is_empty(), runs.is_empty());
            prop_assert_eq!(set.first(), runs.first().cloned());
            prop_assert_eq!(set.last(), runs.last().cloned());
        }
        let window = range(a as u64, b as u64);
        let within: Vec<_> = set.intersect(window.clone()).collect();
        prop_assert_eq!(&within, &bits.runs(a.min(b), b, true));
        let gaps = bits.runs(a.min(b), b, false);
        prop_assert_eq!(set.first_gap(window.clone()), gaps.first().cloned());
        prop_assert_eq!(set.gaps(window.clone()).collect::<Vec<_>>(), gaps);
        let runs = bits.runs(0, SPACE, true);
        let around = runs.iter().find(|run| run.contains(&Offset(a as u64)));
        prop_assert_eq!(set.range_at(Offset(a as u64)), around.cloned());
        let below = runs.iter().rfind(|run| run.start < Offset(a as u64));
        prop_assert_eq!(set.last_before(Offset(a as u64)), below.cloned());
        prop_assert_eq!(set.contains(Offset(a as u64)), bits.0[a]);
        prop_assert_eq!(set.overlaps(&window), !within.is_empty());
        let all = a >= b || bits.0[a..b].iter().all(|x| *x);
        prop_assert_eq!(set.contains_range(&window), all);
    }

    #[test]
    fn sets_combine_as_bits_do(
        a in prop::collection::vec((0..SPACE as u64, 0..20u64), 0..20),
        b in prop::collection::vec((0..SPACE as u64, 0..20u64), 0..20),
    ) {
        let build = |v: &[(u64, u64)]| -> RangeSet {
            v.iter().map(|&(s, n)| range(s, s + n)).collect()
        };
        let (x, y) = (build(&a), build(&b));
        let (mut union, mut minus) = (x.clone(), x.clone());
        union.insert_all(&y);
        minus.remove_all(&y);
        for i in 0..SPACE as u64 + 20 {
            let (p, q) = (x.contains(Offset(i)), y.contains(Offset(i)));
            prop_assert_eq!(union.contains(Offset(i)), p || q);
            prop_assert_eq!(minus.contains(Offset(i)), p && !q);
        }
    }
}

#[test]
fn the_ends_of_the_number_line() {
    let mut set = RangeSet::new();
    assert_eq!(set.insert(range(u64::MAX - 1, u64::MAX)), ByteCount(1));
    assert_eq!(set.insert(range(0, u64::MAX)), ByteCount(u64::MAX - 1));
    assert_eq!(set.iter().count(), 1);
    assert_eq!(set.gaps(range(0, u64::MAX)).count(), 0);
    assert_eq!(set.remove(range(5, u64::MAX)), ByteCount(u64::MAX - 5));
    assert_eq!(set.pop_front(ByteCount(u64::MAX)), Some(range(0, 5)));
    assert!(set.is_empty() && set.pop_front(ByteCount(1)).is_none());
}

#[test]
#[allow(clippy::reversed_empty_ranges)]
fn empty_and_reversed_ranges_are_nothing() {
    let mut set: RangeSet = [range(10, 20)].into_iter().collect();
    assert_eq!(set.insert(range(5, 5)), ByteCount::ZERO);
    assert_eq!(set.insert(range(30, 2)), ByteCount::ZERO);
    assert_eq!(set.remove(range(18, 12)), ByteCount::ZERO);
    assert_eq!(set.intersect(range(18, 12)).count(), 0);
    assert_eq!(set.gaps(range(40, 12)).count(), 0);
    assert!(!set.overlaps(&range(15, 15)));
    assert!(set.contains_range(&range(99, 99)));
    assert_eq!(format!("{set:?}"), "{@10..@20}");
}

#[test]
fn a_hundred_thousand_ranges_merge_into_one() {
    let mut set = RangeSet::new();
    for i in 0..100_000u64 {
        set.insert(range(2 * i, 2 * i + 1));
    }
    assert_eq!(set.iter().count(), 100_000);
    for i in 0..100_000u64 {
        set.insert(range(2 * i + 1, 2 * i + 2));
    }
    assert_eq!(set.iter().collect::<Vec<_>>(), [range(0, 200_000)]);
}

#[test]
fn a_set_of_plain_numbers() {
    let mut set = RangeSet::<u64>::new();
    assert_eq!((set.insert(3..5), set.insert(5..9), set.insert(20..30)), (2, 4, 10));
    assert_eq!((set.count(), set.iter().count()), (16, 2));
    assert_eq!(set.pop_front(4), Some(3..7));
    assert_eq!(set.pop_back(u64::MAX), Some(20..30));
    assert_eq!((set.remove(0..8), set.first_gap(7..12)), (1, Some(7..8)));
    assert_eq!(set.iter().collect::<Vec<_>>(), vec![8..9]);
}
