//! The pipe: payload inside the control connection. Always there, dear: it shares one TCP flow
//! with ssh's own encryption, and everything else waits behind it.

use packtrain_transfer::TransportId;
use packtrain_units::DataRate;

use super::mover::{Mover, Tell};
use crate::control::ControlSender;
use crate::reader::Reader;

pub(super) fn start(
    id: TransportId,
    control: ControlSender,
    reader: Reader,
    tell: Tell,
    rate: Option<DataRate>,
) -> Mover {
    Mover::start(id, "pipe", reader, tell, rate, move |at, slice| control.send_payload(at, slice))
}
