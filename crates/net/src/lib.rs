//! The network: UDP sockets with offloads and the thread of a flow over them, TCP and TLS, relays
//! from one connection to another, rate limits.

pub mod flow;
pub mod limit;
pub mod relay;
pub mod tcp;
pub mod udp;
