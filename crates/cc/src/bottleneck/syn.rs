//! UDT's receiver from the view of its controller: every 10 ms the packets that arrived, the
//! arrival rate by the median filter (section III.B), the link's capacity, and a warning when the
//! last round trips rise (Pathload's two tests). Its messages take no time; the link's round trip
//! includes them.

use std::collections::VecDeque;

use packtrain_units::{ByteCount, DataRate, Duration, Time};

use super::{MSS, silence};
use crate::interface::{CongestionController, Feedback, RttSample};
use crate::udt::SYN;

/// Intervals and round trips kept (N0, N3).
const KEPT: usize = 16;

/// State of the receiver.
#[derive(Debug)]
pub(crate) struct Receiver {
    /// Whether it sends warnings.
    pub(crate) warns: bool,
    tick: Time,
    arrived: u64,
    arrived_at: Option<Time>,
    intervals: VecDeque<f64>,
    latest: Duration,
    smoothed: Option<Duration>,
    min: Duration,
    trips: VecDeque<f64>,
    warned_at: Time,
    pub(crate) warnings: u64,
}

impl Receiver {
    pub(crate) fn new(warns: bool) -> Self {
        Self {
            warns,
            tick: Time::ZERO,
            arrived: 0,
            arrived_at: None,
            intervals: VecDeque::new(),
            latest: Duration::ZERO,
            smoothed: None,
            min: Duration::MAX,
            trips: VecDeque::new(),
            warned_at: Time::ZERO,
            warnings: 0,
        }
    }

    /// When the next report is due, if there is something to report.
    pub(crate) fn due(&self) -> Option<Time> {
        (self.arrived > 0).then_some(self.tick)
    }

    pub(crate) fn arrive(&mut self, now: Time, latest: Duration) {
        if self.arrived == 0 && self.tick <= now {
            self.tick = now + SYN;
        }
        self.arrived += 1;
        self.latest = latest;
        self.min = self.min.min(latest);
        if let Some(before) = self.arrived_at.replace(now) {
            push(&mut self.intervals, now.since(before).as_secs_f64());
        }
    }

    pub(crate) fn report(
        &mut self,
        now: Time,
        capacity: DataRate,
        in_flight: ByteCount,
        controller: &mut dyn CongestionController,
    ) {
        let latest = self.latest;
        let smoothed =
            self.smoothed.map_or(latest, |old| old.mul_f64(0.875) + latest.mul_f64(0.125));
        self.smoothed = Some(smoothed);
        push(&mut self.trips, latest.as_secs_f64());
        let acked_packets = std::mem::take(&mut self.arrived);
        self.tick = now + SYN;
        let rising = self.warns && now >= self.warned_at + smoothed * 2 && self.is_rising();
        controller.on_feedback(&Feedback {
            acked: ByteCount(acked_packets * MSS),
            acked_packets,
            in_flight,
            rtt: Some(RttSample { latest, smoothed, variation: latest / 8, min: self.min }),
            arrival_rate: self.speed(),
            capacity: Some(capacity),
            ..silence(now)
        });
        if rising {
            self.warned_at = now;
            self.warnings += 1;
            controller.on_feedback(&Feedback { in_flight, delay_rising: true, ..silence(now) });
        }
    }

    fn speed(&self) -> Option<DataRate> {
        let mut sorted: Vec<f64> = self.intervals.iter().copied().collect();
        sorted.sort_by(f64::total_cmp);
        let median = *sorted.get(sorted.len() / 2)?;
        sorted.retain(|i| *i > median / 8.0 && *i < median * 8.0);
        let mean = sorted.iter().sum::<f64>() / sorted.len() as f64;
        (2 * sorted.len() > self.intervals.len())
            .then(|| DataRate::from_bps((8.0 * MSS as f64 / mean) as u64))
    }

    fn is_rising(&self) -> bool {
        let steps: Vec<f64> =
            self.trips.iter().zip(self.trips.iter().skip(1)).map(|(a, b)| b - a).collect();
        let up = steps.iter().filter(|step| **step > 0.0).count() as f64 / steps.len() as f64;
        let way: f64 = steps.iter().map(|step| step.abs()).sum();
        let trend = steps.iter().sum::<f64>() / way;
        let rising = (up > 0.66 && trend > 0.45) || (up > 0.54 && trend > 0.55);
        self.trips.len() == KEPT && rising
    }
}

fn push(kept: &mut VecDeque<f64>, value: f64) {
    kept.push_back(value);
    if kept.len() > KEPT {
        kept.pop_front();
    }
}
