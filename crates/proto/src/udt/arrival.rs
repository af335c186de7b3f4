//! AS: the packet arrival speed (section III.B).
//!
//! Where packets arrive singly from a sender that paces each packet, this is the paper's filter
//! over the last 16 intervals. Where the sender sends trains or the host coalesces packets, the
//! intervals are those of the trains or all zero, and the filter would return the link's rate or
//! nothing. Arrivals are then put into groups of about one train and the pause after it, and the
//! same filter runs over the groups. Like the paper's filter it must exclude pauses that the flow
//! window caused; otherwise the window would limit its own measurement and only shrink.

use packtrain_cc::udt::Variant;
use packtrain_units::{Duration, Time};

use super::message::PacketRate;

/// N0: number of intervals.
const INTERVALS: usize = 16;
/// Span after which a group ends: trains begin every 250 us where packets are faster.
const GROUP_SPAN: Duration = Duration::from_micros(500);
/// Pause that ends a group, unless it follows the first packet of a train.
const GROUP_END_PAUSE: Duration = Duration::from_millis(1);
/// Minimum span of a burst: ticks of hosts and threads are shorter.
const MIN_BURST_SPAN: Duration = Duration::from_micros(250);
/// Minimum number of groups.
const GROUPS: usize = 16;
/// Older groups within this span are used too,
const GROUPS_SPAN: Duration = Duration::from_millis(10);
/// up to this number in total.
const MAX_GROUPS: usize = 64;
/// Consecutive single packets after which the host counts as not coalescing.
const SINGLES_TO_CLEAR: u32 = 64;

/// The estimator.
#[derive(Debug)]
pub(crate) struct Arrival {
    /// The median filter keeps intervals from M / `factor` to M * `factor`, where M is their
    /// median.
    factor: u64,
    /// Whether the sender sends trains.
    trains: bool,
    /// Single packets still needed until the host counts as not coalescing.
    joins: u32,
    last: Option<Time>,
    intervals: Ring<INTERVALS>,
    groups: Ring<MAX_GROUPS>,
    group: (u64, Duration),
    /// Packets after the first one since the last long pause, and their span.
    burst: (u64, Duration),
    /// The rate of the newest long enough burst; used until there are groups.
    first: Option<PacketRate>,
    mean: Duration,
}

impl Arrival {
    pub(crate) fn new(variant: Variant, trains: bool) -> Self {
        Self {
            factor: if variant == Variant::Ns2 { 2 } else { 8 },
            trains,
            joins: 0,
            last: None,
            intervals: Ring::default(),
            groups: Ring::default(),
            group: (0, Duration::ZERO),
            burst: (0, Duration::ZERO),
            first: None,
            mean: Duration::ZERO,
        }
    }

    /// `packets` packets arrived in one batch, the last of them at `at`.
    pub(crate) fn on_batch(&mut self, at: Time, packets: u32) {
        // An older packet may arrive later on another lane.
        let at = self.last.map_or(at, |last| last.max(at));
        let Some(last) = self.last.replace(at) else { return };
        let span = at.since(last);
        let packets = u64::from(packets.max(1));
        self.mean = (self.mean * 7 + span / packets) / 8;
        if packets > 1 {
            self.joins = SINGLES_TO_CLEAR;
        } else {
            self.joins = self.joins.saturating_sub(1);
            self.intervals.push(1, span);
        }
        if self.trains && self.groups.count < GROUPS {
            self.note_burst(packets, span);
        }
        // A long pause ends the group before it, unless it follows the first packet of a train.
        if span >= GROUP_END_PAUSE && self.group.1 >= GROUP_SPAN / 4 {
            self.groups.push(self.group.0, self.group.1);
            self.group = (0, Duration::ZERO);
        }
        self.group.0 += packets;
        self.group.1 += span;
        if self.group.1 >= GROUP_SPAN {
            self.groups.push(self.group.0, self.group.1);
            self.group = (0, Duration::ZERO);
        }
    }

    /// In slow start, windows arrive as fast as the path allows, with round trips between them. The
    /// paper's filter needs 16 intervals of that and groups need 8 ms. A loss before that would
    /// leave no rate, so the rate of a burst is used until then.
    fn note_burst(&mut self, packets: u64, span: Duration) {
        if span >= GROUP_END_PAUSE {
            self.burst = (0, Duration::ZERO);
            return;
        }
        self.burst = (self.burst.0 + packets, self.burst.1 + span);
        if self.burst.0 >= INTERVALS as u64 && self.burst.1 >= MIN_BURST_SPAN {
            self.first = PacketRate::of_packets(self.burst.0, self.burst.1);
        }
    }

    /// AS, if it can be measured.
    pub(crate) fn estimate(&self) -> Option<PacketRate> {
        if self.trains || self.joins > 0 {
            let first = self.first.filter(|_| self.groups.count < GROUPS);
            first.or_else(|| self.groups.filtered(self.factor, GROUPS, GROUPS_SPAN))
        } else {
            self.intervals.filtered(self.factor, INTERVALS, Duration::ZERO)
        }
    }

    /// Mean interval between packets, for the NAK timer.
    pub(crate) fn mean_interval(&self) -> Duration {
        self.mean
    }
}

/// The newest spans with their packet counts.
#[derive(Debug)]
struct Ring<const N: usize> {
    ring: [(u64, u64); N],
    count: usize,
}

impl<const N: usize> Default for Ring<N> {
    fn default() -> Self {
        Self { ring: [(0, 0); N], count: 0 }
    }
}

impl<const N: usize> Ring<N> {
    fn push(&mut self, packets: u64, span: Duration) {
        self.ring[self.count % N] = (packets, span.as_nanos());
        self.count += 1;
    }

    /// The rate after the median filter over the newest spans, if more than half of their packets
    /// remain. It uses `min` spans and those before them within `reach`.
    fn filtered(&self, factor: u64, min: usize, reach: Duration) -> Option<PacketRate> {
        let mut known = [(0, 0); N];
        let (mut len, mut reached) = (0, 0u64);
        while len < self.count.min(N) && (len < min || reached < reach.as_nanos()) {
            known[len] = self.ring[(self.count - 1 - len) % N];
            reached = reached.saturating_add(known[len].1);
            len += 1;
        }
        if len < min {
            return None;
        }
        let known = &mut known[..len];
        known.sort_unstable_by_key(|(packets, span)| span / packets);
        let (all, median) = weighted_median(known)?;
        let kept = |interval: u64| {
            interval >= median.div_ceil(factor) && interval <= median.saturating_mul(factor)
        };
        let left = known.iter().filter(|(packets, span)| kept(span / packets));
        let (packets, span) =
            left.fold((0, 0u64), |(n, s), (packets, span)| (n + packets, s.saturating_add(*span)));
        (packets * 2 > all).then(|| PacketRate::of_packets(packets, Duration::from_nanos(span)))?
    }
}

/// The number of packets of a sorted ring, and the median interval weighted by packets: of 16 the
/// ninth.
fn weighted_median(sorted: &[(u64, u64)]) -> Option<(u64, u64)> {
    let all = sorted.iter().map(|(packets, _)| packets).sum::<u64>();
    let mut passed = 0;
    for (packets, span) in sorted {
        passed += packets;
        if passed * 2 > all {
            return Some((all, span / packets));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn us(n: u64) -> Time {
        Time::ZERO + Duration::from_micros(n)
    }

    fn rate(arrival: &Arrival) -> Option<u64> {
        arrival.estimate().map(|rate| rate.get().round() as u64)
    }

    #[test]
    fn the_papers_filter_for_lone_packets() {
        let mut arrival = Arrival::new(Variant::Paper, false);
        let mut at = 0;
        for i in 0..=16u64 {
            assert_eq!(rate(&arrival), None, "16 intervals first");
            // Seven of the last 16 intervals are far off: more than half remain.
            at += if i % 2 == 1 && i < 14 { 900 } else { 100 };
            arrival.on_batch(us(at), 1);
        }
        assert_eq!(rate(&arrival), Some(10_000));
        for _ in 0..2 {
            at += 900;
            arrival.on_batch(us(at), 1);
        }
        assert_eq!(rate(&arrival), None, "eight off: no more than half are left");
    }

    #[test]
    fn ns2_keeps_only_what_is_near() {
        let (mut wide, mut near) =
            (Arrival::new(Variant::Paper, false), Arrival::new(Variant::Ns2, false));
        let mut at = 0;
        for i in 0..17u64 {
            at += if i % 4 == 3 { 300 } else { 100 };
            wide.on_batch(us(at), 1);
            near.on_batch(us(at), 1);
        }
        assert_eq!(rate(&wide), Some(6_667));
        assert_eq!(rate(&near), Some(10_000));
    }

    #[test]
    fn joined_packets_are_counted_over_the_time_between_batches() {
        for max in [4u32, 16, 44] {
            let mut arrival = Arrival::new(Variant::Grid, false);
            let (mut got, mut i) = (0u64, 0u64);
            while got < 20_000 {
                let n = 1 + (i * 7 + 3) as u32 % max;
                got += u64::from(n);
                arrival.on_batch(us(got * 12), n);
                i += 1;
            }
            let got = arrival.estimate().unwrap().get();
            assert!((got * 12e-6 - 1.0).abs() < 0.02, "{got}");
        }
    }

    #[test]
    fn trains_of_lone_packets_are_not_taken_for_the_links_rate() {
        // 20 packets at 12 us, every 500 us.
        let mut arrival = Arrival::new(Variant::Grid, true);
        for train in 0..200u64 {
            for i in 0..20u64 {
                arrival.on_batch(us(train * 500 + i * 12), 1);
            }
        }
        let got = arrival.estimate().unwrap().get();
        assert!((got / 40_000.0 - 1.0).abs() < 0.05, "{got}");
    }

    #[test]
    fn the_windows_of_slow_start_tell_the_paths_rate() {
        // Windows that double each 100 ms, 12 us per packet; the host coalesces `join` packets.
        for join in [1u64, 4] {
            let mut arrival = Arrival::new(Variant::Grid, true);
            for round in 2..7u64 {
                for i in (0..1u64 << round).step_by(join as usize) {
                    let at = round * 100_000 + (i + join) * 12;
                    arrival.on_batch(us(at), join as u32);
                }
                let known = rate(&arrival);
                assert_eq!(known.is_some(), round >= 5, "{join} {round} {known:?}");
                assert!(known.is_none_or(|rate| rate == 83_333), "{known:?}");
            }
        }
    }

    #[test]
    fn pauses_that_the_window_made_are_not_counted() {
        // Windows of 16, sent as trains of two every 250 us, each 30 ms.
        let mut arrival = Arrival::new(Variant::Grid, true);
        for window in 0..20u64 {
            for i in 0..16u64 {
                arrival.on_batch(us(window * 30_000 + i / 2 * 250 + i % 2 * 12), 1);
            }
        }
        let got = arrival.estimate().unwrap().get();
        assert!((got / 8_000.0 - 1.0).abs() < 0.1, "{got}");
    }
}
