//! The network: UDP sockets with offloads and the network thread of a flow, TCP and TLS, relays
//! between connections, rate limits.

pub mod flow;
pub mod limit;
pub mod relay;
pub mod tcp;
pub mod udp;
