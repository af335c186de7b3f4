//! Random early detection (Floyd and Jacobson 1993) as in ns-2, with its gentle and adaptive forms.
//!
//! Options of ns-2 have the defaults before October 2004: the average counts packets, the drop
//! probability does not depend on a packet's size, and drops are spread by waiting (`wait_`). The
//! packet in transmission is not in the queue.
//!
//! Given the arrivals of ns-2.35 (60,000 to 90,000 packets of ten on/off sources, loads from 0.8 to
//! 1.2), the classic and the gentle form drop as much as its own within 0.8 %, and packets wait as
//! long within 0.6 %. In the adaptive form the gentle part starts at the present probability, as in
//! the paper of 2001; ns-2 leaves it at the initial one, so its queue is longer under heavy load
//! (24 % at a load of 1.3).

use packtrain_units::{Duration, Rng, Time};

use super::droptail::fits;
use super::{Arriving, Backlog, Discipline, Verdict};
use crate::config::{RedConfig, RedMode};
use crate::element::DropCause;

/// Adaptive RED's interval between changes (Floyd, Gummadi and Shenker 2001, figure 1).
const ADAPT_EVERY: Duration = Duration::from_millis(500);
/// The range in which it keeps the probability at the upper threshold.
const ADAPT_WITHIN: (f64, f64) = (0.01, 0.5);

/// RED with the names of the paper.
#[derive(Clone, Debug)]
pub struct Red {
    config: RedConfig,
    rng: Rng,
    /// Average queue length in packets.
    avg: f64,
    /// Drop probability at the upper threshold.
    max_p: f64,
    /// Packets since the last drop.
    count: u64,
    /// Whether the average was above the lower threshold at the last arrival.
    above: bool,
    adapted: Time,
    /// The end of the idle time that is already included in the average.
    idle_known: Time,
}

impl Red {
    /// An empty queue, idle since the epoch.
    pub fn new(config: RedConfig, seed: u64) -> Self {
        let max_p = 1.0 / config.linterm;
        Self {
            config,
            rng: Rng::new(seed),
            avg: 0.0,
            max_p,
            count: 0,
            above: false,
            adapted: Time::ZERO,
            idle_known: Time::ZERO,
        }
    }

    /// The average queue length, in packets.
    pub fn average(&self) -> f64 {
        self.avg
    }

    /// Ages the average as if small packets had arrived while the link was idle, then counts this
    /// packet.
    fn estimate(&mut self, now: Time, waiting: u64, backlog: &Backlog) {
        let keep = 1.0 - self.config.weight;
        if let Some(since) = backlog.idle_since(now) {
            let idle = now.since(since.max(self.idle_known)).as_secs_f64();
            let bits = 8.0 * self.config.mean_packet.get() as f64;
            let missed = (idle * backlog.rate().as_bps() as f64 / bits).floor();
            if missed > 0.0 {
                self.avg *= libm::pow(keep, missed);
            }
            self.idle_known = now;
        }
        self.avg = self.avg * keep + self.config.weight * waiting as f64;
    }

    /// Keeps the average midway between the thresholds (Floyd, Gummadi and Shenker 2001).
    fn adapt(&mut self, now: Time) {
        if now.since(self.adapted) <= ADAPT_EVERY {
            return;
        }
        let (low, high) = (self.config.min_threshold, self.config.max_threshold);
        let (bottom, top) = ADAPT_WITHIN;
        let part = 0.4 * (high - low);
        if self.avg < low + part && self.max_p > bottom {
            self.max_p *= 0.9;
            self.adapted = now;
        } else if self.avg > high - part && self.max_p < top {
            self.max_p += 0.01f64.min(self.max_p / 4.0);
            self.adapted = now;
        }
    }

    /// The average from which on every packet is dropped.
    fn ceiling(&self) -> f64 {
        match self.config.mode {
            RedMode::Classic => self.config.max_threshold,
            RedMode::Gentle | RedMode::Adaptive => 2.0 * self.config.max_threshold,
        }
    }

    /// The drop probability for the current average.
    fn by_average(&self) -> f64 {
        let (low, high) = (self.config.min_threshold, self.config.max_threshold);
        let p = if self.avg >= high {
            // Gentle: from max_p at the upper threshold to one at twice the threshold.
            (1.0 - self.max_p) * self.avg / high + 2.0 * self.max_p - 1.0
        } else {
            self.max_p * (self.avg - low) / (high - low)
        };
        p.min(1.0)
    }

    /// Spreads drops: none before 1/p packets have passed, one at the latest after 2/p.
    fn drops_early(&mut self) -> bool {
        let p = self.by_average();
        let weighed = self.count as f64 * p;
        let p = if weighed < 1.0 {
            0.0
        } else if weighed < 2.0 {
            p / (2.0 - weighed)
        } else {
            1.0
        };
        // The random number is drawn even if p is zero, as in ns-2.
        let hit = self.rng.unit() < p;
        if hit {
            self.count = 0;
        }
        hit
    }

    fn verdict(&mut self, waiting: u64) -> Option<DropCause> {
        self.count += 1;
        // An almost empty queue drops no packet, whatever the average.
        if self.avg < self.config.min_threshold || waiting <= 1 {
            self.above = false;
            return None;
        }
        if self.avg >= self.ceiling() {
            self.count = 0;
            return Some(DropCause::Early);
        }
        if !self.above {
            self.above = true;
            self.count = 1;
            return None;
        }
        self.drops_early().then_some(DropCause::Early)
    }
}

impl Discipline for Red {
    fn admit(&mut self, arriving: Arriving, backlog: &mut Backlog) -> Verdict {
        let now = arriving.pace.first;
        let waiting = backlog.packets(now);
        self.estimate(now, waiting, backlog);
        if self.config.mode == RedMode::Adaptive {
            self.adapt(now);
        }
        if let Some(cause) = self.verdict(waiting) {
            return Verdict::Drop(1, cause);
        }
        let idle = backlog.idle_since(now).is_some();
        if !idle && !fits(self.config.limit, backlog, arriving.size) {
            self.count = 0;
            return Verdict::Drop(1, DropCause::Overflow);
        }
        Verdict::Take(1)
    }

    fn fits(&self, arriving: Arriving, backlog: &mut Backlog) -> bool {
        let idle = backlog.idle_since(arriving.pace.first).is_some();
        idle || fits(self.config.limit, backlog, arriving.size)
    }
}

#[cfg(test)]
#[path = "red_tests.rs"]
mod tests;
