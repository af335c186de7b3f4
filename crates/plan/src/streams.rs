//! How many parallel TCP streams are best.
//!
//! Models and equation numbers are those of E. Yildirim, D. Yin, T. Kosar, "Prediction of Optimal
//! Parallelism Level in Wide Area Data Transfers", with its errata corrected where they stand.
//! [`predict()`] gives one answer from all samples; [`Doubling`] says which numbers of streams
//! to try; [`metrics`] compare models as the paper does.

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

/// What was measured once: so many streams together were so fast.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sample {
    /// How many streams were open.
    pub streams: NonZeroU32,
    /// What they moved together.
    pub throughput: DataRate,
}

/// The best-fitted curve of `model` on these samples, by every pair or triple of them (section 4).
///
/// # Errors
/// No pair or triple gives coefficients that the model allows; the reason is that of the first,
/// the middle and the last sample.
pub fn best_fitted(model: Model, samples: &[Sample]) -> Result<Best, Invalid> {
    search::best(model, &point::points(samples).0)
}
