//! Networks in virtual time.
//!
//! A [`Scenario`](spec::Scenario) names hosts, links and flows; [`run`] runs it and returns an
//! [`Outcome`](outcome::Outcome). Time is in integer nanoseconds, all randomness is seeded, and
//! events at one node happen in the order (time, class, id). The same scenario and seed give the
//! same trace, whose digest is `trace_hash`.
//!
//! # Exact and fast
//!
//! The unit of simulation is a *train*: packets of one flow at equal gaps. A node takes from a
//! train only the packets that arrive before anything else can happen there (its *horizon*: its own
//! next event, and for every other node that node's next event plus the minimum delay to here).
//! Each node therefore sees the same sequence of packets as in a simulation packet by packet, and
//! the outcome is the same, bit for bit, for every maximum train length (`Scenario::train`).

mod agent;
pub mod bench;
mod check;
mod error;
pub mod file;
pub mod fuzzing;
mod ingress;
mod network;
mod node;
pub mod outcome;
pub mod repeats;
pub mod results;
mod route;
mod run;
mod scheduler;
pub mod spec;
mod stats;
pub mod sweep;
mod trace;
mod train;

pub use error::SimError;
pub use run::{Progress, run};
