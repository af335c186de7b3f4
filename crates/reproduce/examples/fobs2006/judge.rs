//! Classifies every window in four ways: the paper's classifier, and this project's with the
//! pattern alone, with the delay around the losses, and with the host's counter.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::Write as _;

use packtrain_loss::{Cause, Classifier, Evidence, Labelled, Model, paper};

use crate::{Args, Failure, figure, records, tables};

/// Windows at least as long are reported in full.
const SHOWN: usize = 24_414;

/// A classifier with its evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Method {
    Paper,
    Pattern,
    Delay,
    Counter,
}

impl Method {
    pub(crate) const ALL: [Self; 4] = [Self::Paper, Self::Pattern, Self::Delay, Self::Counter];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Paper => "paper",
            Self::Pattern => "ours, pattern",
            Self::Delay => "ours, and delay",
            Self::Counter => "ours, and counter",
        }
    }
}

/// A window with its classifications.
pub(crate) struct Judged {
    pub(crate) set: String,
    pub(crate) family: String,
    pub(crate) truth: Cause,
    pub(crate) packets: usize,
    pub(crate) loss_rate: f64,
    pub(crate) complexity: f64,
    pub(crate) success: f64,
    /// Most losses were on the path, not at the host.
    pub(crate) elsewhere: bool,
    pub(crate) paper_conditions: bool,
    /// Class and probability of the processor; none if there was no such evidence.
    pub(crate) classes: BTreeMap<Method, (Cause, f64)>,
}

/// Classifies a window in all four ways.
pub(crate) fn judge(classifier: &mut Classifier<'_>, set: &str, window: &Labelled) -> Judged {
    let plain = Evidence::new(&window.signature);
    let verdict = classifier.classify(&plain);
    let mut classes = BTreeMap::from([
        (Method::Paper, (verdict.paper.cause, verdict.paper.p_cpu)),
        (Method::Pattern, (verdict.cause, verdict.p_cpu)),
    ]);
    if window.delay.is_some() {
        let verdict = classifier.classify(&plain.delay(window.delay.as_ref()));
        classes.insert(Method::Delay, (verdict.cause, verdict.p_cpu));
    }
    let meta = |key| window.more.get("meta").and_then(|meta| meta.get(key));
    let is_paper = meta("conditions").and_then(serde_json::Value::as_str) == Some("paper");
    if let Some(counted) = window.counted() {
        let verdict = classifier.classify(&plain.host_drops(Some(counted)));
        classes.insert(Method::Counter, (verdict.cause, verdict.p_cpu));
    }
    Judged {
        set: set.to_owned(),
        family: window.family.clone(),
        truth: window.cause,
        packets: window.signature.len(),
        loss_rate: verdict.loss_rate,
        complexity: verdict.complexity,
        success: verdict.success_proportion.unwrap_or(0.0),
        elsewhere: window.lost.network + window.lost.link > window.lost.host,
        paper_conditions: is_paper,
        classes,
    }
}

fn all(args: &Args, model: &Model) -> Result<Vec<Judged>, Failure> {
    let mut classifier = Classifier::new(model);
    let mut judged = Vec::new();
    for (set, path) in &args.files {
        for window in records(path)?.iter().filter(|window| window.signature.lost() > 0) {
            judged.push(judge(&mut classifier, set, window));
        }
    }
    Ok(judged)
}

/// Confusion by loss rate, by family, and under the paper's conditions.
pub(crate) fn classifier(args: &Args, model: &Model) -> Result<String, Failure> {
    let judged = all(args, model)?;
    let provenance = &model.provenance;
    let mut text = format!("Model: fitted {}, seed {}, to", provenance.date, provenance.seed);
    for name in provenance.data.keys() {
        let _ = write!(text, " `{}`", name.rsplit('/').next().unwrap_or(name));
    }
    text += ".\n\n";
    if let Some((size, _)) = model.size(paper::WINDOW) {
        text += &tables::fit(&size.fit);
    }
    let conditions: Vec<&Judged> =
        judged.iter().filter(|j| j.paper_conditions && j.packets == paper::WINDOW).collect();
    text += "### The paper's own conditions\n\n";
    text += &tables::conditions(&conditions);
    let mut sets: Vec<_> = judged.iter().map(|j| (j.set.clone(), Reverse(j.packets))).collect();
    sets.sort();
    sets.dedup();
    let of = |set: &str, packets: usize| -> Vec<&Judged> {
        judged.iter().filter(|j| j.set == set && j.packets == packets).collect()
    };
    text += "### All sets\n\n";
    text += tables::SUMMARY;
    for (set, Reverse(packets)) in &sets {
        text += &tables::summary(set, *packets, &of(set, *packets));
    }
    text += "\n";
    // Shorter windows are only in the CSV file.
    for (set, Reverse(packets)) in sets.iter().filter(|set| set.1.0 >= SHOWN) {
        let of = of(set, *packets);
        let _ = write!(text, "### {set}, windows of {packets} packets\n\n");
        text += &tables::bands(&of);
        text += &tables::families(&of);
    }
    std::fs::write(args.out.join("confusion.csv"), tables::csv(&judged))?;
    figure::classifier(&judged, model).write(&args.out.join(&args.plot))?;
    Ok(text)
}

/// Counts as in the paper's Table 2: contention for the network, by metric.
pub(crate) fn table2(args: &Args, model: &Model) -> Result<String, Failure> {
    let judged = all(args, model)?;
    let mut text = String::new();
    for (set, _) in &args.files {
        let of: Vec<&Judged> =
            judged.iter().filter(|j| j.set == *set && j.truth == Cause::Network).collect();
        let _ = write!(text, "### {set}\n\n{}", tables::table2(&of));
    }
    std::fs::write(args.out.join("confusion.csv"), tables::csv(&judged))?;
    figure::table2(&judged).write(&args.out.join(&args.plot))?;
    Ok(text)
}
