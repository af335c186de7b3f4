//! The window for a rate of loss, and the rate of loss.

use std::collections::VecDeque;

/// Low_Window (RFC 3649 section 5): below it a flow behaves as standard TCP.
const LOW_WINDOW: f64 = 38.0;
/// The response function of HighSpeed TCP, 0.12 / p^0.835 (RFC 3649 section 5).
const HIGH: (f64, f64) = (0.12, 0.835);
/// That of standard TCP, 1.2 / sqrt(p) (RFC 3649 section 2).
const STANDARD: f64 = 1.2;
/// The long-term loss rate is taken over so many congestion events, as many as TFRC averages
/// (RFC 5348 section 5.4), and what was sent since the last.
const EVENTS: usize = 8;

/// Packets in flight at this rate of loss; none limits it without loss.
pub fn window(p: f64) -> Option<f64> {
    if p.is_nan() || p <= 0.0 {
        return None;
    }
    let p = p.min(1.0);
    let high = HIGH.0 / libm::pow(p, HIGH.1);
    Some(if high > LOW_WINDOW { high } else { STANDARD / libm::sqrt(p) })
}

/// The share of packets that the network loses, over many windows.
///
/// The paper says "long-term" and no more. A mean over the whole transfer would never forget one
/// bad minute; this one forgets by events, so its memory is long where loss is rare and short where
/// it is not.
#[derive(Clone, Debug, Default)]
pub(super) struct LongTerm {
    /// Packets sent and lost up to and with each event, oldest first.
    events: VecDeque<(f64, f64)>,
    /// Sent since the last event.
    since: f64,
}

impl LongTerm {
    /// So many packets, of which the network lost none.
    pub(super) fn clean(&mut self, packets: u64) {
        self.since += packets as f64;
    }

    /// A congestion event: so many packets, of which so many were lost.
    pub(super) fn event(&mut self, packets: u64, lost: u64) {
        if self.events.len() == EVENTS {
            self.events.pop_front();
        }
        let sent = std::mem::take(&mut self.since) + packets as f64;
        self.events.push_back((sent, lost as f64));
    }

    /// The rate of loss; what was sent since the last event counts if it lowers it.
    pub(super) fn rate(&self) -> f64 {
        let (sent, lost) =
            self.events.iter().fold((self.since, 0.0), |sum, e| (sum.0 + e.0, sum.1 + e.1));
        if sent > 0.0 { lost / sent } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_functions_meet_at_low_window() {
        // RFC 3649 section 5: w = 38 at p = 1e-3 and 83000 at 1e-7.
        let high = |p| window(p).unwrap();
        assert!((high(9.9e-4) - 38.6).abs() < 0.7, "{}", high(9.9e-4));
        assert!((high(1e-7) / 83_000.0 - 1.0).abs() < 0.02, "{}", high(1e-7));
        assert!((high(1e-2) - 12.0).abs() < 1e-9);
        let (above, below) = (high(1.02e-3), high(1.05e-3));
        assert!((above / below - 1.0).abs() < 0.05, "they meet: {above} {below}");
        assert_eq!((window(0.0), window(-1.0), window(f64::NAN)), (None, None, None));
        assert!((high(7.0) - 1.2).abs() < 1e-9, "more than all is all");
    }

    #[test]
    fn losses_are_forgotten_by_events() {
        let mut long = LongTerm::default();
        assert_eq!(long.rate(), 0.0);
        long.clean(9_000);
        long.event(1_000, 10);
        assert!((long.rate() - 1e-3).abs() < 1e-12);
        long.clean(10_000);
        assert!((long.rate() - 5e-4).abs() < 1e-12);
        for _ in 0..EVENTS {
            long.event(1_000, 1);
        }
        // The first of the eight has the 10,000 clean packets in it.
        assert!((long.rate() - 8.0 / 18_000.0).abs() < 1e-12);
    }
}
