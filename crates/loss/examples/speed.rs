//! Measures the time of the complexity and of a whole verdict for windows of 100,000 packets.
//!
//!     cargo run --release -p packtrain-loss --example speed

#![allow(clippy::disallowed_methods, clippy::print_stdout, reason = "a measurement, printed")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use packtrain_loss::{
    Classifier, ComplexityMeter, Evidence, Model, Signature, WordLength, success_proportion,
};
use packtrain_units::Rng;

/// Packets in a window.
const PACKETS: usize = 100_000;
/// Windows measured, after a tenth as many to warm up.
const WINDOWS: usize = 500;

fn main() {
    println!(
        "{:28} {:>12} {:>12} {:>12} {:>12}",
        "window", "complexity", "worst", "success", "verdict"
    );
    for (name, p, run) in [
        ("no loss", 0.0, 1),
        ("single losses, 0.01 %", 1e-4, 1),
        ("single losses, 1 %", 1e-2, 1),
        ("single losses, 5 %", 5e-2, 1),
        ("runs of 300, 5 %", 5e-2, 300),
        ("every other packet", 0.5, 1),
    ] {
        let signature = draw(p, run);
        let mut meter = ComplexityMeter::new(WordLength::PAPER);
        let complexity = measure(|| meter.complexity(black_box(&signature)));
        let success = measure(|| success_proportion(black_box(&signature)));
        let mut classifier = Classifier::new(Model::builtin());
        let verdict = measure(|| classifier.classify(&Evidence::new(black_box(&signature))));
        println!(
            "{name:28} {:>12} {:>12} {:>12} {:>12}",
            shown(complexity.0),
            shown(complexity.1),
            shown(success.0),
            shown(verdict.0)
        );
    }
}

/// Losses in runs of about `run`, in total a share `p` of the packets.
fn draw(p: f64, run: usize) -> Signature {
    let mut rng = Rng::new(7);
    let start = p / run as f64;
    let mut left = 0;
    (0..PACKETS)
        .map(|_| {
            if left == 0 && rng.chance(start) {
                left = run;
            }
            left -= usize::from(left > 0);
            left == 0 && !(run == 1 && rng.chance(p))
        })
        .collect()
}

/// Median and worst time of one call.
fn measure<T>(mut call: impl FnMut() -> T) -> (Duration, Duration) {
    let mut times: Vec<Duration> = (0..WINDOWS + WINDOWS / 10)
        .map(|_| {
            let start = Instant::now();
            black_box(call());
            start.elapsed()
        })
        .skip(WINDOWS / 10)
        .collect();
    times.sort_unstable();
    (times[WINDOWS / 2], times[WINDOWS - 1])
}

fn shown(time: Duration) -> String {
    format!("{:.4} ms", time.as_secs_f64() * 1e3)
}
