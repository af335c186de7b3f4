//! Delay around the losses of a window.

use serde::{Deserialize, Serialize};

use packtrain_units::Duration;

/// One-way delay around the losses of a window.
///
/// Each value is a rise above the window's minimum one-way delay, so the clocks of the two ends
/// need not agree. `before` and `after` are medians over the runs of lost packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DelayAround {
    /// Of the last packet received before a run of losses.
    #[serde(with = "micros")]
    pub before: Duration,
    /// Of the first packet received after a run of losses.
    #[serde(with = "micros")]
    pub after: Duration,
    /// Median over all packets received.
    #[serde(with = "micros")]
    pub typical: Duration,
    /// Maximum of all packets received.
    #[serde(with = "micros")]
    pub most: Duration,
}

/// The delay by two clocks of the receiver, where available.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delay {
    /// Timestamped when a packet arrived at the host (the kernel's timestamps): a descheduled
    /// process does not affect it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arrival: Option<DelayAround>,
    /// Timestamped when the process read the packet: it includes the wait in the socket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read: Option<DelayAround>,
}

/// Microseconds in files.
mod micros {
    use packtrain_units::Duration;
    use serde::{Deserialize as _, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(value: &Duration, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_f64(value.as_nanos() as f64 / 1e3)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(input: D) -> Result<Duration, D::Error> {
        let micros = f64::deserialize(input)?;
        // A day exceeds any delay; NaN becomes zero.
        Ok(Duration::from_nanos((micros.clamp(0.0, 86_400e6) * 1e3) as u64))
    }
}
