//! Links compared with a plain model: one entry per packet, no closed forms.

use std::collections::VecDeque;

use packtrain_link::{
    Arriving, Backlog, Count, Discipline, DropCause, Element, Limit, Link, LinkConfig, Observer,
    Pace, QueueConfig, Segments, Verdict,
};
use packtrain_units::{ByteCount, DataRate, Duration, Time};
use proptest::prelude::*;

/// A train, as (first arrival, gap, count, size).
type Train = (u64, u64, u32, u32);

/// For each packet: when it leaves the transmitter, or none.
fn plain(bps: u64, limit: Limit, trains: &[Train]) -> Vec<Option<u64>> {
    let mut waiting: VecDeque<(u64, u64)> = VecDeque::new();
    let (mut free, mut departures) = (0u64, Vec::new());
    for &(first, gap, count, size) in trains {
        for i in 0..u64::from(count) {
            let (now, size) = (first + gap * i, u64::from(size));
            while waiting.front().is_some_and(|(start, _)| *start <= now) {
                waiting.pop_front();
            }
            let bytes: u64 = waiting.iter().map(|(_, size)| size).sum();
            let fits = match limit {
                Limit::Packets(n) => (waiting.len() as u64) < n,
                Limit::Bytes(n) => bytes + size <= n.get(),
            };
            if now < free && !fits {
                departures.push(None);
                continue;
            }
            let start = free.max(now);
            if start > now {
                waiting.push_back((start, size));
            }
            free = start + (size * 8_000_000_000 + bps / 2) / bps;
            departures.push(Some(free));
        }
    }
    departures
}

fn with_link(mut link: Link<Count>, trains: &[Train]) -> Vec<Option<u64>> {
    let (mut departures, mut number) = (Vec::new(), 0u64);
    for &(first, gap, count, size) in trains {
        let pace = Pace { first: Time::from_nanos(first), gap: Duration::from_nanos(gap) };
        link.offer(pace, Count { count, size, first: number }, &mut ());
        number += u64::from(count);
    }
    departures.resize(number as usize, None);
    while let Some((pace, train)) = link.poll_departure(Time::MAX, &mut ()) {
        for i in 0..train.count {
            departures[(train.first + u64::from(i)) as usize] = Some(pace.time(i).as_nanos());
        }
    }
    departures
}

prop_compose! {
    fn trains()(parts in prop::collection::vec((1..200u32,
        prop::sample::select(vec![0u64, 0, 900, 1_200, 1_201, 40_000]), 0..2_600u64,
        prop::sample::select(vec![40u32, 1_499, 1_500])), 1..30)) -> Vec<Train> {
        let mut now = 0;
        parts.into_iter().map(|(count, pause, gap, size)| {
            let first = now + pause;
            now = first + gap * u64::from(count - 1);
            (first, gap, count, size)
        }).collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn drop_tail_does_what_the_plain_model_does(trains in trains(), max in 1..150u64,
        bytes: bool, bps in prop::sample::select(vec![10_000_000_000u64, 7_300_000_000, 1])) {
        let limit = if bytes { Limit::Bytes(ByteCount(max * 1_500)) } else { Limit::Packets(max) };
        let config = LinkConfig::new(DataRate::from_bps(bps), Duration::ZERO, 1);
        let config = LinkConfig { queue: QueueConfig::DropTail(limit), ..config };
        prop_assert_eq!(with_link(Link::new(config), &trains), plain(bps, limit, &trains));
    }

    #[test]
    fn a_queue_of_ones_own_is_as_good(trains in trains(), max in 1..150u64) {
        #[derive(Debug)]
        struct Own(u64);
        impl Discipline for Own {
            fn admit(&mut self, arriving: Arriving, backlog: &mut Backlog) -> Verdict {
                let now = arriving.pace.first;
                let idle = backlog.idle_since(now).is_some();
                if backlog.packets(now) < self.0 || idle {
                    Verdict::Take(1)
                } else {
                    Verdict::Drop(1, DropCause::Overflow)
                }
            }
        }
        let config = LinkConfig::new(DataRate::from_mbps(10_000), Duration::ZERO, 1);
        let link = Link::with_queue(&config, Box::new(Own(max)));
        let plain = plain(10_000_000_000, Limit::Packets(max), &trains);
        prop_assert_eq!(with_link(link, &trains), plain);
    }
}

#[derive(Default)]
struct Waits(Vec<(Duration, Duration)>);

impl Observer<Count> for Waits {
    fn dropped(&mut self, _: Pace, train: Count, cause: DropCause) {
        panic!("{train:?} {cause:?}");
    }

    fn queued(&mut self, train: &Count, first: Duration, last: Duration) {
        assert!(train.count() > 0);
        self.0.push((first, last));
    }
}

#[test]
fn a_burst_waits_for_itself_and_leaves_in_one_piece() {
    let config = LinkConfig::new(DataRate::from_mbps(1_000), Duration::from_millis(50), 100);
    let (mut link, mut waits) = (Link::new(config), Waits::default());
    link.offer(Pace::at(Time::ZERO), Count { count: 64, size: 1_500, first: 0 }, &mut waits);
    let us = Duration::from_micros;
    assert_eq!(waits.0, [(Duration::ZERO, us(63 * 12))]);
    let pace = Pace { first: Time::ZERO + us(50_012), gap: us(12) };
    let whole = link.poll_departure(Time::MAX, &mut waits);
    assert_eq!(whole, Some((pace, Count { count: 64, size: 1_500, first: 0 })));
    assert_eq!(link.poll_timeout(), None);
    assert_eq!(link.waiting(Time::ZERO), (63, ByteCount(63 * 1_500)));
    assert_eq!(link.waiting(Time::ZERO + us(120)), (53, ByteCount(53 * 1_500)));
    assert_eq!(link.busy_until(), Time::ZERO + us(64 * 12));
}

#[test]
fn a_train_is_cut_where_the_clock_stands() {
    let config = LinkConfig::new(DataRate::from_mbps(1_000), Duration::ZERO, 100);
    let mut link = Link::new(config);
    link.offer(Pace::at(Time::ZERO), Count { count: 64, size: 1_500, first: 0 }, &mut ());
    let us = |n| Time::ZERO + Duration::from_micros(n);
    assert_eq!(link.poll_timeout(), Some(us(12)));
    let counts = [us(11), us(24), us(24), us(35), us(36), us(10_000)]
        .map(|until| link.poll_departure(until, &mut ()).map_or(0, |(_, train)| train.count));
    assert_eq!(counts, [0, 2, 0, 0, 1, 61]);
}
