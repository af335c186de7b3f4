//! The two ends of a kept session: `send` deposits data at depots, `claim` fetches it later.
//!
//! `pack` is the encrypted stream, `ticket` what a receiver needs, `code` its short form, `plan` the depots, `send` the
//! sender. `fetch` gets records from depots. `claim` is the receiver: a copy whose source is a kept
//! session.

mod claim;
mod code;
mod depot_connection;
mod fetch;
mod plan;
mod send;
mod ticket;

pub use claim::{ClaimRequest, claim};
pub use code::{ClaimCode, ClaimCodeError};
pub use plan::{DepotPlan, PlanError, PlannedDepot};
pub use send::{SendRequest, Sent, send};
pub use ticket::{ClaimTicket, ClaimTicketError};
