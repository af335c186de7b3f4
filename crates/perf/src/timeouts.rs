//! When an end of a test stops waiting for the other end.

use packtrain_runtime::control::ControlSender;
use packtrain_runtime::session::Pulse;
use packtrain_transfer::{Failure, FailureKind};
use packtrain_units::{Duration, Time};

/// Limits of a test.
#[derive(Clone, Copy)]
pub(super) struct Timeouts {
    /// How much longer than its duration a test may take: to connect, and to end.
    pub(super) overtime: Duration,
    /// How long no byte may arrive.
    pub(super) stall: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self { overtime: Duration::from_secs(60), stall: Duration::from_secs(90) }
    }
}

/// Ends a test whose other end is gone, moves nothing, or does not end it.
pub(super) struct Watchdog {
    timeouts: Timeouts,
    pulse: Pulse,
    /// The end of a test with a duration.
    until: Option<Time>,
    bytes: u64,
    moved_at: Time,
}

impl Watchdog {
    /// Watches a test that begins now and lasts for `duration`, if it has one.
    pub(super) fn new(timeouts: Timeouts, now: Time, duration: Option<Duration>) -> Self {
        let until = duration.map(|duration| now + duration + timeouts.overtime);
        Self { timeouts, pulse: Pulse::new(now, false), until, bytes: 0, moved_at: now }
    }

    /// A message arrived.
    pub(super) fn on_message(&mut self, now: Time) {
        self.pulse.on_message(now);
    }

    /// The failure to end with, if any; `bytes` have arrived so far.
    pub(super) fn check(&mut self, now: Time, bytes: u64, tx: &ControlSender) -> Option<Failure> {
        if bytes > self.bytes {
            (self.bytes, self.moved_at) = (bytes, now);
        }
        let failed = |text: String| Some(Failure::new(FailureKind::Temporary, text));
        if self.until.is_some_and(|until| now > until) {
            return failed("the other end does not end the test".to_owned());
        }
        let still = now.since(self.moved_at);
        if still > self.timeouts.stall {
            return failed(format!("no data arrived for {}", still.to_readable()));
        }
        self.pulse.check(now, tx)
    }
}

#[cfg(test)]
mod tests {
    use packtrain_runtime::control;

    use super::*;

    #[test]
    fn a_test_ends_when_it_is_over_when_nothing_arrives_and_when_nobody_answers() {
        let (near, _far) = control::pair().expect("sockets");
        let at = |seconds: u64| Time::ZERO + Duration::from_secs(1000 + seconds);
        let timeouts = Timeouts::default();
        // Bytes arrive and messages too, and the test does not end.
        let mut watchdog = Watchdog::new(timeouts, at(0), Some(Duration::from_secs(10)));
        for second in 0..=70 {
            watchdog.on_message(at(second));
            assert_eq!(watchdog.check(at(second), second, &near.tx), None);
        }
        let failure = watchdog.check(at(71), 71, &near.tx).expect("it is over");
        assert_eq!(failure.kind, FailureKind::Temporary);
        // Messages arrive, and no byte.
        let mut watchdog = Watchdog::new(timeouts, at(0), None);
        for second in 0..=200 {
            watchdog.on_message(at(second));
            let bytes = second.min(100);
            let failure = watchdog.check(at(second), bytes, &near.tx);
            assert_eq!(failure.is_some(), second > 190, "after {second} s");
        }
        // Bytes arrive, and no message.
        let mut watchdog = Watchdog::new(timeouts, at(0), None);
        let ended =
            (0..300).find(|second| watchdog.check(at(*second), *second, &near.tx).is_some());
        assert_eq!(ended, Some(150));
    }
}
