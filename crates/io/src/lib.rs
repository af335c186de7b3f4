//! Sockets with offload, pacing, disk and TLS, and the one place that reads a clock or asks for
//! entropy. Everything above is given `now` and seeds.

pub mod clock;
pub mod disk;
pub mod entropy;
pub mod flow;
pub mod limit;
pub mod process;
pub mod relay;
pub mod tcp;
pub mod thread;
pub mod udp;
