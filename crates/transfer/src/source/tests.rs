//! A source alone, against sinks that send anything.

use packtrain_object::{CHUNK, ChunkIndex, EntryKind, Mtime, RelPath};
use packtrain_units::Duration;
use proptest::prelude::*;

use super::*;
use crate::limits::MAX_ENTRY_PATHS;
use crate::message::{Progress, Summary};

mod bounds;
mod changed;
mod removal;
mod states;

fn entries(sizes: &[u64]) -> Vec<Entry> {
    let entry = |(n, &size): (usize, &u64)| Entry {
        path: RelPath::new(format!("f{n:04}").into_bytes()).unwrap(),
        kind: EntryKind::File { size },
        mode: 0o644,
        mtime: Mtime { secs: 1, nanos: 0 },
        uid: 0,
        gid: 0,
        extras: Default::default(),
    };
    sizes.iter().enumerate().map(entry).collect()
}

fn now() -> Time {
    Time::from_nanos(1)
}

fn source(sizes: &[u64]) -> Source {
    let mut source = Source::new(Options::default(), now());
    source.on_entries(now(), entries(sizes));
    source.on_walk_end(now(), Vec::new(), Vec::new());
    source
}

fn need(segment: Option<u32>, ranges: Vec<Range<Offset>>, again: bool) -> Message {
    Message::Need { segment: segment.map(EntryId), ranges, present: 0, again }
}

fn actions(source: &mut Source) -> Vec<SourceAction> {
    std::iter::from_fn(|| source.poll_action()).collect()
}

#[test]
fn what_the_sink_needs_is_assigned_and_let_go_when_verified() {
    let mut source = source(&[CHUNK.get() + 5, 100]);
    source.on_transport_event(now(), TransportId(1), TransportEvent::Up { rank: 0 });
    actions(&mut source);
    let range = Offset(0)..Offset(CHUNK.get() + 5);
    source.on_message(now(), need(Some(0), vec![range.clone()], false)).unwrap();
    assert_eq!(actions(&mut source), [SourceAction::Assign(TransportId(1), range.clone())]);
    assert_eq!(source.pieces_needed(ChunkIndex(1)).len(), 1);
    assert_eq!(source.pieces_needed(ChunkIndex(2)).len(), 0);
    assert!(source.entry(EntryId(0)).is_some());
    source.on_message(now(), Message::Verified(vec![range.clone()])).unwrap();
    assert!(source.entry(EntryId(0)).is_none());
    assert_eq!(actions(&mut source), [SourceAction::Forget(range.clone())]);
    // A sink that repeats itself makes no work.
    source.on_message(now(), Message::Verified(vec![range; 100])).unwrap();
    assert_eq!(actions(&mut source), []);
}

#[test]
fn a_lost_source_knows_what_it_moved_durably() {
    let durable = |present, verified, durable| {
        let mut source = source(&[CHUNK.get()]);
        actions(&mut source);
        let found =
            Message::Need { segment: Some(EntryId(0)), ranges: vec![], present, again: false };
        source.on_message(now(), found).unwrap();
        let progress = Progress { verified, durable, ..Progress::default() };
        source.on_message(now(), Message::Progress(progress)).unwrap();
        source.cancel(now(), Failure::new(FailureKind::Temporary, "connection lost"));
        let finished = actions(&mut source).into_iter().find_map(|action| match action {
            SourceAction::Finished(outcome) => Some(outcome.summary.bytes_durable),
            _ => None,
        });
        finished.expect("it is over")
    };
    assert_eq!(durable(0, 70, 50), 50);
    assert_eq!(durable(30, 70, 90), 60, "30 of the durable bytes were there before");
    assert_eq!(durable(30, 0, 30), 0, "nothing was moved");
    assert_eq!(durable(0, 0, 30), 0, "what was found is not reported yet");
}

#[test]
fn what_fails_verification_is_read_and_moved_again_even_before_it_was_placed() {
    for placed_first in [true, false] {
        let mut source = source(&[CHUNK.get()]);
        source.on_transport_event(now(), TransportId(1), TransportEvent::Up { rank: 0 });
        let range = Offset(0)..CHUNK_RANGE_END;
        source.on_message(now(), need(Some(0), vec![range.clone()], false)).unwrap();
        actions(&mut source);
        let placed = TransportEvent::Placed(range.clone());
        if placed_first {
            source.on_transport_event(now(), TransportId(1), placed.clone());
        }
        source.on_message(now(), need(None, vec![range.clone()], true)).unwrap();
        if !placed_first {
            assert_eq!(actions(&mut source), [SourceAction::Reread(range.clone())]);
            source.on_transport_event(now(), TransportId(1), placed);
        }
        let last = actions(&mut source).pop();
        assert_eq!(last, Some(SourceAction::Assign(TransportId(1), range)));
    }
}

const CHUNK_RANGE_END: Offset = Offset(4 << 20);

#[test]
fn a_hole_that_fails_verification_has_one_owner() {
    for is_returned in [true, false] {
        let mut source = source(&[CHUNK.get()]);
        source.on_transport_event(now(), TransportId(1), TransportEvent::Up { rank: 0 });
        let range = Offset(0)..CHUNK_RANGE_END;
        source.on_message(now(), need(Some(0), vec![range.clone()], false)).unwrap();
        source.on_hole(now(), range.clone());
        let revoke = SourceAction::Revoke(TransportId(1), range.clone());
        assert!(actions(&mut source).contains(&revoke));
        source.on_message(now(), need(None, vec![range.clone()], true)).unwrap();
        // The transport has not answered the revocation.
        assert_eq!(actions(&mut source), [SourceAction::Reread(range.clone())]);
        let answer = match is_returned {
            true => TransportEvent::Returned(range.clone()),
            false => TransportEvent::Placed(range.clone()),
        };
        source.on_transport_event(now(), TransportId(1), answer);
        assert_eq!(actions(&mut source), [SourceAction::Assign(TransportId(1), range)]);
    }
}

#[test]
fn a_failed_entry_is_taken_back_and_named() {
    let mut source = source(&[CHUNK.get(), 100]);
    source.on_transport_event(now(), TransportId(1), TransportEvent::Up { rank: 0 });
    let ranges = vec![Offset(0)..Offset(CHUNK.get() + 100)];
    source.on_message(now(), need(Some(0), ranges, false)).unwrap();
    actions(&mut source);
    let failure = Failure::new(FailureKind::Changed, "it changed");
    source.on_entry_failed(now(), EntryId(0), failure.clone());
    let expected = [
        SourceAction::Send(Message::SourceFailed { entry: EntryId(0), failure: failure.clone() }),
        SourceAction::Revoke(TransportId(1), Offset(0)..CHUNK_RANGE_END),
    ];
    assert_eq!(actions(&mut source), expected);
    let returned = TransportEvent::Returned(Offset(0)..CHUNK_RANGE_END);
    source.on_transport_event(now(), TransportId(1), returned);
    assert_eq!(actions(&mut source), []);
    source.on_message(now(), Message::Finished(Summary::default())).unwrap();
    let Some(SourceAction::Finished(outcome)) = actions(&mut source).pop() else { panic!() };
    assert_eq!(outcome.failed, [(b"f0000".to_vec(), failure)]);
    assert_eq!(outcome.summary.failed, 1);
}

#[test]
fn the_walk_is_paused_at_the_limit() {
    let mut source = Source::new(Options::default(), now());
    let fresh = (MAX_OUTSTANDING_PATHS.get() / MAX_ENTRY_PATHS) as usize;
    assert_eq!(source.walk_credit(), fresh);
    source.on_entries(now(), entries(&vec![10; MAX_OUTSTANDING]));
    assert_eq!(source.walk_credit(), 0);
    actions(&mut source);
    source.on_timeout(now() + Duration::from_secs(1));
    let everything = Offset(0)..source.layout().end();
    let mut first = 0;
    while let Some((_, count)) = source.segments.first_unanswered() {
        source.on_message(now(), need(Some(first), vec![], false)).unwrap();
        first += count;
    }
    source.on_message(now(), Message::Verified(vec![everything])).unwrap();
    assert_eq!(source.walk_credit(), fresh);
}

fn any_range() -> impl Strategy<Value = Range<Offset>> {
    let at = prop_oneof![0u64..(20 << 20), (0u64..6).prop_map(|c| c << 22), any::<u64>()];
    (at.clone(), at).prop_map(|(a, b)| Offset(a)..Offset(b))
}

fn any_message() -> impl Strategy<Value = Message> {
    let ranges = || proptest::collection::vec(any_range(), 0..3);
    let failure = Failure::new(FailureKind::TargetRefused, "no");
    prop_oneof![
        4 => (proptest::option::of(0u32..9), ranges(), any::<u64>(), any::<bool>()).prop_map(
            |(segment, ranges, present, again)| Message::Need {
                segment: segment.map(EntryId),
                ranges,
                present,
                again,
            }
        ),
        2 => ranges().prop_map(Message::Verified),
        1 => (0u32..12).prop_map(|id| Message::AskRoot(vec![EntryId(id)])),
        1 => (0u32..12).prop_map(move |id| Message::SinkFailed {
            entry: EntryId(id),
            failure: failure.clone(),
        }),
        1 => Just(Message::Progress(Default::default())),
        1 => Just(Message::Bye),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn no_message_panics(messages in proptest::collection::vec(any_message(), 1..30)) {
        let mut source = source(&[5, CHUNK.get() * 2 + 1, 7, 0, CHUNK.get()]);
        source.on_transport_event(now(), TransportId(1), TransportEvent::Up { rank: 0 });
        for message in messages {
            let failed = source.on_message(now(), message).is_err();
            let actions = actions(&mut source);
            let over = actions.iter().any(|a| matches!(a, SourceAction::Finished(_)));
            prop_assert!(over || !failed, "an error ends it");
            for action in actions {
                if let SourceAction::Assign(_, range) = action {
                    prop_assert!(range.end <= source.layout().end());
                    source.on_transport_event(now(), TransportId(1), TransportEvent::Placed(range));
                }
            }
        }
    }
}
