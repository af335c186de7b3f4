//! Reusable memory for receive calls.

use std::net::SocketAddr;

use packtrain_units::Time;

use super::socket::{Drops, Ecn};

/// Maximum size of a coalesced batch (`UDP_GRO`), in bytes.
pub(super) const SLOT: usize = 1 << 16;
/// Maximum number of messages per receive call.
pub(super) const SLOTS: usize = 32;
/// Messages below this size show that the kernel coalesces little, so more messages are requested
/// per call.
const SMALL_MESSAGE_BYTES: usize = 16 << 10;

/// Slots of 64 KiB for the messages of a receive call. Unused slots take no memory.
pub struct RecvSlab {
    pub(super) bytes: Vec<u8>,
    pub(super) slots: Vec<Slot>,
    /// Number of messages that the next call requests.
    pub(super) ask: usize,
}

/// The metadata of a received message.
#[derive(Clone, Copy)]
pub(super) struct Slot {
    pub(super) len: usize,
    pub(super) stride: usize,
    pub(super) from: SocketAddr,
    pub(super) ecn: Option<Ecn>,
    pub(super) received_at: Time,
    pub(super) drops: Drops,
}

/// One or more consecutive datagrams of the same sender.
#[derive(Debug)]
pub struct Message<'a> {
    /// The sender; an IPv4 address is never given as IPv4-mapped IPv6.
    pub from: SocketAddr,
    /// The datagrams, `stride` bytes each; the last may be shorter.
    pub bytes: &'a mut [u8],
    /// Bytes from one datagram to the next; never zero.
    pub stride: usize,
    /// The congestion mark of all these datagrams.
    pub ecn: Option<Ecn>,
    /// When the kernel received the first of them.
    pub received_at: Time,
    /// The socket's drop counter when the message was queued.
    pub drops: Drops,
}

impl RecvSlab {
    /// An empty slab.
    pub fn new() -> Self {
        Self { bytes: vec![0; SLOT * SLOTS], slots: Vec::with_capacity(SLOTS), ask: 2 }
    }

    /// The messages of the last receive call.
    pub fn messages(&mut self) -> impl Iterator<Item = Message<'_>> {
        self.slots.iter().zip(self.bytes.chunks_exact_mut(SLOT)).map(|(slot, bytes)| Message {
            from: slot.from,
            bytes: &mut bytes[..slot.len],
            stride: slot.stride,
            ecn: slot.ecn,
            received_at: slot.received_at,
            drops: slot.drops,
        })
    }

    /// Whether the last call filled the slab, so that more may be pending.
    pub fn was_full(&self) -> bool {
        self.slots.len() >= self.ask
    }

    /// Adapts the number of requested messages to the last call. Large batches are best decrypted
    /// while they are in the cache, small datagrams are best received many at a time.
    pub(super) fn adapt(&mut self) {
        let bytes: usize = self.slots.iter().map(|s| s.len).sum();
        let count = self.slots.len();
        if count == self.ask && bytes < count * SMALL_MESSAGE_BYTES {
            self.ask = (self.ask * 2).min(SLOTS);
        } else if bytes > count * SMALL_MESSAGE_BYTES {
            self.ask = 2;
        }
    }
}

impl Default for RecvSlab {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(slab: &mut RecvSlab, len: usize) {
        let from = SocketAddr::from(([127, 0, 0, 1], 1));
        let (ecn, received_at, drops) = (None, Time::ZERO, Drops(0));
        let slot = Slot { len, stride: len, from, ecn, received_at, drops };
        slab.slots = vec![slot; slab.ask];
    }

    #[test]
    fn small_datagrams_are_fetched_in_larger_calls() {
        let mut slab = RecvSlab::new();
        for _ in 0..6 {
            fill(&mut slab, 1_472);
            assert!(slab.was_full());
            slab.adapt();
        }
        assert_eq!(slab.ask, SLOTS);
        fill(&mut slab, 64_000);
        assert_eq!(slab.messages().count(), SLOTS);
        slab.adapt();
        assert_eq!(slab.ask, 2);
    }
}
