//! Sessions over depots: what a sender says before its first byte, and what a depot answers.
//!
//! A *session* is one byte stream from a sender to a destination over depots that the sender
//! names. On the connection to the first depot a [`Header`] comes first and the stream at once
//! behind it, so that setting up costs no round trip beyond the hops' own; on the way back one
//! [`Answer`] comes before the stream. Each depot passes the header on to the next, with its own
//! number added to the trail; the destination gets the stream and nothing else, and knows nothing
//! of depots.
//!
//! The sender signs everything in a header but the trail, so that each depot knows who asks
//! without asking back. A [`ReplayGuard`] refuses a header that was seen before.
//!
//! Widths are ours where the paper leaves them open (Swany, *Network Logistics*: 128-bit session
//! number, addresses, 16-bit ports, version, type and header length). All numbers are big-endian.

mod address;
mod answer;
mod deposit;
pub mod echo;
mod header;
pub mod hop;
mod id;
pub mod measure;
mod replay;
pub mod spool;

pub use address::{Host, Place, PlaceError};
pub use answer::{ANSWER_HEAD, Answer, AnswerError, Reason, Refusal};
pub use deposit::{Claim, ClaimPurpose, Deposit, Spool};
pub use header::{
    Branch, HEADER_HEAD, Header, HeaderError, Hop, HopTransport, Kind, MAX_HOPS, Next, Session,
};
pub use id::{DepotId, SessionId};
pub use replay::{MAX_CLOCK_OFFSET, ReplayError, ReplayGuard};
