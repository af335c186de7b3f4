//! The plot of `predict --plot`.

use std::num::NonZeroU32;

use packtrain_plan::streams::{Prediction, Sample};
use packtrain_reproduce::plot::{Axis, Figure, Panel, Series, Style};
use packtrain_units::DataRate;

/// The models to draw if they are valid. Each is of a different kind.
const DRAWN_MODELS: [&str; 5] = ["dinda", "break", "logarithmic", "newton", "full-second-order"];

/// Curves end at this multiple of the largest number of streams that was measured or recommended.
const CURVE_END_FACTOR: u32 = 2;

/// Measurements, models, and the answer with its interval, over the number of streams.
pub(super) fn figure(prediction: &Prediction, samples: &[Sample], max: NonZeroU32) -> Figure {
    let measured = samples.iter().map(|s| s.streams.get()).max().unwrap_or(1);
    let end = measured.max(prediction.streams.get()).saturating_mul(CURVE_END_FACTOR);
    let shown = grid(end.min(max.get().max(measured)));
    let most = samples.iter().map(|s| s.throughput).chain([prediction.throughput]).max();
    let unit = Unit::of(most.unwrap_or(DataRate::ZERO));
    let curve = |at: &dyn Fn(NonZeroU32) -> Option<DataRate>| -> Vec<(f64, f64)> {
        let point = |n: &NonZeroU32| Some((f64::from(n.get()), unit.value(at(*n)?)));
        // A curve far above all measurements would compress the others, so it is cut.
        let high = unit.value(most.unwrap_or(DataRate::ZERO)) * 1.5;
        shown.iter().filter_map(point).filter(|(_, y)| *y <= high).collect()
    };
    let series = |name: &str, style, colour, points| Series {
        name: name.to_owned(),
        style,
        points,
        error: Vec::new(),
        colour,
    };
    let marks = samples.iter().map(|s| (f64::from(s.streams.get()), unit.value(s.throughput)));
    let answer = |n| Some(prediction.at(n));
    let mut all = vec![
        series("measured", Style::Marks, 0, marks.collect()),
        series("combined", Style::Line, 1, curve(&|n| Some(answer(n)?.throughput))),
        series("four in five", Style::Dashes, 1, curve(&|n| Some(answer(n)?.interval.0))),
        series("", Style::Dashes, 1, curve(&|n| Some(answer(n)?.interval.1))),
    ];
    for (index, name) in DRAWN_MODELS.iter().enumerate() {
        let model = prediction.models.iter().find(|m| m.name == *name && m.invalid.is_none());
        if let Some(model) = model {
            all.push(series(name, Style::Line, 2 + index, curve(&|n| model.at(n))));
        }
    }
    Figure {
        title: "Throughput of parallel streams".to_owned(),
        subtitle: format!("{} streams: {}", prediction.streams, prediction.throughput),
        panels: vec![Panel {
            x: Axis { label: "streams".to_owned(), log: true, zero: false },
            y: Axis { label: format!("throughput ({})", unit.name), log: false, zero: true },
            series: all,
            categories: Vec::new(),
        }],
    }
}

/// All numbers of streams up to 64, then in steps of a tenth.
fn grid(end: u32) -> Vec<NonZeroU32> {
    let next = |n: &u32| Some((n + (n / 10).max(1)).min(u32::MAX / 2));
    let mut all: Vec<u32> = (1..=end.min(64)).collect();
    if end > 64 {
        all.extend(std::iter::successors(Some(65), next).take_while(|n| *n < end));
        all.push(end);
    }
    all.into_iter().filter_map(NonZeroU32::new).collect()
}

/// The unit of the throughput axis.
struct Unit {
    name: &'static str,
    bps: f64,
}

impl Unit {
    fn of(most: DataRate) -> Self {
        let all = [("Gbit/s", 1e9), ("Mbit/s", 1e6), ("kbit/s", 1e3)];
        let fits = all.into_iter().find(|(_, bps)| most.as_bps() as f64 >= *bps);
        let (name, bps) = fits.unwrap_or(("bit/s", 1.0));
        Self { name, bps }
    }

    fn value(&self, rate: DataRate) -> f64 {
        rate.as_bps() as f64 / self.bps
    }
}
