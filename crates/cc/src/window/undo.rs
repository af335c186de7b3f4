//! Spurious congestion events (RFC 9438 section 4.9, RFC 4015): losses that all arrived late. The
//! window then returns to what it was before the event.
//!
//! Feedback says how many packets proved spurious, not which. Packets of the event before this one
//! may still arrive for a while, and are not taken for those of this one.

use packtrain_units::{Duration, Time};

use super::Window;
use crate::interface::{Feedback, LossRange};

/// How long packets declared lost are recognised when they arrive, at least; two round trips
/// otherwise.
const MIN_RECOGNITION: Duration = Duration::from_millis(100);

/// The state before a congestion event.
#[derive(Clone, Copy, Debug)]
pub(super) struct Undo {
    cwnd: f64,
    ssthresh: f64,
    recover: u64,
    /// Packets whose loss belongs to the event, and how many of them arrived.
    lost: u64,
    spurious: u64,
    /// Until when the packets declared lost are recognised if they arrive.
    until: Time,
    /// Packets of the event before that may still arrive, and until when.
    earlier: u64,
    earlier_until: Time,
}

impl Window {
    /// Whether the loss does not belong to the last cut.
    pub(super) fn is_new(&self, loss: &LossRange) -> bool {
        loss.first.saturating_add(u64::from(loss.count)) > self.recover
    }

    /// A cut or collapse follows. It can be undone if only losses caused it.
    pub(super) fn begin_event(&mut self, feedback: &Feedback<'_>) {
        let new = feedback.lost.iter().filter(|loss| self.is_new(loss));
        let lost: u64 = new.map(|loss| u64::from(loss.count)).sum();
        let before = self.undo.take();
        if feedback.ecn_ce == 0 && lost > 0 {
            self.undo = Some(Undo {
                cwnd: self.cwnd,
                ssthresh: self.ssthresh,
                recover: self.recover,
                lost,
                spurious: 0,
                earlier: before.map_or(0, |undo| undo.lost.saturating_sub(undo.spurious)),
                until: self.recognised_until(feedback.now),
                earlier_until: before.map_or(Time::ZERO, |undo| undo.until),
            });
        }
        self.recover = self.next;
    }

    fn recognised_until(&self, now: Time) -> Time {
        let trip = Duration::from_secs_f64(self.srtt.unwrap_or(0.0));
        now + (trip * 2).max(MIN_RECOGNITION)
    }

    /// Counts further losses of the event, and those that were spurious. Restores the state before
    /// it and returns true if all were.
    pub(super) fn is_undone(&mut self, feedback: &Feedback<'_>) -> bool {
        let until = self.recognised_until(feedback.now);
        let Some(undo) = &mut self.undo else { return false };
        let lost: u64 = feedback.lost.iter().map(|loss| u64::from(loss.count)).sum();
        if lost > 0 {
            (undo.lost, undo.until) = (undo.lost + lost, until);
        }
        let mut spurious = feedback.spurious;
        if feedback.now < undo.earlier_until {
            let earlier = spurious.min(undo.earlier);
            undo.earlier -= earlier;
            spurious -= earlier;
        }
        undo.spurious += spurious;
        if undo.spurious < undo.lost {
            return false;
        }
        self.cwnd = self.cwnd.max(undo.cwnd);
        self.ssthresh = self.ssthresh.max(undo.ssthresh);
        self.recover = undo.recover;
        self.timed_out = false;
        self.undo = None;
        true
    }
}
