//! Tables of classifications, in Markdown and as CSV.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use packtrain_loss::{Cause, paper};

use crate::judge::{Judged, Method};

/// Lower limits of the bands of loss rates.
pub(crate) const BANDS: [f64; 6] =
    [0.0, paper::SUCCESS_FROM, paper::COMPLEXITY_FROM, 0.002, 0.01, 0.05];

const VERDICTS: [Cause; 5] =
    [Cause::Network, Cause::Cpu, Cause::Hybrid, Cause::Link, Cause::Inconclusive];

fn band(p: f64) -> usize {
    BANDS.iter().rposition(|from| p >= *from).unwrap_or(0)
}

fn band_name(i: usize) -> String {
    let end = BANDS.get(i + 1).map_or("100".to_owned(), |end| format!("{:.3}", end * 100.0));
    format!("{:.3} to {end} %", BANDS[i] * 100.0)
}

/// A share in per cent; a dash if `whole` is zero.
fn share(part: usize, whole: usize) -> String {
    match whole {
        0 => "-".to_owned(),
        whole => format!("{:.1}", 100.0 * part as f64 / whole as f64),
    }
}

fn count(of: &[&Judged], test: impl Fn(&Judged) -> bool) -> usize {
    of.iter().filter(|j| test(j)).count()
}

/// Whether `method` attributes the loss to the processor with enough probability that the sender does
/// not slow down.
fn acts(j: &Judged, method: Method) -> bool {
    j.classes.get(&method).is_some_and(|classes| classes.1 > paper::SURE)
}

fn is_class(j: &Judged, method: Method, cause: Cause) -> bool {
    j.classes.get(&method).is_some_and(|classes| classes.0 == cause)
}

/// How the paper's classifier was fitted, and whether its hypothesis of normality holds.
pub(crate) fn fit(fit: &BTreeMap<String, f64>) -> String {
    let mut text = String::from(
        "| cause | metric | training windows | mean | deviation | r squared | bins tested for normality | not rejected |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    for (cause, metric) in ["network", "cpu"]
        .iter()
        .flat_map(|cause| ["complexity", "success proportion"].map(|metric| (cause, metric)))
    {
        let of = |what: &str| fit.get(&format!("paper {cause} {metric} {what}")).copied();
        let whole = |what| of(what).map_or("-".to_owned(), |value| format!("{value:.0}"));
        let real = |what| of(what).map_or("-".to_owned(), |value| format!("{value:.4}"));
        let _ = writeln!(
            text,
            "| {cause} | {metric} | {} | {} | {} | {} | {} | {} |",
            whole("windows"),
            real("mean"),
            real("deviation"),
            real("r squared"),
            whole("bins tested for normality"),
            whole("bins where normality is not rejected"),
        );
    }
    text + "\n"
}

/// The range in which the paper claims its classifier: from its minimum loss rate to 5 %.
pub(crate) fn conditions(all: &[&Judged]) -> String {
    let mut text = String::from(
        "| truth | metric | windows | classifier | right | wrong | inconclusive | processor, > 95 % |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    let metrics = [
        ("complexity", paper::COMPLEXITY_FROM, 0.05),
        ("success", paper::SUCCESS_FROM, paper::COMPLEXITY_FROM),
    ];
    for (truth, (metric, from, to)) in
        [Cause::Network, Cause::Cpu].iter().flat_map(|t| metrics.map(|m| (*t, m)))
    {
        let of: Vec<&Judged> = all
            .iter()
            .copied()
            .filter(|j| j.truth == truth && j.loss_rate >= from && j.loss_rate < to)
            .collect();
        for method in Method::ALL {
            let right = count(&of, |j| is_class(j, method, truth));
            let unsure = count(&of, |j| is_class(j, method, Cause::Inconclusive));
            let _ = writeln!(
                text,
                "| {truth} | {metric} | {} | {} | {} | {} | {} | {} |",
                of.len(),
                method.name(),
                share(right, of.len()),
                share(of.len() - right - unsure, of.len()),
                share(unsure, of.len()),
                share(count(&of, |j| acts(j, method)), of.len()),
            );
        }
    }
    text + "\n"
}

/// Classes in per cent by band of loss rates, for losses of the network and of the processor.
pub(crate) fn bands(all: &[&Judged]) -> String {
    let mut text = String::from(
        "Verdicts in percent: network / processor / both / link / inconclusive.\n\n| loss | truth | windows |",
    );
    for method in Method::ALL {
        let _ = write!(text, " {} |", method.name());
    }
    text += "\n|---|---|---|---|---|---|---|\n";
    for i in 0..BANDS.len() {
        for truth in Cause::TRUE {
            let of: Vec<&Judged> = all
                .iter()
                .copied()
                .filter(|j| band(j.loss_rate) == i && j.truth == truth)
                .collect();
            if of.is_empty() {
                continue;
            }
            let _ = write!(text, "| {} | {truth} | {} |", band_name(i), of.len());
            for method in Method::ALL {
                let cells =
                    VERDICTS.map(|v| share(count(&of, |j| is_class(j, method, v)), of.len()));
                let _ = write!(text, " {} |", cells.join(" / "));
            }
            text += "\n";
        }
    }
    text + "\n"
}

/// For each family the share of correct classes, and of path losses attributed to the processor.
pub(crate) fn families(all: &[&Judged]) -> String {
    let mut text = String::from(
        "Right (the cause, in percent), and *called the processor's with more than 95 %* though at least half was lost \
         on the path (number of such windows).\n\n| family | truth | windows |",
    );
    for method in Method::ALL {
        let _ = write!(text, " {} |", method.name());
    }
    text += "\n|---|---|---|---|---|---|---|\n";
    let mut families: BTreeMap<(Cause, &str), Vec<&Judged>> = BTreeMap::new();
    for j in all {
        families.entry((j.truth, &j.family)).or_default().push(j);
    }
    let mut totals: BTreeMap<Method, usize> = BTreeMap::new();
    for ((truth, family), of) in &families {
        let _ = write!(text, "| {family} | {truth} | {} |", of.len());
        for method in Method::ALL {
            let right = count(of, |j| is_class(j, method, *truth));
            let wrong = count(of, |j| j.elsewhere && acts(j, method));
            *totals.entry(method).or_default() += wrong;
            let elsewhere = of.iter().any(|j| j.elsewhere);
            let _ = match elsewhere {
                true => write!(text, " {}, *{wrong}* |", share(right, of.len())),
                false => write!(text, " {} |", share(right, of.len())),
            };
        }
        text += "\n";
    }
    let elsewhere = count(all, |j| j.elsewhere);
    let _ = write!(text, "| **all** | mostly the path's | {elsewhere} |");
    for method in Method::ALL {
        let wrong = totals.get(&method).copied().unwrap_or(0);
        let _ = write!(text, " *{wrong}* = {} % |", share_fine(wrong, elsewhere));
    }
    text + "\n\n"
}

fn share_fine(part: usize, whole: usize) -> String {
    if whole == 0 { "-".to_owned() } else { format!("{:.2}", 100.0 * part as f64 / whole as f64) }
}

/// Heading of the rows of [`summary`].
pub(crate) const SUMMARY: &str = "\
| set | packets | lost by the network, by the processor | classifier | network right | network called the processor's, > 95 % | \
processor right | mostly the path's, called the processor's, > 95 % |\n|---|---|---|---|---|---|---|---|\n";

/// Four rows for a set.
pub(crate) fn summary(set: &str, packets: usize, all: &[&Judged]) -> String {
    let of = |truth| -> Vec<&Judged> { all.iter().copied().filter(|j| j.truth == truth).collect() };
    let (network, cpu) = (of(Cause::Network), of(Cause::Cpu));
    let elsewhere: Vec<&Judged> = all.iter().copied().filter(|j| j.elsewhere).collect();
    let mut text = String::new();
    for method in Method::ALL {
        let right =
            |of: &[&Judged], truth| share(count(of, |j| is_class(j, method, truth)), of.len());
        let blamed = |of: &[&Judged]| share_fine(count(of, |j| acts(j, method)), of.len());
        let _ = writeln!(
            text,
            "| {set} | {packets} | {}, {} | {} | {} | {} | {} | {} |",
            network.len(),
            cpu.len(),
            method.name(),
            right(&network, Cause::Network),
            blamed(&network),
            right(&cpu, Cause::Cpu),
            blamed(&elsewhere),
        );
    }
    text
}

/// The paper's Table 2.
pub(crate) fn table2(all: &[&Judged]) -> String {
    let mut text = String::from(
        "| metric | windows | classifier | P(Net given Net) | P(CPU given Net) | of these > 95 % | 50 to 50, or inconclusive |\n\
         |---|---|---|---|---|---|---|\n",
    );
    let metrics = [
        ("complexity, 0.05 to 5 %", paper::COMPLEXITY_FROM, 0.05),
        ("success proportion, 0.008 to 0.05 %", paper::SUCCESS_FROM, paper::COMPLEXITY_FROM),
    ];
    for (metric, from, to) in metrics {
        let of: Vec<&Judged> =
            all.iter().copied().filter(|j| j.loss_rate >= from && j.loss_rate < to).collect();
        for method in [Method::Paper, Method::Pattern, Method::Delay] {
            let _ = writeln!(
                text,
                "| {metric} | {} | {} | {} | {} | {} | {} |",
                of.len(),
                method.name(),
                share_fine(count(&of, |j| is_class(j, method, Cause::Network)), of.len()),
                share_fine(count(&of, |j| is_class(j, method, Cause::Cpu)), of.len()),
                share_fine(count(&of, |j| acts(j, method)), of.len()),
                share_fine(count(&of, |j| is_class(j, method, Cause::Inconclusive)), of.len()),
            );
        }
    }
    text + "\n"
}

/// All counts.
pub(crate) fn csv(all: &[Judged]) -> String {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for j in all {
        for (method, classes) in &j.classes {
            let band = BANDS[band(j.loss_rate)];
            let sure = u8::from(classes.1 > paper::SURE);
            let key = format!(
                "{},{},{},{},{band},{},{},{sure}",
                j.set,
                j.packets,
                j.truth,
                j.family,
                method.name().replace(',', ""),
                classes.0
            );
            *counts.entry(key).or_default() += 1;
        }
    }
    let mut text =
        String::from("set,packets,truth,family,loss_from,classifier,verdict,cpu_over_95,windows\n");
    for (key, count) in counts {
        let _ = writeln!(text, "{key},{count}");
    }
    text
}
