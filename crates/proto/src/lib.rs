//! Datagram transports without I/O: senders, receivers, recovery, pacing, codecs.
//!
//! A [`Flow`] is one end of a transport that moves byte ranges of one object over UDP. It reads no
//! clock, opens no socket and starts no thread. Its driver passes received datagrams to
//! [`Flow::handle`], sends what [`Flow::poll_transmit`] returns, calls back at
//! [`Flow::poll_timeout`], and reads events from [`Flow::poll_event`].
//!
//! Inside, the *core* works with frames and trains and has no access to bytes or keys. The *codec*
//! seals and opens packets. State is kept per train of up to 44 packets, so the work per packet
//! stays constant at any loss.
//!
//! [`bare`] is the same core without a codec, for simulators.
//!
//! Invalid peer input is counted and dropped, or closes the flow with a reason. A panic means a
//! bug.

pub mod bare;
mod breaker;
mod codec;
mod config;
mod core;
mod dispersion;
mod ecn;
mod feedback;
mod flow;
mod fobs;
mod life;
mod mtu;
mod pacer;
mod path;
mod qlog;
mod sabul;
mod sealing;
mod seam;
mod secrets;
mod stats;
#[cfg(test)]
mod test_network;
pub mod udt;

pub use crate::core::loss_attribution::judge;
pub use codec::header::peek;
pub use config::{FeedbackKind, FlowConfig, FlowError, FlowKeys, Role, Suite, TrainTarget, limits};
pub use flow::Flow;
pub use packtrain_cc::LossWindow;
pub use packtrain_cc::udt::Variant;
pub use seam::{
    BATCH_BYTES, CloseReason, Datagrams, Event, Fill, Payload, Placed, Placement, TRAIN_PACKETS,
    Transmit,
};
pub use stats::{FlowStats, Limit, LossTally};

/// Parsers behind the authentication, for fuzzers, and internals for measurements.
#[doc(hidden)]
pub mod fuzzing {
    use crate::codec::frame::{self, Frame};
    use crate::udt::Message;

    /// Parses SABUL messages from a stream and writes them again.
    ///
    /// # Panics
    /// If a written message does not parse to the same message.
    pub fn reliable(bytes: &[u8]) {
        use crate::codec::reliable::{Stream, write};
        let mut read = Vec::new();
        let _ = Stream::default().take(bytes, |message, host| read.push((message, host)));
        for (message, host) in read {
            let mut again = Vec::new();
            let bytes = write(&message, &host);
            let told = Stream::default().take(&bytes, |m, h| again.push((m, h)));
            assert!(told.is_ok());
            assert_eq!(again, [(message, host)]);
        }
    }

    /// Parses the plaintext of a control packet and writes it again; parses the number of a data
    /// unit.
    ///
    /// # Panics
    /// If a written frame does not parse to the same frame.
    pub fn frames(text: &[u8]) {
        for frame in frame::parse(text).iter().flatten() {
            let mut out = Vec::new();
            frame::write(frame, &mut out);
            match frame {
                // Unit feedback must round-trip exactly.
                Frame::Unit(Message::Nak { ranges }) => {
                    assert_eq!(&frame::nak_pieces(ranges).concat(), ranges);
                    assert_eq!(frame::parse(&out).as_deref(), Some(std::slice::from_ref(frame)));
                }
                Frame::Unit(_)
                | Frame::Ack { .. }
                | Frame::Bitmap { .. }
                | Frame::BitmapRequest { .. } => {
                    assert_eq!(frame::parse(&out).as_deref(), Some(std::slice::from_ref(frame)));
                }
                _ => {}
            }
        }
        if let Some((unit, rest)) = crate::codec::unit::split(text, 1 << 40) {
            let out = [&crate::codec::unit::write(unit)[..], rest].concat();
            assert_eq!(out, text);
        }
    }

    pub use crate::udt::drill::losses as udt_losses;
}
