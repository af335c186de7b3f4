//! The ticket of a send: that of an earlier try, or a new one.

use packtrain_identity::statefile;
use packtrain_net::tcp::Identity;
use packtrain_os::{clock, entropy};
use packtrain_runtime::pack::Packed;
use packtrain_service::RequestError;
use packtrain_session::spool::sealed_len;
use packtrain_transfer::FailureKind;
use packtrain_units::ByteCount;

use super::SendRequest;
use crate::store_forward::code::{ClaimCode, Keys};
use crate::store_forward::ticket::{Body, ClaimTicket};

/// The existing ticket if it is for the same files, or a new one, written before data is sent.
pub(super) fn ticket(
    request: &SendRequest,
    packed: &Packed,
    identity: &Identity,
) -> Result<ClaimTicket, RequestError> {
    let usage = |text: String| RequestError::new(FailureKind::Usage, text);
    let path = request.ticket.as_deref();
    let shown = path.map(|path| path.display().to_string()).unwrap_or_default();
    let failed = |e: std::io::Error| usage(format!("{shown}: {e}; choose another"));
    if let Some(text) = path.map(statefile::read).transpose().map_err(failed)?.flatten() {
        let ticket: ClaimTicket = text.parse().map_err(|e| usage(format!("{shown}: {e}")))?;
        let body = &ticket.body;
        if packed.stream.is_some() {
            let text = "standard input cannot be sent from where an earlier run ended";
            return Err(usage(format!("{shown} is there already: {text}; choose another")));
        }
        if body.manifest != packed.digest() || body.sender != identity.public().0 {
            let text = "it is of other files, or they have changed since: choose another";
            return Err(usage(format!("{shown} is there already: {text}")));
        }
        if ticket.plan != request.plan {
            let text = format!("is of a session over {}: name the same depots", ticket.plan);
            return Err(usage(format!("{shown} {text}")));
        }
        return Ok(ticket);
    }
    let size = packed.len.map(|len| {
        sealed_len(ByteCount(len)).ok_or_else(|| usage("more than a session can hold".into()))
    });
    let random = || Keys {
        session: entropy::bytes(),
        capability: entropy::bytes(),
        content: entropy::bytes(),
    };
    let Keys { session, capability, content } =
        request.code.as_ref().map_or_else(random, ClaimCode::keys);
    let body = Body {
        session,
        capability,
        content,
        sender: identity.public().0,
        made: clock::wall().as_millis(),
        keep: u32::try_from(request.keep.as_millis() / 1000).unwrap_or(u32::MAX),
        size: size.transpose()?.map(ByteCount::get),
        manifest: packed.digest(),
    };
    let ticket = ClaimTicket::new(body, request.plan.clone());
    if let Some(path) = path {
        ticket.write(path).map_err(failed)?;
    }
    Ok(ticket)
}
