//! AS: how fast packets arrive (section III.B).
//!
//! Where packets come one by one from a sender that paces each, this is the paper's filter over
//! the last 16 intervals. Where the sender sends trains or the host joins packets, the intervals
//! are those of the trains or all zero, and the filter would give the link's rate or nothing; then
//! arrivals are counted in groups long enough to hold several trains, and the same filter runs
//! over the groups.

use packtrain_cc::udt::Variant;
use packtrain_units::{Duration, Time};

use super::message::PacketRate;

/// N0: intervals, or groups, looked at.
const INTERVALS: usize = 16;
/// Groups that are enough for an estimate.
const ENOUGH: usize = 4;
/// A group spans at least this: four trains of 250 us.
const GROUP_SPAN: Duration = Duration::from_millis(1);
/// And holds at least so many packets.
const GROUP_PACKETS: u64 = 8;
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
    intervals: Ring,
    groups: Ring,
    group: (u64, Duration),
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
            mean: Duration::ZERO,
        }
    }

    /// So many packets came in one batch, the last of them at `at`.
    pub(crate) fn on_batch(&mut self, at: Time, packets: u32) {
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
        self.group.0 += packets;
        self.group.1 += span;
        if self.group.0 >= GROUP_PACKETS && self.group.1 >= GROUP_SPAN {
            self.groups.push(self.group.0, self.group.1);
            self.group = (0, Duration::ZERO);
        }
    }

    /// AS, if it can be told.
    pub(crate) fn estimate(&self) -> Option<PacketRate> {
        if self.trains || self.joins > 0 {
            self.groups.filtered(self.factor, ENOUGH)
        } else {
            self.intervals.filtered(self.factor, INTERVALS)
        }
    }

    /// Mean interval between packets, for the NAK timer.
    pub(crate) fn mean_interval(&self) -> Duration {
        self.mean
    }
}

/// The newest spans with how many packets came in each.
#[derive(Debug, Default)]
struct Ring {
    ring: [(u64, u64); INTERVALS],
    count: usize,
}

impl Ring {
    fn push(&mut self, packets: u64, span: Duration) {
        self.ring[self.count % INTERVALS] = (packets, span.as_nanos());
        self.count += 1;
    }

    /// The rate of what the median filter leaves, if that is more than half of the packets.
    fn filtered(&self, factor: u64, enough: usize) -> Option<PacketRate> {
        let mut known = self.ring;
        let known = &mut known[..self.count.min(INTERVALS)];
        if known.len() < enough {
            return None;
        }
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
}
