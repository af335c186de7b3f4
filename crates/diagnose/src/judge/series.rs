//! The intervals of a path: queues, losses, and their correlation.

use packtrain_units::{ByteCount, DataRate, Duration};

use super::ramp;
use packtrain_service::evidence::{PathPart, Sample};

/// Minimum length of the intervals in which a policer is visible.
const MERGED_INTERVAL: Duration = Duration::from_millis(500);

/// Statistics over the intervals of a path.
pub(super) struct Series {
    /// The intervals in which data was sent.
    pub(super) busy: Vec<Sample>,
    /// Total arrival rate, in bits per second.
    pub(super) arrived: f64,
    /// Lost share of the sent bytes.
    pub(super) loss: f64,
    /// The largest queue, the largest without outliers, and the mean, in seconds.
    pub(super) largest: f64,
    most: f64,
    pub(super) mean: f64,
    /// The mean queue of lost bytes, and of sent bytes.
    pub(super) at_loss: f64,
    usual: f64,
    /// Smaller values are noise.
    pub(super) floor: f64,
    /// Minimum round-trip time.
    pub(super) rtt: Duration,
}

fn bps(bytes: ByteCount, span: Duration) -> f64 {
    bytes.get() as f64 * 8.0 / span.as_secs_f64().max(1e-6)
}

impl Series {
    /// Computes the statistics of the samples of `path`.
    pub(super) fn of(path: &PathPart) -> Self {
        let busy: Vec<Sample> = path.samples.iter().copied().filter(|s| s.sent.get() > 0).collect();
        let sum = |of: fn(&Sample) -> ByteCount| busy.iter().map(of).sum::<ByteCount>();
        let span: Duration = busy.iter().fold(Duration::ZERO, |all, s| all + s.span);
        let (sent, lost) = (sum(|s| s.sent), sum(|s| s.lost));
        let mut queues: Vec<f64> = busy.iter().map(|s| s.queue.as_secs_f64()).collect();
        queues.sort_by(f64::total_cmp);
        let most = queues.get(queues.len() * 19 / 20).copied().unwrap_or(0.0);
        let mean = queues.iter().sum::<f64>() / queues.len().max(1) as f64;
        // A loss is reported one round trip later, so the queue that caused it is that of this or
        // the previous interval.
        let queue = |n: usize| busy[n].queue.max(busy[n.saturating_sub(1)].queue).as_secs_f64();
        let met = |of: fn(&Sample) -> ByteCount| {
            let weigh = |n: usize| of(&busy[n]).get() as f64;
            let all: f64 = (0..busy.len()).map(weigh).sum();
            (0..busy.len()).map(|n| weigh(n) * queue(n)).sum::<f64>() / all.max(1.0)
        };
        let (at_loss, usual) = (met(|s| s.lost), met(|s| s.sent));
        let rtt = path.min_rtt.map_or(0.0, Duration::as_secs_f64);
        Self {
            arrived: bps(sum(|s| s.arrived), span),
            loss: lost.get() as f64 / sent.get().max(1) as f64,
            largest: queues.last().copied().unwrap_or(0.0),
            most,
            mean,
            at_loss,
            usual,
            floor: (rtt * 0.05).max(3e-3),
            rtt: path.min_rtt.unwrap_or_default(),
            busy,
        }
    }

    /// Whether losses occurred with a full queue (1) or an empty one (0).
    pub(super) fn queue_at_loss(&self) -> f64 {
        if self.most < 2.0 * self.floor {
            return 0.0;
        }
        // Full in absolute terms, or fuller than at other times.
        let full = ramp(self.at_loss / self.most, 0.7, 0.9);
        let fuller = ramp(self.at_loss / self.usual.max(1e-6), 1.1, 1.4);
        full.max(ramp(self.at_loss / self.most, 0.25, 0.5) * fuller)
    }

    /// The share of the capacity that arrived while there was a queue, if that lasted long enough.
    pub(super) fn share_of_queue(&self, capacity: DataRate) -> Option<f64> {
        let queued = || self.busy.iter().filter(|s| s.queue.as_secs_f64() > 2.5 * self.floor);
        let span = queued().fold(Duration::ZERO, |all, s| all + s.span);
        let arrived = queued().map(|s| s.arrived).sum::<ByteCount>();
        let long = queued().count() >= 6 && span >= self.rtt * 6;
        long.then(|| bps(arrived, span) / capacity.as_bps().max(1) as f64)
    }

    /// The ratio of the mean to the best rate of an interval, without outliers.
    pub(super) fn of_best(&self) -> f64 {
        let mut rates: Vec<f64> = self.busy.iter().map(|s| bps(s.arrived, s.span)).collect();
        rates.sort_by(f64::total_cmp);
        let best = rates.get(rates.len() * 9 / 10).copied().unwrap_or(0.0);
        self.arrived / best.max(1.0)
    }

    /// Whether the rate has settled (1) or still changes (0): compares the last third with the one
    /// before.
    pub(super) fn rests(&self) -> f64 {
        let third = self.busy.len() / 3;
        let span = self.busy.iter().fold(Duration::ZERO, |all, s| all + s.span);
        if third < 4 || span < self.rtt * 20 {
            return 0.0;
        }
        let rate = |part: &[Sample]| {
            let span = part.iter().fold(Duration::ZERO, |all, s| all + s.span);
            bps(part.iter().map(|s| s.arrived).sum(), span)
        };
        let (before, last) = (rate(&self.busy[third..2 * third]), rate(&self.busy[2 * third..]));
        1.0 - ramp((last - before).abs() / before.max(1.0), 0.15, 0.3)
    }

    /// Merges intervals. In longer intervals the round trip between a send and its loss matters
    /// less. The start is left out, because the rate still changes and a policer passes a burst
    /// first; so is the end.
    fn merged(&self) -> Vec<Sample> {
        let lossy = self.busy.iter().position(|sample| sample.lost.get() > 0);
        let begin = lossy.map_or(4, |first| (first + 2).max(4));
        let middle = self.busy.get(begin..self.busy.len().saturating_sub(2)).unwrap_or_default();
        let long = MERGED_INTERVAL.max(self.rtt * 4);
        let mut merged = Vec::new();
        let mut sum = Sample::default();
        for sample in middle {
            sum.span += sample.span;
            sum.sent += sample.sent;
            sum.arrived += sample.arrived;
            sum.lost += sample.lost;
            if sum.span >= long {
                merged.push(std::mem::take(&mut sum));
            }
        }
        merged
    }

    /// The likelihood of a policer: a constant rate arrives, whatever the sending rate is, so that
    /// all data above it is lost. A link with errors loses the same share at every rate.
    pub(super) fn policed(&self, capacity: Option<DataRate>) -> f64 {
        let merged = self.merged();
        if merged.len() < 4 || self.loss < 0.004 {
            return 0.0;
        }
        let mut rates: Vec<f64> = merged.iter().map(|s| bps(s.arrived, s.span)).collect();
        rates.sort_by(f64::total_cmp);
        let of = |share: usize| rates[(rates.len() * share / 10).min(rates.len() - 1)];
        let flat = 1.0 - ramp((of(8) - of(2)) / of(5).max(1.0), 0.2, 0.5);
        // The slope of the loss over the sending rate.
        let sent: Vec<f64> = merged.iter().map(|s| bps(s.sent, s.span)).collect();
        let lost: Vec<f64> = merged.iter().map(|s| bps(s.lost, s.span)).collect();
        let mean = |of: &[f64]| of.iter().sum::<f64>() / of.len() as f64;
        let (middle, losses) = (mean(&sent), mean(&lost));
        let spread: f64 = sent.iter().map(|s| (s - middle).powi(2)).sum();
        let both: f64 = sent.iter().zip(&lost).map(|(s, l)| (s - middle) * (l - losses)).sum();
        let varied = (spread / sent.len() as f64).sqrt() / middle.max(1.0);
        let slope = if spread > 0.0 { both / spread } else { 0.0 };
        let share = losses / middle.max(1.0);
        // Errors give a slope equal to the mean share of losses, a policer a slope of one.
        let beyond = ramp((slope - share) / (1.0 - share).max(0.1), 0.15, 0.4);
        // At a constant sending rate the slope is unknown. But a sender that ignores losses would
        // send more without a policer. On a link the arrival rate would follow a varying sending
        // rate.
        let room = capacity.map_or(0.0, |capacity| capacity.as_bps() as f64 / of(5).max(1.0));
        let capped = 0.85 * ramp(room, 1.3, 2.0) * ramp(self.loss, 0.01, 0.04);
        let known = ramp(varied, 0.04, 0.1);
        flat * (known * beyond).max(capped)
    }
}
