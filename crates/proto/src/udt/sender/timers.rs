//! The sender's timers: the pace and the freeze (they end by themselves), the controller's own,
//! and that of silence.
//!
//! Silence is when nothing left and nothing was learnt for a while although units are open. Twice
//! it makes the last unit leave again, which shows the receiver a lost tail, or shows us an
//! acknowledgement that was lost. After that it is EXP: everything open is taken for lost. Each
//! time it waits twice as long as before.

use packtrain_cc::LossRange;
use packtrain_units::{ByteCount, Duration, Time};

use super::feedback::News;
use super::{Message, Sender};
use crate::stats::Limit;

/// SYN: how long the receiver may wait with an acknowledgement (section III.A).
const SYN: Duration = Duration::from_millis(10);
/// Silence before the round trip is known.
const UNKNOWN: Duration = Duration::from_secs(1);
/// So many times the last unit is repeated before everything is taken for lost.
const TAIL_PROBES: u32 = 2;
/// Silence doubles so often at most.
const MAX_SILENCE_DOUBLINGS: u32 = 6;
/// And lasts no longer than this.
const MAX_SILENCE: Duration = Duration::from_secs(10);

/// Since when nothing happened.
#[derive(Debug)]
pub(super) struct Quiet {
    since: Time,
    fired: u32,
    /// So far: times it fired, times everything was taken for lost.
    times: (u64, u64),
}

impl Quiet {
    pub(super) fn new(now: Time) -> Self {
        Self { since: now, fired: 0, times: (0, 0) }
    }

    pub(super) fn times(&self) -> (u64, u64) {
        self.times
    }

    pub(super) fn on_sent(&mut self, now: Time) {
        self.since = now;
    }

    pub(super) fn on_progress(&mut self, now: Time) {
        self.since = now;
        self.fired = 0;
    }
}

impl Sender {
    /// Runs the timers that are due.
    pub fn handle_timeout(&mut self, now: Time) {
        if self.controller.poll_timeout().is_some_and(|at| at <= now) {
            self.controller.on_timeout(now);
        }
        if self.silence().is_some_and(|at| at <= now) {
            self.on_silence(now);
        }
    }

    /// When something happens by itself.
    pub fn poll_timeout(&self) -> Option<Time> {
        let pace = (self.limit == Limit::Pacing).then(|| {
            let pace = self.pace.next();
            self.controller.frozen_until().map_or(pace, |until| until.max(pace))
        });
        pace.into_iter().chain(self.timers()).min()
    }

    /// The same for an owner that would not send anything now anyhow.
    pub(crate) fn timers(&self) -> Option<Time> {
        self.controller.poll_timeout().into_iter().chain(self.silence()).min()
    }

    fn silence(&self) -> Option<Time> {
        // While units wait to leave again it is not the network that is silent.
        if self.flight.len() == 0 || self.flight.lost() > 0 {
            return None;
        }
        Some(self.quiet.since + self.patience())
    }

    /// How long a unit and what is said about it may take, doubled as often as that was not
    /// enough.
    fn patience(&self) -> Duration {
        let once = self.turnaround();
        (once * (1 << self.quiet.fired.min(MAX_SILENCE_DOUBLINGS))).min(MAX_SILENCE.max(once))
    }

    /// How long a unit and what is said about it may take.
    pub fn turnaround(&self) -> Duration {
        self.rtt.map_or(UNKNOWN, |(rtt, var)| rtt + var * 4 + SYN * 2)
    }

    /// These leave again, since their owner knows that they are missing; the controller is not
    /// told, to whom their loss is not new.
    pub fn repeat(&mut self, first: u64, end: u64) {
        self.lose(first, end);
    }

    fn on_silence(&mut self, now: Time) {
        let (first, end) = (self.flight.acked(), self.flight.next());
        self.quiet.since = now;
        self.quiet.fired = self.quiet.fired.saturating_add(1);
        self.quiet.times.0 += 1;
        if self.quiet.fired <= TAIL_PROBES {
            self.lose(end - 1, end);
            return;
        }
        self.quiet.times.1 += 1;
        self.lose(first, end);
        let Some(unit) = self.flight.unit(first) else { return };
        let lost = LossRange {
            first: unit.index,
            count: u32::try_from(end - first).unwrap_or(u32::MAX),
            bytes: ByteCount((end - first) * self.config.datagram.get()),
            sent_at: unit.sent_at,
        };
        self.feed(now, News { lost: vec![lost], timeout: true, ..News::default() });
    }

    /// These leave again; of the dropped ones the receiver is told again.
    fn lose(&mut self, first: u64, end: u64) {
        let mut dropped = Vec::new();
        self.flight.lose(first, end, |a, b| dropped.push((a, b)));
        for (first, end) in dropped {
            self.say(Message::Drop { first, end });
        }
    }
}
