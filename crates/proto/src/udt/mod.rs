//! UDT's feedback: a sender and a receiver of numbered data units (Gu and Grossman 2003, section
//! III). No I/O, no codec: the native wire and UDT4's own carry its messages.
//!
//! [`Sender`] returns the units to send (`poll`) and records the sent ones (`on_sent`). [`Receiver`]
//! records the received ones (`check`, `take`, `on_batch`). Both handle messages of the other
//! (`on_message`) and produce messages for it (`poll_message`). Unit numbers are dense and 64 bits
//! wide; codecs shorten them.
//!
//! | file | contents |
//! |---|---|
//! | `sender` | the loss list first, then new units; `flight` has the units in flight, `pace` the pacing, `timers` the timeouts, `hole` a loss under repair, `feedback` the controller's input |
//! | `receiver` | ACK, NAK, warning; `acks` has the ACK timer and the round trip of ACK2, `socket_window` the window where the socket's buffer is small |
//! | `losslist`, `unitset` | the missing units and the times of their requests, at a constant cost per packet |
//! | `arrival`, `pair`, `trend` | arrival speed, bandwidth estimate and delay trend, with offload too (ADR 0017) |

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
pub use receiver::{Receiver, ReceiverConfig, UnitStatus};
pub use sender::{Permit, Sender, SenderConfig};

pub(crate) use pace::Pace;
pub(crate) use sender::{Flight, HostUpdate, signals};
pub(crate) use trend::Trend;
pub(crate) use unitset::UnitSet;

use packtrain_units::Duration;

/// SYN: the interval of ACKs, which is also their maximum delay (section III.A).
const SYN: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests;
