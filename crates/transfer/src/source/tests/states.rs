//! Every message in every state is either expected or an error. The state that a sink can make a
//! source hold is bounded.

use super::*;
use crate::limits::MAX_RANGES;
use crate::message::samples::every_kind;

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    /// The walk has found nothing yet.
    Start,
    /// A file was announced.
    Walking,
    /// The walk is over too.
    Walked,
    /// The transfer is over.
    Over,
}

const STATES: [State; 4] = [State::Start, State::Walking, State::Walked, State::Over];

fn source_in(state: State) -> Source {
    let mut source = Source::new(Options::default(), now());
    source.on_transport_event(now(), TransportId(1), TransportEvent::Up { rank: 0 });
    if state != State::Start {
        source.on_entries(now(), entries(&[100]));
    }
    if matches!(state, State::Walked | State::Over) {
        source.on_walk_end(now(), Vec::new(), Vec::new());
    }
    if state == State::Over {
        source.on_message(now(), Message::Finished(Summary::default())).unwrap();
    }
    actions(&mut source);
    source
}

fn is_expected(state: State, message: &Message) -> bool {
    match message {
        // Messages that were under way at the end are ignored.
        _ if state == State::Over => true,
        Message::Need { .. }
        | Message::Verified(_)
        | Message::Progress(_)
        | Message::SinkFailed { .. } => state != State::Start,
        Message::Finished(_) => state == State::Walked,
        Message::Cancel(_) | Message::Refused(_) | Message::Bye => true,
        _ => false,
    }
}

#[test]
fn every_message_is_expected_or_an_error_in_every_state() {
    for state in STATES {
        for message in every_kind(0, Vec::new()) {
            let mut source = source_in(state);
            let name = message.name();
            let expected = is_expected(state, &message);
            let taken = source.on_message(now(), message);
            assert_eq!(taken.is_ok(), expected, "{name} in {state:?}: {taken:?}");
            if let Err(failure) = taken {
                assert_eq!(failure.kind, FailureKind::Protocol, "{name} in {state:?}");
                let output = actions(&mut source);
                let cancel = SourceAction::Send(Message::Cancel(failure));
                assert!(output.contains(&cancel), "{name} in {state:?}: {output:?}");
            }
        }
    }
}

#[test]
fn a_message_of_too_many_ranges_is_an_error() {
    let range = |n: usize| Offset(n as u64)..Offset(n as u64 + 1);
    let ranges: Vec<_> = (0..=MAX_RANGES).map(range).collect();
    for message in [need(Some(0), ranges.clone(), false), Message::Verified(ranges)] {
        let mut source = source_in(State::Walked);
        let failure = source.on_message(now(), message).unwrap_err();
        assert_eq!(failure.kind, FailureKind::Protocol);
    }
}

fn any_range() -> impl Strategy<Value = Range<Offset>> {
    let at = prop_oneof![0u64..(9 << 20), Just(0), Just(100), any::<u64>()];
    (at.clone(), at).prop_map(|(a, b)| Offset(a)..Offset(b))
}

fn any_message() -> impl Strategy<Value = Message> {
    let ranges = || proptest::collection::vec(any_range(), 0..4);
    prop_oneof![
        3 => (proptest::option::of(0u32..3), ranges(), any::<u64>(), any::<bool>()).prop_map(
            |(segment, ranges, present, again)| Message::Need {
                segment: segment.map(EntryId),
                ranges,
                present,
                again,
            }
        ),
        1 => ranges().prop_map(Message::Verified),
        2 => (0u32..3, 0usize..28).prop_map(|(id, kind)| every_kind(id, vec![]).swap_remove(kind)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn whatever_comes_in_whatever_state_little_is_held(
        state in 0usize..4,
        messages in proptest::collection::vec(any_message(), 1..60),
    ) {
        let mut source = source_in(STATES[state]);
        for message in messages {
            let _ = source.on_message(now(), message);
            let wanted = actions(&mut source).len();
            prop_assert!(wanted <= 16, "{} actions of one message", wanted);
            prop_assert!(source.held.len() <= 1);
        }
    }
}
