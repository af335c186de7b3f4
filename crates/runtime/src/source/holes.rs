//! Finds holes in files. The file system reports them, and they are read to confirm them.

use std::ops::Range;
use std::sync::Arc;

use packtrain_object::{ChunkIndex, Piece};
use packtrain_transfer::TransportId;
use packtrain_units::{ByteCount, Offset};

use super::Table;
use super::content::ContentReports;
use crate::reader::Reader;
use packtrain_service::executor::spawn;

/// Minimum size of a hole in bytes. Shorter holes are sent as zeros, because a message for each
/// would cost more.
const MIN_HOLE_BYTES: u64 = 64 << 10;

/// The parts of `piece` within `within` that the file system reports as holes.
pub(super) fn reported(
    table: &Arc<Table>,
    piece: &Piece,
    within: &Range<Offset>,
) -> Vec<Range<Offset>> {
    let (start, end) = (piece.range.start.max(within.start), piece.range.end.min(within.end));
    // Small files are always read.
    if start >= end || piece.range.end.since(piece.range.start).get() <= MIN_HOLE_BYTES {
        return Vec::new();
    }
    let Ok(file) = table.open(piece.entry) else { return Vec::new() };
    if !file.may_have_holes() {
        return Vec::new();
    }
    let place = |offset: Offset| piece.file_offset + offset.since(piece.range.start).get();
    let (mut at, last) = (place(start), place(end));
    let mut holes = Vec::new();
    while let Ok(Some(hole)) = file.next_hole(at) {
        if hole.start >= last {
            break;
        }
        let (from, to) = (hole.start.max(at), hole.end.min(last));
        if to - from >= MIN_HOLE_BYTES {
            let offset = |n: u64| piece.range.start + ByteCount(n - piece.file_offset);
            holes.push(offset(from)..offset(to));
        }
        at = hole.end;
    }
    holes
}

/// Reads the ranges through the reader, which hashes them anyway, and reports for each whether it
/// is all zeros.
pub(super) fn verify(
    reader: &Reader,
    transport: TransportId,
    suspects: Vec<Range<Offset>>,
    reports: ContentReports,
) {
    let reader = reader.clone();
    spawn("holes", move || {
        for range in suspects {
            let zeros = ChunkIndex::covering(&range).all(|chunk| {
                let window = chunk.range();
                let part = range.start.max(window.start)..range.end.min(window.end);
                reader
                    .get(chunk)
                    .and_then(|held| held.get(&part).map(|bytes| bytes.iter().all(|b| *b == 0)))
                    .unwrap_or(false)
            });
            reports.hole(transport, range, zeros);
        }
    });
}
