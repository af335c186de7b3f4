//! Careful resume (draft-ietf-tsvwg-careful-resume): what an earlier flow measured of the path, and
//! when a launch may rely on it.

use crate::interface::SavedPath;

/// The round trips at which the path may be that of the earlier flow, in multiples of its own.
const LIKE_SAVED: std::ops::RangeInclusive<f64> = 0.5..=10.0;

/// What an earlier flow measured.
#[derive(Debug)]
pub(super) struct Saved {
    /// The rate in bytes per second.
    pub(super) rate: f64,
    /// The minimum round trip in seconds.
    rtt: f64,
    /// Whether the launch went to a part of the rate.
    pub(super) in_force: bool,
}

impl Saved {
    pub(super) fn new(saved: SavedPath) -> Self {
        let rate = saved.rate.as_bps() as f64 / 8.0;
        Self { rate, rtt: saved.rtt.as_secs_f64(), in_force: false }
    }

    /// Whether the launch may go by it: the round trip is like that of the earlier flow, and all of
    /// the first packets arrived.
    pub(super) fn is_usable(&self, base: f64, lossy: bool) -> bool {
        LIKE_SAVED.contains(&(base / self.rtt)) && (self.in_force || !lossy)
    }
}

#[cfg(test)]
mod tests {
    use packtrain_units::{DataRate, Duration};

    use super::*;

    #[test]
    fn another_round_trip_or_an_early_loss_is_another_path() {
        let (rate, rtt) = (DataRate::from_mbps(800), Duration::from_millis(100));
        let mut saved = Saved::new(SavedPath { rate, rtt });
        assert_eq!(saved.rate, 100e6);
        for (base, usable) in [(0.1, true), (0.06, true), (0.9, true), (0.04, false), (1.1, false)]
        {
            assert_eq!(saved.is_usable(base, false), usable, "{base}");
            assert!(!saved.is_usable(base, true), "{base}");
        }
        saved.in_force = true;
        assert!(saved.is_usable(0.1, true), "losses at random");
        assert!(!saved.is_usable(0.01, true));
    }
}
