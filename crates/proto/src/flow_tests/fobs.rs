//! Flows under FOBS's bitmaps.

use packtrain_loss::{Cause, Classifier, Model, Verdict};
use proptest::prelude::*;

use super::hostile::forge_frame;
use super::*;
use crate::CloseReason;
use crate::codec::frame::{Frame, Host, Report};
use crate::fobs::Bitmap;

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn setup(controller: &'static str) -> Setup {
    let setup = Setup::new(controller, DataRate::from_mbps(100), ms(20));
    Setup { feedback: FeedbackKind::Fobs, ..setup }
}

/// Classifies the sender's losses as the network thread does.
fn judge(pair: &mut Pair, classifier: &mut Classifier<'static>, out: &mut Vec<Verdict>) {
    while let Some(window) = pair.sender.poll_signature() {
        let verdict = crate::judge(&window, classifier);
        pair.sender.on_verdict(pair.now, &window, &verdict);
        out.push(verdict);
    }
}

#[test]
fn every_mode_moves_everything_once() {
    for controller in ["fobs", "fobs:rate", "fobs:paper,60mbit", "fixed:50mbit"] {
        let mut pair = setup(controller).pair();
        let len = 20_000_000;
        pair.assign(len);
        assert!(pair.run(Duration::from_secs(20), Pair::idle), "{:?}", pair.sender.stats());
        assert!(pair.sink.is_whole(len));
        assert_eq!(pair.source.released.len_bytes().get(), len);
        let stats = pair.sender.stats();
        assert!(stats.rtt.is_some_and(|rtt| rtt >= ms(20) && rtt < ms(60)), "{stats:?}");
        assert!(stats.controller.starts_with(&controller[..4]), "{stats:?}");
    }
}

#[test]
fn the_launch_finds_the_path_and_stays_below_it() {
    for mbps in [20, 100, 800] {
        let mut pair = Setup { rate: DataRate::from_mbps(mbps), ..setup("fobs") }.pair();
        pair.assign(1 << 40);
        pair.run(Duration::from_secs(3), |_| false);
        let (start, before) = (pair.now, pair.sink.bytes());
        let lost = pair.sender.stats().lost_packets;
        pair.run(Duration::from_secs(4), |_| false);
        let goodput = pair.goodput(start, pair.sink.bytes() - before);
        let share = goodput.as_bps() as f64 / (mbps as f64 * 1e6);
        assert!(share > 0.75, "{mbps}: {goodput} {:?}", pair.sender.stats());
        assert_eq!(pair.sender.stats().lost_packets, lost, "{mbps}");
    }
}

#[test]
fn losses_are_repaired_in_a_round_trip_or_so_and_judged_by_window() {
    let mut pair = setup("fobs:blind,60mbit,3MB").pair();
    pair.forward.loss = 0.01;
    let len = 20_000_000;
    pair.assign(len);
    let (mut classifier, mut verdicts) = (Classifier::new(Model::builtin()), Vec::new());
    for _ in 0..600 {
        pair.run(ms(100), Pair::idle);
        judge(&mut pair, &mut classifier, &mut verdicts);
        if pair.sender.backlog() == ByteCount::ZERO {
            break;
        }
    }
    assert!(pair.sink.is_whole(len), "{:?}", pair.sender.stats());
    let stats = pair.sender.stats();
    let again = stats.retransmitted_packets as f64 / pair.forward.dropped as f64;
    assert!((0.9..1.2).contains(&again), "sent again what was lost: {again} {stats:?}");
    // Windows of 3 MB are 2,038 packets, each with about 20 lost at random.
    assert!(verdicts.len() >= 5, "{verdicts:?}");
    let rate: f64 = verdicts.iter().map(|v| v.loss_rate).sum::<f64>() / verdicts.len() as f64;
    assert!((0.007..0.013).contains(&rate), "{rate}");
    assert!(verdicts.iter().all(|v| v.cause != Cause::Cpu), "random losses are not the host's");
    assert_eq!(stats.loss.windows, verdicts.len() as u64);
    assert!(stats.loss.cause().is_some() && stats.loss.last.is_some());
}

#[test]
fn bitmaps_that_are_lost_are_made_up_for() {
    let mut pair = setup("fixed:50mbit").pair();
    (pair.back.loss, pair.forward.loss) = (0.5, 0.02);
    let len = 10_000_000;
    pair.assign(len);
    assert!(pair.run(Duration::from_secs(30), Pair::idle), "{:?}", pair.sender.stats());
    assert!(pair.sink.is_whole(len));
    let again = pair.sender.stats().retransmitted_packets;
    assert!(again < pair.forward.dropped * 2 + 50, "{again} {}", pair.forward.dropped);
}

#[test]
fn packets_that_overtake_each_other_are_no_losses() {
    let mut pair = setup("fixed:50mbit").pair();
    (pair.forward.reorder, pair.forward.detour) = (0.05, Duration::from_micros(600));
    let len = 10_000_000;
    pair.assign(len);
    assert!(pair.run(Duration::from_secs(30), Pair::idle), "{:?}", pair.sender.stats());
    let stats = pair.sender.stats();
    assert!(stats.retransmitted_packets < stats.sent_packets / 100, "{stats:?}");
}

#[test]
fn what_is_revoked_comes_back_and_the_rest_arrives() {
    let mut pair = setup("fobs:60mbit").pair();
    pair.forward.loss = 0.002;
    pair.assign(8_000_000);
    pair.run(ms(300), |_| false);
    pair.sender.revoke(Offset(1_000_001)..Offset(5_000_123));
    assert!(pair.run(Duration::from_secs(20), Pair::idle), "{:?}", pair.sender.stats());
    let returned: Vec<_> = pair
        .events
        .drain(..)
        .filter_map(|(_, _, event)| match event {
            Event::Returned(range) => Some(range),
            _ => None,
        })
        .collect();
    assert!(!returned.is_empty());
    returned.into_iter().for_each(|range| pair.sender.assign(range));
    assert!(pair.run(Duration::from_secs(20), Pair::idle), "{:?}", pair.sender.stats());
    assert!(pair.sink.is_whole(8_000_000));
}

#[test]
fn an_outage_of_twenty_seconds_is_survived() {
    let mut pair = setup("fobs:50mbit").pair();
    let len = 60_000_000;
    pair.assign(len);
    pair.run(Duration::from_secs(2), |_| false);
    (pair.forward.down, pair.back.down) = (true, true);
    let before = pair.sender.stats().sent_packets;
    pair.run(Duration::from_secs(20), |_| false);
    let during = pair.sender.stats().sent_packets - before;
    assert!(during < 20_000, "it kept sending into the void: {during} packets");
    (pair.forward.down, pair.back.down) = (false, false);
    assert!(pair.run(Duration::from_secs(120), Pair::idle), "{:?}", pair.sender.stats());
    assert!(pair.sink.is_whole(len));
}

#[test]
fn a_path_that_shrinks_gets_smaller_units() {
    let mut pair = setup("fobs:50mbit").pair();
    let len = 20_000_000;
    pair.assign(len);
    pair.run(Duration::from_secs(1), |_| false);
    pair.forward.mtu = 1300;
    assert!(pair.run(Duration::from_secs(120), Pair::idle), "{:?}", pair.sender.stats());
    assert!(pair.sink.is_whole(len));
    assert!(pair.sender.stats().mtu <= ByteCount(1300));
}

#[test]
fn a_slow_application_limits_the_flow() {
    let mut pair = Setup { rate: DataRate::from_mbps(1000), ..setup("fobs:800mbit") }.pair();
    pair.sink.drain = Some(DataRate::from_mbps(200));
    pair.sink.room = 4 << 20;
    let (start, len) = (pair.now, 100_000_000);
    pair.assign(len);
    assert!(pair.run(Duration::from_secs(30), Pair::idle), "{:?}", pair.sender.stats());
    assert!(pair.sink.is_whole(len));
    let goodput = pair.goodput(start, len);
    assert!(goodput > DataRate::from_mbps(110), "{goodput} {:?}", pair.sender.stats());
}

#[test]
fn the_breaker_stops_a_rate_far_above_the_path() {
    let mut pair = setup("fobs:2gbit").pair();
    pair.assign(4_000_000_000);
    pair.run(Duration::from_secs(20), |_| false);
    // Nothing classifies the losses here, so the controller or the breaker reduces the rate.
    let rate = pair.sender.stats().pacing_rate.unwrap();
    assert!(rate < DataRate::from_mbps(500), "{rate} {:?}", pair.sender.stats());
}

#[test]
fn lanes_read_one_after_the_other_are_no_losses() {
    let mut setup = Setup { rate: DataRate::from_mbps(40_000), rtt: ms(2), ..setup("fixed:4gbit") };
    setup.lanes = 8;
    let mut pair = setup.pair();
    pair.lane_lag = Duration::from_micros(40);
    let len = 200_000_000;
    pair.assign(len);
    assert!(pair.run(Duration::from_secs(20), Pair::idle), "{:?}", pair.sender.stats());
    assert!(pair.sink.is_whole(len));
    assert_eq!(pair.sender.stats().retransmitted_packets, 0, "{:?}", pair.sender.stats());
}

#[test]
fn what_the_host_drops_is_told_and_reaches_the_verdict() {
    let mut pair = setup("fobs:60mbit,3MB").pair();
    pair.forward.loss = 0.01;
    pair.assign(30_000_000);
    let mut windows = Vec::new();
    for _ in 0..100 {
        pair.run(ms(100), Pair::idle);
        let dropped = pair.forward.dropped as u32;
        pair.receiver.host_drops(0, dropped);
        while let Some(window) = pair.sender.poll_signature() {
            windows.push((window.host_drops, window.signature.lost() as u64));
        }
    }
    let (told, lost) = windows.iter().fold((0, 0), |sum, (h, l)| (sum.0 + h.unwrap(), sum.1 + l));
    assert!(lost > 100 && told > lost / 2 && told < lost * 2, "{told} of {lost}: {windows:?}");
    assert!(pair.sender.stats().host_drops > 0);
}

#[test]
fn a_mismatch_is_refused_at_start() {
    let flow = |name: &str, feedback| {
        let now = Time::ZERO;
        let config =
            ControllerConfig { mtu: ByteCount(1472), seed: 1, now, ceiling: None, rtt: None };
        let controller = Some(build(name, &config).unwrap());
        let mut config = FlowConfig::new(Role::Sender, keys(), 7, vec![vec![addr(1, 0)]]);
        config.feedback = feedback;
        Flow::new(config, controller, now).map(drop)
    };
    for feedback in [FeedbackKind::Fobs, FeedbackKind::Native, FeedbackKind::Udt(Variant::Udt4)] {
        assert_eq!(flow("fobs:rate", feedback), Ok(()), "it needs little");
    }
    assert!(flow("udt:grid", FeedbackKind::Fobs).is_err(), "nobody tells capacity");
    assert!(flow("cubic", FeedbackKind::Fobs).is_ok());
}

fn finished(controller: &'static str) -> Pair {
    let mut pair = setup(controller).pair();
    pair.assign(300_000);
    assert!(pair.run(Duration::from_secs(5), Pair::idle));
    pair
}

#[test]
fn acknowledging_what_was_never_sent_ends_the_flow() {
    let sane = Bitmap { number: 9_999, next: 5, top: 9, start: 5, end: 9, ..Bitmap::default() };
    let bad = [
        Bitmap { next: 1 << 30, top: 1 << 30, start: 1 << 30, end: 1 << 30, ..sane.clone() },
        Bitmap { top: 1 << 30, ..sane.clone() },
        Bitmap { newest: Some((1 << 30, ms(1))), ..sane.clone() },
        Bitmap { start: 2, ..sane.clone() },
        Bitmap { end: 12, ..sane.clone() },
    ];
    for bitmap in bad {
        let mut pair = finished("fixed:50mbit");
        forge_frame(&mut pair, Frame::Bitmap { bitmap, host: Host::default() });
        assert_eq!(pair.closed(true), Some(&CloseReason::OptimisticAck));
    }
    let mut pair = finished("fixed:50mbit");
    forge_frame(&mut pair, Frame::Bitmap { bitmap: sane, host: Host::default() });
    assert_eq!(pair.closed(true), None, "what is old is old");
}

#[test]
fn feedback_of_another_kind_ends_the_flow() {
    let mut pair = finished("fixed:50mbit");
    forge_frame(&mut pair, Frame::Report(Report::default()));
    assert!(matches!(pair.closed(true), Some(CloseReason::Protocol(_))));
    for feedback in [FeedbackKind::Native, FeedbackKind::Udt(Variant::Grid)] {
        let mut pair = Setup { feedback, ..setup("fixed:50mbit") }.pair();
        pair.assign(300_000);
        assert!(pair.run(Duration::from_secs(5), Pair::idle));
        let host = Host::default();
        forge_frame(&mut pair, Frame::Bitmap { bitmap: Bitmap::default(), host });
        assert!(pair.closed(true).is_some(), "{feedback:?}");
    }
}

fn bitmap() -> impl Strategy<Value = Bitmap> {
    let runs = prop::collection::vec((1u64..40, 1u64..40), 0..20);
    let small = || prop_oneof![0u64..400, any::<u64>()];
    (
        small(),
        0u64..300,
        0u64..300,
        small(),
        small(),
        proptest::option::of((0u64..300, small())),
        runs,
    )
        .prop_map(|(number, next, start, top, room, newest, runs)| {
            let mut at = start;
            let runs: Vec<_> = runs
                .into_iter()
                .map(|(gap, len)| {
                    let from = at + gap;
                    at = from + len;
                    (from, at)
                })
                .collect();
            let newest = newest.map(|(unit, age)| (unit, Duration::from_nanos(age)));
            let (held, end) = (room % 50, at.saturating_add(number % 50));
            Bitmap { number, next, top, held, room, newest, start, end, runs }
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn hostile_bitmaps_close_the_flow_or_change_nothing_for_the_worse(
        bitmaps in prop::collection::vec(bitmap(), 1..12), host in any::<u64>(),
    ) {
        let mut pair = setup("fobs:50mbit").pair();
        pair.assign(1_000_000);
        pair.run(ms(60), |_| false);
        let drops = Host { drops: host, refused: host / 3, ecn_ce: host / 7, drain: DataRate::from_bps(host) };
        for (i, bitmap) in bitmaps.into_iter().enumerate() {
            pair.sender.core.on_bitmap(pair.now, &bitmap, &drops);
            if i % 3 == 0 {
                pair.run(ms(5), |_| false);
            }
        }
        pair.run(Duration::from_secs(2), |_| false);
        prop_assert!(pair.sink.bytes() <= 1_000_000);
    }

    #[test]
    fn every_byte_arrives_under_loss_duplication_and_reordering(
        seed in any::<u64>(),
        rtt_ms in 1u64..150,
        loss in 0.0f64..0.15,
        back_loss in 0.0f64..0.15,
        duplicate in 0.0f64..0.1,
        reorder in 0.0f64..0.3,
        len in 1u64..2_000_000,
        revoked in proptest::option::of((0u64..1_000_000, 1u64..500_000, 10u64..400)),
    ) {
        let rtt = ms(rtt_ms);
        let mut pair = Setup { seed, rtt, ..setup("fixed:80mbit") }.pair();
        (pair.forward.loss, pair.back.loss) = (loss, back_loss);
        pair.forward.duplicate = duplicate;
        (pair.forward.reorder, pair.forward.detour) = (reorder, rtt);
        (pair.back.reorder, pair.back.detour) = (reorder, rtt);
        pair.assign(len);
        if let Some((at, n, after)) = revoked {
            pair.run(ms(after), |_| false);
            pair.sender.revoke(Offset(at)..Offset(at + n));
            let back: Vec<_> = std::iter::from_fn(|| pair.sender.poll_event()).collect();
            pair.events.retain(|(_, _, e)| *e != Event::Idle);
            for event in back {
                match event {
                    Event::Returned(range) => pair.sender.assign(range),
                    event => pair.events.push((true, pair.now, event)),
                }
            }
        }
        let done = pair.run(Duration::from_secs(300), |p| p.sender.backlog() == ByteCount::ZERO);
        prop_assert!(done, "not done: {:?}", pair.sender.stats());
        prop_assert!(pair.sink.is_whole(len));
        pair.send(true);
        let released: u64 = pair.source.released.len_bytes().get();
        prop_assert_eq!(released, len);
    }
}
