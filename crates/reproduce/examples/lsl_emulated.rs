//! Tables and plots of measurements with real depots on the emulator: `experiments/lsl-emulated-*`.
//!
//!     lsl_emulated gain experiments/lsl-emulated-gain
//!     lsl_emulated ucsb experiments/lsl-emulated-ucsb
//!
//! Each reads the CSV files of `measure.py` there, and writes `plot.svg` and the table in the
//! README.md there, between two markers.
#![allow(clippy::print_stdout)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use packtrain_reproduce::plot::{Axis, Figure, Panel, Series, Style};

type Failure = Box<dyn std::error::Error>;

/// The markers of the generated part of a README.md.
const BEGIN: &str = "<!-- numbers: written by the example lsl_emulated -->";
const END: &str = "<!-- end of numbers -->";

fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let [what, folder] = words[..] else { return Err("say gain or ucsb, and its folder".into()) };
    let folder = Path::new(folder);
    let (table, figure) = match what {
        "gain" => gain(folder)?,
        "ucsb" => ucsb(folder)?,
        other => return Err(format!("no experiment is called {other}").into()),
    };
    figure.write(&folder.join("plot.svg"))?;
    println!("{table}");
    splice(&folder.join("README.md"), &table)
}

/// The rows of a CSV file without its heading.
fn rows(file: &Path) -> Result<Vec<Vec<String>>, Failure> {
    let text = std::fs::read_to_string(file).map_err(|e| format!("{}: {e}", file.display()))?;
    Ok(text.lines().skip(1).map(|line| line.split(',').map(str::to_owned).collect()).collect())
}

fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    if values.len() % 2 == 1 { values[half] } else { f64::midpoint(values[half - 1], values[half]) }
}

fn series(name: &str, style: Style, colour: usize, points: Vec<(f64, f64)>) -> Series {
    Series { name: name.to_owned(), style, points, error: Vec::new(), colour }
}

fn axis(label: &str, log: bool, zero: bool) -> Axis {
    Axis { label: label.to_owned(), log, zero }
}

/// The throughput of k equal segments as a function of k, for each congestion control in its own
/// region.
fn theory(cc: &str, k: f64) -> f64 {
    match cc {
        "reno" => k.powf(1.5),
        "cubic" => k,
        _ => 1.0,
    }
}

fn gain(folder: &Path) -> Result<(String, Figure), Failure> {
    let mut table = "| | segments | Mbit/s, each run | median | gain | theory | share |\n\
                     |---|---|---|---|---|---|---|\n"
        .to_owned();
    let mut panels = Vec::new();
    for set in ["lossy", "far", "long", "full", "clean"] {
        let mut groups: BTreeMap<[String; 4], BTreeMap<u32, Vec<f64>>> = BTreeMap::new();
        for row in rows(&folder.join(format!("{set}.csv")))? {
            let key = [&row[0], &row[1], &row[2], &row[3]].map(Clone::clone);
            groups
                .entry(key)
                .or_default()
                .entry(row[4].parse()?)
                .or_default()
                .push(row[6].parse()?);
        }
        for ([cc, rtt, loss, rate], runs) in groups {
            let alone = median(&runs[&1]);
            let limited = set == "full" || set == "clean";
            let expected = |k: u32| if limited { 1.0 } else { theory(&cc, f64::from(k)) };
            let name = format!("{cc}, {rtt} ms, loss {loss}, {rate}");
            for (k, runs) in &runs {
                let (own, theory) = (median(runs) / alone, expected(*k));
                let each: Vec<String> = runs.iter().map(|rate| format!("{rate:.1}")).collect();
                table.push_str(&format!(
                    "| {name} | {k} | {} | {:.1} | {own:.2} | {theory:.2} | {:.0} % |\n",
                    each.join(", "),
                    median(runs),
                    100.0 * own / theory
                ));
            }
            if limited {
                continue;
            }
            let point = |k: &u32, y: f64| (f64::from(*k), y);
            let own = runs.iter().map(|(k, runs)| point(k, median(runs) / alone)).collect();
            let law: Vec<_> = runs.keys().map(|k| point(k, expected(*k))).collect();
            let most = law.iter().map(|(k, y)| (*k, 0.8 * y)).collect();
            panels.push(Panel {
                x: axis("segments", false, false),
                y: axis(&format!("gain, {cc}, {rtt} ms"), false, true),
                series: vec![
                    series("measured", Style::Marked, 0, own),
                    series("theory", Style::Dashes, 1, law),
                    series("80 % of it", Style::Dashes, 2, most),
                ],
                categories: Vec::new(),
            });
        }
    }
    let title = "What depots gain".to_owned();
    let subtitle = "kernel TCP, real processes, emulated; medians".to_owned();
    Ok((table.trim_end().to_owned(), Figure { title, subtitle, panels }))
}

/// The mean of some times, and its standard error.
fn mean(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0).max(1.0);
    (mean, (variance / n).sqrt())
}

/// By path, congestion control, megabytes and route.
type Times = BTreeMap<(String, String, u32, String), Vec<f64>>;

fn ucsb(folder: &Path) -> Result<(String, Figure), Failure> {
    let mut times = Times::new();
    for row in rows(&folder.join("sizes.csv"))? {
        let key = (row[0].clone(), row[1].clone(), row[3].parse()?, row[4].clone());
        times.entry(key).or_default().push(row[5].parse()?);
    }
    let mut table =
        "| path | MB | reno direct, s | by depot | gain | cubic direct, s | by depot | gain |\n\
                     |---|---|---|---|---|---|---|---|\n"
            .to_owned();
    let mut panels = Vec::new();
    for path in ["uf", "uiuc"] {
        let all: BTreeSet<u32> =
            times.keys().filter(|key| key.0 == path).map(|key| key.2).collect();
        let value = |cc: &str, size: u32, way: &str| {
            let key = (path.to_owned(), cc.to_owned(), size, way.to_owned());
            mean(times.get(&key).map_or(&[], Vec::as_slice))
        };
        for size in &all {
            table.push_str(&format!("| {path} | {size} "));
            for cc in ["reno", "cubic"] {
                let (direct, depot) = (value(cc, *size, "direct"), value(cc, *size, "depot"));
                let gain = direct.0 / depot.0;
                let error = gain * (direct.1 / direct.0).hypot(depot.1 / depot.0);
                let cells = format!("| {:.2} | {:.2} | {gain:.2} ± {error:.2} ", direct.0, depot.0);
                table.push_str(&cells);
            }
            table.push_str("|\n");
        }
        let ways = [("reno", "direct"), ("reno", "depot"), ("cubic", "direct"), ("cubic", "depot")];
        let curves = ways.iter().enumerate().map(|(colour, (cc, way))| {
            let rate = |size: &u32| 8.0 * f64::from(*size) / value(cc, *size, way).0;
            let points = all.iter().map(|size| (f64::from(*size), rate(size))).collect();
            series(&format!("{cc}, {way}"), Style::Marked, colour, points)
        });
        panels.push(Panel {
            x: axis("MB", true, false),
            y: axis(&format!("{path}, by mean time (Mbit/s)"), false, true),
            series: curves.collect(),
            categories: Vec::new(),
        });
    }
    let trace = rows(&folder.join("trace.csv"))?;
    for path in ["uf", "uiuc"] {
        let mut curves: Vec<(String, Vec<(f64, f64)>)> = Vec::new();
        for row in trace.iter().filter(|row| row[0] == path && row[1] == "reno") {
            let point = (row[3].parse()?, row[4].parse::<f64>()? / 1e6);
            match curves.last_mut().filter(|(name, _)| *name == row[2]) {
                Some((_, points)) => points.push(point),
                None => curves.push((row[2].clone(), vec![point])),
            }
        }
        let curves = curves.into_iter().enumerate();
        panels.push(Panel {
            x: axis("time (s)", false, true),
            y: axis(&format!("{path}, reno, acknowledged (MB)"), false, true),
            series: curves
                .map(|(c, (name, points))| series(&name, Style::Line, c, points))
                .collect(),
            categories: Vec::new(),
        });
    }
    let title = "UCSB to UF by Houston and to UIUC by Denver".to_owned();
    let subtitle = "kernel TCP, real processes, emulated".to_owned();
    Ok((table.trim_end().to_owned(), Figure { title, subtitle, panels }))
}

/// Inserts the table between the markers of a README.md.
fn splice(path: &Path, text: &str) -> Result<(), Failure> {
    let old = std::fs::read_to_string(path)?;
    let (Some(begin), Some(end)) = (old.find(BEGIN), old.find(END)) else {
        return Err(format!("{}: the two remarks are not there", path.display()).into());
    };
    let new = format!("{}\n{text}\n{}", &old[..begin + BEGIN.len()], &old[end..]);
    Ok(std::fs::write(path, new)?)
}
