//! The output of `send` that other commands do not have.

use packtrain_client::store_forward::ClaimTicket;
use serde::Serialize;

use super::json_line;

#[derive(Serialize)]
struct Ticket<'a> {
    event: &'static str,
    session: String,
    depots: String,
    /// Seconds since 1970.
    expires: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    ticket: Option<&'a str>,
}

/// Prints the ticket event. It contains the ticket's text only if the ticket is in no file.
pub(crate) fn ticket(ticket: &ClaimTicket, text: Option<&str>) {
    json_line(&Ticket {
        event: "ticket",
        session: ticket.session(),
        depots: ticket.plan().to_string(),
        expires: ticket.expires().as_millis() / 1000,
        ticket: text,
    });
}
