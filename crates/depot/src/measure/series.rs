//! The measurements of one hop, and their forecast.

use std::collections::VecDeque;

use packtrain_plan::forecast::Battery;
use packtrain_session::Place;
use packtrain_session::measure::{Point, Sensor, Series as HopSeries};
use packtrain_units::{DataRate, Duration};
use serde::{Deserialize, Serialize};

/// Maximum number of measurements; they are also loaded after a restart.
pub(super) const KEPT: usize = 128;

/// One measurement.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Sample {
    /// Its time, since 1970.
    pub(crate) at: Duration,
    /// Rate of all streams together.
    pub(crate) rate: DataRate,
    /// Number of streams.
    pub(crate) streams: u32,
    /// Retransmitted bytes, in parts per million.
    pub(crate) lost_ppm: u32,
    pub(crate) min_rtt: Option<Duration>,
    pub(crate) probed: bool,
}

impl Sample {
    fn sensor(&self) -> Sensor {
        if self.probed { Sensor::Probed } else { Sensor::Relayed }
    }

    /// The measurement in the format of a report.
    pub(super) fn report(&self) -> Point {
        Point {
            sensor: self.sensor(),
            at: self.at,
            rate: self.rate,
            streams: self.streams,
            min_rtt: self.min_rtt,
            lost_ppm: self.lost_ppm,
        }
    }
}

/// The series of one hop.
#[derive(Clone, Debug)]
pub(super) struct Series {
    samples: VecDeque<Sample>,
    /// Number of measurements, including removed ones.
    count: u32,
    all: Battery,
    each: Battery,
}

impl Default for Series {
    fn default() -> Self {
        let (all, each) = (Battery::new(), Battery::new());
        Self { samples: VecDeque::new(), count: 0, all, each }
    }
}

impl Series {
    /// A series of these measurements, the oldest first.
    pub(super) fn of(samples: impl IntoIterator<Item = Sample>) -> Self {
        let mut series = Self::default();
        samples.into_iter().for_each(|sample| series.learn(sample));
        series
    }

    pub(super) fn learn(&mut self, sample: Sample) {
        // The rate is finite and not negative, so `learn` accepts it.
        let rate = sample.rate.as_bps() as f64;
        let _ = self.all.learn(rate);
        let _ = self.each.learn(rate / f64::from(sample.streams.max(1)));
        self.count = self.count.saturating_add(1);
        if self.samples.len() == KEPT {
            self.samples.pop_front();
        }
        self.samples.push_back(sample);
    }

    pub(super) fn samples(&self) -> impl Iterator<Item = &Sample> {
        self.samples.iter()
    }

    pub(super) fn newest(&self) -> Option<&Sample> {
        self.samples.back()
    }

    /// The report of this hop; `None` without measurements.
    pub(super) fn report(&self, now: Duration, to: Place) -> Option<HopSeries> {
        let newest = self.newest()?;
        let (all, each) = (self.all.forecast()?, self.each.forecast()?);
        let rate = |bps: f64| DataRate::from_bps(bps as u64);
        let count = self.samples.len() as u64;
        let lost = self.samples.iter().map(|sample| u64::from(sample.lost_ppm)).sum::<u64>();
        Some(HopSeries {
            to,
            sensor: newest.sensor(),
            age: now.saturating_sub(newest.at),
            samples: self.count,
            rate: rate(all.value),
            interval: (rate(all.interval.0), rate(all.interval.1)),
            error_ppm: (all.relative_error * 1e6).min(f64::from(u32::MAX)) as u32,
            each: rate(each.value),
            min_rtt: self.samples.iter().filter_map(|sample| sample.min_rtt).min(),
            lost_ppm: (lost / count.max(1)) as u32,
        })
    }
}
