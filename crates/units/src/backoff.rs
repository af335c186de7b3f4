//! Waits between tries that fail.

use crate::Duration;

/// Waits that double with each failure in a row, from the first up to the longest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    first: Duration,
    max: Duration,
    failures: u32,
}

impl Backoff {
    /// No failure yet.
    pub const fn new(first: Duration, max: Duration) -> Self {
        Self { first, max, failures: 0 }
    }

    /// The wait after a failure that follows `failures` others in a row.
    pub fn after(&self, failures: u32) -> Duration {
        (self.first * (1 << failures.min(63))).min(self.max)
    }

    /// It failed: how long to wait. The next wait is twice as long.
    pub fn next_wait(&mut self) -> Duration {
        let wait = self.after(self.failures);
        self.failures = self.failures.saturating_add(1);
        wait
    }

    /// It worked: the next failure is the first again.
    pub const fn reset(&mut self) {
        self.failures = 0;
    }

    /// Failures in a row.
    pub const fn failures(&self) -> u32 {
        self.failures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest_and_begin_again() {
        let mut backoff = Backoff::new(Duration::from_millis(250), Duration::from_secs(2));
        let waits: Vec<u64> = (0..6).map(|_| backoff.next_wait().as_millis()).collect();
        assert_eq!(waits, [250, 500, 1000, 2000, 2000, 2000]);
        assert_eq!(backoff.failures(), 6);
        backoff.reset();
        assert_eq!((backoff.failures(), backoff.next_wait().as_millis()), (0, 250));
    }

    #[test]
    fn many_failures_overflow_nothing() {
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::MAX);
        assert_eq!(backoff.after(u32::MAX), Duration::MAX);
        backoff.failures = u32::MAX;
        assert_eq!(backoff.next_wait(), Duration::MAX);
        assert_eq!(backoff.failures(), u32::MAX);
    }
}
