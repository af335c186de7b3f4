//! Networks in virtual time.
//!
//! A [`Scenario`](spec::Scenario) names hosts, links and flows; [`run`] plays it and returns an
//! [`Outcome`](outcome::Outcome). Time is in integer nanoseconds, everything random is seeded, and
//! events at one node happen in the order (time, class, id): the same scenario and seed give the
//! same trace, which `trace_hash` sums up.
//!
//! # Exact and fast at once
//!
//! What travels is a *train*: packets of one flow at equal gaps. A node takes from a train only
//! the packets that arrive before anything else can happen there (its *horizon*: its own next
//! event, and for every other node that node's next event plus the least delay on the way), so
//! each node sees the very sequence of packets that it would see one by one: the outcome is the
//! same, bit for bit, for every longest train (`Scenario::train`).

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
