//! Packets of one TCP connection that are due together, written as one: what a receiving
//! network card or its driver does when it has several (GRO in the kernel).
//!
//! The rules are those of the kernel: same headers but for what counts on, no gap, only the last
//! may be shorter or want to be pushed. Nothing else is ever joined.

use crate::egress::Run;
use crate::header::{self, MAX_HEADER_BYTES, Tcp};

/// Bytes of payload in one write, well below what IP can say.
const MAX_WRITE_PAYLOAD_BYTES: u32 = 60_000;

/// What the next write takes.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    runs: Vec<Run>,
    /// The first packet as TCP, if others may follow it.
    first: Option<Tcp>,
    payload: u32,
}

impl Batch {
    /// What is in it.
    pub(crate) fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// Adds `run` if it can go with the rest, gives it back otherwise.
    pub(crate) fn add(&mut self, run: Run) -> Result<(), Run> {
        let packet = &run.piece.packet;
        let tcp = Tcp::of(&packet.layout, packet.head());
        if self.runs.is_empty() {
            self.payload = tcp.map_or(0, |tcp| tcp.payload);
            self.first = tcp.filter(|tcp| !tcp.pushed);
            self.runs.push(run);
            return Ok(());
        }
        let (Some(first), Some(tcp)) = (self.first, tcp) else { return Err(run) };
        let before = &self.runs[0].piece;
        let follows = before.wire == run.piece.wire
            && tcp.sequence == first.sequence.wrapping_add(self.payload)
            && tcp.payload <= first.payload
            && self.payload + tcp.payload <= MAX_WRITE_PAYLOAD_BYTES
            && tcp.alike(packet.head(), &first, before.packet.head());
        if !follows {
            return Err(run);
        }
        self.payload += tcp.payload;
        if tcp.pushed || tcp.payload < first.payload {
            self.first = None;
        }
        self.runs.push(run);
        Ok(())
    }

    /// Empties it.
    pub(crate) fn clear(&mut self) -> std::vec::Drain<'_, Run> {
        self.runs.drain(..)
    }

    /// Writes the headers of all as one packet to `out`; returns their length.
    pub(crate) fn compose(&self, out: &mut [u8; MAX_HEADER_BYTES]) -> usize {
        let (Some(first), Some(last)) = (self.runs.first(), self.runs.last()) else { return 0 };
        let piece = &first.piece;
        let packet = &piece.packet;
        if let [one] = &self.runs[..] {
            return packet.layout.compose(
                packet.head(),
                one.piece.from,
                piece.from + piece.count,
                out,
            );
        }
        let last = &last.piece.packet;
        header::join(&packet.layout, packet.head(), self.payload, (&last.layout, last.head()), out)
    }
}

#[cfg(test)]
#[path = "merge_tests.rs"]
mod tests;
