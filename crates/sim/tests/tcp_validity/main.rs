//! Simulated TCP compared with TCP in ns-2, over the cells of `experiments/tcp-validity`. The
//! numbers of ns-2 are kept in git, so that only this crate is needed.
#![allow(clippy::print_stdout)]

mod cells;
mod curves;

use cells::{Cell, cells, folder, play, rows};
use packtrain_sim::spec::Scenario;

/// Our goodput, averaged over some seeds, that of ns-2, and a line of output.
fn compare(cell: &Cell, theirs: &[String]) -> (f64, f64, String) {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seeds = number("PACKTRAIN_SEEDS").unwrap_or(if cell.quick { 1 } else { 3 }).max(1);
    let mut sums = [0; 4];
    for seed in 1..=seeds {
        let outcome = play(&Scenario { seed, ..cell.scenario.clone() });
        let flow = &outcome.flows[0];
        let repeated = flow.retransmitted.get() / 1_000;
        let found = [flow.goodput.as_bps(), flow.loss_events, flow.timeouts, repeated];
        (0..4).for_each(|i| sums[i] += found[i]);
    }
    let [goodput, losses, timeouts, repeated] = sums.map(|sum| sum / seeds);
    let (ours, ns2) = (goodput as f64, theirs[1].parse::<f64>().unwrap());
    let line = format!("{},{goodput},{losses},{timeouts},{repeated}", cell.key);
    println!("{line}  ns-2: {}  ratio {:.3}", theirs[1..5].join(","), ours / ns2);
    (ours, ns2, line)
}

/// Lines of output, and those beyond their tolerance.
fn compare_all(wanted: impl Fn(&Cell) -> bool) -> (Vec<String>, Vec<String>) {
    let theirs = rows("ns2.csv");
    let (mut lines, mut wrong) = (Vec::new(), Vec::new());
    for cell in cells().iter().filter(|cell| wanted(cell)) {
        let row = theirs.iter().find(|row| row[0] == cell.key);
        let row = row.unwrap_or_else(|| panic!("ns2.csv has no row {}", cell.key));
        let (ours, ns2, line) = compare(cell, row);
        if (ours / ns2 - 1.0).abs() > cell.tolerance {
            wrong.push(format!("{}: {ours:.0} bit/s, ns-2 {ns2:.0}", cell.key));
        }
        lines.push(line);
    }
    assert!(!lines.is_empty());
    (lines, wrong)
}

#[test]
fn throughput_is_that_of_ns2_where_it_is_quick() {
    let (_, wrong) = compare_all(|cell| cell.quick);
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Writes `ours.csv`. `PACKTRAIN_CELLS` selects the cells whose key contains it, `PACKTRAIN_SEEDS`
/// sets the number of seeds to average.
#[test]
#[ignore = "takes minutes; `cargo xtask nightly` runs it"]
fn throughput_is_that_of_ns2_everywhere() {
    let pattern = std::env::var("PACKTRAIN_CELLS").unwrap_or_default();
    let (lines, wrong) = compare_all(|cell| cell.key.contains(&pattern));
    if pattern.is_empty() {
        let head = "key,goodput_bps,loss_events,timeouts,repeated_packets\n";
        let text = format!("{head}{}\n", lines.join("\n"));
        std::fs::write(folder().join("ours.csv"), text).unwrap();
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
