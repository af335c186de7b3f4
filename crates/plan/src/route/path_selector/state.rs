//! What is known of one way.

use std::collections::VecDeque;

use packtrain_units::{ByteCount, DataRate, Duration, Time};

use super::super::choice::Forecasted;

/// What was no better, or failed, is left alone for so long; twice as long each time.
const HOLD: Duration = Duration::from_secs(10);
const HOLD_MOST: Duration = Duration::from_secs(600);

#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    pub(super) at: Time,
    pub(super) bytes: u64,
    /// Streams there were, times the seconds they were there.
    pub(super) stream_seconds: f64,
}

#[derive(Clone, Debug)]
pub(super) struct State {
    pub(super) name: String,
    pub(super) hops: Vec<Duration>,
    pub(super) forecast: Option<Forecasted>,
    /// What a part of it gives all streams of somebody, and one stream.
    pub(super) cap: Option<(Forecasted, DataRate)>,
    pub(super) away_until: Time,
    pub(super) hold: Duration,
    pub(super) marks: VecDeque<Mark>,
    pub(super) streams: u32,
    /// What was moved, and how long it took, while nothing was rising.
    pub(super) steady: (u64, Duration),
}

impl State {
    pub(super) fn new(name: String, hops: Vec<Duration>) -> Self {
        Self {
            name,
            hops,
            forecast: None,
            cap: None,
            away_until: Time::ZERO,
            hold: HOLD,
            marks: VecDeque::new(),
            streams: 0,
            steady: (0, Duration::ZERO),
        }
    }

    pub(super) fn put_away(&mut self, now: Time) {
        self.away_until = now + self.hold;
        self.hold = (self.hold * 2).min(HOLD_MOST);
    }

    /// The first and last mark of a span.
    pub(super) fn ends(&self, now: Time, span: Duration) -> Option<(Mark, Mark)> {
        let last = *self.marks.back()?;
        let first = self.marks.iter().rev().find(|mark| mark.at + span <= now)?;
        (last.at > first.at).then_some((*first, last))
    }

    /// What all streams together moved.
    pub(super) fn rate(&self, now: Time, span: Duration) -> Option<DataRate> {
        let (first, last) = self.ends(now, span)?;
        let bytes = ByteCount(last.bytes.saturating_sub(first.bytes));
        Some(DataRate::from_bytes_over(bytes, last.at.since(first.at)))
    }

    /// What each moved, in bit/s.
    pub(super) fn each(&self, now: Time, span: Duration) -> Option<f64> {
        let (first, last) = self.ends(now, span)?;
        let seconds = last.stream_seconds - first.stream_seconds;
        let bits = last.bytes.saturating_sub(first.bytes) as f64 * 8.0;
        (seconds > 0.0).then(|| bits / seconds)
    }
}
