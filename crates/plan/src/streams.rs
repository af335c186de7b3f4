//! Predicts the best number of parallel TCP streams.
//!
//! Models and equation numbers are those of E. Yildirim, D. Yin, T. Kosar, "Prediction of Optimal
//! Parallelism Level in Wide Area Data Transfers", with its errata corrected where they stand.
//! [`predict()`] computes one answer from all samples; [`Doubling`] chooses the numbers of streams
//! to try; [`metrics`] compares models as the paper does.

use std::num::NonZeroU32;

use packtrain_units::DataRate;

mod baseline;
mod curve;
mod doubling;
mod fit;
pub mod metrics;
mod mixture;
pub mod models;
mod point;
mod predict;
mod residual;
mod search;
mod shapes;
mod table;

pub use curve::{Curve, Peak};
pub use doubling::{Doubling, DoublingOptions};
pub use fit::ModelFit;
pub use models::{Invalid, Model};
pub use predict::{Answer, NoSamples, Options, Prediction, interpolated, predict};
pub use search::Best;
pub use table::{TableError, samples_from_csv};

/// One measurement: the throughput of a number of streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sample {
    /// Number of open streams.
    pub streams: NonZeroU32,
    /// Their total throughput.
    pub throughput: DataRate,
}

/// The best-fitted curve of `model` for these samples, from every pair or triple of them (section
/// 4).
///
/// # Errors
/// No pair or triple gives coefficients that the model allows; the reason is that of the first, the
/// middle and the last sample.
pub fn best_fitted(model: Model, samples: &[Sample]) -> Result<Best, Invalid> {
    search::best(model, &point::points(samples).0)
}
