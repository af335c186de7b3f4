//! SABUL: Mazzucco et al., "Simple Available Bandwidth Utilization Library for High-Speed Wide
//! Area Networks" (2001). A rate, looked at every 500 packets, that is to lose less than 1 %.
//!
//! What the paper leaves open, and what is done here:
//!
//! - *The step of a change of the rate.* It is 0.5 % of the rate that the flow began with. On a
//!   saturated path a change of the rate by so much changes the loss by as much, so from a loss
//!   below 0.5 % a step up leads to one below 1 %, never across the whole band. Five times less
//!   would take longer to leave a wrong first rate than the paper's transfer of 128 MB lasts.
//! - *When it rises.* While less than 0.5 % is lost. In between the rate stays, or it would go up
//!   and down across 1 % for ever.
//! - *Which losses count.* Those of packets that left since the rate last fell: others tell of a
//!   rate that is no more. Otherwise a flow with more than 500 packets under way would pay several
//!   times for one mistake.
//! - *What silence is.* Nothing heard for four round trips and for 200 ms at least.
//!
//! How the rate falls, and whether it does in silence (the paper's future work), is the
//! [`Variant`]. Section numbers are the paper's.

mod variant;

use packtrain_units::{ByteCount, DataRate, Duration, Time};

use crate::interface::{CongestionController, Feedback, Sent, Signal, Signals};
use crate::registry::{ControllerConfig, quantum};
pub use variant::{Decrease, Silence, Variant};

/// The rate is reviewed every so many packets (section 4).
pub const REVIEW: u64 = 500;
/// The loss that the rate is to stay below (section 4).
const LIMIT: f64 = 0.01;
/// Below this loss the rate rises.
const RAISE: f64 = 0.005;
/// A step, as a share of the first rate.
const STEP: f64 = 0.005;
/// The first rate that nobody named: the paper's network cards.
const FIRST: DataRate = DataRate::from_mbps(100);
/// The slowest rate, in bits a second.
const SLOWEST: f64 = 100_000.0;
/// The fastest, in bits a second: beyond any path and far from overflow.
const FASTEST: f64 = 1e13;
/// The window never binds; it is no part of the algorithm.
const ENDLESS: ByteCount = ByteCount(1 << 44);
/// Silence is at least this long, and so many round trips.
const SILENCE: (Duration, u64) = (Duration::from_millis(200), 4);

/// The controller `sabul`.
#[derive(Debug)]
pub struct Sabul {
    variant: Variant,
    mtu: ByteCount,
    /// In bits a second, as are the others.
    rate: f64,
    step: f64,
    ceiling: f64,
    /// One past the highest index sent.
    next: u64,
    /// Losses of packets with lower indices are of a rate that is no more.
    epoch: u64,
    /// What became of the packets of this review.
    arrived: u64,
    lost: u64,
    /// Whether the application had less than the rate allows at any time since the last review.
    app_limited: bool,
    /// The loss of the last review.
    loss: f64,
    rtt: Duration,
    heard_at: Time,
    /// Packets that left in silence.
    unheard: u64,
}

impl Sabul {
    /// A controller that begins with the variant's rate, or 100 Mbit/s, or the ceiling if that is
    /// less (section 4, Open: the smaller of the two offers).
    pub fn new(config: &ControllerConfig, variant: Variant) -> Self {
        let bps = |rate: DataRate| rate.as_bps() as f64;
        let ceiling = config.ceiling.map_or(FASTEST, bps).clamp(1.0, FASTEST);
        let rate = variant.first.map_or(bps(FIRST), bps).min(ceiling);
        Self {
            variant,
            mtu: config.mtu,
            rate,
            step: rate * STEP,
            ceiling,
            next: 0,
            epoch: 0,
            arrived: 0,
            lost: 0,
            app_limited: false,
            loss: 0.0,
            rtt: config.rtt.unwrap_or(Duration::from_millis(100)),
            heard_at: config.now,
            unheard: 0,
        }
    }

    fn set(&mut self, rate: f64) {
        self.rate = rate.clamp(SLOWEST, FASTEST).min(self.ceiling);
    }

    /// The fate of so many packets is known: is the rate right?
    fn review(&mut self) {
        self.loss = self.lost as f64 / (self.arrived + self.lost).max(1) as f64;
        if self.loss > LIMIT {
            self.decrease(self.loss);
        } else if self.loss < RAISE && !self.app_limited {
            self.set(self.rate + self.step);
        }
        self.begin();
    }

    fn decrease(&mut self, loss: f64) {
        let goal = (RAISE + LIMIT) / 2.0;
        self.set(match self.variant.decrease {
            Decrease::Linear => self.rate - self.step,
            Decrease::Multiplicative => self.rate * variant::FACTOR,
            // A saturated path carries rate * (1 - loss), whatever the rate is: the one that
            // would lose the goal.
            Decrease::Proportional => self.rate * (1.0 - loss) / (1.0 - goal),
        });
        self.epoch = self.next;
    }

    /// The next review begins.
    fn begin(&mut self) {
        (self.arrived, self.lost, self.app_limited) = (0, 0, false);
    }

    fn patience(&self) -> Duration {
        (self.rtt * SILENCE.1).max(SILENCE.0)
    }
}

impl CongestionController for Sabul {
    fn name(&self) -> &'static str {
        self.variant.name()
    }

    fn needs(&self) -> Signals {
        Signals::of(&[Signal::Losses])
    }

    fn on_sent(&mut self, sent: &Sent) {
        self.next = self.next.max(sent.first.saturating_add(u64::from(sent.count)));
        self.app_limited |= sent.app_limited;
        if sent.now < self.heard_at + self.patience() {
            self.unheard = 0;
            return;
        }
        // Section 6: what to do while nothing is heard is left to experiment.
        self.unheard += u64::from(sent.count);
        if self.unheard >= REVIEW && self.variant.silence == Silence::Reduce {
            self.unheard = 0;
            self.decrease(LIMIT * 2.0);
            self.begin();
        }
    }

    fn on_feedback(&mut self, feedback: &Feedback<'_>) {
        self.heard_at = feedback.now;
        if let Some(rtt) = feedback.rtt {
            self.rtt = rtt.smoothed;
        }
        let lost = feedback.lost.iter().filter(|range| range.first >= self.epoch);
        self.lost = lost.fold(self.lost, |sum, range| sum.saturating_add(range.count.into()));
        if self.lost > 0 || feedback.largest_acked.is_some_and(|largest| largest >= self.epoch) {
            self.arrived = self.arrived.saturating_add(feedback.acked_packets);
        }
        if self.arrived.saturating_add(self.lost) >= REVIEW {
            self.review();
        }
    }

    fn cwnd(&self) -> ByteCount {
        ENDLESS
    }

    fn paces_itself(&self) -> bool {
        true
    }

    fn pacing_rate(&self) -> Option<DataRate> {
        Some(DataRate::from_bps(self.rate as u64))
    }

    fn send_quantum(&self) -> ByteCount {
        quantum(DataRate::from_bps(self.rate as u64), self.mtu)
    }

    fn state(&self) -> String {
        format!("loss {:.2} %", self.loss * 100.0)
    }
}

#[cfg(test)]
mod tests;
