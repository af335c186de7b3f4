//! The first rate. The paper's user requests one; without a request, the launch measures the path.
//! The rate doubles as long as the delivery rate follows, and ends at the maximum delivery rate.
//! Losses of these few round trips are neither classified nor part of the long-term loss rate.

use packtrain_units::{DataRate, Duration, Time};

use crate::interface::Feedback;

/// The first step: this many packets per round trip, at most this many bytes per second (100
/// Mbit/s).
const FIRST: (f64, f64) = (32.0, 12.5e6);
/// Minimum span of a delivery-rate measurement, which lasts at least a round trip.
const SPAN: Duration = Duration::from_millis(20);
/// A delivery rate below this fraction of the rate has reached a limit...
const MIN_DELIVERY_SHARE: f64 = 0.75;
/// ...unless it still grows: then it is only late, for at most this many steps.
const FLAT_STEPS_LIMIT: u32 = 2;
/// Where the host drops packets, the receiver rate cap holds the pace at the arriving rate, and is
/// released if it does not help. This many steps take longer than that trial.
const FLAT_STEPS_LIMIT_HOST: u32 = 20;
/// The maximum delivery rate is slightly above the capacity, because bitmaps arrive irregularly.
pub(super) const LANDING: f64 = 0.95;
/// For the same reason a measurement counts in full only together with a quarter of the previous
/// one, and to this fraction alone.
const SINGLE_SAMPLE_SHARE: f64 = 0.9;
/// A queue is present when the round trip exceeds its minimum by a quarter and this, for a quarter
/// of a round trip: one long sample may be a late thread.
const QUEUE: Duration = Duration::from_millis(5);
/// Lost packets of a step, and their share, that end the launch.
const LOSS: (u64, f64) = (16, 0.02);

/// The launch of one flow.
#[derive(Debug)]
pub(super) struct Launch {
    rate: f64,
    /// The starting rate, if not the first step.
    start_rate: Option<f64>,
    since: Option<Time>,
    best: f64,
    last: Option<f64>,
    /// The receiving host dropped packets.
    host: bool,
    /// The path's limit was reached: a queue, or losses that are not the host's.
    path: bool,
    sent: u64,
    lost: u64,
    dropped: u64,
    flat: u32,
    queued: Option<Time>,
    /// Set once the limit was found: until then the queue drains.
    retreat: Option<Time>,
}

impl Launch {
    pub(super) fn new() -> Self {
        let (start_rate, since, last, queued, retreat) = (None, None, None, None, None);
        let (rate, best, sent, lost, dropped, flat) = (FIRST.1, 0.0, 0, 0, 0, 0);
        let (host, path) = (false, false);
        Self {
            rate,
            start_rate,
            since,
            best,
            last,
            host,
            path,
            sent,
            lost,
            dropped,
            flat,
            queued,
            retreat,
        }
    }

    /// A launch that continues from this rate.
    pub(super) fn resume(rate: f64) -> Self {
        Self { rate, start_rate: Some(rate), ..Self::new() }
    }

    /// A launch that went too far and will land at `rate`.
    pub(super) fn retreat(now: Time, rtt: Duration, rate: f64) -> Self {
        let retreat = Some(now + rtt + SPAN);
        Self { best: rate / LANDING, retreat, path: true, ..Self::new() }
    }

    /// Whether the host set, or may have set, the limit.
    pub(super) fn reached_host_limit(&self) -> bool {
        self.host
    }

    /// Whether the path's limit was reached.
    pub(super) fn reached_path_limit(&self) -> bool {
        self.path
    }

    /// The starting rate of a repeated launch.
    pub(super) fn start_rate(&self) -> Option<f64> {
        self.start_rate
    }

    /// Bytes per second.
    pub(super) fn rate(&self) -> f64 {
        if self.retreat.is_some() { self.best / 2.0 } else { self.rate }
    }

    pub(super) fn on_sent(&mut self, packets: u32) {
        self.sent += u64::from(packets);
    }

    /// Takes a feedback; returns the rate to continue at when the launch is over.
    pub(super) fn on_feedback(
        &mut self,
        feedback: &Feedback<'_>,
        (rtt, min_rtt): (Duration, Duration),
        mtu: f64,
        max_rate: f64,
    ) -> Option<f64> {
        let now = feedback.now;
        let delivered = feedback.delivery_rate.map(|rate| rate.as_bps() as f64 / 8.0);
        self.host |= feedback.host_drops > 0;
        self.dropped = self.dropped.saturating_add(feedback.host_drops);
        let before = self.best;
        if let Some(rate) = delivered {
            let mean = self.last.replace(rate).map_or(rate, |last| (last + 3.0 * rate) / 4.0);
            self.best = self.best.max(mean.max(SINGLE_SAMPLE_SHARE * rate)).min(max_rate);
        }
        if let Some(until) = self.retreat {
            // Feedback for packets sent before still arrives, and measures the path's speed best.
            return (now >= until).then_some(self.best * LANDING);
        }
        let Some(since) = self.since else {
            let first = (FIRST.0 * mtu / rtt.as_secs_f64().max(1e-6)).min(FIRST.1);
            self.step(now, self.start_rate.unwrap_or(first).min(max_rate));
            return None;
        };
        // Before a round trip has passed, the feedback belongs to the previous step.
        if now.since(since) > rtt {
            self.lost += feedback.lost.iter().map(|l| u64::from(l.count)).sum::<u64>();
        }
        if let Some(sample) = feedback.rtt {
            let long = sample.latest > min_rtt + min_rtt / 4 + QUEUE;
            self.queued = long.then(|| self.queued.unwrap_or(now));
        }
        let queued = self.queued.is_some_and(|since| now.since(since) >= rtt / 4);
        // Host drops are no limit of the path as long as the delivery rate follows.
        let lost = self.lost.saturating_sub(self.dropped);
        let lossy = lost > LOSS.0 && lost as f64 > LOSS.1 * self.sent as f64;
        if (queued || lossy) && self.best > 0.0 {
            self.path = true;
            self.retreat = Some(now + rtt + SPAN);
            return None;
        }
        let told = delivered.filter(|_| now.since(since) >= rtt + rtt.max(SPAN));
        let delivered = told?;
        if delivered >= MIN_DELIVERY_SHARE * self.rate {
            if self.rate >= max_rate {
                return Some(max_rate);
            }
            self.step(now, (self.rate * 2.0).min(max_rate));
        } else if feedback.app_limited {
            self.since = Some(now);
        } else {
            self.flat = if self.best > before * 1.1 { self.flat } else { self.flat + 1 };
            self.since = Some(now);
            if self.flat > if self.host { FLAT_STEPS_LIMIT_HOST } else { FLAT_STEPS_LIMIT } {
                self.retreat = Some(now + rtt + SPAN);
            }
        }
        None
    }

    fn step(&mut self, now: Time, rate: f64) {
        (self.rate, self.since) = (rate, Some(now));
        (self.sent, self.lost, self.dropped, self.flat) = (0, 0, 0, 0);
    }
}

/// The rate in bytes per second.
pub(super) fn bytes(rate: DataRate) -> f64 {
    rate.as_bps() as f64 / 8.0
}
