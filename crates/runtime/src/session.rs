//! What both ends of a transfer share: who watches it and who stops it.

use packtrain_transfer::message::{Message, Open};
use packtrain_transfer::{Failure, FailureKind, FileReport, SinkTotals, SourceTotals};
use packtrain_units::{Duration, Time};

use crate::control::ControlSender;
use packtrain_service::evidence::Part;
use packtrain_service::{Notice, StopHandle};

/// Watches one end of a transfer. Calls come from its thread and must not block for long.
pub trait Observer: Send + Sync {
    /// A file is done.
    fn file(&self, path: &[u8], report: &FileReport);
    /// How far the source is, a few times a second.
    fn source(&self, totals: &SourceTotals);
    /// How far the sink is, a few times a second.
    fn sink(&self, totals: &SinkTotals);
    /// Which transport moves the data now.
    fn transport(&self, name: &str);
    /// Something to say.
    fn notice(&self, notice: &Notice);
    /// Whether evidence is kept here; otherwise it goes to the other end.
    fn keeps(&self) -> bool {
        false
    }
    /// An end tells of itself, once a second.
    fn part(&self, _: Part) {}
    /// A called end: its caller was let in and asks for this; `perf` is the number of flows of a
    /// measurement.
    fn asked(&self, _: &Open, _perf: Option<u32>, _transport: &str) {}
    /// What earlier transfers to a machine measured with how many streams.
    fn earlier(&self, _to: &str) -> Vec<packtrain_plan::streams::Sample> {
        Vec::new()
    }
    /// What goes to the other end as this end's part.
    fn saw(&self, _: &Part) {}
}

/// The wish to end, taken once.
#[derive(Clone, Debug)]
pub struct Stop {
    handle: StopHandle,
    kind: FailureKind,
    text: &'static str,
    taken: bool,
}

impl Stop {
    /// Wishes that come through `handle`.
    pub fn new(handle: StopHandle) -> Self {
        Self { handle, kind: FailureKind::Cancelled, text: "stopped on request", taken: false }
    }

    /// The end of a called end. Its caller did not ask for it, so the caller is told a failure that
    /// passes: it tries again, and goes on from what is safe.
    pub fn of_called_end(handle: StopHandle) -> Self {
        let text = "the other end was stopped: the transfer goes on when it is back";
        Self { handle, kind: FailureKind::Temporary, text, taken: false }
    }

    /// The failure to end with, the first time it is asked after somebody wished the end.
    pub fn take(&mut self) -> Option<Failure> {
        if self.taken {
            return None;
        }
        let failure = self.asked();
        self.taken = failure.is_some();
        failure
    }

    /// The failure to end with, if somebody wished the end.
    pub fn asked(&self) -> Option<Failure> {
        self.handle.requested().map(|_| Failure::new(self.kind, self.text))
    }
}

/// Only a signal that this process got cancels its command, and shows in its exit code. What another
/// end calls cancelled is a failure that passes.
pub fn only_own_signal(kind: &mut FailureKind, stop: &StopHandle) {
    if *kind == FailureKind::Cancelled && stop.requested().is_none() {
        *kind = FailureKind::Temporary;
    }
}

/// Silence after which the other end is asked whether it is there.
const ASK_AFTER: Duration = Duration::from_secs(30);
/// Silence after which it is not: a machine that sleeps or a process that was stopped.
const SILENT_AFTER: Duration = Duration::from_secs(150);
/// The same where depots are in between: there may be another way.
const RELAYED: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(20));

/// Whether the other end is alive.
#[derive(Debug)]
pub struct Pulse {
    heard: Time,
    /// When it was asked, first and last, since something was heard.
    asked: Option<(Time, Time)>,
    over: bool,
    /// Questions that the other end has not answered.
    open: u32,
    ask_after: Duration,
    silent_after: Duration,
}

impl Pulse {
    /// A pulse that was felt now, over depots or not.
    pub fn new(now: Time, relayed: bool) -> Self {
        let (ask_after, silent_after) = if relayed { RELAYED } else { (ASK_AFTER, SILENT_AFTER) };
        Self { heard: now, asked: None, over: false, open: 0, ask_after, silent_after }
    }

    /// Something came.
    pub fn heard(&mut self, now: Time) {
        (self.heard, self.asked) = (now, None);
    }

    /// Whether an answer of the other end is to one of our questions.
    pub(crate) fn was_asked(&mut self) -> bool {
        let was = self.open > 0;
        self.open = self.open.saturating_sub(1);
        was
    }

    /// Asks after some silence; the failure to end with, once, after too much. Silence counts once
    /// it was asked: while this end itself was busy elsewhere, nothing could be heard.
    pub fn check(&mut self, now: Time, tx: &ControlSender) -> Option<Failure> {
        if tx.is_overfull() && !self.over {
            self.over = true;
            let text = "the other end sends and does not read";
            return Some(Failure::new(FailureKind::Protocol, text));
        }
        let (ask, failure) = self.look(now);
        if ask {
            self.open = self.open.saturating_add(1);
            tx.send(&Message::Ping(now.as_nanos()));
        }
        failure
    }

    fn look(&mut self, now: Time) -> (bool, Option<Failure>) {
        let silence = now.since(self.heard);
        if let Some((first, _)) = self.asked
            && now.since(first) + self.ask_after >= self.silent_after
            && !self.over
        {
            self.over = true;
            let text = format!("nothing heard from the other end for {silence}");
            return (false, Some(Failure::new(FailureKind::Temporary, text)));
        }
        let last = self.asked.map_or(self.heard, |(_, last)| last);
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
                let (ask, failure) = pulse.look(at(second));
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
        let (ask, failure) = pulse.look(at(190));
        assert!(ask && failure.is_none());
        pulse.heard(at(191));
        assert_eq!(pulse.look(at(192)), (false, None));
    }
}
