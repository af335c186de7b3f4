//! Goodput in virtual time: coarse fractions of the link, no clocks.

use super::*;

/// Goodput as a share of the link's rate over `seconds`, after `warm_up`.
fn share(pair: &mut Pair, rate: DataRate, warm_up: Duration, span: Duration) -> f64 {
    pair.assign(1 << 50);
    pair.run(warm_up, |_| false);
    let (start, before) = (pair.now, pair.sink.bytes());
    pair.run(span, |_| false);
    let got = pair.goodput(start, pair.sink.bytes() - before);
    got.as_bps() as f64 / rate.as_bps() as f64
}

fn native(rate: DataRate, rtt: Duration, loss: f64) -> Pair {
    let mut pair = Setup::new("native", rate, rtt).pair();
    pair.forward.loss = loss;
    pair
}

#[test]
fn native_fills_a_long_fat_pipe_at_any_loss() {
    let rate = DataRate::from_mbps(1000);
    for loss in [0.0, 1e-4, 1e-3, 1e-2] {
        let mut pair = native(rate, Duration::from_millis(100), loss);
        let share = share(&mut pair, rate, Duration::from_millis(1500), Duration::from_secs(2));
        let stats = pair.sender.stats();
        assert!(share > 0.85, "loss {loss}: {share:.3} {stats:?}");
    }
}

#[test]
fn native_fills_a_local_network() {
    let rate = DataRate::from_mbps(10_000);
    let mut pair = native(rate, Duration::from_micros(50), 0.0);
    let share = share(&mut pair, rate, Duration::from_millis(200), Duration::from_millis(200));
    let stats = pair.sender.stats();
    assert!(share > 0.85, "{share:.3} {stats:?}");
}

#[test]
fn native_fills_a_slow_line_with_a_small_queue() {
    let rate = DataRate::from_mbps(5);
    let mut pair = native(rate, Duration::from_millis(30), 0.0);
    pair.forward.queue = Duration::from_millis(500);
    let share = share(&mut pair, rate, Duration::from_secs(5), Duration::from_secs(10));
    let stats = pair.sender.stats();
    assert!(share > 0.8, "{share:.3} {stats:?}");
    assert!(stats.rtt.unwrap() < Duration::from_millis(80), "{stats:?}");
}

#[test]
fn fixed_repairs_what_is_lost_within_its_rate() {
    let rate = DataRate::from_mbps(1000);
    let mut pair = Setup::new("fixed:500mbit", rate, Duration::from_millis(100)).pair();
    pair.forward.loss = 0.05;
    let share = share(&mut pair, rate, Duration::from_secs(1), Duration::from_secs(2));
    assert!(share > 0.5 * 0.95 * 0.97 * 0.97, "{share:.3}");
    let stats = pair.sender.stats();
    let lost = stats.lost_packets as f64 / stats.sent_packets as f64;
    assert!((0.045..0.055).contains(&lost), "each loss is declared once: {lost}");
}

/// The network thread of a busy host waits for ticks of the scheduler half of the times it wakes.
#[test]
fn native_makes_up_for_a_sender_that_waits_for_its_processor() {
    let rate = DataRate::from_mbps(200);
    for (rtt, queue, least) in [(60, 60, 0.6), (100, 30, 0.65)] {
        let shares = (1..=5).map(|seed| {
            let mut setup = Setup::new("native", rate, Duration::from_millis(rtt));
            setup.seed = seed;
            let mut pair = setup.pair();
            pair.forward.queue = Duration::from_millis(queue);
            pair.late = Some(Lateness { share: 0.5, most_ticks: 5 });
            share(&mut pair, rate, Duration::from_secs(2), Duration::from_secs(5))
        });
        let shares: Vec<f64> = shares.collect();
        let mean = shares.iter().sum::<f64>() / 5.0;
        assert!(mean > least, "{rtt} ms, seeds 1 to 5: {shares:.3?}");
    }
}
