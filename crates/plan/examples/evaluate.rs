//! Evaluates the combined prediction on a table of real curves (columns as in
//! `data/parallel-streams`): the error at a point that was left out, the share of the best
//! throughput that the choice after four samples reaches, and how often the interval is right.
//!
//!     cargo run --release -p packtrain-plan --example evaluate -- data/parallel-streams/loni.csv

#![allow(clippy::print_stdout)]

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use packtrain_plan::streams::{Options, Sample, interpolated, predict};
use packtrain_units::DataRate;

fn main() {
    let path = std::env::args().nth(1).expect("a file");
    let step: usize = std::env::args().nth(2).map_or(1, |n| n.parse().expect("a number"));
    let curves = read(&std::fs::read_to_string(path).expect("readable"));
    let (mut errors, mut lines, mut shares, mut argmax, mut held, mut all) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new(), 0, 0);
    for curve in curves.values().step_by(step) {
        for left_out in 0..curve.len() {
            let mut rest = curve.clone();
            let sample = rest.remove(left_out);
            let found = predict(&rest, Options::default()).expect("samples").at(sample.streams);
            errors.push(distance(found.throughput, sample.throughput));
            let line = interpolated(&rest, sample.streams).expect("samples");
            lines.push(distance(line, sample.throughput));
            all += 1;
            let (low, high) = found.interval;
            held += usize::from(low <= sample.throughput && sample.throughput <= high);
        }
        let four: Vec<Sample> =
            curve.iter().filter(|s| [1, 2, 4, 8].contains(&s.streams.get())).copied().collect();
        let best = curve.iter().map(|s| s.throughput).max().expect("samples").as_bps() as f64;
        let chosen = predict(&four, Options::default()).expect("samples").streams;
        let last = curve.last().expect("samples").streams;
        let real = interpolated(curve, chosen.min(last)).expect("samples").as_bps() as f64;
        shares.push(real / best);
        let four = four.iter().map(|s| s.throughput).max().expect("samples").as_bps() as f64;
        argmax.push(four / best);
    }
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    println!("curves {} points {all}", shares.len());
    println!(
        "left out: median {:.2} %, interpolation {:.2} %",
        median(&mut errors),
        median(&mut lines)
    );
    println!("share after four: {:.4}, argmax {:.4}", mean(&shares), mean(&argmax));
    println!("interval holds {:.3}", held as f64 / all as f64);
}

fn distance(found: DataRate, real: DataRate) -> f64 {
    100.0 * (found.as_bps() as f64 / real.as_bps() as f64 - 1.0).abs()
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn read(text: &str) -> BTreeMap<String, Vec<Sample>> {
    let mut curves: BTreeMap<String, Vec<Sample>> = BTreeMap::new();
    for line in text.lines().skip(1) {
        let fields: Vec<_> = line.split(',').collect();
        let streams = fields[10].parse().ok().and_then(NonZeroU32::new).expect("streams");
        let mbps: f64 = fields[11].parse().expect("throughput");
        let throughput = DataRate::from_bps((mbps * 1e6) as u64);
        curves.entry(fields[..10].join(",")).or_default().push(Sample { streams, throughput });
    }
    curves.values_mut().for_each(|curve| curve.sort_by_key(|s| s.streams));
    curves
}
