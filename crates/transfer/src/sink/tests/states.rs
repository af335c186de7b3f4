//! Every message in every state is either expected or an error. The state that a source can make a
//! sink hold is bounded.

use super::*;
use crate::limits::{MAX_HELD, MAX_RANGES, MAX_UNSYNCED_FILES, NEED_CHUNKS};
use crate::message::samples::every_kind;

/// State of a sink of one file of 100 bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    /// Nothing was received.
    Start,
    /// The file was announced and its bytes are requested.
    Moving,
    /// The manifest is complete too.
    Listed,
    /// Files that the source does not have are being deleted.
    Deleting,
    /// The last sync is under way.
    Closing,
    /// `Finished` was sent.
    AwaitBye,
    /// The transfer ends early; verified data is being synced.
    Ending,
    /// The transfer is over.
    Over,
}

const STATES: [State; 8] = [
    State::Start,
    State::Moving,
    State::Listed,
    State::Deleting,
    State::Closing,
    State::AwaitBye,
    State::Ending,
    State::Over,
];

fn segment() -> Vec<u8> {
    encode_segment(EntryId(0), &entries(&[100]))
}

/// Performs syncs and renames up to the action that `stop` matches, which is not performed.
fn run_until(sink: &mut Sink, stop: impl Fn(&SinkAction) -> bool) {
    while let Some(action) = sink.poll_action() {
        if stop(&action) {
            return;
        }
        match action {
            SinkAction::Sync(token) => sink.on_synced(token),
            SinkAction::JournalSync { token, .. } => sink.on_journal_synced(token),
            SinkAction::Delete(_) => sink.on_deleted(Vec::new()),
            SinkAction::Commit(batch) => {
                batch.into_iter().for_each(|(id, _)| sink.on_committed(id, Ok(())));
            }
            _ => {}
        }
    }
}

/// A sink in this state; its actions are already taken.
fn sink_in(state: State) -> Sink {
    let options = Options { delete: true, ..Options::default() };
    let requested = Requested::anything(&options);
    let mut sink = Sink::new(options, requested, &[], [1; 16], now()).unwrap();
    if state == State::Start {
        return sink;
    }
    sink.on_message(now(), Message::Manifest(segment())).unwrap();
    let nothing = TargetState { target: None, temporary: None };
    sink.on_examined(now(), EntryId(0), vec![nothing]);
    if state == State::Moving {
        // A later file closes the chunk of this one.
        actions(&mut sink);
        return sink;
    }
    sink.on_message(now(), manifest_end(1)).unwrap();
    actions(&mut sink);
    if state == State::Listed {
        return sink;
    }
    verify(&mut sink, 0, 0, true);
    match state {
        State::Ending => sink.cancel(now(), Failure::new(FailureKind::Cancelled, "stop")),
        State::Deleting => run_until(&mut sink, |a| matches!(a, SinkAction::Delete(_))),
        // The second journal sync is the last one.
        State::Closing => {
            run_until(&mut sink, |a| matches!(a, SinkAction::Delete(_)));
            sink.on_deleted(Vec::new());
        }
        State::AwaitBye => run_until(&mut sink, |_| false),
        State::Over => {
            run_until(&mut sink, |_| false);
            sink.on_message(now(), Message::Bye).unwrap();
        }
        State::Start | State::Moving | State::Listed => unreachable!(),
    }
    sink
}

/// Whether a sink in this state accepts this message.
fn is_expected(state: State, message: &Message) -> bool {
    match state {
        // Messages that were under way at the end are ignored.
        State::Ending | State::Over => true,
        State::Start => matches!(
            message,
            Message::Manifest(_) | Message::Cancel(_) | Message::Refused(_) | Message::Bye
        ),
        State::Moving | State::Listed => match message {
            Message::ManifestEnd { .. } | Message::Rules { .. } => state == State::Moving,
            Message::Digests { .. } => state == State::Listed,
            Message::Hole(_)
            | Message::SourceFailed { .. }
            | Message::Cancel(_)
            | Message::Refused(_)
            | Message::Bye => true,
            _ => false,
        },
        State::Deleting | State::Closing | State::AwaitBye => match message {
            Message::Bye => state == State::AwaitBye,
            Message::Digests { .. }
            | Message::Hole(_)
            | Message::Same(_)
            | Message::Root { .. }
            | Message::SourceFailed { .. }
            | Message::Cancel(_)
            | Message::Refused(_) => true,
            _ => false,
        },
    }
}

#[test]
fn every_message_is_expected_or_an_error_in_every_state() {
    for state in STATES {
        for message in every_kind(0, segment()) {
            let mut sink = sink_in(state);
            let name = message.name();
            let expected = is_expected(state, &message);
            let taken = sink.on_message(now(), message);
            assert_eq!(taken.is_ok(), expected, "{name} in {state:?}: {taken:?}");
            if let Err(failure) = taken {
                assert_eq!(failure.kind, FailureKind::Protocol, "{name} in {state:?}");
            }
        }
    }
}

#[test]
fn filter_rules_reach_the_driver_only_where_names_are_deleted() {
    let rules = || Message::Rules { number: 1, dir: b"d".to_vec(), text: b"- a".to_vec() };
    let mut sink = sink_in(State::Moving);
    sink.on_message(now(), rules()).unwrap();
    let passed_on = |action: &SinkAction| {
        *action == SinkAction::AddRules { number: 1, dir: b"d".to_vec(), text: b"- a".to_vec() }
    };
    assert!(actions(&mut sink).iter().any(passed_on));
    let options = Options::default();
    let requested = Requested::anything(&options);
    let mut plain = Sink::new(options, requested, &[], [1; 16], now()).unwrap();
    plain.on_message(now(), Message::Manifest(segment())).unwrap();
    assert_eq!(plain.on_message(now(), rules()).unwrap_err().kind, FailureKind::Protocol);
}

#[test]
fn an_error_ends_the_transfer_and_tells_the_source() {
    let mut sink = sink_in(State::Listed);
    let failure = sink.on_message(now(), Message::Progress(Default::default())).unwrap_err();
    assert!(failure.text.contains("Progress"), "{failure}");
    run_until(&mut sink, |a| matches!(a, SinkAction::Send(Message::Cancel(_))));
    let [SinkAction::Finished(outcome)] = &actions(&mut sink)[..] else { panic!("not over") };
    assert_eq!(outcome.failure, Some(failure));
}

#[test]
fn an_entry_that_was_not_requested_is_never_examined() {
    let sources = [packtrain_object::SourceName::of(b"/srv/asked")];
    let attacks = [
        vec![entry(".bashrc", EntryKind::File { size: 1 })],
        vec![entry("asked", EntryKind::Directory)],
        vec![entry("asked", EntryKind::File { size: 1 }), entry("x", EntryKind::Stream)],
        vec![entry("passwd", EntryKind::Symlink { target: b"/etc/passwd".to_vec() })],
    ];
    for attack in attacks {
        let options = Options::default();
        let requested = Requested::of_sources(&sources, &options).unwrap();
        let mut sink = Sink::new(options, requested, &[], [1; 16], now()).unwrap();
        let segment = encode_segment(EntryId(0), &attack);
        let failure = sink.on_message(now(), Message::Manifest(segment)).unwrap_err();
        let last = attack.last().unwrap().path.to_string();
        assert!(failure.text.contains(&last), "{failure}");
        let examined = |a: &SinkAction| matches!(a, SinkAction::Examine(..));
        assert!(!actions(&mut sink).iter().any(examined), "{attack:?}");
    }
}

#[test]
fn nothing_is_written_through_a_link_that_the_source_sent() {
    let link = || entry("l", EntryKind::Symlink { target: b"..".to_vec() });
    let directory = || entry("l", EntryKind::Directory);
    let below = || entry("l/.bashrc", EntryKind::File { size: 1 });
    for attack in [
        vec![link(), below()],
        vec![link(), directory(), below()],
        vec![directory(), link(), below()],
        vec![entry("l", EntryKind::File { size: 1 }), below()],
        vec![below()],
    ] {
        let mut sink = sink();
        let segment = encode_segment(EntryId(0), &attack);
        let refused = sink.on_message(now(), Message::Manifest(segment)).unwrap_err();
        assert_eq!(refused.kind, FailureKind::Protocol);
    }
    let good =
        [directory(), below(), entry("m", EntryKind::Directory), entry("l/x", EntryKind::Stream)];
    sink().on_message(now(), Message::Manifest(encode_segment(EntryId(0), &good))).unwrap();
}

/// Number of items that the sink holds on behalf of the source.
fn held(sink: &Sink) -> usize {
    sink.entries.len() + sink.intake.held() + sink.planner.held() + sink.chunks.held()
}

fn any_kind() -> impl Strategy<Value = Message> {
    prop_oneof![
        2 => any_message(),
        1 => (0u32..9, 0usize..28).prop_map(|(id, kind)| every_kind(id, segment()).swap_remove(kind)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn whatever_comes_in_whatever_state_little_is_held(
        state in 0usize..8,
        messages in proptest::collection::vec(any_kind(), 1..60),
    ) {
        let mut sink = sink_in(STATES[state]);
        for message in messages {
            let _ = sink.on_message(now(), message);
            // The test answers no action, so that everything accumulates.
            let wanted = actions(&mut sink).len();
            prop_assert!(wanted <= MAX_RANGES, "{} actions of one message", wanted);
            prop_assert!(held(&sink) <= MAX_HELD + 4 * NEED_CHUNKS);
            // The sources of these messages announce at most six entries.
            prop_assert!(held(&sink) <= 6 * 4, "{} held", held(&sink));
        }
    }
}

/// Announces `count` empty files from `first` on, which are made at once. Returns the actions.
fn make_empty_files(sink: &mut Sink, first: u32, count: u32) -> Vec<SinkAction> {
    let files: Vec<Entry> = (first..first + count)
        .map(|n| entry(&format!("e{n}"), EntryKind::File { size: 0 }))
        .collect();
    sink.on_message(now(), Message::Manifest(encode_segment(EntryId(first), &files))).unwrap();
    let nothing = TargetState { target: None, temporary: None };
    sink.on_examined(now(), EntryId(first), vec![nothing; files.len()]);
    let mut output = actions(sink);
    for id in first..first + count {
        sink.on_made(EntryId(id), Ok(()));
        output.extend(actions(sink));
    }
    output
}

#[test]
fn a_source_of_empty_files_waits_for_a_disk_that_is_behind() {
    let answers = |output: &[SinkAction]| {
        let is_answer =
            |a: &&SinkAction| matches!(a, SinkAction::Send(Message::Need { segment: Some(_), .. }));
        output.iter().filter(is_answer).count()
    };
    let sync = |output: &[SinkAction]| {
        let token = |a: &SinkAction| match a {
            SinkAction::Sync(token) => Some(*token),
            _ => None,
        };
        output.iter().find_map(token)
    };
    let (mut sink, mut first, mut token) = (sink(), 0, None);
    // No sync ends.
    while first <= MAX_UNSYNCED_FILES as u32 {
        let output = make_empty_files(&mut sink, first, 1_000);
        token = token.or(sync(&output));
        assert_eq!(answers(&output), 1, "after {first} files");
        first += 1_000;
    }
    let output = make_empty_files(&mut sink, first, 1_000);
    assert_eq!(answers(&output), 0);
    // The first cycle covered a quarter of them.
    sink.on_synced(token.expect("a sync was requested"));
    for action in actions(&mut sink) {
        let SinkAction::Commit(batch) = action else { continue };
        for (id, _) in batch {
            sink.on_committed(id, Ok(()));
        }
    }
    let output = actions(&mut sink);
    assert_eq!(answers(&output), 0, "its names are not durable yet");
    let names = output.iter().find_map(|a| match a {
        SinkAction::JournalSync { token, .. } => Some(*token),
        _ => None,
    });
    sink.on_journal_synced(names.expect("a sync of names was requested"));
    assert_eq!(answers(&actions(&mut sink)), 1);
}
