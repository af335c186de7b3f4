//! The reordering window: how late a packet must be to count as lost. It starts at RTT/8 and widens
//! after spurious losses.

use packtrain_units::{Duration, Time};

/// Minimum window: batches and threads reorder by less.
const FLOOR: Duration = Duration::from_micros(250);
/// Maximum window in eighths of the round trip (RFC 8985 section 6.2 step 4).
const MAX_EIGHTHS: u64 = 8;
/// Round trips without a spurious loss after which the window is halved.
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
    /// The window for a smoothed round trip.
    pub(crate) fn window(&self, srtt: Duration) -> Duration {
        (srtt * self.eighths / 8).max(FLOOR * self.eighths)
    }

    /// Takes a report; `spurious` of its packets had been declared lost.
    pub(crate) fn on_report(&mut self, now: Time, srtt: Duration, spurious: u64) {
        let since = now.since(self.changed_at);
        if spurious > 0 {
            if since >= srtt {
                self.eighths = (self.eighths * 2).min(MAX_EIGHTHS);
            }
            if since >= srtt || self.eighths == MAX_EIGHTHS {
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
