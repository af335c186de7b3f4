//! The packets that wait for the transmitter, as runs of packets that start at equal gaps.

use std::collections::VecDeque;

use packtrain_units::{ByteCount, DataRate, Duration, Time};

use crate::element::Pace;

/// The waiting packets, without the one in transmission.
///
/// A packet leaves the queue at the instant at which its transmission starts, before arrivals at
/// the same instant. After a query for a time, queries for earlier times are meaningless: times
/// never decrease.
#[derive(Clone, Debug, Default)]
pub struct Backlog {
    runs: VecDeque<Run>,
    packets: u64,
    bytes: u64,
    free: Time,
    rate: DataRate,
}

#[derive(Clone, Copy, Debug)]
struct Run {
    start: Time,
    gap: Duration,
    count: u64,
    size: u32,
}

impl Run {
    fn last(&self) -> Time {
        self.start + self.gap * (self.count - 1)
    }
}

impl Backlog {
    /// Number of packets that wait at `now`.
    pub fn packets(&mut self, now: Time) -> u64 {
        self.advance(now);
        self.packets
    }

    /// Their bytes.
    pub fn bytes(&mut self, now: Time) -> ByteCount {
        self.advance(now);
        ByteCount(self.bytes)
    }

    /// An upper bound of the packets that wait now: cheap, and exact just after `packets` or
    /// `bytes`.
    #[inline]
    pub(crate) fn packets_at_most(&self) -> u64 {
        self.packets
    }

    /// An upper bound of the bytes that wait now.
    #[inline]
    pub(crate) fn bytes_at_most(&self) -> ByteCount {
        ByteCount(self.bytes)
    }

    /// When the next packet leaves the queue or the transmitter becomes free, whichever is first.
    pub(crate) fn next_change(&mut self, now: Time) -> Time {
        self.advance(now);
        self.runs.front().map_or(self.free, |run| run.start)
    }

    /// Since when nothing waits and nothing is being sent; `None` while something does, or while
    /// the link is down.
    #[inline]
    pub fn idle_since(&self, now: Time) -> Option<Time> {
        (self.free <= now).then_some(self.free)
    }

    /// The transmitter's rate.
    pub fn rate(&self) -> DataRate {
        self.rate
    }

    #[inline]
    pub(crate) fn free(&self) -> Time {
        self.free
    }

    #[inline]
    pub(crate) fn set_transmitter(&mut self, free: Time, rate: DataRate) {
        (self.free, self.rate) = (free, rate);
    }

    /// `count` packets of `size` will start at `starts`, all after they arrived.
    #[inline]
    pub(crate) fn push(&mut self, starts: Pace, count: u32, size: u32) {
        let n = u64::from(count);
        self.packets += n;
        self.bytes += n * u64::from(size);
        if let Some(run) = self.runs.back_mut().filter(|run| run.size == size) {
            let gap = starts.first.since(run.start);
            // A run of one packet takes the gap to the next one.
            if run.count == 1 && (count == 1 || starts.gap == gap) {
                (run.gap, run.count) = (gap, n + 1);
                return;
            }
            if gap == run.gap * run.count && (count == 1 || starts.gap == run.gap) {
                run.count += n;
                return;
            }
        }
        self.runs.push_back(Run { start: starts.first, gap: starts.gap, count: n, size });
    }

    /// Removes whole runs that have left, which bounds memory at minimum cost.
    #[inline]
    pub(crate) fn prune(&mut self, now: Time) {
        while let Some(run) = self.runs.front().filter(|run| run.last() <= now) {
            self.packets -= run.count;
            self.bytes -= run.count * u64::from(run.size);
            self.runs.pop_front();
        }
    }

    fn advance(&mut self, now: Time) {
        self.prune(now);
        let Some(run) = self.runs.front_mut().filter(|run| run.start <= now) else { return };
        // The last of it is later than `now`, so the gap is not zero.
        let sent = now.since(run.start).as_nanos() / run.gap.as_nanos() + 1;
        run.start += run.gap * sent;
        run.count -= sent;
        self.packets -= sent;
        self.bytes -= sent * u64::from(run.size);
    }

    /// Adds packets that the queue's owner keeps.
    pub(crate) fn hold(&mut self, count: u32, size: u32) {
        self.packets += u64::from(count);
        self.bytes += u64::from(count) * u64::from(size);
    }

    /// Removes them.
    pub(crate) fn unhold(&mut self, count: u32, size: u32) {
        self.packets -= u64::from(count);
        self.bytes -= u64::from(count) * u64::from(size);
    }
}
