//! TCP, and TLS over it: connecting over both address families, listening in a range of ports,
//! `TCP_INFO`, and mutual authentication by keys.

pub mod connect;
pub mod failure;
pub mod info;
pub mod key;
pub mod listen;
pub mod tls;
pub mod tune;

mod sys;

pub use connect::{ConnectError, ConnectOptions, connect, connect_any, lookup};
pub use failure::describe;
pub use info::{TcpInfo, tcp_info};
pub use key::{Identity, KeyError, PublicKey};
pub use listen::{listen, listen_in};
