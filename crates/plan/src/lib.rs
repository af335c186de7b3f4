//! What measurements say of the next transfer: arithmetic, no I/O, no clock.
//!
//! [`forecast`] says what a series of measurements gives next; [`route`] over which depots a
//! session should go by such forecasts.
//!
//! [`streams`] tells from a few throughputs with different numbers of parallel TCP streams how
//! many the transfer should use, how fast it will be, and how sure that is.

pub mod forecast;
pub mod route;
pub mod streams;
