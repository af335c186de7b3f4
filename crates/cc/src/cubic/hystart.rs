//! HyStart: leaves slow start before the queue overflows (Ha and Rhee, "Taming the elephants: new
//! TCP slow start", 2011), with the constants and the corrections of Linux.

use packtrain_units::{Duration, Time};

/// Minimum window at which it is active, in packets.
const LOW_WINDOW: f64 = 16.0;
/// Maximum gap between acknowledgements of one train.
const TRAIN_GAP: Duration = Duration::from_millis(2);
/// Round-trip samples of a round before its minimum counts.
const SAMPLES: u32 = 8;
/// The delay has risen when it exceeds the minimum by an eighth, within these limits.
const MIN_DELAY_RISE: Duration = Duration::from_millis(4);
const MAX_DELAY_RISE: Duration = Duration::from_millis(16);
/// Maximum time that batching of acknowledgements may add to a train; otherwise the time of four
/// bursts of 64 KiB.
const MAX_ACK_BATCHING: Duration = Duration::from_millis(1);
const BURSTS: u64 = 4 * 65_536;

/// The two detectors over the rounds of slow start.
#[derive(Clone, Copy, Debug)]
pub(super) struct HyStart {
    /// Whether the sender paces packets: then a train is as long as the round.
    paced: bool,
    round_start: Time,
    last_ack: Time,
    /// A round ends when a packet from this index on is acknowledged.
    round_end: u64,
    /// The minimum of this round.
    round_rtt: Duration,
    samples: u32,
}

/// One acknowledgement in slow start.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ack {
    pub(super) now: Time,
    pub(super) rtt: Duration,
    pub(super) min_rtt: Duration,
    /// Highest acknowledged index, and the next to be sent.
    pub(super) newest: u64,
    pub(super) next: u64,
    /// In packets.
    pub(super) cwnd: f64,
    /// Bytes per second.
    pub(super) pace: u64,
}

impl HyStart {
    pub(super) fn new(now: Time, paced: bool) -> Self {
        Self {
            paced,
            round_start: now,
            last_ack: now,
            round_end: 0,
            round_rtt: Duration::MAX,
            samples: 0,
        }
    }

    pub(super) fn restart(&mut self, now: Time, next: u64) {
        *self = Self { round_end: next, ..Self::new(now, self.paced) };
    }

    /// Returns true if the path is full and slow start must end.
    pub(super) fn on_ack(&mut self, ack: &Ack) -> bool {
        if ack.newest >= self.round_end {
            self.restart(ack.now, ack.next);
        }
        ack.cwnd >= LOW_WINDOW && (self.is_train_long(ack) | self.is_delay_up(ack))
    }

    /// Whether the acknowledgements since the start of the round arrived without a gap and span
    /// half of the minimum round trip: packets sent back to back then fill the path in one
    /// direction.
    fn is_train_long(&mut self, ack: &Ack) -> bool {
        if ack.now.since(self.last_ack) > TRAIN_GAP {
            return false;
        }
        self.last_ack = ack.now;
        let batching = (BURSTS * 1_000_000_000).checked_div(ack.pace).unwrap_or(0);
        let span = ack.min_rtt + Duration::from_nanos(batching).min(MAX_ACK_BATCHING);
        let threshold = if self.paced { span } else { span / 2 };
        ack.now.since(self.round_start) > threshold
    }

    /// Whether the minimum round trip of this round exceeds the overall minimum.
    fn is_delay_up(&mut self, ack: &Ack) -> bool {
        self.round_rtt = self.round_rtt.min(ack.rtt);
        if self.samples < SAMPLES {
            self.samples += 1;
            return false;
        }
        let rise = (ack.min_rtt / 8).max(MIN_DELAY_RISE).min(MAX_DELAY_RISE);
        self.round_rtt > ack.min_rtt + rise
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ack(at_us: u64, rtt_us: u64, newest: u64, next: u64) -> Ack {
        Ack {
            now: Time::from_nanos(at_us * 1_000),
            rtt: Duration::from_micros(rtt_us),
            min_rtt: Duration::from_millis(40),
            newest,
            next,
            cwnd: 64.0,
            pace: u64::MAX,
        }
    }

    /// The time after the start of the round at which HyStart ends slow start, for acknowledgements
    /// `gap` apart.
    fn ends_after(paced: bool, gap: u64, rtt: u64) -> Option<u64> {
        let mut hystart = HyStart::new(Time::ZERO, paced);
        let first = 100_000;
        (0..200u64)
            .find(|i| hystart.on_ack(&ack(first + i * gap, rtt, i + 1, 1_000)))
            .map(|i| i * gap)
    }

    #[test]
    fn a_train_of_half_the_round_trip_ends_slow_start() {
        assert_eq!(ends_after(false, 500, 40_000), Some(20_500));
        assert_eq!(ends_after(true, 500, 40_000), Some(40_500));
        assert_eq!(ends_after(false, 2_500, 40_000), None, "gaps of more than 2 ms");
    }

    #[test]
    fn a_rise_of_an_eighth_ends_slow_start_after_eight_samples() {
        assert_eq!(ends_after(false, 2_500, 45_001), Some(8 * 2_500));
        assert_eq!(ends_after(false, 2_500, 45_000), None);
    }

    #[test]
    fn small_windows_and_short_rounds_say_nothing() {
        let mut hystart = HyStart::new(Time::ZERO, false);
        let small = Ack { cwnd: 15.0, ..ack(0, 90_000, 1, 10) };
        assert!((0..100).all(|i| !hystart.on_ack(&Ack { newest: i, ..small })));
        let mut hystart = HyStart::new(Time::ZERO, false);
        // A new round begins at each sixth acknowledgement, so there are never eight samples.
        assert!((0..100).all(|i| !hystart.on_ack(&ack(i * 5_000, 90_000, i, i + 6))));
    }
}
