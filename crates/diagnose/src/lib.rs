//! What limits a transfer, or would: `diagnose`, and the verdict in the last line of `cp`.
//!
//! Both ends of a transfer measure themselves while it runs (`meter`, `system`) and tell it
//! once a second; the caller keeps what is known as one [`Record`](packtrain_service::evidence::Record) in the state directory, so that
//! another process can ask of it without root or a service. [`judge`] makes findings of it: it
//! reads no clock and no file.

#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod judge;
mod record;
pub mod recorder;

pub use judge::{Ceiling, Diagnosis, Fact, Finding, Limiter, Stage, judge};
pub use record::{Which, find};
