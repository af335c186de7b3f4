//! SABUL's feedback: Mazzucco et al., "Simple Available Bandwidth Utilization Library for
//! High-Speed Wide Area Networks" (2001). Data goes by datagrams; what the receiver has to say of
//! it, its *state*, goes by a channel that loses nothing and keeps the order: TCP. No I/O, no codec.
//!
//! [`Sender`] and [`Receiver`] have the shape of those of [`udt`](crate::udt) and share their
//! parts: what is under way, the pace, the set of units.
//!
//! The sender has two phases (section 4). In the first it sends a *buffer* once and takes note of
//! what was lost; in the second it sends that again, packet by packet in turn with those of the
//! next buffer, if there is one. It never waits for an answer in between.
//!
//! What the paper leaves open, and what is done here:
//!
//! - *A lost retransmission.* A state every 500 packets tells all that is missing, beside the
//!   highest unit that came and how long ago. By that the sender knows up to when its packets had
//!   arrived or were lost when the receiver said so, however late TCP is with it.
//! - *The end of a buffer.* The receiver of the paper knows the length of what comes; here the
//!   sender tells it when it has no more (`Buffer`). What of it has not come when nothing comes any
//!   more is lost like any gap.
//! - *Units that are not to come* (`Drop`), as in the other feedbacks in units.

mod message;
mod receiver;
mod sender;

pub(crate) use message::{Message, State};
pub(crate) use receiver::{MAX_STATE_RANGES, Receiver};
pub(crate) use sender::{Sender, SenderConfig, signals};

#[cfg(test)]
mod tests;
