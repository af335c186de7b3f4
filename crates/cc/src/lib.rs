//! Congestion controllers and the interface they share.
//!
//! A controller sees monotone send indices (one a packet, never reused) and what the feedback
//! says of them; it never sees bytes, sockets or packet formats, so one controller serves every
//! feedback that provides the signals it needs. Time is an argument, randomness is seeded at
//! construction, so the simulator and the product run the same code.

mod fixed;
mod interface;
pub mod native;
mod registry;

pub use fixed::Fixed;
pub use interface::{
    CongestionController, Feedback, LossRange, ProbeTrain, RttSample, Sent, Signal, Signals,
};
pub use registry::{BuildError, ControllerConfig, build, names};
