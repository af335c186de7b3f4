//! AS: how fast packets arrive (section III.B).
//!
//! Where packets come one by one from a sender that paces each, this is the paper's filter over
//! the last 16 intervals. Where the sender sends trains or the host joins packets, the intervals
//! are those of the trains or all zero, and the filter would give the link's rate or nothing; then
//! arrivals are put in groups that are each about a train with the pause behind it, and the same
//! filter runs over the groups. It must see pauses apart, as the paper's does: those that the flow
//! window made are not to be in AS, or the window would be measured by itself and only shrink.

use packtrain_cc::udt::Variant;
use packtrain_units::{Duration, Time};

use super::message::PacketRate;

/// N0: intervals looked at.
const INTERVALS: usize = 16;
/// A group ends after this: trains begin every 250 us where packets are faster.
const GROUP_SPAN: Duration = Duration::from_micros(500);
/// A longer pause ends a group, unless that is but the first of a train's packets.
const GROUP_END_PAUSE: Duration = Duration::from_millis(1);
/// A burst lasts at least so long: ticks of hosts and threads are shorter.
const LEAST_BURST: Duration = Duration::from_micros(250);
/// Groups looked at: at least so many,
const GROUPS: usize = 16;
/// and as many more as came in this time,
const GROUPS_SPAN: Duration = Duration::from_millis(10);
/// up to so many.
const MAX_GROUPS: usize = 64;
/// So many lone packets in turn end the suspicion that the host joins packets.
const FORGET: u32 = 64;

/// The estimator.
#[derive(Debug)]
pub(crate) struct Arrival {
    /// Kept are intervals from M / `factor` to M * `factor`, M being their median.
    factor: u64,
    /// The sender sends trains.
    trains: bool,
    /// Lone packets to come until the host is believed not to join packets.
    joins: u32,
    last: Option<Time>,
    intervals: Ring<INTERVALS>,
    groups: Ring<MAX_GROUPS>,
    group: (u64, Duration),
    /// Packets behind the first one since the last long pause.
    burst: (u64, Duration),
    /// The rate of the newest burst that was long enough, until there are groups.
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

    /// So many packets came in one batch, the last of them at `at`.
    pub(crate) fn on_batch(&mut self, at: Time, packets: u32) {
        // By another lane an older one may come later.
        let at = self.last.map_or(at, |last| last.max(at));
        let Some(last) = self.last.replace(at) else { return };
        let span = at.since(last);
        let packets = u64::from(packets.max(1));
        self.mean = (self.mean * 7 + span / packets) / 8;
        if packets > 1 {
            self.joins = FORGET;
        } else {
            self.joins = self.joins.saturating_sub(1);
            self.intervals.push(1, span);
        }
        if self.trains && self.groups.count < GROUPS {
            self.note_burst(packets, span);
        }
        // A long pause ends the group before it, unless that is but the first of a train's packets.
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

    /// In slow start windows arrive as fast as the path lets them, with round trips between. The
    /// paper's filter needs 16 intervals of that; groups need 8 ms of it, and a loss before that
    /// would leave no rate to go on with.
    fn note_burst(&mut self, packets: u64, span: Duration) {
        if span >= GROUP_END_PAUSE {
            self.burst = (0, Duration::ZERO);
            return;
        }
        self.burst = (self.burst.0 + packets, self.burst.1 + span);
        if self.burst.0 >= INTERVALS as u64 && self.burst.1 >= LEAST_BURST {
            self.first = PacketRate::of_packets(self.burst.0, self.burst.1);
        }
    }

    /// AS, if it can be told.
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

/// The newest spans with how many packets came in each.
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

    /// The rate of what the median filter leaves of the newest spans, if that is more than half
    /// of their packets. Looked at are `least` spans and those before them within `reach`.
    fn filtered(&self, factor: u64, least: usize, reach: Duration) -> Option<PacketRate> {
        let mut known = [(0, 0); N];
        let (mut len, mut reached) = (0, 0u64);
        while len < self.count.min(N) && (len < least || reached < reach.as_nanos()) {
            known[len] = self.ring[(self.count - 1 - len) % N];
            reached = reached.saturating_add(known[len].1);
            len += 1;
        }
        if len < least {
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

/// All packets of a sorted ring, and the interval of the one in the middle: of 16 the ninth.
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
            // Seven of the last 16 intervals are far off: more than half are left.
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
        for most in [4u32, 16, 44] {
            let mut arrival = Arrival::new(Variant::Grid, false);
            let (mut got, mut i) = (0u64, 0u64);
            while got < 20_000 {
                let n = 1 + (i * 7 + 3) as u32 % most;
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
        // Doubling windows each 100 ms, 12 us a packet; the host joins so many.
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
