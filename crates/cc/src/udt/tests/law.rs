//! The rate that the printed law allows under random loss: the formula of
//! `docs/guide/background/udt-under-random-loss.md` compared with the controller on the test link.

use packtrain_units::{DataRate, Duration};

use super::curves::path;
use crate::bottleneck::{MSS, config};
use crate::udt::rate::Increase;
use crate::udt::{HEADERS, SYN_SECONDS, Udt, Variant};

/// Packets per second on a link of `capacity` with the round trip `rtt`, at the random loss `loss`,
/// if the gate of 1 % were always open.
fn law(variant: Variant, capacity: f64, rtt: f64, loss: f64) -> f64 {
    let increase = Increase { variant, mtu: MSS as f64 + HEADERS };
    // Losses per cut: one in the paper, two where the first is ignored.
    let losses = if variant == Variant::Grid { 2.0 } else { 1.0 };
    let cycle = |rate: f64| SYN_SECONDS + rtt + losses / (loss * rate);
    // The gain of a cycle less its cut; it falls as the rate grows.
    let balance = |rate: f64| {
        let slope = increase.packets(capacity, rate, 0.0) / SYN_SECONDS.powi(2);
        slope * cycle(rate) - rate * 2.0 / 17.0
    };
    let (mut low, mut high) = (1.0, capacity);
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        *(if balance(middle) > 0.0 { &mut low } else { &mut high }) = middle;
    }
    low * (1.0 - SYN_SECONDS / cycle(low)) * (1.0 - loss)
}

fn measured(variant: Variant, loss: f64) -> f64 {
    let mut path = path(1_000, 100, 8_600);
    path.loss = loss;
    let mut udt = Udt::new(&config(), variant);
    path.run(&mut udt, Duration::from_secs(8));
    path.run(&mut udt, Duration::from_secs(30))
}

/// The table of the guide, in per cent of the link.
const GUIDE: [(Variant, f64, f64); 9] = [
    (Variant::Paper, 1e-4, 41.6),
    (Variant::Paper, 1e-3, 16.6),
    (Variant::Paper, 1e-2, 4.1),
    (Variant::Grid, 1e-4, 56.0),
    (Variant::Grid, 1e-3, 20.6),
    (Variant::Grid, 1e-2, 4.7),
    (Variant::Udt4, 1e-4, 35.9),
    (Variant::Udt4, 1e-3, 11.7),
    (Variant::Udt4, 1e-2, 4.8),
];

#[test]
fn random_loss_leaves_what_the_guide_says() {
    let capacity = DataRate::from_mbps(1_000).as_bps() as f64 / 8.0 / MSS as f64;
    for (variant, loss, guide) in GUIDE {
        let seen = 100.0 * measured(variant, loss);
        assert!((seen / guide - 1.0).abs() < 0.05, "{variant:?} {loss}: {seen:.1} {guide}");
        let law = 100.0 * law(variant, capacity, 0.1, loss) / capacity;
        match (variant, loss) {
            (Variant::Udt4, _) => assert!(seen < law, "its further cuts are left out: {law}"),
            (_, 1e-2) => assert!((0.3..0.5).contains(&(seen / law)), "the gate: {seen} {law}"),
            _ => assert!((seen / law - 1.0).abs() < 0.08, "{variant:?} {loss}: {seen} {law}"),
        }
    }
}

#[test]
fn at_a_hundredth_the_gate_is_shut_for_two_thirds_of_the_time() {
    for (loss, held) in [(1e-3, 0.0..0.05), (1e-2, 0.6..0.75)] {
        let mut path = path(1_000, 100, 8_600);
        path.loss = loss;
        let mut udt = Udt::new(&config(), Variant::Grid);
        path.run(&mut udt, Duration::from_secs(8));
        let curve = path.curve(&mut udt, Duration::from_secs(20), Duration::from_millis(10));
        let share = curve.lines().filter(|line| line.contains("held")).count() as f64 / 2e3;
        assert!(held.contains(&share), "{loss}: {share}");
    }
}
