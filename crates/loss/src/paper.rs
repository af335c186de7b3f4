//! The classifier of the FOBS paper, as printed.
//!
//! Section 3.3: a window that lost a share p >= 0.0005 of its packets is judged by its complexity,
//! one with 0.00008 <= p < 0.0005 by its success proportion, others not at all. The metric's
//! distance from its expected value under each cause, in standard deviations, gives a two-sided
//! tail, which Bayes' rule uses as the likelihood; both causes have the same prior. Only the
//! formula of the complexity is corrected (see [`crate::complexity()`]).
//!
//! The coefficients are not printed: they belong to a model. The thresholds are the paper's, for
//! its window of 100 MB in packets of 1024 bytes.

use serde::{Deserialize, Serialize};

use crate::Cause;

/// Minimum share of lost packets for the complexity.
pub const COMPLEXITY_FROM: f64 = 0.0005;
/// Minimum share of lost packets for the success proportion, which is used up to
/// [`COMPLEXITY_FROM`].
pub const SUCCESS_FROM: f64 = 0.000_08;
/// Packets of the paper's window: 100 MB of 1024 bytes each.
pub const WINDOW: usize = 97_656;
/// Probability above which the sender takes no action (section 2.2).
pub const SURE: f64 = 0.95;

/// A sum of exponentials of the loss rate: `sum of a * exp(-k * p)`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Exponentials(pub Vec<Exponential>);

/// One term, `a * exp(-k * p)`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Exponential {
    /// Value at p = 0.
    pub a: f64,
    /// Decay; negative for growth.
    pub k: f64,
}

impl Exponentials {
    /// The value at loss rate `p`.
    pub fn at(&self, p: f64) -> f64 {
        self.0.iter().map(|term| term.a * (-term.k * p).exp()).sum()
    }
}

/// The expected complexity under one cause.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ComplexityModel {
    /// Mean as a function of the loss rate: two exponentials for the network, one for the CPU.
    pub mean: Exponentials,
    /// Standard deviation around it, the same for all loss rates.
    pub deviation: f64,
}

/// The expected success proportion under one cause.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SuccessModel {
    /// Mean.
    pub mean: f64,
    /// Standard deviation.
    pub deviation: f64,
}

/// Values for both causes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PerCause<T> {
    /// Contention for the network.
    pub network: T,
    /// Contention for the receiver's processor.
    pub cpu: T,
}

/// The fitted classifier for windows of one length.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PaperModel {
    /// At p >= 0.0005.
    pub complexity: PerCause<ComplexityModel>,
    /// At 0.00008 <= p < 0.0005; none if the windows are too short for such a loss rate, or if the
    /// proportion of a cause did not vary in the training data.
    pub success: Option<PerCause<SuccessModel>>,
}

/// The verdict of the paper's classifier.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PaperVerdict {
    /// The more probable cause, as in the paper's tables; 50/50 is [`Cause::Inconclusive`]. A
    /// sender of the paper ignores the loss only if `p_cpu` is above [`SURE`].
    pub cause: Cause,
    /// Probability of contention for the processor; that of the network is the rest.
    pub p_cpu: f64,
}

impl PaperVerdict {
    /// 50/50.
    pub const INCONCLUSIVE: Self = Self { cause: Cause::Inconclusive, p_cpu: 0.5 };

    fn new(p_cpu: f64) -> Self {
        let cause = match p_cpu {
            p if p > 0.5 => Cause::Cpu,
            p if p < 0.5 => Cause::Network,
            _ => return Self::INCONCLUSIVE,
        };
        Self { cause, p_cpu }
    }
}

impl PaperModel {
    /// The posterior for a window with this loss rate, complexity and success proportion.
    pub fn classify(&self, loss_rate: f64, complexity: f64, success: Option<f64>) -> PaperVerdict {
        let (network, cpu) = if loss_rate >= COMPLEXITY_FROM {
            let tail = |model: &ComplexityModel| {
                two_sided_tail(complexity, model.mean.at(loss_rate), model.deviation)
            };
            (tail(&self.complexity.network), tail(&self.complexity.cpu))
        } else if let (true, Some(success), Some(models)) =
            (loss_rate >= SUCCESS_FROM, success, &self.success)
        {
            let tail = |model: &SuccessModel| two_sided_tail(success, model.mean, model.deviation);
            (tail(&models.network), tail(&models.cpu))
        } else {
            return PaperVerdict::INCONCLUSIVE;
        };
        // Equation 3 with priors of 1/2 each, which cancel.
        let sum = network + cpu;
        if sum > 0.0 { PaperVerdict::new(cpu / sum) } else { PaperVerdict::INCONCLUSIVE }
    }
}

/// `1 - P(-|z| < Z < |z|)` with z of equation 5, in plain double precision: from about 8.3
/// deviations on it is zero.
fn two_sided_tail(x: f64, mean: f64, deviation: f64) -> f64 {
    let z = ((x - mean) / deviation).abs();
    let tail = 1.0 - libm::erf(z / std::f64::consts::SQRT_2);
    // An undefined model (0 / 0) supports nothing.
    if tail.is_nan() { 0.0 } else { tail }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model() -> PaperModel {
        let mean = |terms: &[(f64, f64)]| {
            Exponentials(terms.iter().map(|&(a, k)| Exponential { a, k }).collect())
        };
        PaperModel {
            complexity: PerCause {
                network: ComplexityModel {
                    mean: mean(&[(0.6, -4.0), (-0.3, 500.0)]),
                    deviation: 0.02,
                },
                cpu: ComplexityModel { mean: mean(&[(0.3, 0.0)]), deviation: 0.03 },
            },
            success: Some(PerCause {
                network: SuccessModel { mean: 0.05, deviation: 0.05 },
                cpu: SuccessModel { mean: 0.95, deviation: 0.03 },
            }),
        }
    }

    #[test]
    fn the_tail_is_that_of_the_normal_distribution() {
        for (z, tail) in [(0.0, 1.0), (1.0, 0.317_310_5), (1.96, 0.049_995_8), (3.0, 0.002_699_8)] {
            assert!((two_sided_tail(5.0 + z * 2.0, 5.0, 2.0) - tail).abs() < 1e-7, "{z}");
            assert!((two_sided_tail(5.0 - z * 2.0, 5.0, 2.0) - tail).abs() < 1e-7, "{z}");
        }
        assert!(two_sided_tail(9.0, 0.0, 1.0) <= 0.0);
        assert!(two_sided_tail(0.0, 0.0, 0.0) <= 0.0);
    }

    #[test]
    fn bayes_by_hand() {
        // At p = 0.01 the means are 0.6 * e^0.04 - 0.3 * e^-5 = 0.62246 and 0.3.
        let network = model().complexity.network.mean.at(0.01);
        assert!((network - 0.622_465_1).abs() < 1e-6, "{network}");
        // One deviation from the CPU's mean, 14.6 from the network's.
        let verdict = model().classify(0.01, 0.33, Some(0.5));
        assert_eq!(verdict, PaperVerdict { cause: Cause::Cpu, p_cpu: 1.0 });
        // Success proportion: 0.10 is one deviation from the network, 28 from the CPU.
        assert_eq!(model().classify(0.0002, 0.3, Some(0.10)).cause, Cause::Network);
        // Both at two deviations: 50 %.
        let mut even = model();
        even.success = Some(PerCause {
            network: SuccessModel { mean: 0.1, deviation: 0.2 },
            cpu: SuccessModel { mean: 0.9, deviation: 0.2 },
        });
        assert_eq!(even.classify(0.0002, 0.3, Some(0.5)), PaperVerdict::INCONCLUSIVE);
    }

    #[test]
    fn fifty_fifty_where_the_paper_says_so() {
        // Below 0.00008, and where both likelihoods underflow.
        assert_eq!(model().classify(0.000_079, 0.3, Some(0.9)), PaperVerdict::INCONCLUSIVE);
        assert_eq!(model().classify(0.0, 0.0, None), PaperVerdict::INCONCLUSIVE);
        assert_eq!(model().classify(0.01, 0.99, Some(0.9)), PaperVerdict::INCONCLUSIVE);
    }

    #[test]
    fn the_thresholds_choose_the_metric() {
        // Complexity of the network, success proportion of the CPU.
        assert_eq!(model().classify(0.0005, 0.368_5, Some(0.95)).cause, Cause::Network);
        assert_eq!(model().classify(0.000_499, 0.368_5, Some(0.95)).cause, Cause::Cpu);
        assert_eq!(model().classify(0.000_08, 0.368_5, Some(0.95)).cause, Cause::Cpu);
    }
}
