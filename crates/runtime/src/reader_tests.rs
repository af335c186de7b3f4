use std::sync::mpsc;
use std::time::Duration;

use packtrain_object::EntryId;

use super::*;

fn range(start: u64, end: u64) -> Range<Offset> {
    Offset(start)..Offset(end)
}

#[test]
fn what_can_be_read_is_without_the_failures_and_ends_where_the_chunk_does() {
    let chunk = Chunk {
        base: Offset(100),
        bytes: vec![0; 50],
        bad: [range(110, 115), range(140, 145)].into_iter().collect(),
        files: Vec::new(),
        pool: Arc::default(),
    };
    let readable = |from, to| chunk.readable(&range(from, to)).collect::<Vec<_>>();
    assert_eq!(readable(100, 108), [range(100, 108)]);
    assert_eq!(readable(112, 142), [range(115, 140)]);
    assert_eq!(readable(110, 115), []);
    assert_eq!(readable(130, 164), [range(130, 140), range(145, 150)]);
    assert_eq!(readable(150, 164), []);
    for part in chunk.readable(&range(100, 200)) {
        assert!(chunk.get(&part).is_some(), "{part:?}");
    }
}

/// Reads zeros.
struct Zeros;

impl PieceSource for Zeros {
    fn read(&self, _piece: &Piece, out: &mut [u8]) -> Result<Option<Arc<SourceFile>>, Failure> {
        out.fill(0);
        Ok(None)
    }
}

#[test]
fn pieces_that_take_the_place_of_verified_ones_are_read() {
    let (events, inbox) = mpsc::channel();
    let reader = Reader::new(Zeros, Arc::default(), move |event| {
        let _ = events.send(event);
    });
    let pieces = |ids: Range<u32>| -> Vec<Piece> {
        let piece = |id: u32| Piece {
            entry: EntryId(id),
            file_offset: 0,
            range: range(u64::from(id) * 10, u64::from(id) * 10 + 10),
            whole: true,
        };
        ids.map(piece).collect()
    };
    // The second part of the chunk has fewer files than the first.
    for ids in [0..20, 20..23] {
        reader.announce(ChunkIndex(0), pieces(ids.clone()));
        let read = inbox.recv_timeout(Duration::from_secs(60)).expect("the pieces are read");
        let ReadEvent::Read(_, digests) = read else { panic!("{read:?}") };
        assert!(digests.iter().map(|piece| piece.entry.0).eq(ids));
    }
    // Fewer pieces of those that are known change nothing.
    reader.announce(ChunkIndex(0), pieces(21..23));
    reader.announce(ChunkIndex(1), Vec::new());
    assert!(matches!(
        inbox.recv_timeout(Duration::from_secs(60)),
        Ok(ReadEvent::Read(ChunkIndex(1), _))
    ));
    reader.close();
}

#[test]
fn the_known_chunks_of_an_endless_range_are_few() {
    let reader = Reader::new(Zeros, Arc::default(), |_| ());
    let piece = |chunk: u64| Piece {
        entry: EntryId(0),
        file_offset: 0,
        range: ChunkIndex(chunk).range(),
        whole: false,
    };
    for chunk in [2, 7, 1 << 30] {
        reader.announce(ChunkIndex(chunk), vec![piece(chunk)]);
    }
    let all = Offset(0)..packtrain_object::SPACE_END;
    assert_eq!(reader.known(&all), [2, 7, 1 << 30].map(ChunkIndex));
    let some = ChunkIndex(3).range().start..ChunkIndex(1 << 29).range().end;
    assert_eq!(reader.known(&some), [ChunkIndex(7)]);
    assert_eq!(reader.known(&ChunkIndex(5).range()), [ChunkIndex(5)]);
    reader.close();
}
