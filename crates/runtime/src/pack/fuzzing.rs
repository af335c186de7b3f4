//! Fuzz body for the pack of a deposited session. See [`crate::fuzzing`].

use std::sync::Arc;

use packtrain_object::{CHUNK, Entry, EntryId, EntryKind, Mtime, Piece, RelPath, digest};
use packtrain_transfer::{Failure, FailureKind};
use packtrain_units::Offset;

use super::{Packed, Stream, Unpacked, pieces};

#[derive(Debug)]
struct Memory(Vec<u8>);

impl Stream for Memory {
    fn read(&self, at: u64, room: &mut [u8]) -> Result<(), Failure> {
        let short = || Failure::new(FailureKind::Temporary, "short");
        let at = usize::try_from(at).map_err(|_| short())?;
        let end = at.checked_add(room.len()).ok_or_else(short)?;
        room.copy_from_slice(self.0.get(at..end).ok_or_else(short)?);
        Ok(())
    }

    fn size(&self) -> Result<u64, Failure> {
        Ok(self.0.len() as u64)
    }

    fn said(&self) -> Vec<String> {
        Vec::new()
    }
}

/// A pack is refused, or its manifest can be packed again and every piece that is read has the
/// digest in the pack.
pub fn pack(data: &[u8]) {
    let Ok(unpacked) = Unpacked::open(Arc::new(Memory(data.to_vec()))) else { return };
    let entries: Vec<Entry> = unpacked.batches().flatten().cloned().collect();
    assert!(entries.len() <= data.len());
    assert!(unpacked.sources() <= u32::MAX as usize);
    let again = Packed::new(&entries, 1).expect("what was unpacked can be packed");
    assert!(again.front.len() <= data.len() + 64);
    for (n, entry) in entries.iter().enumerate().take(16) {
        let EntryKind::File { size } = entry.kind else { continue };
        for (at, len) in pieces(size).take(2) {
            let piece = Piece {
                entry: EntryId(n as u32),
                file_offset: at,
                range: Offset(0)..Offset(len),
                whole: size <= CHUNK.get(),
            };
            let mut out = vec![0; len as usize];
            if unpacked.read(&piece, &mut out).is_ok() {
                let sum = [false, true].map(|whole| digest::piece(at, whole, &out).0);
                let there = |sum: &[u8; 32]| data.windows(32).any(|bytes| bytes == sum);
                assert!(sum.iter().any(there), "a piece was taken whose digest never came");
            }
        }
    }
}

/// Seed inputs: packs of small files and of a stream without an end.
pub fn pack_seeds() -> Vec<Vec<u8>> {
    let entry = |name: &str, kind: EntryKind| {
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
    };
    let contents = [&b"some bytes"[..], b"", b"others"];
    let whole = |kinds: [EntryKind; 3]| {
        let endless = kinds[2] == EntryKind::Stream;
        let entries: Vec<Entry> =
            ["a", "b", "c"].into_iter().zip(kinds).map(|(name, kind)| entry(name, kind)).collect();
        let packed = Packed::new(&entries, 1).expect("it can be packed");
        let mut out = packed.front;
        for (n, bytes) in contents.iter().enumerate().filter(|(_, bytes)| !bytes.is_empty()) {
            out.extend(*bytes);
            out.extend(digest::piece(0, !(endless && n == 2), bytes).0);
        }
        out
    };
    let file = |n: usize| EntryKind::File { size: contents[n].len() as u64 };
    vec![
        whole([file(0), file(1), file(2)]),
        whole([file(0), EntryKind::Directory, EntryKind::Stream]),
        whole([file(0), EntryKind::Symlink { target: b"a".to_vec() }, file(2)]),
    ]
}
