//! Finds what limits a transfer, or would limit one: `diagnose`, and the verdict in the last line
//! of `cp`.
//!
//! Both ends of a transfer measure themselves while it runs, and send the measurements once per
//! second. The caller stores all of them as one [`Record`](packtrain_service::evidence::Record) in
//! the state directory, so that another process can read it without root or a service. [`judge`]
//! derives findings from it; it reads no clock and no file.

#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod judge;
mod record;
pub mod recorder;

pub use judge::{Ceiling, Diagnosis, Fact, Finding, Limiter, Stage, judge, judge_record};
pub use record::{Which, find};
