//! Where units wait: to be sent and acknowledged, or to be read.

mod recv;
mod send;
mod units;

pub(super) use recv::RecvBuffer;
pub(super) use send::SendBuffer;
