//! The liveness timers of a flow:
//!
//! - *keepalive*: nothing sent for 5 s: a ping;
//! - *stall*: no answer for 3 s: `Event::Stalled`, once;
//! - *silence*: nothing received for 30 s after something was received: closed as `Silent`;
//! - *unreachable*: nothing received in the first 30 s: closed as `Unreachable`;
//! - *close*: the close frame is sent three times, a quarter of a second apart.

use packtrain_units::{Duration, Time};

use crate::config::limits::{CLOSE_REPEATS, KEEPALIVE, SILENCE, STALL, UNREACHABLE};
use crate::seam::CloseReason;

const CLOSE_GAP: Duration = Duration::from_millis(250);

/// What is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// Send a ping.
    Keepalive,
    /// Report the stall to the owner.
    Stalled,
    /// Close the flow: the peer is silent.
    Silent,
    /// Close the flow: no packet ever came from the peer.
    Unreachable,
    /// Send a close frame with this code.
    Close(u8),
}

/// Liveness of one flow.
#[derive(Debug)]
pub(crate) struct Life {
    started: Time,
    established: bool,
    last_received_at: Option<Time>,
    last_sent_at: Time,
    waiting_since: Option<Time>,
    stalled: bool,
    closing: Option<Closing>,
}

#[derive(Debug)]
struct Closing {
    code: u8,
    left: u32,
    next_at: Time,
}

impl Life {
    pub(crate) fn new(now: Time) -> Self {
        Self {
            started: now,
            established: false,
            last_received_at: None,
            last_sent_at: now,
            waiting_since: None,
            stalled: false,
            closing: None,
        }
    }

    pub(crate) fn is_established(&self) -> bool {
        self.established
    }

    pub(crate) fn establish(&mut self) {
        self.established = true;
    }

    /// Whether the flow is closing or closed.
    pub(crate) fn is_over(&self) -> bool {
        self.closing.is_some()
    }

    /// Whether all close frames have been sent.
    pub(crate) fn is_closed(&self) -> bool {
        self.closing.as_ref().is_some_and(|c| c.left == 0)
    }

    /// When a packet was last sent.
    pub(crate) fn last_sent_at(&self) -> Time {
        self.last_sent_at
    }

    /// A packet that needs an answer was sent.
    pub(crate) fn on_sent_packet(&mut self, now: Time) {
        self.last_sent_at = now;
        self.waiting_since.get_or_insert(now);
    }

    /// An authentic packet arrived. Returns true if that ends a stall.
    pub(crate) fn on_received(&mut self, now: Time) -> bool {
        self.last_received_at = Some(now);
        self.waiting_since = None;
        std::mem::take(&mut self.stalled)
    }

    /// Closes the flow. With `notify` the peer receives close frames, unless nothing ever arrived
    /// from it.
    pub(crate) fn close(&mut self, now: Time, reason: &CloseReason, notify: bool) {
        let left = if notify && self.last_received_at.is_some() { CLOSE_REPEATS } else { 0 };
        self.closing.get_or_insert(Closing { code: code_of(reason), left, next_at: now });
    }

    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        if let Some(closing) = &self.closing {
            return (closing.left > 0).then_some(closing.next_at);
        }
        let Some(received) = self.last_received_at else { return Some(self.started + UNREACHABLE) };
        if !self.established {
            return Some((received + SILENCE).max(self.started + UNREACHABLE));
        }
        let stall = self.waiting_since.filter(|_| !self.stalled).map(|at| at + STALL);
        let keepalive = self.last_sent_at + KEEPALIVE;
        stall.into_iter().chain([received + SILENCE, keepalive]).min()
    }

    /// The next due action; call it until it returns `None`.
    pub(crate) fn poll(&mut self, now: Time) -> Option<Due> {
        if self.poll_timeout().is_none_or(|at| now < at) {
            return None;
        }
        if let Some(closing) = &mut self.closing {
            closing.left -= 1;
            closing.next_at = now + CLOSE_GAP;
            return Some(Due::Close(closing.code));
        }
        let Some(received) = self.last_received_at else { return Some(Due::Unreachable) };
        if now.since(received) >= SILENCE {
            return Some(Due::Silent);
        }
        if !self.stalled && self.waiting_since.is_some_and(|at| now.since(at) >= STALL) {
            self.stalled = true;
            return Some(Due::Stalled);
        }
        self.last_sent_at = now;
        Some(Due::Keepalive)
    }
}

/// The wire code of a reason.
pub(crate) fn code_of(reason: &CloseReason) -> u8 {
    match reason {
        CloseReason::Done => 0,
        CloseReason::Abandoned => 1,
        CloseReason::Silent(_) => 2,
        CloseReason::Unreachable => 3,
        CloseReason::OptimisticAck => 4,
        CloseReason::Breaker => 5,
        CloseReason::Protocol(_) => 6,
        CloseReason::Channel => 7,
    }
}

/// The reason for a wire code.
pub(crate) fn reason_of(code: u8) -> CloseReason {
    match code {
        0 => CloseReason::Done,
        2 => CloseReason::Silent(SILENCE),
        3 => CloseReason::Unreachable,
        4 => CloseReason::OptimisticAck,
        5 => CloseReason::Breaker,
        6 => CloseReason::Protocol("the peer says that we did"),
        7 => CloseReason::Channel,
        _ => CloseReason::Abandoned,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(s: u64) -> Time {
        Time::ZERO + Duration::from_secs(s)
    }

    /// The due actions until `until` if nothing more arrives, with their times in seconds.
    fn run(life: &mut Life, until: u64) -> Vec<(u64, Due)> {
        let mut seen = Vec::new();
        while let Some(due_at) = life.poll_timeout().filter(|t| *t <= at(until)) {
            let Some(due) = life.poll(due_at) else { continue };
            seen.push((due_at.since(Time::ZERO).as_millis() / 1000, due));
            if matches!(due, Due::Silent | Due::Unreachable) {
                break;
            }
            if due == Due::Keepalive {
                life.on_sent_packet(due_at);
            }
        }
        seen
    }

    #[test]
    fn silence_stalls_then_ends() {
        let mut life = Life::new(at(0));
        life.establish();
        life.on_received(at(0));
        life.on_sent_packet(at(0));
        let seen = run(&mut life, 60);
        assert_eq!(seen[0], (3, Due::Stalled));
        assert_eq!(seen.last(), Some(&(30, Due::Silent)));
        assert_eq!(seen.iter().filter(|(_, d)| *d == Due::Stalled).count(), 1);
        assert!(life.on_received(at(31)), "the stall is over");
    }

    #[test]
    fn never_heard_is_unreachable() {
        assert_eq!(run(&mut Life::new(at(0)), 60), [(30, Due::Unreachable)]);
    }

    #[test]
    fn a_close_is_said_three_times() {
        let mut life = Life::new(at(0));
        life.on_received(at(0));
        life.close(at(1), &CloseReason::Done, true);
        assert_eq!(run(&mut life, 9).len(), CLOSE_REPEATS as usize);
        assert!(life.is_closed());
    }

    #[test]
    fn reasons_survive_the_wire() {
        for code in 0..7 {
            assert_eq!(code_of(&reason_of(code)), code);
        }
        assert_eq!(reason_of(200), CloseReason::Abandoned);
    }
}
