//! The record of a window: one line of JSON.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::play::{PacketOutcome, Played};

/// A window with its cause. `data/loss-causes/README.md` describes the format.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The model.
    pub family: String,
    /// `network`, `cpu`, `link`, or `hybrid`: host and network, the smaller with at least 5 % of
    /// the losses.
    pub cause: String,
    /// `train` or `test`.
    pub split: String,
    /// Seed of the draw.
    pub seed: u64,
    /// Number of the window within the draw.
    pub window: u64,
    /// Packets in the window.
    pub packets: u64,
    /// Lengths of runs, received and lost in turn, a received one first (it may be zero).
    pub runs: Vec<u64>,
    /// Losses by actual cause.
    pub lost: Lost,
    /// The host's count of drops at its socket; none if not counted.
    pub host_drops: Option<u64>,
    /// Delays around the losses, if known.
    pub delay: Option<Delay>,
    /// The sender's rate, in bits per second.
    pub rate_bps: u64,
    /// Bytes of a packet from the network header on.
    pub packet_bytes: u64,
    /// Parameters of the model.
    pub meta: BTreeMap<String, Value>,
}

/// Losses by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lost {
    /// In a queue.
    pub network: u64,
    /// At the receiving host's socket.
    pub host: u64,
    /// On the wire.
    pub link: u64,
}

impl Lost {
    /// The total.
    pub fn all(&self) -> u64 {
        self.network + self.host + self.link
    }

    /// The label.
    pub fn cause(&self) -> &'static str {
        let (network, all) = (self.network + self.link, self.all());
        if self.host.min(network) * 20 >= all && self.host.min(network) > 0 {
            "hybrid"
        } else if self.host > network {
            "cpu"
        } else if self.link > self.network {
            "link"
        } else {
            "network"
        }
    }
}

/// Delays measured with two clocks.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Delay {
    /// Arrival at the host (a timestamp of the kernel).
    pub arrival: Rise,
    /// Read by the process.
    pub read: Rise,
}

/// One-way delays above the minimum of the window, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Rise {
    /// Median of the last packet received before each run of losses.
    pub before: f64,
    /// Median of the first packet received after each.
    pub after: f64,
    /// Median of all received packets.
    pub typical: f64,
    /// The maximum.
    pub most: f64,
}

/// Run lengths, received and lost in turn.
pub fn runs(received: impl Iterator<Item = bool>) -> Vec<u64> {
    let (mut runs, mut now) = (vec![0], true);
    for got in received {
        if got != now {
            runs.push(0);
            now = got;
        }
        if let Some(last) = runs.last_mut() {
            *last += 1;
        }
    }
    runs
}

impl Played {
    pub(super) fn lost(&self) -> Lost {
        let count = |outcome| self.outcomes.iter().filter(|f| **f == outcome).count() as u64;
        let (network, host) = (count(PacketOutcome::Network), count(PacketOutcome::Host));
        Lost { network, host, link: count(PacketOutcome::Link) }
    }

    pub(super) fn runs(&self) -> Vec<u64> {
        runs(self.outcomes.iter().map(|outcome| *outcome == PacketOutcome::Received))
    }

    pub(super) fn delay(&self) -> Delay {
        let received: Vec<bool> =
            self.outcomes.iter().map(|f| *f == PacketOutcome::Received).collect();
        Delay { arrival: rise(&received, &self.arrival), read: rise(&received, &self.read) }
    }
}

/// Delays above the minimum, given in nanoseconds, around the losses.
pub fn rise(received: &[bool], delays: &[u64]) -> Rise {
    let got = |i: &usize| received[*i];
    let least = (0..received.len()).filter(got).map(|i| delays[i]).min().unwrap_or(0);
    let above = |i: usize| delays[i] - least;
    let (mut before, mut after) = (Vec::new(), Vec::new());
    for i in 1..received.len() {
        match (received[i - 1], received[i]) {
            (true, false) => before.push(above(i - 1)),
            (false, true) => after.push(above(i)),
            _ => {}
        }
    }
    let mut all: Vec<u64> = (0..received.len()).filter(got).map(above).collect();
    let most = all.iter().max().copied().unwrap_or(0);
    Rise {
        before: median(&mut before),
        after: median(&mut after),
        typical: median(&mut all),
        most: micros(most),
    }
}

fn median(of: &mut [u64]) -> f64 {
    if of.is_empty() {
        return 0.0;
    }
    let middle = of.len() / 2;
    micros(*of.select_nth_unstable(middle).1)
}

/// A resolution of a tenth of a microsecond is enough.
fn micros(ns: u64) -> f64 {
    (ns / 100) as f64 / 10.0
}
