//! Recognises the probes of BBR in the queue.
//!
//! BBR raises its rate by a quarter for one round trip in eight and lowers it for the next one. The
//! queue rises for one round and is short before and after, so it never stands, and a window
//! governed by delay yields to each probe. A launch fills the queue higher and for more than a round
//! or two. Many flows of the own kind may swing together, but in five or six rounds.

/// Rounds in which probes are counted, and their minimum number in a row: BBR's period of eight rounds
/// is contained four times.
pub(super) const PROBE_ROUNDS: usize = 36;
const MIN_PROBES: u32 = 4;
/// Two rounds nearer than this have the same probe.
const MIN_SPACING: usize = 3;
/// Rounds from one probe to the next: BBR's period in rounds of this flow.
const PERIOD: std::ops::RangeInclusive<usize> = 7..=10;
/// By how much the queue of a probe exceeds that of two rounds before and two rounds after, in base
/// round trips: a quarter in addition for one round trip, less what the window gives way.
const RISE: std::ops::Range<f64> = 1.0 / 12.0..0.375;

/// Whether the queues of rounds, newest first, show probes of more than `min` on a path with the base
/// round trip `base`; all in seconds.
pub(super) fn are_probed(queues: &[f64], base: f64, min: f64) -> bool {
    let Some(queues) = queues.get(..PROBE_ROUNDS) else { return false };
    let (mut probes, mut last) = (0, None);
    for (i, around) in queues.windows(5).enumerate() {
        let rise = (around[2] - around[0].max(around[4])) / base;
        let is_probe = rise * base > min && RISE.contains(&rise);
        let spacing = last.map(|last| i - last);
        if !is_probe || spacing.is_some_and(|spacing| spacing < MIN_SPACING) {
            continue;
        }
        let follows = spacing.is_some_and(|spacing| PERIOD.contains(&spacing));
        probes = if follows { probes + 1 } else { 1 };
        last = Some(i);
        if probes >= MIN_PROBES {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rounds of a queue of 4 ms that is longer in the first `width` of every `period` rounds.
    fn queues(period: usize, width: usize) -> Vec<f64> {
        let of = |i: usize| if i % period < width { 0.02 } else { 0.004 };
        (0..48).map(of).collect()
    }

    #[test]
    fn short_peaks_each_eight_rounds_are_probes() {
        for width in [1, 2] {
            assert!(are_probed(&queues(8, width), 0.1, 0.006), "{width}");
        }
        assert!(!are_probed(&queues(8, 1)[..PROBE_ROUNDS - 1], 0.1, 0.006), "too few rounds");
    }

    #[test]
    fn rare_long_low_or_high_peaks_and_a_steady_queue_are_not() {
        assert!(!are_probed(&queues(16, 1), 0.1, 0.006), "rare");
        for period in [5, 6] {
            assert!(!are_probed(&queues(period, 1), 0.1, 0.006), "a swing of {period} rounds");
        }
        assert!(!are_probed(&queues(8, 5), 0.1, 0.006), "long");
        assert!(!are_probed(&queues(8, 1), 0.1, 0.02), "low");
        assert!(!are_probed(&queues(8, 1), 0.01, 0.005), "higher than BBR's");
        assert!(!are_probed(&[0.02; 48], 0.1, 0.006), "steady");
    }
}
