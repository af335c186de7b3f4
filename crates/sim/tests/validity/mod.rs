//! Shared parts of the validity tests: cells of one path and one flow, and a peer's numbers in git.

use std::path::{Path, PathBuf};

use packtrain_link::{LinkConfig, LossConfig};
use packtrain_sim::spec::{FlowKind, FlowSpec, LinkSpec, NodeSpec, Scenario};
use packtrain_units::{ByteCount, DataRate, Duration, Time};

/// Maximum relative difference of the goodput.
const TOLERANCE: f64 = 0.05;

/// One line of `cells.csv`.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    pub(crate) key: String,
    pub(crate) cc: String,
    pub(crate) rate: DataRate,
    pub(crate) rtt: Duration,
    pub(crate) queue: u64,
    pub(crate) loss: f64,
    pub(crate) duration: Duration,
    pub(crate) warm_up: Duration,
    pub(crate) quick: bool,
}

/// A folder of `experiments`.
pub(crate) struct Experiment {
    /// Its name.
    pub(crate) name: &'static str,
    /// The file with the peer's numbers.
    pub(crate) peer: &'static str,
    /// The heading of our own file.
    pub(crate) heading: &'static str,
}

impl Experiment {
    pub(crate) fn folder(&self) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments").join(self.name)
    }

    pub(crate) fn rows(&self, file: &str) -> Vec<Vec<String>> {
        let text = std::fs::read_to_string(self.folder().join(file)).unwrap();
        text.lines().skip(1).map(|line| line.split(',').map(str::to_owned).collect()).collect()
    }

    pub(crate) fn cells(&self) -> Vec<Cell> {
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
        self.rows("cells.csv").into_iter().map(cell).collect()
    }

    /// The same two links as in the emulator: packets of at most 1,500 bytes, and a reverse queue
    /// that never fills.
    pub(crate) fn scenario(&self, cell: &Cell, seed: u64, kind: FlowKind) -> Scenario {
        let node = |name: &str| NodeSpec { name: name.to_owned(), host: None };
        let mut there = LinkConfig::new(cell.rate, cell.rtt / 2, cell.queue);
        there.mtu = ByteCount(1_500);
        if cell.loss > 0.0 {
            there.loss = LossConfig::Independent(cell.loss);
        }
        let back = LinkConfig::new(cell.rate, cell.rtt / 2, 1_000_000);
        Scenario {
            name: self.name.to_owned(),
            title: cell.key.clone(),
            duration: cell.duration,
            warm_up: cell.warm_up,
            seed,
            sample: None,
            nodes: vec![node("near"), node("far")],
            links: vec![
                LinkSpec { name: "near>far".to_owned(), from: 0, to: 1, config: there },
                LinkSpec { name: "far>near".to_owned(), from: 1, to: 0, config: back },
            ],
            flows: vec![FlowSpec {
                name: "flow".to_owned(),
                from: 0,
                to: 1,
                start: Time::ZERO,
                stop: None,
                kind,
                from_depot: None,
            }],
            train: 64,
            record: None,
        }
    }

    /// Compares every cell that is `wanted` with the peer's row: `compare` returns our goodput
    /// divided by the peer's and our line, which goes to the file named in `PACKTRAIN_OURS`.
    pub(crate) fn compare_all(
        &self,
        wanted: impl Fn(&Cell) -> bool,
        compare: impl Fn(&Cell, &[String]) -> (f64, String),
    ) {
        let peer = self.rows(self.peer);
        let (mut lines, mut wrong) = (Vec::new(), Vec::new());
        for cell in self.cells().iter().filter(|cell| wanted(cell)) {
            let row = peer.iter().find(|row| row[0] == cell.key);
            let row = row.unwrap_or_else(|| panic!("{} has no row {}", self.peer, cell.key));
            let (ratio, line) = compare(cell, row);
            if (ratio - 1.0).abs() > TOLERANCE {
                wrong.push(format!("{}: {ratio:.3} of {}", cell.key, self.peer));
            }
            lines.push(line);
        }
        assert!(!lines.is_empty());
        if let Ok(file) = std::env::var("PACKTRAIN_OURS") {
            std::fs::write(file, format!("{}\n{}\n", self.heading, lines.join("\n"))).unwrap();
        }
        assert!(wrong.is_empty(), "beyond 5 %:\n{}", wrong.join("\n"));
    }
}

/// Whether `PACKTRAIN_CELLS` selects a cell: those whose key contains it.
pub(crate) fn picked(cell: &Cell) -> bool {
    cell.key.contains(&std::env::var("PACKTRAIN_CELLS").unwrap_or_default())
}
