//! A train has the same outcome as its packets one by one: same drops, same waits, same departures,
//! bit for bit, whatever the link consists of and however the train is split.

use packtrain_link::{
    CoDelConfig, Count, DelayVariation, DropCause, Element, Limit, Link, LinkConfig, LossConfig,
    Observer, Pace, QueueConfig, RateSchedule, RedConfig, RedMode, ReorderConfig, Segments,
};
use packtrain_units::{ByteCount, DataRate, Duration, Time};
use proptest::prelude::*;

/// Packets of two flows; the last one of a train may be short. Those of flow 1 are ECT.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Load {
    flow: u8,
    first: u64,
    count: u32,
    size: u32,
    last: u32,
    ce: bool,
}

impl Segments for Load {
    fn count(&self) -> u32 {
        self.count
    }

    fn size(&self, i: u32) -> u32 {
        if i + 1 == self.count { self.last } else { self.size }
    }

    fn split_off(&mut self, at: u32) -> Self {
        assert!(0 < at && at < self.count, "cut at {at} of {}", self.count);
        let rest = Self { first: self.first + u64::from(at), count: self.count - at, ..*self };
        (self.count, self.last) = (at, self.size);
        rest
    }

    fn duplicate(&self) -> Self {
        *self
    }

    fn is_ect(&self) -> bool {
        self.flow == 1
    }

    fn mark(&mut self) {
        assert!(self.is_ect());
        self.ce = true;
    }
}

/// All events of packets, one entry each.
#[derive(Debug, Default, PartialEq)]
struct Events {
    dropped: Vec<(Time, u8, u64, DropCause)>,
    queued: Vec<(u8, u64, Duration)>,
    marked: Vec<u64>,
    left: Vec<(Time, u8, u64, bool)>,
}

impl Observer<Load> for Events {
    fn dropped(&mut self, at: Pace, load: Load, cause: DropCause) {
        for i in 0..load.count {
            self.dropped.push((at.time(i), load.flow, load.first + u64::from(i), cause));
        }
    }

    fn queued(&mut self, load: &Load, first: Duration, last: Duration) {
        for i in 0..load.count {
            let steps = u64::from(load.count.max(2) - 1);
            let (a, b) = (first.as_nanos(), last.as_nanos());
            let wait = if b >= a {
                assert_eq!((b - a) % steps, 0);
                a + (b - a) / steps * u64::from(i)
            } else {
                assert_eq!((a - b) % steps, 0);
                a - (a - b) / steps * u64::from(i)
            };
            self.queued.push((load.flow, load.first + u64::from(i), Duration::from_nanos(wait)));
        }
    }

    fn marked(&mut self, load: &Load) {
        assert!(load.ce);
        self.marked.extend((0..load.count).map(|i| load.first + u64::from(i)));
    }
}

impl Events {
    /// The marked packets that left, sorted, each once.
    fn left_marked(&self) -> Vec<u64> {
        let mut marked: Vec<u64> =
            self.left.iter().filter(|left| left.3).map(|(_, _, n, _)| *n).collect();
        marked.sort_unstable();
        marked.dedup();
        marked
    }

    fn left(&mut self, pace: Pace, load: Load) {
        for i in 0..load.count {
            self.left.push((pace.time(i), load.flow, load.first + u64::from(i), load.ce));
        }
    }

    /// The order of reports for packets with different outcomes is not defined.
    fn sorted(mut self) -> Self {
        self.left.sort_unstable();
        self.dropped.sort_unstable_by_key(|(at, flow, n, _)| (*at, *flow, *n));
        self
    }
}

/// Offers trains of at most `max_count` packets.
fn run(config: &LinkConfig, trains: &[(Pace, Load)], max_count: u32, clocked: bool) -> Events {
    let mut offers = Vec::new();
    for &(mut pace, mut load) in trains {
        while load.count > max_count {
            let rest = load.split_off(max_count);
            offers.push((pace, load));
            (pace, load) = (pace.from(max_count), rest);
        }
        offers.push((pace, load));
    }
    let (mut link, mut events) = (Link::new(config.clone()), Events::default());
    for (pace, load) in offers {
        if clocked {
            drive(&mut link, pace.first, &mut events);
        }
        link.offer(pace, load, &mut events);
        while let Some((pace, load)) = take(&mut link, Time::MAX, &mut events) {
            events.left(pace, load);
        }
    }
    drive(&mut link, Time::from_nanos(u64::MAX - 1), &mut events);
    events.sorted()
}

fn take(link: &mut Link<Load>, until: Time, events: &mut Events) -> Option<(Pace, Load)> {
    link.poll_departure(until, events)
}

/// Advances the link's own clock to `until`.
fn drive(link: &mut Link<Load>, until: Time, events: &mut Events) {
    while let Some(at) = link.poll_timeout().filter(|at| *at <= until) {
        while let Some((pace, load)) = take(link, at, events) {
            events.left(pace, load);
        }
        while let Some((pace, load)) = take(link, Time::MAX, events) {
            events.left(pace, load);
        }
    }
}

prop_compose! {
    /// Offers whose times never decrease, of two flows.
    fn trains()(parts in prop::collection::vec(
        (1..80u32, 0..4_000u64, prop::sample::select(vec![0u64, 300, 1_100, 1_200, 1_201, 5_000]),
         prop::sample::select(vec![40u32, 576, 1500]), any::<bool>(), 0..20u32, 0..2u8),
        1..40)) -> Vec<(Pace, Load)> {
        let (mut now, mut firsts) = (Time::ZERO, [0u64; 2]);
        parts.into_iter().map(|(count, pause, gap, size, short, idle, flow)| {
            let pause = if idle == 0 { pause * 100 } else { pause };
            let pace = Pace { first: now + Duration::from_nanos(pause),
                gap: Duration::from_nanos(gap) };
            now = pace.time(count - 1);
            let first = firsts[usize::from(flow)];
            firsts[usize::from(flow)] += u64::from(count);
            (pace, Load { flow, first, count, size, last: if short { size / 2 } else { size },
                ce: false })
        }).collect()
    }
}

fn queues() -> impl Strategy<Value = QueueConfig> {
    let limit = prop_oneof![
        (1..100u64).prop_map(Limit::Packets),
        (1..100u64).prop_map(|n| Limit::Bytes(ByteCount(n * 1500))),
        Just(Limit::Packets(100_000)),
    ];
    let modes = prop::sample::select(vec![RedMode::Classic, RedMode::Gentle, RedMode::Adaptive]);
    prop_oneof![
        limit.clone().prop_map(QueueConfig::DropTail),
        (limit.clone(), modes, 0.001..0.5f64).prop_map(|(limit, mode, weight)| QueueConfig::Red(
            RedConfig {
                limit,
                min_threshold: 3.0,
                max_threshold: 12.0,
                linterm: 10.0,
                weight,
                mean_packet: ByteCount(1000),
                mode,
            }
        )),
        (limit, 1..40u64).prop_map(|(limit, target)| QueueConfig::CoDel(CoDelConfig {
            limit,
            target: Duration::from_micros(target),
            interval: Duration::from_micros(10 * target),
        })),
    ]
}

fn rates() -> impl Strategy<Value = RateSchedule> {
    let rate = prop::sample::select(vec![0, 3_000_000, 1_000_000_000, 10_000_000_000, u64::MAX]);
    let steps = prop::collection::vec((1..100_000u64, rate), 0..5);
    let first = prop::sample::select(vec![1_000_000_000u64, 10_000_000_000, 777_000_000]);
    (first, steps, any::<bool>()).prop_map(|(first, steps, again)| {
        let mut at = Time::ZERO;
        let mut all = vec![(at, DataRate::from_bps(first))];
        for (span, bps) in steps {
            at += Duration::from_nanos(span);
            all.push((at, DataRate::from_bps(bps)));
        }
        let end = at.since(Time::ZERO) + Duration::from_nanos(50_000);
        RateSchedule { steps: all, period: again.then_some(end) }
    })
}

fn losses() -> impl Strategy<Value = LossConfig> {
    prop_oneof![
        3 => Just(LossConfig::None),
        2 => prop::sample::select(vec![0.0, 0.01, 0.3, 1.0]).prop_map(LossConfig::Independent),
        2 => prop::sample::select(vec![1e-6, 1e-4]).prop_map(LossConfig::BitError),
        2 => (0.01..0.5f64, 0.05..1.0f64, 0.0..0.02f64, 0.2..1.0f64).prop_map(
            |(to_bad, to_good, loss_good, loss_bad)| LossConfig::GilbertElliott {
                to_bad, to_good, loss_good, loss_bad
            }),
        1 => prop::collection::vec(prop::bool::weighted(0.1), 1..50).prop_map(LossConfig::Trace),
    ]
}

prop_compose! {
    fn links()(rate in rates(), queue in queues(), loss in losses(),
        jitter in prop::option::weighted(0.2, prop_oneof![
            Just(DelayVariation::Uniform(Duration::from_micros(3))),
            Just(DelayVariation::Normal(Duration::from_micros(3))),
            Just(DelayVariation::Pareto { mean: Duration::from_micros(2), shape: 1.5 }),
        ]),
        reorder in prop::option::weighted(0.3, (0.0..0.5f64).prop_map(|probability|
            ReorderConfig { probability, extra: Duration::from_micros(7) })),
        duplicate in prop::sample::select(vec![0.0, 0.0, 0.05, 0.9]),
        mtu in prop::sample::select(vec![1500, 1500, 1000]),
        overhead in prop::sample::select(vec![0, 38]),
        seed: u64) -> LinkConfig {
        LinkConfig {
            rate, queue, loss, jitter, reorder, duplicate, seed,
            delay: Duration::from_micros(10),
            mtu: ByteCount(mtu),
            overhead: ByteCount(overhead),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn a_train_fares_as_its_packets(config in links(), trains in trains(), max_count in 2..80u32) {
        let single = run(&config, &trains, 1, false);
        prop_assert_eq!(&run(&config, &trains, u32::MAX, false), &single);
        prop_assert_eq!(&run(&config, &trains, max_count, false), &single);
        prop_assert_eq!(&run(&config, &trains, 1, true), &single);
        prop_assert_eq!(&run(&config, &trains, u32::MAX, true), &single);
    }

    #[test]
    fn every_packet_has_one_fate(config in links(), trains in trains()) {
        let config = LinkConfig { duplicate: 0.0, ..config };
        let events = run(&config, &trains, u32::MAX, false);
        let mut all: Vec<(u8, u64)> = events.left.iter().map(|(_, flow, n, _)| (*flow, *n)).collect();
        all.extend(events.dropped.iter().map(|(_, flow, n, _)| (*flow, *n)));
        all.sort_unstable();
        let mut offered = Vec::new();
        for (_, load) in trains {
            offered.extend((0..load.count).map(|i| (load.flow, load.first + u64::from(i))));
        }
        offered.sort_unstable();
        prop_assert_eq!(all, offered);
    }

    #[test]
    fn what_understands_marks_is_marked_and_not_dropped_early(config in links(),
        trains in trains()) {
        let config = LinkConfig { loss: LossConfig::None, ..config };
        let events = run(&config, &trains, u32::MAX, false);
        let early = |(_, flow, _, cause): &(Time, u8, u64, DropCause)| {
            *flow == 1 && *cause == DropCause::Early
        };
        prop_assert!(!events.dropped.iter().any(early));
        let mut marked = events.marked.clone();
        marked.sort_unstable();
        marked.dedup();
        prop_assert_eq!(marked.len(), events.marked.len(), "each once");
        if !events.dropped.iter().any(|(_, flow, _, cause)| *flow == 1
            && *cause == DropCause::Down) {
            prop_assert_eq!(events.left_marked(), marked);
        }
    }

    #[test]
    fn departures_come_in_the_order_of_their_times(config in links(), trains in trains(),
        step in 1..20_000u64) {
        let (mut link, mut events) = (Link::new(config.clone()), Events::default());
        for (pace, load) in &trains {
            link.offer(*pace, *load, &mut events);
        }
        let mut now = trains.last().map_or(Time::ZERO, |(pace, load)| pace.time(load.count - 1));
        while link.poll_timeout().is_some() {
            while let Some((pace, load)) = take(&mut link, now, &mut events) {
                prop_assert!(pace.time(load.count - 1) <= now);
                events.left(pace, load);
            }
            let next = link.poll_timeout().unwrap_or(now);
            now = next.max(now + Duration::from_nanos(step));
        }
        prop_assert!(events.left.is_sorted_by_key(|(at, ..)| *at));
        prop_assert_eq!(events.sorted(), run(&config, &trains, 1, false));
    }
}

#[test]
fn bare_counts_are_numbered_on() {
    let mut train = Count { count: 5, size: 100, first: 7 };
    assert_eq!(train.split_off(2), Count { count: 3, size: 100, first: 9 });
    assert_eq!(train, Count { count: 2, size: 100, first: 7 });
}
