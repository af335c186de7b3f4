//! Congestion controllers and the interface they share.
//!
//! A controller sees monotone send indices (one per packet, never reused) and feedback about them.
//! It never sees bytes, sockets or packet formats, so one controller works with every feedback that
//! provides the signals it needs. Time is an argument and randomness is seeded at construction, so
//! the simulator and the product run the same code.

mod bbr;
#[cfg(test)]
mod bottleneck;
mod collector;
mod config;
mod cubic;
mod fixed;
pub mod fobs;
mod highspeed;
#[cfg(test)]
mod hostile;
mod interface;
pub mod native;
mod pacing;
mod registry;
mod reno;
pub mod sabul;
mod scalable;
pub mod udt;
mod watched;
mod window;

pub use bbr::Bbr;
pub use collector::Collector;
pub use config::{ControllerConfig, Start};
pub use cubic::Cubic;
pub use fixed::Fixed;
pub use fobs::Fobs;
pub use highspeed::HighSpeed;
pub use interface::{
    CongestionController, Feedback, LossRange, LossWindow, ProbeTrain, ReverseQueue, RttSample,
    SavedPath, Sent, Signal, Signals,
};
pub use registry::{BuildError, Constructor, RegisterError, build, build_with, names, register};
pub use reno::Reno;
pub use sabul::Sabul;
pub use scalable::Scalable;
pub use udt::Udt;
pub use watched::Watched;
