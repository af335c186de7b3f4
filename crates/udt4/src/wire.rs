//! The stock packet format: bytes ([`Packet`]) and their meaning ([`Control`], [`Message`],
//! [`Handshake`]).

mod control;
mod handshake;

pub use control::{Ack, AckDetail, Control, NakRanges, Ranges, Rates};
pub use handshake::{Handshake, Request};
pub(crate) use handshake::{REJECT_MISMATCH, VERSION};

use packtrain_units::SeqNo;

/// Bytes of the header of every packet.
pub(crate) const HEADER_BYTES: usize = 16;

/// The highest message number; numbers wrap to 1, because 0 means none.
pub const MAX_MESSAGE: u32 = (1 << 29) - 1;

const CONTROL_BIT: u32 = 1 << 31;

/// Why bytes are not a valid packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// Shorter than its header or than its type needs.
    #[error("too short")]
    Short,
    /// The body does not consist of whole words, or of the wrong number of them.
    #[error("a body of wrong length")]
    Length,
    /// A field has an invalid value.
    #[error("a value out of range")]
    Value,
    /// An unknown type of control packet.
    #[error("unknown type {0}")]
    Type(u16),
}

/// The bytes of a packet with a complete header.
#[derive(Clone, Copy, Debug)]
pub struct Packet<T: AsRef<[u8]>> {
    buffer: T,
}

impl<T: AsRef<[u8]>> Packet<T> {
    /// The packet in `buffer`, if it contains at least a header.
    ///
    /// # Errors
    /// [`WireError::Short`].
    #[inline]
    pub fn new_checked(buffer: T) -> Result<Self, WireError> {
        if buffer.as_ref().len() < HEADER_BYTES {
            return Err(WireError::Short);
        }
        Ok(Self { buffer })
    }

    #[inline]
    fn word(&self, index: usize) -> u32 {
        let (words, _) = self.buffer.as_ref().as_chunks::<4>();
        words.get(index).map_or(0, |bytes| u32::from_be_bytes(*bytes))
    }

    /// Whether it is a control packet.
    #[inline]
    pub fn is_control(&self) -> bool {
        self.word(0) & CONTROL_BIT != 0
    }

    /// Data: its sequence number.
    #[inline]
    pub fn sequence(&self) -> SeqNo {
        SeqNo::new(self.word(0))
    }

    /// Data: flags and message number.
    #[inline]
    pub fn message(&self) -> Message {
        Message(self.word(1))
    }

    /// Control: type and extension.
    #[inline]
    pub fn kind(&self) -> (u16, u16) {
        let word = self.word(0);
        ((word >> 16) as u16 & 0x7fff, word as u16)
    }

    /// Control: the information word, whose meaning depends on the type.
    #[inline]
    pub fn info(&self) -> u32 {
        self.word(1)
    }

    /// Microseconds since the sender's start, wrapping; stock control packets have 0.
    #[inline]
    pub(crate) fn timestamp(&self) -> u32 {
        self.word(2)
    }

    /// The destination socket id; 0 is the listener.
    #[inline]
    pub fn destination(&self) -> u32 {
        self.word(3)
    }

    /// The bytes after the header.
    #[inline]
    pub fn body(&self) -> &[u8] {
        self.buffer.as_ref().get(HEADER_BYTES..).unwrap_or_default()
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Packet<T> {
    /// Writes the header of a data packet.
    #[inline]
    pub fn set_data(&mut self, sequence: SeqNo, message: Message, time: u32, destination: u32) {
        self.set_words([sequence.get(), message.0, time, destination]);
    }

    /// Writes the header of a control packet.
    #[inline]
    pub(crate) fn set_control(&mut self, kind: (u16, u16), info: u32, time: u32, destination: u32) {
        let first = CONTROL_BIT | u32::from(kind.0 & 0x7fff) << 16 | u32::from(kind.1);
        self.set_words([first, info, time, destination]);
    }

    #[inline]
    fn set_words(&mut self, words: [u32; 4]) {
        let (out, _) = self.buffer.as_mut().as_chunks_mut::<4>();
        for (out, word) in out.iter_mut().zip(words) {
            *out = word.to_be_bytes();
        }
    }
}

/// Second word of a data packet: the position of the packet in its message, whether the message
/// must be delivered in order, and the message's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Message(u32);

impl Message {
    const FIRST: u32 = 1 << 31;
    const LAST: u32 = 1 << 30;
    const ORDER: u32 = 1 << 29;

    /// The word for message `number`, without flags.
    pub const fn new(number: u32) -> Self {
        Self(number & MAX_MESSAGE)
    }

    /// The same number with these flags.
    #[must_use]
    pub const fn with(self, first: bool, last: bool, in_order: bool) -> Self {
        let number = self.0 & MAX_MESSAGE;
        let flags = (first as u32) << 31 | (last as u32) << 30 | (in_order as u32) << 29;
        Self(number | flags)
    }

    /// The message's number.
    pub const fn number(self) -> u32 {
        self.0 & MAX_MESSAGE
    }

    /// Whether the packet is its message's first.
    pub const fn is_first(self) -> bool {
        self.0 & Self::FIRST != 0
    }

    /// Whether the packet is its message's last.
    pub(crate) const fn is_last(self) -> bool {
        self.0 & Self::LAST != 0
    }

    /// Whether the message must not overtake earlier ones.
    pub const fn in_order(self) -> bool {
        self.0 & Self::ORDER != 0
    }

    /// The number after `number`; 0 is skipped.
    pub const fn after(number: u32) -> u32 {
        if number >= MAX_MESSAGE { 1 } else { number + 1 }
    }
}

#[cfg(test)]
pub(super) mod golden;
#[cfg(test)]
mod tests;
