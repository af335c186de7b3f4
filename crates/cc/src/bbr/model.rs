//! The model of the path: rounds, maximum rate, minimum round trip.

use packtrain_units::Time;

use super::Event;
use super::aggregation::Aggregation;
use super::filter::MaxFilter;
use super::policer::{Policer, Sample, Totals};

/// The estimated properties of the path.
#[derive(Debug)]
pub(super) struct Model {
    /// One past the highest send index used, and one past the highest acknowledged.
    pub(super) next: u64,
    pub(super) newest: u64,
    /// The round ends when a packet from this index on is acknowledged.
    round_end: u64,
    rounds: u64,
    /// Whether the last event began a round.
    pub(super) round_started: bool,
    /// Rate samples of packets below this index do not count: few packets were in flight on
    /// purpose.
    limited_until: u64,
    max_rate: MaxFilter,
    /// Total packets.
    pub(super) delivered: f64,
    lost: f64,
    /// Bytes of a packet: the policer detection counts bytes, all else packets.
    mss: f64,
    policer: Policer,
    /// Whether another controller found the rate to start from.
    resumed: bool,
    pub(super) aggregation: Aggregation,
    /// In seconds, with the time of the sample.
    min_rtt: Option<f64>,
    pub(super) min_rtt_at: Time,
}

impl Model {
    pub(super) fn new(now: Time, mss: f64) -> Self {
        Self {
            mss,
            next: 0,
            newest: 0,
            round_end: 0,
            rounds: 0,
            round_started: false,
            limited_until: 0,
            max_rate: MaxFilter::default(),
            delivered: 0.0,
            lost: 0.0,
            policer: Policer::default(),
            resumed: false,
            aggregation: Aggregation::new(now),
            min_rtt: None,
            min_rtt_at: now,
        }
    }

    /// A packet has `mss` bytes from now on, and all numbers of packets change by `factor`. Returns
    /// whether anything was acknowledged.
    pub(super) fn set_mss(&mut self, mss: f64, factor: f64) -> bool {
        self.mss = mss;
        self.delivered *= factor;
        self.lost *= factor;
        self.max_rate.scale(factor);
        self.newest > 0
    }

    /// Continues from a rate in packets per second and a minimum round trip in seconds.
    pub(super) fn resume(&mut self, now: Time, rate: f64, rtt: f64) {
        self.max_rate.update(self.rounds, rate);
        (self.min_rtt, self.min_rtt_at) = (Some(rtt), now);
        self.resumed = true;
    }

    /// The maximum rate of the last ten rounds.
    pub(super) fn max_rate(&self) -> f64 {
        self.max_rate.get()
    }

    /// The rate for window and pace: a policer's rate, if one was detected.
    pub(super) fn rate(&self) -> f64 {
        self.policer.rate().map_or(self.max_rate.get(), |bytes| bytes / self.mss)
    }

    pub(super) fn is_policed(&self) -> bool {
        self.policer.rate().is_some()
    }

    pub(super) fn min_rtt(&self) -> Option<f64> {
        self.min_rtt
    }

    /// Begins a round with the next packet sent.
    pub(super) fn start_round(&mut self) {
        self.round_end = self.next;
    }

    /// Marks the packets in flight as held back on purpose.
    pub(super) fn hold_back(&mut self) {
        self.limited_until = self.next;
    }

    pub(super) fn is_limited(&self, event: &Event) -> bool {
        event.app_limited || self.newest <= self.limited_until && self.limited_until > 0
    }

    fn totals(&self, now: Time) -> Totals {
        Totals { now, delivered: self.delivered * self.mss, lost: self.lost * self.mss }
    }

    /// Returns true if the use of the policer's rate ends.
    pub(super) fn on_event(&mut self, event: &Event, cwnd: f64, probing: bool) -> bool {
        self.delivered += event.acked;
        self.lost += event.lost;
        self.round_started = false;
        let Some(rate) = event.rate else { return false };
        if event.acked > 0.0 && self.newest > self.round_end {
            self.round_end = self.next;
            self.rounds += 1;
            self.round_started = true;
        }
        let app_limited = self.is_limited(event);
        let (losses, round_start) = (event.lost > 0.0, self.round_started);
        let sample = Sample { losses, app_limited, round_start, probing };
        // Beside flows that take all of the queue every interval is lossy and alike.
        let restart = !self.resumed && self.policer.on_sample(sample, self.totals(event.now));
        if !app_limited || rate >= self.max_rate.get() {
            self.max_rate.update(self.rounds, rate);
        }
        if event.acked > 0.0 {
            let rate = self.rate();
            self.aggregation.on_acked(event.now, event.acked, rate, cwnd, round_start);
        }
        restart
    }

    /// The retransmission timer counts as a round with a loss.
    pub(super) fn on_timer(&mut self, now: Time, probing: bool) {
        let sample = Sample { losses: true, app_limited: false, round_start: true, probing };
        self.policer.on_sample(sample, self.totals(now));
    }

    /// Takes a round trip if it is the minimum, or if the minimum has `expired`.
    pub(super) fn on_rtt(&mut self, now: Time, rtt: f64, expired: bool) {
        if expired || self.min_rtt.is_none_or(|min| rtt <= min) {
            self.min_rtt = Some(rtt);
            self.min_rtt_at = now;
        }
    }
}
