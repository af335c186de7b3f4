//! The cells of the experiment as scenarios.

use std::path::{Path, PathBuf};

use packtrain_link::{LinkConfig, LossConfig};
use packtrain_sim::outcome::Outcome;
use packtrain_sim::run;
use packtrain_sim::spec::{FlowKind, FlowSpec, LinkSpec, NodeSpec, Recovery, Scenario, TcpSpec};
use packtrain_units::{DataRate, Duration, Time};

/// One line of `cells.csv`.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    pub(crate) key: String,
    pub(crate) agent: String,
    pub(crate) rate: DataRate,
    pub(crate) rtt: Duration,
    pub(crate) queue: u64,
    pub(crate) loss: f64,
    pub(crate) seconds: u64,
    pub(crate) warm_up: u64,
    pub(crate) quick: bool,
}

pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments/tcp-validity")
}

pub(crate) fn rows(file: &str) -> Vec<Vec<String>> {
    let text = std::fs::read_to_string(folder().join(file)).unwrap();
    text.lines().skip(1).map(|line| line.split(',').map(str::to_owned).collect()).collect()
}

pub(crate) fn cells() -> Vec<Cell> {
    let cell = |row: Vec<String>| Cell {
        key: row[0].clone(),
        agent: row[1].clone(),
        rate: DataRate::from_mbps(row[2].parse().unwrap()),
        rtt: Duration::from_millis(row[3].parse().unwrap()),
        queue: row[4].parse().unwrap(),
        loss: row[5].parse().unwrap(),
        seconds: row[6].parse().unwrap(),
        warm_up: row[7].parse().unwrap(),
        quick: row[8] == "yes",
    };
    rows("cells.csv").into_iter().map(cell).collect()
}

/// Our name for an agent of ns-2, and its recovery.
fn agent(name: &str) -> (&'static str, Recovery) {
    match name {
        "sack1" | "linux-reno" => ("reno", Recovery::Sack),
        "newreno" => ("reno", Recovery::NewReno),
        // TCP-Linux is older than HyStart.
        "linux-cubic" => ("cubic:no-hystart", Recovery::Sack),
        "sack1-highspeed" => ("highspeed", Recovery::Sack),
        "sack1-scalable" => ("scalable", Recovery::Sack),
        _ => panic!("no such agent: {name}"),
    }
}

pub(crate) fn scenario(cell: &Cell) -> Scenario {
    let (cc, recovery) = agent(&cell.agent);
    let node = |name: &str| NodeSpec { name: name.to_owned(), host: None };
    let mut there = LinkConfig::new(cell.rate, cell.rtt / 2, cell.queue);
    if cell.loss > 0.0 {
        there.loss = LossConfig::Independent(cell.loss);
    }
    let back = LinkConfig::new(cell.rate, cell.rtt / 2, 1_000_000);
    let tcp = TcpSpec { recovery, ..TcpSpec::ns2(cc) };
    Scenario {
        name: "tcp-validity".to_owned(),
        title: cell.key.clone(),
        duration: Duration::from_secs(cell.seconds),
        warm_up: Duration::from_secs(cell.warm_up),
        seed: 1,
        sample: None,
        nodes: vec![node("a"), node("b")],
        links: vec![
            LinkSpec { name: "ab".to_owned(), from: 0, to: 1, config: there },
            LinkSpec { name: "ab'".to_owned(), from: 1, to: 0, config: back },
        ],
        flows: vec![FlowSpec {
            name: "tcp".to_owned(),
            from: 0,
            to: 1,
            start: Time::ZERO,
            stop: None,
            kind: FlowKind::Tcp(tcp),
        }],
        train: 64,
        record: None,
    }
}

pub(crate) fn play(scenario: &Scenario) -> Outcome {
    run(scenario, &mut |_| {}).unwrap_or_else(|error| panic!("{}: {error}", scenario.title))
}
