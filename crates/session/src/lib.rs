//! Sessions over depots: the header of a sender, and the answer of a depot.
//!
//! A *session* is one byte stream from a sender to a destination over depots that the sender names.
//! On the connection to the first depot a [`Header`] comes first and the stream immediately after
//! it, so that setup costs no round trip beyond those of the hops; in the other direction one
//! [`Answer`] precedes the stream. Each depot forwards the header to the next, with its own number
//! appended to the trail. The destination receives only the stream and knows nothing of depots.
//!
//! The sender signs everything in a header except the trail, so that each depot can authenticate
//! the sender without a further message. A [`ReplayGuard`] refuses a header that was seen before.
//!
//! Field widths are ours where the paper leaves them open (Swany, *Network Logistics*: 128-bit
//! session number, addresses, 16-bit ports, version, type and header length). All numbers are
//! big-endian.

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
