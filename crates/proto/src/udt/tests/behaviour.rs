//! The behaviour that the paper describes, one claim per test.

use packtrain_cc::udt::Variant;
use packtrain_units::{DataRate, Duration, Time};

use super::Puppet;
use super::network::{Event, Pair, RATE};
use crate::test_network::Path;
use crate::udt::{Ack, Message, Receiver, ReceiverConfig};

const MS: fn(u64) -> Duration = Duration::from_millis;

fn pair(variant: Variant, puppet: Puppet, total: u64, path: Path) -> Pair {
    let mut pair = Pair::new(variant, puppet, (0, total, 10_000), 1, path, 1);
    pair.keep = true;
    pair
}

fn acks(pair: &Pair) -> Vec<(u64, Ack)> {
    let acks = pair.messages.iter().filter_map(|(at, message)| match message {
        Message::Ack(ack) => Some((at.as_nanos() / 1_000_000, *ack)),
        _ => None,
    });
    acks.collect()
}

#[test]
fn an_ack_each_syn_with_what_the_receiver_knows() {
    let puppet = Puppet::new(1_000, Some(RATE), 1);
    let mut pair = pair(Variant::Paper, puppet, 3_000, Path::clean(MS(8)));
    pair.run(MS(10_000));
    let acks = acks(&pair);
    assert!(acks.windows(2).all(|w| w[1].0 - w[0].0 >= 10 || w[1].1.next == w[0].1.next));
    assert_eq!(acks.len(), 37, "352 ms of data and a few repeats");
    let last = acks.last().unwrap().1;
    assert_eq!(last.next, 3_000);
    assert_eq!(last.rtt, MS(16));
    let arrival = last.arrival.unwrap().times(super::DATAGRAM);
    // The filter removes the pair's interval of each 16, here zero, but not the double interval
    // after it.
    assert!(arrival.as_bps().abs_diff(RATE.as_bps() * 15 / 16) < 1_000_000, "{arrival}");
}

#[test]
fn an_unanswered_ack_is_repeated_after_two_round_trips() {
    let puppet = Puppet::new(1_000, Some(RATE), 1);
    let mut pair = pair(Variant::Paper, puppet, 100, Path::clean(MS(8)));
    let mut lost = 0;
    pair.lose = Box::new(move |_, event| {
        // The first acknowledgement of everything.
        let last = matches!(event, Event::Message(Message::Ack(ack)) if ack.next == 100);
        lost += u32::from(last);
        last && lost == 1
    });
    pair.run(MS(10_000));
    let all: Vec<_> = acks(&pair).into_iter().filter(|(_, ack)| ack.next == 100).collect();
    assert_eq!(all.len(), 2);
    assert!((32..=34).contains(&(all[1].0 - all[0].0)), "{all:?}");
    assert!(all[0].1.number < all[1].1.number);
}

#[test]
fn every_sixteenth_units_successor_leaves_at_once_and_the_rate_is_kept() {
    let puppet = Puppet::new(10_000, Some(RATE), 1);
    let mut pair = pair(Variant::Paper, puppet, 1_600, Path::clean(MS(1)));
    pair.run(MS(10_000));
    let gap = RATE.time_for(super::DATAGRAM);
    for w in pair.fresh.windows(2) {
        let waited = w[1].0.since(w[0].0).as_nanos();
        let meant = match w[0].1 % 16 {
            0 => 0,
            1 => gap.as_nanos() * 2,
            _ => gap.as_nanos(),
        };
        assert!(waited.abs_diff(meant) <= 1, "{} waited {waited}", w[1].1);
    }
}

#[test]
fn a_loss_is_told_at_once_and_a_lost_nak_again_within_three_round_trips() {
    for variant in Variant::ALL {
        let puppet = Puppet::new(10_000, Some(RATE), 1);
        let mut pair = pair(variant, puppet, 3_000, Path::clean(MS(10)));
        let (mut units, mut naks) = (0, 0);
        pair.lose = Box::new(move |_, event| match event {
            Event::Unit(1_000) => {
                units += 1;
                units == 1
            }
            Event::Message(Message::Nak { .. }) => {
                naks += 1;
                naks == 1
            }
            _ => false,
        });
        pair.run(MS(10_000));
        let naks: Vec<_> =
            pair.messages.iter().filter(|(_, m)| matches!(m, Message::Nak { .. })).collect();
        assert_eq!(naks[0].1, Message::Nak { ranges: vec![(1_000, 1_001)] });
        let wait = naks[1].0.since(naks[0].0);
        let min = if variant == Variant::Ns2 { MS(0) } else { MS(40) };
        assert!(wait >= min && wait <= MS(61), "{variant:?} {wait}");
        assert_eq!(pair.puppet.knobs().naks[0].1, 1);
        assert_eq!(pair.puppet.knobs().timeouts, 0);
    }
}

#[test]
fn a_lost_tail_costs_about_two_round_trips() {
    for variant in Variant::ALL {
        let puppet = Puppet::new(10_000, Some(RATE), 1);
        let mut pair = pair(variant, puppet, 2_000, Path::clean(MS(10)));
        let mut lost = std::collections::BTreeSet::new();
        pair.lose = Box::new(
            move |_, event| matches!(event, Event::Unit(u) if u >= 1_990 && lost.insert(u)),
        );
        pair.run(MS(10_000));
        assert!(pair.is_done());
        let left = pair.fresh.last().unwrap().0;
        let cost = pair.now.since(left);
        // RTT and the wait for the probe, then RTT for NAK and repeat, then RTT and SYN.
        assert!(cost < MS(150), "{variant:?} {cost}");
        assert_eq!(pair.puppet.knobs().timeouts, 0);
    }
}

#[test]
fn a_long_silence_is_a_timeout_and_everything_leaves_again() {
    let path = Path { outage: Some((MS(100), MS(2_000))), ..Path::clean(MS(10)) };
    let puppet = Puppet::new(500, Some(RATE), 1);
    let mut pair = pair(Variant::Paper, puppet, 3_000, path);
    pair.run(MS(20_000));
    assert!(pair.is_done());
    assert!(pair.puppet.knobs().timeouts >= 1);
    assert!(pair.repeats() >= 500);
}

#[test]
fn light_acks_every_64_units_are_udt4s() {
    for (variant, light) in [(Variant::Udt4, true), (Variant::Paper, false)] {
        let puppet = Puppet::new(10_000, Some(DataRate::from_mbps(500)), 1);
        let mut pair = pair(variant, puppet, 10_000, Path::clean(MS(5)));
        pair.run(MS(10_000));
        let count = acks(&pair).iter().filter(|(_, ack)| ack.light).count();
        assert_eq!(count > 100, light, "{count}");
    }
}

#[test]
fn a_queue_that_grows_makes_warnings_but_udt4_gives_none() {
    for (variant, warns) in [(Variant::Grid, true), (Variant::Ns2, true), (Variant::Udt4, false)] {
        let puppet = Puppet::new(10_000, Some(RATE), 1);
        let mut pair = pair(variant, puppet, 20_000, Path::clean(MS(5)));
        // The round trip grows by a tenth of a millisecond each SYN.
        let end = pair.now + MS(600);
        while pair.now < end {
            pair.step();
            let late = pair.now.since(end - MS(600)).as_nanos() / 100;
            pair.slow(Duration::from_nanos(late));
        }
        let count = pair.puppet.knobs().warnings;
        assert_eq!(count > 0, warns, "{variant:?} {count}");
        // No more than one in two round trips.
        let at: Vec<_> = pair.messages.iter().filter(|(_, m)| *m == Message::Warning).collect();
        assert!(at.windows(2).all(|w| w[1].0.since(w[0].0) >= MS(20)));
    }
}

#[test]
fn a_freeze_stops_everything_for_its_time() {
    let puppet = Puppet::new(10_000, Some(RATE), 1);
    let mut pair = pair(Variant::Paper, puppet.clone(), 2_000, Path::clean(MS(5)));
    pair.run(MS(50));
    let (from, until) = (pair.now, pair.now + MS(10));
    puppet.knobs().frozen = Some(until);
    pair.run(MS(10_000));
    assert!(pair.fresh.iter().all(|(at, _)| *at <= from || *at >= until));
    let after: Vec<_> = pair.fresh.iter().filter(|(at, _)| *at >= until).take(4).collect();
    assert!(after[3].0.since(after[0].0) > Duration::from_micros(200), "no burst follows");
}

#[test]
fn no_more_units_are_open_than_the_receiver_has_room_for() {
    let puppet = Puppet::new(10_000, Some(RATE), 1);
    let mut pair = pair(Variant::Paper, puppet, 2_000, Path::clean(MS(5)));
    pair.receiver.set_room(pair.now, 50);
    let end = pair.now + MS(1_000);
    while pair.now < end {
        pair.step();
        if pair.receiver.next() > 400 {
            pair.receiver.set_room(pair.now, 0);
            break;
        }
    }
    pair.run(MS(1_000));
    let stuck = pair.sender.next();
    assert!(!pair.is_done() && stuck < 600, "{stuck}");
    pair.receiver.set_room(pair.now, 5_000);
    pair.run(MS(1_000));
    assert!(pair.is_done(), "room that comes back is told");
}

#[test]
fn on_a_short_path_no_more_is_under_way_than_path_and_socket_hold() {
    // 8.3 packets a millisecond over a round trip of 0.2 ms: SYN would have 83 under way.
    let most_open = |variant, socket| {
        let puppet = Puppet::new(10_000, Some(RATE), 1);
        let path = Path::clean(Duration::from_micros(100));
        let mut pair = pair(variant, puppet, 3_000, path);
        pair.set_socket(socket);
        let began = pair.now;
        let mut most = 0;
        while !pair.is_done() {
            pair.step();
            // The first ACKs bring the round trip and the arrival speed.
            if pair.now.since(began) > MS(50) {
                most = most.max(pair.sender.next() - pair.sender.acked());
            }
        }
        (most, pair.now.since(began).as_millis())
    };
    for variant in [Variant::Paper, Variant::Grid, Variant::Udt4] {
        let (free, time) = most_open(variant, None);
        let (held, held_time) = most_open(variant, Some(20));
        assert!(free >= 60 || variant == Variant::Udt4 && free >= 20, "{variant:?}: {free}");
        assert!(held <= 20 + 4, "{variant:?}: {held}");
        assert!(held_time <= time + 10, "{variant:?}: {held_time} ms in place of {time}");
        let (_, held_time) = most_open(variant, Some(2));
        assert!(held_time <= time + 10, "{variant:?}, two packets: {held_time} ms for {time}");
    }
}

#[test]
fn of_trains_one_late_sample_is_no_trend() {
    // 16 round trips that hardly differ, except for the last; or all of them growing.
    let still =
        |last| move |i: u64| Duration::from_micros(if i == 15 { last } else { 500 + i % 3 });
    let growing = |i: u64| Duration::from_micros(500 + 20 * i);
    for (train, late) in [(1, true), (64, false)] {
        assert!(!warns(train, still(502)));
        assert_eq!(warns(train, still(5_000)), late);
        assert!(warns(train, growing));
    }
}

/// Whether a receiver that measures these 16 round trips sends a warning.
fn warns(train: u32, rtt: impl Fn(u64) -> Duration) -> bool {
    let config =
        ReceiverConfig { variant: Variant::Grid, first: 0, window: 1_000, train, socket: None };
    let mut now = Time::ZERO;
    let mut receiver = Receiver::new(config, now);
    for i in 0..16 {
        receiver.take(now, i, 1);
        now = Time::ZERO + MS(10) * (i + 1);
        let Some(Message::Ack(ack)) = receiver.poll_message(now) else { panic!("no ACK") };
        now += rtt(i);
        receiver.on_message(now, &Message::Ack2 { number: ack.number }).unwrap();
    }
    receiver.poll_message(now) == Some(Message::Warning)
}
