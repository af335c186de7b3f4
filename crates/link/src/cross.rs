//! Cross traffic: packets without acknowledgements.

use packtrain_units::{ByteCount, DataRate, Duration, Rng, Time};

use crate::check::ensure;
use crate::config::ConfigError;
use crate::element::{Count, Pace};
use crate::random::{exponential, pareto};

/// Traffic that does not react to the network.
#[derive(Clone, Debug, PartialEq)]
pub struct CrossConfig {
    /// Bytes of each packet from the network header on.
    pub packet: ByteCount,
    /// The arrival process.
    pub kind: CrossKind,
}

/// The arrival process of cross traffic.
#[derive(Clone, Debug, PartialEq)]
pub enum CrossKind {
    /// Constant gaps, at a rate that changes at given times after the start; rate zero means no
    /// packets.
    Cbr(Vec<(Time, DataRate)>),
    /// With exponential gaps, at this mean rate.
    Poisson(DataRate),
    /// Bursts at this rate, with silence between; the durations of both are Pareto distributed with
    /// this shape.
    ParetoOnOff {
        /// Rate of a burst.
        rate: DataRate,
        /// Mean duration of a burst.
        on: Duration,
        /// Mean duration of a silence.
        off: Duration,
        /// Between one and two for long-range dependence.
        shape: f64,
    },
    /// Bursts of packets back to back at the rate of the sending interface, with exponential gaps,
    /// at this mean rate: a sender with segmentation offload.
    Bursts {
        /// Packets of a burst.
        packets: u32,
        /// Rate within a burst.
        line: DataRate,
        /// Mean rate.
        mean: DataRate,
    },
}

impl CrossConfig {
    /// Refuses an invalid configuration.
    pub fn check(&self) -> Result<(), ConfigError> {
        ensure(self.packet > ByteCount::ZERO && self.packet.get() <= 65_535, "packet", || {
            format!("{} is no size of a packet: between 1 and 65535 bytes", self.packet)
        })?;
        match &self.kind {
            CrossKind::Cbr(steps) => {
                ensure(!steps.is_empty(), "steps", || "at least one rate is needed".to_owned())?;
                ensure(steps.is_sorted_by(|a, b| a.0 < b.0), "steps", || {
                    "times must ascend from step to step".to_owned()
                })?;
                ensure(steps.iter().all(|step| step.1 != DataRate::MAX), "steps", || {
                    "a rate must have an end, such as 10mbit".to_owned()
                })
            }
            CrossKind::Poisson(rate) => positive_rate(*rate, "rate"),
            CrossKind::ParetoOnOff { rate, on, off, shape } => {
                positive_rate(*rate, "rate")?;
                ensure(!on.is_zero(), "on", || "must be longer than nothing".to_owned())?;
                ensure(!off.is_zero(), "off", || "must be longer than nothing".to_owned())?;
                ensure(*shape > 1.0 && shape.is_finite(), "shape", || {
                    format!("{shape} has no mean: above 1, such as 1.5")
                })
            }
            CrossKind::Bursts { packets, line, mean } => {
                ensure(*packets > 0, "packets", || "a burst has at least one packet".to_owned())?;
                positive_rate(*mean, "mean")?;
                ensure(line > mean, "line", || {
                    format!("{line} must be more than the mean rate, {mean}")
                })
            }
        }
    }
}

fn positive_rate(rate: DataRate, field: &'static str) -> Result<(), ConfigError> {
    ensure(rate != DataRate::ZERO && rate != DataRate::MAX, field, || {
        "must be more than nothing and have an end, such as 10mbit".to_owned()
    })
}

/// Generates cross traffic: trains of packets with their sending times, from time zero on.
///
/// The packets and their times do not depend on the requested lengths of trains.
#[derive(Clone, Debug)]
pub struct Cross {
    size: u32,
    number: u64,
    rng: Rng,
    source: Source,
    /// The rest of the train generated last.
    ready: Option<(Pace, u64)>,
}

#[derive(Clone, Debug)]
enum Source {
    Cbr { steps: Vec<(Time, DataRate)>, step: usize, block: u64 },
    Poisson { mean: Duration, now: Time },
    OnOff { gap: Duration, on: Duration, off: Duration, shape: f64, now: Time },
    Bursts { packets: u32, gap: Duration, pause: Duration, now: Time },
}

/// Packets of constant rate are generated in blocks of equal gaps. Each block starts at the exact
/// time to the nanosecond, so that rounding errors of gaps do not add up.
const BLOCK: u64 = 64;

impl Cross {
    /// Creates the traffic of this kind with this seed.
    pub fn new(config: &CrossConfig, seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let spacing = |rate: DataRate| nearest(1, config.packet, rate);
        let source = match &config.kind {
            CrossKind::Cbr(steps) => Source::Cbr { steps: steps.clone(), step: 0, block: 0 },
            CrossKind::Poisson(rate) => {
                let mean = spacing(*rate);
                let now = Time::ZERO + exponential(&mut rng, mean);
                Source::Poisson { mean, now }
            }
            &CrossKind::ParetoOnOff { rate, on, off, shape } => {
                // Start with silence, so that several generators do not start together.
                let now = Time::ZERO + pareto(&mut rng, off, shape);
                Source::OnOff { gap: spacing(rate), on, off, shape, now }
            }
            &CrossKind::Bursts { packets, line, mean } => {
                let every = nearest(u64::from(packets), config.packet, mean);
                let pause = every - nearest(u64::from(packets), config.packet, line);
                let now = Time::ZERO + exponential(&mut rng, pause);
                Source::Bursts { packets, gap: spacing(line), pause, now }
            }
        };
        let size = u32::try_from(config.packet.get()).unwrap_or(u32::MAX);
        Self { size, number: 0, rng, source, ready: None }
    }

    /// The next packets, at most `max_count`; `None` if there are no more.
    pub fn next_train(&mut self, max_count: u32) -> Option<(Pace, Count)> {
        let (pace, left) = match self.ready.take() {
            Some(ready) => ready,
            None => self.make()?,
        };
        let count = u32::try_from(left).unwrap_or(u32::MAX).min(max_count.max(1));
        if u64::from(count) < left {
            self.ready = Some((pace.from(count), left - u64::from(count)));
        }
        let train = Count { count, size: self.size, first: self.number };
        self.number += u64::from(count);
        Some((pace, train))
    }

    fn make(&mut self) -> Option<(Pace, u64)> {
        let (size, rng) = (ByteCount(u64::from(self.size)), &mut self.rng);
        let (pace, count) = match &mut self.source {
            Source::Cbr { steps, step, block } => return constant(size, steps, step, block),
            Source::Poisson { mean, now } => {
                let pace = Pace::at(*now);
                *now += exponential(rng, *mean);
                (pace, 1)
            }
            Source::OnOff { gap, on, off, shape, now } => {
                let length = pareto(rng, *on, *shape);
                let count = length.as_nanos().checked_div(gap.as_nanos()).unwrap_or(1).max(1);
                let pace = Pace { first: *now, gap: *gap };
                *now = *now + *gap * count + pareto(rng, *off, *shape);
                (pace, count)
            }
            Source::Bursts { packets, gap, pause, now } => {
                let pace = Pace { first: *now, gap: *gap };
                *now = pace.time(*packets) + exponential(rng, *pause);
                (pace, u64::from(*packets))
            }
        };
        // No packet is sent at the end of time.
        (pace.first < Time::MAX).then_some((pace, count))
    }
}

/// The next block of packets at a rate that changes by steps.
fn constant(
    size: ByteCount,
    steps: &[(Time, DataRate)],
    step: &mut usize,
    block: &mut u64,
) -> Option<(Pace, u64)> {
    loop {
        let (start, rate) = *steps.get(*step)?;
        let end = steps.get(*step + 1).map_or(Time::MAX, |next| next.0);
        if rate != DataRate::ZERO {
            let first = start + nearest(*block * BLOCK, size, rate);
            let next = start + nearest((*block + 1) * BLOCK, size, rate);
            if first < end {
                let gap = next.since(first) / BLOCK;
                let room = end.since(first).as_nanos();
                let fit = room.div_ceil(gap.as_nanos().max(1)).clamp(1, BLOCK);
                *block += 1;
                return Some((Pace { first, gap }, fit));
            }
        }
        (*step, *block) = (*step + 1, 0);
    }
}

/// The time for `n` packets at `rate`, to the nearest nanosecond.
fn nearest(n: u64, size: ByteCount, rate: DataRate) -> Duration {
    let work = u128::from(n) * u128::from(size.get()) * 8_000_000_000;
    let bps = u128::from(rate.as_bps()).max(1);
    Duration::from_nanos(u64::try_from((work + bps / 2) / bps).unwrap_or(u64::MAX))
}

#[cfg(test)]
#[path = "cross_tests.rs"]
mod tests;
