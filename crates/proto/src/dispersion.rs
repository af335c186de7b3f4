//! Measures how far the narrowest link spreads packets that were sent back to back.
//!
//! Arrival timestamps are coarse: hosts coalesce packets, and network cards and emulators deliver
//! at the end of a tick all packets of that tick. A gap between two single packets is therefore not
//! evidence. This estimator measures from the end of one cluster of timestamps to the end of
//! another, over a run of packets that were sent back to back, and only if that takes much longer
//! than a tick. A shorter run with many packets still gives an upper bound on the time per packet.

use packtrain_units::Duration;

/// Minimum measured span: twice the usual delay of ticks and threads.
pub(crate) const MIN_SPAN: Duration = Duration::from_micros(500);
/// Minimum span of a first measurement that is confirmed by others before it is relied on: it may be
/// wrong by a third.
pub(crate) const MIN_COARSE_SPAN: Duration = Duration::from_micros(300);
/// Minimum packets within the measured span.
const MIN_PACKETS: u64 = 4;
/// Lower limit of the span reported in [`Spread::AtMost`], because a tick can hide more of it. Such
/// a bound is used only where no run could be measured.
const MIN_BOUND_SPAN: Duration = Duration::from_micros(20);
/// Minimum packets in a run that is too short to measure, for it to give a bound.
const MIN_BOUND_PACKETS: u64 = 32;
/// With fewer timestamps than this, each counts as the end of a cluster.
const MIN_CLUSTER_STAMPS: usize = 4;
/// With one gap, packets count as evenly spread if that gap is shorter than this fraction of the
/// span.
const EVEN_GAPS: u64 = 8;
/// A gap longer than this, and than this fraction of the span, is no work of the link: hosts and
/// network cards hold packets back for less.
const MAX_GAP: Duration = Duration::from_millis(1);
const HELD_UP: u64 = 4;
/// A run is cut after this many timestamps.
const MAX_STAMPS: usize = 512;

/// The timestamps of a run that is still growing.
#[derive(Debug, Default)]
pub(crate) struct Run {
    stamps: Vec<Stamp>,
}

/// Packets since the first timestamp of the run, and nanoseconds since it.
type Stamp = (u64, u64);

/// The result of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spread {
    /// The time that the packets took.
    Measured {
        /// Number of packets.
        packets: u64,
        /// Their time.
        span: Duration,
    },
    /// The run was too short to measure: an upper bound on the time that the packets took.
    AtMost {
        /// Number of packets.
        packets: u64,
        /// The upper bound.
        span: Duration,
    },
    /// No result.
    TooShort,
}

impl Run {
    /// Adds a timestamp: `packets` more packets arrived, the last of them `after` the previous
    /// timestamp.
    pub(crate) fn push(&mut self, packets: u64, after: Duration) {
        let (had, at) = self.stamps.last().copied().unwrap_or_default();
        self.stamps.push((had + packets, at.saturating_add(after.as_nanos())));
    }

    /// Time from the first to the last timestamp.
    pub(crate) fn span(&self) -> Duration {
        Duration::from_nanos(self.stamps.last().map_or(0, |(_, at)| *at))
    }

    /// Whether the run has reached its maximum length.
    pub(crate) fn is_full(&self) -> bool {
        self.stamps.len() >= MAX_STAMPS
    }

    /// Whether one more timestamp makes the run long enough for `finish` to drop its last
    /// timestamp, which may lie within a cluster.
    pub(crate) fn is_long(&self) -> bool {
        self.stamps.len() + 1 >= MIN_CLUSTER_STAMPS
    }

    /// Whether the run is long enough to measure: it takes `least` at least.
    pub(crate) fn is_measured(&self, least: Duration) -> bool {
        !self.stamps.is_empty() && matches!(self.spread(least), Spread::Measured { .. })
    }

    /// Ends the run and returns its result, measured if it takes `least` at least.
    pub(crate) fn finish(&mut self, least: Duration) -> Spread {
        let spread = self.spread(least);
        self.stamps.clear();
        spread
    }

    fn spread(&self, least: Duration) -> Spread {
        // The run may have ended within its last cluster.
        let whole = if self.stamps.len() < MIN_CLUSTER_STAMPS { 0 } else { 1 };
        let stamps = &self.stamps[..self.stamps.len() - whole];
        let (packets, span) = stamps.last().copied().unwrap_or_default();
        let ends = ends(stamps, packets, span);
        let (from, to) = match (ends.0, ends.1) {
            // Evenly spread.
            (None, _) => ((0, 0), (packets, span)),
            (Some(from), Some(to)) => (from, to),
            // A report that went out within a cluster cuts it in two.
            (Some(_), None) if longest_gap(0, stamps) <= span / EVEN_GAPS => {
                ((0, 0), (packets, span))
            }
            (Some(_), None) => return bound(packets, span),
        };
        let (packets_within, within) = (to.0 - from.0, to.1 - from.1);
        if within < least.as_nanos() {
            return bound(packets, span);
        }
        if packets_within < MIN_PACKETS || is_held_up(stamps, from, to) {
            return Spread::TooShort;
        }
        Spread::Measured { packets: packets_within, span: Duration::from_nanos(within) }
    }
}

/// The bound given by a run that is too short to measure.
fn bound(packets: u64, span: u64) -> Spread {
    if packets < MIN_BOUND_PACKETS || span >= MIN_SPAN.as_nanos() {
        return Spread::TooShort;
    }
    Spread::AtMost { packets, span: Duration::from_nanos(span).max(MIN_BOUND_SPAN) }
}

/// Whether one gap makes so much of the span that a delay caused it, and not the link: where a path
/// delays packets at random and keeps their order, the first of a run wait for the slowest.
fn is_held_up(stamps: &[Stamp], from: Stamp, to: Stamp) -> bool {
    let stamps_to = |packets| stamps.partition_point(|stamp| stamp.0 <= packets);
    let gap = longest_gap(from.1, &stamps[stamps_to(from.0)..stamps_to(to.0)]);
    gap > MAX_GAP.as_nanos().max((to.1 - from.1) / HELD_UP)
}

/// The longest gap between timestamps that follow one at `start`.
fn longest_gap(start: u64, stamps: &[Stamp]) -> u64 {
    let starts = std::iter::once(start).chain(stamps.iter().map(|(_, at)| *at));
    starts.zip(stamps).map(|(before, (_, at))| at.saturating_sub(before)).max().unwrap_or(0)
}

/// The ends of the first cluster and of the last but one, if packets arrived in clusters. A gap
/// ends a cluster if it is more than 1.5 times as long as its packets take on average.
fn ends(stamps: &[Stamp], packets: u64, span: u64) -> (Option<Stamp>, Option<Stamp>) {
    let (mut first, mut last) = (None, None);
    let mut before = (0, 0);
    for &stamp in stamps {
        let (n, ns) = (stamp.0 - before.0, stamp.1 - before.1);
        // ns / n > 1.5 * span / packets
        if u128::from(ns) * u128::from(packets) * 2 > u128::from(span) * u128::from(n) * 3 {
            if first.is_none() {
                first = Some(before);
            } else {
                last = Some(before);
            }
        }
        before = stamp;
    }
    (first, last)
}

#[cfg(test)]
mod tests {
    use packtrain_units::Rng;

    use super::*;

    const GAP: u64 = 11_776;

    /// The result of a run of packets whose arrival timestamps are given by `stamp`.
    fn seen(count: u64, gap: u64, stamp: impl Fn(u64) -> u64) -> Spread {
        let mut run = Run::default();
        let (mut last, mut packets) = (stamp(0), 0);
        for i in 1..count {
            let at = stamp(i * gap);
            packets += 1;
            // Equal timestamps are one batch.
            if at > last || i == count - 1 {
                run.push(packets, Duration::from_nanos(at - last));
                (last, packets) = (at, 0);
            }
        }
        run.finish(MIN_SPAN)
    }

    fn error(spread: Spread, gap: u64) -> f64 {
        let Spread::Measured { packets, span } = spread else { panic!("{spread:?}") };
        (span.as_nanos() as f64 / packets as f64 / gap as f64 - 1.0).abs()
    }

    #[test]
    fn packets_one_by_one_are_measured_to_the_packet() {
        assert!(error(seen(64, GAP, |at| at), GAP) < 1e-9);
        assert_eq!(seen(16, GAP, |at| at), Spread::TooShort);
        assert_eq!(Run::default().finish(MIN_SPAN), Spread::TooShort);
    }

    #[test]
    fn heaps_of_a_tick_are_measured_from_end_to_end() {
        // All packets of 200 us are delivered at the end of that tick, 2 us apart.
        for phase in [0, 50_000, 199_000] {
            let stamp = |at: u64| {
                let tick = (at + phase) / 200_000;
                (tick + 1) * 200_000 + (at + phase) % 200_000 / GAP * 2_000
            };
            assert!(error(seen(128, GAP, stamp), GAP) < 0.07, "{phase}");
        }
    }

    #[test]
    fn a_run_that_the_path_held_up_is_no_evidence() {
        // Each packet is delayed by 0 to 20 ms and waits for those before it.
        let fooled = |seed: &u64| {
            let (mut rng, mut latest) = (Rng::new(*seed), 0);
            let stamps: Vec<u64> = (0..64)
                .map(|i| {
                    latest = latest.max(i * GAP + rng.below(20_000_000));
                    latest
                })
                .collect();
            let spread = seen(64, 1, |i| stamps[i as usize] - stamps[0]);
            matches!(spread, Spread::Measured { span, .. } if span > Duration::from_millis(2))
        };
        // Now and then random delays look like a link.
        let fooled: Vec<u64> = (0..1_000).filter(fooled).collect();
        assert!(fooled.len() < 20, "seeds {fooled:?}");
        // A slow link has gaps as long.
        let slow = 1_200_000;
        assert!(error(seen(20, slow, |at| at), slow) < 1e-9);
    }

    #[test]
    fn times_that_no_clock_shows_are_no_evidence() {
        let mut run = Run::default();
        for (packets, after) in [(8, 1 << 61), (23, 1), (1, u64::MAX)] {
            run.push(packets, Duration::from_nanos(after));
        }
        assert_eq!(run.finish(MIN_SPAN), Spread::TooShort);
    }

    #[test]
    fn one_heap_says_how_fast_at_least() {
        let at_most = |packets, us| Spread::AtMost { packets, span: Duration::from_micros(us) };
        assert_eq!(seen(200, 2_000, |at| at), at_most(198, 396));
        assert_eq!(seen(200, 2_000, |_| 7), at_most(199, 20));
        assert_eq!(seen(30, 2_000, |_| 7), Spread::TooShort);
    }
}
