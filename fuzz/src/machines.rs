//! Both ends of a transfer as state machines, against peers that send any message at any time.

#[path = "../../crates/cli/tests/e2e/hostile/script.rs"]
mod script;

use packtrain_object::{Digest, Entry, EntryId, EntryKind, Mtime, RelPath, SourceName};
use packtrain_transfer::message::ExtraOptions;
use packtrain_transfer::{
    Failure, FailureKind, Found, FoundKind, Linked, Options, Requested, Sink, SinkAction, Source,
    SourceAction, TargetState, TransportEvent, TransportId,
};
use packtrain_units::{Duration, Time};

use script::{ASKED, Choices};

/// Maximum actions per message. A sink requests 1024 chunks at once, each of them in three steps if it
/// has an old version.
const MAX_ACTIONS: usize = 4096;

fn options(choices: &mut Choices<'_>) -> Options {
    let bits = choices.below(128);
    let more = choices.below(8);
    let extra = ExtraOptions {
        remove_source_files: bits & 64 != 0,
        hard_links: bits & 64 == 0 && more & 1 != 0,
        xattrs: more & 2 != 0,
        acls: more & 4 != 0,
        ..ExtraOptions::default()
    };
    Options {
        extra: Box::new(extra),
        recursive: bits & 1 != 0,
        checksum: bits & 2 != 0,
        verify: bits & 12 == 12,
        dry_run: bits & 12 == 8,
        delete: bits & 16 != 0,
        report_files: bits & 32 != 0,
        ..Options::default()
    }
}

/// Whether a sink may receive this entry.
fn was_requested(entry: &Entry, recursive: bool) -> bool {
    let path = entry.path.as_bytes();
    let rest = path.strip_prefix(ASKED.as_bytes());
    rest.is_some_and(|rest| rest.is_empty() || recursive && rest[0] == b'/')
        && (recursive || entry.kind != EntryKind::Directory)
}

/// A sink that requested one name: it examines nothing else, and every error is a protocol error.
pub fn sink_machine(data: &[u8]) {
    let mut choices = Choices::new(data);
    let options = options(&mut choices);
    let recursive = options.recursive;
    let sources = [SourceName::Named(ASKED.as_bytes().to_vec())];
    let Ok(requested) = Requested::of_sources(&sources, &options) else { return };
    let mut now = Time::from_nanos(1);
    let Ok(mut sink) = Sink::new(options, requested, &[], [1; 16], now) else { return };
    if choices.below(2) == 0 {
        sink = sink.with_changed_pieces();
    }
    let mut announced = 0;
    while !choices.is_empty() {
        now += Duration::from_millis(choices.below(4) as u64 * 300);
        let (message, after) = script::message(&mut choices, announced);
        announced = after;
        if let Err(failure) = sink.on_message(now, message) {
            assert_eq!(failure.kind, FailureKind::Protocol, "{failure}");
        }
        sink.on_timeout(now);
        let mut count = 0;
        while let Some(action) = sink.poll_action() {
            count += 1;
            assert!(count < MAX_ACTIONS, "a message asks for {count} actions");
            perform_sink_action(&mut sink, now, action, &mut choices, recursive);
        }
    }
}

fn perform_sink_action(
    sink: &mut Sink,
    now: Time,
    action: SinkAction,
    choices: &mut Choices<'_>,
    recursive: bool,
) {
    let digest = |choices: &mut Choices<'_>| Digest([choices.below(2) as u8; 32]);
    match action {
        SinkAction::Examine(first, entries) => {
            for entry in &entries {
                assert!(was_requested(entry, recursive), "{entry:?} was not asked for");
            }
            let state = |choices: &mut Choices<'_>, entry: &Entry| {
                let kinds = [FoundKind::File, FoundKind::Directory, FoundKind::Symlink];
                let target = (choices.below(3) == 0).then(|| Found {
                    kind: kinds[choices.below(3)],
                    size: entry.size().unwrap_or_default(),
                    mtime: entry.mtime,
                    mode: entry.mode,
                    same_link: false,
                    same_attributes: choices.below(2) == 0,
                    makes_way: choices.below(2) == 0,
                });
                TargetState { target, temporary: None }
            };
            let states = entries.iter().map(|entry| state(choices, entry)).collect();
            sink.on_examined(now, first, states);
        }
        SinkAction::MakeDirectory(id, _)
        | SinkAction::MakeSymlink(id, _)
        | SinkAction::MakeEmpty(id, _) => sink.on_made(id, Ok(())),
        SinkAction::Link(plan) => {
            assert!(sink.entry(plan.id).is_some_and(|entry| entry.is_file()), "{plan:?}");
            let answers = [
                Linked::Made,
                Linked::Same,
                Linked::Differs,
                Linked::Gone,
                Linked::TooMany,
                Linked::Impossible,
            ];
            sink.on_linked(plan.id, Ok(answers[choices.below(answers.len())]));
        }
        SinkAction::Expect(plan) if choices.below(2) == 0 => {
            let hashes = plan.pieces.iter().map(|(piece, _)| (piece.entry, digest(choices)));
            let hashes: Vec<_> = hashes.collect();
            sink.on_written(plan.chunk, hashes);
        }
        SinkAction::Rehash(chunk, piece, _) => {
            sink.on_rehashed(chunk, piece.entry, Some(digest(choices)));
        }
        SinkAction::HashOld(chunk, piece, _) => {
            let found = (choices.below(4) > 0).then(|| digest(choices));
            sink.on_old_hashed(chunk, piece.entry, found);
        }
        SinkAction::CopyOld(chunk, piece, _) => {
            let found = (choices.below(4) > 0).then(|| digest(choices));
            sink.on_copied(chunk, piece.entry, found);
        }
        SinkAction::HashTarget(id, _) => sink.on_target_root(id, Some(digest(choices))),
        SinkAction::Sync(token) => sink.on_synced(token),
        SinkAction::JournalSync { token, .. } => sink.on_journal_synced(token),
        SinkAction::Commit(batch) => {
            batch.into_iter().for_each(|(id, _)| sink.on_committed(id, Ok(())));
        }
        SinkAction::Delete(_) => sink.on_deleted(Vec::new()),
        _ => {}
    }
}

/// A source of three files: messages of a sink move ranges of these, or are protocol errors.
pub fn source_machine(data: &[u8]) {
    let mut choices = Choices::new(data);
    let options = options(&mut choices);
    let mut now = Time::from_nanos(1);
    let mut source = Source::new(options, now);
    source.on_transport_event(now, TransportId(1), TransportEvent::Up { rank: 0 });
    if choices.below(4) > 0 {
        let file = |(n, size): (usize, u64)| Entry {
            path: RelPath::new(format!("f{n}").into_bytes()).unwrap_or_default(),
            kind: EntryKind::File { size },
            mode: 0o644,
            mtime: Mtime { secs: 1, nanos: 0 },
            uid: 0,
            gid: 0,
            extras: Default::default(),
        };
        let sizes = [100, 4 << 20, (4 << 20) + 5];
        source.on_entries(now, sizes.into_iter().enumerate().map(file).collect());
        if choices.below(4) > 0 {
            source.on_walk_end(now, Vec::new(), Vec::new());
        }
    }
    while !choices.is_empty() {
        now += Duration::from_millis(choices.below(4) as u64 * 300);
        let (message, _) = script::message(&mut choices, 3);
        if let Err(failure) = source.on_message(now, message) {
            assert_eq!(failure.kind, FailureKind::Protocol, "{failure}");
        }
        source.on_timeout(now);
        let end = source.layout().end();
        let mut count = 0;
        while let Some(action) = source.poll_action() {
            count += 1;
            assert!(count < MAX_ACTIONS, "a message asks for {count} actions");
            match action {
                SourceAction::Assign(id, range) => {
                    assert!(range.start < range.end && range.end <= end, "{range:?} of {end:?}");
                    if choices.below(2) == 0 {
                        source.on_transport_event(now, id, TransportEvent::Placed(range));
                    }
                }
                SourceAction::Revoke(id, range) => {
                    source.on_transport_event(now, id, TransportEvent::Returned(range));
                }
                SourceAction::HashFile(id) => {
                    assert!(id < EntryId(3));
                    source.on_root(now, id, None);
                }
                SourceAction::Remove(id) => {
                    assert!(id < EntryId(3));
                    let kept = || Failure::new(FailureKind::Changed, "it changed");
                    let result = if choices.below(2) == 0 { Ok(()) } else { Err(kept()) };
                    source.on_removed(now, id, result);
                }
                SourceAction::Compare(piece) => {
                    assert!(piece.range.end <= end && !piece.whole, "{piece:?} of {end:?}");
                    let digest = Digest([choices.below(2) as u8; 32]);
                    let digest = (choices.below(4) > 0).then_some(digest);
                    source.on_compared(now, piece.range.start, digest);
                }
                _ => {}
            }
        }
    }
}

/// Sequences of decisions.
pub fn seeds() -> Vec<Vec<u8>> {
    let long = |step: usize| (0..400).map(|n| (n * step) as u8).collect();
    vec![vec![0; 40], long(7), long(31), long(101)]
}
