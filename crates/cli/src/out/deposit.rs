//! The output of `send` that other commands do not have.

use packtrain_client::store_forward::ClaimTicket;

use super::json_only_copy;
use super::object::Object;

/// Prints the ticket event. It contains the ticket's text only if the ticket is in no file, and a
/// code in place of it if one was asked for.
pub(crate) fn ticket(ticket: &ClaimTicket, text: Option<&str>, code: Option<&str>) {
    let event = Object::event("ticket").with("session", ticket.session());
    let event = event.with("depots", ticket.plan().to_string());
    // Seconds since 1970.
    let event = event.with("expires", ticket.expires().as_millis() / 1000);
    json_only_copy(&event.with_some("ticket", text).with_some("code", code));
}
