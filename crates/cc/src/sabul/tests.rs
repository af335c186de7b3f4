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

/// `arrived` packets up to index `end` arrived, and the packets of `lost` were lost.
fn feedback_of(cc: &mut Sabul, now: Time, arrived: u64, end: u64, lost: &[(u64, u32)]) {
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
        reverse_queue: None,
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
        bunched: Duration::ZERO,
        held: None,
    });
}

fn mbps(cc: &Sabul) -> f64 {
    cc.pacing_rate().unwrap().as_bps() as f64 / 1e6
}

/// Whether the rate is `rate` Mbit/s.
fn is_rate(cc: &Sabul, rate: f64) -> bool {
    (mbps(cc) - rate).abs() < 1e-3
}

/// A review in which `lost` of 500 packets are lost, after the packets that do not count.
fn review(cc: &mut Sabul, now: Time, lost: u32) {
    if cc.epoch > cc.next {
        send(cc, now, (cc.epoch - cc.next) as u32);
    }
    let first = cc.next;
    send(cc, now, 500);
    feedback_of(cc, now, 500 - u64::from(lost), first + 500, &[(first, lost)]);
}

#[test]
fn names_make_variants_and_variants_names() {
    for (words, name) in [
        ("linear", "sabul:linear"),
        ("keep+98mbit", "sabul:linear"),
        ("reduce", "sabul:linear+reduce"),
        ("10gbit+proportional", "sabul:proportional"),
        ("step", "sabul:step"),
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
    assert!(is_rate(&cc, 100.5), "0.4 %");
    review(&mut cc, ms(20), 4);
    assert!(is_rate(&cc, 100.5), "0.8 %");
    review(&mut cc, ms(30), 50);
    assert!(is_rate(&cc, 100.5 * (1.0 - 0.095)), "10 %: {}", mbps(&cc));
}

/// The losses of a full path of this capacity among 500 packets at the rate in force.
fn expected_losses(cc: &Sabul, capacity: f64) -> u32 {
    (500.0 * (1.0 - capacity / mbps(cc)).max(0.0)).round() as u32
}

#[test]
fn one_fall_leads_below_the_limit_and_there_the_rate_stays() {
    for capacity in [99.0, 95.0, 70.0, 30.0] {
        let mut cc = sabul("linear");
        for i in 0..40 {
            let lost = expected_losses(&cc, capacity);
            review(&mut cc, ms(100 * i), lost);
            assert!(i < 4 || expected_losses(&cc, capacity) <= 5, "{capacity}: review {i}");
        }
        assert!(mbps(&cc) >= capacity, "{capacity}: {}", mbps(&cc));
    }
}

#[test]
fn the_other_functions_fall_as_they_say() {
    let mut cc = sabul("step");
    review(&mut cc, ms(10), 400);
    assert_eq!(mbps(&cc), 99.5, "a step is a step");
    let mut cc = sabul("multiplicative");
    review(&mut cc, ms(10), 10);
    assert!(is_rate(&cc, 100.0 / 1.125));
    let mut cc = sabul("proportional");
    review(&mut cc, ms(10), 100);
    assert!(is_rate(&cc, 80.0), "what the path carries: {}", mbps(&cc));
}

#[test]
fn one_mistake_is_paid_for_once() {
    let mut cc = sabul("step");
    send(&mut cc, ms(0), 5_000);
    feedback_of(&mut cc, ms(40), 450, 500, &[(10, 50)]);
    assert_eq!(mbps(&cc), 99.5);
    for i in 1..10 {
        feedback_of(&mut cc, ms(40 + i), 450, 500 * (i + 1), &[(500 * i, 50)]);
    }
    assert_eq!(mbps(&cc), 99.5, "these left before the rate fell");
    send(&mut cc, ms(60), 1_000);
    feedback_of(&mut cc, ms(100), 450, 5_500, &[(5_000, 50)]);
    assert_eq!(mbps(&cc), 99.5, "these meet what the old rate left");
    feedback_of(&mut cc, ms(101), 450, 6_000, &[(5_500, 50)]);
    assert!(is_rate(&cc, 99.0025));
}

#[test]
fn where_the_rate_had_to_fall_it_rises_in_short_steps_for_a_while() {
    let mut cc = sabul("step");
    for i in 0..5 {
        review(&mut cc, ms(10 * i), 50);
    }
    let mut steps = Vec::new();
    for i in 0..40 {
        let before = mbps(&cc);
        review(&mut cc, ms(100 + 10 * i), 0);
        steps.push(mbps(&cc) / before - 1.0);
    }
    for (i, step) in [(0, 0.001), (7, 0.001), (8, 0.002), (16, 0.004), (24, 0.005), (39, 0.005)] {
        assert!((steps[i] - step).abs() < 1e-6, "{i}: {}", steps[i]);
    }
}

#[test]
fn it_rises_once_a_round_trip() {
    let mut cc = sabul("linear");
    send(&mut cc, ms(0), 5_000);
    for i in 1..=10 {
        feedback_of(&mut cc, ms(40 + i), 500, 500 * i, &[]);
    }
    assert!(is_rate(&cc, 100.5), "nothing that left since has been heard of");
    send(&mut cc, ms(60), 500);
    // Half of these packets were sent before the rate rose.
    feedback_of(&mut cc, ms(100), 500, 5_250, &[]);
    assert!(is_rate(&cc, 100.5));
    feedback_of(&mut cc, ms(101), 250, 5_500, &[]);
    assert!(is_rate(&cc, 100.5 * 1.005));
}

#[test]
fn silence_keeps_or_reduces() {
    // Twice as if 2 % was lost, 1.5 % above the target.
    let reduced = 100.0 * (1.0 - 0.015) * (1.0 - 0.015);
    for (words, after) in [("keep", 100.0), ("reduce", reduced)] {
        let mut cc = sabul(words);
        feedback_of(&mut cc, ms(0), 1, 1, &[]);
        for i in 0..30 {
            send(&mut cc, ms(i * 10), 100);
        }
        // Silent from 200 ms on: 1,000 packets were sent since then.
        assert!(is_rate(&cc, after), "{words}: {}", mbps(&cc));
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
    feedback_of(&mut cc, ms(2), 500, 500, &[]);
    assert_eq!(mbps(&cc), 100.0);
    let ceiling = Some(DataRate::from_mbps(60));
    let config = ControllerConfig { mtu: MTU, seed: 1, now: ms(0), ceiling, rtt: None };
    let mut cc = Sabul::new(&config, Variant::default());
    review(&mut cc, ms(3), 0);
    assert_eq!(mbps(&cc), 60.0);
}

proptest! {
    #[test]
    fn nothing_told_breaks_it(script in hostile::script(), which in 0..5usize) {
        let names = [
            "sabul",
            "sabul:multiplicative+reduce",
            "sabul:proportional",
            "sabul:reduce",
            "sabul:step+reduce",
        ];
        hostile::run(names[which], &script)?;
    }
}
