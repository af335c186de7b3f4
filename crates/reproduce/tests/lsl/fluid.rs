//! The duration of a transfer without packets. Each connection opens, doubles its window until it
//! reaches the rate of its path, and continues at that rate. A depot starts the next connection
//! when the first bytes arrive. The slowest stage determines the duration. `packets.rs` compares
//! the model with the simulator.

use super::world::{MSS, World};

/// Initial window, in segments.
pub(crate) const FIRST: f64 = 10.0;

/// Duration in seconds of one connection for `bytes`, at `rate` Mbit/s, with a round trip in
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

/// Random factors of the rates and of forwarding in one transfer, one for each stage.
pub(crate) type Noise<'a> = &'a mut dyn FnMut() -> f64;

/// Duration in seconds of a transfer over `route`, from its first host to its last.
pub(crate) fn transfer(world: &World, route: &[usize], bytes: f64, noise: Noise<'_>) -> f64 {
    let legs: Vec<(f64, f64)> = route
        .windows(2)
        .map(|pair| (world.rate(pair[0], pair[1]) * noise(), world.path(pair[0], pair[1]).rtt))
        .collect();
    let inner = &route[1..route.len() - 1];
    let min_rate = inner.iter().map(|&host| world.through(host) * noise());
    let min_rate = min_rate.fold(f64::INFINITY, f64::min);
    stages(&legs, min_rate, bytes)
}

/// Duration in seconds over connections with these Mbit/s and milliseconds, all limited to `min_rate`.
pub(crate) fn stages(legs: &[(f64, f64)], min_rate: f64, bytes: f64) -> f64 {
    let (mut begins, mut longest) = (0.0, 0.0_f64);
    for (at, &(rate, rtt)) in legs.iter().enumerate() {
        let rest: f64 = legs[at + 1..].iter().map(|leg| leg.1 / 2e3).sum();
        longest = longest.max(begins + connection(rate.min(min_rate), rtt, bytes) + rest);
        begins += 1.5 * rtt / 1e3;
    }
    longest
}

/// The expected duration, without random factors.
pub(crate) fn expected(world: &World, route: &[usize], bytes: f64) -> f64 {
    transfer(world, route, bytes, &mut || 1.0)
}
