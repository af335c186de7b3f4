//! The native engine in the simulator compared with the same engine over the emulator, over the
//! cells of `experiments/engine-validity`. The emulator's numbers are kept in git, so that only
//! this crate is needed; `measure.py` there measures them again.
#![allow(clippy::print_stdout)]

mod validity;

use packtrain_sim::run;
use packtrain_sim::spec::{EngineSpec, FlowKind, Scenario};
use packtrain_units::ByteCount;

use validity::{Cell, Experiment, picked};

const ENGINE: Experiment = Experiment {
    name: "engine-validity",
    peer: "emulator.csv",
    heading: "key,goodput_bps,retransmitted_bytes,overflow,random,ratio",
};

/// The largest datagram that fits the links.
fn scenario(cell: &Cell) -> Scenario {
    let engine = EngineSpec {
        cc: cell.cc.clone(),
        bytes: None,
        mtu: ByteCount(1_472),
        codec: false,
        ceiling: None,
        coalesce: true,
        train: 44,
        warnings: true,
        ecn: true,
        probe_train: None,
        saved: None,
    };
    ENGINE.scenario(cell, 1, FlowKind::Engine(engine))
}

/// Our goodput divided by the emulator's, and a line of output.
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

#[test]
fn goodput_is_the_emulators_where_it_is_quick() {
    ENGINE.compare_all(|cell| cell.quick, compare);
}

/// Writes its results to the file named in `PACKTRAIN_OURS`. `PACKTRAIN_CELLS` selects the cells
/// whose key contains it.
#[test]
#[ignore = "takes minutes and writes ours.csv; `cargo xtask nightly` runs it"]
fn goodput_is_the_emulators_everywhere() {
    ENGINE.compare_all(picked, compare);
}
