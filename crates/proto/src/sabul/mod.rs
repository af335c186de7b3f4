//! SABUL's feedback: Mazzucco et al., "Simple Available Bandwidth Utilization Library for
//! High-Speed Wide Area Networks" (2001). Data travels in datagrams. The receiver's *state* travels
//! over a reliable, ordered channel: TCP. No I/O, no codec.
//!
//! [`Sender`] and [`Receiver`] have the interface of those of [`udt`](crate::udt) and share their
//! parts: units in flight, pacing, the set of units.
//!
//! The sender has two phases (section 4). In the first it sends a *buffer* once and records what
//! was lost. In the second it retransmits the losses, alternating packet by packet with those of
//! the next buffer, if there is one. It never waits for an answer in between.
//!
//! The paper leaves open:
//!
//! - *A lost retransmission.* Here a state every 500 packets lists all missing units, with the
//!   highest unit that arrived and its age. From these the sender computes up to which sending time
//!   its packets had arrived or were lost when the receiver sent the state, however late TCP
//!   delivers it.
//! - *The end of a buffer.* The paper's receiver knows the length of the transfer. Here the sender
//!   announces that it has no more (`Buffer`). Units of it that have not arrived when arrivals
//!   cease are lost like any gap.
//! - *Units that will not be sent* (`Drop`), as in the other unit feedbacks.

mod message;
mod receiver;
mod sender;

pub(crate) use message::{Message, State};
pub(crate) use receiver::{MAX_STATE_RANGES, Receiver};
pub(crate) use sender::{Sender, SenderConfig, signals};

#[cfg(test)]
mod tests;
