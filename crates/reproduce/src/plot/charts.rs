//! The figures of the command.

use packtrain_sim::file::Setting;
use packtrain_sim::outcome::{Outcome, Sample};
use packtrain_sim::results::{RunRow, value_of};
use packtrain_units::DataRate;

use super::ticks::short;
use super::{Axis, Figure, Panel, Series, Style};
use crate::Row;

/// Colours of the palette; curves beyond have another style.
const COLOURS: usize = 8;

/// Window, goodput and round trip of each flow over time.
pub fn curves(outcome: &Outcome, title: &str) -> Figure {
    let flows: Vec<usize> = (0..outcome.flows.len())
        .filter(|flow| outcome.samples.iter().any(|sample| sample.flow == *flow))
        .collect();
    let shown = &flows[..];
    // NaN is a gap in the curve.
    let cwnd = |s: &Sample| s.cwnd.map_or(f64::NAN, |bytes| bytes.get() as f64);
    let goodput = |s: &Sample| s.goodput.as_bps() as f64;
    // Sequence number over time, only for flows over depots.
    let acked = |s: &Sample| s.acked.map_or(f64::NAN, |bytes| bytes.get() as f64);
    let rtt = |s: &Sample| s.rtt.map_or(f64::NAN, |rtt| rtt.as_nanos() as f64 / 1e9);
    let mut panels = vec![
        panel(outcome, shown, "congestion window", BYTES, cwnd),
        panel(outcome, shown, "goodput", RATES, goodput),
        panel(outcome, shown, "round trip", TIMES, rtt),
    ];
    if outcome.sessions {
        panels.insert(0, panel(outcome, shown, "acknowledged", BYTES, acked));
    }
    panels.retain(|panel| panel.series.iter().any(|s| s.points.iter().any(|p| p.1 > 0.0)));
    Figure {
        title: title.to_owned(),
        subtitle: format!("{}, seed {}", outcome.scenario, outcome.seed),
        panels,
    }
}

type Unit = (f64, &'static str);
const BYTES: &[Unit] = &[(1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B")];
const RATES: &[Unit] = &[(1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s"), (1.0, "bit/s")];
const TIMES: &[Unit] = &[(1.0, "s"), (1e-3, "ms"), (1e-6, "µs")];

fn panel(
    outcome: &Outcome,
    flows: &[usize],
    what: &str,
    units: &[Unit],
    value: impl Fn(&Sample) -> f64,
) -> Panel {
    let most = outcome.samples.iter().map(&value).fold(0.0, f64::max);
    let (factor, unit) = unit(units, most);
    let series = flows.iter().enumerate().map(|(colour, &flow)| {
        let own = outcome.samples.iter().filter(|sample| sample.flow == flow);
        Series {
            name: format!("{} ({})", outcome.flows[flow].name, outcome.flows[flow].cc),
            style: if (colour / COLOURS).is_multiple_of(2) { Style::Line } else { Style::Dashes },
            // Before its first round trip a flow has no values.
            points: own
                .skip_while(|s| s.rtt.is_none() && s.goodput == DataRate::ZERO)
                .map(|s| (s.at.as_nanos() as f64 / 1e9, value(s) / factor))
                .collect(),
            error: Vec::new(),
            colour,
        }
    });
    // A flow that never has the value, such as the window of cross traffic, has no curve.
    let series = series.filter(|series| series.points.iter().any(|point| point.1.is_finite()));
    Panel {
        x: Axis { label: "time (s)".to_owned(), log: false, zero: true },
        y: Axis { label: format!("{what} ({unit})"), log: false, zero: true },
        series: series.collect(),
        categories: Vec::new(),
    }
}

fn unit(units: &[Unit], most: f64) -> Unit {
    let last = units.last().copied().unwrap_or((1.0, ""));
    units.iter().find(|(factor, _)| most >= *factor).copied().unwrap_or(last)
}

/// Goodput of each flow over an axis of a sweep: the first path of `paths`; the other paths change
/// with it. Without a path it is drawn over the runs. Other axes make separate curves; repetitions
/// give a mean with its standard deviation.
pub fn over_axis(rows: &[RunRow], paths: &[&str], title: &str) -> Figure {
    let axis = paths.first().copied();
    let values: Vec<Option<f64>> = rows
        .iter()
        .map(|row| axis.map_or(Some(row.run as f64), |axis| row.setting(axis)))
        .collect();
    let numeric = values.iter().all(Option::is_some);
    let mut categories: Vec<String> = Vec::new();
    let mut curves: Vec<Curve> = Vec::new();
    for (row, value) in rows.iter().zip(&values) {
        let own = |setting: &&Setting| Some(setting.path.as_str()) == axis;
        let name = row.settings.iter().find(own).map_or("", |setting| &setting.value);
        let x = match value.filter(|_| numeric) {
            Some(value) => value,
            None => position(&mut categories, name) as f64,
        };
        let rest = row.settings.iter().filter(|s| !paths.contains(&s.path.as_str()));
        let rest: Vec<_> = rest.map(|s| s.value.as_str()).collect();
        for flow in &row.flows {
            let mut name = flow.name.clone();
            if !rest.is_empty() {
                name = format!("{name}, {}", rest.join(", "));
            }
            let at = curves.iter().position(|curve| curve.name == name).unwrap_or_else(|| {
                curves.push(Curve { name, points: Vec::new() });
                curves.len() - 1
            });
            curves[at].points.push((x, flow.goodput_bps as f64));
        }
    }
    let categories = if numeric { Vec::new() } else { categories };
    figure_of(axis, rows, title, curves, categories)
}

struct Curve {
    name: String,
    points: Vec<(f64, f64)>,
}

fn position(names: &mut Vec<String>, name: &str) -> usize {
    names.iter().position(|known| known == name).unwrap_or_else(|| {
        names.push(name.to_owned());
        names.len() - 1
    })
}

fn figure_of(
    axis: Option<&str>,
    rows: &[RunRow],
    title: &str,
    curves: Vec<Curve>,
    categories: Vec<String>,
) -> Figure {
    let values = || curves.iter().flat_map(|curve| curve.points.iter());
    let most = values().map(|point| point.1).fold(0.0, f64::max);
    let least = values().map(|point| point.1).filter(|y| *y > 0.0).fold(f64::INFINITY, f64::min);
    let (factor, unit) = unit(RATES, most);
    let (low, high) = values()
        .fold((f64::INFINITY, 0.0f64), |(low, high), point| (low.min(point.0), high.max(point.0)));
    let setting = rows.iter().flat_map(|row| &row.settings).find(|s| Some(&*s.path) == axis);
    let text = setting.map_or("", |setting| &setting.value);
    let axis = axis.unwrap_or("run");
    let measure = match text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.') {
        _ if !categories.is_empty() || value_of(text) == text.parse().ok() => "",
        _ if packtrain_units::parse_rate(text).is_ok() => " (bit/s)",
        _ if packtrain_units::parse_duration(text).is_ok() => " (s)",
        _ if packtrain_units::parse_bytes(text).is_ok() => " (bytes)",
        "%" => " (share)",
        "bdp" => " (bdp)",
        _ => "",
    };
    let subtitle = format!("{} runs", rows.len());
    let series = curves.iter().enumerate().map(|(colour, curve)| {
        let (points, error) = means(&curve.points, factor);
        let style = match (categories.is_empty(), colour / COLOURS % 3) {
            (false, _) => Style::Bars,
            (true, 0) => Style::Marked,
            (true, 1) => Style::Dashes,
            (true, _) => Style::Line,
        };
        Series { name: curve.name.clone(), style, points, error, colour }
    });
    let log = categories.is_empty() && low > 0.0 && high / low >= 20.0;
    let panel = Panel {
        x: Axis { label: format!("{axis}{measure}"), log, zero: false },
        y: Axis {
            label: format!("goodput ({unit})"),
            log: categories.is_empty() && most / least >= 50.0,
            zero: true,
        },
        series: series.collect(),
        categories,
    };
    Figure { title: title.to_owned(), subtitle, panels: vec![panel] }
}

/// Mean and standard deviation of the points at each position, sorted by position.
fn means(points: &[(f64, f64)], factor: f64) -> (Vec<(f64, f64)>, Vec<f64>) {
    let mut sorted = points.to_vec();
    sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut means = Vec::new();
    let mut errors = Vec::new();
    for group in sorted.chunk_by(|a, b| a.0 == b.0) {
        let count = group.len() as f64;
        let mean = group.iter().map(|p| p.1).sum::<f64>() / count;
        let spread = group.iter().map(|p| (p.1 - mean).powi(2)).sum::<f64>();
        means.push((group[0].0, mean / factor));
        errors.push(if count > 1.0 { (spread / (count - 1.0)).sqrt() / factor } else { 0.0 });
    }
    if errors.iter().all(|error| *error == 0.0) {
        errors.clear();
    }
    (means, errors)
}

/// A paper's numbers, the tolerance around them, and the measured numbers.
pub(crate) fn comparison(title: &str, label: &str, rows: &[Row]) -> Figure {
    let shown: Vec<&Row> = rows.iter().filter(|row| row.ours.is_some()).collect();
    let numbers =
        || shown.iter().flat_map(|row| row.found.iter().map(|f| f.ours).chain([row.paper]));
    let most = numbers().fold(0.0, f64::max);
    let least = numbers().fold(f64::INFINITY, f64::min);
    let log = least > 0.0 && most / least > 30.0;
    let paper = shown.iter().enumerate().map(|(at, row)| (at as f64, row.paper));
    let mut series = vec![Series {
        name: "paper".to_owned(),
        style: Style::Marks,
        points: paper.collect(),
        error: shown.iter().map(|row| row.tolerance).collect(),
        colour: 6,
    }];
    for (at, row) in shown.iter().enumerate() {
        for found in &row.found {
            let name = found.variant.as_deref().unwrap_or("ours");
            let index = series.iter().position(|s| s.name == name).unwrap_or_else(|| {
                series.push(Series {
                    name: name.to_owned(),
                    style: Style::Marks,
                    points: Vec::new(),
                    error: Vec::new(),
                    colour: if found.variant.is_none() { 1 } else { series.len() - 1 },
                });
                series.len() - 1
            });
            series[index].points.push((at as f64 + 0.12 * index as f64, found.ours));
        }
    }
    let worst = shown
        .iter()
        .filter(|row| row.tolerance > 0.0)
        .filter_map(|row| Some((row.ours? - row.paper).abs() / row.tolerance))
        .fold(0.0, f64::max);
    Figure {
        title: title.to_owned(),
        subtitle: format!(
            "{} values; the bars are tolerances; the worst uses {} % of its own",
            shown.len(),
            short((worst * 100.0).round())
        ),
        panels: vec![Panel {
            x: Axis::default(),
            y: Axis { label: label.to_owned(), log, zero: !log },
            series,
            categories: shown.iter().map(|row| row.key.clone()).collect(),
        }],
    }
}
