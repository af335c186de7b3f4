//! NB: the capacity of the path, from packets sent back to back (section III.C).
//!
//! The unit after every 16th is sent at once; the gap between the two arrivals is the time that the
//! narrowest link needs for one packet. Two packets that the host coalesced have one arrival time
//! and give no information. Where timestamps are coarse, two single packets do not either. Where
//! the sender sends trains, the estimator therefore measures the time between the *batches* of a
//! run of packets sent back to back ([`Run`]). A pair counts there only if its gap is so long that
//! no tick or thread can have caused it.

use packtrain_units::{Duration, Time};

use super::message::PacketRate;
use crate::dispersion::{MIN_SPAN, Run, Spread};

/// A pair begins at every N1th unit.
pub(crate) const PAIR_EVERY: u64 = 16;
/// N2: number of samples.
const SAMPLES: usize = 16;
/// Minimum runs before their estimate is used.
const MIN_RUNS: usize = 3;
/// A run is cut here, so that a sender that never pauses gives samples.
const MAX_RUN_PACKETS: u64 = 512;
/// Pairs without a run after which runs are discarded.
const MAX_PAIRS_SINCE_RUN: u32 = 1_024;
/// Minimum gap of a pair of single packets from a sender of trains.
const MIN_SINGLE_GAP: Duration = Duration::from_micros(60);

/// The estimator.
#[derive(Debug)]
pub(crate) struct PacketPair {
    /// Whether the sender sends trains, so that runs of any length are expected.
    trains: bool,
    /// One past the highest unit that arrived.
    above: u64,
    /// The previous batch, if the next one may have been sent right behind it.
    before: Option<Before>,
    run: Run,
    /// Packets in the run.
    length: u64,
    /// The newest batch, which belongs to the run if another batch follows at once.
    newest: Option<(u64, Duration)>,
    pairs: Ring,
    runs: Ring,
    /// Lower bounds of the capacity from runs too short to measure.
    bounds: Ring,
    since_run: u32,
}

#[derive(Clone, Copy, Debug)]
struct Before {
    at: Time,
    lone: bool,
}

impl PacketPair {
    pub(crate) fn new(first: u64, trains: bool) -> Self {
        Self {
            trains,
            above: first,
            before: None,
            run: Run::default(),
            length: 0,
            newest: None,
            pairs: Ring::default(),
            runs: Ring::default(),
            bounds: Ring::default(),
            since_run: 0,
        }
    }

    /// A batch arrived, its last packet at `at`; `follows` if each of its packets was sent right
    /// behind the unit before it.
    pub(crate) fn on_batch(
        &mut self,
        at: Time,
        first: u64,
        last: u64,
        packets: u32,
        follows: bool,
    ) {
        if last < self.above || last < first {
            // A duplicate, or late: nothing follows it.
            self.before = None;
            return self.end_run();
        }
        let whole = first == self.above && last - first + 1 == u64::from(packets);
        self.above = last + 1;
        let lone = packets == 1;
        let before = self.before.replace(Before { at, lone }).filter(|_| follows && whole);
        let Some(before) = before else { return self.end_run() };
        let span = at.since(before.at);
        // Two single packets, as in the paper.
        if lone && before.lone && first % PAIR_EVERY == 1 {
            self.pairs.push(1, span);
            self.since_run += 1;
            if self.since_run > MAX_PAIRS_SINCE_RUN {
                self.runs = Ring::default();
            }
        }
        if self.trains {
            if let Some((packets, span)) = self.newest.replace((u64::from(packets), span)) {
                self.run.push(packets, span);
                self.length += packets;
            }
            if self.length >= MAX_RUN_PACKETS || self.run.is_full() {
                self.end_run();
            }
        }
    }

    /// NB, if it can be measured.
    pub(crate) fn estimate(&self) -> Option<PacketRate> {
        if self.runs.count >= MIN_RUNS {
            return self.runs.median();
        }
        // Pairs from a sender of trains count only if most of them are far apart: on a fast path,
        // pairs that are far apart were separated by a late thread.
        let fastest = PacketRate::of_interval(MIN_SINGLE_GAP)?;
        let pairs = self.pairs.median().filter(|rate| !self.trains || *rate <= fastest);
        // On a path faster than any run can show, the bound is much better than no estimate: the
        // sender uses the free capacity only to the next power of ten.
        pairs.or_else(|| self.bounds.median().filter(|_| self.bounds.count >= MIN_RUNS))
    }

    fn end_run(&mut self) {
        self.length = 0;
        // The run may have ended within its last batch; a long run excludes that batch itself.
        if let Some((packets, span)) = self.newest.take()
            && (packets == 1 || self.run.is_long())
        {
            self.run.push(packets, span);
        }
        match self.run.finish(MIN_SPAN) {
            Spread::Measured { packets, span } => {
                self.runs.push(packets, span);
                self.since_run = 0;
            }
            Spread::AtMost { packets, span } => self.bounds.push(packets, span),
            Spread::TooShort => {}
        }
    }
}

/// The newest runs: packets and nanoseconds.
#[derive(Debug, Default)]
struct Ring {
    ring: [(u64, u64); SAMPLES],
    count: usize,
}

impl Ring {
    /// A span of zero is no measurement.
    fn push(&mut self, packets: u64, span: Duration) {
        if !span.is_zero() {
            self.ring[self.count % SAMPLES] = (packets, span.as_nanos());
            self.count += 1;
        }
    }

    /// The rate of the median run; of 16 the ninth by its gap.
    fn median(&self) -> Option<PacketRate> {
        let mut known = self.ring;
        let known = &mut known[..self.count.min(SAMPLES)];
        known.sort_unstable_by(|a, b| {
            (u128::from(a.1) * u128::from(b.0)).cmp(&(u128::from(b.1) * u128::from(a.0)))
        });
        let (packets, span) = known.get(known.len() / 2)?;
        PacketRate::of_packets(*packets, Duration::from_nanos(*span))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ns(n: u64) -> Time {
        Time::ZERO + Duration::from_nanos(n)
    }

    fn rate(pair: &PacketPair) -> Option<f64> {
        pair.estimate().map(PacketRate::get)
    }

    #[test]
    fn the_papers_pairs_of_lone_packets() {
        let mut pair = PacketPair::new(0, false);
        let mut at = 0;
        for unit in 0..400u64 {
            // Every seventh pair was separated by cross traffic.
            let gap = if unit / 16 % 7 == 3 { 90_000 } else { 12_000 };
            at += if unit % 16 == 1 { gap } else { 100_000 };
            pair.on_batch(ns(at), unit, unit, 1, unit % 16 == 1);
            assert_eq!(rate(&pair).is_some(), unit > 0);
        }
        assert_eq!(rate(&pair).map(f64::round), Some(83_333.0));
    }

    #[test]
    fn a_pair_in_one_batch_says_nothing() {
        let mut pair = PacketPair::new(0, false);
        for batch in 0..100u64 {
            pair.on_batch(ns(batch * 40_000), batch * 4, batch * 4 + 3, 4, false);
        }
        assert_eq!(rate(&pair), None);
        pair.on_batch(ns(4_000_000), 400, 400, 1, false);
        pair.on_batch(ns(4_000_000), 401, 401, 1, true);
        assert_eq!(rate(&pair), None, "no time between two is no gap");
    }

    #[test]
    fn lost_and_late_packets_make_no_pair() {
        let mut pair = PacketPair::new(0, false);
        pair.on_batch(ns(1_000), 16, 16, 1, false);
        pair.on_batch(ns(2_000), 5, 5, 1, false);
        pair.on_batch(ns(3_000), 17, 17, 1, true);
        pair.on_batch(ns(9_000), 33, 33, 1, true);
        pair.on_batch(ns(9_500), 17, 17, 1, true);
        assert_eq!(rate(&pair), None);
    }

    #[test]
    fn trains_over_batches_give_the_links_rate() {
        // 12 us per packet, trains of 64 every 1500 us, read in batches of `window` nanoseconds.
        for window in [1u64, 50_000, 90_000] {
            let mut pair = PacketPair::new(0, true);
            let (mut unit, mut open): (u64, Option<(u64, u64, u64, bool)>) = (0, None);
            for train in 0..100u64 {
                for i in 0..64u64 {
                    let at = train * 1_500_000 + i * 12_000;
                    if let Some((since, first, last_at, follows)) = open
                        && at - since >= window
                    {
                        let packets = (unit - first) as u32;
                        pair.on_batch(ns(last_at), first, unit - 1, packets, follows);
                        open = None;
                    }
                    let (since, first, _, follows) = open.unwrap_or((at, unit, at, i > 0));
                    open = Some((since, first, at, follows));
                    unit += 1;
                }
            }
            let got = rate(&pair).unwrap();
            assert!((got * 12e-6 - 1.0).abs() < 0.02, "{window}: {got}");
        }
    }
}
