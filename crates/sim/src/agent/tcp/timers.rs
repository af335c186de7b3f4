//! The sender's timers: connection setup and retransmission (one deadline), tail loss probe (the
//! same deadline), reordering (RACK), pacing, and the controller's own.

use packtrain_link::Pace;
use packtrain_units::{Duration, Time};

use super::input::Delivered;
use super::sender::{Life, Phase, Sender};
use crate::agent::Ctx;
use crate::spec::Recovery;
use crate::train::Body;

/// Minimum timeout of the SYN (RFC 6298 section 2.1).
const OPENING: Duration = Duration::from_secs(1);

/// Due times.
#[derive(Clone, Debug)]
pub(super) struct Timers {
    /// The start, the answer to a SYN, a retransmission timeout or a tail loss probe.
    pub(super) deadline: Time,
    /// Whether `deadline` belongs to a probe.
    pub(super) probe: bool,
    /// Whether a probe was sent and no acknowledgement has arrived since.
    pub(super) probed: bool,
    /// When a segment in the reordering window is lost.
    pub(super) reorder: Time,
    /// When the next packet may be sent, if one waits.
    pub(super) pace: Time,
    /// When the next packet may be sent.
    pub(super) paced_until: Time,
    /// When the SYN was sent.
    pub(super) opened_at: Time,
}

impl Timers {
    pub(super) fn start_at(start: Time) -> Self {
        Self {
            deadline: start,
            probe: false,
            probed: false,
            reorder: Time::MAX,
            pace: Time::MAX,
            paced_until: Time::ZERO,
            opened_at: start,
        }
    }

    /// Stops all timers.
    pub(super) fn clear(&mut self) {
        (self.deadline, self.reorder, self.pace) = (Time::MAX, Time::MAX, Time::MAX);
    }
}

impl Sender {
    /// When the next timer expires.
    #[inline]
    pub(super) fn next_timeout(&self) -> Time {
        let own = self.timers.deadline.min(self.timers.reorder).min(self.timers.pace);
        match self.life {
            Life::Open => own.min(self.cc.poll_timeout().unwrap_or(Time::MAX)),
            _ => own,
        }
    }

    /// Runs all timers that expire before `limit`, and sends what they allow.
    pub(crate) fn run_timers(&mut self, limit: Time, ctx: &mut Ctx<'_>) {
        self.act_on_timers(limit, ctx);
        self.flush(ctx);
    }

    #[inline]
    pub(super) fn act_on_timers(&mut self, limit: Time, ctx: &mut Ctx<'_>) {
        loop {
            let now = self.next_timeout();
            if now >= limit {
                return;
            }
            self.on_due(now, ctx);
        }
    }

    fn on_due(&mut self, now: Time, ctx: &mut Ctx<'_>) {
        if self.timers.reorder <= now {
            self.timers.reorder = Time::MAX;
            self.on_reordering_timer(now, ctx);
        } else if self.timers.deadline <= now {
            match self.life {
                Life::Idle | Life::Opening(_) => self.open(now, ctx),
                _ if self.timers.probe => self.on_probe_timer(now, ctx),
                _ => self.on_retransmission_timer(now, ctx),
            }
        } else if self.timers.pace <= now {
            self.timers.pace = Time::MAX;
            self.output(now, ctx);
        } else {
            self.cc.on_timeout(now);
            self.output(now, ctx);
        }
    }

    pub(super) fn open(&mut self, now: Time, ctx: &mut Ctx<'_>) {
        if now >= self.shape.stop {
            return self.timers.clear();
        }
        let tries = match self.life {
            Life::Opening(tries) => tries + 1,
            _ => 1,
        };
        self.life = Life::Opening(tries);
        self.timers.opened_at = now;
        self.timers.deadline = now + OPENING * (1 << (tries - 1).min(6));
        let syn = self.shape.forward(u64::from(tries - 1), 1, 0, Body::Syn);
        ctx.send(Pace::at(now), syn);
    }

    /// Restarts the retransmission or probe timer.
    #[inline]
    pub(super) fn arm(&mut self, now: Time) {
        self.timers.probe = false;
        let timeout = self.rto.timeout();
        if self.outstanding() == 0 {
            self.timers.deadline = if self.is_window_closed() { now + timeout } else { Time::MAX };
            return;
        }
        self.timers.deadline = now + timeout;
        let probes = self.method == Recovery::Rack
            && self.phase == Phase::Open
            && !self.timers.probed
            && self.board.sacked.is_empty();
        if probes && let Some(rtt) = self.rto.rtt() {
            let pto = self.rack.probe_timeout(rtt.smoothed, self.outstanding());
            if pto < timeout {
                self.timers.deadline = now + pto;
                self.timers.probe = true;
            }
        }
    }

    /// Whether there is data to send and only the receiver's window forbids it. The update that
    /// opens the window may be lost, so a timer is needed (RFC 9293 section 3.8.6.1).
    fn is_window_closed(&self) -> bool {
        self.edge <= self.nxt && self.nxt < self.available.min(self.shape.segments)
    }

    /// Section 7.3 of RFC 8985: sends new data if there is any, else the last segment again.
    fn on_probe_timer(&mut self, now: Time, ctx: &mut Ctx<'_>) {
        self.timers.probed = true;
        if self.phase != Phase::Open || !self.board.is_clean() {
            // The state shows more than a probe would.
            return self.arm(now);
        }
        if self.fresh(now) > 0 {
            self.send_fresh(now, 1, ctx);
        } else {
            self.probe(now, self.nxt - 1, ctx);
        }
        self.arm(now);
    }

    /// Probes the closed window, with doubling intervals.
    fn on_closed_window(&mut self, now: Time, ctx: &mut Ctx<'_>) {
        self.timers.deadline = Time::MAX;
        if self.is_window_closed() && now < self.shape.stop {
            self.flush(ctx);
            ctx.send(Pace::at(now), self.shape.forward(self.nxt, 1, 0, Body::Probe));
            self.rto.back_off();
            self.timers.deadline = now + self.rto.timeout();
        }
    }

    /// Section 5 of RFC 6298: no segment is in flight any more, and all are retransmitted from the
    /// first on, except those known to have arrived.
    fn on_retransmission_timer(&mut self, now: Time, ctx: &mut Ctx<'_>) {
        if self.outstanding() == 0 {
            return self.on_closed_window(now, ctx);
        }
        self.counts.timeouts += 1;
        self.timers.probed = false;
        self.timers.reorder = Time::MAX;
        for (segment, by) in self.board.clear_retransmissions() {
            self.record_lost(by, 1);
            self.board.lost.insert(segment..segment + 1);
        }
        self.lose_first_transmissions(self.nxt);
        self.newreno.leave();
        self.prr = None;
        self.phase = Phase::Loss(self.nxt);
        self.feedback(now, &Delivered::default(), true);
        self.rto.back_off();
        self.timers.deadline = Time::MAX;
        self.forced = 1;
        self.output(now, ctx);
        self.arm(now);
    }
}
