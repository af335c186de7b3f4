//! The numbers of `experiments/parallel-streams-*`, for the example that writes them and the test
//! that checks them.
#![allow(dead_code)]

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use packtrain_plan::streams::metrics::{Judgement, average, judge};
use packtrain_plan::streams::models::{ALL, Mean};
use packtrain_plan::streams::{
    Doubling, DoublingOptions, Model, Options, Sample, best_fitted, interpolated, predict,
};
use packtrain_units::{DataRate, Rng};

/// Random sets of each size from each curve (k_m of equations 42 to 44).
const SETS: usize = 10;

/// The compared models. Hacker and Altman need only one sample; the loss rate model and Kola-Vernon
/// need more than throughput.
pub(crate) const COMPARED: [Model; 6] = [
    Model::Dinda,
    Model::Averaging(Mean::Arithmetic),
    Model::Break,
    Model::Logarithmic,
    Model::Newton,
    Model::FullSecondOrder,
];

/// One number: its quantity, its model, and the sample size if there are several.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) what: &'static str,
    pub(crate) model: &'static str,
    pub(crate) size: Option<usize>,
    pub(crate) value: f64,
}

impl Row {
    pub(crate) fn key(&self) -> String {
        let size = self.size.map_or_else(String::new, |size| format!(" m={size}"));
        format!("{} {}{size}", self.what, self.model)
    }
}

/// A curve: one sample per number of streams, in ascending order.
pub(crate) type Curve = Vec<Sample>;

/// The curves of a table with the columns of `data/parallel-streams`.
pub(crate) fn curves(text: &str) -> Vec<Curve> {
    let mut all: BTreeMap<String, Curve> = BTreeMap::new();
    for line in text.lines().skip(1) {
        let fields: Vec<_> = line.split(',').collect();
        let streams = fields[10].parse().ok().and_then(NonZeroU32::new).expect("streams");
        let mbps: f64 = fields[11].parse().expect("a throughput");
        let throughput = DataRate::from_bps((mbps * 1e6).round() as u64);
        all.entry(fields[..10].join(",")).or_default().push(Sample { streams, throughput });
    }
    let mut all: Vec<Curve> = all.into_values().collect();
    all.iter_mut().for_each(|curve| curve.sort_by_key(|s| s.streams));
    all
}

/// Predictability and effectiveness by sample size (figures 3a and 3b).
pub(crate) fn predictability(curves: &[Curve]) -> Vec<Row> {
    judged(curves, |model, size, all| {
        let found = average(&all.iter().map(|(j, _)| *j).collect::<Vec<_>>());
        let row = |what, value| Row { what, model, size: Some(size), value };
        vec![row("predictability", found.predictability), row("effectiveness", found.effectiveness)]
    })
}

/// The minimum error by sample size, relative to the curve's maximum throughput (figures 3c and
/// 3d).
pub(crate) fn errors(curves: &[Curve]) -> Vec<Row> {
    judged(curves, |model, size, all| {
        let mean = |of: fn(&Judgement) -> Option<f64>| {
            let shares: Vec<f64> = all.iter().filter_map(|(j, max)| Some(of(j)? / max)).collect();
            shares.iter().sum::<f64>() / shares.len().max(1) as f64
        };
        let row = |what, value| Row { what, model, size: Some(size), value };
        vec![
            row("error on the population", mean(|j| j.best_error_mbps)),
            row("error on the sample", mean(|j| j.best_error_on_samples_mbps)),
        ]
    })
}

/// Evaluates every model with every size from 3 to 6 and random sets from each curve; `rows` is
/// called with each result and the curve's maximum throughput in Mbit/s.
fn judged(
    curves: &[Curve],
    rows: impl Fn(&'static str, usize, &[(Judgement, f64)]) -> Vec<Row>,
) -> Vec<Row> {
    let mut found = Vec::new();
    for model in COMPARED {
        for size in 3..=6 {
            let mut rng = Rng::new(size as u64);
            let mut all = Vec::new();
            for curve in curves.iter().filter(|curve| curve.len() > size) {
                let max = mbps(curve.iter().map(|s| s.throughput).max().expect("not empty"));
                for _ in 0..SETS {
                    all.push((judge(model, &drawn(curve, size, &mut rng), curve), max));
                }
            }
            found.extend(rows(model.name(), size, &all));
        }
    }
    found
}

/// `size` samples of the curve, without repetition.
fn drawn(curve: &Curve, size: usize, rng: &mut Rng) -> Vec<Sample> {
    let mut all = curve.clone();
    (0..size).map(|_| all.swap_remove(rng.below(all.len() as u64) as usize)).collect()
}

/// Median error at an omitted point, in per cent, over every `step`-th curve.
pub(crate) fn left_out(curves: &[Curve], step: usize) -> Vec<Row> {
    let mut errors: Vec<(&'static str, Vec<f64>)> =
        COMPARED.iter().map(|model| (model.name(), Vec::new())).collect();
    errors.extend([("interpolation", Vec::new()), ("combined", Vec::new())]);
    let mut inside = 0;
    for curve in curves.iter().step_by(step) {
        for (index, sample) in curve.iter().enumerate() {
            let mut rest = curve.clone();
            rest.remove(index);
            let real = mbps(sample.throughput);
            let found = predict(&rest, Options::default()).expect("samples").at(sample.streams);
            inside +=
                usize::from((found.interval.0..=found.interval.1).contains(&sample.throughput));
            for (name, errors) in &mut errors {
                let value = match *name {
                    "combined" => Some(found.throughput),
                    "interpolation" => interpolated(&rest, sample.streams),
                    name => best_fitted(named(name), &rest)
                        .ok()
                        .and_then(|best| best.curve.at(sample.streams)),
                };
                errors.extend(value.map(|value| 100.0 * (mbps(value) / real - 1.0).abs()));
            }
        }
    }
    let points: usize = curves.iter().step_by(step).map(Vec::len).sum();
    let row = |what, model, value| Row { what, model, size: None, value };
    let mut rows = Vec::new();
    for (name, errors) in &mut errors {
        let none = points - errors.len();
        rows.push(row("left out, median error in per cent", name, median(errors)));
        rows.push(row("left out, without an answer", name, none as f64));
    }
    rows.push(row(
        "left out, share within the interval",
        "combined",
        inside as f64 / points as f64,
    ));
    rows
}

/// Samples at 1, 2, 4 and 8 streams, samples by the doubling sampler, and all samples: the
/// throughput at the chosen number of streams, relative to the maximum (section 6.3, figures 4 and
/// 5).
pub(crate) fn doubling(curves: &[Curve], step: usize) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut taken = Vec::new();
    type Choose = fn(&Curve) -> Curve;
    let ways: [(&'static str, Choose); 3] = [
        ("share of the best, 4 samples", |curve| first_four(curve)),
        ("share of the best, doubling", |curve| doubled(curve)),
        ("share of the best, all samples", Clone::clone),
    ];
    for (what, samples) in ways {
        let mut names: Vec<_> = COMPARED.iter().map(|model| model.name()).collect();
        names.extend(["argmax", "combined"]);
        for model in names {
            let shares: Vec<f64> = curves
                .iter()
                .step_by(step)
                .map(|curve| share(curve, chosen(model, &samples(curve))))
                .collect();
            let value = shares.iter().sum::<f64>() / shares.len() as f64;
            rows.push(Row { what, model, size: None, value });
        }
    }
    taken.extend(curves.iter().map(|curve| doubled(curve).len() as f64));
    let value = taken.iter().sum::<f64>() / taken.len() as f64;
    rows.push(Row { what: "samples taken", model: "doubling", size: None, value });
    let fixed: Vec<f64> = curves.iter().map(|curve| share(curve, NonZeroU32::new(8))).collect();
    let value = fixed.iter().sum::<f64>() / fixed.len() as f64;
    rows.push(Row { what: "share of the best, no sample", model: "8 streams", size: None, value });
    rows
}

/// The measurement methods of `parallel-streams-emulator`, with the names of their two columns.
pub(crate) const WAYS: [(&str, &str, &str); 4] = [
    ("cubic,large", "share of the best, cubic, large buffers", "error, cubic, large buffers"),
    ("reno,large", "share of the best, reno, large buffers", "error, reno, large buffers"),
    ("cubic,small", "share of the best, cubic, small buffers", "error, cubic, small buffers"),
    ("reno,small", "share of the best, reno, small buffers", "error, reno, small buffers"),
];

/// A curve for each of [`WAYS`].
pub(crate) fn ways(text: &str) -> Vec<Curve> {
    let of = |(way, ..): &(&str, &str, &str)| {
        let own = text.lines().filter_map(|line| line.strip_prefix(way)?.strip_prefix(','));
        own.map(|line| {
            let (streams, rest) = line.split_once(',').expect("streams");
            let mbps: f64 = rest.split(',').next().expect("a field").parse().expect("a number");
            let streams = streams.parse().ok().and_then(NonZeroU32::new).expect("streams");
            Sample { streams, throughput: DataRate::from_bps((mbps * 1e6).round() as u64) }
        })
        .collect()
    };
    WAYS.iter().map(of).collect()
}

/// Results of models from samples at 1, 2, 4 and 8 streams: the throughput at their number of
/// streams, and the distance of their curve from the measured one (equation 35, relative to the
/// maximum throughput).
pub(crate) fn emulated(curves: &[Curve]) -> Vec<Row> {
    let mut rows = Vec::new();
    for ((_, share_of, error_of), curve) in WAYS.iter().zip(curves) {
        let samples = first_four(curve);
        let mut names: Vec<_> = COMPARED.iter().map(|model| model.name()).collect();
        names.extend(["argmax", "combined"]);
        for model in names {
            let row = |what, value| Row { what, model, size: None, value };
            rows.push(row(*share_of, share(curve, chosen(model, &samples))));
            rows.extend(distance(model, &samples, curve).map(|value| row(*error_of, value)));
        }
    }
    rows
}

/// Root mean square distance of a model's curve, relative to the maximum throughput.
fn distance(model: &str, samples: &Curve, curve: &Curve) -> Option<f64> {
    let all: Vec<f64> = match model {
        "argmax" => return None,
        "combined" => {
            let found = predict(samples, Options::default()).ok()?;
            curve.iter().map(|s| mbps(found.at(s.streams).throughput)).collect()
        }
        name => {
            let best = best_fitted(named(name), samples).ok()?;
            curve.iter().map(|s| best.curve.at(s.streams).map(mbps)).collect::<Option<_>>()?
        }
    };
    let max = curve.iter().map(|s| mbps(s.throughput)).fold(0.0, f64::max);
    let squares = curve.iter().zip(all).map(|(s, found)| (mbps(s.throughput) - found).powi(2));
    Some((squares.sum::<f64>() / curve.len() as f64).sqrt() / max)
}

/// The number of streams that a model chooses; none if it has no curve.
fn chosen(model: &str, samples: &Curve) -> Option<NonZeroU32> {
    let largest = || samples.iter().rev().max_by_key(|s| s.throughput).map(|s| s.streams);
    match model {
        "combined" => predict(samples, Options::default()).ok().map(|found| found.streams),
        "argmax" => largest(),
        name => {
            let best = best_fitted(named(name), samples).ok()?;
            let max = Options::default().max_streams;
            // A curve that only rises selects the maximum.
            Some(best.curve.optimum(max).unwrap_or(max))
        }
    }
}

/// The throughput at this number of streams relative to the curve's maximum, interpolated linearly;
/// beyond the last point it is that of the last. No choice means one stream.
pub(crate) fn share(curve: &Curve, streams: Option<NonZeroU32>) -> f64 {
    let (first, last) = (curve[0].streams, curve[curve.len() - 1].streams);
    let streams = streams.unwrap_or(NonZeroU32::MIN).clamp(first, last);
    let best = curve.iter().map(|s| s.throughput).max().expect("not empty");
    mbps(interpolated(curve, streams).expect("not empty")) / mbps(best)
}

/// The samples at 1, 2, 4 and 8 streams.
pub(crate) fn first_four(curve: &Curve) -> Curve {
    curve.iter().filter(|s| [1, 2, 4, 8].contains(&s.streams.get())).copied().collect()
}

/// The samples that the sampler takes with its default threshold, as far as the curve has them.
pub(crate) fn doubled(curve: &Curve) -> Curve {
    let mut doubling = Doubling::new(DoublingOptions::default());
    while let Some(next) = doubling.next() {
        let Some(sample) = curve.iter().find(|s| s.streams == next) else { break };
        doubling.on_sample(*sample);
    }
    doubling.samples().to_vec()
}

fn named(name: &str) -> Model {
    ALL.into_iter().find(|model| model.name() == name).expect("a model")
}

pub(crate) fn mbps(rate: DataRate) -> f64 {
    rate.as_bps() as f64 / 1e6
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
