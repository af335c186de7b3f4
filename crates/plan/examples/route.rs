//! Time to compute routes: one tree, and the tables of all hosts.
//!
//!     cargo run --release -p packtrain-plan --example route

#![allow(clippy::disallowed_methods, clippy::print_stdout, reason = "a measurement, printed")]

use std::hint::black_box;
use std::num::NonZeroUsize;
use std::time::Instant;

use packtrain_plan::route::{Epsilon, HostId, Matrix, tree, trees};
use packtrain_units::{DataRate, Rng};

fn main() {
    println!("milliseconds; tables of all hosts on one and two threads");
    println!("hosts  a tree  with errors  all on 1  all on 2  epsilon 0  by sites");
    for hosts in [142, 500, 1000] {
        let mut matrix = drawn(hosts);
        let sources: Vec<HostId> = matrix.hosts().take(50).collect();
        let one = milliseconds(|| {
            for &source in &sources {
                black_box(tree(&matrix, source, Epsilon::PAPER));
            }
        }) / sources.len() as f64;
        // The median of seven, because other processes run on the machine.
        let tables = |matrix: &Matrix, epsilon, threads: usize| {
            let threads = NonZeroUsize::new(threads).unwrap_or(NonZeroUsize::MIN);
            median(|| {
                milliseconds(|| {
                    for tree in trees(matrix, epsilon, threads) {
                        black_box(tree.table());
                    }
                })
            })
        };
        let all = [1, 2].map(|threads| tables(&matrix, Epsilon::PAPER, threads));
        let exact = tables(&matrix, Epsilon::Fixed(0.0), 2);
        let sites = tables(&drawn_by_site(hosts), Epsilon::PAPER, 2);
        let mut rng = Rng::new(3);
        for from in matrix.hosts() {
            for to in matrix.hosts() {
                matrix.set_error(from, to, 0.3 * rng.unit());
            }
        }
        let unsure = milliseconds(|| {
            for &source in &sources {
                black_box(tree(&matrix, source, Epsilon::AUTOMATIC));
            }
        }) / sources.len() as f64;
        let [alone, both] = all;
        println!(
            "{hosts:>5}  {one:>6.3}  {unsure:>11.3}  {alone:>8.1}  {both:>8.1}  {exact:>9.1}  {sites:>8.1}"
        );
    }
}

/// A full mesh with random rates.
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

/// Hosts at sites of three, as on PlanetLab: an edge has the rate that the sites' connections and
/// the distance between them allow, with a tenth of noise.
fn drawn_by_site(hosts: usize) -> Matrix {
    let mut rng = Rng::new(7 + hosts as u64);
    let sites: Vec<(f64, f64, f64)> = (0..hosts.div_ceil(3))
        .map(|_| (rng.unit(), rng.unit(), libm::exp(2.0 + 5.0 * rng.unit())))
        .collect();
    let mut matrix = Matrix::new((0..hosts).map(|at| format!("h{at}")).collect());
    for from in matrix.hosts() {
        for to in matrix.hosts() {
            let (a, b) = (sites[from.index() / 3], sites[to.index() / 3]);
            let distance = libm::hypot(a.0 - b.0, a.1 - b.1) + 0.01;
            let mbps = a.2.min(b.2).min(20.0 / distance) * (0.9 + 0.2 * rng.unit());
            matrix.set_edge(from, to, DataRate::from_bps((mbps * 1e6) as u64));
        }
    }
    matrix
}

fn median(mut measure: impl FnMut() -> f64) -> f64 {
    let mut found: Vec<f64> = (0..7).map(|_| measure()).collect();
    found.sort_by(f64::total_cmp);
    found[3]
}

fn milliseconds(mut work: impl FnMut()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_secs_f64() * 1e3
}
