//! Counters of links and flows.

use packtrain_link::{DropCause, Observer, Pace, Segments};
use packtrain_units::{Duration, Time};

use crate::outcome::Recorded;
use crate::trace::Digest;
use crate::train::{Toward, Train};

/// Sub-bins of an octave: bins are at most 1/128 of their value wide.
const BITS: u32 = 7;

/// A histogram of durations with bins of less than 1 % of their value.
#[derive(Clone, Debug, Default)]
pub(crate) struct Histogram {
    bins: Vec<u64>,
    count: u64,
}

fn bin(ns: u64) -> usize {
    let shift = (64 - BITS - 1).saturating_sub(ns.leading_zeros());
    ((u64::from(shift) << BITS) + (ns >> shift)) as usize
}

/// The centre of a bin.
fn value(bin: usize) -> Duration {
    let bin = bin as u64;
    if bin < 2 << BITS {
        return Duration::from_nanos(bin);
    }
    let shift = (bin >> BITS) - 1;
    let low = (bin - (shift << BITS)) << shift;
    Duration::from_nanos(low + (1 << shift) / 2)
}

impl Histogram {
    /// Counts `count` durations of `ns` nanoseconds.
    pub(crate) fn add(&mut self, ns: u64, count: u64) {
        let bin = bin(ns);
        if bin >= self.bins.len() {
            self.bins.resize(bin + 1, 0);
        }
        self.bins[bin] += count;
        self.count += count;
    }

    /// Counts `count` durations in equal steps.
    fn add_run(&mut self, first: u64, last: u64, count: u64) {
        if count == 1 || bin(first) == bin(last) {
            return self.add(first, count);
        }
        let step = (last as i64).wrapping_sub(first as i64) / (count as i64 - 1);
        for i in 0..count as i64 {
            self.add((first as i64 + step * i) as u64, 1);
        }
    }

    /// The quantile `q` of all durations; zero if there are none.
    pub(crate) fn quantile(&self, q: f64) -> Duration {
        let rank = ((self.count as f64 * q).ceil() as u64).max(1);
        let mut below = 0;
        for (bin, n) in self.bins.iter().enumerate() {
            below += n;
            if below >= rank {
                return value(bin);
            }
        }
        Duration::ZERO
    }
}

/// Effects of a link on the forward packets of one flow, since the warm-up.
#[derive(Clone, Debug, Default)]
pub(crate) struct FlowAtLink {
    waits: Histogram,
    sum: u128,
    count: u64,
    /// Packets dropped here.
    pub(crate) dropped: u64,
}

impl FlowAtLink {
    /// Mean time in the queue.
    pub(crate) fn mean(&self) -> Duration {
        let mean = self.sum.checked_div(u128::from(self.count)).unwrap_or(0);
        Duration::from_nanos(mean as u64)
    }

    /// 99th percentile of the time in the queue.
    pub(crate) fn p99(&self) -> Duration {
        self.waits.quantile(0.99)
    }

    fn queued(&mut self, first: Duration, last: Duration, count: u64) {
        let (first, last) = (first.as_nanos(), last.as_nanos());
        // An arithmetic series: exact, because the steps are equal.
        self.sum += (u128::from(first) + u128::from(last)) * u128::from(count) / 2;
        self.count += count;
        self.waits.add_run(first, last, count);
    }
}

/// Counters of a link.
#[derive(Debug, Default)]
pub(crate) struct LinkStats {
    /// Packets offered.
    pub(crate) offered: u64,
    /// Packets accepted for transmission.
    pub(crate) passed: u64,
    /// Their bytes.
    pub(crate) bytes: u64,
    /// `passed` and `bytes` at the end of the warm-up, and until when the transmitter was busy with
    /// them.
    pub(crate) at_warm_up: (u64, u64, Time),
    /// By cause: overflow, early, random, other.
    pub(crate) dropped: [u64; 4],
    /// Per flow, from its first packet on.
    pub(crate) flows: Vec<Option<Box<FlowAtLink>>>,
    /// Digest of the dropped packets.
    pub(crate) digest: Digest,
    /// The record of each packet, if enabled.
    pub(crate) record: Option<Record>,
}

/// The packets of the recorded link. While a packet is in the link, its index replaces its
/// connection number, because nothing else distinguishes two equal acknowledgements.
#[derive(Debug, Default)]
pub(crate) struct Record {
    /// All packets, in the order of arrival.
    pub(crate) packets: Vec<Recorded>,
    /// Their connection numbers.
    conns: Vec<u32>,
}

impl Record {
    /// A packet is offered.
    pub(crate) fn offered(&mut self, at: Time, packet: &mut Train) {
        self.conns.push(packet.conn);
        packet.conn = self.packets.len() as u32;
        self.packets.push(Recorded {
            offered: at,
            size: packet.size,
            flow: packet.flow as usize,
            left: None,
        });
    }

    /// It leaves or is dropped; of a duplicated packet the first copy counts.
    pub(crate) fn decided(&mut self, packet: &mut Train, left: Option<Time>) {
        let index = packet.conn as usize;
        if let (Some(recorded), Some(conn)) = (self.packets.get_mut(index), self.conns.get(index)) {
            recorded.left = recorded.left.or(left);
            packet.conn = *conn;
        }
    }
}

impl LinkStats {
    /// Resets the counters at the end of the warm-up.
    pub(crate) fn warmed_up(&mut self, busy_until: Time) {
        self.flows.iter_mut().for_each(|flow| *flow = None);
        self.at_warm_up = (self.passed, self.bytes, busy_until);
    }

    fn flow(&mut self, flow: u32) -> &mut FlowAtLink {
        let flow = flow as usize;
        if flow >= self.flows.len() {
            self.flows.resize_with(flow + 1, || None);
        }
        self.flows[flow].get_or_insert_default()
    }
}

impl Observer<Train> for LinkStats {
    fn dropped(&mut self, at: Pace, mut train: Train, cause: DropCause) {
        if let Some(record) = &mut self.record {
            record.decided(&mut train, None);
        }
        let count = u64::from(train.count());
        let kind = match cause {
            DropCause::Overflow => 0,
            DropCause::Early => 1,
            DropCause::Random => 2,
            DropCause::TooBig | DropCause::Host | DropCause::Down => 3,
        };
        self.dropped[kind] += count;
        self.digest.scatter(at, &train, cause as u64 + 1);
        if train.toward == Toward::Receiver {
            self.flow(train.flow).dropped += count;
        }
    }

    fn queued(&mut self, train: &Train, first: Duration, last: Duration) {
        let count = u64::from(train.count());
        self.passed += count;
        self.bytes += u64::from(train.size) * count;
        if train.toward == Toward::Receiver {
            self.flow(train.flow).queued(first, last, count);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn bins_are_narrow_and_in_order(ns in 0..u64::MAX / 2) {
            let middle = value(bin(ns)).as_nanos();
            prop_assert!(middle.abs_diff(ns) as f64 <= ns as f64 * 0.005, "{} {}", ns, middle);
            prop_assert!(bin(ns) <= bin(ns + 1));
        }

        #[test]
        fn a_run_counts_as_its_parts(first in 0..1u64 << 40, step in -900i64..900, n in 1..64u64) {
            let at = |i: u64| first.saturating_add_signed(step * i as i64);
            prop_assume!(first as i64 + step * n as i64 > 0);
            let (mut whole, mut parts) = (FlowAtLink::default(), FlowAtLink::default());
            let ns = Duration::from_nanos;
            whole.queued(ns(at(0)), ns(at(n - 1)), n);
            (0..n).for_each(|i| parts.queued(ns(at(i)), ns(at(i)), 1));
            prop_assert_eq!(whole.sum, parts.sum);
            prop_assert_eq!(whole.waits.bins, parts.waits.bins);
        }
    }

    #[test]
    fn quantiles_are_ranks() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.quantile(0.99), Duration::ZERO);
        (1..=100).for_each(|ns| histogram.add(ns, 1));
        assert_eq!(histogram.quantile(0.99), Duration::from_nanos(99));
        assert_eq!(histogram.quantile(0.5), Duration::from_nanos(50));
    }
}
