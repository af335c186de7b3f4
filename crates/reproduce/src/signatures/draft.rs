//! The common draws of all families: the flow, the bottleneck, its queue.

use std::collections::BTreeMap;

use packtrain_link::{
    CoDelConfig, Limit, LinkConfig, QueueConfig, RateSchedule, RedConfig, RedMode,
};
use packtrain_units::{ByteCount, DataRate, Duration, Rng};
use serde_json::{Value, json};

use super::Region;
use super::play::Setup;
use super::random::{pick, scale, seconds, whole};
use super::source::Sending;

/// A drawn model with one free parameter; the loss rate increases with it.
pub(super) struct Draft {
    pub(super) setup: Box<dyn Fn(f64) -> Setup>,
    /// The parameter: minimum, maximum, and the first guess; a constant parameter has equal values.
    pub(super) parameter: (f64, f64, f64),
    pub(super) steady: bool,
    /// Packets before the window, as a share of it.
    pub(super) warm: f64,
    /// Nothing queues, so delays carry no information.
    pub(super) policed: bool,
    pub(super) flow: Flow,
    pub(super) meta: Meta,
}

/// The recorded parameters.
pub(super) type Meta = BTreeMap<String, Value>;

/// The input of a family.
pub(super) struct Brief {
    pub(super) region: Region,
    /// The target loss rate, and the packets of the window.
    pub(super) target: f64,
    pub(super) window: usize,
}

/// The flow whose losses are recorded.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flow {
    pub(super) rate: f64,
    pub(super) size: u32,
    pub(super) quantum: u32,
    pub(super) line: f64,
    pub(super) jitter: f64,
}

impl Flow {
    /// Rates up to 2 Gbit/s to train, from 2 to 10 Gbit/s to test.
    pub(super) fn draw(rng: &mut Rng, region: Region) -> Self {
        let (low, high) = region.of((1e8, 2e9), (2e9, 1e10));
        let rate = scale(rng, low, high);
        let quantum = match region {
            Region::Train | Region::PaperTrain => pick(rng, &[1, 1, 1, 1, 2, 4, 8, 16, 44]),
            Region::Test | Region::PaperTest => pick(rng, &[1, 1, 1, 3, 6, 12, 32, 44]),
        };
        Self {
            rate,
            size: pick(rng, &[1_052, 1_052, 1_280, 1_484, 1_500]),
            quantum,
            line: rate * scale(rng, 1.2, 40.0),
            jitter: pick(rng, &[0.0, 0.0, 0.05, 0.3, 0.9]),
        }
    }

    pub(super) fn sending(&self) -> (u32, Sending) {
        let (rate, line) = (bps(self.rate), bps(self.line));
        let (quantum, jitter) = (self.quantum, self.jitter);
        (self.size, Sending::Paced { rate, quantum, line, jitter })
    }

    /// The duration of this number of its packets, in seconds.
    pub(super) fn span(&self, packets: f64) -> f64 {
        packets * f64::from(self.size) * 8.0 / self.rate
    }

    pub(super) fn write(&self, meta: &mut Meta) {
        note(meta, "quantum", self.quantum);
        note(meta, "line_bps", self.line.round());
        note(meta, "jitter", self.jitter);
    }
}

/// A bottleneck's queue.
#[derive(Clone, Debug)]
pub(super) struct Room {
    config: QueueConfig,
    bytes: f64,
}

/// Kinds of queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    DropTail,
    Red,
    CoDel,
}

impl Room {
    /// A capacity of 50 us to 20 ms at the bottleneck's rate.
    pub(super) fn draw(rng: &mut Rng, kind: Kind, capacity: f64, region: Region) -> Self {
        let (low, high) = region.of((1e-4, 1e-2), (5e-5, 2e-2));
        let bytes = (capacity / 8.0 * scale(rng, low, high)).max(45_000.0);
        Self::of(rng, kind, bytes, region)
    }

    pub(super) fn of(rng: &mut Rng, kind: Kind, bytes: f64, region: Region) -> Self {
        let packets = bytes / 1_500.0;
        let limit = match rng.chance(0.5) {
            true => Limit::Packets(packets as u64),
            false => Limit::Bytes(ByteCount(bytes as u64)),
        };
        let config = match kind {
            Kind::DropTail => QueueConfig::DropTail(limit),
            Kind::CoDel => QueueConfig::CoDel(CoDelConfig::new(limit)),
            Kind::Red => {
                let mode = pick(rng, &[RedMode::Classic, RedMode::Gentle, RedMode::Adaptive]);
                let low = (packets * scale(rng, 0.08, 0.25)).max(5.0);
                QueueConfig::Red(RedConfig {
                    min_threshold: low,
                    max_threshold: 3.0 * low,
                    linterm: region.of(10.0, 50.0),
                    weight: pick(rng, &[0.002, 0.0005]),
                    mean_packet: ByteCount(1_500),
                    ..RedConfig::ns2(limit, mode)
                })
            }
        };
        Self { config, bytes }
    }

    pub(super) fn link(&self, capacity: f64) -> LinkConfig {
        LinkConfig {
            rate: RateSchedule::constant(bps(capacity)),
            queue: self.config.clone(),
            ..LinkConfig::new(bps(capacity), Duration::from_millis(1), 1)
        }
    }

    /// A source that fills the queue at the start.
    pub(super) fn fill(&self) -> (u32, Sending) {
        (1_500, Sending::Fill { packets: (self.bytes / 1_500.0) as u64 })
    }

    pub(super) fn write(&self, meta: &mut Meta) {
        let name = match &self.config {
            QueueConfig::DropTail(_) => "droptail",
            QueueConfig::CoDel(_) => "codel",
            QueueConfig::Red(red) => match red.mode {
                RedMode::Classic => "red",
                RedMode::Gentle => "red-gentle",
                RedMode::Adaptive => "red-adaptive",
            },
        };
        note(meta, "queue", name);
        note(meta, "queue_bytes", self.bytes.round());
    }
}

/// Bits per second, at least one.
pub(super) fn bps(rate: f64) -> DataRate {
    DataRate::from_bps((rate as u64).max(1))
}

/// Records a parameter.
pub(super) fn note(meta: &mut Meta, key: &str, value: impl Into<Value>) {
    // Six digits are enough, and compress better than seventeen.
    let value = match value.into() {
        Value::Number(number) if number.is_f64() => {
            let x = number.as_f64().unwrap_or_default();
            let digits = 10_f64.powi(5 - libm::floor(libm::log10(x.abs().max(1e-12))) as i32);
            json!((x * digits).round() / digits)
        }
        other => other,
    };
    meta.insert(key.to_owned(), value);
}

/// The packet size of a competing flow.
pub(super) fn competitor_size(rng: &mut Rng) -> u32 {
    pick(rng, &[1_500, 1_500, 1_500, 1_052, 600, 9_000])
}

/// Competing paced flows with a total rate of `mean`.
pub(super) fn paced(rng: &mut Rng, count: u64, size: u32, line: f64) -> Vec<(u32, f64, f64, f64)> {
    // Their shares differ by up to a half.
    let shares: Vec<f64> = (0..count).map(|_| 1.0 + 0.5 * rng.unit()).collect();
    let all: f64 = shares.iter().sum();
    let jitter = pick(rng, &[0.0, 0.1, 0.5, 1.0]);
    shares.into_iter().map(|share| (size, share / all, line, jitter)).collect()
}

/// Makes sources from the draws of [`paced`].
pub(super) fn at_rate(drawn: &[(u32, f64, f64, f64)], mean: f64) -> Vec<(u32, Sending)> {
    let of = |&(size, share, line, jitter): &(u32, f64, f64, f64)| {
        let rate = bps(mean * share);
        (size, Sending::Paced { rate, quantum: 1, line: bps(line), jitter })
    };
    drawn.iter().map(of).collect()
}

/// A duration from `low` to `high` seconds, on a logarithmic scale.
pub(super) fn span(rng: &mut Rng, low: f64, high: f64) -> Duration {
    seconds(scale(rng, low, high.max(low)))
}

/// The number of competitors.
pub(super) fn some(rng: &mut Rng, low: u64, high: u64) -> u64 {
    whole(rng, low, high)
}
