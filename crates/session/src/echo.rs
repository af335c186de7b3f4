//! Sessions of type echo: the last depot of the route sends back what it gets, so that a sender
//! learns whether the depots up to there are alive and whether they change what goes through.
//!
//! ```text
//! 0..4    bytes that follow the head, at most 65,536
//! 4..8    flags, of an answer: 1 a datagram hop behind this depot goes by TCP
//! 8..16   a number of the sender's, sent back
//! 16..    bytes, sent back
//! ```

/// Bytes of the head.
pub const ECHO_HEAD: usize = 16;
/// The most bytes behind it.
pub const ECHO_MAX: usize = 65_536;
/// Flag: no datagram got through from this depot to the next lately, and TCP carries the hop.
pub const ECHO_FELL_BACK: u32 = 1;

/// The head of a message, there or back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EchoHead {
    /// Bytes that follow.
    pub len: u32,
    /// What the depot has to say.
    pub flags: u32,
    /// The sender's number.
    pub tag: u64,
}

impl EchoHead {
    /// Reads one; none if it announces more than there may be.
    pub fn read(bytes: &[u8; ECHO_HEAD]) -> Option<Self> {
        let word = |at: usize| bytes[at..].first_chunk().map(|b| u32::from_be_bytes(*b));
        let tag = u64::from_be_bytes(*bytes[8..].first_chunk()?);
        let head = Self { len: word(0)?, flags: word(4)?, tag };
        (head.len as usize <= ECHO_MAX).then_some(head)
    }

    /// Its bytes.
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
