//! The sender's timers: the pace and the freeze, the controller's own timer, and the timer of
//! silence.
//!
//! Silence means that for a while no unit was sent and no feedback arrived although units are in
//! flight. The first two timeouts retransmit the last unit, which shows the receiver a lost tail,
//! or brings an acknowledgement that was lost. The next one is EXP: all units in flight are taken
//! for lost. Each timeout is twice as long as the one before.

use packtrain_cc::LossRange;
use packtrain_units::{ByteCount, Duration, Time};

use super::feedback::MessageContents;
use super::{Message, Sender};
use crate::stats::Limit;
use crate::udt::SYN;

/// Timeout of silence before the round trip is known.
const UNKNOWN_RTT_TIMEOUT: Duration = Duration::from_secs(1);
/// Retransmissions of the last unit before all units are taken for lost.
const TAIL_PROBES: u32 = 2;
/// Maximum doublings of the timeout.
const MAX_SILENCE_DOUBLINGS: u32 = 6;
/// Maximum timeout.
const MAX_SILENCE: Duration = Duration::from_secs(10);

/// The timer of silence.
#[derive(Debug)]
pub(super) struct SilenceTimer {
    since: Time,
    fired: u32,
    /// Timeouts so far, and those that took all units for lost.
    times: (u64, u64),
}

impl SilenceTimer {
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

    /// When the next timer is due, pacing included.
    pub fn poll_timeout(&self) -> Option<Time> {
        let pace = (self.limit == Limit::Pacing).then(|| {
            let pace = self.pace.next();
            self.controller.frozen_until().map_or(pace, |until| until.max(pace))
        });
        pace.into_iter().chain(self.timers()).min()
    }

    /// When the next timer is due, without pacing: for an owner that has nothing to send.
    pub(crate) fn timers(&self) -> Option<Time> {
        self.controller.poll_timeout().into_iter().chain(self.silence()).min()
    }

    fn silence(&self) -> Option<Time> {
        // While units wait for retransmission, the network is not silent.
        if self.flight.len() == 0 || self.flight.lost() > 0 {
            return None;
        }
        Some(self.silence_timer.since + self.silence_timeout())
    }

    /// The turnaround, doubled for each timeout so far.
    fn silence_timeout(&self) -> Duration {
        let once = self.turnaround();
        (once * (1 << self.silence_timer.fired.min(MAX_SILENCE_DOUBLINGS)))
            .min(MAX_SILENCE.max(once))
    }

    /// Maximum time that a unit and its acknowledgement take.
    pub fn turnaround(&self) -> Duration {
        self.rtt.map_or(UNKNOWN_RTT_TIMEOUT, |(rtt, var)| rtt + var * 4 + SYN * 2)
    }

    /// Retransmits units that the owner knows to be missing; the controller is not notified,
    /// because their loss is not new to it.
    pub fn repeat(&mut self, first: u64, end: u64) {
        self.lose(first, end);
    }

    fn on_silence(&mut self, now: Time) {
        let (first, end) = (self.flight.acked(), self.flight.next());
        self.silence_timer.since = now;
        self.silence_timer.fired = self.silence_timer.fired.saturating_add(1);
        self.silence_timer.times.0 += 1;
        if self.silence_timer.fired <= TAIL_PROBES {
            self.lose(end - 1, end);
            return;
        }
        self.silence_timer.times.1 += 1;
        self.lose(first, end);
        let Some(unit) = self.flight.unit(first) else { return };
        let lost = LossRange {
            first: unit.index,
            count: u32::try_from(end - first).unwrap_or(u32::MAX),
            bytes: ByteCount((end - first) * self.config.datagram.get()),
            sent_at: unit.sent_at,
        };
        self.feed(
            now,
            MessageContents { lost: vec![lost], timeout: true, ..MessageContents::default() },
        );
    }

    /// Marks units for retransmission; for dropped units the receiver is notified again.
    fn lose(&mut self, first: u64, end: u64) {
        let mut dropped = Vec::new();
        self.flight.mark_lost(first, end, |a, b| dropped.push((a, b)));
        for (first, end) in dropped {
            self.queue_message(Message::Drop { first, end });
        }
    }
}
