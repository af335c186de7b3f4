//! Pieces of which the sink has an old version.

use super::*;
use crate::limits::MAX_COMPARED;

const OLD: Digest = Digest([1; 32]);
const OTHER: Digest = Digest([2; 32]);

fn changed(chunk: u64) -> Message {
    Message::NeedChanged { start: ChunkIndex(chunk).start(), digest: OLD }
}

/// A source of a file of three chunks with a transport.
fn of_three() -> Source {
    let mut source = source(&[3 * CHUNK.get()]);
    source.on_transport_event(now(), TransportId(1), TransportEvent::Up { rank: 0 });
    source.on_message(now(), need(Some(0), vec![], false)).unwrap();
    actions(&mut source);
    source
}

#[test]
fn what_is_the_same_does_not_travel() {
    let mut source = of_three();
    source.on_message(now(), changed(1)).unwrap();
    let [SourceAction::Compare(piece)] = &actions(&mut source)[..] else { panic!("no comparison") };
    assert_eq!(piece.range, ChunkIndex(1).range());
    assert_eq!(source.totals().comparing, CHUNK);
    let start = ChunkIndex(1).start();
    source.on_compared(now(), start, Some(OLD));
    assert_eq!(actions(&mut source), [SourceAction::Send(Message::Same(start))]);
    assert_eq!((source.totals().comparing, source.totals().needed), (ByteCount(0), ByteCount(0)));
    // The old version changed before it was copied.
    let range = ChunkIndex(1).range();
    source.on_message(now(), need(None, vec![range.clone()], true)).unwrap();
    let moved = actions(&mut source);
    let reread = SourceAction::Reread(range.clone());
    assert_eq!(moved, [reread, SourceAction::Assign(TransportId(1), range.clone())]);
    source.on_message(now(), Message::Verified(vec![range])).unwrap();
    actions(&mut source);
    source.on_message(now(), Message::Finished(Summary::default())).unwrap();
    let finished = actions(&mut source);
    let Some(SourceAction::Finished(outcome)) = finished.last() else { panic!("not over") };
    assert_eq!(outcome.summary.bytes_same, CHUNK.get());
}

#[test]
fn what_differs_or_cannot_be_read_is_moved() {
    for digest in [Some(OTHER), None] {
        let mut source = of_three();
        source.on_message(now(), changed(2)).unwrap();
        actions(&mut source);
        source.on_compared(now(), ChunkIndex(2).start(), digest);
        let assign = SourceAction::Assign(TransportId(1), ChunkIndex(2).range());
        assert_eq!(actions(&mut source), [assign]);
        assert_eq!(source.totals().needed, CHUNK);
        // A second answer is none.
        source.on_compared(now(), ChunkIndex(2).start(), Some(OLD));
        assert_eq!(actions(&mut source), []);
    }
}

#[test]
fn a_piece_that_moves_or_failed_is_not_compared() {
    let mut source = of_three();
    source.on_message(now(), need(None, vec![ChunkIndex(0).range()], false)).unwrap();
    actions(&mut source);
    source.on_message(now(), changed(0)).unwrap();
    assert_eq!(actions(&mut source), []);
    source.on_message(now(), changed(1)).unwrap();
    source.on_message(now(), changed(1)).unwrap();
    assert_eq!(actions(&mut source).len(), 1, "compared once");
    let failure = Failure::new(FailureKind::Changed, "it changed");
    source.on_entry_failed(now(), EntryId(0), failure);
    actions(&mut source);
    source.on_compared(now(), ChunkIndex(1).start(), Some(OLD));
    source.on_message(now(), changed(2)).unwrap();
    assert_eq!(actions(&mut source), []);
    assert_eq!(source.compared.len(), 0);
}

#[test]
fn an_old_version_of_no_large_piece_is_an_error() {
    let starts = [ChunkIndex(3).start(), Offset(1), ChunkIndex(9).start(), Offset(u64::MAX)];
    for start in starts {
        let mut source = source(&[3 * CHUNK.get(), 100]);
        actions(&mut source);
        let message = Message::NeedChanged { start, digest: OLD };
        let failure = source.on_message(now(), message).unwrap_err();
        assert_eq!(failure.kind, FailureKind::Protocol, "{start:?}");
    }
    let mut stream = Source::new(Options::default(), now());
    let [mut entry] = <[Entry; 1]>::try_from(entries(&[1])).unwrap();
    entry.kind = EntryKind::Stream;
    stream.on_entries(now(), vec![entry]);
    assert!(stream.on_message(now(), changed(0)).is_err());
}

#[test]
fn few_pieces_are_compared_at_once() {
    let mut source = source(&[(MAX_COMPARED as u64 + 1) * CHUNK.get()]);
    actions(&mut source);
    for chunk in 0..MAX_COMPARED as u64 {
        source.on_message(now(), changed(chunk)).unwrap();
    }
    let failure = source.on_message(now(), changed(MAX_COMPARED as u64)).unwrap_err();
    assert_eq!(failure.kind, FailureKind::Protocol);
}
