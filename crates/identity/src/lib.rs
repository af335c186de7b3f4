//! Who is who: this user's key, keys that are let in, hosts that are known, tickets, and the files
//! that hold them.

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
