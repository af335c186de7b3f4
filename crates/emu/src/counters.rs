//! Counters of the packets of a wire.

use std::collections::BTreeMap;

use packtrain_link::DropCause;
use packtrain_units::{ByteCount, DataRate, Duration, Time};

/// Counters of one wire.
#[derive(Clone, Debug, Default)]
pub(crate) struct WireCounters {
    /// Packets offered.
    pub(crate) offered: u64,
    /// Bytes offered.
    pub(crate) offered_bytes: u64,
    /// Packets delivered.
    pub(crate) delivered: u64,
    /// Bytes delivered.
    pub(crate) delivered_bytes: u64,
    /// Packets dropped, by cause.
    dropped: [u64; CAUSES.len()],
    /// Maximum wait in the queue.
    pub(crate) longest_queue: Duration,
    span: Option<(Time, Time)>,
    second: (u64, u64),
    busiest: u64,
}

/// All causes, in the order of the counters.
const CAUSES: [(DropCause, &str); 6] = [
    (DropCause::Overflow, "overflow"),
    (DropCause::Early, "early"),
    (DropCause::Random, "random"),
    (DropCause::TooBig, "too_big"),
    (DropCause::Host, "host"),
    (DropCause::Down, "down"),
];

/// The name of a cause in records and reports.
pub(crate) fn word(cause: DropCause) -> &'static str {
    CAUSES.iter().find(|(other, _)| *other == cause).map_or("other", |(_, word)| word)
}

/// The name, if it is that of a cause.
pub(crate) fn known(text: &str) -> Option<&'static str> {
    CAUSES.iter().find(|(_, word)| *word == text).map(|(_, word)| *word)
}

impl WireCounters {
    /// Counts packets offered.
    pub(crate) fn offer(&mut self, packets: u32, bytes: u64) {
        self.offered += u64::from(packets);
        self.offered_bytes += bytes;
    }

    /// Counts packets dropped.
    pub(crate) fn drop(&mut self, cause: DropCause, packets: u32) {
        if let Some(i) = CAUSES.iter().position(|(other, _)| *other == cause) {
            self.dropped[i] += u64::from(packets);
        }
    }

    /// Counts packets delivered, the last at `last`.
    pub(crate) fn deliver(&mut self, first: Time, last: Time, packets: u32, bytes: u64) {
        self.delivered += u64::from(packets);
        self.delivered_bytes += bytes;
        let start = self.span.map_or(first, |(start, _)| start);
        self.span = Some((start, last));
        let second = last.as_nanos() / 1_000_000_000;
        if self.second.0 != second {
            self.second = (second, 0);
        }
        self.second.1 += bytes;
        self.busiest = self.busiest.max(self.second.1);
    }

    /// Packets dropped, for each cause that a link has.
    pub(crate) fn drops(&self) -> BTreeMap<String, u64> {
        let named = CAUSES.iter().zip(self.dropped).filter(|((c, _), _)| *c != DropCause::Host);
        named.map(|((_, word), count)| ((*word).to_owned(), count)).collect()
    }

    /// The mean rate from the first packet to the last.
    pub(crate) fn mean_rate(&self) -> DataRate {
        let Some((start, end)) = self.span.filter(|(start, end)| end > start) else {
            return DataRate::ZERO;
        };
        DataRate::from_bytes_over(ByteCount(self.delivered_bytes), end.since(start))
    }

    /// The rate of the busiest second, or the mean if all packets took less than a second.
    pub(crate) fn busiest_rate(&self) -> DataRate {
        let busiest = DataRate::from_bytes_over(ByteCount(self.busiest), Duration::from_secs(1));
        busiest.max(self.mean_rate())
    }
}
