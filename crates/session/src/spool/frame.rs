//! Frames on a connection after the header and the answer, in both directions.
//!
//! ```text
//! 0       1 record, 2 have, 3 refused, 4 get, 5 lack
//! 1       1 if it is the last record, or if all is there; else 0
//! 2..4    0
//! 4..8    length of what follows the 16 bytes
//! 8..16   a record's number, or a number of records
//! 16..    the record, or the answer that refuses
//! ```

use super::record::{RECORD, RECORD_MIN};

/// Bytes of the fixed part of a frame.
pub const FRAME_HEAD: usize = 16;
/// Maximum length of a refusal: an answer's head and text.
const REFUSAL_MAX: u32 = 1024;
/// Maximum records of one request.
const MAX_ASKED_RECORDS: u32 = 1024;

/// A frame's fixed part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame {
    /// A record of this many bytes follows.
    Record {
        /// Its number.
        number: u64,
        /// Whether it is the last one.
        last: bool,
        /// Its length.
        len: u32,
    },
    /// The first `records` records are durable on this depot's disk.
    Have {
        /// Number of records.
        records: u64,
        /// Whether these are all.
        all: bool,
    },
    /// The session is refused: an answer of this many bytes follows.
    Refused {
        /// The answer's length.
        len: u32,
    },
    /// Requests records.
    Get {
        /// The first.
        from: u64,
        /// Number of records; those beyond the last are not sent.
        count: u32,
    },
    /// The requested record, and those after it, are not available (yet).
    Lack {
        /// Number of available records, from the first.
        records: u64,
        /// Whether these are all.
        all: bool,
    },
}

/// The bytes are not a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("what came is no frame of a session that is kept")]
pub struct FrameError;

impl Frame {
    /// The encoded frame.
    pub fn write(&self) -> [u8; FRAME_HEAD] {
        let (kind, flag, len, number) = match *self {
            Self::Record { number, last, len } => (1, last, len, number),
            Self::Have { records, all } => (2, all, 0, records),
            Self::Refused { len } => (3, false, len, 0),
            Self::Get { from, count } => (4, false, count, from),
            Self::Lack { records, all } => (5, all, 0, records),
        };
        let mut out = [0; FRAME_HEAD];
        (out[0], out[1]) = (kind, u8::from(flag));
        out[4..8].copy_from_slice(&len.to_be_bytes());
        out[8..].copy_from_slice(&number.to_be_bytes());
        out
    }

    /// Parses a frame's fixed part; lengths are checked against their limits.
    ///
    /// # Errors
    /// It is invalid.
    pub fn read(bytes: &[u8; FRAME_HEAD]) -> Result<Self, FrameError> {
        let [kind, flag, 0, 0, a, b, c, d, rest @ ..] = *bytes else { return Err(FrameError) };
        let len = u32::from_be_bytes([a, b, c, d]);
        let number = u64::from_be_bytes(rest);
        let last = match flag {
            0 => false,
            1 => true,
            _ => return Err(FrameError),
        };
        let fits = match kind {
            1 if last => (RECORD_MIN as u32..=RECORD as u32).contains(&len),
            1 => len == RECORD as u32,
            2 | 5 => len == 0,
            3 => len <= REFUSAL_MAX && number == 0 && !last,
            4 => (1..=MAX_ASKED_RECORDS).contains(&len) && !last,
            _ => false,
        };
        if !fits {
            return Err(FrameError);
        }
        Ok(match kind {
            1 => Self::Record { number, last, len },
            2 => Self::Have { records: number, all: last },
            3 => Self::Refused { len },
            4 => Self::Get { from: number, count: len },
            _ => Self::Lack { records: number, all: last },
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_frame_is_as_documented() {
        let frame = Frame::Record { number: 258, last: true, len: 1000 };
        let want = [1, 1, 0, 0, 0, 0, 3, 232, 0, 0, 0, 0, 0, 0, 1, 2];
        assert_eq!(frame.write(), want);
        for (frame, kind) in [
            (Frame::Have { records: 7, all: false }, 2),
            (Frame::Refused { len: 14 }, 3),
            (Frame::Get { from: 7, count: 1024 }, 4),
            (Frame::Lack { records: 0, all: true }, 5),
        ] {
            assert_eq!((frame.write()[0], Frame::read(&frame.write())), (kind, Ok(frame)));
        }
    }

    proptest! {
        #[test]
        fn what_is_read_is_within_bounds_and_written_the_same(
            bytes in prop::array::uniform16(any::<u8>()),
            kind in 0u8..7,
            len in 0u32..300_000,
        ) {
            let mut near = bytes;
            (near[0], near[1], near[2], near[3]) = (kind, bytes[1] % 2, 0, 0);
            near[4..8].copy_from_slice(&len.to_be_bytes());
            for bytes in [bytes, near] {
                if let Ok(frame) = Frame::read(&bytes) {
                    prop_assert_eq!(frame.write(), bytes);
                    if let Frame::Record { len, .. } | Frame::Refused { len } = frame {
                        prop_assert!(len as usize <= RECORD);
                    }
                }
            }
        }
    }
}
