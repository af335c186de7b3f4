//! The files beside a depot's records: the owner of the records, and the number of durable ones.
//!
//! The *head*, written once before the first record:
//!
//! ```text
//! 0..4   "PKSH"      4 version, 1      5 which depot of the chain or tree this is      6..8 0
//! 8..    the sender's header as it came
//! then 8 check sum: the first bytes of SHA-256 of all before
//! ```
//!
//! The *mark* has two slots, 4096 bytes apart so that no block of a disk has both, written in turn:
//! one is whole whatever happens.
//!
//! ```text
//! 0..4   "PKSM"      4 version, 2      5 flags: 1 the last record is there, 2 it is over      6..8 0
//! 8..16  count of marks written      16..24 records that are safe      24..32 bytes that they have
//! 32..48 session     48..56 check sum: the first bytes of SHA-256 of all before
//! ```

use aws_lc_rs::digest::{SHA256, digest};
use packtrain_units::ByteCount;

use super::record::{RECORD, last_record};
use crate::deposit::{Deposit, Spool};
use crate::header::Header;
use crate::id::SessionId;

/// Bytes of a mark.
pub const MARK_LEN: usize = 56;
/// Size of each slot of a mark in its file.
pub const MARK_SLOT: u64 = 4096;
/// Maximum length of a head.
pub const HEAD_MAX: usize = HEAD_FIXED + 4096 + CHECK;

const HEAD_VERSION: u8 = 1;
/// Version 1 had its slots at other positions.
const MARK_VERSION: u8 = 2;
const HEAD_MAGIC: [u8; 4] = *b"PKSH";
const MARK_MAGIC: [u8; 4] = *b"PKSM";
const HEAD_FIXED: usize = 8;
const CHECK: usize = 8;
const ALL: u8 = 1;
const OVER: u8 = 2;

/// The owner of records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// The index of this depot in the chain or tree.
    pub node: u8,
    /// The sender's header.
    pub header: Header,
}

/// The number of durable records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// Counts marks, to identify the newer of two.
    pub count: u64,
    /// Durable records, from the first.
    pub records: u64,
    /// Bytes of these records.
    pub bytes: ByteCount,
    /// Whether the last of them is the session's last.
    pub all: bool,
    /// Whether the session has ended and may be deleted.
    pub over: bool,
}

fn check(bytes: &[u8]) -> [u8; CHECK] {
    let hash = digest(&SHA256, bytes);
    let mut sum = [0; CHECK];
    sum.copy_from_slice(&hash.as_ref()[..CHECK]);
    sum
}

impl Head {
    /// The encoded head.
    pub fn write(&self) -> Vec<u8> {
        let mut out = HEAD_MAGIC.to_vec();
        out.extend([HEAD_VERSION, self.node, 0, 0]);
        out.extend(self.header.write());
        out.extend(check(&out));
        out
    }

    /// Parses a head and verifies its signature; `None` if it is invalid or damaged.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let (body, sum) = bytes.split_last_chunk::<CHECK>()?;
        if bytes.len() > HEAD_MAX || check(body) != *sum {
            return None;
        }
        let (fixed, header) = body.split_first_chunk::<HEAD_FIXED>()?;
        if fixed[..4] != HEAD_MAGIC || fixed[4] != HEAD_VERSION || fixed[6..] != [0, 0] {
            return None;
        }
        let header = Header::read(header).ok().filter(Header::is_signed)?;
        let head = Self { node: fixed[5], header };
        let known = usize::from(head.node) < head.header.session.nodes().len();
        (known && head.deposit().is_some()).then_some(head)
    }

    /// The deposit.
    pub fn deposit(&self) -> Option<&Deposit> {
        match &self.header.session.spool {
            Some(Spool::Deposit(deposit)) => Some(deposit),
            Some(Spool::Claim(_)) | None => None,
        }
    }
}

impl Mark {
    /// The encoded mark.
    pub fn write(&self, session: SessionId) -> [u8; MARK_LEN] {
        let mut out = [0; MARK_LEN];
        out[..4].copy_from_slice(&MARK_MAGIC);
        out[4] = MARK_VERSION;
        out[5] = if self.all { ALL } else { 0 } | if self.over { OVER } else { 0 };
        out[8..16].copy_from_slice(&self.count.to_be_bytes());
        out[16..24].copy_from_slice(&self.records.to_be_bytes());
        out[24..32].copy_from_slice(&self.bytes.get().to_be_bytes());
        out[32..48].copy_from_slice(&session.0);
        let sum = check(&out[..48]);
        out[48..].copy_from_slice(&sum);
        out
    }

    /// Parses a mark of `session`; `None` if it is invalid or damaged.
    pub fn read(session: SessionId, bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.first_chunk::<MARK_LEN>()?;
        let number = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at..at + 8]);
            u64::from_be_bytes(word)
        };
        let sound = bytes[..4] == MARK_MAGIC
            && bytes[4] == MARK_VERSION
            && bytes[5] & !(ALL | OVER) == 0
            && bytes[6..8] == [0, 0]
            && bytes[32..48] == session.0
            && bytes[48..] == check(&bytes[..48]);
        let mark = Self {
            count: number(8),
            records: number(16),
            bytes: ByteCount(number(24)),
            all: bytes[5] & ALL > 0,
            over: bytes[5] & OVER > 0,
        };
        (sound && mark.fits()).then_some(mark)
    }

    /// Whether this number of records can have this number of bytes.
    fn fits(&self) -> bool {
        if self.over {
            return true;
        }
        match (self.records.checked_mul(RECORD as u64), self.all) {
            (None, _) => false,
            (Some(whole), false) => whole == self.bytes.get(),
            (Some(_), true) => {
                last_record(self.bytes).is_some_and(|(last, _)| last + 1 == self.records)
            }
        }
    }
}

/// The newer valid mark of the two in a file.
pub fn newest(session: SessionId, file: &[u8]) -> Option<Mark> {
    let slots = [file.get(..MARK_LEN), file.get(MARK_SLOT as usize..)];
    let marks = slots.into_iter().flatten().filter_map(|slot| Mark::read(session, slot));
    marks.max_by_key(|mark| mark.count)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SESSION: SessionId = SessionId([4; 16]);

    #[test]
    fn a_mark_is_as_documented() {
        let bytes = ByteCount(2 * RECORD as u64);
        let mark = Mark { count: 3, records: 2, bytes, all: false, over: false };
        let written = mark.write(SESSION);
        assert_eq!(&written[..8], b"PKSM\x02\x00\x00\x00");
        assert_eq!(&written[8..32], [3u64, 2, 524_288].map(u64::to_be_bytes).concat());
        assert_eq!(Mark::read(SESSION, &written), Some(mark));
        assert_eq!(Mark::read(SessionId([5; 16]), &written), None, "another session's");
        let wrong = Mark { bytes: ByteCount(1), ..mark };
        assert_eq!(Mark::read(SESSION, &wrong.write(SESSION)), None, "what cannot be");
    }

    proptest! {
        /// A mark that is being written when the machine stops does not damage the other one.
        #[test]
        fn of_two_marks_one_is_always_whole(records in 0u64..1000, torn in 0usize..MARK_LEN) {
            let mark = |n: u64| {
                let bytes = ByteCount(n * RECORD as u64);
                Mark { count: n, records: n, bytes, ..Mark::default() }
            };
            let mut file = vec![0; 2 * MARK_SLOT as usize];
            for n in 0..=records {
                let at = (n % 2) as usize * MARK_SLOT as usize;
                file[at..at + MARK_LEN].copy_from_slice(&mark(n).write(SESSION));
            }
            prop_assert_eq!(newest(SESSION, &file), Some(mark(records)));
            let next = mark(records + 1).write(SESSION);
            let at = ((records + 1) % 2) as usize * MARK_SLOT as usize;
            file[at..at + torn].copy_from_slice(&next[..torn]);
            let found = newest(SESSION, &file);
            prop_assert!(found == Some(mark(records)) || found == Some(mark(records + 1)));
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..1100)) {
            let _ = newest(SESSION, &bytes);
            prop_assert_eq!(Head::read(&bytes), None);
        }
    }
}
