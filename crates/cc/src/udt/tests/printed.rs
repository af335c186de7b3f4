//! Each switch of `AsPrinted` undoes its departure from the printed text, and no other.

use packtrain_units::{ByteCount, DataRate, Duration};

use super::vectors::{ack, at, cruising, nak, send};
use crate::bottleneck::{MSS, config, silence};
use crate::interface::{CongestionController, Feedback, RttSample};
use crate::udt::{AsPrinted, Udt, Variant};

const SWITCHES: [AsPrinted; 7] = [
    AsPrinted::Nothing,
    AsPrinted::Window,
    AsPrinted::Capacity,
    AsPrinted::ExitCut,
    AsPrinted::EarlyLoss,
    AsPrinted::Silence,
    AsPrinted::Everything,
];

/// Which switches change what `seen` shows, rounded.
fn changed(seen: impl Fn(AsPrinted) -> f64) -> Vec<AsPrinted> {
    let usual = seen(AsPrinted::Nothing).round();
    SWITCHES.into_iter().filter(|printed| seen(*printed).round() != usual).collect()
}

fn starting(printed: AsPrinted) -> Udt {
    let mut udt = Udt::as_printed(&config(), printed);
    send(&mut udt, at(0), 0, 1_000);
    udt
}

/// In cruise at 9,000 packets a second, whatever the end of slow start was.
fn steady(printed: AsPrinted) -> Udt {
    let mut udt = Udt { printed, ..cruising(Variant::Paper) };
    udt.set_rate(9_000.0);
    udt
}

#[test]
fn formula_1_takes_the_arrival_rate_alone() {
    let window = |printed| {
        let mut udt = steady(printed);
        udt.window.set(500.0);
        udt.on_feedback(&Feedback { arrival_rate: Some(DataRate::from_bps(1)), ..silence(at(8)) });
        udt.window.set(500.0);
        let rtt = Duration::from_millis(90);
        udt.on_feedback(&Feedback {
            acked: ByteCount(50 * MSS),
            acked_packets: 50,
            in_flight: ByteCount(450 * MSS),
            rtt: Some(RttSample { latest: rtt, smoothed: rtt, variation: rtt, min: rtt }),
            arrival_rate: Some(DataRate::from_bps(5_000 * 8 * MSS)),
            ..silence(at(20))
        });
        udt.window.packets()
    };
    assert_eq!(window(AsPrinted::Window), 500.0, "what arrives in a wait of 100 ms");
    assert_eq!(changed(window), [AsPrinted::Window, AsPrinted::Everything]);
}

#[test]
fn an_unknown_capacity_is_zero() {
    let rate = |printed| {
        let mut udt = starting(printed);
        let arrival_rate = Some(DataRate::from_bps(10_000 * 8 * MSS));
        udt.on_feedback(&Feedback { arrival_rate, ..silence(at(5)) });
        udt.leave_slow_start();
        udt.set_rate(5_000.0);
        udt.on_timeout(at(10));
        udt.rate
    };
    let byte = rate(AsPrinted::Capacity) - 5_000.0;
    assert!((byte - 100.0 / 1_500.0).abs() < 0.01, "a byte per SYN: {byte}");
    assert_eq!(changed(rate), [AsPrinted::Capacity, AsPrinted::Everything]);
}

#[test]
fn what_ends_slow_start_cuts_too() {
    for warning in [false, true] {
        let rate = |printed| {
            let mut udt = starting(printed);
            ack(&mut udt, at(10), 100, Some(9_000.0), Duration::from_millis(9));
            if warning {
                udt.on_feedback(&Feedback { delay_rising: true, ..silence(at(20)) });
            } else {
                nak(&mut udt, at(20), 200, 1);
            }
            assert!(udt.slow_start.is_none());
            let cuts = printed.has(AsPrinted::ExitCut);
            assert_eq!(udt.frozen_until().is_some(), cuts, "{printed:?}");
            udt.rate
        };
        assert!((rate(AsPrinted::ExitCut) - 8_000.0).abs() < 1.0);
        assert_eq!(changed(rate), [AsPrinted::ExitCut, AsPrinted::Everything]);
    }
}

#[test]
fn the_first_loss_ends_slow_start() {
    let in_start = |printed| {
        let mut udt = starting(printed);
        nak(&mut udt, at(20), 1, 1);
        f64::from(u8::from(udt.slow_start.is_some()))
    };
    assert_eq!(in_start(AsPrinted::Nothing), 1.0);
    assert_eq!(changed(in_start), [AsPrinted::EarlyLoss, AsPrinted::Everything]);
}

#[test]
fn timeouts_change_nothing() {
    let rate = |printed| {
        let mut udt = steady(printed);
        for ms in [500, 900] {
            udt.on_feedback(&Feedback { timeout: true, ..silence(at(ms)) });
        }
        udt.rate
    };
    assert_eq!((rate(AsPrinted::Nothing), rate(AsPrinted::Silence)), (4_000.0, 9_000.0));
    assert_eq!(changed(rate), [AsPrinted::Silence, AsPrinted::Everything]);
}
