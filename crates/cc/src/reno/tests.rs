use packtrain_units::{Duration, Time};
use proptest::prelude::*;

use super::*;
use crate::bottleneck::{Bottleneck, MSS, config, silence};
use crate::hostile;

fn curve(mut path: Bottleneck, seconds: u64, step_ms: u64) -> String {
    let mut reno =
        Reno::new(&config(), &Start { initial_window: 2, paced: false, ..Start::default() });
    path.curve(&mut reno, Duration::from_secs(seconds), Duration::from_millis(step_ms))
}

#[test]
fn the_saw() {
    let path = Bottleneck::new(DataRate::from_mbps(10), Duration::from_millis(60), 50);
    insta::assert_snapshot!(curve(path, 20, 500));
}

#[test]
fn mathis_law_with_random_loss() {
    let mut path = Bottleneck::new(DataRate::from_mbps(1_000), Duration::from_millis(20), 1_000);
    path.loss = 1e-3;
    let mut reno = Reno::new(&config(), &Start::default());
    let used = path.run(&mut reno, Duration::from_secs(300));
    // sqrt(3/2) packets per round trip divided by the root of the loss.
    let mathis = 1.2247 / 1e-3f64.sqrt() * (MSS * 8) as f64 / 0.02 / 1e9;
    assert!((used / mathis - 1.0).abs() < 0.1, "{used} {mathis}");
}

#[test]
fn a_packet_a_round_trip_after_slow_start() {
    let mut window = Window::new(&config(), &Start::default());
    window.ssthresh = 12.0;
    grow(&mut window, 4.0);
    assert!((window.cwnd - (12.0 + 2.0 / 12.0)).abs() < 1e-12, "two to the threshold, two after");
    window.cwnd = 100.0;
    (0..100).for_each(|_| grow(&mut window, 1.0));
    assert!((window.cwnd - 101.0).abs() < 0.01);
}

#[test]
fn counting_acknowledgements_a_late_one_is_one() {
    let mut counts = [Reno::new, Reno::by_acks].map(|new| new(&config(), &Start::default()));
    for reno in &mut counts {
        reno.on_sent(&Sent {
            now: Time::ZERO,
            first: 0,
            count: 10,
            bytes: ByteCount(10 * MSS),
            in_flight: ByteCount(10 * MSS),
            retransmission: false,
            app_limited: false,
        });
        let acked = ByteCount(2 * MSS);
        reno.on_feedback(&Feedback { acked, largest_acked: Some(1), ..silence(Time::ZERO) });
    }
    assert_eq!(counts.map(|reno| reno.cwnd().get() / MSS), [12, 11]);
}

#[test]
fn a_loss_halves_and_a_timeout_leaves_one() {
    let mut reno = Reno::new(&config(), &Start::default());
    let lost = [crate::interface::LossRange {
        first: 3,
        count: 2,
        bytes: ByteCount(2 * MSS),
        sent_at: Time::ZERO,
    }];
    reno.on_feedback(&Feedback { lost: &lost, ..silence(Time::ZERO) });
    assert_eq!(reno.cwnd(), ByteCount(5 * MSS));
    assert_eq!(reno.ssthresh(), Some(ByteCount(5 * MSS)));
    reno.on_feedback(&Feedback { timeout: true, ..silence(Time::ZERO) });
    assert_eq!(reno.cwnd(), ByteCount(MSS));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn nothing_told_breaks_it(script in hostile::script()) {
        hostile::run("reno", &script)?;
    }
}
