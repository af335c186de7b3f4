//! What an end of a transfer measures of itself while it runs.

mod meter;
mod system;
mod watch;

pub use meter::Meters;
pub(crate) use watch::EndWatch;
