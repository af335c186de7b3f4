//! What links are made of, as values. Who reads them from files checks them with `check`.

use packtrain_units::{ByteCount, DataRate, Duration, Time};

/// One direction of a link: a queue, a transmitter, a wire with its faults.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkConfig {
    /// How fast the transmitter is; changes by schedule. None: as fast as packets come.
    pub rate: RateSchedule,
    /// From the end of transmission to arrival.
    pub delay: Duration,
    /// What waits for the transmitter.
    pub queue: QueueConfig,
    /// What the wire loses, after transmission: a lost packet has used the link.
    pub loss: LossConfig,
    /// Extra delay that differs from packet to packet.
    pub jitter: Option<DelayVariation>,
    /// Packets that overtake others.
    pub reorder: Option<ReorderConfig>,
    /// Probability that a packet arrives twice.
    pub duplicate: f64,
    /// The largest packet, in bytes from the network header on; larger ones are dropped.
    pub mtu: ByteCount,
    /// Bytes that framing adds to each packet on this link (38 for Ethernet with its gap), charged
    /// by the transmitter and not by the queue.
    pub overhead: ByteCount,
    /// Seed of everything random in it.
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
    /// From each time on this rate; the first is at zero. `DataRate::MAX` is no limit at all,
    /// `DataRate::ZERO` a link that is down.
    pub steps: Vec<(Time, DataRate)>,
    /// After this span the schedule starts again from zero; none: the last rate stays.
    pub period: Option<Duration>,
}

impl RateSchedule {
    /// One rate for ever.
    pub fn constant(rate: DataRate) -> Self {
        Self { steps: vec![(Time::ZERO, rate)], period: None }
    }
}

/// How much a queue holds, the packet in transmission not counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// So many packets.
    Packets(u64),
    /// So many bytes.
    Bytes(ByteCount),
}

/// How a queue decides.
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
    /// Below this average nothing is dropped.
    pub min_threshold: f64,
    /// From this average on everything is dropped (`Classic`) or the probability rises further.
    pub max_threshold: f64,
    /// Drop probability at `max_threshold` is the inverse of this (ns-2's `linterm_`).
    pub linterm: f64,
    /// Weight of the newest sample in the average.
    pub weight: f64,
    /// Bytes of a typical packet, for the idle correction.
    pub mean_packet: ByteCount,
    /// Which of its forms.
    pub mode: RedMode,
}

impl RedConfig {
    /// What ns-2 does by default, in the version before October 2004 for `RedMode::Classic`.
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

/// RED's forms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RedMode {
    /// Everything is dropped above the upper threshold (ns-2's default before October 2004, with
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
    /// The delay it aims for.
    pub target: Duration,
    /// How long the delay may be above.
    pub interval: Duration,
}

impl CoDelConfig {
    /// The target of 5 ms and the interval of 100 ms of RFC 8289 section 4.
    pub fn new(limit: Limit) -> Self {
        Self { limit, target: Duration::from_millis(5), interval: Duration::from_millis(100) }
    }
}

/// What the wire loses.
#[derive(Clone, Debug, PartialEq)]
pub enum LossConfig {
    /// Nothing.
    None,
    /// Each packet with this probability, independently.
    Independent(f64),
    /// Each bit is in error with this probability; a packet with an error is lost.
    BitError(f64),
    /// Two states with a loss probability each (Gilbert 1960, Elliott 1963), a step a packet.
    GilbertElliott {
        /// From good to bad, a packet.
        to_bad: f64,
        /// From bad to good, a packet.
        to_good: f64,
        /// Loss in the good state.
        loss_good: f64,
        /// Loss in the bad state.
        loss_bad: f64,
    },
    /// The fate of each packet in turn, true for lost; then from the start again.
    Trace(Vec<bool>),
}

/// How the delay varies from packet to packet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum DelayVariation {
    /// Between nothing and this, evenly; packets keep their order.
    Uniform(Duration),
    /// Normal with this deviation around the link's delay, cut at zero; packets keep their order.
    Normal(Duration),
    /// Pareto with this mean and shape: rare long delays; packets keep their order.
    Pareto {
        /// Mean of the extra delay.
        mean: Duration,
        /// Above one; small is heavy.
        shape: f64,
    },
}

/// Some packets take longer and are overtaken.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReorderConfig {
    /// Share of packets.
    pub probability: f64,
    /// How much longer they take.
    pub extra: Duration,
}

/// What cannot be. `field` is named as scenario files name it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {what}")]
pub struct ConfigError {
    /// Which value.
    pub field: &'static str,
    /// What is wrong and what would be right.
    pub what: String,
}
