//! What runs: transfers wired to disks and sockets, the server, the keys.
//!
//! [`api`] is what the command asks and hears; [`cp`], [`serve`], [`perf`], [`keys`] and [`demo`]
//! do it. A transfer's two ends are `source` and `sink`: each drives a state
//! machine of `packtrain-transfer` with threads of its own.

pub mod api;
pub mod authorized;
mod ceilings;
pub mod clean;
pub mod config;
pub mod cp;
pub mod demo;
pub mod deposit;
pub mod depot;
pub mod diagnose;
pub mod forecast;
pub mod history;
pub mod keys;
pub mod knownhosts;
pub mod location;
pub mod perf;
pub mod pubkey;
pub mod serve;
pub mod tickets;
pub mod udt4;
pub mod weburl;

mod address_policy;
mod assembly;
mod confinement;
mod control;
mod end;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod handshake;
mod hop;
mod paths;
mod reader;
mod route;
mod runtime;
mod session;
mod sink;
mod source;
mod ssh;
mod statefile;
mod stores;
mod transports;
mod trusted_file;
mod tunnel;
mod unauthenticated;
mod ways;

/// What a caller that speaks the protocol by itself says of itself in Open: peers of tests.
#[doc(hidden)]
pub fn sample_request(ticket: Option<[u8; 16]>) -> Vec<u8> {
    // One source, and payload on the control connection.
    handshake::Ask { sources: 1, choice: 3, ticket, ..handshake::Ask::default() }.encode()
}

/// What a called end without limits says of itself in Opened: peers of tests.
#[doc(hidden)]
pub fn sample_answer() -> Vec<u8> {
    ceilings::Ceilings::default().encode()
}
