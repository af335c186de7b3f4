//! The receiver's measurements of the path: B and AS.

use packtrain_units::{Duration, Time};

use super::SYN;
use super::average::Average;
use super::variant::Variant;
use crate::interface::Feedback;

/// A round trip counts as minimal if it does not exceed the minimum by more than a 32nd and half a
/// millisecond.
const EMPTY_SHARE: u64 = 32;
const EMPTY_SPAN: Duration = Duration::from_micros(500);

/// Rates in packets per second.
#[derive(Clone, Copy, Debug)]
pub(super) struct Path {
    variant: Variant,
    /// B, by (6).
    capacity: Average,
    /// AS: the latest value above zero.
    arrival: Option<f64>,
    /// The rate at which slow start ended. It replaces B until one is reported: without any, only
    /// (2) would apply, and a flow cut by random loss would not recover.
    start_rate: f64,
    reported_at: Option<Time>,
    lost_since_report: bool,
}

impl Path {
    pub(super) fn new(variant: Variant) -> Self {
        Self {
            variant,
            capacity: Average::default(),
            arrival: None,
            start_rate: 0.0,
            reported_at: None,
            lost_since_report: false,
        }
    }

    /// B, if it was reported.
    pub(super) fn capacity(&self) -> Option<f64> {
        self.capacity.get()
    }

    /// B, or its replacement: the first rate, or twice the `used` part of the rate while no packet
    /// is lost, so that a much too low first rate is left.
    pub(super) fn presumed_capacity(&self, used: f64, is_clean: bool) -> f64 {
        let stand_in = if is_clean { self.start_rate.max(2.0 * used) } else { self.start_rate };
        self.capacity.get().unwrap_or(stand_in)
    }

    pub(super) fn arrival(&self) -> Option<f64> {
        self.arrival
    }

    pub(super) fn on_start_ended(&mut self, rate: f64) {
        self.start_rate = rate;
    }

    pub(super) fn on_lost(&mut self) {
        self.lost_since_report = true;
    }

    /// The receiver's measurements arrive once per SYN; reports of a feedback that reports more
    /// often are used at most every half SYN. Returns whether this report counts.
    pub(super) fn on_report(
        &mut self,
        now: Time,
        arrival: Option<f64>,
        capacity: Option<f64>,
    ) -> bool {
        self.arrival = arrival.or(self.arrival);
        let due = self.reported_at.is_none_or(|at| now >= at + SYN / 2);
        if !due || (arrival.is_none() && capacity.is_none()) {
            return false;
        }
        self.reported_at = Some(now);
        match (capacity, self.variant) {
            // The agent of 2003 does not average it.
            (Some(capacity), Variant::Ns2) => self.capacity = Average::from(capacity),
            (Some(capacity), _) => self.capacity.add(capacity),
            (None, _) => {}
        }
        true
    }

    /// Whether no packet was lost or queued since the last report that counted: the round trip is
    /// minimal.
    pub(super) fn was_empty(&mut self, feedback: &Feedback<'_>) -> bool {
        let lost = std::mem::take(&mut self.lost_since_report);
        let short = feedback
            .rtt
            .is_some_and(|rtt| rtt.latest <= rtt.min + rtt.min / EMPTY_SHARE + EMPTY_SPAN);
        short && !lost && !feedback.delay_rising
    }
}
