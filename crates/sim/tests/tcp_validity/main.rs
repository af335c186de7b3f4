//! TCP here against TCP in ns-2, over the cells of `experiments/tcp-validity`. The numbers of ns-2
//! are kept in git, so that nothing but this crate is needed.
#![allow(clippy::print_stdout)]

mod cells;
mod curves;

use cells::{Cell, cells, folder, play, rows, scenario};

/// Throughput may differ by this share.
const TOLERANCE: f64 = 0.05;

/// Our goodput, that of ns-2, and a line for people.
fn compare(cell: &Cell, theirs: &[String]) -> (f64, f64, String) {
    let outcome = play(&scenario(cell));
    let flow = &outcome.flows[0];
    let ours = flow.goodput.as_bps() as f64;
    let ns2: f64 = theirs[1].parse().unwrap();
    let line = format!(
        "{},{},{},{},{}",
        cell.key,
        flow.goodput.as_bps(),
        flow.loss_events,
        flow.timeouts,
        flow.retransmitted.get() / 1_000
    );
    println!("{line}  ns-2: {}  ratio {:.3}", theirs[1..5].join(","), ours / ns2);
    (ours, ns2, line)
}

fn compare_all(wanted: impl Fn(&Cell) -> bool) -> Vec<String> {
    let theirs = rows("ns2.csv");
    let (mut lines, mut wrong) = (Vec::new(), Vec::new());
    for cell in cells().iter().filter(|cell| wanted(cell)) {
        let Some(row) = theirs.iter().find(|row| row[0] == cell.key) else { continue };
        let (ours, ns2, line) = compare(cell, row);
        if (ours / ns2 - 1.0).abs() > TOLERANCE {
            wrong.push(format!("{}: {ours:.0} bit/s, ns-2 {ns2:.0}", cell.key));
        }
        lines.push(line);
    }
    assert!(!lines.is_empty());
    assert!(wrong.is_empty(), "beyond 5 %:\n{}", wrong.join("\n"));
    lines
}

#[test]
fn throughput_is_that_of_ns2_where_it_is_quick() {
    compare_all(|cell| cell.quick);
}

/// Writes `ours.csv`. `PACKTRAIN_CELLS` picks the cells whose key contains it.
#[test]
#[ignore = "minutes"]
fn throughput_is_that_of_ns2_everywhere() {
    let pattern = std::env::var("PACKTRAIN_CELLS").unwrap_or_default();
    let lines = compare_all(|cell| cell.key.contains(&pattern));
    if pattern.is_empty() {
        let head = "key,goodput_bps,loss_events,timeouts,repeated_packets\n";
        let text = format!("{head}{}\n", lines.join("\n"));
        std::fs::write(folder().join("ours.csv"), text).unwrap();
    }
}
