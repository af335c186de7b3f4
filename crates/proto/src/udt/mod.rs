//! UDT's feedback: a sender and a receiver of numbered data units (Gu and Grossman 2003, section
//! III). No I/O, no codec: the native wire and UDT4's own carry its messages.

// The wires that use it land apart from it.
#![allow(dead_code, unused_imports)]

mod arrival;
pub(crate) mod drill;
mod losslist;
mod message;
mod pace;
mod pair;
mod receiver;
mod sender;
mod trend;
mod unitset;

pub(crate) use message::{Ack, Impossible, Message, PacketRate};
pub(crate) use receiver::{MOST_RANGES, Receiver, ReceiverConfig, Seen};
pub(crate) use sender::{Leave, Sender, SenderConfig, signals};
pub(crate) use trend::Trend;

#[cfg(test)]
mod tests;
