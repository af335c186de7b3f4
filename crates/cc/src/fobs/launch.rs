//! The first rate. The paper takes one that its user asks for; who asks for none gets what the path
//! turns out to have. The rate doubles as long as what is delivered follows it, and ends at what was
//! delivered most. Losses of these few round trips are not the transfer's: they are not judged and
//! not part of the long-term rate of loss.

use packtrain_units::{DataRate, Duration, Time};

use crate::interface::Feedback;

/// The first step: so many packets a round trip, at most this many bytes a second (100 Mbit/s).
const FIRST: (f64, f64) = (32.0, 12.5e6);
/// The rate of delivery is measured over a round trip, at least over this.
const SPAN: Duration = Duration::from_millis(20);
/// Delivery below this share of the rate has found a limit...
const FOLLOWS: f64 = 0.75;
/// ...unless it grows on: then it is only late, so many steps at most.
const FLAT_STEPS_LIMIT: u32 = 2;
/// Where the host drops, the flow holds its pace at what comes through, and gives that up where
/// it does not help: so many steps take longer than that trial.
const FLAT_STEPS_LIMIT_HOST: u32 = 20;
/// What was delivered most is a little more than the path has: bitmaps come in fits and starts.
pub(super) const LANDING: f64 = 0.95;
/// For the same reason a measurement counts only with a quarter of the one before in it, or to
/// this share alone.
const ALONE: f64 = 0.9;
/// A queue is there when the round trip is longer than its least by a quarter and this, and has
/// been for a quarter of a round trip: one long one is a late thread.
const QUEUE: Duration = Duration::from_millis(5);
/// So many lost packets of a step, and so large a share of it, end the launch.
const LOSS: (u64, f64) = (16, 0.02);

/// The launch of one flow.
#[derive(Debug)]
pub(super) struct Launch {
    rate: f64,
    /// Where it begins, if not with the first step.
    from: Option<f64>,
    since: Option<Time>,
    best: f64,
    last: Option<f64>,
    /// The receiving host dropped something.
    host: bool,
    /// The path was seen to have no more: a queue, or losses that are not the host's.
    path: bool,
    sent: u64,
    lost: u64,
    dropped: u64,
    flat: u32,
    queued: Option<Time>,
    /// The limit was found; until then the queue empties.
    retreat: Option<Time>,
}

impl Launch {
    pub(super) fn new() -> Self {
        let (from, since, last, queued, retreat) = (None, None, None, None, None);
        let (rate, best, sent, lost, dropped, flat) = (FIRST.1, 0.0, 0, 0, 0, 0);
        let (host, path) = (false, false);
        Self {
            rate,
            from,
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

    /// One that goes on from this rate.
    pub(super) fn again(rate: f64) -> Self {
        Self { rate, from: Some(rate), ..Self::new() }
    }

    /// One that went too far and will land at `rate`.
    pub(super) fn retreat(now: Time, rtt: Duration, rate: f64) -> Self {
        let retreat = Some(now + rtt + SPAN);
        Self { best: rate / LANDING, retreat, path: true, ..Self::new() }
    }

    /// Whether the host set the limit, or may have.
    pub(super) fn met_host(&self) -> bool {
        self.host
    }

    /// Whether it met the path's limit.
    pub(super) fn met_path(&self) -> bool {
        self.path
    }

    /// Where it began, if another was before it.
    pub(super) fn from(&self) -> Option<f64> {
        self.from
    }

    /// Bytes a second.
    pub(super) fn rate(&self) -> f64 {
        if self.retreat.is_some() { self.best / 2.0 } else { self.rate }
    }

    pub(super) fn on_sent(&mut self, packets: u32) {
        self.sent += u64::from(packets);
    }

    /// Takes what is told; gives the rate to go on at once the launch is over.
    pub(super) fn on_feedback(
        &mut self,
        feedback: &Feedback<'_>,
        (rtt, least): (Duration, Duration),
        mtu: f64,
        most: f64,
    ) -> Option<f64> {
        let now = feedback.now;
        let delivered = feedback.delivery_rate.map(|rate| rate.as_bps() as f64 / 8.0);
        self.host |= feedback.host_drops > 0;
        self.dropped = self.dropped.saturating_add(feedback.host_drops);
        let before = self.best;
        if let Some(rate) = delivered {
            let mean = self.last.replace(rate).map_or(rate, |last| (last + 3.0 * rate) / 4.0);
            self.best = self.best.max(mean.max(ALONE * rate)).min(most);
        }
        if let Some(until) = self.retreat {
            // What left before is still told of: nothing shows the path's speed better.
            return (now >= until).then_some(self.best * LANDING);
        }
        let Some(since) = self.since else {
            let first = (FIRST.0 * mtu / rtt.as_secs_f64().max(1e-6)).min(FIRST.1);
            self.step(now, self.from.unwrap_or(first).min(most));
            return None;
        };
        // Before a round trip has passed it is the step before that is told of.
        if now.since(since) > rtt {
            self.lost += feedback.lost.iter().map(|l| u64::from(l.count)).sum::<u64>();
        }
        if let Some(sample) = feedback.rtt {
            let long = sample.latest > least + least / 4 + QUEUE;
            self.queued = long.then(|| self.queued.unwrap_or(now));
        }
        let queued = self.queued.is_some_and(|since| now.since(since) >= rtt / 4);
        // What a host drops is no limit of the path, as long as delivery follows.
        let lost = self.lost.saturating_sub(self.dropped);
        let lossy = lost > LOSS.0 && lost as f64 > LOSS.1 * self.sent as f64;
        if (queued || lossy) && self.best > 0.0 {
            self.path = true;
            self.retreat = Some(now + rtt + SPAN);
            return None;
        }
        let told = delivered.filter(|_| now.since(since) >= rtt + rtt.max(SPAN));
        let delivered = told?;
        if delivered >= FOLLOWS * self.rate {
            if self.rate >= most {
                return Some(most);
            }
            self.step(now, (self.rate * 2.0).min(most));
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

/// Bytes a second of a rate.
pub(super) fn bytes(rate: DataRate) -> f64 {
    rate.as_bps() as f64 / 8.0
}
