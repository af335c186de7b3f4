//! Points in time and spans between them, in integer nanoseconds.

use std::fmt;
use std::ops::{Add, AddAssign, Div, Mul, Sub, SubAssign};

use serde::{Deserialize, Serialize};

/// A point in time: nanoseconds since an epoch that the clock defines.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Time(u64);

/// A span of time in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Duration(u64);

impl Time {
    /// The epoch itself.
    pub const ZERO: Self = Self(0);
    /// The maximum time.
    pub const MAX: Self = Self(u64::MAX);

    /// The time `ns` nanoseconds after the epoch.
    pub const fn from_nanos(ns: u64) -> Self {
        Self(ns)
    }

    /// Nanoseconds since the epoch.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The span since `earlier`, or zero if `earlier` is later.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration(self.0.saturating_sub(earlier.0))
    }
}

impl Duration {
    /// Zero.
    pub const ZERO: Self = Self(0);
    /// The maximum span.
    pub const MAX: Self = Self(u64::MAX);

    /// `ns` nanoseconds.
    pub const fn from_nanos(ns: u64) -> Self {
        Self(ns)
    }

    /// `us` microseconds.
    pub const fn from_micros(us: u64) -> Self {
        Self(us.saturating_mul(1_000))
    }

    /// `ms` milliseconds.
    pub const fn from_millis(ms: u64) -> Self {
        Self(ms.saturating_mul(1_000_000))
    }

    /// `s` seconds.
    pub const fn from_secs(s: u64) -> Self {
        Self(s.saturating_mul(1_000_000_000))
    }

    /// `s` seconds, saturating; a negative number or NaN gives zero.
    pub fn from_secs_f64(s: f64) -> Self {
        Self((s * 1e9) as u64)
    }

    /// The span in nanoseconds.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The span in whole microseconds, rounded down.
    pub const fn as_micros(self) -> u64 {
        self.0 / 1_000
    }

    /// The span in whole milliseconds, rounded down.
    pub const fn as_millis(self) -> u64 {
        self.0 / 1_000_000
    }

    /// The span in seconds.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// The span times `factor`; a negative product or NaN gives zero.
    pub fn mul_f64(self, factor: f64) -> Self {
        Self((self.0 as f64 * factor) as u64)
    }

    /// The difference, or zero.
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// Whether the span is empty.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// The same span for the standard library.
    pub const fn to_std(self) -> std::time::Duration {
        std::time::Duration::from_nanos(self.0)
    }
}

impl From<std::time::Duration> for Duration {
    fn from(d: std::time::Duration) -> Self {
        Self(u64::try_from(d.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl Add<Duration> for Time {
    type Output = Self;
    fn add(self, d: Duration) -> Self {
        Self(self.0.saturating_add(d.0))
    }
}

impl AddAssign<Duration> for Time {
    fn add_assign(&mut self, d: Duration) {
        *self = *self + d;
    }
}

impl Sub<Duration> for Time {
    type Output = Self;
    fn sub(self, d: Duration) -> Self {
        Self(self.0.saturating_sub(d.0))
    }
}

impl Add for Duration {
    type Output = Self;
    fn add(self, d: Self) -> Self {
        Self(self.0.saturating_add(d.0))
    }
}

impl AddAssign for Duration {
    fn add_assign(&mut self, d: Self) {
        *self = *self + d;
    }
}

impl Sub for Duration {
    type Output = Self;
    fn sub(self, d: Self) -> Self {
        self.saturating_sub(d)
    }
}

impl SubAssign for Duration {
    fn sub_assign(&mut self, d: Self) {
        *self = *self - d;
    }
}

impl Mul<u64> for Duration {
    type Output = Self;
    fn mul(self, n: u64) -> Self {
        Self(self.0.saturating_mul(n))
    }
}

impl Div<u64> for Duration {
    type Output = Self;
    /// Rounded down; the maximum span for a division by zero.
    fn div(self, n: u64) -> Self {
        self.0.checked_div(n).map_or(Self::MAX, Self)
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "t+{}", Duration(self.0))
    }
}

impl fmt::Debug for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Duration {
    /// As people read it, with the precision that they need: `850 us`, `21 ms`, `8.0 s`, `25 s`,
    /// `12 min`, `3 h 20 min`, `7 days`.
    pub fn to_readable(self) -> String {
        let minutes = (self.as_secs_f64() / 60.0).round() as u64;
        match self.as_secs_f64() {
            s if s < 0.000_999_5 => format!("{:.0} us", s * 1e6),
            s if s < 0.999_5 => format!("{:.0} ms", s * 1e3),
            s if s < 9.95 => format!("{s:.1} s"),
            s if s < 119.5 => format!("{s:.0} s"),
            _ if minutes < 120 => format!("{minutes} min"),
            _ if minutes < 48 * 60 && minutes.is_multiple_of(60) => format!("{} h", minutes / 60),
            _ if minutes < 48 * 60 => format!("{} h {} min", minutes / 60, minutes % 60),
            s => format!("{:.0} days", s / 86_400.0),
        }
    }
}

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            ns if ns < 1_000 => write!(f, "{ns}ns"),
            ns if ns < 1_000_000 => write!(f, "{}us", ns as f64 / 1e3),
            ns if ns < 1_000_000_000 => write!(f, "{}ms", ns as f64 / 1e6),
            ns => write!(f, "{}s", ns as f64 / 1e9),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn durations_are_read_by_people() {
        let shown = |seconds: f64| Duration::from_secs_f64(seconds).to_readable();
        assert_eq!(shown(0.000_85), "850 us");
        assert_eq!(shown(0.021), "21 ms");
        assert_eq!(
            [1.0, 8.0, 9.94, 25.4, 119.0].map(shown),
            ["1.0 s", "8.0 s", "9.9 s", "25 s", "119 s"]
        );
        assert_eq!([120.0, 725.0, 3600.0].map(shown), ["2 min", "12 min", "60 min"]);
        assert_eq!([7200.0, 12_000.0, 169_200.0].map(shown), ["2 h", "3 h 20 min", "47 h"]);
        assert_eq!([172_800.0, 604_800.0].map(shown), ["2 days", "7 days"]);
        assert!(Duration::MAX.to_readable().ends_with(" days"));
    }

    #[test]
    fn time_saturates_at_both_ends() {
        assert_eq!(Time::MAX + Duration::from_secs(1), Time::MAX);
        assert_eq!(Time::ZERO.since(Time::MAX), Duration::ZERO);
        assert_eq!(Duration::from_secs(u64::MAX), Duration::MAX);
        assert_eq!(Duration::from_millis(u64::MAX), Duration::MAX);
        assert_eq!(Duration::MAX + Duration::from_nanos(1), Duration::MAX);
        assert_eq!(Duration::MAX * 2, Duration::MAX);
        assert_eq!(Duration::ZERO - Duration::MAX, Duration::ZERO);
        assert_eq!(Duration::from_secs(1) / 0, Duration::MAX);
    }

    #[test]
    fn undefined_spans_are_zero_and_endless_ones_the_longest() {
        for s in [f64::NAN, -1.0, f64::NEG_INFINITY] {
            assert_eq!(Duration::from_secs_f64(s), Duration::ZERO);
            assert_eq!(Duration::from_secs(1).mul_f64(s), Duration::ZERO);
        }
        assert_eq!(Duration::from_secs_f64(f64::INFINITY), Duration::MAX);
        assert_eq!(Duration::MAX.mul_f64(2.0), Duration::MAX);
        assert_eq!(Duration::ZERO.mul_f64(f64::INFINITY), Duration::ZERO);
    }

    #[test]
    fn the_standard_duration_and_back() {
        let d = Duration::from_micros(1_234_567);
        assert_eq!(Duration::from(d.to_std()), d);
        assert_eq!(Duration::from(std::time::Duration::MAX), Duration::MAX);
        assert_eq!((d.as_micros(), d.as_millis()), (1_234_567, 1_234));
        assert_eq!((d / 1_000).to_string(), "1.234567ms");
    }

    proptest! {
        #[test]
        fn a_point_plus_a_span_is_that_span_later(t in 0..u64::MAX / 2, d in 0..u64::MAX / 2) {
            let (t, d) = (Time::from_nanos(t), Duration::from_nanos(d));
            prop_assert_eq!((t + d).since(t), d);
            prop_assert!(t + d >= t);
        }
    }
}
