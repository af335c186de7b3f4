//! SABUL: Mazzucco et al., "Simple Available Bandwidth Utilization Library for High-Speed Wide Area
//! Networks" (2001). A rate, reviewed every 500 packets, that is to lose less than 1 %.
//!
//! The paper leaves open:
//!
//! - *The step up.* Here it is 0.5 % of the rate. A full path loses 1 - capacity / rate, so a
//!   change of the rate by this share changes the loss by the same share: from below 0.5 % a step
//!   up leads to below 1 %. Steps five times smaller would take longer to leave a wrong first rate
//!   than the paper's transfer of 128 MB lasts. But a path with an empty queue loses nothing until
//!   the queue is full, and the rate is then too high by the root of 2 q s / t (a queue of q
//!   seconds, steps s every t seconds). Where the rate had to fall, the following steps are
//!   therefore half as long, down to 0.1 %, and as long again after eight consecutive steps up.
//! - *When it rises.* While less than 0.5 % is lost. Between 0.5 % and 1 % the rate stays;
//!   otherwise it would oscillate around 1 %.
//! - *How far it falls.* Above 1 % "the rate of transmission is reduced linearly" (section 6). Here
//!   it falls linearly in the loss, by the excess over 0.5 %, half the limit. A full path then
//!   loses exactly that, whatever it lost before. A fixed step ([`Decrease::Step`], the other
//!   interpretation) takes a round trip per half per cent, and a rate found too high only when a
//!   long queue was full loses packets for seconds.
//! - *Which packets count.* Those sent since the rate last changed; others belong to an old rate.
//!   So there is at most one change per round trip. The paper's path has 350 packets in flight and
//!   its reviews 500; with ten times as many in flight the rate would rise ten times before the
//!   first loss is reported, and fall ten times for one error. After a fall, the packets of another
//!   round trip, at least 500, do not count either: they meet the old rate's queue and its losses.
//! - *Silence.* No feedback for four round trips and for at least 200 ms.
//!
//! How the rate falls, and whether it falls in silence (the paper's future work), is the
//! [`Variant`]. Section numbers are the paper's.

mod variant;

use packtrain_units::{ByteCount, DataRate, Duration, Time};

use crate::config::ControllerConfig;
use crate::interface::{CongestionController, Feedback, Sent, Signal, Signals};
use crate::pacing::quantum;
pub use variant::{Decrease, Silence, Variant};

/// Packets per review of the rate (section 4).
pub const REVIEW_PACKETS: u64 = 500;
/// Maximum loss (section 4).
const MAX_LOSS: f64 = 0.01;
/// The rate rises below this loss.
const RAISE_BELOW: f64 = 0.005;
/// The loss that a decrease aims at.
const TARGET_LOSS: f64 = RAISE_BELOW;
/// A step, as a share of the rate.
const STEP: f64 = 0.005;
/// The minimum step.
const MIN_STEP: f64 = 0.001;
/// Consecutive steps up after which they become longer again.
const LONGER_STEP_AFTER: u32 = 8;
/// Loss assumed for a decrease in silence.
const SILENCE_LOSS: f64 = 2.0 * MAX_LOSS;
/// The default first rate: the paper's network cards.
const FIRST_RATE: DataRate = DataRate::from_mbps(100);
/// Minimum rate, in bits per second.
const MIN_RATE: f64 = 100_000.0;
/// Maximum rate, in bits per second: beyond any path and far from overflow.
const MAX_RATE: f64 = 1e13;
/// The window never limits; it is not part of the algorithm.
const UNLIMITED_WINDOW: ByteCount = ByteCount(1 << 44);
/// Minimum duration of silence, and its duration in round trips.
const SILENCE: (Duration, u64) = (Duration::from_millis(200), 4);

/// The controller `sabul`.
#[derive(Debug)]
pub struct Sabul {
    variant: Variant,
    mtu: ByteCount,
    /// In bits per second, as are the others.
    rate: f64,
    /// The next step up, as a fraction of the rate, and the number of consecutive steps.
    step: f64,
    in_a_row: u32,
    ceiling: f64,
    /// One past the highest index sent.
    next: u64,
    /// Packets with lower indices were sent at an old rate.
    epoch: u64,
    /// Packets that arrived in this review.
    arrived: u64,
    lost: u64,
    /// Whether the application limited the flow at any time since the last review.
    app_limited: bool,
    /// The loss of the last review.
    loss: f64,
    rtt: Duration,
    last_feedback: Time,
    /// Packets sent in silence.
    sent_in_silence: u64,
}

impl Sabul {
    /// Creates a controller that begins with the variant's rate, or 100 Mbit/s, or the ceiling if
    /// that is less (section 4, Open: the smaller of the two offers).
    pub fn new(config: &ControllerConfig, variant: Variant) -> Self {
        let bps = |rate: DataRate| rate.as_bps() as f64;
        let ceiling = config.ceiling.map_or(MAX_RATE, bps).clamp(1.0, MAX_RATE);
        let rate = variant.first.map_or(bps(FIRST_RATE), bps).min(ceiling);
        Self {
            variant,
            mtu: config.mtu,
            rate,
            step: STEP,
            in_a_row: 0,
            ceiling,
            next: 0,
            epoch: 0,
            arrived: 0,
            lost: 0,
            app_limited: false,
            loss: 0.0,
            rtt: config.rtt.unwrap_or(Duration::from_millis(100)),
            last_feedback: config.now,
            sent_in_silence: 0,
        }
    }

    fn set(&mut self, rate: f64) {
        self.rate = rate.clamp(MIN_RATE, MAX_RATE).min(self.ceiling);
        self.epoch = self.next;
    }

    /// Reviews the rate.
    fn review(&mut self) {
        self.loss = self.lost as f64 / (self.arrived + self.lost).max(1) as f64;
        if self.loss > MAX_LOSS {
            self.decrease(self.loss);
        } else if self.loss < RAISE_BELOW && !self.app_limited {
            self.set(self.rate * (1.0 + self.step));
            self.in_a_row += 1;
            if self.in_a_row.is_multiple_of(LONGER_STEP_AFTER) {
                self.step = (self.step * 2.0).min(STEP);
            }
        }
        self.begin();
    }

    fn decrease(&mut self, loss: f64) {
        self.set(match self.variant.decrease {
            Decrease::Linear => self.rate * (1.0 - (loss - TARGET_LOSS)),
            Decrease::Step => self.rate * (1.0 - STEP),
            Decrease::Multiplicative => self.rate * variant::FACTOR,
            Decrease::Proportional => self.rate * (1.0 - loss),
        });
        let round_trip = self.rate / 8.0 * self.rtt.as_secs_f64() / self.mtu.get().max(1) as f64;
        self.epoch = self.next.saturating_add(REVIEW_PACKETS.max(round_trip as u64));
        (self.step, self.in_a_row) = ((self.step / 2.0).max(MIN_STEP), 0);
    }

    /// Begins the next review.
    fn begin(&mut self) {
        (self.arrived, self.lost, self.app_limited) = (0, 0, false);
    }

    fn silence_timeout(&self) -> Duration {
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

    fn set_mtu(&mut self, mtu: ByteCount) {
        self.mtu = mtu;
    }

    fn on_sent(&mut self, sent: &Sent) {
        self.next = self.next.max(sent.first.saturating_add(u64::from(sent.count)));
        self.app_limited |= sent.app_limited;
        if sent.now < self.last_feedback + self.silence_timeout() {
            self.sent_in_silence = 0;
            return;
        }
        // Section 6 leaves the behaviour in silence to experiments.
        self.sent_in_silence += u64::from(sent.count);
        if self.sent_in_silence >= REVIEW_PACKETS && self.variant.silence == Silence::Reduce {
            self.sent_in_silence = 0;
            self.decrease(SILENCE_LOSS);
            self.begin();
        }
    }

    fn on_feedback(&mut self, feedback: &Feedback<'_>) {
        self.last_feedback = feedback.now;
        if let Some(rtt) = feedback.rtt {
            self.rtt = rtt.smoothed;
        }
        let lost = feedback.lost.iter().filter(|range| range.first >= self.epoch);
        self.lost = lost.fold(self.lost, |sum, range| sum.saturating_add(range.count.into()));
        // A message may cover packets sent before and after the change.
        let since =
            feedback.largest_acked.map_or(0, |largest| (largest + 1).saturating_sub(self.epoch));
        self.arrived = self.arrived.saturating_add(feedback.acked_packets.min(since));
        if self.arrived.saturating_add(self.lost) >= REVIEW_PACKETS {
            self.review();
        }
    }

    fn cwnd(&self) -> ByteCount {
        UNLIMITED_WINDOW
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
