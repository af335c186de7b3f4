//! Payload inside the control connection. It always works and is slow: it shares one TCP flow with
//! the messages and with ssh's own encryption. So it is used only while nothing else is up.

use packtrain_net::limit::RateLimiter;
use packtrain_transfer::message::MAX_DATA;
use packtrain_units::{ByteCount, Offset};

use super::mover::Sent;
use super::ordered::{Medium, OrderedSource};
use crate::control::ControlSender;
use crate::reader::Slice;

/// The control connection.
pub(super) struct Pipe;

impl Medium for Pipe {
    const NAME: &'static str = "pipe";
    const RANK: u8 = 20;
    const LAST_RESORT: bool = true;

    fn send(&mut self, control: &ControlSender, at: Offset, slice: Slice) -> Sent {
        if control.send_payload(at, slice) { Sent::UnderWay } else { Sent::Over }
    }
}

/// The sending end of the pipe.
pub(super) fn source(limiter: Option<RateLimiter>) -> OrderedSource<Pipe> {
    OrderedSource::new(Pipe, limiter, ByteCount(MAX_DATA as u64))
}
