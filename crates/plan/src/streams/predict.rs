//! One answer from all samples, whatever they are.
//!
//! The paper's models each assume a shape; where the path has another, they mislead or say
//! nothing. Here many shapes stand side by side, each weighted by how well it explains the
//! samples ([`super::shapes`], [`super::residual`]); what is told is their mean, and how far they
//! and the noise leave it open. The choice is the number of streams that is expected to reach
//! most of the best, whichever shape is the true one.

use std::num::NonZeroU32;
use std::sync::Arc;

use packtrain_units::DataRate;

use super::Sample;
use super::baseline::{argmax, log_log};
use super::fit::ModelFit;
use super::mixture::Mixture;
use super::point::{Point, from_mbps, points};

/// The answer is at most this many times the largest number of streams that was measured: who
/// sees throughput up to 8 streams knows little about 32.
const REACH: u32 = 2;

/// Where throughput still grows in proportion, it is this many times.
const FAR_REACH: u32 = 4;

/// What "in proportion" means: the last doubling gave this power of two. A path at 0.8 is at most
/// a doubling or two before its knee.
const PROPORTIONAL: f64 = 0.8;

/// A number that was not measured must promise this much more, as a share of the best, than the
/// best one that was: that one is known.
const ADVANTAGE: f64 = 0.01;

/// Quantile of the normal distribution for an interval that holds four measurements in five.
const FOUR_IN_FIVE: f64 = 1.2816;

/// All numbers up to this one are considered; above it those in steps of a tenth.
const EACH_UP_TO: u32 = 64;

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

/// What the samples say together.
#[derive(Clone, Debug)]
pub struct Prediction {
    /// The number of streams to use.
    pub streams: NonZeroU32,
    /// What they are expected to move together.
    pub throughput: DataRate,
    /// Between these a measurement is expected four times in five.
    pub interval: (DataRate, DataRate),
    /// Each model by itself, and the two baselines.
    pub models: Vec<ModelFit>,
    mixture: Option<Arc<Mixture>>,
}

/// Predicts from measurements in any order. Of repeated numbers of streams the median counts;
/// measurements of zero tell that this many did not work, and nothing else.
///
/// # Errors
/// There is no sample at all. Whatever else the samples are, there is an answer.
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
    /// What `streams` streams will give; zero if nothing but zero was measured.
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

/// The number of streams from which most of the best is expected.
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
    let most = allowed().map(|(_, share)| *share).fold(0.0, f64::max);
    let measured = points.iter().filter(|p| p.streams <= limit).copied().collect::<Vec<_>>();
    let best = argmax(&measured).map(|p| p.streams);
    let known = allowed().find(|(n, _)| Some(**n) == best).map(|(_, share)| *share);
    match (best, known) {
        (Some(best), Some(known)) if most - known < ADVANTAGE => best,
        _ => allowed().find(|(_, share)| **share >= most).map_or(limit, |(n, _)| *n),
    }
}

/// Numbers that are compared: whatever is allowed and some way beyond it, in ascending order.
fn candidates(points: &[Point], max: NonZeroU32) -> Vec<NonZeroU32> {
    let largest = points.last().map_or(1, |p| p.streams.get());
    let end = largest.saturating_mul(FAR_REACH).max(EACH_UP_TO).min(max.get());
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

/// The most streams that may be answered.
fn limit(points: &[Point], stalled: &[NonZeroU32], max: NonZeroU32) -> NonZeroU32 {
    let Some(last) = points.last() else { return max };
    let before = points.len().checked_sub(2).map(|index| &points[index]);
    let proportional = before.is_some_and(|before| {
        (last.mbps / before.mbps).ln() >= PROPORTIONAL * (last.ln_n - before.ln_n)
    });
    let reach = if proportional { FAR_REACH } else { REACH };
    let reached = last.streams.saturating_mul(NonZeroU32::MIN.saturating_add(reach - 1)).min(max);
    // Nothing moved with so many streams: not that far, unless more of them did work.
    let best = argmax(points).map_or(last.streams, |p| p.streams);
    let wall = stalled.iter().filter(|n| **n > best).min();
    wall.and_then(|n| NonZeroU32::new(n.get() - 1)).map_or(reached, |wall| wall.min(reached))
}

/// Throughput by straight lines between samples, for comparison.
pub fn interpolated(samples: &[Sample], at: NonZeroU32) -> Option<DataRate> {
    let (points, _) = points(samples);
    log_log(&points, &Point::new(at, 1.0)).map(from_mbps)
}

#[cfg(test)]
mod tests;
