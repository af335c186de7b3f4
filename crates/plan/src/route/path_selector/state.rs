//! The state of one path.

use std::collections::VecDeque;

use packtrain_units::{ByteCount, DataRate, Duration, Time};

use super::super::choice::Forecasted;

/// Time for which a path that was no better, or failed, is not tried again; doubled each time.
const RETRY_DELAY: Duration = Duration::from_secs(10);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(600);

#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    pub(super) at: Time,
    pub(super) bytes: u64,
    /// Integral of the number of streams over time, in seconds.
    pub(super) stream_seconds: f64,
}

#[derive(Clone, Debug)]
pub(super) struct State {
    pub(super) name: String,
    pub(super) hops: Vec<Duration>,
    pub(super) forecast: Option<Forecasted>,
    /// Measured rate of a part of it, for all streams of an earlier transfer, and for one stream.
    pub(super) cap: Option<(Forecasted, DataRate)>,
    pub(super) retry_at: Time,
    pub(super) retry_delay: Duration,
    /// Failures and useless trials, and how many of them end the use of the path.
    pub(super) failures: u32,
    pub(super) max_failures: u32,
    pub(super) marks: VecDeque<Mark>,
    pub(super) streams: u32,
    /// Bytes and duration while no streams were starting.
    pub(super) steady: (u64, Duration),
}

impl State {
    pub(super) fn new(name: String, hops: Vec<Duration>) -> Self {
        Self {
            name,
            hops,
            forecast: None,
            cap: None,
            retry_at: Time::ZERO,
            retry_delay: RETRY_DELAY,
            failures: 0,
            max_failures: u32::MAX,
            marks: VecDeque::new(),
            streams: 0,
            steady: (0, Duration::ZERO),
        }
    }

    pub(super) fn back_off(&mut self, now: Time) {
        self.failures = self.failures.saturating_add(1);
        self.retry_at = now + self.retry_delay;
        self.retry_delay = (self.retry_delay * 2).min(MAX_RETRY_DELAY);
    }

    /// The first and last mark of a span.
    pub(super) fn ends(&self, now: Time, span: Duration) -> Option<(Mark, Mark)> {
        let last = *self.marks.back()?;
        let first = self.marks.iter().rev().find(|mark| mark.at + span <= now)?;
        (last.at > first.at).then_some((*first, last))
    }

    /// The rate of all streams together.
    pub(super) fn rate(&self, now: Time, span: Duration) -> Option<DataRate> {
        let (first, last) = self.ends(now, span)?;
        let bytes = ByteCount(last.bytes.saturating_sub(first.bytes));
        Some(DataRate::from_bytes_over(bytes, last.at.since(first.at)))
    }

    /// The rate per stream, in bit/s.
    pub(super) fn each(&self, now: Time, span: Duration) -> Option<f64> {
        let (first, last) = self.ends(now, span)?;
        let seconds = last.stream_seconds - first.stream_seconds;
        let bits = last.bytes.saturating_sub(first.bytes) as f64 * 8.0;
        (seconds > 0.0).then(|| bits / seconds)
    }
}
