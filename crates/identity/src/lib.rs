//! Identities and rights: this user's key, authorized keys, known hosts, tickets, configuration,
//! and their files.

pub mod authorized;
pub mod config;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
pub mod keys;
pub mod knownhosts;
pub mod pubkey;
pub mod statefile;
pub mod tickets;
mod trusted_file;
