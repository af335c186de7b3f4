//! The models of the paper: each converts samples to a [`Curve`], or returns the reason why it
//! cannot.
//!
//! With y = n^2 / Th^2, all but three models have the form Th(n) = n / sqrt(p'(n)), so fitting is
//! linear in y once the order of p' is known. Coefficients are for throughputs in Mbit/s. Each file
//! has `raw` (the printed equations, with the errata corrected) and `check` (the conditions of
//! section 5.1), which is cheap and runs before any curve is computed.

mod altman;
mod averaging;
mod breaking;
mod dinda;
mod hacker;
mod kola_vernon;
mod logarithmic;
mod loss_rate;
mod newton;
mod second_order;

use super::curve::Curve;
use super::point::Point;

pub use altman::{HALVING, streams_for_share};
pub use averaging::Mean;
pub use dinda::streams_for_share_of_limit;
pub use hacker::Path;
pub(crate) use hacker::uncongested;
pub use kola_vernon::{Backlog, streams_to_add};
pub(crate) use loss_rate::MAX_ORDER;
pub use loss_rate::{LossCurve, LossSample};

/// A model that is fitted to samples of throughput.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Model {
    /// n times one stream (section 2.1, equation 2).
    Hacker,
    /// Models the loss rate instead of p' (section 3.1).
    LossRate,
    /// p' = a n^2 + b (section 2.2).
    Dinda,
    /// One stream of n backs off at a time (section 2.3).
    Altman,
    /// Derives the number of flows from the backlog (section 2.4).
    KolaVernon,
    /// Two fits of Dinda, their coefficients averaged (section 3.2).
    Averaging(Mean),
    /// Dinda before the second sample, Dinda after it (section 3.2).
    Break,
    /// p' = a e^(b n) (section 3.3).
    Logarithmic,
    /// p' = a n^c + b (section 3.4).
    Newton,
    /// p' = a n^2 + b n + c (section 3.5).
    FullSecondOrder,
}

/// All models, in the paper's order.
pub const ALL: [Model; 12] = [
    Model::Hacker,
    Model::LossRate,
    Model::Dinda,
    Model::Altman,
    Model::KolaVernon,
    Model::Averaging(Mean::Arithmetic),
    Model::Averaging(Mean::Geometric),
    Model::Averaging(Mean::Quadratic),
    Model::Break,
    Model::Logarithmic,
    Model::Newton,
    Model::FullSecondOrder,
];

/// Why a model gives no curve.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum Invalid {
    /// A coefficient has the wrong sign.
    #[error("{name}' would be {value:.3e}, and must be above zero")]
    NotPositive {
        /// The coefficient.
        name: char,
        /// Its value.
        value: f64,
    },
    /// A coefficient has the wrong sign.
    #[error("{name}' would be {value:.3e}, and must be below zero")]
    NotNegative {
        /// The coefficient.
        name: char,
        /// Its value.
        value: f64,
    },
    /// The peak is below one stream.
    #[error("the highest throughput would be below one stream")]
    PeakBelowOne,
    /// p' is zero or negative somewhere.
    #[error("the curve would have no value for some numbers of streams")]
    NoValue,
    /// The equation for the order has no solution that bends the curve down.
    #[error("throughput does not fall after a peak: c' would not be above 2")]
    OrderTooLow,
    /// Throughput does not grow in proportion to the streams.
    #[error("throughput does not grow in proportion to the streams, so the path is congested")]
    Congested,
    /// The model needs more different numbers of streams.
    #[error("needs samples with {needed} different numbers of streams, and there are {found}")]
    TooFew {
        /// The required number.
        needed: usize,
        /// The available number.
        found: usize,
    },
    /// The model needs measurements other than throughput.
    #[error("needs {0}, which throughput does not tell")]
    NotMeasured(&'static str),
}

impl Model {
    /// Its name, as the command prints it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hacker => "hacker",
            Self::LossRate => "loss-rate",
            Self::Dinda => "dinda",
            Self::Altman => "altman",
            Self::KolaVernon => "kola-vernon",
            Self::Averaging(Mean::Arithmetic) => "averaging-arithmetic",
            Self::Averaging(Mean::Geometric) => "averaging-geometric",
            Self::Averaging(Mean::Quadratic) => "averaging-quadratic",
            Self::Break => "break",
            Self::Logarithmic => "logarithmic",
            Self::Newton => "newton",
            Self::FullSecondOrder => "full-second-order",
        }
    }

    /// Number of samples of one fit.
    pub const fn samples(self) -> usize {
        match self {
            Self::Hacker | Self::Altman | Self::KolaVernon => 1,
            Self::LossRate | Self::Dinda | Self::Logarithmic => 2,
            Self::Averaging(_) | Self::Break | Self::Newton | Self::FullSecondOrder => 3,
        }
    }

    /// The curve through these samples, with any coefficients; `points` has [`Model::samples`]
    /// points in ascending order. The loss-rate model has order 2 here.
    pub(crate) fn raw(self, points: &[Point]) -> Option<Curve> {
        match (self, points) {
            (Self::Hacker, [p]) => Some(hacker::raw(p)),
            (Self::Altman, [p]) => Some(altman::raw(p)),
            (Self::LossRate, [p, q]) => Some(loss_rate::raw(p, q, loss_rate::MIN_ORDER)),
            (Self::Dinda, [p, q]) => Some(dinda::raw(p, q)),
            (Self::Logarithmic, [p, q]) => Some(logarithmic::raw(p, q)),
            (Self::Averaging(mean), [p, q, r]) => Some(averaging::raw(mean, p, q, r)),
            (Self::Break, [p, q, r]) => Some(breaking::raw(p, q, r)),
            (Self::Newton, [p, q, r]) => newton::raw(p, q, r),
            (Self::FullSecondOrder, [p, q, r]) => Some(second_order::raw(p, q, r)),
            _ => None,
        }
    }

    /// The curve through these samples if its coefficients satisfy the model's conditions.
    #[inline]
    pub(crate) fn fit(self, points: &[Point], order: u32) -> Result<Curve, Invalid> {
        match (self, points) {
            (Self::Hacker, [p]) => Ok(hacker::raw(p)),
            (Self::Altman, [p]) => Ok(altman::raw(p)),
            (Self::LossRate, [p, q]) => loss_rate::fit(p, q, order),
            (Self::Dinda, [p, q]) => dinda::fit(p, q),
            (Self::Logarithmic, [p, q]) => logarithmic::fit(p, q),
            (Self::Averaging(mean), [p, q, r]) => averaging::fit(mean, p, q, r),
            (Self::Break, [p, q, r]) => breaking::fit(p, q, r),
            (Self::Newton, [p, q, r]) => newton::fit(p, q, r),
            (Self::FullSecondOrder, [p, q, r]) => second_order::fit(p, q, r),
            _ => Err(Invalid::TooFew { needed: self.samples(), found: points.len() }),
        }
    }
}

/// Checks a condition; a NaN does not satisfy it.
#[inline]
fn demand(holds: bool, otherwise: Invalid) -> Result<(), Invalid> {
    if holds { Ok(()) } else { Err(otherwise) }
}

/// `value` if it is positive and finite.
#[inline]
fn positive(name: char, value: f64) -> Result<f64, Invalid> {
    if value > 0.0 && value.is_finite() {
        Ok(value)
    } else {
        Err(Invalid::NotPositive { name, value })
    }
}

#[cfg(test)]
mod tests;
