//! Aggregation of acknowledgements: how much is acknowledged at once beyond what the rate explains.
//! The window needs room for it; otherwise the sender stops while acknowledgements are held back to
//! be sent together.

use packtrain_units::Time;

/// The maximum covers this many to twice as many rounds.
const ROUNDS: u32 = 5;
/// An epoch with more packets than this restarts.
const MAX_EPOCH_PACKETS: f64 = (1 << 20) as f64;
/// Upper limit of the addition to the window: the data that the rate brings in this many seconds.
const MAX_EXTRA_SECONDS: f64 = 0.1;

/// The excess of the last rounds. Amounts are packets, rates packets per second.
#[derive(Clone, Copy, Debug)]
pub(super) struct Aggregation {
    epoch: Time,
    acked: f64,
    /// The maximum of the current half of the window and of the other half.
    max: [f64; 2],
    rounds: u32,
}

impl Aggregation {
    pub(super) fn new(now: Time) -> Self {
        Self { epoch: now, acked: 0.0, max: [0.0; 2], rounds: 0 }
    }

    /// A pause: the next acknowledgements are no sign of aggregation.
    pub(super) fn restart(&mut self, now: Time) {
        self.epoch = now;
        self.acked = 0.0;
    }

    pub(super) fn on_acked(&mut self, now: Time, acked: f64, rate: f64, cwnd: f64, round: bool) {
        if round {
            self.rounds += 1;
            if self.rounds >= ROUNDS {
                self.rounds = 0;
                self.max = [0.0, self.max[0]];
            }
        }
        let mut expected = rate * now.since(self.epoch).as_secs_f64();
        if self.acked <= expected || self.acked + acked >= MAX_EPOCH_PACKETS {
            self.restart(now);
            expected = 0.0;
        }
        self.acked = (self.acked + acked).min(MAX_EPOCH_PACKETS);
        self.max[0] = self.max[0].max((self.acked - expected).min(cwnd));
    }

    /// The addition to the window.
    pub(super) fn extra(&self, rate: f64) -> f64 {
        self.max[0].max(self.max[1]).min(rate * MAX_EXTRA_SECONDS)
    }
}

#[cfg(test)]
mod tests {
    use packtrain_units::Duration;

    use super::*;

    #[test]
    fn batches_show_as_their_size() {
        let mut aggregation = Aggregation::new(Time::ZERO);
        for i in 1..100u64 {
            let now = Time::ZERO + Duration::from_millis(20) * i;
            aggregation.on_acked(now, 20.0, 1_000.0, 500.0, i % 5 == 0);
        }
        let extra = aggregation.extra(1_000.0);
        assert!((19.0..41.0).contains(&extra), "{extra}");
        assert!((aggregation.extra(10.0) - 1.0).abs() < 1e-9, "a tenth of a second at most");
    }
}
