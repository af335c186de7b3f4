use packtrain_units::DataRate;

use super::*;
use crate::config::{Limit, LinkConfig, QueueConfig};
use crate::element::{Count, Element, Observer, Pace};
use crate::link::Link;

/// ns-2's defaults, with room.
fn config(mode: RedMode) -> RedConfig {
    RedConfig::ns2(Limit::Packets(50), mode)
}

/// A queue with this average and a constant length that never drains.
fn standing(mode: RedMode, length: u32) -> (Red, Backlog) {
    let mut red = Red::new(config(mode), 3);
    red.avg = f64::from(length);
    let mut backlog = Backlog::default();
    backlog.set_transmitter(Time::MAX, DataRate::from_mbps(10));
    backlog.hold(length, 1_000);
    (red, backlog)
}

fn share(mode: RedMode, length: u32) -> (f64, Vec<u32>) {
    let (mut red, mut backlog) = standing(mode, length);
    let (mut dropped, mut gaps, mut gap) = (0, Vec::new(), 0);
    for i in 0..100_000 {
        let pace = Pace::at(Time::from_nanos(i));
        gap += 1;
        if red.admit(Arriving { pace, count: 1, size: 1_000 }, &mut backlog) != Verdict::Take(1) {
            dropped += 1;
            gaps.push(gap);
            gap = 0;
        }
    }
    (f64::from(dropped) / 100_000.0, gaps)
}

#[test]
fn drops_begin_at_the_lower_threshold_and_are_spread() {
    assert_eq!(share(RedMode::Classic, 4).0, 0.0);
    // Midway p is 0.05: with wait_, gaps are uniform between 1/p and 2/p.
    let (rate, gaps) = share(RedMode::Classic, 10);
    assert!((rate - 1.0 / 30.0).abs() < 0.001, "{rate}");
    assert!(gaps[1..].iter().all(|gap| (20..=41).contains(gap)), "{gaps:?}");
    assert_eq!(share(RedMode::Classic, 15).0, 1.0);
}

#[test]
fn gentle_goes_on_to_twice_the_upper_threshold() {
    let (rate, _) = share(RedMode::Gentle, 16);
    assert!((0.05..0.2).contains(&rate), "{rate}");
    let (more, _) = share(RedMode::Gentle, 25);
    assert!(more > 3.0 * rate && more < 1.0, "{more}");
    assert_eq!(share(RedMode::Gentle, 30).0, 1.0);
}

#[test]
fn the_average_falls_while_the_link_is_idle() {
    let (mut red, _) = standing(RedMode::Classic, 10);
    let mut backlog = Backlog::default();
    // 10 Mbit/s send 2,500 packets of 500 bytes in a second.
    backlog.set_transmitter(Time::ZERO, DataRate::from_mbps(10));
    let pace = Pace::at(Time::ZERO + Duration::from_millis(400));
    red.admit(Arriving { pace, count: 1, size: 500 }, &mut backlog);
    let right = 10.0 * 0.998f64.powi(1_001);
    assert!((red.average() - right).abs() < 1e-9, "{} for {right}", red.average());
    // The same idle time does not count twice.
    red.admit(Arriving { pace, count: 1, size: 500 }, &mut backlog);
    assert!((red.average() - right * 0.998).abs() < 1e-9);
}

#[test]
fn adaptive_moves_the_probability_towards_the_middle() {
    let run = |length| {
        let (mut red, mut backlog) = standing(RedMode::Adaptive, length);
        for i in 0..2_000 {
            let pace = Pace::at(Time::ZERO + Duration::from_millis(10) * i);
            red.admit(Arriving { pace, count: 1, size: 1_000 }, &mut backlog);
        }
        red.max_p
    };
    assert!(run(6) < 0.02, "{}", run(6));
    assert_eq!(run(10), 0.1);
    assert!(run(14) > 0.3, "{}", run(14));
}

#[derive(Default)]
struct Causes(u32, u32);

impl Observer<Count> for Causes {
    fn dropped(&mut self, _: Pace, train: Count, cause: DropCause) {
        match cause {
            DropCause::Early => self.0 += train.count,
            _ => self.1 += train.count,
        }
    }
}

#[test]
fn under_load_it_drops_early_and_keeps_the_queue_short() {
    let queue = QueueConfig::Red(config(RedMode::Gentle));
    let config = LinkConfig {
        queue,
        ..LinkConfig::new(DataRate::from_mbps(10), Duration::from_millis(1), 1)
    };
    let (mut link, mut causes) = (Link::new(config), Causes::default());
    // A tenth more than the link's rate.
    let gap = Duration::from_micros(1_091);
    let pace = Pace { first: Time::ZERO, gap };
    link.offer(pace, Count { count: 50_000, size: 1_500, first: 0 }, &mut causes);
    assert!((4_000..5_500).contains(&causes.0), "{}", causes.0);
    assert_eq!(causes.1, 0);
    let (waiting, _) = link.waiting(pace.time(49_999));
    assert!((10..35).contains(&waiting), "{waiting}");
}
