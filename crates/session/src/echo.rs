//! Sessions of type echo: the last depot of the route sends the received data back, so that a
//! sender can check whether the depots up to there are alive and relay unchanged data.
//!
//! ```text
//! 0..4    bytes that follow the head, at most 65,536
//! 4..8    flags, of an answer: 1 TCP carries a datagram hop behind this depot
//! 8..16   a number of the sender's, echoed
//! 16..    bytes, echoed
//! ```

/// Bytes of the head.
pub const ECHO_HEAD: usize = 16;
/// Maximum bytes after the head.
pub(crate) const ECHO_MAX: usize = 65_536;
/// Flag: recently no datagram passed from this depot to the next, and TCP carries the hop.
pub const ECHO_FELL_BACK: u32 = 1;

/// The head of a message, in either direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EchoHead {
    /// Number of bytes that follow.
    pub len: u32,
    /// Flags set by the depot.
    pub flags: u32,
    /// The sender's number.
    pub tag: u64,
}

impl EchoHead {
    /// Parses a head; `None` if it announces too many bytes.
    pub fn read(bytes: &[u8; ECHO_HEAD]) -> Option<Self> {
        let word = |at: usize| bytes[at..].first_chunk().map(|b| u32::from_be_bytes(*b));
        let tag = u64::from_be_bytes(*bytes[8..].first_chunk()?);
        let head = Self { len: word(0)?, flags: word(4)?, tag };
        (head.len as usize <= ECHO_MAX).then_some(head)
    }

    /// The encoded head.
    pub fn write(&self) -> [u8; ECHO_HEAD] {
        let mut out = [0; ECHO_HEAD];
        out[..4].copy_from_slice(&self.len.to_be_bytes());
        out[4..8].copy_from_slice(&self.flags.to_be_bytes());
        out[8..].copy_from_slice(&self.tag.to_be_bytes());
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_reads_back_and_is_bounded() {
        let head = EchoHead { len: 65_536, flags: ECHO_FELL_BACK, tag: 1 << 60 };
        assert_eq!(EchoHead::read(&head.write()), Some(head));
        let long = EchoHead { len: 65_537, ..head };
        assert_eq!(EchoHead::read(&long.write()), None);
    }
}
