//! Endpoints whose feedback counts in data units.
//!
//! A *unit* is a numbered piece of the object. Numbers are dense over the planned ranges, in the
//! order of planning. A retransmission carries the number, the offset and the length of the first
//! transmission under a new packet number. A unit that will not be delivered (revoked, unreadable,
//! or too large for a path whose MTU fell) is *dropped*: the sender notifies the receiver, and
//! plans the bytes that are still wanted again under new numbers.

mod feedback_receiver;
mod feedback_sender;
mod map;
mod order;
mod receiver;
mod sender;
mod wire;

pub(crate) use self::receiver::UnitReceiver;
pub(crate) use self::sender::UnitSender;
