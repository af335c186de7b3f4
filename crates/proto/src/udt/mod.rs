//! UDT's feedback: a sender and a receiver of numbered data units (Gu and Grossman 2003, section
//! III). No I/O, no codec: the native wire and UDT4's own carry its messages.
//!
//! [`Sender`] says what may leave (`poll`) and is told what left (`on_sent`); [`Receiver`] is told
//! what came (`check`, `take`, `on_batch`). Both take messages of the other (`on_message`) and have
//! some for it (`poll_message`). Unit numbers are dense and 64 bits wide; codecs shorten them.
//!
//! | file | what |
//! |---|---|
//! | `sender` | loss list first, then new units; `flight` is what is under way, `pace` when, `timers` silence, `hole` a loss under repair, `feedback` what the controller is told |
//! | `receiver` | ACK, NAK, warning; `acks` is the ACK timer and ACK2's round trip |
//! | `losslist`, `unitset` | what is missing and when it is asked for again, at a constant cost a packet |
//! | `arrival`, `pair`, `trend` | AS, NB and the delay's trend, under offload too (ADR 0017) |

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

pub use message::{Ack, Impossible, Message, PacketRate};
pub use receiver::{Receiver, ReceiverConfig, Seen};
pub use sender::{Leave, Sender, SenderConfig};

pub(crate) use pace::Pace;
pub(crate) use sender::{Flight, HostNews, signals};
pub(crate) use trend::Trend;
pub(crate) use unitset::UnitSet;

#[cfg(test)]
mod tests;
