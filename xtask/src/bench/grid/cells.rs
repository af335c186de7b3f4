//! The cells of the grid: paths, and what is measured on each. This table is the whole design: a
//! base cell for each rate, rows that change one factor of it, and corners that change several.

use serde_json::{Value, json};

/// The largest IP packet of all paths, in bytes.
pub(crate) const MTU: f64 = 1500.0;
/// IPv4 and UDP headers, in bytes.
const IP_UDP: f64 = 28.0;
/// Header and tag of a data packet of the native wire, in bytes (docs/wire-format.md, packets).
const NATIVE: f64 = 33.0;
/// Duration of a transfer from memory to memory, in seconds.
pub(crate) const SECONDS: u32 = 10;
/// What a run from memory to memory takes in all: start of the emulator and the programs, and the
/// end, in seconds.
const MEMORY_RUN: f64 = SECONDS as f64 + 1.6;

/// Random losses on the wire, after the queue.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Loss {
    /// Each packet independently with this probability.
    Random(f64),
    /// Bursts of 20 packets on average, one packet in 1000 in all (Gilbert, Elliott).
    Bursts,
}

/// What else the path does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Extra {
    /// Nothing.
    None,
    /// Acknowledgements are lost with this probability.
    ReverseLoss(f64),
    /// A flow of kernel cubic fills the queue of the reverse direction.
    ReverseCongestion,
    /// One packet in 100 takes 5 ms longer and is overtaken.
    Reordering,
    /// Up to this many milliseconds of random delay more; packets keep their order.
    Jitter(u32),
    /// The rate is halved and doubled again every 5 s. Ten seconds see three quarters of the rate
    /// on average, wherever they begin.
    RateSteps,
}

/// Programs that are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Programs {
    /// `native`, and the peers that are usually the best single connections.
    Few,
    /// Every program with one connection.
    Single,
    /// In addition several connections.
    Many,
    /// In addition peers with raised socket buffers.
    All,
}

/// Forms of the grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Ends in less than ten minutes.
    Short,
    /// A night.
    Full,
}

/// A path and its measurements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Cell {
    /// What distinguishes it from the base cell of its rate; empty for the base cell.
    pub(crate) change: &'static str,
    /// Mbit/s in each direction.
    pub(crate) rate: u32,
    /// Round-trip time of the empty path, in ms.
    pub(crate) rtt: u32,
    /// Size of the drop-tail queue in each direction, as a multiple of rate times `rtt`.
    pub(crate) queue: f64,
    pub(crate) loss: Loss,
    pub(crate) extra: Extra,
    /// Programs from memory to memory in the full form.
    pub(crate) memory: Programs,
    /// Programs of the short form, if it has the cell.
    pub(crate) short: Option<Programs>,
    /// Megabytes of the copied file in the full form; 0: none.
    pub(crate) file: u32,
    /// Whether the short form also copies this file.
    pub(crate) short_file: bool,
    /// Whether the copy is compared with other programs.
    pub(crate) file_peers: bool,
}

const GBIT: Cell = Cell {
    change: "",
    rate: 1000,
    rtt: 100,
    queue: 1.0,
    loss: Loss::Random(0.0),
    extra: Extra::None,
    memory: Programs::Single,
    short: None,
    file: 400,
    short_file: false,
    file_peers: false,
};

const HUNDRED: Cell = Cell { rate: 100, file: 50, ..GBIT };

use Programs::{All, Few, Many, Single};

/// Every cell.
#[rustfmt::skip]
pub(crate) const CELLS: &[Cell] = &[
    // The base cell of each rate: 100 ms, a queue of one bandwidth-delay product, no loss.
    Cell { memory: All, short: Some(Single), short_file: true, file_peers: true, ..GBIT },
    Cell { memory: All, file: 400, file_peers: true, ..HUNDRED },

    // One factor at a time: round-trip time.
    Cell { change: "RTT 10 ms", rtt: 10, memory: Many, short: Some(Few), ..GBIT },
    Cell { change: "RTT 50 ms", rtt: 50, memory: Many, ..GBIT },
    Cell { change: "RTT 200 ms", rtt: 200, memory: Many, ..GBIT },
    Cell { change: "RTT 300 ms", rtt: 300, memory: All, short: Some(Few), file_peers: true, ..GBIT },
    Cell { change: "RTT 10 ms", rtt: 10, ..HUNDRED },
    Cell { change: "RTT 50 ms", rtt: 50, ..HUNDRED },
    Cell { change: "RTT 200 ms", rtt: 200, ..HUNDRED },
    Cell { change: "RTT 300 ms", rtt: 300, memory: Many, ..HUNDRED },

    // Queue.
    Cell { change: "queue 0.02 BDP", queue: 0.02, ..GBIT },
    Cell { change: "queue 0.1 BDP", queue: 0.1, short: Some(Few), ..GBIT },
    Cell { change: "queue 0.5 BDP", queue: 0.5, ..GBIT },
    Cell { change: "queue 2 BDP", queue: 2.0, ..GBIT },
    Cell { change: "queue 0.02 BDP", queue: 0.02, ..HUNDRED },
    Cell { change: "queue 0.1 BDP", queue: 0.1, ..HUNDRED },
    Cell { change: "queue 0.5 BDP", queue: 0.5, ..HUNDRED },
    Cell { change: "queue 2 BDP", queue: 2.0, ..HUNDRED },

    // Loss in both directions.
    Cell { change: "loss 1e-5", loss: Loss::Random(1e-5), memory: Many, ..GBIT },
    Cell { change: "loss 1e-4", loss: Loss::Random(1e-4), memory: Many, file_peers: true, ..GBIT },
    Cell { change: "loss 1e-3", loss: Loss::Random(1e-3), memory: All, short: Some(Few), ..GBIT },
    Cell { change: "loss 1e-2", loss: Loss::Random(1e-2), memory: Many, ..GBIT },
    Cell { change: "bursts of loss", loss: Loss::Bursts, memory: Many, short: Some(Few), ..GBIT },
    Cell { change: "loss 1e-5", loss: Loss::Random(1e-5), ..HUNDRED },
    Cell { change: "loss 1e-4", loss: Loss::Random(1e-4), ..HUNDRED },
    Cell { change: "loss 1e-3", loss: Loss::Random(1e-3), memory: Many, file_peers: true, ..HUNDRED },
    Cell { change: "loss 1e-2", loss: Loss::Random(1e-2), ..HUNDRED },
    Cell { change: "bursts of loss", loss: Loss::Bursts, ..HUNDRED },

    // The reverse direction, order, delay, rate.
    Cell { change: "reverse loss 1e-2", extra: Extra::ReverseLoss(1e-2), ..GBIT },
    Cell { change: "reverse direction congested", extra: Extra::ReverseCongestion, ..GBIT },
    Cell { change: "reordering", extra: Extra::Reordering, ..GBIT },
    Cell { change: "jitter 5 ms", extra: Extra::Jitter(5), ..GBIT },
    Cell { change: "rate halved and doubled", extra: Extra::RateSteps, ..GBIT },
    Cell { change: "reverse loss 1e-2", extra: Extra::ReverseLoss(1e-2), ..HUNDRED },
    Cell { change: "reverse direction congested", extra: Extra::ReverseCongestion, ..HUNDRED },
    Cell { change: "reordering", extra: Extra::Reordering, ..HUNDRED },
    Cell { change: "jitter 5 ms", extra: Extra::Jitter(5), ..HUNDRED },
    Cell { change: "rate halved and doubled", extra: Extra::RateSteps, short: Some(Few), ..HUNDRED },

    // Corners.
    Cell { change: "RTT 300 ms, loss 1e-4", rtt: 300, loss: Loss::Random(1e-4), ..GBIT },
    Cell { change: "RTT 300 ms, loss 1e-2", rtt: 300, loss: Loss::Random(1e-2), ..GBIT },
    Cell { change: "RTT 10 ms, loss 1e-2", rtt: 10, loss: Loss::Random(1e-2), ..GBIT },
    Cell { change: "RTT 300 ms, queue 0.02 BDP", rtt: 300, queue: 0.02, ..GBIT },
    Cell { change: "RTT 10 ms, queue 0.02 BDP", rtt: 10, queue: 0.02, ..GBIT },
    Cell { change: "RTT 50 ms, queue 0.1 BDP, loss 1e-3", rtt: 50, queue: 0.1, loss: Loss::Random(1e-3), ..GBIT },
    Cell { change: "RTT 200 ms, queue 0.1 BDP, bursts of loss", rtt: 200, queue: 0.1, loss: Loss::Bursts, ..GBIT },
    Cell { change: "RTT 300 ms, queue 2 BDP, reverse loss 1e-2", rtt: 300, queue: 2.0, extra: Extra::ReverseLoss(1e-2), ..GBIT },
    Cell { change: "RTT 10 ms, queue 0.1 BDP, loss 1e-3", rtt: 10, queue: 0.1, loss: Loss::Random(1e-3), ..HUNDRED },
    Cell { change: "RTT 300 ms, queue 0.1 BDP, loss 1e-2", rtt: 300, queue: 0.1, loss: Loss::Random(1e-2), ..HUNDRED },
];

impl Loss {
    /// The mean share of packets lost.
    pub(crate) fn mean(self) -> f64 {
        match self {
            Self::Random(p) => p,
            Self::Bursts => 1e-3,
        }
    }

    fn toml(self) -> String {
        match self {
            Self::Random(p) => format!("{p:?}"),
            // A burst ends with each packet with probability 0.05; 5.005e-5 to begin one gives a
            // stationary share of 5.005e-5 / (5.005e-5 + 0.05) = 1e-3.
            Self::Bursts => "{ kind = \"gilbert-elliott\", to_bad = 5.005e-5, to_good = 0.05, \
                             loss_good = 0, loss_bad = 1 }"
                .to_owned(),
        }
    }
}

impl Cell {
    /// Its name, such as `1 Gbit/s, loss 1e-3`.
    pub(crate) fn name(&self) -> String {
        let rate = match self.rate {
            1000 => "1 Gbit/s".to_owned(),
            rate => format!("{rate} Mbit/s"),
        };
        let change = if self.change.is_empty() { "base" } else { self.change };
        format!("{rate}, {change}")
    }

    /// The whole path in words.
    pub(crate) fn path(&self) -> String {
        let loss = match self.loss {
            Loss::Random(0.0) => "no random loss".to_owned(),
            Loss::Random(p) => format!("loss {p:e} each way"),
            Loss::Bursts => "bursts of 20 lost packets, 1e-3 in all, each way".to_owned(),
        };
        let extra = match self.extra {
            Extra::None => String::new(),
            Extra::ReverseLoss(p) => format!(", loss {p:e} of the reverse direction"),
            Extra::ReverseCongestion => ", a kernel cubic flow in the reverse direction".to_owned(),
            Extra::Reordering => ", 1 % of the packets 5 ms later".to_owned(),
            Extra::Jitter(ms) => format!(", jitter up to {ms} ms"),
            Extra::RateSteps => ", half the rate for 5 s of every 10 s".to_owned(),
        };
        format!("{} Mbit/s, {} ms, queue of {} BDP, {loss}{extra}", self.rate, self.rtt, self.queue)
    }

    /// The scenario file for `packtrain emulate --topology`.
    pub(crate) fn topology(&self) -> String {
        let rate = match self.extra {
            Extra::RateSteps => format!(
                "{{ steps = [[\"0s\", \"{0}mbit\"], [\"5s\", \"{1}mbit\"]], period = \"10s\" }}",
                self.rate,
                self.rate / 2
            ),
            _ => format!("\"{}mbit\"", self.rate),
        };
        let extra = match self.extra {
            Extra::ReverseLoss(p) => format!("reverse = {{ loss = {p:?} }}\n"),
            Extra::Reordering => "reorder = { probability = 0.01, extra = \"5ms\" }\n".to_owned(),
            Extra::Jitter(ms) => format!("jitter = \"{ms}ms\"\n"),
            Extra::None | Extra::ReverseCongestion | Extra::RateSteps => String::new(),
        };
        format!(
            "[[link]]\nname = \"wan\"\nfrom = \"near\"\nto = \"far\"\nrate = {rate}\n\
             rtt = \"{}ms\"\nbdp_rtt = \"{}ms\"\nqueue = \"{}bdp\"\nloss = {}\n{extra}",
            self.rtt,
            self.rtt,
            self.queue,
            self.loss.toml()
        )
    }

    /// The mean rate of the link, in bit/s.
    pub(crate) fn mean_rate(&self) -> f64 {
        let share = if self.extra == Extra::RateSteps { 0.75 } else { 1.0 };
        f64::from(self.rate) * 1e6 * share
    }

    /// The payload that the native wire can deliver, in bit/s: full packets of data at the mean
    /// rate, less those lost on the wire.
    pub(crate) fn ceiling(&self) -> f64 {
        self.mean_rate() * (MTU - IP_UDP - NATIVE) / MTU * (1.0 - self.loss.mean())
    }

    /// Its programs from memory to memory, if the form has the cell.
    pub(crate) fn programs(&self, form: Form) -> Option<Programs> {
        match form {
            Form::Short => self.short,
            Form::Full => Some(self.memory),
        }
    }

    /// Megabytes of the file that this form copies, if it copies one.
    pub(crate) fn file(&self, form: Form) -> Option<u32> {
        let wanted = form == Form::Full || self.short_file;
        (wanted && self.file > 0).then_some(self.file)
    }

    /// Which axes of the plots the cell is on: those factors with their base value elsewhere.
    pub(crate) fn axes(&self) -> Vec<&'static str> {
        let base = if self.rate == GBIT.rate { GBIT } else { HUNDRED };
        let same = [
            ("rtt", self.rtt == base.rtt),
            ("queue", self.queue.total_cmp(&base.queue).is_eq()),
            ("loss", self.loss == base.loss),
            ("extra", self.extra == base.extra),
        ];
        let on = |axis: &str| same.iter().all(|(name, same)| *same || *name == axis);
        ["rtt", "queue", "loss"].into_iter().filter(|axis| on(axis)).collect()
    }

    /// Its parameters for the results.
    pub(crate) fn json(&self) -> Value {
        let loss =
            if self.loss == Loss::Bursts { json!("bursts") } else { json!(self.loss.mean()) };
        json!({
            "name": self.name(), "path": self.path(), "rate_mbps": self.rate, "rtt_ms": self.rtt,
            "queue_bdp": self.queue, "loss": loss, "axes": self.axes(),
            "ceiling_mbps": self.ceiling() / 1e6,
        })
    }
}

/// The number of rounds of a form.
pub(crate) fn rounds(form: Form) -> usize {
    match form {
        Form::Short => 1,
        Form::Full => 5,
    }
}

/// What one copy takes in all, in seconds: at half of the ceiling and the start of the emulator.
/// Those over ssh are limited by the window of a channel, 2 MiB for each round trip; other programs
/// reach 0.15 of the ceiling on average.
pub(crate) fn copy_run(cell: &Cell, ours: bool) -> f64 {
    let share = if ours { 0.5 } else { 0.15 };
    f64::from(cell.file) * 8e6 / (share * cell.ceiling()) + 1.6
}

/// What a run from memory to memory takes in all, in seconds. The flow in the reverse direction
/// has a head start of a second.
pub(crate) fn memory_run(cell: &Cell) -> f64 {
    MEMORY_RUN + if cell.extra == Extra::ReverseCongestion { 1.0 } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_unique_and_the_issues_values_are_all_there() {
        let names: BTreeSet<String> = CELLS.iter().map(Cell::name).collect();
        assert_eq!(names.len(), CELLS.len());
        for rate in [100, 1000] {
            let on = |axis: &'static str| {
                CELLS.iter().filter(move |cell| cell.rate == rate && cell.axes().contains(&axis))
            };
            let rtts: BTreeSet<u32> = on("rtt").map(|cell| cell.rtt).collect();
            assert_eq!(rtts.into_iter().collect::<Vec<_>>(), [10, 50, 100, 200, 300]);
            let queues: BTreeSet<u32> =
                on("queue").map(|cell| (cell.queue * 100.0) as u32).collect();
            assert_eq!(queues.into_iter().collect::<Vec<_>>(), [2, 10, 50, 100, 200]);
            let losses: BTreeSet<String> =
                on("loss").map(|cell| format!("{:?}", cell.loss)).collect();
            assert_eq!(losses.len(), 6, "0, 1e-5 to 1e-2, bursts: {losses:?}");
        }
    }

    #[test]
    fn a_change_says_what_the_path_is() {
        for cell in CELLS {
            let change = cell.change;
            assert_eq!(change.contains("RTT"), cell.rtt != 100, "{}", cell.name());
            assert_eq!(change.contains("queue"), cell.queue != 1.0, "{}", cell.name());
            if cell.rtt != 100 {
                assert!(change.contains(&format!("RTT {} ms", cell.rtt)), "{}", cell.name());
            }
            if cell.queue != 1.0 {
                assert!(change.contains(&format!("queue {} BDP", cell.queue)), "{}", cell.name());
            }
            match (cell.loss, cell.extra) {
                (Loss::Bursts, _) => assert!(change.contains("bursts")),
                (Loss::Random(p), _) if p > 0.0 => {
                    assert!(change.contains(&format!("loss {p:e}")), "{}", cell.name());
                }
                (_, Extra::ReverseLoss(p)) => {
                    assert!(change.contains(&format!("reverse loss {p:e}")), "{}", cell.name());
                }
                _ => assert!(!change.contains("loss"), "{}", cell.name()),
            }
        }
    }

    #[test]
    fn the_ceiling_is_the_payload_of_full_packets() {
        // 1500 - 20 - 8 - 17 - 16 = 1439 of 1500 bytes.
        assert!((CELLS[0].ceiling() / 1e6 - 959.33).abs() < 0.01);
        let cell = |change: &str| *CELLS.iter().find(|c| c.change == change).unwrap();
        assert!((cell("loss 1e-2").ceiling() / 1e6 - 949.74).abs() < 0.01);
        assert!((cell("bursts of loss").ceiling() / 1e6 - 958.37).abs() < 0.01);
        assert!((cell("rate halved and doubled").ceiling() / 1e6 - 719.5).abs() < 0.01);
    }

    #[test]
    fn bursts_have_the_stated_mean() {
        let text = Loss::Bursts.toml();
        let value = |name: &str| -> f64 {
            let rest = text.split(&format!("{name} = ")).nth(1).unwrap();
            rest.split([',', ' ']).next().unwrap().parse().unwrap()
        };
        let (to_bad, to_good) = (value("to_bad"), value("to_good"));
        assert!((to_bad / (to_bad + to_good) - Loss::Bursts.mean()).abs() < 1e-7);
        assert!((1.0 / to_good - 20.0).abs() < 1e-9);
    }

    #[test]
    fn topologies_name_what_differs() {
        let text = |change: &str| {
            CELLS.iter().find(|c| c.change == change && c.rate == 1000).unwrap().topology()
        };
        assert!(text("").contains("rate = \"1000mbit\"\nrtt = \"100ms\""));
        assert!(text("queue 0.02 BDP").contains("queue = \"0.02bdp\""));
        assert!(text("reverse loss 1e-2").contains("loss = 0.0\nreverse = { loss = 0.01 }"));
        assert!(text("rate halved and doubled").contains("[\"5s\", \"500mbit\"]"));
        assert!(text("loss 1e-5").contains("loss = 1e-5"));
    }
}
