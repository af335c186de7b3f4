//! Fits the paper's classifier.

use std::collections::BTreeMap;

use super::Sample;
use super::curve::{self, Curve};
use super::shapiro::shapiro_wilk;
use crate::Cause;
use crate::paper::{
    COMPLEXITY_FROM, ComplexityModel, PaperModel, PerCause, SUCCESS_FROM, SuccessModel,
};
use crate::train::TrainError;

/// Maximum loss rate of the paper's data.
const MAX_LOSS_RATE: f64 = 0.05;
/// Bins of loss rates whose residuals are tested for normality.
const BINS: usize = 50;
/// Minimum values of a bin for a test.
const MIN_VALUES: usize = 8;
/// Significance below which normality is rejected.
const LEVEL: f64 = 0.05;
/// Minimum standard deviation of the complexity, because a cause whose metric never varied would
/// be infinitely narrow. With a smaller one there is no model of the success proportion.
const MIN_DEVIATION: f64 = 1e-3;

/// Fits both metrics of both causes; records the quality in `fit`.
pub(super) fn fit(
    samples: &[&Sample],
    fit: &mut BTreeMap<String, f64>,
) -> Result<PaperModel, TrainError> {
    let chosen = choose(samples);
    let mut complexity = |cause, terms| complexity(&chosen, cause, terms, fit);
    let complexity =
        PerCause { network: complexity(Cause::Network, 2)?, cpu: complexity(Cause::Cpu, 1)? };
    let mut success = |cause| success(&chosen, cause, fit);
    let success = success(Cause::Network).zip(success(Cause::Cpu));
    let success = success.map(|(network, cpu)| PerCause { network, cpu });
    Ok(PaperModel { complexity, success })
}

/// For each cause the samples with the paper's own rates; if there are none, those of families
/// marked as the paper's own conditions; otherwise all.
fn choose<'a>(samples: &[&'a Sample]) -> Vec<&'a Sample> {
    let of = |cause| {
        let any = |mark: fn(&Sample) -> bool| {
            let marked = samples.iter().filter(|s| s.cause == cause && mark(s));
            marked.copied().collect::<Vec<_>>()
        };
        let nearest = [any(|s| s.paper_only), any(|s| s.paper), any(|_| true)];
        nearest.into_iter().find(|found| !found.is_empty()).unwrap_or_default()
    };
    [of(Cause::Network), of(Cause::Cpu)].concat()
}

fn complexity(
    samples: &[&Sample],
    cause: Cause,
    terms: usize,
    fit: &mut BTreeMap<String, f64>,
) -> Result<ComplexityModel, TrainError> {
    let points: Vec<(f64, f64)> = samples
        .iter()
        .filter(|sample| sample.cause == cause)
        .filter(|sample| (COMPLEXITY_FROM..=MAX_LOSS_RATE).contains(&sample.loss_rate))
        .map(|sample| (sample.loss_rate, sample.complexity))
        .collect();
    let Some(Curve { mean, deviation, r_squared }) = curve::fit(&points, terms) else {
        return Err(TrainError::TooFew { cause, metric: "complexity", found: points.len() });
    };
    let deviation = deviation.max(MIN_DEVIATION);
    let mut bins = vec![Vec::new(); BINS];
    for (p, value) in &points {
        let bin = ((p / MAX_LOSS_RATE * BINS as f64) as usize).min(BINS - 1);
        bins[bin].push(value - mean.at(*p));
    }
    let mut say = |what: &str, value| fit.insert(format!("paper {cause} complexity {what}"), value);
    say("windows", points.len() as f64);
    say("deviation", deviation);
    say("r squared", r_squared);
    let (tested, kept) = normal_bins(&bins);
    say("bins tested for normality", tested as f64);
    say("bins where normality is not rejected", kept as f64);
    Ok(ComplexityModel { mean, deviation })
}

fn success(
    samples: &[&Sample],
    cause: Cause,
    fit: &mut BTreeMap<String, f64>,
) -> Option<SuccessModel> {
    let values: Vec<f64> = samples
        .iter()
        .filter(|sample| sample.cause == cause)
        .filter(|sample| (SUCCESS_FROM..COMPLEXITY_FROM).contains(&sample.loss_rate))
        .map(|sample| sample.success)
        .collect();
    if values.len() < MIN_VALUES {
        return None;
    }
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (n - 1.0);
    let deviation = variance.sqrt();
    let mut say =
        |what: &str, value| fit.insert(format!("paper {cause} success proportion {what}"), value);
    say("windows", n);
    say("mean", mean);
    say("deviation", deviation);
    let (tested, kept) = normal_bins(&[values]);
    say("bins tested for normality", tested as f64);
    say("bins where normality is not rejected", kept as f64);
    // Values that do not vary are no distribution. A deviation of our choice would decide alone.
    (deviation >= MIN_DEVIATION).then_some(SuccessModel { mean, deviation })
}

/// The number of bins with enough values, and of those that pass the Shapiro-Wilk test without
/// their outliers.
fn normal_bins(bins: &[Vec<f64>]) -> (usize, usize) {
    let (mut tested, mut kept) = (0, 0);
    for bin in bins {
        let mut values = without_outliers(bin);
        values.truncate(5000);
        if values.len() < MIN_VALUES {
            continue;
        }
        tested += 1;
        kept += usize::from(shapiro_wilk(&values).is_some_and(|test| test.p >= LEVEL));
    }
    (tested, kept)
}

/// Removes values more than 1.5 interquartile ranges outside the quartiles (Tukey).
fn without_outliers(values: &[f64]) -> Vec<f64> {
    if values.len() < 4 {
        return values.to_vec();
    }
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (low, high) = (sorted[sorted.len() / 4], sorted[3 * sorted.len() / 4]);
    let reach = 1.5 * (high - low);
    values.iter().copied().filter(|value| (low - reach..=high + reach).contains(value)).collect()
}
