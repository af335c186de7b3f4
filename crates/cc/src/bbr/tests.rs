use packtrain_units::Rng;
use proptest::prelude::*;

use super::*;
use crate::bottleneck::{Bottleneck, MSS, config, silence};
use crate::hostile;

fn path(mbps: u64, rtt_ms: u64, queue: u64) -> Bottleneck {
    let mut path = Bottleneck::new(DataRate::from_mbps(mbps), Duration::from_millis(rtt_ms), queue);
    path.paced = true;
    path
}

fn bbr() -> Bbr {
    Bbr::new(&config(), &Start::default())
}

#[test]
fn startup_drain_and_the_cycle() {
    let step = Duration::from_millis(20);
    insta::assert_snapshot!(path(50, 40, 700).curve(&mut bbr(), step * 60, step));
}

#[test]
fn after_ten_seconds_it_looks_for_the_round_trip() {
    let mut path = path(50, 40, 700);
    let mut bbr = bbr();
    path.run(&mut bbr, Duration::from_millis(1_000));
    path.rtt = Duration::from_millis(50);
    path.run(&mut bbr, Duration::from_millis(9_700));
    let step = Duration::from_millis(25);
    insta::assert_snapshot!(path.curve(&mut bbr, step * 30, step));
}

#[test]
fn it_fills_the_path_with_a_small_queue() {
    for (mbps, rtt, queue) in [(10, 10, 100), (100, 100, 1_000), (1_000, 20, 2_000)] {
        let mut path = path(mbps, rtt, queue);
        let mut bbr = bbr();
        path.run(&mut bbr, Duration::from_secs(3));
        let used = path.run(&mut bbr, Duration::from_secs(6));
        assert!(used > 0.93, "{mbps} Mbit/s {rtt} ms: {used} {bbr:?}");
    }
}

#[test]
fn random_loss_hardly_slows_it() {
    for loss in [1e-4, 1e-3, 1e-2] {
        let mut path = path(100, 50, 500);
        path.loss = loss;
        let mut bbr = bbr();
        path.run(&mut bbr, Duration::from_secs(3));
        let used = path.run(&mut bbr, Duration::from_secs(20));
        assert!(used > 0.9, "{loss}: {used} {bbr:?}");
    }
}

#[test]
fn a_rate_that_fell_is_learnt_in_ten_rounds() {
    let mut path = path(100, 20, 300);
    let mut bbr = bbr();
    path.run(&mut bbr, Duration::from_secs(3));
    path.rate = DataRate::from_mbps(20);
    path.run(&mut bbr, Duration::from_secs(3));
    let rate = 8e-6 * bbr.model.rate() * MSS as f64;
    assert!((18.0..21.0).contains(&rate), "{rate}");
    path.rate = DataRate::from_mbps(100);
    path.run(&mut bbr, Duration::from_secs(3));
    let rate = 8e-6 * bbr.model.rate() * MSS as f64;
    assert!(rate > 95.0, "and the rise: {rate}");
}

#[test]
fn a_timeout_leaves_one_packet_and_then_comes_back() {
    let mut path = path(10, 20, 100);
    let mut bbr = bbr();
    path.run(&mut bbr, Duration::from_secs(2));
    let before = bbr.cwnd();
    let now = Time::ZERO + Duration::from_secs(2);
    bbr.on_feedback(&Feedback { timeout: true, ..silence(now) });
    assert_eq!(bbr.cwnd(), ByteCount(MSS));
    path.run(&mut bbr, Duration::from_secs(1));
    assert!(bbr.cwnd() >= before, "{bbr:?}");
}

#[test]
fn the_seed_sets_the_phase() {
    let phases: std::collections::BTreeSet<_> = (0..64)
        .map(|seed| {
            let mut modes = Modes::new(Time::ZERO, Rng::new(seed));
            modes.enter_probe_bw(Time::ZERO);
            (modes.pacing_gain(false) * 100.0) as u64
        })
        .collect();
    assert_eq!(phases.into_iter().collect::<Vec<_>>(), [100, 125], "never the one down");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn nothing_told_breaks_it(script in hostile::script()) {
        hostile::run("bbr", &script)?;
    }
}
