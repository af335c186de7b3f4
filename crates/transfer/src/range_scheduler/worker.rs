//! One worker: what it was granted, and how it does.

use std::collections::VecDeque;
use std::ops::Range;

use packtrain_units::{ByteCount, DataRate, Duration, Offset, Time};

use super::{overlap, size, without};

/// Names a worker of a scheduler; none is used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerId(u32);

impl WorkerId {
    /// One of this number.
    pub const fn numbered(number: u32) -> Self {
        Self(number)
    }
}

/// When a worker counts as slow.
#[derive(Clone, Copy, Debug)]
pub struct Thresholds {
    /// A worker without progress for so long, and for so many round trips, stands still.
    pub still: (Duration, u64),
    /// A slow one is waited for until four times the expected time of its oldest range, but no
    /// longer than this.
    pub max_still: Duration,
    /// What a worker has had for so long, and for so many round trips, is overdue.
    pub overdue: (Duration, u64),
    /// At the end, work goes to another worker only if that saves so much time.
    pub gain: Duration,
    /// Over how long a worker's rate is taken. [`Duration::MAX`]: since it began.
    pub rate_span: Duration,
}

impl Thresholds {
    /// No worker counts as slow.
    pub const NEVER: Self = Self {
        still: (Duration::MAX, 0),
        max_still: Duration::ZERO,
        overdue: (Duration::MAX, 0),
        gain: Duration::MAX,
        rate_span: Duration::MAX,
    };
}

impl Default for Thresholds {
    fn default() -> Self {
        Self::NEVER
    }
}

/// A range that a worker was granted.
#[derive(Debug)]
pub(super) struct Held {
    /// Done when so many of all bytes granted to the worker are done.
    pub(super) end: u64,
    pub(super) range: Range<Offset>,
    pub(super) at: Time,
    /// The worker has a copy under way, but does not answer for it any more.
    pub(super) reassigned: bool,
}

/// A worker.
#[derive(Debug, Default)]
pub struct Worker<T> {
    /// What the owner knows about it.
    pub tag: T,
    /// Its smoothed round trip.
    pub srtt: Duration,
    /// It ends once all that it was granted is done.
    pub retiring: bool,
    pub(super) thresholds: Thresholds,
    pub(super) held: VecDeque<Held>,
    pub(super) granted: u64,
    pub(super) done: u64,
    /// When it last made progress, or was granted something while it had nothing.
    pub(super) moved: Time,
    /// Since when progress counts for its rate.
    pub(super) since: Time,
    pub(super) since_done: u64,
    pub(super) rate: DataRate,
    pub(super) still: bool,
}

impl<T> Worker<T> {
    /// Bytes that it has moved.
    pub fn done(&self) -> u64 {
        self.done
    }

    /// Bytes that it was granted and has not moved.
    pub fn under_way(&self) -> u64 {
        self.granted - self.done
    }

    /// Bytes that it has moved since it had nothing.
    pub fn done_since_start(&self) -> u64 {
        self.done - self.since_done
    }

    /// Its measured rate; zero before there is one.
    pub fn rate(&self) -> DataRate {
        self.rate
    }

    /// Its rate since it had nothing; zero before it has moved anything.
    pub fn rate_since_start(&self, now: Time) -> DataRate {
        DataRate::from_bytes_over(ByteCount(self.done_since_start()), now.since(self.since))
    }

    /// Whether it has nothing under way that counts.
    pub fn is_idle(&self) -> bool {
        self.held.is_empty()
    }

    /// Whether it was found to stand still.
    pub fn is_still(&self) -> bool {
        self.still
    }

    /// Whether it has made no progress for longer than it is waited for.
    pub fn is_stalled(&self, now: Time) -> bool {
        let Thresholds { still: (still, rtts), max_still, .. } = self.thresholds;
        let front = self.held.front().map_or(0, |held| held.end.saturating_sub(self.done));
        let front = match self.rate {
            DataRate::ZERO => Duration::ZERO,
            rate => rate.time_for(ByteCount(front)) * 4,
        };
        now.since(self.moved) >= still.max(self.srtt * rtts).max(front.min(max_still))
    }

    /// Bytes that it answers for.
    pub fn load(&self) -> ByteCount {
        let held = self.held.iter().filter(|held| !held.reassigned);
        ByteCount(held.map(|held| size(&held.range)).sum())
    }

    /// What is still to come of the range granted last; empty if it does not answer for that.
    pub fn rest(&self) -> Range<Offset> {
        let last = self.held.back().filter(|held| !held.reassigned);
        last.map_or(Offset::ZERO..Offset::ZERO, |last| {
            let left = last.end.saturating_sub(self.done).min(size(&last.range));
            Offset(last.range.end.get() - left)..last.range.end
        })
    }

    pub(super) fn answers_for(&self, range: &Range<Offset>) -> bool {
        let within = |one: &Range<Offset>| one.start <= range.start && range.end <= one.end;
        self.held.iter().any(|held| !held.reassigned && within(&held.range))
    }

    pub(super) fn is_willing(&self) -> bool {
        !self.still && !self.retiring
    }

    /// Its rate; before that is known 10 Mbit/s.
    pub(super) fn likely_rate(&self) -> DataRate {
        if self.rate == DataRate::ZERO { DataRate::from_mbps(10) } else { self.rate }
    }

    /// How long it will take for what it answers for.
    pub(super) fn time_left(&self) -> Duration {
        self.likely_rate().time_for(self.load())
    }

    /// How long it will take for [`Worker::rest`] at its rate since it began.
    pub(super) fn rest_time(&self, now: Time) -> Duration {
        let time = self.rate_since_start(now).time_for(ByteCount(size(&self.rest())));
        if self.is_stalled(now) { Duration::MAX } else { time }
    }

    /// So many of the bytes that it was granted are done.
    pub(super) fn advance(&mut self, now: Time, done: u64) {
        (self.done, self.moved, self.still) = (done, now, false);
        let span = now.since(self.since);
        if span >= self.thresholds.rate_span {
            let rate = DataRate::from_bytes_over(ByteCount(self.done_since_start()), span);
            self.rate = match self.rate {
                DataRate::ZERO => rate,
                old => DataRate::from_bps(old.as_bps() / 2 + rate.as_bps() / 2),
            };
            (self.since, self.since_done) = (now, done);
        }
    }

    /// It has moved `range`.
    pub(super) fn pass(&mut self, now: Time, range: &Range<Offset>) {
        let held = self.held.iter().rfind(|held| overlap(&held.range, range));
        let done = held.map_or(0, |held| held.end - size(&(range.end..held.range.end)));
        self.advance(now, self.done.max(done));
    }

    /// Copies of `range` that it has under way do not count any more.
    pub(super) fn forget(&mut self, range: &Range<Offset>) {
        if !self.held.iter().any(|held| overlap(&held.range, range)) {
            return;
        }
        for held in std::mem::take(&mut self.held) {
            for range in without(&held.range, range) {
                // Its bytes come in order, so each part of it is done at a total of its own.
                let end = held.end - size(&(range.end..held.range.end));
                self.held.push_back(Held { end, range, ..held });
            }
        }
    }

    /// Takes the end of [`Worker::rest`] from it, from `at` on. Gives what it does not answer for
    /// any more because it has moved all before.
    pub(super) fn cut(&mut self, now: Time, at: Offset) -> Option<Range<Offset>> {
        let last = self.held.back_mut()?;
        let bytes = size(&(at..last.range.end));
        (last.range.end, last.end) = (at, last.end - bytes);
        self.granted -= bytes;
        let over = last.range.start == at || last.end <= self.done;
        // Another worker answers for the tail: what is left has all the time again.
        self.moved = now;
        if over { self.held.pop_back().map(|held| held.range) } else { None }
    }
}
