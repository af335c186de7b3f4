use packtrain_units::{ByteCount, DataRate, Duration, Time};
use proptest::prelude::*;

use super::*;
use crate::hostile;
use crate::interface::{LossRange, RttSample};

const MTU: ByteCount = ByteCount(1_250);

fn ms(n: u64) -> Time {
    Time::ZERO + Duration::from_millis(n)
}

fn bytes(packets: u64) -> ByteCount {
    ByteCount(MTU.get() * packets)
}

fn sabul(words: &str) -> Sabul {
    let config = ControllerConfig { mtu: MTU, seed: 1, now: ms(0), ceiling: None, rtt: None };
    Sabul::new(&config, Variant::named(words).unwrap())
}

fn send(cc: &mut Sabul, now: Time, count: u32) {
    let in_flight = ByteCount::ZERO;
    let (first, retransmission, app_limited) = (cc.next, false, false);
    cc.on_sent(&Sent {
        now,
        first,
        count,
        bytes: bytes(u64::from(count)),
        in_flight,
        retransmission,
        app_limited,
    });
}

/// So many packets up to index `end` arrived, and these were lost.
fn hear(cc: &mut Sabul, now: Time, arrived: u64, end: u64, lost: &[(u64, u32)]) {
    let range = |&(first, count): &(u64, u32)| LossRange {
        first,
        count,
        bytes: bytes(u64::from(count)),
        sent_at: now,
    };
    let lost: Vec<LossRange> = lost.iter().map(range).collect();
    let ms = Duration::from_millis;
    cc.on_feedback(&Feedback {
        now,
        largest_acked: end.checked_sub(1),
        newest_acked_sent_at: None,
        acked: bytes(arrived),
        acked_packets: arrived,
        in_flight: ByteCount::ZERO,
        rtt: Some(RttSample { latest: ms(40), smoothed: ms(40), variation: ms(1), min: ms(40) }),
        queueing_delay: None,
        delivery_rate: None,
        arrival_rate: None,
        capacity: None,
        lost: &lost,
        spurious: 0,
        ecn_ce: 0,
        host_drops: 0,
        refused: 0,
        drain_rate: None,
        app_limited: false,
        round_ended: false,
        timeout: false,
        delay_rising: false,
    });
}

fn mbps(cc: &Sabul) -> f64 {
    cc.pacing_rate().unwrap().as_bps() as f64 / 1e6
}

/// A review in which so many of 500 packets are lost.
fn review(cc: &mut Sabul, now: Time, lost: u32) {
    let first = cc.next;
    send(cc, now, 500);
    hear(cc, now, 500 - u64::from(lost), first + 500, &[(first, lost)]);
}

#[test]
fn names_make_variants_and_variants_names() {
    for (words, name) in [
        ("linear", "sabul:linear"),
        ("keep+98mbit", "sabul:linear"),
        ("reduce", "sabul:linear+reduce"),
        ("10gbit+proportional", "sabul:proportional"),
        ("multiplicative+reduce", "sabul:multiplicative+reduce"),
    ] {
        assert_eq!(sabul(words).name(), name);
    }
    assert_eq!(mbps(&sabul("98mbit")), 98.0);
    for words in ["", "cubic", "linear+", "98", "0mbit"] {
        assert_eq!(Variant::named(words), None, "{words}");
    }
}

#[test]
fn the_rate_rises_below_half_the_limit_stays_below_it_and_falls_above() {
    let mut cc = sabul("linear");
    review(&mut cc, ms(10), 2);
    assert_eq!(mbps(&cc), 100.5, "0.4 %");
    review(&mut cc, ms(20), 4);
    assert_eq!(mbps(&cc), 100.5, "0.8 %");
    review(&mut cc, ms(30), 6);
    assert_eq!(mbps(&cc), 100.0, "1.2 %");
    review(&mut cc, ms(40), 400);
    assert_eq!(mbps(&cc), 99.5, "a step is a step");
}

#[test]
fn the_other_functions_fall_as_they_say() {
    let mut cc = sabul("multiplicative");
    review(&mut cc, ms(10), 10);
    assert!((mbps(&cc) - 100.0 / 1.125).abs() < 1e-3);
    let mut cc = sabul("proportional");
    review(&mut cc, ms(10), 100);
    // The path carries 80 Mbit/s; at this rate it loses 0.75 %.
    assert!((mbps(&cc) - 80.0 / 0.9925).abs() < 1e-3, "{}", mbps(&cc));
}

#[test]
fn one_mistake_is_paid_for_once() {
    let mut cc = sabul("linear");
    send(&mut cc, ms(0), 5_000);
    hear(&mut cc, ms(40), 450, 500, &[(10, 50)]);
    assert_eq!(mbps(&cc), 99.5);
    for i in 1..10 {
        hear(&mut cc, ms(40 + i), 450, 500 * (i + 1), &[(500 * i, 50)]);
    }
    assert_eq!(mbps(&cc), 99.5, "these left before the rate fell");
    send(&mut cc, ms(60), 500);
    hear(&mut cc, ms(100), 450, 5_500, &[(5_000, 50)]);
    assert_eq!(mbps(&cc), 99.0);
}

#[test]
fn silence_keeps_or_reduces() {
    for (words, after) in [("keep", 100.0), ("reduce", 99.0)] {
        let mut cc = sabul(words);
        hear(&mut cc, ms(0), 1, 1, &[]);
        for i in 0..30 {
            send(&mut cc, ms(i * 10), 100);
        }
        // Silent from 200 ms on: 1,000 packets left since then.
        assert_eq!(mbps(&cc), after, "{words}");
    }
}

#[test]
fn an_idle_flow_does_not_rise_and_the_ceiling_holds() {
    let mut cc = sabul("linear");
    let (now, first, in_flight) = (ms(1), 0, ByteCount::ZERO);
    let (count, retransmission, app_limited) = (500, false, true);
    cc.on_sent(&Sent {
        now,
        first,
        count,
        bytes: bytes(500),
        in_flight,
        retransmission,
        app_limited,
    });
    hear(&mut cc, ms(2), 500, 500, &[]);
    assert_eq!(mbps(&cc), 100.0);
    let ceiling = Some(DataRate::from_mbps(60));
    let config = ControllerConfig { mtu: MTU, seed: 1, now: ms(0), ceiling, rtt: None };
    let mut cc = Sabul::new(&config, Variant::default());
    review(&mut cc, ms(3), 0);
    assert_eq!(mbps(&cc), 60.0);
}

proptest! {
    #[test]
    fn nothing_told_breaks_it(script in hostile::script(), which in 0..4usize) {
        let names = ["sabul", "sabul:multiplicative+reduce", "sabul:proportional", "sabul:reduce"];
        hostile::run(names[which], &script)?;
    }
}
