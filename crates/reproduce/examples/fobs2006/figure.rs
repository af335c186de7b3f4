//! The plots.

use std::collections::BTreeMap;

use packtrain_loss::{Cause, Model, paper};
use packtrain_reproduce::plot::{Axis, Figure, Panel, Series, Style};

use crate::judge::{Judged, Method};

/// Number of bins of loss rates for the means, and of success proportions.
const RATE_BINS: usize = 24;
const SUCCESS_BINS: usize = 20;

fn axis(label: &str, log: bool) -> Axis {
    Axis { label: label.to_owned(), log, zero: false }
}

fn series(name: &str, style: Style, points: Vec<(f64, f64)>, colour: usize) -> Series {
    Series { name: name.to_owned(), style, points, error: Vec::new(), colour }
}

/// The paper's figures 5 and 6, the losses that were attributed to the processor, and the
/// calibration of the probabilities.
pub(crate) fn classifier(judged: &[Judged], model: &Model) -> Figure {
    let whole: Vec<&Judged> = judged.iter().filter(|j| j.packets == paper::WINDOW).collect();
    Figure {
        title: "Why packets died: the FOBS paper's classifier and ours".to_owned(),
        subtitle: "windows of 97,656 packets".to_owned(),
        panels: vec![
            complexity(&whole, model),
            success(&whole),
            blamed(&whole),
            reliability(judged),
        ],
    }
}

/// Figure 6: means of the complexity with 95 % intervals, and the fits.
fn complexity(all: &[&Judged], model: &Model) -> Panel {
    let mut drawn = Vec::new();
    for (colour, (truth, name)) in
        [(Cause::Network, "network"), (Cause::Cpu, "processor")].into_iter().enumerate()
    {
        let mut bins: BTreeMap<usize, Vec<(f64, f64)>> = BTreeMap::new();
        let within = |j: &&&Judged| j.paper_conditions && j.truth == truth && j.loss_rate >= 8e-5;
        for j in all.iter().filter(within) {
            let place = (j.loss_rate / 8e-5).ln() / (0.06_f64 / 8e-5).ln();
            let bin = (place * RATE_BINS as f64) as usize;
            bins.entry(bin).or_default().push((j.loss_rate, j.complexity));
        }
        let (mut points, mut error) = (Vec::new(), Vec::new());
        for of in bins.values() {
            let n = of.len() as f64;
            let (x, y) = of.iter().fold((0.0, 0.0), |(x, y), p| (x + p.0 / n, y + p.1 / n));
            let variance = of.iter().map(|p| (p.1 - y).powi(2)).sum::<f64>() / (n - 1.0).max(1.0);
            points.push((x, y));
            error.push(1.96 * (variance / n).sqrt());
        }
        let means = series(&format!("{name}: mean, 95 %"), Style::Marks, points, colour);
        drawn.push(Series { error, ..means });
    }
    if let Some((size, _)) = model.size(paper::WINDOW) {
        let fits = [&size.paper.complexity.network, &size.paper.complexity.cpu];
        for (colour, (fit, name)) in
            fits.into_iter().zip(["network: fit", "processor: fit"]).enumerate()
        {
            let points = (0..=60).map(|i| {
                let p = 8e-5 * (0.06_f64 / 8e-5).powf(f64::from(i) / 60.0);
                (p, fit.mean.at(p))
            });
            drawn.push(series(name, Style::Line, points.collect(), colour));
        }
    }
    let x = axis("loss rate of the window (the paper's conditions)", true);
    Panel { x, y: axis("complexity C1, n = 17", false), series: drawn, categories: Vec::new() }
}

/// Figure 5: distribution of success proportions below 0.05 % loss.
fn success(all: &[&Judged]) -> Panel {
    let mut drawn = Vec::new();
    for (colour, (truth, name)) in
        [(Cause::Network, "network"), (Cause::Cpu, "processor")].into_iter().enumerate()
    {
        let within = |j: &&&Judged| {
            j.paper_conditions
                && j.truth == truth
                && (paper::SUCCESS_FROM..paper::COMPLEXITY_FROM).contains(&j.loss_rate)
        };
        let mut bins = [0.0; SUCCESS_BINS];
        let of: Vec<_> = all.iter().filter(within).collect();
        for j in &of {
            bins[((j.success * SUCCESS_BINS as f64) as usize).min(SUCCESS_BINS - 1)] +=
                100.0 / of.len() as f64;
        }
        let points = bins.iter().enumerate().map(|(i, n)| (i as f64, *n)).collect();
        drawn.push(series(&format!("{name} ({})", of.len()), Style::Bars, points, colour));
    }
    let name = |i: usize| format!("{:.2}", i as f64 / SUCCESS_BINS as f64);
    Panel {
        x: axis("success proportion, loss from 0.008 to 0.05 % (the paper's conditions)", false),
        y: Axis { zero: true, ..axis("windows, %", false) },
        series: drawn,
        categories: (0..SUCCESS_BINS).map(name).collect(),
    }
}

/// By family: the losses on the path that were attributed to the processor with more than 95 %.
fn blamed(all: &[&Judged]) -> Panel {
    let mut families: BTreeMap<String, Vec<&Judged>> = BTreeMap::new();
    for j in all.iter().filter(|j| j.elsewhere) {
        families.entry(j.family.clone()).or_default().push(j);
    }
    let of_who = |(colour, method): (usize, Method)| {
        let points = families.values().enumerate().map(|(i, of)| {
            let n = of.iter().filter(|j| j.classes.get(&method).is_some_and(|s| s.1 > paper::SURE));
            (i as f64, 100.0 * n.count() as f64 / of.len() as f64)
        });
        series(method.name(), Style::Bars, points.collect(), colour)
    };
    let method = [Method::Paper, Method::Pattern, Method::Delay];
    Panel {
        x: axis("family, losses mostly the path's", false),
        y: Axis { zero: true, ..axis("called CPU > 95 %, %", false) },
        series: method.into_iter().enumerate().map(of_who).collect(),
        categories: families.keys().map(|name| short(name)).collect(),
    }
}

/// Names short enough for the labels below the bars.
fn short(name: &str) -> String {
    name.replace("hybrid", "hy").replace("real-", "r-").replace("link-", "l-").replace("net-", "")
}

/// Predicted probability of the processor against its actual frequency.
fn reliability(all: &[Judged]) -> Panel {
    let mut drawn = vec![series("as said", Style::Dashes, vec![(0.0, 0.0), (1.0, 1.0)], 7)];
    for (colour, method) in [Method::Paper, Method::Pattern, Method::Delay].into_iter().enumerate()
    {
        let mut bins = [(0.0, 0.0, 0.0); 10];
        for j in all.iter().filter(|j| matches!(j.truth, Cause::Network | Cause::Cpu)) {
            let Some((_, p)) = j.classes.get(&method) else { continue };
            let bin = &mut bins[((p * 10.0) as usize).min(9)];
            *bin = (bin.0 + 1.0, bin.1 + p, bin.2 + f64::from(u8::from(j.truth == Cause::Cpu)));
        }
        let points = bins.iter().filter(|b| b.0 >= 5.0).map(|b| (b.1 / b.0, b.2 / b.0));
        drawn.push(series(method.name(), Style::Marked, points.collect(), colour));
    }
    Panel {
        x: axis("probability given to the processor (windows of network or processor)", false),
        y: Axis { zero: true, ..axis("how often it was", false) },
        series: drawn,
        categories: Vec::new(),
    }
}

/// Predicted probability of the processor against the loss rate, for losses of the network.
pub(crate) fn table2(judged: &[Judged]) -> Figure {
    let of = |(colour, method): (usize, Method)| {
        let points = judged
            .iter()
            .filter(|j| j.truth == Cause::Network && j.loss_rate >= 6e-5)
            .filter_map(|j| j.classes.get(&method).map(|classes| (j.loss_rate, classes.1)));
        series(method.name(), Style::Marks, points.collect(), colour)
    };
    let panel = Panel {
        x: axis("loss rate of the window", true),
        y: Axis { zero: true, ..axis("probability given to the processor", false) },
        series: [Method::Paper, Method::Pattern, Method::Delay]
            .into_iter()
            .enumerate()
            .map(of)
            .collect(),
        categories: Vec::new(),
    };
    Figure {
        title: "Contention for the network: what the classifiers say".to_owned(),
        subtitle: String::new(),
        panels: vec![panel],
    }
}

/// Throughput of the virtual sender by set and classifier, with the paper's numbers.
pub(crate) fn table1(rows: &[(String, String, f64)], sets: &[String]) -> Figure {
    let mut names: Vec<&str> = Vec::new();
    for (_, name, _) in rows {
        if !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    let of = |(colour, name): (usize, &&str)| {
        let points = rows.iter().filter(|row| row.1 == **name).map(|row| {
            let at = sets.iter().position(|set| *set == row.0).unwrap_or(0);
            (at as f64, row.2)
        });
        series(name, Style::Bars, points.collect(), colour)
    };
    let panel = Panel {
        x: axis("transfer, by its long-term loss rate", false),
        y: axis("throughput of the virtual sender, Mbit/s", true),
        series: names.iter().enumerate().map(of).collect(),
        categories: sets.to_vec(),
    };
    Figure {
        title: "Direct-execution simulation: a virtual sender of 10 Gbit/s".to_owned(),
        subtitle: "8 KiB packets, 100 ms".to_owned(),
        panels: vec![panel],
    }
}
