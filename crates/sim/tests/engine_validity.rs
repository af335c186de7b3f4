//! The native engine in the simulator against the same engine over the emulator, over the cells of
//! `experiments/engine-validity`. The emulator's numbers are kept in git, so that nothing but this
//! crate is needed; `measure.py` there measures them anew.
#![allow(clippy::print_stdout)]

use std::path::{Path, PathBuf};

use packtrain_link::{LinkConfig, LossConfig};
use packtrain_sim::run;
use packtrain_sim::spec::{EngineSpec, FlowKind, FlowSpec, LinkSpec, NodeSpec, Scenario};
use packtrain_units::{ByteCount, DataRate, Duration, Time};

/// Goodput may differ by this share.
const TOLERANCE: f64 = 0.05;

/// One line of `cells.csv`.
#[derive(Clone, Debug)]
struct Cell {
    key: String,
    cc: String,
    rate: DataRate,
    rtt: Duration,
    queue: u64,
    loss: f64,
    duration: Duration,
    warm_up: Duration,
    quick: bool,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments/engine-validity")
}

fn rows(file: &str) -> Vec<Vec<String>> {
    let text = std::fs::read_to_string(folder().join(file)).unwrap();
    text.lines().skip(1).map(|line| line.split(',').map(str::to_owned).collect()).collect()
}

fn cells() -> Vec<Cell> {
    let number = |text: &str| text.parse::<u64>().unwrap();
    let cell = |row: Vec<String>| Cell {
        key: row[0].clone(),
        cc: row[1].clone(),
        rate: DataRate::from_mbps(number(&row[2])),
        rtt: Duration::from_millis(number(&row[3])),
        queue: number(&row[4]),
        loss: row[5].parse().unwrap(),
        duration: Duration::from_secs(number(&row[6])),
        warm_up: Duration::from_secs(number(&row[7])),
        quick: row[8] == "yes",
    };
    rows("cells.csv").into_iter().map(cell).collect()
}

/// The same two links as in the emulator, and the largest datagram that fits them.
fn scenario(cell: &Cell) -> Scenario {
    let node = |name: &str| NodeSpec { name: name.to_owned(), host: None };
    let mut there = LinkConfig::new(cell.rate, cell.rtt / 2, cell.queue);
    there.mtu = ByteCount(1_500);
    if cell.loss > 0.0 {
        there.loss = LossConfig::Independent(cell.loss);
    }
    let back = LinkConfig::new(cell.rate, cell.rtt / 2, 1_000_000);
    let engine = EngineSpec {
        cc: cell.cc.clone(),
        bytes: None,
        mtu: ByteCount(1_472),
        codec: false,
        ceiling: None,
    };
    Scenario {
        name: "engine-validity".to_owned(),
        title: cell.key.clone(),
        duration: cell.duration,
        warm_up: cell.warm_up,
        seed: 1,
        sample: None,
        nodes: vec![node("near"), node("far")],
        links: vec![
            LinkSpec { name: "near>far".to_owned(), from: 0, to: 1, config: there },
            LinkSpec { name: "far>near".to_owned(), from: 1, to: 0, config: back },
        ],
        flows: vec![FlowSpec {
            name: "engine".to_owned(),
            from: 0,
            to: 1,
            start: Time::ZERO,
            stop: None,
            kind: FlowKind::Engine(engine),
        }],
        train: 64,
        record: None,
    }
}

/// Our goodput over the emulator's, and a line for people.
fn compare(cell: &Cell, emulator: &[String]) -> (f64, String) {
    let outcome = run(&scenario(cell), &mut |_| {}).unwrap_or_else(|e| panic!("{}: {e}", cell.key));
    let flow = &outcome.flows[0];
    let ratio = flow.goodput.as_bps() as f64 / emulator[1].parse::<f64>().unwrap();
    let dropped = outcome.links[0].dropped;
    let line = format!(
        "{},{},{},{},{},{ratio:.4}",
        cell.key,
        flow.goodput.as_bps(),
        flow.retransmitted.get(),
        dropped[0],
        dropped[2]
    );
    println!("{line}\n    emulator {}", emulator[1..5].join(","));
    (ratio, line)
}

fn compare_all(wanted: impl Fn(&Cell) -> bool) {
    let emulator = rows("emulator.csv");
    let (mut lines, mut wrong) = (Vec::new(), Vec::new());
    for cell in cells().iter().filter(|cell| wanted(cell)) {
        let row = emulator.iter().find(|row| row[0] == cell.key);
        let row = row.unwrap_or_else(|| panic!("emulator.csv has no row {}", cell.key));
        let (ratio, line) = compare(cell, row);
        if (ratio - 1.0).abs() > TOLERANCE {
            wrong.push(format!("{}: {ratio:.3} of the emulator's goodput", cell.key));
        }
        lines.push(line);
    }
    assert!(!lines.is_empty());
    if let Ok(file) = std::env::var("PACKTRAIN_OURS") {
        let head = "key,goodput_bps,retransmitted_bytes,overflow,random,ratio\n";
        std::fs::write(file, format!("{head}{}\n", lines.join("\n"))).unwrap();
    }
    assert!(wrong.is_empty(), "beyond 5 %:\n{}", wrong.join("\n"));
}

#[test]
fn goodput_is_the_emulators_where_it_is_quick() {
    compare_all(|cell| cell.quick);
}

/// Writes what it found to the file named in `PACKTRAIN_OURS`. `PACKTRAIN_CELLS` picks the cells
/// whose key contains it.
#[test]
#[ignore = "writes ours.csv"]
fn goodput_is_the_emulators_everywhere() {
    let pattern = std::env::var("PACKTRAIN_CELLS").unwrap_or_default();
    compare_all(|cell| cell.key.contains(&pattern));
}
