//! One answer from all models.

use std::num::NonZeroU32;

use packtrain_units::DataRate;

use super::Sample;

/// What may be answered.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// The answer is never more streams than these.
    pub max_streams: NonZeroU32,
}

impl Default for Options {
    /// Up to 64 streams.
    fn default() -> Self {
        Self { max_streams: NonZeroU32::MIN.saturating_add(63) }
    }
}

/// Nothing was measured, so nothing can be said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no sample to predict from")]
pub struct NoSamples;

/// What one number of streams will give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// How many streams.
    pub streams: NonZeroU32,
    /// What they are expected to move together.
    pub throughput: DataRate,
    /// Between these a measurement is expected four times in five.
    pub interval: (DataRate, DataRate),
}

/// What one model makes of the samples.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelFit {
    /// As the command prints it.
    pub name: &'static str,
    /// Names and values of the coefficients found; empty if there are none.
    pub coefficients: Vec<(&'static str, f64)>,
    /// Where its curve is highest, within the limit; nothing if it is not valid.
    pub optimum: Option<NonZeroU32>,
    /// Why it cannot be used; nothing if it can.
    pub invalid: Option<String>,
}

/// What the samples say together.
#[derive(Clone, Debug, PartialEq)]
pub struct Prediction {
    /// The number of streams to use.
    pub streams: NonZeroU32,
    /// What they are expected to move together.
    pub throughput: DataRate,
    /// Between these a measurement is expected four times in five.
    pub interval: (DataRate, DataRate),
    /// Each model by itself.
    pub models: Vec<ModelFit>,
    points: Vec<Sample>,
}

/// Predicts from measurements in any order, repeated numbers of streams included.
///
/// # Errors
/// There is no sample at all. Whatever else the samples are, there is an answer.
pub fn predict(samples: &[Sample], options: Options) -> Result<Prediction, NoSamples> {
    let mut points = samples.to_vec();
    points.sort_by_key(|sample| sample.streams);
    let best = points.iter().rev().max_by_key(|sample| sample.throughput).ok_or(NoSamples)?;
    let streams = best.streams.min(options.max_streams);
    let mut found = Prediction {
        streams,
        throughput: best.throughput,
        interval: (DataRate::ZERO, DataRate::MAX),
        models: Vec::new(),
        points,
    };
    let answer = found.at(streams);
    (found.throughput, found.interval) = (answer.throughput, answer.interval);
    Ok(found)
}

impl Prediction {
    /// What `streams` streams will give.
    pub fn at(&self, streams: NonZeroU32) -> Answer {
        let near = self.points.iter().min_by_key(|sample| {
            (i64::from(sample.streams.get()) - i64::from(streams.get())).unsigned_abs()
        });
        let throughput = near.map_or(DataRate::ZERO, |sample| sample.throughput);
        let interval = (throughput.mul_f64(0.8), throughput.mul_f64(1.25));
        Answer { streams, throughput, interval }
    }
}
