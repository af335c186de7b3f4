//! Tables and plots.

use std::num::NonZeroU32;

use packtrain_plan::streams::{Model, Options, best_fitted, predict};
use packtrain_reproduce::plot::{Axis, Figure, Panel, Series, Style};

use crate::study::{COMPARED, Curve, Row, WAYS, first_four, mbps};

/// The curves shown in the plot of the doubling sampler.
const SHOWN: [usize; 2] = [300, 700];

/// A row per model, a column per number.
pub(crate) fn table(rows: &[Row]) -> String {
    let mut columns: Vec<String> = Vec::new();
    let mut models: Vec<&str> = Vec::new();
    let column = |row: &Row| {
        let size = row.size.map_or_else(String::new, |size| format!(", m = {size}"));
        format!("{}{size}", row.what)
    };
    for row in rows {
        if !columns.contains(&column(row)) {
            columns.push(column(row));
        }
        if !models.contains(&row.model) {
            models.push(row.model);
        }
    }
    let mut text =
        format!("| | {} |\n|---|{}\n", columns.join(" | "), "---|".repeat(columns.len()));
    for model in models {
        let cells = columns.iter().map(|wanted| {
            let own = |row: &&Row| row.model == model && column(row) == *wanted;
            rows.iter().find(own).map_or_else(String::new, |row| shown(row.value))
        });
        text.push_str(&format!("| {model} | {} |\n", cells.collect::<Vec<_>>().join(" | ")));
    }
    text.trim_end().to_owned()
}

fn shown(value: f64) -> String {
    if value.fract() == 0.0 && value.abs() >= 2.0 {
        format!("{value}")
    } else {
        format!("{value:.3}")
    }
}

pub(crate) fn predictability(rows: &[Row]) -> Figure {
    Figure {
        title: "How many combinations of samples a model can use".to_owned(),
        subtitle: "curves of LONI, random sets of samples".to_owned(),
        panels: vec![
            over_size(rows, "effectiveness", "effective combinations"),
            over_size(rows, "predictability", "predictability"),
        ],
    }
}

pub(crate) fn errors(rows: &[Row]) -> Figure {
    let what = "left out, median error in per cent";
    let left_out: Vec<&Row> = rows.iter().filter(|row| row.what == what).collect();
    let bars = Series {
        name: "median error at a point left out".to_owned(),
        style: Style::Bars,
        points: (0..).map(f64::from).zip(left_out.iter().map(|row| row.value)).collect(),
        error: Vec::new(),
        colour: 0,
    };
    let panel = Panel {
        x: Axis::default(),
        y: Axis { label: "error (%)".to_owned(), log: false, zero: true },
        series: vec![bars],
        categories: left_out.iter().map(|row| short(row.model)).collect(),
    };
    Figure {
        title: "How far models are from the curve".to_owned(),
        subtitle: "curves of LONI; the best combination's error, by the greatest throughput"
            .to_owned(),
        panels: vec![
            over_size(rows, "error on the population", "error, all points"),
            over_size(rows, "error on the sample", "error, the samples"),
            panel,
        ],
    }
}

fn over_size(rows: &[Row], what: &str, label: &str) -> Panel {
    let series = COMPARED.iter().enumerate().map(|(colour, model)| {
        let own = rows.iter().filter(|row| row.what == what && row.model == model.name());
        let points = own.filter_map(|row| Some((row.size? as f64, row.value))).collect();
        let name = model.name().to_owned();
        Series { name, style: Style::Marked, points, error: Vec::new(), colour }
    });
    Panel {
        x: Axis { label: "samples in a set".to_owned(), log: false, zero: false },
        y: Axis { label: label.to_owned(), log: false, zero: true },
        series: series.collect(),
        categories: Vec::new(),
    }
}

pub(crate) fn doubling(rows: &[Row], curves: &[Curve]) -> Figure {
    let ways = ["4 samples", "doubling", "all samples"];
    let mut models: Vec<_> = COMPARED.iter().map(|model| model.name()).collect();
    models.extend(["argmax", "combined"]);
    let series = ways.iter().enumerate().map(|(colour, way)| {
        let value = |model: &&str| {
            let own = |row: &&Row| row.model == *model && row.what.ends_with(way);
            rows.iter().find(own).map_or(0.0, |row| row.value)
        };
        let points = (0..).map(f64::from).zip(models.iter().map(value)).collect();
        Series { name: (*way).to_owned(), style: Style::Bars, points, error: Vec::new(), colour }
    });
    let mut panels = vec![Panel {
        x: Axis::default(),
        y: Axis { label: "share of the best".to_owned(), log: false, zero: true },
        series: series.collect(),
        categories: models.iter().map(|model| short(model)).collect(),
    }];
    panels.extend(SHOWN.iter().filter_map(|index| curves.get(*index)).map(one_curve));
    Figure {
        title: "Numbers of streams chosen, and what they get".to_owned(),
        subtitle: "LONI: the mean over all curves; two curves with models fitted to 1, 2, 4 and 8"
            .to_owned(),
        panels,
    }
}

/// The measured curves of the emulator, and the predictions from four samples of each.
pub(crate) fn emulated(curves: &[Curve]) -> Figure {
    let panels = curves.iter().zip(WAYS).map(|(curve, (way, ..))| {
        let mut panel = one_curve(curve);
        panel.y.label = format!("{} buffers (Mbit/s)", way.replace(',', ", "));
        panel
    });
    Figure {
        title: "TCP streams over 155 ms".to_owned(),
        subtitle: "100 Mbit/s, loss 1e-4, emulated; models fitted to 1, 2, 4 and 8".to_owned(),
        panels: panels.collect(),
    }
}

/// One curve, and the predictions from four of its samples.
fn one_curve(curve: &Curve) -> Panel {
    let samples = first_four(curve);
    let last = curve[curve.len() - 1].streams.get();
    let most = curve.iter().map(|s| mbps(s.throughput)).fold(0.0, f64::max);
    let numbers = || (1..=last).filter_map(NonZeroU32::new);
    let point = |n: NonZeroU32, y: f64| (f64::from(n.get()), y);
    let series = |name: &str, style, colour, points: Vec<(f64, f64)>| Series {
        name: name.to_owned(),
        style,
        points: points.into_iter().filter(|(_, y)| *y < 1.4 * most).collect(),
        error: Vec::new(),
        colour,
    };
    let real = curve.iter().map(|s| point(s.streams, mbps(s.throughput))).collect();
    let found = predict(&samples, Options::default()).expect("samples");
    let combined = numbers().map(|n| point(n, mbps(found.at(n).throughput))).collect();
    let mut all = vec![
        series("measured", Style::Marks, 0, real),
        series("combined", Style::Line, 1, combined),
    ];
    let models = [Model::Dinda, Model::Newton, Model::FullSecondOrder];
    for (index, model) in models.into_iter().enumerate() {
        if let Ok(best) = best_fitted(model, &samples) {
            let points = numbers().filter_map(|n| Some(point(n, mbps(best.curve.at(n)?))));
            all.push(series(model.name(), Style::Dashes, 2 + index, points.collect()));
        }
    }
    Panel {
        x: Axis { label: "streams".to_owned(), log: true, zero: false },
        y: Axis { label: "throughput (Mbit/s)".to_owned(), log: false, zero: true },
        series: all,
        categories: Vec::new(),
    }
}

fn short(model: &str) -> String {
    model.replace("averaging-arithmetic", "averaging").replace("full-second-order", "full 2nd")
}
