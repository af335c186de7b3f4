//! Computes a verdict from the evidence of one window.

use serde::{Serialize, Serializer};

use crate::basis::Basis;
use crate::features::Features;
use crate::own::Posterior;
use crate::paper::SURE;
use crate::{
    Cause, ComplexityMeter, Delay, HostDrops, Model, PaperVerdict, Signature, success_proportion,
    successes,
};

/// The evidence of one window.
#[derive(Clone, Copy, Debug)]
pub struct Evidence<'a> {
    signature: &'a Signature,
    host_drops: Option<HostDrops>,
    delay: Option<&'a Delay>,
}

impl<'a> Evidence<'a> {
    /// Evidence of the signature alone.
    pub fn new(signature: &'a Signature) -> Self {
        Self { signature, host_drops: None, delay: None }
    }

    /// Adds the drops that the receiving host itself counted while the window arrived
    /// (SO_RXQ_OVFL). Pass 0 only for a host that counts.
    pub fn host_drops(self, counted: Option<HostDrops>) -> Self {
        Self { host_drops: counted, ..self }
    }

    /// Adds the one-way delay around the losses.
    pub fn delay(self, delay: Option<&'a Delay>) -> Self {
        Self { delay, ..self }
    }
}

/// The cause of a window's losses with its probability. As JSON, one line of `packtrain loss
/// classify --json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// Share of lost packets.
    #[serde(serialize_with = "rounded")]
    pub loss_rate: f64,
    /// C1 of the signature.
    #[serde(serialize_with = "rounded")]
    pub complexity: f64,
    /// Share of losses followed by a loss; none without losses.
    #[serde(serialize_with = "rounded_option")]
    pub success_proportion: Option<f64>,
    /// The cause by our own classifier.
    pub cause: Cause,
    /// Probability that the receiving host alone lost the packets. It exceeds 0.95 only if `cause`
    /// is [`Cause::Cpu`].
    #[serde(serialize_with = "rounded")]
    pub p_cpu: f64,
    /// The verdict of the paper's classifier.
    pub paper: PaperVerdict,
    /// Packets of the window.
    pub packets: usize,
    /// Packets lost.
    pub lost: usize,
    /// 95 % interval of the success proportion; it is wide if there are few losses.
    pub success_interval: Option<(f64, f64)>,
    /// The posterior of every cause.
    pub probabilities: Probabilities,
    /// The most similar family of the training data.
    pub like: Option<String>,
    /// The basis of the verdict.
    pub basis: Basis,
}

/// The posteriors by name.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Probabilities {
    /// Of [`Cause::Network`].
    #[serde(serialize_with = "rounded")]
    pub network: f64,
    /// Of [`Cause::Cpu`].
    #[serde(serialize_with = "rounded")]
    pub cpu: f64,
    /// Of [`Cause::Hybrid`].
    #[serde(serialize_with = "rounded")]
    pub hybrid: f64,
    /// Of [`Cause::Link`].
    #[serde(serialize_with = "rounded")]
    pub link: f64,
}

/// Classifies windows; keeps its buffers between them.
#[derive(Clone, Debug)]
pub struct Classifier<'m> {
    model: &'m Model,
    meter: ComplexityMeter,
}

impl<'m> Classifier<'m> {
    /// A classifier with this model, such as [`Model::builtin`].
    pub fn new(model: &'m Model) -> Self {
        Self { model, meter: ComplexityMeter::new(model.word_length()) }
    }

    /// Determines the cause of a window's losses.
    pub fn classify(&mut self, evidence: &Evidence<'_>) -> Verdict {
        let signature = evidence.signature;
        let complexity = self.meter.complexity(signature);
        let success = success_proportion(signature);
        let mut verdict = Verdict {
            loss_rate: signature.loss_rate(),
            complexity,
            success_proportion: success,
            cause: Cause::Inconclusive,
            p_cpu: 0.5,
            paper: PaperVerdict::INCONCLUSIVE,
            packets: signature.len(),
            lost: signature.lost(),
            success_interval: interval(signature),
            probabilities: Probabilities::from([0.25; 4]),
            like: None,
            basis: Basis::NoLoss,
        };
        let features = Features::of(signature, complexity, evidence.delay);
        let (Some(features), Some((size, near))) = (features, self.model.size(signature.len()))
        else {
            return verdict;
        };
        verdict.paper = size.paper.classify(verdict.loss_rate, complexity, success);
        let mut assessment = size.own.assessment(&features, None);
        let delayed = features.delay.iter().any(Option::is_some);
        let mut basis = if delayed { Basis::SignatureAndDelay } else { Basis::Signature };
        if let Some(counter) = evidence.host_drops {
            (assessment, basis) = assessment.with_counter(counter, signature.lost() as u64);
        }
        let decision = assessment.decide(size.own.thresholds, basis);
        verdict.basis = match () {
            () if basis == Basis::HostCounter => basis,
            () if !near => Basis::WindowLength,
            () if decision.unlike => Basis::Unlike,
            () => basis,
        };
        if matches!(verdict.basis, Basis::WindowLength | Basis::Unlike) {
            return verdict;
        }
        verdict.cause = decision.cause;
        let p_cpu = assessment.posterior[1];
        verdict.p_cpu = if decision.cause == Cause::Cpu { p_cpu } else { p_cpu.min(SURE) };
        verdict.probabilities = assessment.posterior.into();
        verdict.like = assessment.family.map(|(_, name)| name);
        verdict
    }
}

impl From<Posterior> for Probabilities {
    fn from([network, cpu, hybrid, link]: Posterior) -> Self {
        Self { network, cpu, hybrid, link }
    }
}

/// Wilson's 95 % interval of the success proportion.
fn interval(signature: &Signature) -> Option<(f64, f64)> {
    const Z2: f64 = 1.96 * 1.96;
    let n = signature.lost() as f64;
    let share = success_proportion(signature)?;
    let k = successes(signature) as f64;
    let middle = (k + Z2 / 2.0) / (n + Z2);
    let half = 1.96 * (n * share * (1.0 - share) + Z2 / 4.0).sqrt() / (n + Z2);
    Some((round((middle - half).max(0.0)), round((middle + half).min(1.0))))
}

/// Rounds to six significant digits: more would be noise.
fn round(value: f64) -> f64 {
    if value.abs() < 1e-12 || !value.is_finite() {
        return 0.0;
    }
    let scale = 10f64.powi(5 - value.abs().log10().floor() as i32);
    (value * scale).round() / scale
}

fn rounded<S: Serializer>(value: &f64, out: S) -> Result<S::Ok, S::Error> {
    out.serialize_f64(round(*value))
}

fn rounded_option<S: Serializer>(value: &Option<f64>, out: S) -> Result<S::Ok, S::Error> {
    value.map(round).serialize(out)
}

#[cfg(test)]
#[path = "classifier_tests.rs"]
mod tests;
