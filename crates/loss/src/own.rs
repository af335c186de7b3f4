//! Our own classifier: densities of several features per family of causes.
//!
//! Each family of training data (a queue with bursty cross traffic, a receiver that loses its
//! processor, ...) has a mixture of normal densities over the features of a signature; a cause is
//! the unweighted mean of its families. All densities are conditional on the *loss rate*, because
//! the frequency of a loss rate in the training data is not that in practice. A temperature, fitted
//! on families that the densities did not know, corrects the overconfidence that comes from
//! dependent features. Every cause also has the same thin background: far from all families it
//! dominates, so a window unlike all families is inconclusive and not assigned to the least
//! unlikely one.

use serde::{Deserialize, Serialize};

use crate::basis::Basis;
use crate::features::{DELAY, Features, PATTERN};
use crate::gaussian::{Mixture, ln_sum};
use crate::paper::SURE;
use crate::{Cause, HostDrops};

/// Share of windows whose delay may have any value, because clocks and timestamps can fail. A delay
/// unlike all families then has no weight, and the signature decides.
const OUTLIER_SHARE: f64 = 0.1;
/// Spread of the background, in standard deviations of the training data.
const BACKGROUND_SPREAD: f64 = 3.0;

/// The fitted classifier for windows of one length.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OwnModel {
    /// Centre and scale of the features of the signature.
    pub pattern_scale: Vec<(f64, f64)>,
    /// Centre and scale of the features of the delay.
    pub delay_scale: Vec<(f64, f64)>,
    /// The causes in the training data.
    pub causes: Vec<CauseModel>,
    /// Log likelihoods are divided by this; 1 would use the densities unchanged.
    pub temperature: f64,
    /// Weight of the background in every cause's density.
    pub background: f64,
    /// Thresholds of a verdict.
    pub thresholds: Thresholds,
}

/// The densities of one cause.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CauseModel {
    /// The cause.
    pub cause: Cause,
    /// Its prior probability.
    pub prior: f64,
    /// A signature whose ln density under this cause is below this is unlike the cause.
    pub floor: f64,
    /// Its families, with equal weights.
    pub families: Vec<FamilyModel>,
}

/// The densities of one family.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FamilyModel {
    /// Its name in the data set.
    pub name: String,
    /// Number of windows that it was fitted to.
    pub windows: usize,
    /// Density of the features of the signature.
    pub pattern: Mixture,
    /// Density of the features of the delay, if the data had any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay: Option<Mixture>,
}

/// Minimum posteriors of a verdict; they reflect the cost of a wrong one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Thresholds {
    /// For the processor: the sender will not slow down.
    pub cpu: f64,
    /// For the link: the sender may not slow down.
    pub link: f64,
    /// For the network, or both.
    pub other: f64,
}

/// The posterior of each cause of [`Cause::TRUE`], in that order.
pub type Posterior = [f64; 4];

/// For each cause of [`Cause::TRUE`]: ln densities of the signature, of all features given the loss
/// rate, and of the background.
#[cfg(feature = "train")]
pub(crate) type LnDensities = [Option<[f64; 3]>; 4];

/// The result of the densities for one window.
#[derive(Clone, Debug, PartialEq)]
pub struct Assessment {
    /// Calibrated posteriors.
    pub posterior: Posterior,
    /// Whether the window is like the training data of each cause, in the order of the posterior.
    pub like: [bool; 4],
    /// Cause and name of the most similar family.
    pub family: Option<(Cause, String)>,
}

impl OwnModel {
    /// Evaluates the densities; `without` leaves a family out, to test unknown families.
    pub fn assessment(&self, features: &Features, without: Option<&str>) -> Assessment {
        let scores = self.scores(features, without);
        let weights = scores.each_ref().map(|score| match score {
            Some(score) => {
                let given_rate =
                    with_background(score.given_rate, score.background, self.background);
                score.prior.ln() + given_rate / self.temperature
            }
            None => f64::NEG_INFINITY,
        });
        let posterior = normalised(weights);
        let like = std::array::from_fn(|i| scores[i].as_ref().is_some_and(|s| s.joint >= s.floor));
        let best = scores.iter().flatten().max_by(|a, b| a.family.0.total_cmp(&b.family.0));
        let family = best.map(|score| (score.cause, score.family.1.to_owned()));
        Assessment { posterior, like, family }
    }

    /// The causes' densities, in the order of [`Cause::TRUE`].
    fn scores(&self, features: &Features, without: Option<&str>) -> [Option<Score<'_>>; 4] {
        let [pattern, rate, delay] = self.scaled(features);
        let background = background(pattern[1..].iter().chain(&delay));
        Cause::TRUE.map(|cause| {
            let model = self.causes.iter().find(|model| model.cause == cause)?;
            let families = || model.families.iter().filter(|f| Some(f.name.as_str()) != without);
            let count = families().count();
            if count == 0 {
                return None;
            }
            let share = (count as f64).ln();
            let parts: Vec<[f64; 3]> =
                families().map(|family| family.ln_densities(&pattern, &rate, &delay)).collect();
            let joint = ln_sum(parts.iter().map(|part| part[0])) - share;
            let with_delay = ln_sum(parts.iter().map(|part| part[0] + part[1])) - share;
            let of_rate = ln_sum(parts.iter().map(|part| part[2])) - share;
            let best = families()
                .zip(&parts)
                .map(|(family, part)| (part[0] + part[1] - of_rate, family.name.as_str()))
                .max_by(|a, b| a.0.total_cmp(&b.0))?;
            let given_rate = with_delay - of_rate;
            let (prior, floor) = (model.prior, model.floor);
            Some(Score { cause, prior, floor, joint, given_rate, background, family: best })
        })
    }

    /// The densities as [`LnDensities`].
    #[cfg(feature = "train")]
    pub(crate) fn ln_densities(&self, features: &Features, without: Option<&str>) -> LnDensities {
        let densities = |score: Score<'_>| [score.joint, score.given_rate, score.background];
        self.scores(features, without).map(|score| score.map(densities))
    }

    /// The scaled features of the signature, its loss rate alone, and those of the delay.
    fn scaled(&self, features: &Features) -> [Vec<Option<f64>>; 3] {
        let apply = |value: f64, (centre, scale): &(f64, f64)| (value - centre) / scale;
        let pattern = features.pattern.iter().zip(&self.pattern_scale);
        let pattern: Vec<_> = pattern.map(|(value, scale)| Some(apply(*value, scale))).collect();
        let mut rate = vec![None; pattern.len()];
        rate[0] = pattern[0];
        let delay = features.delay.iter().zip(&self.delay_scale);
        let delay = delay.map(|(value, scale)| value.map(|value| apply(value, scale))).collect();
        [pattern, rate, delay]
    }

    /// The error that makes the model invalid, if any.
    pub(crate) fn flaw(&self) -> Option<&'static str> {
        let scales = |scales: &[(f64, f64)]| {
            scales
                .iter()
                .all(|(centre, scale)| centre.is_finite() && scale.is_normal() && *scale > 0.0)
        };
        let probability = |p: f64| (0.0..=1.0).contains(&p);
        let family = |family: &FamilyModel| {
            family.pattern.is_valid(PATTERN.len())
                && family.delay.as_ref().is_none_or(|delay| delay.is_valid(DELAY.len()))
        };
        let cause = |model: &CauseModel| {
            model.cause != Cause::Inconclusive
                && probability(model.prior)
                && model.floor.is_finite()
                && model.families.iter().all(family)
        };
        let Thresholds { cpu, link, other } = self.thresholds;
        match () {
            () if self.pattern_scale.len() != PATTERN.len() => Some("features of the signature"),
            () if self.delay_scale.len() != DELAY.len() => Some("features of the delay"),
            () if !scales(&self.pattern_scale) || !scales(&self.delay_scale) => Some("scales"),
            () if !(1e-300..0.5).contains(&self.background) => Some("background"),
            () if !self.temperature.is_finite() || self.temperature < 1e-3 => Some("temperature"),
            () if ![cpu, link, other].into_iter().all(probability) => Some("thresholds"),
            () if !self.causes.iter().all(cause) => Some("densities of a cause"),
            () => None,
        }
    }
}

impl FamilyModel {
    /// ln densities of the signature, of the delay (0 if unknown), and of the loss rate alone.
    fn ln_densities(
        &self,
        pattern: &[Option<f64>],
        rate: &[Option<f64>],
        delay: &[Option<f64>],
    ) -> [f64; 3] {
        let delay = match &self.delay {
            Some(mixture) => {
                let ln_density = mixture.ln_density(delay);
                with_background(ln_density, background(delay.iter()), OUTLIER_SHARE)
            }
            None => background(delay.iter()),
        };
        [self.pattern.ln_density(pattern), delay, self.pattern.ln_density(rate)]
    }
}

/// One cause's densities of one window.
struct Score<'a> {
    cause: Cause,
    prior: f64,
    floor: f64,
    /// ln density of the signature.
    joint: f64,
    /// ln density of signature and delay, given the loss rate.
    given_rate: f64,
    /// ln density of the background, given the loss rate.
    background: f64,
    /// ln density of its best family given the loss rate, and the name.
    family: (f64, &'a str),
}

impl Assessment {
    /// Combines the result with a host's own count of drops. The count determines whose losses they
    /// are. The signature only distinguishes a full queue from an erroneous link and, where one
    /// count may stand for many datagrams, whether the host lost all of them.
    pub(crate) fn with_counter(mut self, counter: HostDrops, lost: u64) -> (Self, Basis) {
        let [network, cpu, hybrid, link] = self.posterior;
        if counter.is_ambiguous(lost) {
            // Some were the host's: no single other cause explains the window.
            self.posterior = [0.0, cpu, network + hybrid + link, 0.0];
            return (self, Basis::CounterAndSignature);
        }
        let [cpu, hybrid, elsewhere] = counter.posterior(lost);
        let rest = network + link;
        let share = if rest > 0.0 { link / rest } else { 0.0 };
        self.posterior = [elsewhere * (1.0 - share), cpu, hybrid, elsewhere * share];
        (self, Basis::HostCounter)
    }

    /// The verdict, and whether the window is unlike all training data.
    pub(crate) fn decide(&self, thresholds: Thresholds, basis: Basis) -> Decision {
        let counted = basis == Basis::HostCounter;
        let [network, cpu, hybrid, link] = self.posterior;
        let unlike = !counted && !self.like.contains(&true);
        let cause = match () {
            () if unlike => Cause::Inconclusive,
            () if counted && cpu >= SURE => Cause::Cpu,
            () if !counted && cpu >= thresholds.cpu && self.like[1] => Cause::Cpu,
            () if link >= thresholds.link && self.like[3] => Cause::Link,
            () if network.max(hybrid) < thresholds.other => Cause::Inconclusive,
            () if network >= hybrid => Cause::Network,
            () => Cause::Hybrid,
        };
        Decision { cause, unlike }
    }
}

/// ln density of the background: independent, wide, centred on all data.
fn background<'a>(values: impl Iterator<Item = &'a Option<f64>>) -> f64 {
    let constant = 0.5 * (2.0 * std::f64::consts::PI).ln() + BACKGROUND_SPREAD.ln();
    let of = |value: &f64| -0.5 * (value / BACKGROUND_SPREAD).powi(2) - constant;
    values.flatten().map(of).sum()
}

/// ln of a density mixed with the background by `share`.
pub(crate) fn with_background(ln_density: f64, ln_background: f64, share: f64) -> f64 {
    ln_sum([(1.0 - share).ln() + ln_density, share.ln() + ln_background].into_iter())
}

/// Probabilities from their ln up to a constant; uniform if all are zero.
pub(crate) fn normalised(ln_weights: [f64; 4]) -> Posterior {
    let sum = ln_sum(ln_weights.iter().copied());
    ln_weights.map(|weight| if sum.is_finite() { (weight - sum).exp() } else { 0.25 })
}

/// The result of a decision.
pub(crate) struct Decision {
    pub(crate) cause: Cause,
    /// The window is unlike all training data.
    pub(crate) unlike: bool,
}
