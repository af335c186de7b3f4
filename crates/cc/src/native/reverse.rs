//! The queue of the reverse direction, in which feedback waits and data does not.
//!
//! Window and pace are for the round trip with it, as with a receiver that holds its reports back.

/// A shorter queue is noise: this, in seconds, and this share of the base.
const MIN_DELAY: f64 = 2e-3;
const MIN_SHARE: f64 = 1.0 / 16.0;
/// The share of it that is left after a round in which it was not seen.
const DECAY: f64 = 0.9;

/// Queueing delay of the reverse direction, beyond what the base contains. The mean of a round counts:
/// it turns the window into a rate, and that queue may be empty at times. Of two rounds the lesser
/// counts.
#[derive(Debug, Default)]
pub(super) struct ReverseDelay {
    /// The sum of the samples of this round, in seconds, and their number.
    sum: f64,
    samples: u32,
    /// The mean of the round before.
    before: f64,
    delay: f64,
}

impl ReverseDelay {
    /// The delay that the window covers, in seconds.
    pub(super) fn delay(&self) -> f64 {
        self.delay
    }

    /// Takes the queueing delay of a report, in seconds.
    pub(super) fn sample(&mut self, delay: f64) {
        self.sum += delay;
        self.samples += 1;
    }

    /// Ends a round with this mean round trip. A receiver may put any time on a report, but it cannot
    /// make the round trip longer without waiting. Without a sample the round says nothing.
    pub(super) fn on_round(&mut self, base: f64, rtt: f64) {
        let (sum, samples) = (std::mem::take(&mut self.sum), std::mem::take(&mut self.samples));
        if samples == 0 {
            return;
        }
        let mean = sum / f64::from(samples);
        let before = std::mem::replace(&mut self.before, mean);
        let delay = mean.min(before).max(DECAY * self.delay).min(rtt - base);
        self.delay = if delay > MIN_DELAY + MIN_SHARE * base { delay } else { 0.0 };
    }

    /// Forgets the samples of this round.
    pub(super) fn restart(&mut self) {
        (self.sum, self.samples) = (0.0, 0);
    }

    /// The base now contains more of the queue by this, in seconds.
    pub(super) fn on_longer_base(&mut self, by: f64) {
        self.sum -= f64::from(self.samples) * by;
        self.before -= by;
        if by > 0.0 {
            self.delay = (self.delay - by).max(0.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(queue: &mut ReverseDelay, delay: f64) -> f64 {
        queue.sample(delay - 0.001);
        queue.sample(delay + 0.001);
        queue.on_round(0.1, 0.3);
        queue.delay()
    }

    #[test]
    fn the_lesser_of_two_rounds_counts_and_fades() {
        let mut queue = ReverseDelay::default();
        assert_eq!(round(&mut queue, 0.05), 0.0, "one round");
        assert!((round(&mut queue, 0.04) - 0.04).abs() < 1e-9, "the lesser of two");
        queue.on_round(0.1, 0.3);
        assert!((queue.delay() - 0.04).abs() < 1e-9, "a round without a sample");
        assert!((round(&mut queue, 0.0) - 0.036).abs() < 1e-9, "it fades");
        let gone = (0..20).map(|_| round(&mut queue, 0.0)).last();
        assert_eq!(gone, Some(0.0));
    }

    #[test]
    fn a_receiver_that_dates_its_reports_back_lengthens_the_window_only_to_the_round_trip() {
        let mut queue = ReverseDelay::default();
        round(&mut queue, 1e6);
        assert!((round(&mut queue, 1e6) - 0.2).abs() < 1e-9);
    }

    #[test]
    fn what_the_base_contains_is_no_queue_of_the_reverse_direction() {
        let mut queue = ReverseDelay::default();
        round(&mut queue, 0.05);
        round(&mut queue, 0.05);
        queue.sample(0.05);
        queue.on_longer_base(0.03);
        queue.on_round(0.1, 0.3);
        assert!((queue.delay() - 0.02).abs() < 1e-9, "{}", queue.delay());
        let mut queue = ReverseDelay::default();
        queue.on_longer_base(-0.001);
        assert_eq!(queue.delay(), 0.0);
    }
}
