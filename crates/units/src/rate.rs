//! Rates in bits per second.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{ByteCount, Duration};

/// A data rate in bits per second.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct DataRate(u64);

impl DataRate {
    /// Zero.
    pub const ZERO: Self = Self(0);
    /// The maximum rate.
    pub const MAX: Self = Self(u64::MAX);

    /// `bps` bits per second.
    pub const fn from_bps(bps: u64) -> Self {
        Self(bps)
    }

    /// `mbit` megabits (10^6 bits) per second.
    pub const fn from_mbps(mbit: u64) -> Self {
        Self(mbit.saturating_mul(1_000_000))
    }

    /// The rate that moves `bytes` in `span`; the maximum rate if `span` is zero.
    pub fn from_bytes_over(bytes: ByteCount, span: Duration) -> Self {
        if span.is_zero() {
            return Self::MAX;
        }
        let bits = u128::from(bytes.get()) * 8 * 1_000_000_000;
        Self(u64::try_from(bits / u128::from(span.as_nanos())).unwrap_or(u64::MAX))
    }

    /// Bits per second.
    pub const fn as_bps(self) -> u64 {
        self.0
    }

    /// Bytes per second, rounded down.
    pub const fn bytes_per_sec(self) -> u64 {
        self.0 / 8
    }

    /// The time for `bytes` at this rate, rounded down; the maximum duration at rate zero.
    pub fn time_for(self, bytes: ByteCount) -> Duration {
        if self.0 == 0 {
            return Duration::MAX;
        }
        let ns = u128::from(bytes.get()) * 8 * 1_000_000_000 / u128::from(self.0);
        Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
    }

    /// The bytes that pass in `span`, rounded down.
    pub fn bytes_in(self, span: Duration) -> ByteCount {
        let bytes = u128::from(self.0) * u128::from(span.as_nanos()) / 8_000_000_000;
        ByteCount(u64::try_from(bytes).unwrap_or(u64::MAX))
    }

    /// The rate times `factor`; a negative product or NaN gives zero.
    pub fn mul_f64(self, factor: f64) -> Self {
        Self((self.0 as f64 * factor) as u64)
    }
}

impl fmt::Debug for DataRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for DataRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bps = self.0 as f64;
        match self.0 {
            n if n >= 1_000_000_000 => write!(f, "{:.2} Gbit/s", bps / 1e9),
            n if n >= 1_000_000 => write!(f, "{:.1} Mbit/s", bps / 1e6),
            n if n >= 1_000 => write!(f, "{:.1} kbit/s", bps / 1e3),
            n => write!(f, "{n} bit/s"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ends_of_the_scale_saturate() {
        let second = Duration::from_secs(1);
        assert_eq!(DataRate::from_bytes_over(ByteCount(1), Duration::ZERO), DataRate::MAX);
        assert_eq!(
            DataRate::from_bytes_over(ByteCount(u64::MAX), Duration::from_nanos(1)),
            DataRate::MAX
        );
        assert_eq!(DataRate::ZERO.time_for(ByteCount(1)), Duration::MAX);
        assert_eq!(DataRate::from_bps(1).time_for(ByteCount(u64::MAX)), Duration::MAX);
        assert_eq!(DataRate::MAX.bytes_in(Duration::MAX), ByteCount(u64::MAX));
        assert_eq!(DataRate::ZERO.bytes_in(Duration::MAX), ByteCount::ZERO);
        assert_eq!(DataRate::from_mbps(u64::MAX), DataRate::MAX);
        assert_eq!(DataRate::MAX.mul_f64(2.0), DataRate::MAX);
        assert_eq!(DataRate::from_mbps(1).mul_f64(f64::NAN), DataRate::ZERO);
        assert_eq!(DataRate::from_mbps(1).mul_f64(-1.0), DataRate::ZERO);
        assert_eq!(DataRate::from_mbps(80).bytes_in(second), ByteCount(10_000_000));
        assert_eq!(DataRate::from_mbps(80).bytes_per_sec(), 10_000_000);
    }

    #[test]
    fn prints_in_the_unit_that_fits() {
        let text = |bps| DataRate::from_bps(bps).to_string();
        assert_eq!(text(999), "999 bit/s");
        assert_eq!(text(1_500), "1.5 kbit/s");
        assert_eq!(text(500_000_000), "500.0 Mbit/s");
        assert_eq!(text(12_340_000_000), "12.34 Gbit/s");
    }

    proptest! {
        #[test]
        fn rate_time_and_bytes_agree(bps in 1_000..400_000_000_000u64, bytes in 1..1u64 << 44) {
            let (rate, bytes) = (DataRate::from_bps(bps), ByteCount(bytes));
            let time = rate.time_for(bytes);
            // Rounded down twice: less than a nanosecond's worth and one byte are missing.
            let passed = rate.bytes_in(time);
            prop_assert!(passed <= bytes);
            prop_assert!((bytes - passed).get() <= 1 + bps / 8_000_000_000 + 1);
            let back = DataRate::from_bytes_over(bytes, time.max(Duration::from_nanos(1)));
            if time > Duration::from_millis(1) {
                let error = back.as_bps().abs_diff(bps) as f64 / bps as f64;
                prop_assert!(error < 1e-5, "{} {}", rate, back);
            }
        }
    }
}
