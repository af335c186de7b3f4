//! The circuit breaker (RFC 8084). Its ceiling holds whatever the controller and the loss verdicts
//! allow.

use packtrain_units::{DataRate, Duration, Time};

/// Loss share above which an interval counts as bad.
const MAX_LOSS_SHARE: f64 = 0.2;
/// Consecutive bad intervals before the breaker acts (RFC 8084 section 4.1: not on one
/// measurement).
const INTERVALS: u32 = 3;
/// The lowest ceiling that the breaker sets.
const FLOOR: DataRate = DataRate::from_bps(100_000);
/// Bad intervals at the floor with more than 90 % loss, after which the flow stops.
const MAX_FLOOR_INTERVALS: u32 = 20;

/// The breaker's decision after an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// No change.
    Fine,
    /// The ceiling was lowered.
    Braked(DataRate),
    /// The flow must stop.
    Stop,
}

/// Measures loss over intervals and keeps a ceiling on the rate.
#[derive(Debug, Default)]
pub(crate) struct Breaker {
    ceiling: Option<DataRate>,
    started: Time,
    lost: u64,
    acked: u64,
    bad: u32,
    floor_intervals: u32,
    silent: bool,
}

impl Breaker {
    /// The ceiling, if one is set.
    pub(crate) fn ceiling(&self) -> Option<DataRate> {
        self.ceiling
    }

    /// Time without feedback after which the sender stops sending data.
    pub(crate) fn silence_timeout(srtt: Duration) -> Duration {
        (srtt * 3).max(Duration::from_secs(1))
    }

    /// Whether data is held back because no feedback arrives.
    pub(crate) fn is_silent(&self) -> bool {
        self.silent
    }

    /// No feedback arrived within `silence_timeout`: only probes may be sent until the next report.
    pub(crate) fn silence(&mut self) {
        self.silent = true;
    }

    /// Takes a report of `acked` packets that arrived and `lost` packets that did not. `wire` is
    /// the rate that the controller would send at.
    pub(crate) fn on_report(
        &mut self,
        now: Time,
        srtt: Duration,
        acked: u64,
        lost: u64,
        wire: Option<DataRate>,
    ) -> Verdict {
        if self.silent {
            // Feedback is back: resume at half the rate.
            self.silent = false;
            self.restart(now);
            self.ceiling = wire.map(|r| r.mul_f64(0.5).max(FLOOR));
            return Verdict::Fine;
        }
        self.acked += acked;
        self.lost += lost;
        if now.since(self.started) < Self::silence_timeout(srtt) / 2 || self.acked + self.lost < 32
        {
            return Verdict::Fine;
        }
        let share = self.lost as f64 / (self.acked + self.lost) as f64;
        self.restart(now);
        if share <= MAX_LOSS_SHARE {
            self.bad = 0;
            self.floor_intervals = 0;
            self.ease(wire);
            return Verdict::Fine;
        }
        self.bad += 1;
        self.judge(share, wire)
    }

    fn judge(&mut self, share: f64, wire: Option<DataRate>) -> Verdict {
        if self.bad < INTERVALS {
            return Verdict::Fine;
        }
        self.bad = INTERVALS - 2;
        let from = self.ceiling.into_iter().chain(wire).min();
        let from = from.unwrap_or(DataRate::from_mbps(100));
        if from <= FLOOR {
            self.floor_intervals += u32::from(share > 0.9);
            return if self.floor_intervals > MAX_FLOOR_INTERVALS {
                Verdict::Stop
            } else {
                Verdict::Fine
            };
        }
        let to = from.mul_f64(0.5).max(FLOOR);
        self.ceiling = Some(to);
        Verdict::Braked(to)
    }

    /// Doubles the ceiling after each interval without excessive loss, and removes it when the rate
    /// stays below 80 % of it.
    fn ease(&mut self, wire: Option<DataRate>) {
        if let Some(ceiling) = self.ceiling {
            let raised = ceiling.mul_f64(2.0);
            let binds = wire.is_some_and(|w| w.as_bps() >= ceiling.as_bps() / 10 * 8);
            self.ceiling = binds.then_some(raised);
        }
    }

    fn restart(&mut self, now: Time) {
        (self.started, self.lost, self.acked) = (now, 0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(share: u64, intervals: u64) -> (Breaker, Vec<Verdict>) {
        let mut breaker = Breaker::default();
        let verdicts = (1..=intervals)
            .map(|i| {
                let now = Time::ZERO + Duration::from_secs(i);
                let wire = breaker.ceiling().or(Some(DataRate::from_mbps(100)));
                let rtt = Duration::from_millis(50);
                breaker.on_report(now, rtt, 100 - share, share, wire)
            })
            .collect();
        (breaker, verdicts)
    }

    #[test]
    fn moderate_loss_is_left_to_the_controller() {
        assert_eq!(run(15, 50).0.ceiling(), None);
    }

    #[test]
    fn persistent_loss_brakes_and_total_loss_stops() {
        let (_, verdicts) = run(30, 4);
        assert_eq!(verdicts[2], Verdict::Braked(DataRate::from_mbps(50)));
        let (_, verdicts) = run(100, 200);
        assert!(verdicts.contains(&Verdict::Stop));
    }

    #[test]
    fn silence_halves_on_return() {
        let mut breaker = Breaker::default();
        breaker.silence();
        assert!(breaker.is_silent());
        let (rtt, now) = (Duration::from_millis(50), Time::ZERO);
        breaker.on_report(now, rtt, 1, 500, Some(DataRate::from_mbps(100)));
        assert_eq!(breaker.ceiling(), Some(DataRate::from_mbps(50)));
        assert!(!breaker.is_silent());
    }
}
