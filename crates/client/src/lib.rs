//! The commands of a user: copies and comparisons, ssh to the other end, kept sessions, forecasts,
//! and the removal of what interrupted transfers left.

pub mod checksums;
pub mod clean;
pub mod completion;
pub mod cp;
pub mod doctor;
pub mod forecast;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
pub mod probe;
pub mod ssh;
pub mod store_forward;
