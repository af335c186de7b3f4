//! Send and receive buffers of units.

mod recv;
mod send;
mod units;

pub(super) use recv::RecvBuffer;
pub(super) use send::SendBuffer;
