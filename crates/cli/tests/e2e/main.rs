//! The command end to end: real files, real ssh over loopback, real kills and full disks.
//!
//! Quick tests run with every `cargo test`. Those that need an ssh server, namespaces or time are
//! marked `ignore`, and the reason names who runs them: `cargo xtask test` or `cargo xtask nightly`.
//! A test that cannot run on this machine reports it through `packtrain_testkit::skip`, and fails
//! with `PACKTRAIN_TEST_STRICT=1` or `CI=true`.
#![allow(clippy::disallowed_methods, reason = "tests of a command wait and measure")]

mod accounts;
mod attributes;
mod auto;
mod bootstrap;
mod broken;
mod ceilings;
mod changed;
mod claims;
mod copy;
mod demo;
mod depots;
mod diagnose;
mod documents;
mod emulate;
mod faults;
mod filled;
mod filter_files;
mod flags;
mod hard_links;
mod history;
mod hops;
mod hostile;
mod kill;
mod local;
mod mirror;
mod pipes;
#[path = "../../../history/tests/server/mod.rs"]
mod postgres;
mod proxy;
mod removal;
mod rig;
mod rsync_parity;
mod s3;
mod server;
mod server_access;
mod server_stop;
mod spool;
mod ssh;
#[path = "../../../../xtask/src/sshd.rs"]
mod sshd;
mod stop;
mod streams;
mod tree;
mod udt4;
