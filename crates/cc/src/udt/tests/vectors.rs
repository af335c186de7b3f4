//! Numbers given by the paper, or by the checklist made from it and the published programs.

use packtrain_units::{ByteCount, DataRate, Duration, Time};

use crate::bottleneck::{MSS, config, silence};
use crate::config::ControllerConfig;
use crate::interface::{CongestionController, Feedback, LossRange, RttSample, Sent};
use crate::udt::rate::Increase;
use crate::udt::{SYN, Udt, Variant};

/// A rate in bits per second, headers included, as packets of 1500 bytes.
fn packets(bits: f64) -> f64 {
    bits / 12_000.0
}

fn increase(variant: Variant, capacity: f64, rate: f64, before_cut: f64) -> f64 {
    let increase = Increase { variant, mtu: 1_500.0 };
    increase.packets(packets(capacity), packets(rate), packets(before_cut))
}

fn close(one: f64, other: f64) -> bool {
    (one / other - 1.0).abs() < 1e-9
}

pub(super) fn at(ms: u64) -> Time {
    Time::ZERO + Duration::from_millis(ms)
}

pub(super) fn send(udt: &mut Udt, now: Time, first: u64, count: u32) {
    udt.on_sent(&Sent {
        now,
        first,
        count,
        bytes: ByteCount(u64::from(count) * MSS),
        in_flight: ByteCount(u64::from(count) * MSS),
        retransmission: false,
        app_limited: false,
    });
}

pub(super) fn nak(udt: &mut Udt, now: Time, first: u64, count: u32) {
    let bytes = ByteCount(u64::from(count) * MSS);
    let lost = [LossRange { first, count, bytes, sent_at: now }];
    udt.on_feedback(&Feedback { lost: &lost, ..silence(now) });
}

pub(super) fn ack(udt: &mut Udt, now: Time, packets: u64, arrival: Option<f64>, rtt: Duration) {
    let rate = |packets: f64| DataRate::from_bps((packets * 8.0 * MSS as f64) as u64);
    udt.on_feedback(&Feedback {
        acked: ByteCount(packets * MSS),
        acked_packets: packets,
        in_flight: ByteCount(MSS),
        rtt: Some(RttSample { latest: rtt, smoothed: rtt, variation: Duration::ZERO, min: rtt }),
        arrival_rate: arrival.map(rate),
        capacity: Some(rate(packets_of_capacity())),
        ..silence(now)
    });
}

fn packets_of_capacity() -> f64 {
    50_000.0
}

/// After slow start, at 10,000 packets a second, with 1,000 packets sent.
pub(super) fn cruising(variant: Variant) -> Udt {
    let mut udt = Udt::new(&config(), variant);
    send(&mut udt, Time::ZERO, 0, 1_000);
    ack(&mut udt, at(1), 1, Some(10_000.0), Duration::from_millis(100));
    nak(&mut udt, at(1), 5, 1);
    assert!((udt.rate - 10_000.0).abs() < 1.0 && udt.slow_start.is_none(), "{udt:?}");
    udt
}

#[test]
fn the_classes_of_increase_count_bits() {
    let classes = [
        (1.01e9, 10.0),
        (1e10, 10.0),
        (9.99e8, 1.0),
        (1.01e8, 1.0),
        (9.99e7, 0.1),
        (1.01e7, 0.1),
        (9.99e6, 0.01),
        (1.01e6, 0.01),
        (9.9e4, 1.0 / 1_500.0),
        (1.0, 1.0 / 1_500.0),
    ];
    for (free, expected) in classes {
        for variant in [Variant::Paper, Variant::Grid] {
            let inc = increase(variant, 1e9 + free, 1e9, 0.0);
            assert!(close(inc, expected), "{variant:?} {free}: {inc} {expected}");
        }
    }
    assert!(close(increase(Variant::Grid, 1e9, 0.0, 0.0), 1.0), "the class ends at 10^9");
}

#[test]
fn beyond_the_capacity_it_grows_by_a_byte() {
    for variant in [Variant::Paper, Variant::Grid] {
        assert!(close(increase(variant, 1e9, 1e9, 0.0), 1.0 / 1_500.0));
        assert!(close(increase(variant, 1e9, 1.1e9, 2e9), 1.0 / 1_500.0));
        assert!(close(increase(variant, 0.0, 1e6, 0.0), 1.0 / 1_500.0), "capacity unknown");
    }
    assert!(close(increase(Variant::Udt4, 1e9, 1.1e9, 0.0), 0.01), "UDT4: a hundredth packet");
}

#[test]
fn after_a_cut_a_ninth_of_the_capacity_is_free_where_formula_3_stands() {
    // B = 800 Mbit/s, C = 80, D = 90: B / 9 is below 100 Mbit/s, B - C above.
    assert!(close(increase(Variant::Paper, 8e8, 8e7, 9e7), 0.1));
    assert!(close(increase(Variant::Grid, 8e8, 8e7, 9e7), 1.0));
    assert!(close(increase(Variant::Ns2, 8e8, 8e7, 9e7), 0.1));
    assert!(close(increase(Variant::Udt4, 8e8, 8e7, 9e7), 0.1));
    // Above the capacity, (2) comes first in the paper, (3) in the agent of 2003.
    assert!(close(increase(Variant::Paper, 8e8, 9e8, 1e9), 1.0 / 1_500.0));
    assert!(close(increase(Variant::Ns2, 8e8, 9e8, 1e9), 0.1));
    // Near the capacity, UDT4 uses the headroom where that is less than the ninth.
    assert!(close(increase(Variant::Udt4, 1e9, 9.95e8, 1.1e9), 0.01));
    assert!(close(increase(Variant::Paper, 1e9, 9.95e8, 1.1e9), 1.0));
    // And ten times the beta where (4) holds.
    assert!(close(increase(Variant::Ns2, 8e8, 8e7, 0.0), 10.0));
}

#[test]
fn without_formula_3_a_cut_does_not_slow_the_increase() {
    let raised = |udt: Udt| {
        let mut udt = udt;
        nak(&mut udt, at(3), 7, 2);
        let cut = udt.rate;
        // The first end of a SYN belongs to the one with the loss.
        for syn in 1..=3 {
            send(&mut udt, at(10 * syn), 1_000 + syn, 1);
            udt.on_timeout(at(10 * syn + 1));
        }
        udt.rate - cut
    };
    let (with, without) =
        (raised(cruising(Variant::Ns2)), raised(cruising(Variant::Ns2).without_formula_3()));
    assert!(with > 0.0 && without > 5.0 * with, "{with} {without}");
}

#[test]
fn formula_5_in_time_between_packets() {
    let (i, inc) = (1.0 / 10_000.0, 0.1);
    let expected = 0.01 / (0.01 / i + inc);
    assert!(close(1.0 / crate::udt::rate::raised(1.0 / i, inc), expected));
}

#[test]
fn a_cut_is_nine_eighths_between_packets_and_a_frozen_syn() {
    for variant in Variant::ALL {
        let mut udt = cruising(variant);
        let before = udt.rate;
        nak(&mut udt, at(3), 7, 2);
        assert!(close(before / udt.rate, 9.0 / 8.0), "{variant:?}");
        assert!(close(udt.before_cut, before));
        let frozen = (variant != Variant::Udt4).then_some(at(3) + SYN);
        assert_eq!(udt.frozen_until(), frozen, "{variant:?}");
    }
}

#[test]
fn a_warning_is_a_cut_that_begins_an_epoch() {
    for variant in Variant::ALL {
        let mut udt = cruising(variant);
        let before = udt.rate;
        udt.on_feedback(&Feedback { delay_rising: true, ..silence(at(3)) });
        assert!(close(before / udt.rate, 9.0 / 8.0), "{variant:?}");
        let frozen = matches!(variant, Variant::Paper | Variant::Grid).then_some(at(3) + SYN);
        assert_eq!(udt.frozen_until(), frozen, "{variant:?}");
        let before = udt.rate;
        if variant != Variant::Udt4 {
            nak(&mut udt, at(4), 900, 2);
            assert!(close(udt.rate, before), "losses from before the warning belong to it");
        }
    }
}

/// Which of the further NAKs of one epoch cut.
fn further_cuts(variant: Variant, naks: u32) -> Vec<u32> {
    let mut udt = cruising(variant);
    nak(&mut udt, at(3), 7, 2);
    let mut cuts = Vec::new();
    for k in 1..=naks {
        let before = udt.rate;
        nak(&mut udt, at(4), 8 + u64::from(k), 2);
        if udt.rate < before {
            cuts.push(k);
        }
    }
    assert!(udt.frozen_until().is_none_or(|until| until == at(3) + SYN));
    cuts
}

#[test]
fn later_reports_cut_when_dc_is_a_power_of_two() {
    // dc is 1 after the first report: 16, 32, 64, 128 are the 15th, 31st, 63rd and 127th further.
    assert_eq!(further_cuts(Variant::Paper, 200), [15, 31, 63, 127]);
    assert_eq!(further_cuts(Variant::Grid, 200), [15, 31, 63, 127]);
}

#[test]
fn the_agent_of_2003_cuts_at_the_18th_further_report_then_4_and_8() {
    assert_eq!(further_cuts(Variant::Ns2, 50), [18, 22, 30, 46]);
}

#[test]
fn udt4_cuts_at_random_and_at_most_five_times() {
    let cuts = further_cuts(Variant::Udt4, 50);
    assert_eq!(cuts, [1, 2, 3, 4], "one report an epoch so far, so at each");
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..40 {
        let mut udt = Udt::new(&ControllerConfig { seed, ..config() }, Variant::Udt4);
        udt.slow_start = None;
        for epoch in 0..12u64 {
            send(&mut udt, at(epoch), epoch * 1_000, 1_000);
            let mut cuts = 0;
            for k in 0..30 {
                let before = udt.rate;
                udt.set_rate(1e4);
                nak(&mut udt, at(epoch), epoch * 1_000 + k, 1);
                cuts += u32::from(udt.rate < 1e4);
                udt.set_rate(before.max(1e4));
            }
            assert!((1..=5).contains(&cuts), "{seed}: {cuts}");
            seen.insert(cuts);
        }
    }
    assert!(seen.len() > 2, "{seen:?}");
}

#[test]
fn one_loss_is_pardoned_once_an_epoch() {
    for variant in [Variant::Grid, Variant::Ns2] {
        let mut udt = cruising(variant);
        let mut rates = vec![udt.rate];
        for k in 0..4 {
            send(&mut udt, at(3), 1_000 * (k + 1), 1_000);
            nak(&mut udt, at(3), 1_000 * (k + 1) + 5, 1);
            rates.push(udt.rate);
        }
        let cut: Vec<bool> = rates.windows(2).map(|pair| pair[1] < pair[0]).collect();
        assert_eq!(cut, [false, true, false, true], "{variant:?}");
        nak(&mut udt, at(4), 4_500, 2);
        assert!(close(udt.rate, rates[4]), "it belongs to the epoch");
    }
    for variant in [Variant::Paper, Variant::Udt4] {
        let mut udt = cruising(variant);
        let before = udt.rate;
        nak(&mut udt, at(3), 500, 1);
        assert!(udt.rate < before, "{variant:?}");
    }
}

#[test]
fn the_window_is_the_moving_average_of_what_arrives_in_a_wait() {
    let mut udt = cruising(Variant::Paper);
    udt.window.set(100.0);
    ack(&mut udt, at(20), 10, Some(5_000.0), Duration::from_millis(90));
    assert!((udt.window.packets() - (87.5 + 500.0 * 0.125)).abs() < 0.1, "{udt:?}");
    ack(&mut udt, at(22), 10, Some(5_000.0), Duration::from_millis(90));
    assert!((udt.window.packets() - 150.0).abs() < 0.1, "once a SYN");
    ack(&mut udt, at(30), 10, None, Duration::from_millis(90));
    assert!((udt.window.packets() - 150.0).abs() < 0.1, "AS = 0");

    let mut udt = cruising(Variant::Udt4);
    ack(&mut udt, at(20), 10, Some(5_000.0), Duration::from_millis(90));
    assert!((udt.window.packets() - 516.0).abs() < 0.1, "{udt:?}");
    ack(&mut udt, at(30), 10, Some(9_000.0), Duration::from_millis(90));
    assert!((udt.window.packets() - 566.0).abs() < 0.1, "{udt:?}");
}

#[test]
fn slow_start_counts_what_was_acknowledged_and_ends_at_the_rate_of_arrival() {
    for (variant, first) in [(Variant::Paper, 2), (Variant::Grid, 2), (Variant::Udt4, 16)] {
        let mut udt = Udt::new(&config(), variant);
        assert_eq!(udt.cwnd(), ByteCount(first * MSS));
        assert_eq!(udt.pacing_rate(), None);
        send(&mut udt, Time::ZERO, 0, 100);
        for k in 1..=5 {
            ack(&mut udt, at(k * 10), 7, Some(4_000.0), Duration::from_millis(90));
        }
        assert_eq!(udt.cwnd(), ByteCount((first + 35) * MSS), "{variant:?}");
        nak(&mut udt, at(51), 40, 3);
        let rate = udt.pacing_rate().unwrap().as_bps() as f64;
        assert!((rate / (4_000.0 * 8.0 * MSS as f64) - 1.0).abs() < 1e-3, "{variant:?} {rate}");
        assert_eq!(udt.frozen_until(), None, "the end is not a cut");
        udt.on_timeout(at(60));
        assert!(udt.slow_start.is_none(), "only at the beginning");
    }
}

#[test]
fn without_a_rate_of_arrival_slow_start_ends_at_the_window_in_a_wait() {
    let feedbacks = [
        Feedback { delay_rising: true, ..silence(at(1_000)) },
        Feedback { timeout: true, ..silence(at(1_000)) },
    ];
    for feedback in feedbacks {
        let mut udt = Udt::new(&config(), Variant::Udt4);
        send(&mut udt, Time::ZERO, 0, 100);
        ack(&mut udt, at(900), 94, None, Duration::from_millis(90));
        udt.on_feedback(&feedback);
        assert!(close(udt.rate, 110.0 / 0.1), "{udt:?}");
    }
    let mut udt = Udt::new(&config(), Variant::Grid);
    udt.on_feedback(&Feedback { timeout: true, ..silence(at(1_000)) });
    assert!(close(udt.rate, 2.0 / 0.11), "not a packet came back: {udt:?}");
}

#[test]
fn a_loss_before_a_rate_of_arrival_is_known_does_not_end_slow_start() {
    let mut udt = Udt::new(&config(), Variant::Grid);
    send(&mut udt, Time::ZERO, 0, 100);
    nak(&mut udt, at(100), 1, 1);
    assert!(udt.slow_start.is_some());
    ack(&mut udt, at(110), 20, Some(40_000.0), Duration::from_millis(90));
    nak(&mut udt, at(111), 30, 1);
    assert!((udt.rate - 40_000.0).abs() < 1.0 && udt.slow_start.is_none());

    let mut udt = Udt::new(&config(), Variant::Grid);
    send(&mut udt, Time::ZERO, 0, 100);
    ack(&mut udt, at(110), 64, None, Duration::from_millis(90));
    nak(&mut udt, at(111), 70, 1);
    assert!(close(udt.rate, 66.0 / 0.1), "but the receiver gets no more than 64 packets for it");
}

#[test]
fn until_a_capacity_is_told_the_first_rate_stands_in_for_it() {
    let mut udt = Udt::new(&config(), Variant::Grid);
    send(&mut udt, Time::ZERO, 0, 1_000);
    let arrival_rate = Some(DataRate::from_mbps(500));
    udt.on_feedback(&Feedback { arrival_rate, ..silence(at(5)) });
    nak(&mut udt, at(6), 500, 3);
    let first = udt.rate;
    udt.on_timeout(at(10));
    assert!((udt.rate - first) < 0.1, "by a byte");
    nak(&mut udt, at(11), 600, 3);
    udt.on_timeout(at(20));
    let cut = first / 1.125;
    assert!((udt.rate - cut - 10.0).abs() < 0.5, "by the class of 10 to 100 Mbit/s {udt:?}");
}

#[test]
fn a_hundredth_lost_holds_the_rate() {
    for (every, grows) in [(50, false), (150, true)] {
        let mut udt = cruising(Variant::Paper);
        for syn in 1..80 {
            send(&mut udt, at(10 * syn - 5), 1_000 * syn, 600);
            nak(&mut udt, at(10 * syn - 4), 1, 600 / every);
            let before = udt.rate;
            udt.on_timeout(at(10 * syn));
            if syn > 60 {
                assert_eq!(udt.rate > before, grows, "{every}: {udt:?}");
            }
        }
        assert_eq!(udt.state().starts_with("rising"), grows, "{}", udt.state());
    }
}

#[test]
fn the_ceiling_holds_from_slow_start_on() {
    let ceiling = DataRate::from_mbps(50);
    let mut udt = Udt::new(&ControllerConfig { ceiling: Some(ceiling), ..config() }, Variant::Grid);
    let mbps = |udt: &Udt| (udt.pacing_rate().unwrap().as_bps() as f64 / 1e6).round();
    assert_eq!(mbps(&udt), 50.0);
    send(&mut udt, Time::ZERO, 0, 100);
    ack(&mut udt, at(10), 5, Some(40_000.0), Duration::from_millis(90));
    nak(&mut udt, at(11), 40, 3);
    for syn in 2..1_000 {
        udt.on_timeout(at(10 * syn));
    }
    assert_eq!(mbps(&udt), 50.0);
    assert!(udt.pacing_rate().unwrap() <= ceiling);
}

#[test]
fn silence_cuts_once_and_then_halves() {
    let mut udt = cruising(Variant::Grid);
    let timeout = |ms| Feedback { timeout: true, ..silence(at(ms)) };
    udt.on_feedback(&timeout(500));
    assert!((udt.rate - 10_000.0 / 1.125).abs() < 1.0);
    udt.on_feedback(&timeout(900));
    assert!((udt.rate - 5_000.0 / 1.125).abs() < 1.0);
    ack(&mut udt, at(1_000), 1, None, Duration::from_millis(90));
    udt.on_feedback(&timeout(1_500));
    assert!((udt.rate - 5_000.0 / 1.125 / 1.125).abs() < 1.0);
}

#[test]
fn an_idle_flow_has_no_timer() {
    let mut udt = cruising(Variant::Grid);
    udt.on_sent(&Sent {
        now: at(5),
        first: 1_000,
        count: 1,
        bytes: ByteCount(MSS),
        in_flight: ByteCount(MSS),
        retransmission: false,
        app_limited: true,
    });
    udt.on_feedback(&Feedback { acked: ByteCount(MSS), acked_packets: 1, ..silence(at(9)) });
    let rate = udt.rate;
    udt.on_timeout(at(10));
    assert_eq!((udt.poll_timeout(), udt.rate), (None, rate));
    send(&mut udt, at(700), 1_001, 10);
    assert_eq!(udt.poll_timeout(), Some(at(710)));
}

#[test]
fn trains_are_asked_for_until_a_capacity_is_known() {
    let mut udt = Udt::new(&config(), Variant::Grid);
    send(&mut udt, Time::ZERO, 0, 100);
    udt.on_feedback(&Feedback { timeout: true, ..silence(at(5)) });
    udt.set_rate(10_000.0);
    let asked = |udt: &mut Udt, ms| {
        udt.on_timeout(at(ms));
        udt.probe().map(|probe| (probe.packets, probe.at))
    };
    assert_eq!(asked(&mut udt, 50), None);
    assert_eq!(asked(&mut udt, 110), Some((16, at(110))));
    send(&mut udt, at(110), 100, 16);
    assert_eq!(udt.probe(), None);
    ack(&mut udt, at(150), 10, None, Duration::from_millis(40));
    assert_eq!(asked(&mut udt, 400), None);
}

#[test]
fn a_window_full_on_an_empty_path_does_not_follow_its_own_limit() {
    let report = |udt: &mut Udt, ms, in_flight: u64, latest| {
        let (rtt, min) = (Duration::from_millis(latest), Duration::from_millis(90));
        udt.on_feedback(&Feedback {
            acked: ByteCount(50 * MSS),
            acked_packets: 50,
            in_flight: ByteCount(in_flight * MSS),
            rtt: Some(RttSample { latest: rtt, smoothed: rtt, variation: Duration::ZERO, min }),
            arrival_rate: Some(DataRate::from_bps(5_000 * 8 * MSS)),
            ..silence(at(ms))
        });
        udt.window.packets().round()
    };
    let full = || {
        let mut udt = cruising(Variant::Paper);
        udt.window.set(500.0);
        udt.on_feedback(&Feedback { arrival_rate: Some(DataRate::from_bps(1)), ..silence(at(8)) });
        udt.window.set(500.0);
        udt
    };
    // The rate is 10,000 packets a second, of which 5,000 arrive.
    assert_eq!(report(&mut full(), 20, 450, 90), 437.5f64.round() + 125.0, "C stands in for AS");
    assert_eq!(report(&mut full(), 20, 200, 90), 500.0, "the window has room");
    assert_eq!(report(&mut full(), 20, 450, 190), 437.5f64.round() + 125.0, "there is a queue");
    let mut udt = full();
    nak(&mut udt, at(12), 7, 1);
    assert_eq!(report(&mut udt, 20, 450, 90), 500.0, "there were losses");
}

/// A window that is full on an empty path holds the flow, and nobody tells the capacity: the rate
/// stays near what arrives, instead of doubling for ever, and with it the window.
#[test]
fn a_rate_that_the_window_holds_stays_near_what_arrives() {
    for variant in Variant::ALL {
        let mut udt = Udt::new(&config(), variant);
        let rtt = Duration::from_millis(100);
        let told = RttSample { latest: rtt, smoothed: rtt, variation: Duration::ZERO, min: rtt };
        let arrival = 1_000.0;
        let report = |udt: &mut Udt, now: Time| {
            let window = udt.cwnd();
            udt.on_feedback(&Feedback {
                acked: ByteCount(10 * MSS),
                acked_packets: 10,
                in_flight: window,
                rtt: Some(told),
                arrival_rate: Some(DataRate::from_bps((arrival * 8.0 * MSS as f64) as u64)),
                ..silence(now)
            });
        };
        send(&mut udt, Time::ZERO, 0, 1_000);
        report(&mut udt, at(1));
        nak(&mut udt, at(1), 5, 1);
        assert!(udt.slow_start.is_none(), "{variant:?}");
        for syn in 1..=600u64 {
            let now = at(1 + 10 * syn);
            send(&mut udt, now, 1_000 + 10 * syn, 10);
            report(&mut udt, now);
            udt.on_timeout(now);
        }
        assert!(udt.rate > 1.5 * arrival, "a first rate far too low is left: {variant:?} {udt:?}");
        // (2) still adds at most a packet per second in each SYN.
        let most = 2.0 * arrival + 700.0;
        assert!(udt.rate < most, "{variant:?}: {}", udt.rate);
        let most = most * 0.11 + 20.0;
        assert!(udt.window.packets() < most, "{variant:?}: {}", udt.window.packets());
    }
}
