//! What a path will give next, from what it gave.
//!
//! The way of the Network Weather Service, whose forecasts the LSL paper reads: a battery of cheap
//! forecasters ([`Method`]), each scored on every measurement before it learns it. Selectors pick
//! the one with the smallest error over all time or the last few measurements; they are scored the
//! same way, and the best of them answers. So a forecast is never worse for long than its best
//! method, whatever the series does, and each comes with the error that the answers had.
//!
//! R. Wolski, "Dynamically forecasting network performance using the Network Weather Service",
//! Cluster Computing 1, 1998.
//!
//! Two errors of the original are not repeated: its adaptive windows compared medians of other
//! lengths than the ones they chose between, and it divided an error summed over all time by a
//! count that stopped at the window's length.

mod battery;
pub mod clique;
mod method;
mod score;

#[cfg(test)]
mod tests;

pub use battery::{Battery, Forecast, NotAMeasurement, Outcome};
pub use method::Method;
pub use score::{Measure, Selector, Span};
