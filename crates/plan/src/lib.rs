//! Predicts the next transfer from measurements: arithmetic, no I/O, no clock.
//!
//! [`forecast`] predicts the next value of a series of measurements. [`route`] chooses the depots
//! of a session from such forecasts.
//!
//! [`streams`] predicts from a few throughputs with different numbers of parallel TCP streams how
//! many streams the transfer should use, how fast it will be, and how certain that is.

pub mod forecast;
pub mod route;
pub mod streams;
