//! Measurements that an end of a transfer makes of itself.

mod meter;
mod system;
mod watch;

pub use meter::Meters;
pub(crate) use watch::EndWatch;
