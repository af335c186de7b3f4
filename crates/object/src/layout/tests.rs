use proptest::prelude::*;

use super::*;
use crate::chunk::{CHUNK, EntryId};

fn file(size: u64) -> EntryKind {
    EntryKind::File { size }
}

fn build(sizes: &[u64]) -> (Layout, Vec<Option<Range<Offset>>>) {
    let mut layout = Layout::new();
    let ranges = sizes
        .iter()
        .enumerate()
        .map(|(i, &size)| layout.try_push(EntryId(i as u32), &file(size)).unwrap())
        .collect();
    (layout, ranges)
}

fn at(start: u64, end: u64) -> Option<Range<Offset>> {
    Some(Offset(start)..Offset(end))
}

#[test]
fn small_files_are_packed_and_big_ones_aligned() {
    let c = CHUNK_LEN;
    let (layout, ranges) = build(&[10, 0, c - 10, 5, c, 7, c - 1, 2, 3 * c + 5, 1]);
    assert_eq!(ranges[0], at(0, 10));
    assert_eq!(ranges[1], None);
    assert_eq!(ranges[2], at(10, c));
    assert_eq!(ranges[3], at(c, c + 5));
    assert_eq!(ranges[4], at(2 * c, 3 * c));
    assert_eq!(ranges[5], at(3 * c, 3 * c + 7));
    assert_eq!(ranges[6], at(4 * c, 5 * c - 1));
    assert_eq!(ranges[7], at(5 * c, 5 * c + 2));
    assert_eq!(ranges[8], at(6 * c, 9 * c + 5));
    assert_eq!(ranges[9], at(10 * c, 10 * c + 1));
    assert_eq!(layout.end(), Offset(10 * c + 1));
    let two = layout.pieces(ChunkIndex(0));
    assert_eq!(two.len(), 2);
    assert!(two.iter().all(|p| p.whole && p.file_offset == 0));
    let last = &layout.pieces(ChunkIndex(9))[0];
    assert_eq!((last.entry, last.file_offset, last.size().get()), (EntryId(8), 3 * c, 5));
    assert!(!last.whole);
    assert!(layout.pieces(ChunkIndex(2))[0].whole, "a file of exactly one chunk");
    assert_eq!(layout.piece_at(Offset(9 * c + 5)), None);
    assert_eq!(layout.pieces(ChunkIndex(11)), []);
}

#[test]
fn directories_and_links_have_no_bytes() {
    let mut layout = Layout::new();
    assert_eq!(layout.push(EntryId(0), &EntryKind::Directory), None);
    assert_eq!(layout.push(EntryId(1), &EntryKind::Symlink { target: b"x".to_vec() }), None);
    assert_eq!(layout.end(), Offset::ZERO);
    assert_eq!(layout.push(EntryId(2), &file(1)), at(0, 1));
    assert_eq!(layout.try_push(EntryId(2), &file(1)), Err(LayoutError::OutOfOrder));
    assert_eq!(layout.range_of(EntryId(0)), None);
}

#[test]
fn a_stream_is_last_and_shrinks_when_it_ends() {
    let mut layout = Layout::new();
    layout.push(EntryId(0), &file(3));
    assert_eq!(layout.push(EntryId(1), &EntryKind::Stream), at(CHUNK_LEN, SPACE_END.0));
    assert!(layout.stream_open());
    assert_eq!(layout.end(), SPACE_END);
    assert_eq!(layout.try_push(EntryId(2), &file(1)), Err(LayoutError::AfterStream));
    assert_eq!(layout.try_push(EntryId(3), &EntryKind::Directory), Ok(None));
    let open = layout.pieces(ChunkIndex(5));
    assert_eq!((open[0].file_offset, open[0].size().get()), (4 * CHUNK_LEN, CHUNK_LEN));
    assert_eq!(layout.end_stream(EntryId(0), 1), Err(LayoutError::NotAStream));
    assert_eq!(layout.end_stream(EntryId(1), SPACE_END.0), Err(LayoutError::Full));
    assert_eq!(layout.end_stream(EntryId(1), CHUNK_LEN + 7), Ok(()));
    assert_eq!(layout.end_stream(EntryId(1), 7), Err(LayoutError::NotAStream));
    assert_eq!(layout.end(), Offset(2 * CHUNK_LEN + 7));
    assert_eq!(layout.pieces(ChunkIndex(2))[0].size().get(), 7);
    assert_eq!(layout.pieces(ChunkIndex(5)), []);
    assert_eq!(layout.range_of(EntryId(1)), at(CHUNK_LEN, 2 * CHUNK_LEN + 7));
}

#[test]
fn a_short_stream_is_never_whole_and_an_empty_one_has_no_pieces() {
    for size in [0, 1, CHUNK_LEN] {
        let mut layout = Layout::new();
        layout.push(EntryId(0), &EntryKind::Stream);
        layout.end_stream(EntryId(0), size).unwrap();
        let pieces = layout.pieces(ChunkIndex(0));
        assert_eq!(pieces.len(), usize::from(size > 0));
        assert!(pieces.iter().all(|p| !p.whole && p.size().get() == size));
        assert_eq!(layout.range_of(EntryId(0)).is_some(), size > 0);
        assert_eq!(layout.piece_at(Offset::ZERO).is_some(), size > 0);
    }
}

#[test]
fn sizes_beyond_the_space_are_refused_and_change_nothing() {
    let mut layout = Layout::new();
    let half = i64::MAX as u64 / 2;
    assert!(layout.try_push(EntryId(0), &file(half)).is_ok());
    let before = layout.end();
    assert_eq!(layout.try_push(EntryId(1), &file(i64::MAX as u64)), Err(LayoutError::Full));
    assert_eq!(layout.try_push(EntryId(1), &file(u64::MAX)), Err(LayoutError::Full));
    assert_eq!(layout.end(), before);
    assert!(layout.try_push(EntryId(1), &file(half - 2 * CHUNK_LEN)).is_ok());
    assert_eq!(layout.try_push(EntryId(2), &file(4 * CHUNK_LEN)), Err(LayoutError::Full));
    let mut full = Layout::new();
    assert!(full.try_push(EntryId(0), &file(SPACE_END.0)).is_ok());
    assert_eq!(full.try_push(EntryId(1), &file(1)), Err(LayoutError::Full));
    assert_eq!(full.try_push(EntryId(1), &EntryKind::Stream), Err(LayoutError::Full));
}

#[test]
fn a_small_file_takes_sixteen_bytes() {
    assert!(size_of::<Placed>() <= 16);
}

#[test]
fn what_is_forgotten_is_gone_and_the_rest_stays() {
    let (mut layout, ranges) = build(&vec![CHUNK_LEN / 2; 40_000]);
    layout.forget_below(ChunkIndex(10_000));
    assert_eq!(layout.range_of(EntryId(19_999)), None);
    assert_eq!(layout.range_of(EntryId(20_000)), ranges[20_000].clone());
    assert_eq!(layout.pieces(ChunkIndex(9_999)), []);
    assert_eq!(layout.pieces(ChunkIndex(10_000)).len(), 2);
    layout.forget_below(ChunkIndex(u64::MAX));
    assert_eq!(layout.end(), ranges[39_999].clone().unwrap().end);
    assert!(layout.placed.capacity() < 4096);
    let next = layout.push(EntryId(40_000), &file(1)).unwrap();
    assert_eq!(next.start, Offset(20_000 * CHUNK_LEN));
}

fn sizes() -> impl Strategy<Value = Vec<u64>> {
    let size = prop_oneof![
        3 => 0..200_000u64,
        2 => CHUNK_LEN / 3..CHUNK_LEN + 2,
        1 => CHUNK_LEN - 1..5 * CHUNK_LEN + 2,
    ];
    prop::collection::vec(size, 0..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn every_byte_has_one_place_and_every_piece_its_chunk(sizes in sizes()) {
        let (layout, ranges) = build(&sizes);
        let mut end = Offset::ZERO;
        for (size, range) in sizes.iter().zip(&ranges) {
            let Some(range) = range else {
                prop_assert_eq!(*size, 0);
                continue;
            };
            prop_assert!(range.start >= end, "ranges ascend and do not meet");
            prop_assert_eq!(range.end.since(range.start), ByteCount(*size));
            let one = ChunkIndex::of(range.start) == ChunkIndex::of(Offset(range.end.0 - 1));
            prop_assert!(one || range.start.0.is_multiple_of(CHUNK_LEN));
            prop_assert!(*size < CHUNK.get() || range.start.0.is_multiple_of(CHUNK_LEN));
            end = range.end;
        }
        prop_assert_eq!(layout.end(), end);
        for (i, range) in ranges.iter().enumerate() {
            prop_assert_eq!(&layout.range_of(EntryId(i as u32)), range);
        }
        // The pieces of all chunks are the files, in order and without gaps.
        let mut seen = vec![0u64; sizes.len()];
        for chunk in ChunkIndex::covering(&(Offset::ZERO..end)) {
            let pieces = layout.pieces(chunk);
            prop_assert!(!pieces.is_empty());
            for piece in pieces {
                let i = piece.entry.index();
                prop_assert_eq!(piece.file_offset, seen[i]);
                prop_assert!(piece.file_offset.is_multiple_of(CHUNK_LEN));
                prop_assert_eq!(piece.whole, piece.size().get() == sizes[i]);
                prop_assert!(chunk.range().contains(&piece.range.start));
                prop_assert!(piece.range.end <= chunk.range().end);
                prop_assert!(piece.range.start < piece.range.end);
                let at = Offset(piece.range.start.0 + piece.size().get() / 2);
                prop_assert_eq!(layout.piece_at(at), Some(piece.clone()));
                seen[i] += piece.size().get();
            }
        }
        prop_assert_eq!(seen, sizes);
    }
}
