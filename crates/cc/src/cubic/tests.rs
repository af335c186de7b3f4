use packtrain_units::{Duration, Time};
use proptest::prelude::*;

use super::*;
use crate::bottleneck::{Bottleneck, MSS, config, silence};
use crate::hostile;
use crate::interface::LossRange;

const UNPACED: Start = Start { initial_window: 10, paced: false, whole_packets: false };

fn path(mbps: u64, rtt_ms: u64, queue: u64) -> Bottleneck {
    Bottleneck::new(DataRate::from_mbps(mbps), Duration::from_millis(rtt_ms), queue)
}

#[test]
fn the_cubic_and_the_end_of_slow_start() {
    let mut cubic = Cubic::new(&config(), &UNPACED);
    let (span, step) = (Duration::from_secs(60), Duration::from_secs(1));
    insta::assert_snapshot!(path(100, 100, 800).curve(&mut cubic, span, step));
}

#[test]
fn on_a_short_path_it_is_reno() {
    let mut cubic = Cubic::new(&config(), &UNPACED);
    let (span, step) = (Duration::from_secs(4), Duration::from_millis(100));
    insta::assert_snapshot!(path(20, 10, 30).curve(&mut cubic, span, step));
}

#[test]
fn hystart_spares_the_queue() {
    let lost = |controller: &mut Cubic, paced, queue| {
        let mut path = path(100, 50, queue);
        path.paced = paced;
        path.run(controller, Duration::from_millis(700));
        path.lost
    };
    assert_eq!(lost(&mut Cubic::new(&config(), &UNPACED), false, 400), 0);
    assert_eq!(lost(&mut Cubic::new(&config(), &Start::default()), true, 800), 0);
    assert!(lost(&mut Cubic::without_hystart(&config(), &UNPACED), true, 800) > 100);
}

fn loss(first: u64) -> [LossRange; 1] {
    [LossRange { first, count: 1, bytes: ByteCount(MSS), sent_at: Time::ZERO }]
}

#[test]
fn a_smaller_window_than_last_time_makes_room() {
    let mut cubic = Cubic::new(&config(), &UNPACED);
    cubic.window.cwnd = 100.0;
    cubic.on_feedback(&Feedback { lost: &loss(0), ..silence(Time::ZERO) });
    assert_eq!((cubic.w_max, cubic.cwnd()), (Some(100.0), ByteCount(70 * MSS)));
    cubic.on_feedback(&Feedback { lost: &loss(1), ..silence(Time::ZERO) });
    assert_eq!(cubic.w_max, Some(70.0 * 1.7 / 2.0));
    cubic.on_feedback(&Feedback { timeout: true, ..silence(Time::ZERO) });
    assert_eq!((cubic.w_max, cubic.cwnd()), (None, ByteCount(MSS)));
}

/// RFC 9438 section 5.1: the mean window in packets at 100 ms, one loss per this many packets.
#[test]
fn the_response_function() {
    for (every, rfc) in [(1_000, 33.0), (10_000, 187.0), (100_000, 1_054.0)] {
        let mut cubic = Cubic::new(&config(), &UNPACED);
        let mut path = path(10_000, 100, 100_000);
        path.every = every;
        let round = every as f64 / rfc * 0.1;
        path.run(&mut cubic, Duration::from_secs_f64(10.0 * round));
        let span = Duration::from_secs_f64(20.0 * round);
        let mean = path.run(&mut cubic, span) * 1e10 * 0.1 / (8 * MSS) as f64;
        assert!((mean / rfc - 1.0).abs() < 0.15, "{every}: {mean} instead of {rfc}");
    }
}

#[test]
fn the_letter_of_the_rfc_is_faster_above_the_old_window() {
    let mean = |mut cubic: Cubic| {
        let mut path = path(1_000, 20, 10_000);
        path.loss = 3e-3;
        path.run(&mut cubic, Duration::from_secs(100))
    };
    let linux = mean(Cubic::new(&config(), &UNPACED));
    let exact = mean(Cubic::exact(&config(), &UNPACED));
    assert!(exact > 1.03 * linux, "{linux} {exact}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn nothing_told_breaks_it(script in hostile::script()) {
        hostile::run("cubic", &script)?;
    }
}
