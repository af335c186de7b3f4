//! SABUL: Mazzucco et al., "Simple Available Bandwidth Utilization Library for High-Speed Wide
//! Area Networks" (2001). A rate, looked at every 500 packets, that is to lose less than 1 %.
//!
//! What the paper leaves open, and what is done here:
//!
//! - *The step up* is 0.5 % of the rate. A path that is full loses 1 - capacity / rate, so a
//!   change of the rate by so much changes the loss by as much: from below 0.5 % a step up leads
//!   to below 1 %, never across the whole band. Five times less would take longer to leave a wrong
//!   first rate than the paper's transfer of 128 MB lasts. But a path whose queue is empty loses
//!   nothing until that is full, by when the rate is too high by the root of 2 q s / t (a queue of
//!   q seconds, steps s every t seconds): so where the rate had to fall, the steps after it are
//!   half as long, down to 0.1 %, and as long again after eight up in a row.
//! - *When it rises.* While less than 0.5 % is lost. In between the rate stays, or it would go up
//!   and down across 1 % for ever.
//! - *How far it falls.* Above 1 % "the rate of transmission is reduced linearly" (section 6): here
//!   linearly in the loss, by what it is above 0.5 %, half the limit. By the same sum a path that
//!   is full then loses just that, whatever it lost before. A fixed step ([`Decrease::Step`],
//!   the other way to read it) takes a round trip for each half per cent, and a rate that was
//!   found too high only when a long queue was full loses for seconds.
//! - *Which packets count.* Those that left since the rate last changed: others tell of a rate that
//!   is no more. So there is at most one change a round trip. The paper's path has 350 packets
//!   under way and its reviews 500; with ten times as many under way the rate would rise ten times
//!   before the first loss is heard of, and fall ten times for one mistake. After a fall those
//!   of another round trip, 500 at least, do not count either: they meet what the old rate left in
//!   the queue, and the answers to its losses.
//! - *What silence is.* Nothing heard for four round trips and for 200 ms at least.
//!
//! How the rate falls, and whether it does in silence (the paper's future work), is the
//! [`Variant`]. Section numbers are the paper's.

mod variant;

use packtrain_units::{ByteCount, DataRate, Duration, Time};

use crate::config::ControllerConfig;
use crate::interface::{CongestionController, Feedback, Sent, Signal, Signals};
use crate::pacing::quantum;
pub use variant::{Decrease, Silence, Variant};

/// The rate is reviewed every so many packets (section 4).
pub const REVIEW: u64 = 500;
/// The loss that the rate is to stay below (section 4).
const LIMIT: f64 = 0.01;
/// Below this loss the rate rises.
const RAISE: f64 = 0.005;
/// The loss that a fall aims at.
const GOAL: f64 = RAISE;
/// A step, as a share of the rate.
const STEP: f64 = 0.005;
/// The shortest.
const SHORTEST: f64 = 0.001;
/// After so many steps up in a row they are longer again.
const IN_A_ROW: u32 = 8;
/// In silence the rate falls as if so much was lost.
const UNHEARD: f64 = 2.0 * LIMIT;
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
    /// The next step up, as a share of it, and how many there were in a row.
    step: f64,
    in_a_row: u32,
    ceiling: f64,
    /// One past the highest index sent.
    next: u64,
    /// Packets with lower indices left at a rate that is no more.
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
            heard_at: config.now,
            unheard: 0,
        }
    }

    fn set(&mut self, rate: f64) {
        self.rate = rate.clamp(SLOWEST, FASTEST).min(self.ceiling);
        self.epoch = self.next;
    }

    /// The fate of so many packets is known: is the rate right?
    fn review(&mut self) {
        self.loss = self.lost as f64 / (self.arrived + self.lost).max(1) as f64;
        if self.loss > LIMIT {
            self.decrease(self.loss);
        } else if self.loss < RAISE && !self.app_limited {
            self.set(self.rate * (1.0 + self.step));
            self.in_a_row += 1;
            if self.in_a_row.is_multiple_of(IN_A_ROW) {
                self.step = (self.step * 2.0).min(STEP);
            }
        }
        self.begin();
    }

    fn decrease(&mut self, loss: f64) {
        self.set(match self.variant.decrease {
            Decrease::Linear => self.rate * (1.0 - (loss - GOAL)),
            Decrease::Step => self.rate * (1.0 - STEP),
            Decrease::Multiplicative => self.rate * variant::FACTOR,
            Decrease::Proportional => self.rate * (1.0 - loss),
        });
        let round_trip = self.rate / 8.0 * self.rtt.as_secs_f64() / self.mtu.get().max(1) as f64;
        self.epoch = self.next.saturating_add(REVIEW.max(round_trip as u64));
        (self.step, self.in_a_row) = ((self.step / 2.0).max(SHORTEST), 0);
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
            self.decrease(UNHEARD);
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
        // A message may tell of packets from before the change and after it.
        let since =
            feedback.largest_acked.map_or(0, |largest| (largest + 1).saturating_sub(self.epoch));
        self.arrived = self.arrived.saturating_add(feedback.acked_packets.min(since));
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
