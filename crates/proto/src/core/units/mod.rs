//! Endpoints whose feedback counts in data units.
//!
//! A *unit* is a piece of the object with a number. Numbers are dense over the ranges planned, in
//! the order in which they were planned, and a retransmission carries the number, the offset and
//! the length of the first transmission under a new packet number. What is not to be delivered
//! any more (revoked, unreadable, or too large for a path that has shrunk) is *dropped*: the
//! receiver is told not to wait for these numbers, and what of their bytes is still wanted is
//! planned again under new ones.

mod feedback_receiver;
mod feedback_sender;
mod map;
mod order;
mod receiver;
mod sender;
mod wire;

pub(crate) use self::receiver::UnitReceiver;
pub(crate) use self::sender::UnitSender;
