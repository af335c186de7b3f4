//! Types that both ends of a transfer share: the observer, the request to stop, and the check for a
//! silent peer.

use packtrain_transfer::message::{Message, Open};
use packtrain_transfer::{Failure, FailureKind, FileReport, SinkTotals, SourceTotals};
use packtrain_units::{Duration, Time};

use crate::control::ControlSender;
use packtrain_service::evidence::Part;
use packtrain_service::history::Earlier;
use packtrain_service::{Notice, STOPPED, StopHandle};

/// Observes one end of a transfer. The end's thread calls the methods, so they must not block for
/// long.
pub trait Observer: Send + Sync {
    /// A file is complete or failed.
    fn file(&self, path: &[u8], report: &FileReport);
    /// Progress of the source, a few times per second.
    fn source(&self, totals: &SourceTotals);
    /// Progress of the sink, a few times per second.
    fn sink(&self, totals: &SinkTotals);
    /// Name of the transport that moves the data.
    fn transport(&self, name: &str);
    /// A notice for the user.
    fn notice(&self, notice: &Notice);
    /// Whether this observer keeps evidence; otherwise the evidence is sent to the other end.
    fn keeps(&self) -> bool {
        false
    }
    /// Evidence of either end, once per second.
    fn part(&self, _: Part) {}
    /// Responder: the initiator was admitted and requests this; `perf` is the number of flows of a
    /// measurement.
    fn asked(&self, _: &Open, _perf: Option<u32>, _transport: &str) {}
    /// What earlier transfers to a host measured.
    fn earlier(&self, _to: &str) -> Earlier {
        Earlier::default()
    }
    /// Evidence of this end, which is also sent to the other end.
    fn saw(&self, _: &Part) {}
}

/// A request to stop, which is delivered once.
#[derive(Clone, Debug)]
pub struct Stop {
    handle: StopHandle,
    kind: FailureKind,
    text: &'static str,
    taken: bool,
}

impl Stop {
    /// Requests to stop that arrive through `handle`.
    pub fn new(handle: StopHandle) -> Self {
        Self { handle, kind: FailureKind::Cancelled, text: STOPPED, taken: false }
    }

    /// A request to stop a responder. The initiator did not request it, so it gets a temporary
    /// failure. It then retries and resumes from the durable data.
    pub fn of_called_end(handle: StopHandle) -> Self {
        let text = "the other end was stopped: the transfer goes on when it is back";
        Self { handle, kind: FailureKind::Temporary, text, taken: false }
    }

    /// The failure to end with, at the first call after a request to stop.
    pub fn take(&mut self) -> Option<Failure> {
        if self.taken {
            return None;
        }
        let failure = self.asked();
        self.taken = failure.is_some();
        failure
    }

    /// The failure to end with, if a stop was requested.
    pub fn asked(&self) -> Option<Failure> {
        self.handle.requested().map(|_| Failure::new(self.kind, self.text))
    }
}

/// Only a signal to this process cancels its command and determines its exit code. If the other end
/// reports a cancellation, this is a temporary failure here.
pub fn only_own_signal(kind: &mut FailureKind, stop: &StopHandle) {
    if *kind == FailureKind::Cancelled && stop.requested().is_none() {
        *kind = FailureKind::Temporary;
    }
}

/// Time without messages after which a ping is sent.
const ASK_AFTER: Duration = Duration::from_secs(30);
/// Time without messages after which the peer counts as gone, because its machine sleeps or its
/// process was stopped.
const SILENT_AFTER: Duration = Duration::from_secs(150);
/// The same two times over depots. They are shorter because another path may exist.
const RELAYED: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(20));

/// Detects a peer that sends nothing.
#[derive(Debug)]
pub struct Pulse {
    last_message: Time,
    /// Times of the first and the last ping since the last message.
    asked: Option<(Time, Time)>,
    over: bool,
    /// Number of unanswered pings.
    open: u32,
    ask_after: Duration,
    silent_after: Duration,
}

impl Pulse {
    /// A state with a message at `now`; `relayed`: depots are in between.
    pub fn new(now: Time, relayed: bool) -> Self {
        let (ask_after, silent_after) = if relayed { RELAYED } else { (ASK_AFTER, SILENT_AFTER) };
        Self { last_message: now, asked: None, over: false, open: 0, ask_after, silent_after }
    }

    /// A message arrived.
    pub fn on_message(&mut self, now: Time) {
        (self.last_message, self.asked) = (now, None);
    }

    /// Whether a pong answers one of our pings.
    pub(crate) fn on_pong(&mut self) -> bool {
        let was = self.open > 0;
        self.open = self.open.saturating_sub(1);
        was
    }

    /// Sends a ping after some silence, and returns the failure to end with, once, after too much.
    /// Silence counts only from the first ping on, because this end may have been too busy to read
    /// before.
    pub fn check(&mut self, now: Time, tx: &ControlSender) -> Option<Failure> {
        if tx.is_overfull() && !self.over {
            self.over = true;
            let text = "the other end sends and does not read";
            return Some(Failure::new(FailureKind::Protocol, text));
        }
        let (ask, failure) = self.poll(now);
        if ask {
            self.open = self.open.saturating_add(1);
            tx.send(&Message::Ping(now.as_nanos()));
        }
        failure
    }

    fn poll(&mut self, now: Time) -> (bool, Option<Failure>) {
        let silence = now.since(self.last_message);
        if let Some((first, _)) = self.asked
            && now.since(first) + self.ask_after >= self.silent_after
            && !self.over
        {
            self.over = true;
            let text = format!("nothing heard from the other end for {}", silence.to_readable());
            return (false, Some(Failure::new(FailureKind::Temporary, text)));
        }
        let last = self.asked.map_or(self.last_message, |(_, last)| last);
        let ask = silence >= self.ask_after && now.since(last) >= self.ask_after;
        if ask {
            let first = self.asked.map_or(now, |(first, _)| first);
            self.asked = Some((first, now));
        }
        (ask, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn silence_is_asked_about_and_then_an_end_once() {
        for (relayed, ask, end) in [(false, 30, 150), (true, 5, 20)] {
            let mut pulse = Pulse::new(at(100), relayed);
            let mut asked = Vec::new();
            let mut over = Vec::new();
            for second in 100..400 {
                let (ask, failure) = pulse.poll(at(second));
                asked.extend(ask.then_some(second - 100));
                over.extend(failure.map(|_| second - 100));
            }
            assert_eq!((asked[0], asked[1], &over[..]), (ask, 2 * ask, &[end][..]));
        }
    }

    #[test]
    fn a_peer_that_says_cancelled_is_no_signal_here() {
        let stop = StopHandle::new();
        let mut kind = FailureKind::Cancelled;
        only_own_signal(&mut kind, &stop);
        assert_eq!(kind, FailureKind::Temporary);
        stop.request(2);
        for own in [FailureKind::Cancelled, FailureKind::Integrity] {
            kind = own;
            only_own_signal(&mut kind, &stop);
            assert_eq!(kind, own);
        }
    }

    #[test]
    fn a_called_end_that_is_stopped_tells_a_failure_that_passes() {
        let handle = StopHandle::new();
        let (own, called) = (Stop::new(handle.clone()), Stop::of_called_end(handle.clone()));
        assert_eq!((own.asked(), called.asked()), (None, None));
        handle.request(15);
        assert_eq!(own.asked().unwrap().kind, FailureKind::Cancelled);
        assert_eq!(called.asked().unwrap().kind, FailureKind::Temporary);
    }

    #[test]
    fn who_was_busy_asks_before_it_gives_up() {
        let mut pulse = Pulse::new(at(100), true);
        let (ask, failure) = pulse.poll(at(190));
        assert!(ask && failure.is_none());
        pulse.on_message(at(191));
        assert_eq!(pulse.poll(at(192)), (false, None));
    }
}
