//! How far the narrowest link spreads packets that left back to back.
//!
//! Stamps of arrival are coarse: hosts join packets, network cards and emulators deliver what came
//! in a tick at the tick's end. So no gap between two packets is believed. A run of packets that
//! left back to back is measured from the end of one heap of stamps to the end of another, and only
//! if it took far longer than a tick is expected to be; within a heap, or with one gap, there is
//! nothing to measure. A long run that came in no time still says that the path is no slower than
//! that.

use packtrain_units::Duration;

/// A run must take this long: twice what ticks and threads usually are.
const LEAST_SPAN: Duration = Duration::from_micros(500);
/// And have so many packets behind its first stamp.
const LEAST_PACKETS: u64 = 4;
/// No run is taken for shorter than this. Ticks can hide more of it: such a run is believed only
/// where none could be measured.
const SHORTEST: Duration = Duration::from_micros(20);
/// Fewer packets than this, come in less than a tick, bound nothing that matters.
const LEAST_BOUND: u64 = 32;
/// With fewer stamps than this, each is taken for the end of a heap.
const MIN_HEAP_STAMPS: usize = 4;
/// It is cut at so many stamps.
const MAX_STAMPS: usize = 512;

/// A run as it grows.
#[derive(Debug, Default)]
pub(crate) struct Run {
    stamps: Vec<Stamp>,
}

/// Packets that came since the run's first stamp, and how many nanoseconds later.
type Stamp = (u64, u64);

/// What a run says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spread {
    /// So many packets took so long.
    Measured {
        /// How many.
        packets: u64,
        /// How long.
        span: Duration,
    },
    /// The run was over before its spread could show: so many packets took no longer than this.
    AtMost {
        /// How many.
        packets: u64,
        /// How long.
        span: Duration,
    },
    /// It says nothing.
    TooShort,
}

impl Run {
    /// So many more packets came, the last of them so long after the stamp before.
    pub(crate) fn push(&mut self, packets: u64, after: Duration) {
        let (had, at) = self.stamps.last().copied().unwrap_or_default();
        self.stamps.push((had + packets, at.saturating_add(after.as_nanos())));
    }

    /// It has become as long as a run may.
    pub(crate) fn is_full(&self) -> bool {
        self.stamps.len() >= MAX_STAMPS
    }

    /// One stamp more and the last is left out, which may lie within a heap.
    pub(crate) fn is_long(&self) -> bool {
        self.stamps.len() + 1 >= MIN_HEAP_STAMPS
    }

    /// Ends it.
    pub(crate) fn finish(&mut self) -> Spread {
        let spread = self.spread();
        self.stamps.clear();
        spread
    }

    fn spread(&self) -> Spread {
        // The run may have ended within its last heap.
        let whole = if self.stamps.len() < MIN_HEAP_STAMPS { 0 } else { 1 };
        let stamps = &self.stamps[..self.stamps.len() - whole];
        let (packets, span) = stamps.last().copied().unwrap_or_default();
        let ends = ends(stamps, packets, span);
        let (from, to) = match (ends.0, ends.1) {
            // Evenly spread.
            (None, _) => ((0, 0), (packets, span)),
            (Some(from), Some(to)) => (from, to),
            (Some(_), None) => return bound(packets, span),
        };
        let (packets_within, within) = (to.0 - from.0, to.1 - from.1);
        if within < LEAST_SPAN.as_nanos() {
            return bound(packets, span);
        }
        if packets_within < LEAST_PACKETS {
            return Spread::TooShort;
        }
        Spread::Measured { packets: packets_within, span: Duration::from_nanos(within) }
    }
}

/// What a run says that is too short to be measured.
fn bound(packets: u64, span: u64) -> Spread {
    if packets < LEAST_BOUND || span >= LEAST_SPAN.as_nanos() {
        return Spread::TooShort;
    }
    Spread::AtMost { packets, span: Duration::from_nanos(span).max(SHORTEST) }
}

/// The ends of the first heap and of the last but one, if packets came in heaps: a heap ends
/// before a gap that is half as long again as the packets behind it would explain.
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
    use super::*;

    const GAP: u64 = 11_776;

    /// What a run of packets says whose arrivals are seen as `stamp` tells.
    fn seen(count: u64, gap: u64, stamp: impl Fn(u64) -> u64) -> Spread {
        let mut run = Run::default();
        let (mut last, mut packets) = (stamp(0), 0);
        for i in 1..count {
            let at = stamp(i * gap);
            packets += 1;
            // Equal stamps are one batch.
            if at > last || i == count - 1 {
                run.push(packets, Duration::from_nanos(at - last));
                (last, packets) = (at, 0);
            }
        }
        run.finish()
    }

    fn error(spread: Spread, gap: u64) -> f64 {
        let Spread::Measured { packets, span } = spread else { panic!("{spread:?}") };
        (span.as_nanos() as f64 / packets as f64 / gap as f64 - 1.0).abs()
    }

    #[test]
    fn packets_one_by_one_are_measured_to_the_packet() {
        assert!(error(seen(64, GAP, |at| at), GAP) < 1e-9);
        assert_eq!(seen(16, GAP, |at| at), Spread::TooShort);
        assert_eq!(Run::default().finish(), Spread::TooShort);
    }

    #[test]
    fn heaps_of_a_tick_are_measured_from_end_to_end() {
        // All that came in 200 us is delivered then, 2 us apart.
        for phase in [0, 50_000, 199_000] {
            let stamp = |at: u64| {
                let tick = (at + phase) / 200_000;
                (tick + 1) * 200_000 + (at + phase) % 200_000 / GAP * 2_000
            };
            assert!(error(seen(128, GAP, stamp), GAP) < 0.07, "{phase}");
        }
    }

    #[test]
    fn one_heap_says_how_fast_at_least() {
        let at_most = |packets, us| Spread::AtMost { packets, span: Duration::from_micros(us) };
        assert_eq!(seen(200, 2_000, |at| at), at_most(198, 396));
        assert_eq!(seen(200, 2_000, |_| 7), at_most(199, 20));
        assert_eq!(seen(30, 2_000, |_| 7), Spread::TooShort);
    }
}
