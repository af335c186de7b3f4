//! One prediction from all samples.
//!
//! Each model of the paper assumes a shape; where the path has another, the model misleads or has
//! no result. Here many shapes are weighted by how well each explains the samples
//! ([`super::shapes`], [`super::residual`]). The prediction is their mean; its interval reflects
//! their spread and the noise. The chosen number of streams has the highest expected share of the
//! maximum throughput over all shapes.

use std::num::NonZeroU32;
use std::sync::Arc;

use packtrain_units::DataRate;

use super::Sample;
use super::baseline::{argmax, log_log};
use super::fit::ModelFit;
use super::mixture::Mixture;
use super::point::{Point, from_mbps, points};

/// The answer is at most this multiple of the largest measured number of streams: throughput up to
/// 8 streams gives little information about 32.
const MAX_EXTRAPOLATION: u32 = 2;

/// The multiple where throughput still grows in proportion.
const MAX_PROPORTIONAL_EXTRAPOLATION: u32 = 4;

/// Growth counts as proportional if the last doubling gave at least this power of two. A path at
/// 0.8 is at most a doubling or two before its knee.
const PROPORTIONAL: f64 = 0.8;

/// Minimum advantage of an unmeasured number over the best measured one, as a share of the best.
const ADVANTAGE: f64 = 0.01;

/// Quantile of the normal distribution for an 80 % interval.
const FOUR_IN_FIVE: f64 = 1.2816;

/// All numbers up to this one are candidates; above it those in steps of a tenth.
const EACH_UP_TO: u32 = 64;

/// Options of the prediction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// Maximum number of streams of the answer.
    pub max_streams: NonZeroU32,
}

impl Default for Options {
    /// Up to 64 streams.
    fn default() -> Self {
        Self { max_streams: NonZeroU32::MIN.saturating_add(63) }
    }
}

/// There is no sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no sample to predict from")]
pub struct NoSamples;

/// The prediction for one number of streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Number of streams.
    pub streams: NonZeroU32,
    /// Their expected total throughput.
    pub throughput: DataRate,
    /// The 80 % interval of a measurement.
    pub interval: (DataRate, DataRate),
}

/// The prediction from all samples.
#[derive(Clone, Debug)]
pub struct Prediction {
    /// The number of streams to use.
    pub streams: NonZeroU32,
    /// Their expected total throughput.
    pub throughput: DataRate,
    /// The 80 % interval of a measurement.
    pub interval: (DataRate, DataRate),
    /// Each single model, and the two baselines.
    pub models: Vec<ModelFit>,
    mixture: Option<Arc<Mixture>>,
}

/// Predicts from measurements in any order. Repeated numbers of streams count with their median. A
/// measurement of zero means only that this number of streams did not work.
///
/// # Errors
/// There is no sample. Any other input gives an answer.
pub fn predict(samples: &[Sample], options: Options) -> Result<Prediction, NoSamples> {
    let fewest = samples.iter().map(|sample| sample.streams).min().ok_or(NoSamples)?;
    let (points, stalled) = points(samples);
    let mixture = (!points.is_empty()).then(|| Arc::new(Mixture::new(&points)));
    let streams = match &mixture {
        Some(mixture) => choose(mixture, &points, &stalled, options.max_streams),
        None => fewest.min(options.max_streams),
    };
    let mut found = Prediction {
        streams,
        throughput: DataRate::ZERO,
        interval: (DataRate::ZERO, DataRate::ZERO),
        models: super::fit::all(&points, options.max_streams),
        mixture,
    };
    let answer = found.at(streams);
    (found.throughput, found.interval) = (answer.throughput, answer.interval);
    Ok(found)
}

impl Prediction {
    /// The prediction for `streams` streams; zero if only zeros were measured.
    pub fn at(&self, streams: NonZeroU32) -> Answer {
        let Some(mixture) = &self.mixture else {
            let interval = (DataRate::ZERO, DataRate::ZERO);
            return Answer { streams, throughput: DataRate::ZERO, interval };
        };
        let found = mixture.at(f64::from(streams.get()).ln());
        let half = FOUR_IN_FIVE * found.variance.sqrt();
        let rate = |ln_mbps: f64| from_mbps(ln_mbps.exp());
        let interval = (rate(found.mean - half), rate(found.mean + half));
        Answer { streams, throughput: rate(found.mean), interval }
    }
}

/// The number of streams with the highest expected share of the maximum.
fn choose(
    mixture: &Mixture,
    points: &[Point],
    stalled: &[NonZeroU32],
    max: NonZeroU32,
) -> NonZeroU32 {
    let all = candidates(points, max);
    let ln_n: Vec<f64> = all.iter().map(|n| f64::from(n.get()).ln()).collect();
    let shares = mixture.shares(&ln_n);
    let limit = limit(points, stalled, max);
    let allowed = || all.iter().zip(&shares).filter(|(n, _)| **n <= limit && !stalled.contains(n));
    let max = allowed().map(|(_, share)| *share).fold(0.0, f64::max);
    let measured = points.iter().filter(|p| p.streams <= limit).copied().collect::<Vec<_>>();
    let best = argmax(&measured).map(|p| p.streams);
    let known = allowed().find(|(n, _)| Some(**n) == best).map(|(_, share)| *share);
    match (best, known) {
        (Some(best), Some(known)) if max - known < ADVANTAGE => best,
        _ => allowed().find(|(_, share)| **share >= max).map_or(limit, |(n, _)| *n),
    }
}

/// The candidates: all allowed numbers and some beyond, in ascending order.
fn candidates(points: &[Point], max: NonZeroU32) -> Vec<NonZeroU32> {
    let largest = points.last().map_or(1, |p| p.streams.get());
    let end = largest.saturating_mul(MAX_PROPORTIONAL_EXTRAPOLATION).max(EACH_UP_TO).min(max.get());
    let mut all: Vec<u32> = (1..=end.min(EACH_UP_TO)).collect();
    let mut next = EACH_UP_TO;
    while next < end {
        next = next.saturating_add(next / 10).min(end);
        all.push(next);
    }
    all.extend(points.iter().map(|p| p.streams.get()).filter(|n| *n <= max.get()));
    all.sort_unstable();
    all.dedup();
    all.into_iter().filter_map(NonZeroU32::new).collect()
}

/// Maximum number of streams of the answer.
fn limit(points: &[Point], stalled: &[NonZeroU32], max: NonZeroU32) -> NonZeroU32 {
    let Some(last) = points.last() else { return max };
    let before = points.len().checked_sub(2).map(|index| &points[index]);
    let proportional = before.is_some_and(|before| {
        (last.mbps / before.mbps).ln() >= PROPORTIONAL * (last.ln_n - before.ln_n)
    });
    let reach = if proportional { MAX_PROPORTIONAL_EXTRAPOLATION } else { MAX_EXTRAPOLATION };
    let reached = last.streams.saturating_mul(NonZeroU32::MIN.saturating_add(reach - 1)).min(max);
    // This number of streams moved nothing: stay below it, unless more streams did work.
    let best = argmax(points).map_or(last.streams, |p| p.streams);
    let wall = stalled.iter().filter(|n| **n > best).min();
    wall.and_then(|n| NonZeroU32::new(n.get() - 1)).map_or(reached, |wall| wall.min(reached))
}

/// Throughput by interpolation between samples, for comparison.
pub fn interpolated(samples: &[Sample], at: NonZeroU32) -> Option<DataRate> {
    let (points, _) = points(samples);
    log_log(&points, &Point::new(at, 1.0)).map(from_mbps)
}

#[cfg(test)]
mod tests;
