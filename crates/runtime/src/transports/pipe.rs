//! The pipe: payload inside the control connection. Always there, dear: it shares one TCP flow
//! with ssh's own encryption, and everything else waits behind it.

use packtrain_net::limit::RateLimiter;
use packtrain_transfer::TransportId;

use super::mover::{Mover, Tell};
use crate::control::ControlSender;
use crate::reader::Reader;

pub(super) fn start(
    id: TransportId,
    control: ControlSender,
    reader: Reader,
    tell: Tell,
    limiter: Option<RateLimiter>,
) -> Mover {
    Mover::start(id, "pipe", reader, tell, limiter, move |at, slice| {
        control.send_payload(at, slice)
    })
}
