//! The pack: the stream of a deposited session before encryption.
//!
//! ```text
//! "PKPK"  1 version, 1  3 zeros  4 number of sources (BE)
//! segments of the manifest, each 4 bytes of length (BE) and the segment; then 4 zeros
//! for each entry with content, in the manifest's order, for each of its pieces of at most 4 MiB:
//!     the piece's bytes, 32 bytes its digest
//! ```
//!
//! The position of each piece follows from the manifest alone. A piece that the sender could not
//! read is zeros, and so is its digest. A stream of unknown length is the last entry and extends to
//! the end.

#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;

use std::fmt;
use std::sync::Arc;

use packtrain_object::manifest::fitting;
use packtrain_object::{
    CHUNK, Entry, EntryId, EntryKind, MAX_SEGMENT_BYTES, Piece, decode_segment, digest,
    encode_segment,
};
use packtrain_transfer::{Failure, FailureKind};

const MAGIC: [u8; 4] = *b"PKPK";
const VERSION: u8 = 1;
/// Bytes before the manifest.
const HEAD: u64 = 12;
/// Bytes of a digest.
pub const DIGEST: u64 = 32;
/// Entries passed on at once.
const BATCH: usize = 1024;

/// Positions of entries in the pack.
#[derive(Clone, Debug, Default)]
pub(crate) struct Places {
    /// Position of the first piece of each entry.
    starts: Vec<u64>,
    end: u64,
    stream: Option<EntryId>,
}

impl Places {
    fn begin(at: u64) -> Self {
        Self { end: at, ..Self::default() }
    }

    fn push(&mut self, entry: &Entry) -> Option<()> {
        self.starts.push(self.end);
        match entry.kind {
            // No entry with content can follow one without a known end.
            EntryKind::File { size: 1.. } | EntryKind::Stream if self.stream.is_some() => {
                return None;
            }
            EntryKind::File { size } => self.end = self.end.checked_add(packed(size)?)?,
            EntryKind::Stream => self.stream = Some(EntryId(self.starts.len() as u32 - 1)),
            EntryKind::Directory | EntryKind::Symlink { .. } => {}
        }
        Some(())
    }

    /// Position of the piece at `offset` of an entry.
    fn at(&self, entry: EntryId, offset: u64) -> Option<u64> {
        let start = *self.starts.get(entry.index())?;
        let before = (offset / CHUNK.get()).checked_mul(CHUNK.get() + DIGEST)?;
        start.checked_add(before)
    }
}

/// Bytes that a file of this size takes in the pack.
fn packed(size: u64) -> Option<u64> {
    size.checked_add(size.div_ceil(CHUNK.get()).checked_mul(DIGEST)?)
}

/// Size of a stream whose pieces and digests take this many bytes.
fn unpacked(packed: u64) -> Option<u64> {
    let (whole, rest) = (packed / (CHUNK.get() + DIGEST), packed % (CHUNK.get() + DIGEST));
    match rest {
        0 => Some(whole * CHUNK.get()),
        rest if rest <= DIGEST => None,
        rest => Some(whole * CHUNK.get() + rest - DIGEST),
    }
}

/// The layout of a pack at the sender: the encoded manifest, and the files that follow it.
#[derive(Debug)]
pub struct Packed {
    /// The bytes before the data of the files.
    pub front: Vec<u8>,
    /// Entries with content, and their sizes.
    pub files: Vec<(EntryId, u64)>,
    /// The entry of unknown length.
    pub stream: Option<EntryId>,
    /// Length of the pack in bytes; none with a stream.
    pub len: Option<u64>,
}

impl Packed {
    /// The pack of these entries, which come from this many sources.
    pub fn new(entries: &[Entry], sources: u32) -> Option<Self> {
        let mut front = MAGIC.to_vec();
        front.extend([VERSION, 0, 0, 0]);
        front.extend(sources.to_be_bytes());
        let (mut first, mut rest) = (0, entries);
        while !rest.is_empty() {
            let (now, behind) = rest.split_at(fitting(rest));
            let segment = encode_segment(EntryId(first), now);
            front.extend((segment.len() as u32).to_be_bytes());
            front.extend(segment);
            first += u32::try_from(now.len()).ok()?;
            rest = behind;
        }
        front.extend([0; 4]);
        let mut places = Places::begin(front.len() as u64);
        entries.iter().try_for_each(|entry| places.push(entry))?;
        let files = entries.iter().enumerate().filter_map(|(n, entry)| match entry.kind {
            EntryKind::File { size } if size > 0 => Some((EntryId(n as u32), size)),
            _ => None,
        });
        let len = places.stream.is_none().then_some(places.end);
        Some(Self { files: files.collect(), stream: places.stream, len, front })
    }

    /// Digest of the manifest. With it a retry checks that it sends the same pack.
    pub fn digest(&self) -> [u8; 32] {
        *blake3::hash(&self.front).as_bytes()
    }
}

/// The pieces of a file of this size: offset and length.
pub fn pieces(size: u64) -> impl Iterator<Item = (u64, u64)> {
    let step = CHUNK.get();
    (0..size.div_ceil(step)).map(move |n| (n * step, step.min(size - n * step)))
}

/// Reads the pack from any position; blocks until the data has arrived.
pub trait Stream: fmt::Debug + Send + Sync {
    /// Fills `room` from position `at` on.
    fn read(&self, at: u64, room: &mut [u8]) -> Result<(), Failure>;
    /// The length of the pack; blocks until it is known.
    fn size(&self) -> Result<u64, Failure>;
    /// Notices for the user.
    fn said(&self) -> Vec<String>;
}

/// A pack at the receiver: the manifest, and access to the pieces.
#[derive(Clone, Debug)]
pub struct Unpacked {
    stream: Arc<dyn Stream>,
    entries: Arc<Vec<Entry>>,
    places: Arc<Places>,
    sources: u32,
}

fn broken(text: &str) -> Failure {
    Failure::new(FailureKind::Integrity, format!("the session holds something else: {text}"))
}

impl Unpacked {
    /// Reads the manifest.
    pub fn open(stream: Arc<dyn Stream>) -> Result<Self, Failure> {
        let mut head = [0; HEAD as usize];
        stream.read(0, &mut head)?;
        if head[..5] != [&MAGIC[..], &[VERSION]].concat() {
            return Err(broken("nothing that this version reads"));
        }
        let sources = u32::from_be_bytes([head[8], head[9], head[10], head[11]]);
        let mut at = HEAD;
        let mut entries = Vec::new();
        loop {
            let mut len = [0; 4];
            stream.read(at, &mut len)?;
            let len = u32::from_be_bytes(len) as usize;
            at += 4;
            if len == 0 {
                break;
            }
            if len > MAX_SEGMENT_BYTES {
                return Err(broken("a segment of the manifest is too long"));
            }
            let mut segment = vec![0; len];
            stream.read(at, &mut segment)?;
            at += len as u64;
            let (first, some) = decode_segment(&segment).map_err(|e| broken(&e.to_string()))?;
            if first.index() != entries.len() {
                return Err(broken("a segment of the manifest is not where it should be"));
            }
            entries.extend(some);
        }
        let mut places = Places::begin(at);
        entries.iter().try_for_each(|entry| places.push(entry)).ok_or_else(|| broken("sizes"))?;
        if let Some(id) = places.stream {
            // The end of the stream is known by now, so it becomes a file of known size.
            let start = places.at(id, 0).unwrap_or(places.end);
            let rest = stream.size()?.checked_sub(start);
            let size = rest.and_then(unpacked).ok_or_else(|| broken("a length"))?;
            entries[id.index()].kind = EntryKind::File { size };
        }
        let (entries, places) = (Arc::new(entries), Arc::new(places));
        Ok(Self { stream, entries, places, sources })
    }

    /// Number of sources that the sender named.
    pub fn sources(&self) -> usize {
        self.sources as usize
    }

    /// The entries in batches.
    pub(crate) fn batches(&self) -> impl Iterator<Item = &[Entry]> {
        self.entries.chunks(BATCH)
    }

    /// Reads a piece and checks its digest.
    pub(crate) fn read(&self, piece: &Piece, out: &mut [u8]) -> Result<(), Failure> {
        let entry = self.entries.get(piece.entry.index());
        let path = || {
            entry.map_or_else(String::new, |e| packtrain_service::paths::show(e.path.as_bytes()))
        };
        let at = self.places.at(piece.entry, piece.file_offset).ok_or_else(|| broken("a place"))?;
        self.stream.read(at, out)?;
        let mut sum = [0; DIGEST as usize];
        self.stream.read(at + out.len() as u64, &mut sum)?;
        if sum == [0; DIGEST as usize] {
            let text = format!("{}: its sender could not read it", path());
            return Err(Failure::new(FailureKind::Unreadable, text));
        }
        // The sender of a stream did not know whether its first piece is the whole.
        let whole = piece.whole && self.places.stream != Some(piece.entry);
        if digest::piece(piece.file_offset, whole, out).0 != sum {
            let text = format!("{}: changed while it was sent, or damaged", path());
            return Err(Failure::new(FailureKind::Integrity, text));
        }
        Ok(())
    }

    /// Notices for the user.
    pub(crate) fn said(&self) -> Vec<String> {
        self.stream.said()
    }
}

#[cfg(test)]
mod tests {
    use packtrain_object::{Mtime, RelPath};
    use packtrain_units::Offset;
    use proptest::prelude::*;

    use super::*;

    #[derive(Debug)]
    struct Bytes(Vec<u8>);

    impl Stream for Bytes {
        fn read(&self, at: u64, room: &mut [u8]) -> Result<(), Failure> {
            let end = (at as usize).saturating_add(room.len());
            let bytes = self.0.get(at as usize..end).ok_or_else(|| broken("short"))?;
            room.copy_from_slice(bytes);
            Ok(())
        }

        fn size(&self) -> Result<u64, Failure> {
            Ok(self.0.len() as u64)
        }

        fn said(&self) -> Vec<String> {
            Vec::new()
        }
    }

    fn entry(name: &str, kind: EntryKind) -> Entry {
        let path = RelPath::new(name.as_bytes().to_vec()).expect("a path");
        Entry {
            path,
            kind,
            mode: 0o644,
            mtime: Mtime { secs: 1, nanos: 2 },
            uid: 0,
            gid: 0,
            extras: Default::default(),
        }
    }

    /// The complete pack of these files.
    fn pack(contents: &[Vec<u8>], stream: bool) -> Vec<u8> {
        let last = contents.len() - 1;
        let entries: Vec<Entry> = contents
            .iter()
            .enumerate()
            .map(|(n, bytes)| {
                let file = EntryKind::File { size: bytes.len() as u64 };
                let kind = if stream && n == last { EntryKind::Stream } else { file };
                entry(&format!("f{n}"), kind)
            })
            .collect();
        let packed = Packed::new(&entries, 3).expect("it can be packed");
        let mut out = packed.front.clone();
        for (n, bytes) in contents.iter().enumerate() {
            for (at, len) in pieces(bytes.len() as u64) {
                let piece = &bytes[at as usize..(at + len) as usize];
                let whole = bytes.len() as u64 <= CHUNK.get() && !(stream && n == last);
                out.extend(piece);
                out.extend(digest::piece(at, whole, piece).0);
            }
        }
        assert_eq!(packed.len, (!stream).then_some(out.len() as u64));
        out
    }

    fn piece_of(n: usize, at: u64, len: u64, size: u64) -> Piece {
        Piece {
            entry: EntryId(n as u32),
            file_offset: at,
            range: Offset(0)..Offset(len),
            whole: size <= CHUNK.get(),
        }
    }

    #[test]
    fn nothing_with_content_follows_what_has_no_end() {
        let stream = || entry("a", EntryKind::Stream);
        for kind in [EntryKind::Stream, EntryKind::File { size: 1 }] {
            let entries = [stream(), entry("b", kind)];
            assert!(Packed::new(&entries, 1).is_none());
            // A peer that sends this anyway is refused, because the length of the second stream
            // would be unknown.
            let segment = encode_segment(EntryId(0), &entries);
            let mut bytes = [&b"PKPK\x01\0\0\0\0\0\0\x01"[..]].concat();
            bytes.extend((segment.len() as u32).to_be_bytes());
            bytes.extend(segment);
            bytes.extend([0; 4 + 100]);
            let opened = Unpacked::open(Arc::new(Bytes(bytes)));
            assert_eq!(opened.err().map(|failure| failure.kind), Some(FailureKind::Integrity));
        }
        let empty = entry("b", EntryKind::File { size: 0 });
        assert!(Packed::new(&[stream(), empty], 1).is_some());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn what_is_packed_is_unpacked(
            sizes in prop::collection::vec(prop_oneof![0usize..300, (4usize << 20) - 2..(8 << 20) + 3], 1..4),
            stream: bool,
            flip: prop::sample::Index,
        ) {
            let fill = |(n, size): (usize, usize)| (0..size).map(|at| (at * 7 + n) as u8).collect();
            let contents: Vec<Vec<u8>> = sizes.into_iter().enumerate().map(fill).collect();
            let bytes = pack(&contents, stream);
            let unpacked = Unpacked::open(Arc::new(Bytes(bytes.clone()))).expect("it opens");
            prop_assert_eq!(unpacked.sources(), 3);
            let entries: Vec<Entry> = unpacked.batches().flatten().cloned().collect();
            prop_assert_eq!(entries.len(), contents.len());
            let check = |unpacked: &Unpacked| -> Result<bool, Failure> {
                for (n, want) in contents.iter().enumerate() {
                    let size = want.len() as u64;
                    for (at, len) in pieces(size) {
                        let mut out = vec![0; len as usize];
                        unpacked.read(&piece_of(n, at, len, size), &mut out)?;
                        if out != want[at as usize..(at + len) as usize] {
                            return Ok(false);
                        }
                    }
                }
                Ok(true)
            };
            for (entry, want) in entries.iter().zip(&contents) {
                let size = want.len() as u64;
                prop_assert_eq!(&entry.kind, &EntryKind::File { size });
            }
            prop_assert_eq!(check(&unpacked).ok(), Some(true));
            // Damaged data must never pass as the sent data.
            let mut bad = bytes;
            let at = flip.index(bad.len());
            bad[at] ^= 1;
            let same = |unpacked: &Unpacked| {
                unpacked.batches().flatten().zip(&entries).all(|(a, b)| a == b)
            };
            if let Ok(unpacked) = Unpacked::open(Arc::new(Bytes(bad))) && same(&unpacked) {
                prop_assert!(!matches!(check(&unpacked), Ok(false)));
            }
        }

        #[test]
        fn any_bytes_are_unpacked_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let head = [&b"PKPK\x01\0\0\0\0\0\0\x01"[..], &bytes].concat();
            for bytes in [bytes, head] {
                let _ = Unpacked::open(Arc::new(Bytes(bytes)));
            }
        }
    }
}
