//! Networks in virtual time.
//!
//! A [`Scenario`](spec::Scenario) names hosts, links and flows; [`run`] plays it and returns an
//! [`Outcome`](outcome::Outcome). Time is in integer nanoseconds, everything random is seeded, and
//! events at one node happen in the order (time, class, id): the same scenario and seed give the
//! same trace, which `trace_hash` sums up.

pub mod outcome;
pub mod spec;
