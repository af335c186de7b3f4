//! Time of the search for the best-fitted coefficients: all pairs or triples of 40 samples.
//!
//!     cargo run --release -p packtrain-plan --example search [MODEL]

#![allow(clippy::print_stdout, clippy::disallowed_methods)]

use std::num::NonZeroU32;
use std::time::Instant;

use packtrain_plan::streams::{Options, Sample, best_fitted, models, predict};
use packtrain_units::{DataRate, Rng};

/// Each search is repeated this many times; the median counts.
const TIMES: usize = 301;

fn main() {
    let samples = samples();
    let only = std::env::args().nth(1);
    let wanted = |name: &str| only.as_deref().is_none_or(|only| only == name);
    for model in models::ALL.into_iter().filter(|model| wanted(model.name())) {
        let mut spent: Vec<_> = (0..TIMES)
            .map(|_| {
                let start = Instant::now();
                std::hint::black_box(best_fitted(model, std::hint::black_box(&samples)).is_ok());
                start.elapsed()
            })
            .collect();
        spent.sort();
        let found = best_fitted(model, &samples).is_ok();
        let (least, median) = (spent[0], spent[TIMES / 2]);
        println!("{:<21} {median:>10.1?}  least {least:>10.1?}  found {found}", model.name());
    }
    for count in [4, 40] {
        let start = Instant::now();
        let found = predict(&samples[..count], Options::default()).expect("samples");
        println!("all together, {count} samples {:>10.1?}  {}", start.elapsed(), found.streams);
    }
}

/// A path with a peak, 5 % of noise, seed 1.
fn samples() -> Vec<Sample> {
    let mut rng = Rng::new(1);
    let sample = |n: u32| {
        let x = f64::from(n);
        let mbps = 1e3 * x / 8.0 / (1.0 + (x / 8.0).powf(2.6)).sqrt();
        let noise: f64 = (0..12).map(|_| rng.unit()).sum::<f64>() - 6.0;
        let streams = NonZeroU32::new(n).expect("above zero");
        let throughput = DataRate::from_bps((mbps * (1.0 + 0.05 * noise) * 1e6) as u64);
        Sample { streams, throughput }
    };
    (1..=40).map(sample).collect()
}
