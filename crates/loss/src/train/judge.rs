//! Evaluates a model on labelled windows that were not used for training.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::{Cause, Classifier, Evidence, Labelled, Model, Verdict, paper};

/// Lower ends of the loss-rate bands for the counts of verdicts; the first begins at 0.
pub const BANDS: [f64; 6] = [0.0, paper::SUCCESS_FROM, paper::COMPLEXITY_FROM, 0.002, 0.01, 0.05];
/// Bins of the reliability plot.
const BINS: usize = 20;

/// The classifier and its evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// The paper's classifier on the signature.
    Paper,
    /// Ours with the signature alone.
    Signature,
    /// Ours with the delay around the losses.
    Delay,
    /// Ours with the host's drop counter.
    Counter,
}

/// Counts of verdicts.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Tally {
    /// Windows by true cause and by verdict.
    pub counts: BTreeMap<Cause, BTreeMap<Cause, u64>>,
}

/// Verdicts on one family.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FamilyTally {
    /// Number of windows.
    pub windows: u64,
    /// Windows by verdict.
    pub verdicts: BTreeMap<Cause, u64>,
    /// Windows that were mostly lost elsewhere than at the host.
    pub elsewhere: u64,
    /// Of these: attributed to the processor with more than 95 %.
    pub elsewhere_called_cpu: u64,
}

/// For windows given about the same probability: how often it was the processor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct ReliabilityBin {
    /// Windows.
    pub windows: u64,
    /// Mean of the given probability, with each cause weighted by its prior.
    pub given: f64,
    /// Share of the processor, with the same weights.
    pub found: f64,
}

/// Results of each kind of classifier.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Judgement {
    /// Confusion by kind and by band of [`BANDS`].
    pub bands: BTreeMap<Kind, Vec<Tally>>,
    /// By kind, then cause and family.
    pub families: BTreeMap<Kind, BTreeMap<String, FamilyTally>>,
    /// Reliability of `p_cpu` by kind.
    pub reliability: BTreeMap<Kind, Vec<ReliabilityBin>>,
    /// Windows without loss, which are not evaluated.
    pub without_loss: u64,
}

/// Evaluates a model window by window.
#[derive(Debug)]
pub struct Judge<'m> {
    classifier: Classifier<'m>,
    judgement: Judgement,
    given: BTreeMap<Kind, Vec<(f64, Cause)>>,
}

impl<'m> Judge<'m> {
    /// An evaluation of this model.
    pub fn new(model: &'m Model) -> Self {
        let (judgement, given) = (Judgement::default(), BTreeMap::new());
        Self { classifier: Classifier::new(model), judgement, given }
    }

    /// Classifies one window with every kind that it has evidence for.
    pub fn add(&mut self, labelled: &Labelled) {
        if labelled.signature.lost() == 0 {
            self.judgement.without_loss += 1;
            return;
        }
        let plain = Evidence::new(&labelled.signature);
        let verdict = self.classifier.classify(&plain);
        self.count(Kind::Paper, labelled, &verdict, verdict.paper.cause, verdict.paper.p_cpu);
        self.count(Kind::Signature, labelled, &verdict, verdict.cause, verdict.p_cpu);
        if labelled.delay.is_some() {
            let verdict = self.classifier.classify(&plain.delay(labelled.delay.as_ref()));
            self.count(Kind::Delay, labelled, &verdict, verdict.cause, verdict.p_cpu);
        }
        if labelled.host_drops.is_some() {
            let verdict = self.classifier.classify(&plain.host_drops(labelled.counted()));
            self.count(Kind::Counter, labelled, &verdict, verdict.cause, verdict.p_cpu);
        }
    }

    /// The results.
    pub fn finish(mut self) -> Judgement {
        self.judgement.reliability =
            self.given.iter().map(|(kind, given)| (*kind, reliability(given))).collect();
        self.judgement
    }

    fn count(
        &mut self,
        kind: Kind,
        labelled: &Labelled,
        verdict: &Verdict,
        cause: Cause,
        p_cpu: f64,
    ) {
        let band = BANDS.iter().rposition(|from| verdict.loss_rate >= *from).unwrap_or(0);
        let bands = self.judgement.bands.entry(kind).or_insert_with(|| vec![Tally::default(); 6]);
        *bands[band].counts.entry(labelled.cause).or_default().entry(cause).or_default() += 1;
        let name = format!("{} {}", labelled.cause, labelled.family);
        let families = self.judgement.families.entry(kind).or_default();
        let family = families.entry(name).or_default();
        family.windows += 1;
        *family.verdicts.entry(cause).or_default() += 1;
        if labelled.lost.network + labelled.lost.link > labelled.lost.host {
            family.elsewhere += 1;
            family.elsewhere_called_cpu += u64::from(p_cpu > paper::SURE);
        }
        self.given.entry(kind).or_default().push((p_cpu, labelled.cause));
    }
}

impl Tally {
    /// Number of windows of a cause, and of those with this verdict.
    pub fn of(&self, cause: Cause, verdict: Cause) -> (u64, u64) {
        let Some(row) = self.counts.get(&cause) else { return (0, 0) };
        (row.values().sum(), row.get(&verdict).copied().unwrap_or(0))
    }
}

/// Each cause counts by its prior, independent of its share of the data.
fn reliability(given: &[(f64, Cause)]) -> Vec<ReliabilityBin> {
    let mut windows: BTreeMap<Cause, f64> = BTreeMap::new();
    for (_, cause) in given {
        *windows.entry(*cause).or_default() += 1.0;
    }
    let mut bins = vec![(ReliabilityBin::default(), 0.0); BINS];
    for (p, cause) in given {
        let (bin, weights) = &mut bins[((p * BINS as f64) as usize).min(BINS - 1)];
        let weight = super::prior(*cause) / windows[cause];
        bin.windows += 1;
        bin.given += weight * p;
        bin.found += if *cause == Cause::Cpu { weight } else { 0.0 };
        *weights += weight;
    }
    let of = |(mut bin, weights): (ReliabilityBin, f64)| {
        if weights > 0.0 {
            bin.given /= weights;
            bin.found /= weights;
        }
        bin
    };
    bins.into_iter().map(of).collect()
}
