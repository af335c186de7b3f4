//! Joins packets of one TCP connection that are due together into one write, as a receiving network
//! card or its driver does (GRO in the kernel).
//!
//! The rules are those of the kernel: the headers are equal except for the fields that count, the
//! data has no gap, and only the last packet may be shorter or have PSH. No other packets are
//! joined.

use crate::egress::Run;
use crate::header::{self, MAX_HEADER_BYTES, Tcp};

/// Maximum bytes of payload in one write, well below the limit of IP's length.
const MAX_WRITE_PAYLOAD_BYTES: u32 = 60_000;

/// The contents of the next write.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    runs: Vec<Run>,
    /// The first packet as TCP, if others may be joined.
    first: Option<Tcp>,
    payload: u32,
}

impl Batch {
    /// The runs in it.
    pub(crate) fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// Adds `run`, or returns it if it cannot be joined.
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
            && before.marked == run.piece.marked
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

    /// Writes the headers of all runs as one packet to `out` and returns their length.
    pub(crate) fn compose(&self, out: &mut [u8; MAX_HEADER_BYTES]) -> usize {
        let len = self.compose_unmarked(out);
        if let Some(first) = self.runs.first().filter(|run| run.piece.marked) {
            first.piece.packet.layout.mark(&mut out[..len]);
        }
        len
    }

    fn compose_unmarked(&self, out: &mut [u8; MAX_HEADER_BYTES]) -> usize {
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
