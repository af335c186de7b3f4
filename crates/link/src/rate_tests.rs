use packtrain_units::ByteCount;

use super::*;

fn at(ns: u64) -> Time {
    Time::from_nanos(ns)
}

fn schedule(steps: &[(u64, u64)], period: Option<u64>) -> RateSchedule {
    RateSchedule {
        steps: steps.iter().map(|&(ns, bps)| (at(ns), DataRate::from_bps(bps))).collect(),
        period: period.map(Duration::from_nanos),
    }
}

const GIGABIT: u64 = 1_000_000_000;

#[test]
fn a_packet_takes_its_size_by_the_rate_to_the_nearest_nanosecond() {
    let mut transmitter = Transmitter::new(&schedule(&[(0, 10 * GIGABIT)], None), 38);
    let sent = transmitter.send(at(0), Pace::at(at(5)), 1, 1_500).unwrap();
    // 1230.4 ns.
    assert_eq!((sent.starts.first, sent.takes), (at(5), Duration::from_nanos(1_230)));
    let exact = DataRate::from_bps(10 * GIGABIT).time_for(ByteCount(1_538));
    assert_eq!(sent.takes, exact);
}

#[test]
fn a_backlog_melts_and_then_packets_pass_as_they_come() {
    let mut transmitter = Transmitter::new(&schedule(&[(0, GIGABIT)], None), 0);
    let gap = Duration::from_nanos(13_000);
    let pace = Pace { first: at(0), gap };
    // 12 us each, every 13 us, and 5 us of backlog: five wait.
    let busy = transmitter.send(at(5_000), pace, 50, 1_500).unwrap();
    assert_eq!((busy.count, busy.starts.first), (5, at(5_000)));
    assert_eq!(busy.starts.gap, Duration::from_nanos(12_000));
    let idle = transmitter.send(busy.end(), pace.from(5), 45, 1_500).unwrap();
    assert_eq!((idle.count, idle.starts), (45, pace.from(5)));
}

#[test]
fn a_packet_on_its_way_out_goes_on_at_the_new_rate() {
    // Half of it in 6 us at 1 Gbit/s, then down for 4 us, the rest at 2 Gbit/s.
    let steps = [(0, GIGABIT), (6_000, 0), (10_000, 2 * GIGABIT)];
    let mut transmitter = Transmitter::new(&schedule(&steps, None), 0);
    let sent = transmitter.send(at(0), Pace::at(at(0)), 3, 1_500).unwrap();
    assert_eq!((sent.count, sent.end()), (1, at(13_000)));
    let next = transmitter.send(sent.end(), Pace::at(at(0)), 2, 1_500).unwrap();
    assert_eq!((next.count, next.end()), (2, at(25_000)));
}

#[test]
fn a_link_that_is_down_waits_until_it_is_up_or_gives_up() {
    let steps = [(0, GIGABIT), (10_000, 0)];
    let mut again = Transmitter::new(&schedule(&steps, Some(50_000)), 0);
    assert_eq!(again.up_from(at(9_999)), at(9_999));
    assert_eq!(again.up_from(at(10_000)), at(50_000));
    // Far later, in the 20,000th round.
    assert_eq!(again.up_from(at(1_000_020_000)), at(1_000_050_000));
    let mut once = Transmitter::new(&schedule(&steps, None), 0);
    assert_eq!(once.up_from(at(10_000)), Time::MAX);
    assert!(once.send(at(0), Pace::at(at(20_000)), 1, 100).is_none());
}

#[test]
fn without_a_limit_packets_take_no_time() {
    let mut transmitter = Transmitter::new(&schedule(&[(0, u64::MAX)], None), 0);
    let pace = Pace { first: at(3), gap: Duration::from_nanos(7) };
    let sent = transmitter.send(at(0), pace, 64, 65_535).unwrap();
    assert_eq!((sent.count, sent.finishes()), (64, pace));
}

#[test]
fn a_packet_at_the_instant_of_a_change_belongs_to_what_follows() {
    let steps = [(0, u64::MAX), (70, 0), (100, u64::MAX)];
    let mut transmitter = Transmitter::new(&schedule(&steps, None), 0);
    let pace = Pace { first: at(0), gap: Duration::from_nanos(7) };
    let sent = transmitter.send(at(0), pace, 64, 1_500).unwrap();
    assert_eq!((sent.count, sent.end()), (10, at(63)));
    let next = transmitter.send(sent.end(), pace.from(10), 54, 1_500).unwrap();
    assert_eq!(next.starts.first, at(100));
}

#[test]
fn a_packet_that_takes_ages_of_a_quick_schedule_is_found_at_once() {
    // One and two bits per second alternating, each for a nanosecond: 12,000 bits take 8,000 s.
    let mut transmitter = Transmitter::new(&schedule(&[(0, 1), (1, 2)], Some(2)), 0);
    let sent = transmitter.send(at(0), Pace::at(at(0)), 1, 1_500).unwrap();
    assert_eq!(sent.takes, Duration::from_secs(8_000));
    // Step by step it gives the same result: here with few periods, half of them down.
    let steps = [(0, 8 * GIGABIT), (100, 0)];
    let mut slow = Transmitter::new(&schedule(&steps, Some(300)), 0);
    let sent = slow.send(at(50), Pace::at(at(50)), 1, 1_500).unwrap();
    // 50 bytes at once, then 100 per period: 14 whole periods and 50 bytes more.
    assert_eq!(sent.end(), at(300 * 15 + 50));
}
