//! Files with an old version at the target.

use super::*;
use crate::action::{Found, FoundKind};

const SIZE: u64 = 3 * CHUNK.get();

fn found(size: u64, kind: FoundKind) -> TargetState {
    let mtime = Mtime { secs: 0, nanos: 0 };
    let target = Found {
        kind,
        size,
        mtime,
        mode: 0o644,
        same_link: false,
        same_attributes: true,
        makes_way: false,
    };
    TargetState { target: Some(target), temporary: None }
}

/// A sink of one large file with this target.
fn sink_with(target: TargetState) -> Sink {
    let mut sink = sink().with_changed_pieces();
    let segment = encode_segment(EntryId(0), &entries(&[SIZE]));
    sink.on_message(now(), Message::Manifest(segment)).unwrap();
    sink.on_examined(now(), EntryId(0), vec![target]);
    sink
}

fn hashed(actions: &[SinkAction]) -> Vec<u64> {
    let chunk = |action: &SinkAction| match action {
        SinkAction::HashOld(chunk, ..) => Some(chunk.0),
        _ => None,
    };
    actions.iter().filter_map(chunk).collect()
}

fn needed(actions: &[SinkAction]) -> Vec<Range<Offset>> {
    let ranges = |action: &SinkAction| match action {
        SinkAction::Send(Message::Need { ranges, .. }) => ranges.clone(),
        _ => Vec::new(),
    };
    actions.iter().flat_map(ranges).collect()
}

fn stated(actions: &[SinkAction]) -> Vec<Message> {
    let stated = |action: &SinkAction| match action {
        SinkAction::Send(message @ Message::NeedChanged { .. }) => Some(message.clone()),
        _ => None,
    };
    actions.iter().filter_map(stated).collect()
}

#[test]
fn only_whole_pieces_of_a_regular_file_are_compared() {
    let all = SIZE.div_ceil(CHUNK.get());
    for (state, compared) in [
        (TargetState { target: None, temporary: None }, 0),
        (found(SIZE, FoundKind::File), 3),
        (found(SIZE + 1, FoundKind::File), 3),
        (found(SIZE - 1, FoundKind::File), 2),
        (found(CHUNK.get(), FoundKind::File), 1),
        (found(CHUNK.get() - 1, FoundKind::File), 0),
        (found(SIZE, FoundKind::Symlink), 0),
    ] {
        let mut sink = sink_with(state);
        let first = actions(&mut sink);
        assert_eq!(hashed(&first), (0..compared).collect::<Vec<_>>(), "{state:?}");
        let needed = needed(&first).into_iter().map(|range| range.end.since(range.start).get());
        let left = if compared == all { 0 } else { SIZE - compared * CHUNK.get() };
        assert_eq!(needed.sum::<u64>(), left, "{state:?}");
        assert!(stated(&first).is_empty(), "nothing is known yet");
    }
    // A sink whose source does not know the message asks for everything.
    let mut plain = sink();
    let segment = encode_segment(EntryId(0), &entries(&[SIZE]));
    plain.on_message(now(), Message::Manifest(segment)).unwrap();
    plain.on_examined(now(), EntryId(0), vec![found(SIZE, FoundKind::File)]);
    let first = actions(&mut plain);
    assert_eq!((hashed(&first).len(), needed(&first).len()), (0, 1));
}

#[test]
fn the_short_piece_at_the_end_is_not_compared() {
    // Its digest would give its bytes to a source that guesses.
    let size = 2 * CHUNK.get() + 5;
    let mut sink = sink().with_changed_pieces();
    let segment = encode_segment(EntryId(0), &entries(&[size]));
    sink.on_message(now(), Message::Manifest(segment)).unwrap();
    sink.on_examined(now(), EntryId(0), vec![found(size, FoundKind::File)]);
    let first = actions(&mut sink);
    assert_eq!(hashed(&first), [0, 1]);
    assert_eq!(needed(&first), [ChunkIndex(2).start()..Offset(size)]);
}

#[test]
fn what_is_the_same_is_copied_and_verified() {
    let mut sink = sink_with(found(SIZE, FoundKind::File));
    let (id, old) = (EntryId(0), Digest([1; 32]));
    actions(&mut sink);
    sink.on_old_hashed(ChunkIndex(1), id, Some(old));
    let asked = actions(&mut sink);
    let start = ChunkIndex(1).start();
    assert_eq!(stated(&asked), [Message::NeedChanged { start, digest: old }]);
    assert_eq!(plans(&asked).len(), 1, "its data may come at once");
    sink.on_message(now(), Message::Same(start)).unwrap();
    let copies = actions(&mut sink);
    assert!(matches!(&copies[..], [SinkAction::CopyOld(ChunkIndex(1), ..)]), "{copies:?}");
    // A second answer has no effect.
    sink.on_message(now(), Message::Same(start)).unwrap();
    assert_eq!(actions(&mut sink), []);
    sink.on_copied(ChunkIndex(1), id, Some(old));
    assert_eq!(sink.totals().present, CHUNK);
    assert_eq!(sink.totals().needed, ByteCount(0));
    let told = actions(&mut sink);
    let present = |action: &SinkAction| matches!(action, SinkAction::Send(Message::Need { present, .. }) if *present == CHUNK.get());
    assert!(told.iter().any(present), "{told:?}");
}

#[test]
fn an_old_version_that_changed_or_is_gone_is_moved() {
    for copied in [Some(Digest([9; 32])), None] {
        let mut sink = sink_with(found(SIZE, FoundKind::File));
        let id = EntryId(0);
        sink.on_old_hashed(ChunkIndex(0), id, Some(Digest([1; 32])));
        sink.on_message(now(), Message::Same(Offset(0))).unwrap();
        actions(&mut sink);
        sink.on_copied(ChunkIndex(0), id, copied);
        let again = actions(&mut sink);
        assert_eq!(needed(&again), [Offset(0)..ChunkIndex(0).range().end]);
        verify(&mut sink, 0, 0, true);
        assert_eq!(sink.totals().verified, CHUNK, "it counts as moved");
        assert_eq!(sink.totals().present, ByteCount(0));
    }
    // It could not be read in the first place.
    let mut sink = sink_with(found(SIZE, FoundKind::File));
    actions(&mut sink);
    sink.on_old_hashed(ChunkIndex(0), EntryId(0), None);
    assert_eq!(needed(&actions(&mut sink)), [Offset(0)..ChunkIndex(0).range().end]);
}

#[test]
fn few_old_versions_are_hashed_at_once() {
    let mut sink = sink().with_changed_pieces();
    let size = 100 * CHUNK.get();
    let segment = encode_segment(EntryId(0), &entries(&[size]));
    sink.on_message(now(), Message::Manifest(segment)).unwrap();
    sink.on_examined(now(), EntryId(0), vec![found(size, FoundKind::File)]);
    assert_eq!(hashed(&actions(&mut sink)).len(), crate::limits::OLD_WINDOW);
    sink.on_old_hashed(ChunkIndex(3), EntryId(0), None);
    assert_eq!(hashed(&actions(&mut sink)), [crate::limits::OLD_WINDOW as u64]);
    // An answer for another entry, or a second one, is none.
    sink.on_old_hashed(ChunkIndex(3), EntryId(0), None);
    sink.on_old_hashed(ChunkIndex(4), EntryId(1), None);
    assert_eq!(actions(&mut sink), []);
}

#[test]
fn what_the_source_cannot_know_is_an_error() {
    let mut sink = sink_with(found(SIZE, FoundKind::File));
    actions(&mut sink);
    let failure = sink.on_message(now(), Message::Same(Offset(0))).unwrap_err();
    assert_eq!(failure.kind, FailureKind::Protocol);
    let mut plain = sink_of(&[SIZE]);
    let failure = plain.on_message(now(), Message::Same(Offset(0))).unwrap_err();
    assert_eq!(failure.kind, FailureKind::Protocol);
}

#[test]
fn a_file_that_failed_leaves_nothing() {
    let mut sink = sink_with(found(SIZE, FoundKind::File));
    actions(&mut sink);
    sink.on_old_hashed(ChunkIndex(0), EntryId(0), Some(Digest([1; 32])));
    let failure = Failure::new(FailureKind::Changed, "it changed");
    sink.on_message(now(), Message::SourceFailed { entry: EntryId(0), failure }).unwrap();
    actions(&mut sink);
    // Its answers are still under way.
    sink.on_old_hashed(ChunkIndex(1), EntryId(0), Some(Digest([1; 32])));
    sink.on_old_hashed(ChunkIndex(2), EntryId(0), None);
    sink.on_message(now(), Message::Same(Offset(0))).unwrap();
    sink.on_copied(ChunkIndex(0), EntryId(0), Some(Digest([1; 32])));
    let after = actions(&mut sink);
    assert!(plans(&after).is_empty() && stated(&after).is_empty(), "{after:?}");
    assert_eq!(sink.changed.held(), 0);
}
