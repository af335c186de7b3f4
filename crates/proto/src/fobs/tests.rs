//! Tests of the receiver alone; whole flows are in `flow_tests::fobs`.

use std::collections::BTreeSet;

use packtrain_units::Time;
use proptest::prelude::*;

use super::*;
use crate::codec::frame::{self, Frame, Host};
use crate::udt::UnitStatus;

fn ms(n: u64) -> Time {
    Time::ZERO + Duration::from_millis(n)
}

#[test]
fn a_bitmap_tells_what_is_missing() {
    let bitmap = Bitmap { start: 2, end: 20, runs: vec![(4, 9), (11, 20)], ..Bitmap::default() };
    assert_eq!(bitmap.missing().collect::<Vec<_>>(), [(2, 4), (9, 11)]);
    let whole = Bitmap { start: 2, end: 2, ..Bitmap::default() };
    assert_eq!(whole.missing().count(), 0);
}

#[test]
fn a_unit_is_told_of_three_times_and_all_when_asked() {
    let mut receiver = Receiver::new(1 << 12, ms(0));
    let mut told = Vec::new();
    for i in 0..6u64 {
        let now = ms(20 * (i + 1));
        // The first of each ten is missing.
        receiver.take(now, 10 * i + 1, 9);
        receiver.on_batch(now, now, 10 * i + 9);
        let bitmap = receiver.poll_bitmap(now).unwrap();
        told.push((bitmap.start, bitmap.end));
        assert_eq!(receiver.poll_bitmap(now), None);
    }
    assert_eq!(told, [(0, 10), (0, 20), (0, 30), (10, 40), (20, 50), (30, 60)]);
    receiver.on_bitmap_request(ms(121), Duration::from_millis(30));
    let bitmap = receiver.poll_bitmap(ms(121)).unwrap();
    assert_eq!((bitmap.start, bitmap.end, bitmap.missing().count()), (0, 60, 6));
    assert_eq!(bitmap.newest, Some((59, Duration::from_millis(1))));
    assert_eq!(receiver.rtt(), Some(Duration::from_millis(30)));
}

#[test]
fn the_last_bitmap_is_repeated_ever_more_seldom() {
    let mut receiver = Receiver::new(1 << 12, ms(0));
    receiver.take(ms(10), 0, 5);
    receiver.on_batch(ms(10), ms(10), 4);
    let (mut now, mut times) = (ms(10), Vec::new());
    while let Some(at) = receiver.poll_timeout().filter(|_| times.len() < 100) {
        now = now.max(at);
        assert!(receiver.poll_bitmap(now).is_some());
        times.push(now.since(ms(0)).as_millis());
    }
    assert_eq!(times, [10, 30, 70, 150, 310, 630, 1_270]);
}

#[test]
fn golden_frames() {
    let bitmap = Bitmap {
        number: 7,
        next: 100,
        top: 140,
        held: 39,
        room: 5,
        newest: Some((139, Duration::from_nanos(9))),
        start: 100,
        end: 140,
        runs: vec![(101, 140)],
    };
    let host =
        Host { drops: 1, refused: 2, ecn_ce: 3, drain: packtrain_units::DataRate::from_bps(4) };
    let frame = Frame::Bitmap { bitmap, host };
    let mut out = Vec::new();
    frame::write(&frame, &mut out);
    assert_eq!(frame::parse(&out), Some(vec![frame]));
    assert_eq!(out[0], 10);
    let ask = Frame::BitmapRequest { rtt: Duration::from_nanos(33) };
    let mut out = Vec::new();
    frame::write(&ask, &mut out);
    assert_eq!(out, [11, 33]);
    assert_eq!(frame::parse(&out), Some(vec![ask]));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn bitmaps_say_what_came_and_fit_a_datagram(
        steps in prop::collection::vec((0u64..3_000, 1u32..50, 0u64..4), 1..120),
    ) {
        let mut receiver = Receiver::new(1 << 14, ms(0));
        let (mut came, mut at) = (BTreeSet::new(), 0);
        for (ahead, count, wait) in steps {
            at += wait * 3;
            let first = receiver.next() + ahead;
            let new = (first..first + u64::from(count)).all(|u| receiver.check(u) == UnitStatus::New);
            if new {
                receiver.take(ms(at), first, count);
                came.extend(first..first + u64::from(count));
            }
            receiver.on_batch(ms(at), ms(at), first + u64::from(count) - 1);
            while let Some(bitmap) = receiver.poll_bitmap(ms(at)) {
                let Bitmap { next, top, start, end, .. } = bitmap;
                prop_assert!(next <= start && start <= end && end <= top.max(next));
                prop_assert!((0..next).all(|unit| came.contains(&unit)));
                prop_assert!(!came.contains(&next));
                let told: Vec<u64> = bitmap.runs.iter().flat_map(|(a, b)| *a..*b).collect();
                let truth: Vec<u64> = came.range(start..end).copied().collect();
                prop_assert_eq!(told, truth);
                let mut out = Vec::new();
                frame::write(&Frame::Bitmap { bitmap, host: Host::default() }, &mut out);
                prop_assert!(out.len() < 1_100, "{}", out.len());
            }
        }
    }
}
