//! Both ends of a transfer at the level of the object: a tree becomes a manifest, the other end
//! computes the same layout, pieces arrive in any order, the journal records them, digests agree.

use std::collections::BTreeMap;

use packtrain_object::{
    CHUNK, ChunkIndex, Digest, Entry, EntryId, EntryKind, FileKey, JournalState, Layout, Mtime,
    Piece, Record, RelPath, decode_segment, digest, encode_segment, journal, manifest,
};
use packtrain_units::{Offset, RangeSet, Rng};
use proptest::prelude::*;

fn tree(sizes: &[u64]) -> Vec<Entry> {
    let entry = |path: String, kind| Entry {
        path: RelPath::new(path.into_bytes()).unwrap(),
        kind,
        mode: 0o640,
        mtime: Mtime { secs: 1_750_000_000, nanos: 5 },
        uid: 1,
        gid: 2,
        extras: Default::default(),
    };
    let mut entries = vec![entry("tree".to_owned(), EntryKind::Directory)];
    for (i, &size) in sizes.iter().enumerate() {
        entries.push(entry(format!("tree/file-{i:04}"), EntryKind::File { size }));
    }
    entries
}

fn contents(id: EntryId, size: u64) -> Vec<u8> {
    let mut rng = Rng::new(u64::from(id.0));
    let words = (0..size.div_ceil(8)).flat_map(|_| rng.next_u64().to_le_bytes());
    words.take(size as usize).collect()
}

/// The layout of segments, with their entries.
fn lay_out(segments: &[Vec<u8>]) -> (Layout, Vec<Entry>) {
    let (mut layout, mut all) = (Layout::new(), Vec::new());
    for segment in segments {
        let (first, entries) = decode_segment(segment).unwrap();
        assert_eq!(first.index(), all.len());
        for entry in entries {
            layout.try_push(EntryId(all.len() as u32), &entry.kind).unwrap();
            all.push(entry);
        }
    }
    (layout, all)
}

fn segments(mut entries: &[Entry], step: usize) -> Vec<Vec<u8>> {
    let (mut segments, mut id) = (Vec::new(), 0);
    while !entries.is_empty() {
        let n = manifest::fitting(entries).min(step);
        segments.push(encode_segment(EntryId(id), &entries[..n]));
        entries = &entries[n..];
        id += n as u32;
    }
    segments
}

fn slice<'a>(data: &'a BTreeMap<EntryId, Vec<u8>>, piece: &Piece) -> &'a [u8] {
    &data[&piece.entry][piece.file_offset as usize..][..piece.size().get() as usize]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn a_tree_arrives_in_any_order_and_is_what_it_was(
        sizes in prop::collection::vec(prop_oneof![
            4 => 0..5_000u64,
            2 => 1_000_000..CHUNK.get() + 2,
            1 => CHUNK.get()..2 * CHUNK.get() + 300_000,
        ], 1..8),
        (step, seed) in (1..6usize, any::<u64>()),
    ) {
        let entries = tree(&sizes);
        let mut source = Layout::new();
        for (i, entry) in entries.iter().enumerate() {
            source.push(EntryId(i as u32), &entry.kind);
        }
        let (sink, arrived) = lay_out(&segments(&entries, step));
        prop_assert_eq!(&arrived, &entries);
        prop_assert_eq!(sink.end(), source.end());

        let data: BTreeMap<EntryId, Vec<u8>> = (0..entries.len() as u32)
            .map(|i| (EntryId(i), contents(EntryId(i), entries[i as usize].size().unwrap_or(0))))
            .collect();
        let mut copies: BTreeMap<EntryId, Vec<u8>> =
            data.iter().map(|(id, bytes)| (*id, vec![0; bytes.len()])).collect();

        let whole = Offset::ZERO..source.end();
        let mut chunks: Vec<ChunkIndex> = ChunkIndex::covering(&whole).collect();
        let mut rng = Rng::new(seed);
        for i in (1..chunks.len()).rev() {
            chunks.swap(i, rng.below(i as u64 + 1) as usize);
        }
        let mut written = RangeSet::new();
        let mut log = Vec::new();
        journal::encode(
            &Record::Begin { format: journal::FORMAT, transfer: [1; 16], note: String::new() },
            &mut log,
        );
        for chunk in chunks {
            let pieces = source.pieces(chunk);
            prop_assert_eq!(&sink.pieces(chunk), &pieces);
            for piece in pieces {
                let bytes = slice(&data, &piece);
                let at = piece.file_offset as usize;
                copies.get_mut(&piece.entry).unwrap()[at..at + bytes.len()].copy_from_slice(bytes);
                let sent = digest::piece(piece.file_offset, piece.whole, bytes);
                let got = digest::piece(piece.file_offset, piece.whole, slice(&copies, &piece));
                prop_assert_eq!(sent, got);
                let mut flipped = bytes.to_vec();
                flipped[rng.below(bytes.len() as u64) as usize] ^= 1 << rng.below(8);
                prop_assert_ne!(digest::piece(piece.file_offset, piece.whole, &flipped), sent);
                prop_assert_eq!(written.insert(piece.range.clone()), piece.size());
                note(&entries, &piece, sent, &mut log);
            }
        }
        prop_assert_eq!(&copies, &data);
        prop_assert_eq!(written.len_bytes().get(), sizes.iter().sum::<u64>());
        check_roots(&entries, &data, &journal::replay(&log).unwrap().state)?;
    }
}

/// Journals a piece of a file larger than a chunk.
fn note(entries: &[Entry], piece: &Piece, digest: Digest, log: &mut Vec<u8>) {
    if piece.whole {
        return;
    }
    let (id, entry) = (piece.entry.0, &entries[piece.entry.index()]);
    let index = (piece.file_offset / CHUNK.get()) as u32;
    journal::encode(&Record::File { id, key: key(entry) }, log);
    journal::encode(&Record::Chunk { file: id, index, digest }, log);
    journal::encode(&Record::Durable, log);
}

fn key(entry: &Entry) -> FileKey {
    FileKey { path: entry.path.clone(), size: entry.size().unwrap_or(0), mtime: entry.mtime }
}

/// The journalled digests of each big file give the digest that `b3sum` prints.
fn check_roots(
    entries: &[Entry],
    data: &BTreeMap<EntryId, Vec<u8>>,
    state: &JournalState,
) -> Result<(), TestCaseError> {
    for (entry, bytes) in entries.iter().zip(data.values()) {
        let file = state.lookup(&key(entry));
        prop_assert_eq!(file.is_some(), bytes.len() as u64 > CHUNK.get());
        if let Some(file) = file {
            let digests: Vec<Digest> = file.chunks.values().map(|c| c.digest).collect();
            prop_assert!(file.chunks.values().all(|c| c.durable));
            let root = digest::file_root(file.key.size, &digests);
            prop_assert_eq!(root.to_string(), blake3::hash(bytes).to_hex().to_string());
        }
    }
    Ok(())
}
