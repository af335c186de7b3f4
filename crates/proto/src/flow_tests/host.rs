//! Drops in the receiving host: they cap the pace, and the breaker still counts them.

use super::*;

/// Runs for `seconds` while the receiver's host reports `each` more drops every 10 ms.
fn run(pair: &mut Pair, seconds: u64, from: u32, each: u32) {
    for i in 1..=seconds as u32 * 100 {
        pair.receiver.host_drops(0, from.wrapping_add(each.wrapping_mul(i)));
        pair.run(Duration::from_millis(10), |_| false);
    }
}

fn setup(controller: &'static str) -> Pair {
    let mut pair =
        Setup::new(controller, DataRate::from_mbps(100), Duration::from_millis(20)).pair();
    pair.assign(1_000_000_000);
    pair
}

#[test]
fn drops_cap_any_controller_at_what_comes_through_until_they_cease() {
    for controller in ["fixed:80mbit", "native", "bbr"] {
        let mut pair = setup(controller);
        pair.run(Duration::from_secs(1), |_| false);
        // A slow host acts like a slow link with nearly no queue that counts its drops.
        (pair.forward.rate, pair.forward.queue) =
            (DataRate::from_mbps(40), Duration::from_millis(1));
        run(&mut pair, 2, 0, 9);
        let stats = pair.sender.stats();
        let cap = stats.receiver_rate_cap.unwrap_or_else(|| panic!("{controller}: {stats:?}"));
        let pace = stats.pacing_rate.unwrap();
        assert!(pace <= cap && cap < DataRate::from_mbps(46), "{controller}: {stats:?}");
        let before = stats.acked_bytes.get() as f64;
        run(&mut pair, 2, 10_000, 9);
        let acked = pair.sender.stats().acked_bytes.get() as f64 - before;
        assert!(acked > 0.8 * 2.0 * 40e6 / 8.0, "{controller}: {acked} {stats:?}");
        (pair.forward.rate, pair.forward.queue) =
            (DataRate::from_mbps(100), Duration::from_millis(20));
        pair.run(Duration::from_secs(4), |_| false);
        let stats = pair.sender.stats();
        assert_eq!(stats.receiver_rate_cap, None, "{controller}: {stats:?}");
        assert!(stats.arrival_rate.unwrap() > DataRate::from_mbps(60), "{controller}: {stats:?}");
    }
}

#[test]
fn a_false_counter_disables_no_breaker() {
    for controller in ["fixed:80mbit", "native"] {
        let mut pair = setup(controller);
        pair.forward.loss = 0.45;
        // The host claims more drops than packets were sent, so no controller sees a loss of the
        // network.
        run(&mut pair, 12, 1, 1_000_000);
        let braked = pair
            .events
            .iter()
            .any(|(sender, _, event)| *sender && matches!(event, Event::Braked { .. }));
        assert!(braked, "{controller}: {:?}", pair.sender.stats());
        let pace = pair.sender.stats().pacing_rate.unwrap();
        assert!(pace < DataRate::from_mbps(10), "{controller}: {pace}");
    }
}
