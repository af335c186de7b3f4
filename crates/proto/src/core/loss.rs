//! How late a packet must be to count as lost: RTT/8, widened when it turned out wrong.

use packtrain_units::{Duration, Time};

/// No window is narrower: batches and threads reorder by less.
const FLOOR: Duration = Duration::from_micros(250);
/// The window is at most this many eighths of the round trip (RFC 8985 section 6.2 step 4).
const WIDEST: u64 = 8;
/// Round trips without a spurious loss after which the window narrows by half.
const CALM_ROUNDS: u64 = 16;

/// The reordering window of the time threshold (RFC 9002 section 6.1.2, RFC 8985).
#[derive(Debug)]
pub(crate) struct Reordering {
    eighths: u64,
    changed_at: Time,
}

impl Default for Reordering {
    fn default() -> Self {
        Self { eighths: 1, changed_at: Time::ZERO }
    }
}

impl Reordering {
    /// The window at a smoothed round trip.
    pub(crate) fn window(&self, srtt: Duration) -> Duration {
        (srtt * self.eighths / 8).max(FLOOR * self.eighths)
    }

    /// A report was worked through; `spurious` packets of it had been declared lost.
    pub(crate) fn on_report(&mut self, now: Time, srtt: Duration, spurious: u64) {
        let since = now.since(self.changed_at);
        if spurious > 0 {
            if since >= srtt {
                self.eighths = (self.eighths * 2).min(WIDEST);
            }
            if since >= srtt || self.eighths == WIDEST {
                self.changed_at = now;
            }
        } else if self.eighths > 1 && since >= srtt * CALM_ROUNDS {
            self.eighths /= 2;
            self.changed_at = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widens_on_spurious_loss_and_narrows_in_calm() {
        let mut reordering = Reordering::default();
        let rtt = Duration::from_millis(80);
        let at = |round: u64| Time::ZERO + rtt * round;
        assert_eq!(reordering.window(rtt), rtt / 8);
        (1..6).for_each(|round| reordering.on_report(at(round), rtt, 1));
        assert_eq!(reordering.window(rtt), rtt);
        (6..60).for_each(|round| reordering.on_report(at(round), rtt, 0));
        assert_eq!(reordering.window(rtt), rtt / 8);
        assert_eq!(reordering.window(Duration::from_micros(50)), FLOOR);
    }
}
