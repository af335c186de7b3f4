//! Checks of configurations.

use packtrain_units::{ByteCount, DataRate, Duration, Time};

use crate::config::{
    CoDelConfig, ConfigError, DelayVariation, Limit, LinkConfig, LossConfig, QueueConfig,
    RateSchedule, RedConfig,
};

/// The error of `field`, unless `right`.
pub(crate) fn ensure(
    right: bool,
    field: &'static str,
    what: impl FnOnce() -> String,
) -> Result<(), ConfigError> {
    if right { Ok(()) } else { Err(ConfigError { field, what: what() }) }
}

/// Maximum size of a packet.
const MAX_PACKET_BYTES: ByteCount = ByteCount(65_535);

impl LinkConfig {
    /// Refuses an invalid configuration, with the field and a valid value.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.rate.check()?;
        ensure(self.delay < Duration::MAX, "delay", || "must have an end".to_owned())?;
        ensure(self.mtu > ByteCount::ZERO && self.mtu <= MAX_PACKET_BYTES, "mtu", || {
            format!("{} carries nothing: between 1 and 65535 bytes", self.mtu)
        })?;
        ensure(self.overhead <= MAX_PACKET_BYTES, "overhead", || {
            format!("{} is no framing: at most 65535 bytes, 38 for Ethernet", self.overhead)
        })?;
        self.queue.check(self.mtu)?;
        self.loss.check()?;
        if let Some(jitter) = &self.jitter {
            jitter.check()?;
        }
        if let Some(reorder) = &self.reorder {
            probability(reorder.probability, "reorder.probability")?;
            ensure(!reorder.extra.is_zero(), "reorder.extra", || {
                "a packet without extra delay is not overtaken: such as 1ms".to_owned()
            })?;
        }
        probability(self.duplicate, "duplicate")
    }
}

impl RateSchedule {
    /// Refuses an invalid schedule.
    pub fn check(&self) -> Result<(), ConfigError> {
        let Some((first, _)) = self.steps.first() else {
            return ensure(false, "rate", || "at least one rate is needed".to_owned());
        };
        ensure(*first == Time::ZERO, "rate", || {
            format!("the first rate must hold from time zero, not from {first:?}")
        })?;
        ensure(self.steps.is_sorted_by(|a, b| a.0 < b.0), "rate", || {
            "times must ascend from step to step".to_owned()
        })?;
        ensure(self.steps.iter().any(|(_, rate)| *rate != DataRate::ZERO), "rate", || {
            "a link that is always down carries nothing: one rate must be above zero".to_owned()
        })?;
        let last = self.steps.last().map_or(Time::ZERO, |step| step.0);
        let short = self.period.is_some_and(|period| Time::ZERO + period <= last);
        ensure(!short, "period", || {
            format!("must be longer than {}, when the last step begins", last.since(Time::ZERO))
        })
    }
}

impl QueueConfig {
    /// Refuses an invalid queue for a link that carries packets up to `mtu`.
    fn check(&self, mtu: ByteCount) -> Result<(), ConfigError> {
        match self {
            Self::DropTail(limit) => limit.check(mtu),
            Self::Red(red) => red.limit.check(mtu).and_then(|()| red.check()),
            Self::CoDel(codel) => codel.limit.check(mtu).and_then(|()| codel.check()),
        }
    }
}

impl Limit {
    fn check(self, mtu: ByteCount) -> Result<(), ConfigError> {
        match self {
            Self::Packets(n) => ensure(n > 0, "queue.limit", || {
                "0 packets is below one packet: at least 1".to_owned()
            }),
            // The size of a full packet is checked only if the link's mtu is set.
            Self::Bytes(bytes) => {
                let min_bytes = if mtu == MAX_PACKET_BYTES { ByteCount(1) } else { mtu };
                ensure(bytes >= min_bytes, "queue.limit", || {
                    format!("{bytes} is below one packet: at least the mtu, {}", min_bytes.get())
                })
            }
        }
    }
}

impl RedConfig {
    fn check(&self) -> Result<(), ConfigError> {
        let (low, high) = (self.min_threshold, self.max_threshold);
        ensure(low >= 0.0 && low.is_finite(), "queue.min_threshold", || {
            format!("{low} is not a number of packets: 0 or more")
        })?;
        ensure(high > low && high.is_finite(), "queue.max_threshold", || {
            format!("{high} must be above min_threshold, {low}")
        })?;
        ensure(self.linterm >= 1.0 && self.linterm.is_finite(), "queue.linterm", || {
            format!("{} is not the inverse of a probability: at least 1, such as 10", self.linterm)
        })?;
        ensure(self.weight > 0.0 && self.weight <= 1.0, "queue.weight", || {
            format!("{} must be above 0 and at most 1, such as 0.002", self.weight)
        })?;
        ensure(self.mean_packet > ByteCount::ZERO, "queue.mean_packet", || {
            "must be more than nothing, such as 500 bytes".to_owned()
        })
    }
}

impl CoDelConfig {
    fn check(&self) -> Result<(), ConfigError> {
        ensure(!self.target.is_zero(), "queue.target", || {
            "must be longer than nothing, such as 5ms".to_owned()
        })?;
        ensure(self.interval > self.target, "queue.interval", || {
            format!("{} must be longer than the target, {}", self.interval, self.target)
        })
    }
}

impl LossConfig {
    fn check(&self) -> Result<(), ConfigError> {
        match self {
            Self::None => Ok(()),
            Self::Independent(p) => probability(*p, "loss"),
            Self::BitError(p) => probability(*p, "loss.bit_error"),
            Self::GilbertElliott { to_bad, to_good, loss_good, loss_bad } => {
                probability(*to_bad, "loss.to_bad")?;
                probability(*to_good, "loss.to_good")?;
                probability(*loss_good, "loss.loss_good")?;
                probability(*loss_bad, "loss.loss_bad")
            }
            Self::Trace(outcomes) => ensure(!outcomes.is_empty(), "loss.trace", || {
                "a trace needs at least one packet".to_owned()
            }),
        }
    }
}

impl DelayVariation {
    fn check(&self) -> Result<(), ConfigError> {
        let (span, shape) = match *self {
            Self::Uniform(span) | Self::Normal(span) => (span, 2.0),
            Self::Pareto { mean, shape } => (mean, shape),
        };
        ensure(span < Duration::MAX, "jitter", || "must have an end".to_owned())?;
        ensure(shape > 1.0 && shape.is_finite(), "jitter.shape", || {
            format!("{shape} has no mean: above 1, such as 2.5")
        })
    }
}

fn probability(p: f64, field: &'static str) -> Result<(), ConfigError> {
    // NaN is outside every range.
    ensure((0.0..=1.0).contains(&p), field, || format!("{p} is no probability: between 0 and 1"))
}

#[cfg(test)]
#[path = "check_tests.rs"]
mod tests;
