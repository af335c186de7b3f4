//! Sending to those who come later, and claiming what was sent: the two ends of a session that
//! depots keep.
//!
//! `pack` is the stream that is sealed, `ticket` what a receiver needs, `plan` the depots as they
//! are written, `send` the sender, `fetch` records out of depots, `claim` the receiver, which is a
//! copy whose source is such a session.

mod claim;
mod fetch;
mod line;
mod plan;
mod send;
mod ticket;

pub use claim::{ClaimRequest, claim};
pub use plan::{DepotPlan, PlanError, PlannedDepot};
pub use send::{SendRequest, Sent, send};
pub use ticket::{ClaimTicket, ClaimTicketError};
