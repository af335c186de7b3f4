//! What measurements say of the next transfer: arithmetic, no I/O, no clock.
//!
//! [`streams`] tells from a few throughputs with different numbers of parallel TCP streams how
//! many the transfer should use, how fast it will be, and how sure that is.

pub mod streams;
