//! A receiving host treats a train like its packets one by one, and drops occur because its process
//! does not run.

use packtrain_link::{
    Batch, Count, DropCause, Host, HostConfig, Observer, Pace, Scheduler, Segments,
};
use packtrain_units::{ByteCount, Duration, Time};
use proptest::prelude::*;

/// When a batch was read, when it was done, and the arrival time of each packet.
type Read = (Time, Time, Vec<(Time, u64)>);

#[derive(Debug, Default, PartialEq)]
struct Events {
    dropped: Vec<(Time, u64)>,
    read: Vec<Read>,
}

impl Observer<Count> for Events {
    fn dropped(&mut self, at: Pace, packet: Count, cause: DropCause) {
        assert_eq!(cause, DropCause::Host);
        let each = 0..packet.count;
        self.dropped.extend(each.map(|i| (at.time(i), packet.first + u64::from(i))));
    }
}

impl Events {
    fn read(&mut self, batch: Batch<Count>) {
        let mut packets = Vec::new();
        for (pace, packet) in batch.packets {
            let each = 0..packet.count;
            packets.extend(each.map(|i| (pace.time(i), packet.first + u64::from(i))));
        }
        self.read.push((batch.read, batch.done, packets));
    }

    fn drive(&mut self, host: &mut Host<Count>, until: Time) {
        while let Some(at) = host.poll_timeout().filter(|at| *at <= until) {
            while let Some(batch) = host.poll_read(at, self) {
                self.read(batch);
            }
        }
    }
}

fn run(config: &HostConfig, trains: &[(Pace, Count)], most: u32, clocked: bool) -> Events {
    let (mut host, mut events) = (Host::new(config), Events::default());
    for &(mut pace, mut train) in trains {
        loop {
            let rest = (train.count > most).then(|| train.split_off(most));
            if clocked {
                events.drive(&mut host, pace.first);
            }
            host.arrive(pace, train, &mut events);
            let Some(next) = rest else { break };
            (pace, train) = (pace.from(most), next);
        }
    }
    events.drive(&mut host, Time::from_nanos(u64::MAX - 1));
    assert_eq!(host.waiting(), ByteCount::ZERO);
    events
}

prop_compose! {
    fn trains()(parts in prop::collection::vec(
        (1..90u32, 0..20_000u64, prop::sample::select(vec![0u64, 300, 1_200, 12_000]),
         prop::sample::select(vec![40u32, 1_484, 1_500])), 1..30)) -> Vec<(Pace, Count)> {
        let (mut now, mut first) = (Time::ZERO, 0);
        parts.into_iter().map(|(count, pause, gap, size)| {
            let pace = Pace { first: now + Duration::from_nanos(pause),
                gap: Duration::from_nanos(gap) };
            now = pace.time(count - 1);
            first += u64::from(count);
            (pace, Count { count, size, first: first - u64::from(count) })
        }).collect()
    }
}

prop_compose! {
    fn hosts()(buffer in prop::sample::select(vec![5_000u64, 70_000, 425_984]),
        coalesce in prop::sample::select(vec![0u64, 5_000, 50_000]),
        coalesce_most in prop::sample::select(vec![1u32, 2, 44, 100]),
        per_packet in 0..3_000u64, per_batch in 0..10_000u64,
        scheduler in prop_oneof![
            Just(Scheduler::Alone),
            (1..200u64, 0..4u32).prop_map(|(us, competitors)| Scheduler::Slices {
                slice: Duration::from_micros(us), competitors }),
            (1..200u64, 0..200u64).prop_map(|(on, off)| Scheduler::OnOff {
                on: Duration::from_micros(on), off: Duration::from_micros(off) }),
            (0..4u32, 1..200u64, 1..200u64).prop_map(|(most, us, keep)| Scheduler::Generator {
                most, slice: Duration::from_micros(us), spread: 0.3,
                keep: Duration::from_micros(keep) }),
        ], seed: u64) -> HostConfig {
        HostConfig {
            buffer: ByteCount(buffer),
            coalesce: Duration::from_nanos(coalesce),
            coalesce_most,
            per_packet: Duration::from_nanos(per_packet),
            per_batch: Duration::from_nanos(per_batch),
            scheduler,
            seed,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_500))]

    #[test]
    fn a_train_is_treated_as_its_packets(config in hosts(), trains in trains(), most in 2..50u32) {
        config.check().unwrap();
        let single = run(&config, &trains, 1, false);
        prop_assert_eq!(&run(&config, &trains, u32::MAX, false), &single);
        prop_assert_eq!(&run(&config, &trains, most, true), &single);
        prop_assert_eq!(&run(&config, &trains, 1, true), &single);
    }

    #[test]
    fn every_datagram_is_read_once_or_dropped_once(config in hosts(), trains in trains()) {
        let events = run(&config, &trains, u32::MAX, false);
        let mut all: Vec<u64> = events.dropped.iter().map(|(_, n)| *n).collect();
        let mut last = Time::ZERO;
        for (read, done, packets) in events.read {
            prop_assert!(read >= last && done >= read && !packets.is_empty());
            prop_assert!(packets.is_sorted() && packets.iter().all(|(at, _)| *at <= read));
            last = done;
            all.extend(packets.iter().map(|(_, n)| *n));
        }
        all.sort_unstable();
        let offered: u64 = trains.iter().map(|(_, train)| u64::from(train.count)).sum();
        prop_assert_eq!(all, (0..offered).collect::<Vec<_>>());
    }
}

/// One gigabit per second of datagrams for a second.
fn gigabit() -> Vec<(Pace, Count)> {
    let gap = Duration::from_micros(12);
    (0..1_000)
        .map(|i| {
            let pace = Pace { first: Time::ZERO + gap * (80 * i), gap };
            (pace, Count { count: 80, size: 1_484, first: 80 * i })
        })
        .collect()
}

#[test]
fn a_process_alone_drops_nothing_and_a_starved_one_does() {
    let alone = HostConfig::default();
    assert!(run(&alone, &gigabit(), u32::MAX, false).dropped.is_empty());
    // Two milliseconds without the processor are 167 datagrams and fit; ten do not.
    let slices = |ms, competitors| {
        let slice = Duration::from_millis(ms);
        HostConfig { scheduler: Scheduler::Slices { slice, competitors }, ..HostConfig::default() }
    };
    assert!(run(&slices(2, 1), &gigabit(), u32::MAX, false).dropped.is_empty());
    let starved = run(&slices(10, 1), &gigabit(), u32::MAX, false);
    assert!(starved.dropped.len() > 10_000, "{}", starved.dropped.len());
    // They are lost in runs, while the others run.
    let runs = starved.dropped.windows(2).filter(|w| w[1].1 != w[0].1 + 1).count() + 1;
    assert!((40..=51).contains(&runs), "{runs}");
}

#[test]
fn a_full_buffer_holds_what_was_measured() {
    let starved =
        Scheduler::OnOff { on: Duration::from_micros(1), off: Duration::from_secs(3_000) };
    let config = HostConfig { scheduler: starved, seed: 7, ..HostConfig::default() };
    let (mut host, mut events) = (Host::new(&config), Events::default());
    let train = Count { count: 1_000, size: 1_484, first: 0 };
    host.arrive(Pace::at(Time::from_nanos(1)), train, &mut events);
    assert_eq!(events.dropped.first().map(|(_, n)| *n), Some(264));
    assert!(events.read.is_empty());
}

#[test]
fn a_process_slower_than_the_arrivals_loses_the_difference() {
    let config = HostConfig { per_packet: Duration::from_micros(24), ..HostConfig::default() };
    let events = run(&config, &gigabit(), u32::MAX, false);
    let share = events.dropped.len() as f64 / 80_000.0;
    assert!((0.48..0.52).contains(&share), "{share}");
}
