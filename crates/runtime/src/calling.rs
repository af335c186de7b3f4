//! The receiving end of an initiator. Its counterpart is [`source::run_calling`](crate::source::run_calling).

use packtrain_transfer::message::Open;
use packtrain_transfer::{Failure, Outcome, Versions};

use crate::handshake::Call;
use crate::sink::{self, SinkSetup};
use crate::source::Agree;
use crate::transports::Moved;

/// Runs the sink of an initiator to its end. The offer goes with the request, so that the source
/// can probe the path as soon as it has agreed.
///
/// # Errors
/// The responder did not agree: there was no transfer.
pub fn run_sink(
    mut setup: SinkSetup<'_>,
    open: Open,
    agree: Agree<'_>,
) -> Result<(Outcome, Moved), Failure> {
    let call = Call::begin(&setup.control, open);
    setup.transports.bind();
    let agreed = call.wait(&setup.control, &setup.stop)?;
    setup.changed_pieces = agreed.version >= Versions::CHANGED_PIECES;
    setup.transports.agree(agree(agreed));
    Ok(sink::run(setup))
}
