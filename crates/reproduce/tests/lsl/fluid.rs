//! How long a transfer takes, without packets: each connection opens, doubles its window until it
//! carries what its path gives, and goes on at that; a depot starts the next connection when the
//! first bytes come; the slowest stage decides. `packets.rs` checks it against the simulator.

use super::world::{MSS, World};

/// Segments of the first window.
pub(crate) const FIRST: f64 = 10.0;

/// Seconds that one connection needs for `bytes`, at `rate` Mbit/s, with a round trip in
/// milliseconds.
pub(crate) fn connection(rate: f64, rtt: f64, bytes: f64) -> f64 {
    let (rate, rtt, first) = (rate * 1e6 / 8.0, rtt / 1e3, FIRST * MSS);
    let mut sent = 0.0;
    let mut time = 1.5 * rtt;
    let mut window = first;
    while window < rate * rtt {
        if sent + window >= bytes {
            return time + rtt * (bytes - sent) / window;
        }
        sent += window;
        window *= 2.0;
        time += rtt;
    }
    time + (bytes - sent) / rate
}

/// Rates and passing on, as they are in one transfer: factors of luck for each stage.
pub(crate) type Luck<'a> = &'a mut dyn FnMut() -> f64;

/// Seconds of a transfer over `route`, from its first host to its last.
pub(crate) fn transfer(world: &World, route: &[usize], bytes: f64, luck: Luck<'_>) -> f64 {
    let legs: Vec<(f64, f64)> = route
        .windows(2)
        .map(|pair| (world.rate(pair[0], pair[1]) * luck(), world.path(pair[0], pair[1]).rtt))
        .collect();
    let inner = &route[1..route.len() - 1];
    let least = inner.iter().map(|&host| world.through(host) * luck());
    let least = least.fold(f64::INFINITY, f64::min);
    stages(&legs, least, bytes)
}

/// Seconds over connections of so many Mbit/s and milliseconds each, none of which gives more than
/// `least`.
pub(crate) fn stages(legs: &[(f64, f64)], least: f64, bytes: f64) -> f64 {
    let (mut begins, mut longest) = (0.0, 0.0_f64);
    for (at, &(rate, rtt)) in legs.iter().enumerate() {
        let rest: f64 = legs[at + 1..].iter().map(|leg| leg.1 / 2e3).sum();
        longest = longest.max(begins + connection(rate.min(least), rtt, bytes) + rest);
        begins += 1.5 * rtt / 1e3;
    }
    longest
}

/// As it is expected: no luck.
pub(crate) fn expected(world: &World, route: &[usize], bytes: f64) -> f64 {
    transfer(world, route, bytes, &mut || 1.0)
}
