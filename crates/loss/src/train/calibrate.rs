//! Floors, temperature and thresholds of our own classifier.
//!
//! All of them are set on windows judged twice: by the densities of all families, and by those of
//! all families but their own, because in practice there are families that no data set has.

use std::collections::BTreeMap;

use super::Sample;
use crate::features::Features;
use crate::own::{Assessment, LnDensities, normalised, with_background};
use crate::{Basis, Cause, OwnModel};

/// Windows used of each family.
const MAX_CALIBRATION_WINDOWS: usize = 500;
/// Maximum share of a cause's own windows below its floor.
const BELOW_FLOOR: f64 = 0.002;
/// The same for the processor, whose floor is stricter.
const BELOW_CPU_FLOOR: f64 = 0.02;
/// Number of temperatures tried: 1 to about 30.
const TEMPERATURES: i32 = 35;
/// Weights of the background that are tried.
const BACKGROUNDS: [f64; 3] = [1e-2, 1e-3, 1e-4];
/// Posterior thresholds for the processor that are tried.
const CPU_THRESHOLDS: [f64; 8] = [0.95, 0.97, 0.98, 0.99, 0.995, 0.998, 0.999, 0.9995];
/// Maximum share of any family's windows lost elsewhere that may be attributed to the processor.
const WRONG_CPU: f64 = 0.002;
/// The same for link errors: continuing at the same rate after these harms no other flow.
const WRONG_CPU_LINK: f64 = 0.05;
/// The same for a family that was left out, of the network or hybrid.
const WRONG_CPU_LEFT_OUT: f64 = 0.015;

/// With and without its own family, each with the signature alone and with the delay.
const VIEWS: usize = 4;

/// A window with its densities.
struct Judged<'a> {
    sample: &'a Sample,
    /// Weight that makes all families of a cause, and all causes, count equally.
    weight: f64,
    /// With all families, and without its own (if its cause has others): with the signature alone,
    /// and with the delay.
    views: [Option<LnDensities>; VIEWS],
}

/// Sets the floors, the temperature and the thresholds; records the results in `fit`.
pub(super) fn calibrate(own: &mut OwnModel, samples: &[&Sample], fit: &mut BTreeMap<String, f64>) {
    let judged = judge(own, samples);
    set_floors(own, &judged);
    let priors = priors(own);
    let mut best = (f64::INFINITY, own.temperature, own.background);
    for background in BACKGROUNDS {
        for step in 0..TEMPERATURES {
            own.background = background;
            own.temperature = (1.1f64.powi(step) * 1e4).round() / 1e4;
            let loss = log_loss(own, &judged, &priors);
            if loss < best.0 {
                best = (loss, own.temperature, background);
            }
        }
    }
    (own.temperature, own.background) = (best.1, best.2);
    fit.insert("own temperature".to_owned(), own.temperature);
    fit.insert("own background".to_owned(), own.background);
    fit.insert("own log loss".to_owned(), best.0);
    set_cpu_threshold(own, &judged, fit);
}

fn judge<'a>(own: &OwnModel, samples: &[&'a Sample]) -> Vec<Judged<'a>> {
    let mut families: BTreeMap<(Cause, &str), Vec<&'a Sample>> = BTreeMap::new();
    for sample in samples {
        families.entry((sample.cause, &sample.family)).or_default().push(sample);
    }
    let mut per_cause: BTreeMap<Cause, usize> = BTreeMap::new();
    for (cause, _) in families.keys() {
        *per_cause.entry(*cause).or_default() += 1;
    }
    let mut judged = Vec::new();
    for ((cause, name), samples) in families {
        let step = samples.len().div_ceil(MAX_CALIBRATION_WINDOWS);
        let used: Vec<&Sample> = samples.into_iter().step_by(step).collect();
        let weight = 1.0 / (per_cause[&cause] * used.len()) as f64;
        for sample in used {
            // A link that sometimes loses everything has the signature of a receiver that loses its
            // processor: without training data of such a link they are indistinguishable.
            let fair = per_cause[&cause] > 1 && cause != Cause::Link;
            let alone = Features { delay: Default::default(), ..sample.features.clone() };
            let views = std::array::from_fn(|view| {
                let features = if view < 2 { &alone } else { &sample.features };
                let without = (view % 2 == 1).then_some(name);
                (without.is_none() || fair).then(|| own.ln_densities(features, without))
            });
            judged.push(Judged { sample, weight, views });
        }
    }
    judged
}

fn position(cause: Cause) -> usize {
    Cause::TRUE.iter().position(|other| *other == cause).unwrap_or(0)
}

/// The ln density that all but a small share of a cause's own windows reach.
fn set_floors(own: &mut OwnModel, judged: &[Judged<'_>]) {
    for model in &mut own.causes {
        let at = position(model.cause);
        let mut densities: Vec<(f64, f64)> = judged
            .iter()
            .filter(|judged| judged.sample.cause == model.cause)
            .filter_map(|judged| Some((judged.views[0]?[at]?[0], judged.weight)))
            .collect();
        densities.sort_by(|a, b| a.0.total_cmp(&b.0));
        let below = if model.cause == Cause::Cpu { BELOW_CPU_FLOOR } else { BELOW_FLOOR };
        let total: f64 = densities.iter().map(|(_, weight)| weight).sum();
        let mut sum = 0.0;
        let floor = densities.iter().find(|(_, weight)| {
            sum += weight;
            sum > below * total
        });
        model.floor = floor.map_or(f64::MIN, |(density, _)| (density * 1e3).floor() / 1e3);
    }
}

fn priors(own: &OwnModel) -> [f64; 4] {
    Cause::TRUE.map(|cause| {
        own.causes.iter().find(|model| model.cause == cause).map_or(0.0, |model| model.prior)
    })
}

fn posterior(own: &OwnModel, view: &LnDensities, priors: &[f64; 4]) -> [f64; 4] {
    normalised(std::array::from_fn(|i| match view[i] {
        Some([_, given_rate, background]) => {
            let given_rate = with_background(given_rate, background, own.background);
            priors[i].ln() + given_rate / own.temperature
        }
        None => f64::NEG_INFINITY,
    }))
}

/// Mean of -ln(probability given to the truth) for the question whether it was the processor, which
/// is the one that matters. (Link errors and a saturated backbone can look the same; no temperature
/// changes that.) Each cause counts by its prior, each view equally; windows unlike all data are
/// left out, because they get no verdict.
fn log_loss(own: &OwnModel, judged: &[Judged<'_>], priors: &[f64; 4]) -> f64 {
    let (mut sum, mut weights) = (0.0, 0.0);
    for judged in judged {
        let cause = judged.sample.cause;
        let weight = judged.weight * priors[position(cause)];
        for view in judged.views.iter().flatten().filter(|view| like(own, view).contains(&true)) {
            let cpu = posterior(own, view, priors)[1];
            let right = if cause == Cause::Cpu { cpu } else { 1.0 - cpu };
            sum -= weight * right.max(1e-12).ln();
            weights += weight;
        }
    }
    sum / weights
}

/// The causes that a window is like, in the order of [`Cause::TRUE`].
fn like(own: &OwnModel, view: &LnDensities) -> [bool; 4] {
    let floor = |cause| own.causes.iter().find(|model| model.cause == cause).map(|m| m.floor);
    std::array::from_fn(|i| {
        view[i].zip(floor(Cause::TRUE[i])).is_some_and(|([joint, ..], floor)| joint >= floor)
    })
}

/// Sets the lowest threshold at which no family lost elsewhere is attributed to the processor too
/// often.
fn set_cpu_threshold(own: &mut OwnModel, judged: &[Judged<'_>], fit: &mut BTreeMap<String, f64>) {
    let mut worst = [0.0; 3];
    for threshold in CPU_THRESHOLDS {
        own.thresholds.cpu = threshold;
        let of = |view, link| worst_family(own, judged, view, link);
        let both = |view, link| of(view, link).max(of(view + 2, link));
        worst = [both(0, false), both(1, false), both(0, true)];
        let limits = [WRONG_CPU, WRONG_CPU_LEFT_OUT, WRONG_CPU_LINK];
        if worst.iter().zip(limits).all(|(worst, limit)| *worst <= limit) {
            break;
        }
    }
    let mut say = |what: &str, value| fit.insert(format!("own {what}"), value);
    say("cpu threshold", own.thresholds.cpu);
    say("worst family's share called cpu", worst[0]);
    say("worst left out family's share called cpu", worst[1]);
    say("worst link's share called cpu", worst[2]);
    let right = |view: usize| {
        let cpu = |judged: &&Judged<'_>| {
            judged.sample.cause == Cause::Cpu && judged.views[view].is_some()
        };
        let of = judged.iter().filter(cpu);
        let all: f64 = of.clone().map(|judged| judged.weight).sum();
        let called: f64 = of.filter(|j| called_cpu(own, j, view)).map(|j| j.weight).sum();
        if all > 0.0 { called / all } else { 0.0 }
    };
    say("share of cpu called cpu", right(0));
    say("share of left out cpu called cpu", right(1));
}

/// Of windows that mostly lost elsewhere: the maximum share of a family that is attributed to the
/// processor.
fn worst_family(own: &OwnModel, judged: &[Judged<'_>], view: usize, link: bool) -> f64 {
    let mut families: BTreeMap<(Cause, &str), (f64, f64)> = BTreeMap::new();
    for judged in judged.iter().filter(|judged| judged.sample.mostly_elsewhere) {
        if judged.views[view].is_none() || (judged.sample.cause == Cause::Link) != link {
            continue;
        }
        let key = (judged.sample.cause, judged.sample.family.as_str());
        let (all, wrong) = families.entry(key).or_default();
        *all += 1.0;
        *wrong += f64::from(u8::from(called_cpu(own, judged, view)));
    }
    families.values().map(|(all, wrong)| wrong / all).fold(0.0, f64::max)
}

fn called_cpu(own: &OwnModel, judged: &Judged<'_>, view: usize) -> bool {
    let Some(view) = &judged.views[view] else { return false };
    let posterior = posterior(own, view, &priors(own));
    let assessment = Assessment { posterior, like: like(own, view), family: None };
    assessment.decide(own.thresholds, Basis::Signature).cause == Cause::Cpu
}
