//! The evaluation of a model: tables, and the plot of its reliability.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use packtrain_loss::train::{BANDS, FamilyTally, Judgement, Kind, Tally};
use packtrain_loss::{Cause, Model};
use packtrain_reproduce::plot::{Axis, Figure, Panel, Series, Style};

/// The verdicts, in the order of the tables' columns.
const VERDICTS: [Cause; 5] =
    [Cause::Network, Cause::Cpu, Cause::Hybrid, Cause::Link, Cause::Inconclusive];
/// Minimum windows of a bin in the plot.
const MIN_WINDOWS: u64 = 5;

/// The name of a kind of classifier in the tables.
fn shown(kind: Kind) -> &'static str {
    match kind {
        Kind::Paper => "the paper's classifier",
        Kind::Signature => "ours, signature alone",
        Kind::Delay => "ours, signature and delay",
        Kind::Counter => "ours, with the host's counter",
    }
}

/// The report, as Markdown.
pub(super) fn text(model: &Model, judgements: &BTreeMap<usize, Judgement>) -> String {
    let mut out = String::from("# How the model does on windows it has not seen\n\n");
    let from = &model.provenance;
    let _ = writeln!(
        out,
        "Fitted {} by {}, seed {}, words of {} packets. {}\n\nData (BLAKE3):\n",
        from.date, from.program, from.seed, from.word_length, from.notes
    );
    for (name, digest) in &from.data {
        let _ = writeln!(out, "- `{name}` {digest}");
    }
    out.push_str(
        "\nEach family and each row of truth counts windows; `inconclusive` is a column of its \
         own.\n\"Called the host's\" is the share of windows that lost mostly elsewhere and got \
         more than 95 % for\nthe host's processor: of the network's (hybrids that are mostly the \
         network's among them) the\ndangerous error.\n\n\
         ![Reliability](reliability.svg)\n",
    );
    for (size, judgement) in judgements {
        let _ = writeln!(out, "\n## Windows of {size} packets\n\n### How well the fits went\n");
        let fitted = model.sizes.iter().find(|entry| entry.packets == *size);
        for (what, value) in fitted.iter().flat_map(|entry| &entry.fit) {
            let _ = writeln!(out, "- {what}: {value:.5}");
        }
        summary(&mut out, judgement);
        for (kind, bands) in &judgement.bands {
            confusion(&mut out, *kind, bands);
        }
        for (kind, families) in &judgement.families {
            by_family(&mut out, *kind, families);
        }
    }
    out
}

/// One line per kind: the shares of right, wrong and inconclusive verdicts, and the dangerous
/// error.
fn summary(out: &mut String, judgement: &Judgement) {
    out.push_str(
        "\n### In short\n\n| | network right | cpu right | network inconclusive \
         | cpu inconclusive | network called the host's | worst family of these \
         | link called the host's |\n|---|---|---|---|---|---|---|---|\n",
    );
    for (kind, bands) in &judgement.bands {
        let share = |cause, verdict| {
            let sums = bands.iter().map(|band| band.of(cause, verdict));
            let (all, of) = sums.fold((0, 0), |sum, next| (sum.0 + next.0, sum.1 + next.1));
            percent(of, all)
        };
        let (link, families): (Vec<_>, Vec<_>) =
            judgement.families[kind].iter().partition(|(name, _)| name.starts_with("link "));
        let called = |families: &[(&String, &FamilyTally)]| {
            let sum = |of: fn(&FamilyTally) -> u64| families.iter().map(|(_, f)| of(f)).sum();
            percent(sum(|family| family.elsewhere_called_cpu), sum(|family| family.elsewhere))
        };
        let rate = |family: &FamilyTally| {
            family.elsewhere_called_cpu as f64 / family.elsewhere.max(1) as f64
        };
        let worst = families.iter().max_by(|a, b| rate(a.1).total_cmp(&rate(b.1)));
        let worst = worst.map_or_else(String::new, |(name, family)| {
            format!("{name} {}", percent(family.elsewhere_called_cpu, family.elsewhere))
        });
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} | {} | {} | {worst} | {} |",
            shown(*kind),
            share(Cause::Network, Cause::Network),
            share(Cause::Cpu, Cause::Cpu),
            share(Cause::Network, Cause::Inconclusive),
            share(Cause::Cpu, Cause::Inconclusive),
            called(&families),
            called(&link),
        );
    }
}

fn confusion(out: &mut String, kind: Kind, bands: &[Tally]) {
    let _ = writeln!(
        out,
        "\n### Confusion: {}\n\n| loss rate | truth | windows | network | cpu | hybrid | link \
         | inconclusive |\n|---|---|---|---|---|---|---|---|",
        shown(kind)
    );
    for (index, band) in bands.iter().enumerate() {
        let to = BANDS.get(index + 1).map_or_else(String::new, |to| format!(" to {to}"));
        for cause in Cause::TRUE {
            let (all, _) = band.of(cause, cause);
            if all == 0 {
                continue;
            }
            let _ = write!(out, "| {}{to} | {cause} | {all} |", BANDS[index]);
            for verdict in VERDICTS {
                let _ = write!(out, " {} |", band.of(cause, verdict).1);
            }
            out.push('\n');
        }
    }
}

fn by_family(out: &mut String, kind: Kind, families: &BTreeMap<String, FamilyTally>) {
    let _ = writeln!(
        out,
        "\n### By family: {}\n\n| truth and family | windows | network | cpu | hybrid | link \
         | inconclusive | called the host's |\n|---|---|---|---|---|---|---|---|",
        shown(kind)
    );
    for (name, family) in families {
        let _ = write!(out, "| {name} | {} |", family.windows);
        for verdict in VERDICTS {
            let _ = write!(out, " {} |", family.verdicts.get(&verdict).copied().unwrap_or(0));
        }
        let called = if family.elsewhere > 0 {
            format!(
                "{} of {} ({})",
                family.elsewhere_called_cpu,
                family.elsewhere,
                percent(family.elsewhere_called_cpu, family.elsewhere)
            )
        } else {
            String::new()
        };
        let _ = writeln!(out, " {called} |");
    }
}

fn percent(of: u64, all: u64) -> String {
    if all == 0 {
        return "-".to_owned();
    }
    format!("{:.1} %", 100.0 * of as f64 / all as f64)
}

/// Stated probability against observed frequency, one panel per window length.
pub(super) fn plot(judgements: &BTreeMap<usize, Judgement>) -> Figure {
    let axis = |label: &str| Axis { label: label.to_owned(), log: false, zero: true };
    let panels = judgements.iter().map(|(size, judgement)| {
        let mut series = vec![Series {
            name: "as it should be".to_owned(),
            style: Style::Dashes,
            points: vec![(0.0, 0.0), (1.0, 1.0)],
            error: Vec::new(),
            colour: 7,
        }];
        for (colour, (kind, bins)) in judgement.reliability.iter().enumerate() {
            let many = bins.iter().filter(|bin| bin.windows >= MIN_WINDOWS);
            series.push(Series {
                name: shown(*kind).to_owned(),
                style: Style::Marked,
                points: many.map(|bin| (bin.given, bin.found)).collect(),
                error: Vec::new(),
                colour,
            });
        }
        Panel {
            x: axis(&format!("p_cpu given, windows of {size} packets")),
            y: axis("share that the host lost"),
            series,
            categories: Vec::new(),
        }
    });
    Figure {
        title: "Reliability of p_cpu".to_owned(),
        subtitle: "on windows the model has not seen; each cause weighted by its prior".to_owned(),
        panels: panels.collect(),
    }
}
