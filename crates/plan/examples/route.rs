//! How long routes take: one tree, and the tables of all hosts.
//!
//!     cargo run --release -p packtrain-plan --example route

#![allow(clippy::disallowed_methods, clippy::print_stdout, reason = "a measurement, printed")]

use std::hint::black_box;
use std::time::Instant;

use packtrain_plan::route::{Epsilon, HostId, Matrix, tree};
use packtrain_units::{DataRate, Rng};

fn main() {
    println!("{:>6}  {:>12}  {:>12}  {:>12}", "hosts", "one tree", "with errors", "all tables");
    for hosts in [142, 500, 1000] {
        let mut matrix = drawn(hosts);
        let trees: Vec<HostId> = matrix.hosts().take(50).collect();
        let one = milliseconds(|| {
            for &source in &trees {
                black_box(tree(&matrix, source, Epsilon::PAPER));
            }
        }) / trees.len() as f64;
        let all = milliseconds(|| {
            for source in matrix.hosts() {
                black_box(tree(&matrix, source, Epsilon::PAPER).table());
            }
        });
        let mut rng = Rng::new(3);
        for from in matrix.hosts() {
            for to in matrix.hosts() {
                matrix.set_error(from, to, 0.3 * rng.unit());
            }
        }
        let unsure = milliseconds(|| {
            for &source in &trees {
                black_box(tree(&matrix, source, Epsilon::AUTOMATIC));
            }
        }) / trees.len() as f64;
        println!("{hosts:>6}  {one:>9.2} ms  {unsure:>9.2} ms  {all:>9.0} ms");
    }
}

/// Every host reaches every other, at some rate.
fn drawn(hosts: usize) -> Matrix {
    let mut rng = Rng::new(hosts as u64);
    let mut matrix = Matrix::new((0..hosts).map(|at| format!("h{at}")).collect());
    for from in matrix.hosts() {
        for to in matrix.hosts() {
            let mbps = libm::exp(9.0 * rng.unit());
            matrix.set_edge(from, to, DataRate::from_bps((mbps * 1e6) as u64));
        }
    }
    matrix
}

fn milliseconds(mut work: impl FnMut()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_secs_f64() * 1e3
}
