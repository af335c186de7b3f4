//! First transmission times of segments, per burst.

use std::collections::VecDeque;

use packtrain_units::{Duration, Time};

use super::rate::Snapshot;

/// Segments first sent together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Burst {
    /// The first segment, and the number of segments.
    pub(super) segment: u64,
    pub(super) count: u64,
    /// Send index of the first.
    pub(super) index: u64,
    /// When the first was sent, and the gap between segments.
    pub(super) at: Time,
    pub(super) gap: Duration,
    pub(super) snapshot: Snapshot,
}

/// One transmission of one segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Transmission {
    pub(super) index: u64,
    pub(super) at: Time,
    pub(super) snapshot: Snapshot,
    /// Whether it was a retransmission.
    pub(super) again: bool,
}

impl Burst {
    fn end(&self) -> u64 {
        self.segment + self.count
    }

    /// The transmission of `segment`, which is in this burst.
    pub(super) fn of(&self, segment: u64) -> Transmission {
        let i = segment - self.segment;
        Transmission {
            index: self.index + i,
            at: self.at + self.gap * i,
            snapshot: self.snapshot,
            again: false,
        }
    }
}

/// First transmissions of all segments in flight, in order.
#[derive(Clone, Debug, Default)]
pub(super) struct Log {
    bursts: VecDeque<Burst>,
}

impl Log {
    /// Adds segments sent for the first time; a paced sender's segments join the previous burst.
    pub(super) fn push(&mut self, burst: Burst) {
        if let Some(last) = self.bursts.back_mut()
            && last.snapshot == burst.snapshot
            && last.end() == burst.segment
            && last.index + last.count == burst.index
            && burst.count == 1
        {
            let gap = if last.count == 1 { burst.at.since(last.at) } else { last.gap };
            if last.at + gap * last.count == burst.at {
                last.gap = gap;
                last.count += 1;
                return;
            }
        }
        self.bursts.push_back(burst);
    }

    /// Drops bursts below `segment`.
    #[inline]
    pub(super) fn forget_below(&mut self, segment: u64) {
        while self.bursts.front().is_some_and(|burst| burst.end() <= segment) {
            self.bursts.pop_front();
        }
    }

    /// The burst in which `segment` was first sent.
    #[inline]
    pub(super) fn around(&self, segment: u64) -> Option<&Burst> {
        let front = self.bursts.front()?;
        if segment < front.end() {
            return (segment >= front.segment).then_some(front);
        }
        let i = self.bursts.partition_point(|burst| burst.end() <= segment);
        self.bursts.get(i)
    }

    /// The oldest transmission of `segment`.
    #[inline]
    pub(super) fn first_of(&self, segment: u64) -> Option<Transmission> {
        self.around(segment).map(|burst| burst.of(segment))
    }
}
