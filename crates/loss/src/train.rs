//! Fits models to labelled signatures.

mod calibrate;
mod curve;
mod em;
mod judge;
mod paper;
mod shapiro;

use std::collections::BTreeMap;

use packtrain_units::Rng;
use thiserror::Error;

pub use judge::{BANDS, FamilyTally, Judge, Judgement, Kind, ReliabilityBin, Tally};
pub use shapiro::{Normality, shapiro_wilk};

use crate::features::{DELAY, Features, PATTERN};
use crate::{
    Cause, CauseModel, ComplexityMeter, FORMAT, FamilyModel, Labelled, Model, OwnModel, Provenance,
    SizeModel, Split, Thresholds, WordLength, success_proportion,
};

/// Maximum ratio of window lengths that train one entry of a model.
const SAME_SIZE: f64 = 1.25;
/// Minimum windows of a cause for a size to be fitted.
const MIN_FAMILY_WINDOWS: usize = 30;
/// Maximum windows used of one family: more take time and give little information.
const MAX_FAMILY_WINDOWS: usize = 5000;

/// Why no model could be fitted.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum TrainError {
    /// Too few data of a cause for a curve.
    #[error("{found} windows of cause {cause} do not determine its {metric}")]
    TooFew {
        /// The cause.
        cause: Cause,
        /// The metric to fit.
        metric: &'static str,
        /// Available windows.
        found: usize,
    },
    /// No window length has enough windows of both main causes.
    #[error(
        "no window length has {MIN_FAMILY_WINDOWS} windows each of the causes network and cpu \
         for training"
    )]
    NoSize,
}

/// The features of one labelled window.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    family: String,
    cause: Cause,
    packets: usize,
    paper: bool,
    /// Whether it trains the paper's classifier only.
    paper_only: bool,
    /// Whether more of its losses are the network's (or the link's) than the host's.
    mostly_elsewhere: bool,
    loss_rate: f64,
    complexity: f64,
    success: f64,
    features: Features,
}

/// Converts labelled windows one at a time, so that a large data set need not be in memory.
#[derive(Debug)]
pub struct Trainer {
    meter: ComplexityMeter,
    word: WordLength,
    samples: Vec<Sample>,
    per_family: BTreeMap<(String, usize, bool), usize>,
    skipped: u64,
}

impl Trainer {
    /// A trainer that counts words of this length.
    pub fn new(word: WordLength) -> Self {
        let meter = ComplexityMeter::new(word);
        Self { meter, word, samples: Vec::new(), per_family: BTreeMap::new(), skipped: 0 }
    }

    /// Takes a window if it is for training and has losses.
    pub fn add(&mut self, labelled: &Labelled) {
        let complexity = self.meter.complexity(&labelled.signature);
        let features = Features::of(&labelled.signature, complexity, labelled.delay.as_ref());
        let (Some(features), Split::Train) = (features, labelled.split) else {
            self.skipped += 1;
            return;
        };
        let paper_only = has_paper_rates(labelled);
        let key = (labelled.family.clone(), labelled.signature.len(), paper_only);
        let count = self.per_family.entry(key).or_default();
        *count += 1;
        if *count > MAX_FAMILY_WINDOWS {
            self.skipped += 1;
            return;
        }
        self.samples.push(Sample {
            family: labelled.family.clone(),
            cause: labelled.cause,
            packets: labelled.signature.len(),
            paper: is_paper(labelled),
            paper_only,
            mostly_elsewhere: labelled.lost.network + labelled.lost.link > labelled.lost.host,
            loss_rate: labelled.signature.loss_rate(),
            complexity,
            success: success_proportion(&labelled.signature).unwrap_or(0.0),
            features,
        });
    }

    /// Windows taken and windows skipped (for testing, without loss, or beyond the maximum).
    pub fn counts(&self) -> (usize, u64) {
        (self.samples.len(), self.skipped)
    }

    /// Fits a model. The same windows in the same order with the same seed give the same model.
    ///
    /// # Errors
    /// There are too few windows.
    pub fn finish(self, mut provenance: Provenance) -> Result<Model, TrainError> {
        provenance.word_length = self.word.packets() as u32;
        let mut sizes = Vec::new();
        for group in by_size(&self.samples) {
            let of = |cause| move |s: &&&Sample| s.cause == cause && !s.paper_only;
            let enough = |cause| group.iter().filter(of(cause)).count() >= MIN_FAMILY_WINDOWS;
            if enough(Cause::Network) && enough(Cause::Cpu) {
                sizes.push(fit_size(&group, &mut Rng::new(provenance.seed))?);
            }
        }
        if sizes.is_empty() {
            return Err(TrainError::NoSize);
        }
        Ok(Model { format: FORMAT.to_owned(), provenance, sizes })
    }
}

/// Whether a window was generated under the paper's own conditions, by its mark.
pub(crate) fn is_paper(labelled: &Labelled) -> bool {
    let meta = labelled.more.get("meta").and_then(|meta| meta.get("paper"));
    meta.or_else(|| labelled.more.get("paper")).and_then(serde_json::Value::as_bool) == Some(true)
}

/// Whether a window has the paper's rates too. Such windows train the paper's classifier, and not
/// ours, which learns from many kinds of losses and does not prefer the paper's.
fn has_paper_rates(labelled: &Labelled) -> bool {
    let meta = labelled.more.get("meta").and_then(|meta| meta.get("conditions"));
    meta.and_then(serde_json::Value::as_str) == Some("paper")
}

/// Groups of about the same window length, longest first.
fn by_size(samples: &[Sample]) -> Vec<Vec<&Sample>> {
    let mut sorted: Vec<&Sample> = samples.iter().collect();
    sorted.sort_by_key(|sample| std::cmp::Reverse(sample.packets));
    let mut groups: Vec<Vec<&Sample>> = Vec::new();
    for sample in sorted {
        match groups.last_mut() {
            Some(group) if (group[0].packets as f64) < sample.packets as f64 * SAME_SIZE => {
                group.push(sample);
            }
            _ => groups.push(vec![sample]),
        }
    }
    groups
}

fn fit_size(samples: &[&Sample], rng: &mut Rng) -> Result<SizeModel, TrainError> {
    let mut fit = BTreeMap::new();
    let paper = paper::fit(samples, &mut fit)?;
    let mut windows = BTreeMap::new();
    for sample in samples {
        let rates = if sample.paper_only { " at the paper's rates" } else { "" };
        *windows.entry(format!("{} {}{rates}", sample.cause, sample.family)).or_default() += 1;
    }
    let samples: Vec<&Sample> = samples.iter().filter(|s| !s.paper_only).copied().collect();
    let samples = samples.as_slice();
    let pattern = |sample: &&Sample| sample.features.pattern.map(Some);
    let delay = |sample: &&Sample| sample.features.delay;
    let mut own = OwnModel {
        pattern_scale: scales::<{ PATTERN.len() }>(samples.iter().map(pattern)),
        delay_scale: scales::<{ DELAY.len() }>(samples.iter().map(delay)),
        causes: Vec::new(),
        temperature: 1.0,
        background: 1e-3,
        thresholds: Thresholds { cpu: 0.95, link: 0.9, other: 0.6 },
    };
    own.causes =
        Cause::TRUE.into_iter().filter_map(|cause| fit_cause(samples, cause, &own, rng)).collect();
    calibrate::calibrate(&mut own, samples, &mut fit);
    let mut lengths: Vec<usize> = samples.iter().map(|sample| sample.packets).collect();
    lengths.sort_unstable();
    Ok(SizeModel { packets: lengths[lengths.len() / 2], windows, fit, paper, own })
}

fn fit_cause(
    samples: &[&Sample],
    cause: Cause,
    own: &OwnModel,
    rng: &mut Rng,
) -> Option<CauseModel> {
    let mut families: BTreeMap<&str, Vec<&Sample>> = BTreeMap::new();
    for sample in samples.iter().filter(|sample| sample.cause == cause) {
        families.entry(&sample.family).or_default().push(sample);
    }
    let families: Vec<FamilyModel> = families
        .into_iter()
        .filter_map(|(name, samples)| {
            let pattern = samples.iter().map(|sample| {
                let values = sample.features.pattern.iter().zip(&own.pattern_scale);
                values.map(|(value, (centre, scale))| (value - centre) / scale).collect()
            });
            let delay = samples.iter().filter_map(|sample| {
                let values = sample.features.delay.iter().zip(&own.delay_scale);
                values.map(|(value, (centre, scale))| Some(((*value)? - centre) / scale)).collect()
            });
            let (pattern, delay): (Vec<Vec<f64>>, Vec<Vec<f64>>) =
                (pattern.collect(), delay.collect());
            let windows = samples.len();
            let delay = if delay.len() >= MIN_FAMILY_WINDOWS { em::fit(&delay, rng) } else { None };
            Some(FamilyModel {
                name: name.to_owned(),
                windows,
                pattern: em::fit(&pattern, rng)?,
                delay,
            })
        })
        .collect();
    let prior = prior(cause);
    let floor = f64::MIN;
    (!families.is_empty()).then_some(CauseModel { cause, prior, floor, families })
}

/// Prior probability of a cause: equal for network and processor, as in the paper; lower for both
/// at once; very low for link errors, because bulk transfers use wires.
fn prior(cause: Cause) -> f64 {
    match cause {
        Cause::Network | Cause::Cpu => 0.4,
        Cause::Hybrid => 0.15,
        Cause::Link => 0.05,
        Cause::Inconclusive => 0.0,
    }
}

/// Mean and standard deviation of the known values of each feature.
fn scales<const N: usize>(rows: impl Iterator<Item = [Option<f64>; N]> + Clone) -> Vec<(f64, f64)> {
    (0..N)
        .map(|index| {
            let values = rows.clone().filter_map(|row| row[index]);
            let (mut n, mut sum) = (0.0, 0.0);
            for value in values.clone() {
                n += 1.0;
                sum += value;
            }
            if n < 2.0 {
                return (0.0, 1.0);
            }
            let mean = sum / n;
            let variance = values.map(|value| (value - mean).powi(2)).sum::<f64>() / n;
            let round = |value: f64| (value * 1e6).round() / 1e6;
            (round(mean), round(variance.sqrt()).max(1e-3))
        })
        .collect()
}

/// A standard normal number (Box and Muller).
#[cfg(test)]
pub(crate) fn normal(rng: &mut Rng) -> f64 {
    let radius = (-2.0 * (1.0 - rng.unit()).ln()).sqrt();
    radius * (2.0 * std::f64::consts::PI * rng.unit()).cos()
}

#[cfg(test)]
mod tests;
