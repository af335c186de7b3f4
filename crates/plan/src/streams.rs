//! How many parallel TCP streams are best.
//!
//! Models and equation numbers are those of E. Yildirim, D. Yin, T. Kosar, "Prediction of Optimal
//! Parallelism Level in Wide Area Data Transfers". [`predict`] combines them; [`Doubling`] says
//! which numbers of streams to try.

use std::num::NonZeroU32;

use packtrain_units::DataRate;

mod doubling;
mod predict;

pub use doubling::{Doubling, DoublingOptions};
pub use predict::{Answer, ModelFit, NoSamples, Options, Prediction, predict};

/// What was measured once: so many streams together were so fast.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sample {
    /// How many streams were open.
    pub streams: NonZeroU32,
    /// What they moved together.
    pub throughput: DataRate,
}
