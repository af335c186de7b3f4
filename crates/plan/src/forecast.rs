//! Forecasts of the next measurement of a series.
//!
//! This follows the Network Weather Service, whose forecasts the LSL paper uses: a set of cheap
//! forecasters ([`Method`]), each scored on every measurement before it learns the measurement.
//! Selectors pick the method with the smallest error over all time or over the last few
//! measurements. Selectors are scored in the same way, and the best one gives the forecast. The
//! forecast is therefore never worse than its best method for long, and it comes with the error of
//! the forecasts so far.
//!
//! R. Wolski, "Dynamically forecasting network performance using the Network Weather Service",
//! Cluster Computing 1, 1998.
//!
//! Two errors of the original are corrected: its adaptive windows compared medians of other lengths
//! than those they chose between, and it divided an error summed over all time by a count that
//! stopped at the window's length.

mod battery;
pub mod clique;
mod method;
mod score;

#[cfg(test)]
mod tests;

pub use battery::{Battery, Forecast, NotAMeasurement, Outcome};
pub use method::Method;
pub use score::{Measure, Selector, Span};
