//! Configurations of links. Code that reads them from files checks them with `check`.

use packtrain_units::{ByteCount, DataRate, Duration, Time};

/// One direction of a link: a queue, a transmitter, a wire with its impairments.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkConfig {
    /// Rate of the transmitter, by a schedule. `DataRate::MAX` means no limit.
    pub rate: RateSchedule,
    /// Time from the end of transmission to arrival.
    pub delay: Duration,
    /// The queue of packets that wait for the transmitter.
    pub queue: QueueConfig,
    /// Losses of the wire, after transmission: a lost packet has used the link.
    pub loss: LossConfig,
    /// Additional delay that varies from packet to packet.
    pub jitter: Option<DelayVariation>,
    /// Packets that overtake others.
    pub reorder: Option<ReorderConfig>,
    /// Probability that a packet arrives twice.
    pub duplicate: f64,
    /// Maximum packet size, in bytes from the network header on; larger packets are dropped.
    pub mtu: ByteCount,
    /// Bytes of framing per packet on this link (38 for Ethernet with its gap), counted by the
    /// transmitter and not by the queue.
    pub overhead: ByteCount,
    /// Seed of all randomness.
    pub seed: u64,
}

impl LinkConfig {
    /// A clean link with a drop-tail queue of `queue` packets.
    pub fn new(rate: DataRate, delay: Duration, queue: u64) -> Self {
        Self {
            rate: RateSchedule::constant(rate),
            delay,
            queue: QueueConfig::DropTail(Limit::Packets(queue)),
            loss: LossConfig::None,
            jitter: None,
            reorder: None,
            duplicate: 0.0,
            mtu: ByteCount(65_535),
            overhead: ByteCount::ZERO,
            seed: 1,
        }
    }
}

/// A rate that changes at given times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RateSchedule {
    /// The rate from each time on; the first time is zero. `DataRate::MAX` means no limit,
    /// `DataRate::ZERO` a link that is down.
    pub steps: Vec<(Time, DataRate)>,
    /// Period after which the schedule restarts from zero; none: the last rate stays.
    pub period: Option<Duration>,
}

impl RateSchedule {
    /// A constant rate.
    pub fn constant(rate: DataRate) -> Self {
        Self { steps: vec![(Time::ZERO, rate)], period: None }
    }
}

/// The capacity of a queue, without the packet in transmission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// In packets.
    Packets(u64),
    /// In bytes.
    Bytes(ByteCount),
}

/// The discipline of a queue.
#[derive(Clone, Debug, PartialEq)]
pub enum QueueConfig {
    /// First come first served until it is full.
    DropTail(Limit),
    /// Random early detection (Floyd and Jacobson 1993).
    Red(RedConfig),
    /// Controlled delay (RFC 8289).
    CoDel(CoDelConfig),
}

/// RED's parameters; thresholds in packets of `mean_packet` bytes, as in ns-2.
#[derive(Clone, Debug, PartialEq)]
pub struct RedConfig {
    /// The physical limit.
    pub limit: Limit,
    /// Below this average no packet is dropped.
    pub min_threshold: f64,
    /// From this average on every packet is dropped (`Classic`), or the probability rises further.
    pub max_threshold: f64,
    /// Drop probability at `max_threshold` is the inverse of this (ns-2's `linterm_`).
    pub linterm: f64,
    /// Weight of the newest sample in the average.
    pub weight: f64,
    /// Bytes of a typical packet, for the idle correction.
    pub mean_packet: ByteCount,
    /// The variant.
    pub mode: RedMode,
}

impl RedConfig {
    /// The defaults of ns-2; for `RedMode::Classic` those before October 2004.
    pub fn ns2(limit: Limit, mode: RedMode) -> Self {
        Self {
            limit,
            min_threshold: 5.0,
            max_threshold: 15.0,
            linterm: 10.0,
            weight: 0.002,
            mean_packet: ByteCount(500),
            mode,
        }
    }
}

/// Variants of RED.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RedMode {
    /// All packets are dropped above the upper threshold (ns-2's default before October 2004, with
    /// thresholds 5 and 15, weight 0.002, linterm 10).
    Classic,
    /// The probability rises to one at twice the upper threshold.
    Gentle,
    /// Gentle, and `linterm` is adapted to keep the average half-way (Floyd, Gummadi and Shenker
    /// 2001).
    Adaptive,
}

/// CoDel's parameters (RFC 8289 section 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoDelConfig {
    /// The physical limit.
    pub limit: Limit,
    /// The target delay.
    pub target: Duration,
    /// How long the delay may exceed the target.
    pub interval: Duration,
}

impl CoDelConfig {
    /// The target of 5 ms and the interval of 100 ms of RFC 8289 section 4.
    pub fn new(limit: Limit) -> Self {
        Self { limit, target: Duration::from_millis(5), interval: Duration::from_millis(100) }
    }
}

/// Losses of the wire.
#[derive(Clone, Debug, PartialEq)]
pub enum LossConfig {
    /// Nothing.
    None,
    /// Each packet with this probability, independently.
    Independent(f64),
    /// Each bit is in error with this probability; a packet with an error is lost.
    BitError(f64),
    /// Two states with a loss probability each (Gilbert 1960, Elliott 1963), with one transition
    /// step per packet.
    GilbertElliott {
        /// Probability per packet of a transition from good to bad.
        to_bad: f64,
        /// Probability per packet of a transition from bad to good.
        to_good: f64,
        /// Loss probability in the good state.
        loss_good: f64,
        /// Loss probability in the bad state.
        loss_bad: f64,
    },
    /// The outcome of each packet in order, true for lost; then from the start again.
    Trace(Vec<bool>),
}

/// Variation of the delay between packets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum DelayVariation {
    /// Uniform between zero and this; packets keep their order.
    Uniform(Duration),
    /// Normal with this standard deviation around the link's delay, cut at zero; packets keep their
    /// order.
    Normal(Duration),
    /// Pareto with this mean and shape: rare long delays; packets keep their order.
    Pareto {
        /// Mean of the extra delay.
        mean: Duration,
        /// Above one; small values give a heavy tail.
        shape: f64,
    },
}

/// Some packets are delayed and overtaken.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReorderConfig {
    /// Share of packets.
    pub probability: f64,
    /// Their additional delay.
    pub extra: Duration,
}

/// An invalid value. `field` is the name in scenario files.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {what}")]
pub struct ConfigError {
    /// The field.
    pub field: &'static str,
    /// The error and its correction.
    pub what: String,
}
