//! A sink alone, against sources that send anything.

use std::ops::Range;

use packtrain_object::{CHUNK, Mtime, RelPath, manifest::encode_segment};
use packtrain_units::Offset;
use proptest::prelude::*;

use super::*;
use crate::action::ChunkPlan;
use crate::limits::{MAX_TRIES, SYNC_BYTES};
use crate::message::PieceDigest;

mod changed;
mod journalled;
mod late;
mod links;
mod repeated;
mod states;

fn now() -> Time {
    Time::from_nanos(1)
}

fn entry(name: &str, kind: EntryKind) -> Entry {
    let path = match name {
        "" => RelPath::root(),
        name => RelPath::new(name.as_bytes().to_vec()).unwrap(),
    };
    Entry {
        path,
        kind,
        mode: 0o644,
        mtime: Mtime { secs: 1, nanos: 0 },
        uid: 0,
        gid: 0,
        extras: Default::default(),
    }
}

fn entries(sizes: &[u64]) -> Vec<Entry> {
    let entry = |(n, &size): (usize, &u64)| entry(&format!("f{n}"), EntryKind::File { size });
    sizes.iter().enumerate().map(entry).collect()
}

fn anything() -> Requested {
    Requested::anything(&Options::default())
}

fn sink() -> Sink {
    Sink::new(Options::default(), anything(), &[], [1; 16], now()).unwrap()
}

/// The end of a manifest of so many entries, without failures.
fn manifest_end(entries: u64) -> Message {
    let (failures, empty) = (Vec::new(), Vec::new());
    Message::ManifestEnd { entries, failed: 0, vanished: 0, failures, empty }
}

/// A file at the target that is as this entry says.
fn found_like(entry: &Entry) -> crate::action::Found {
    crate::action::Found {
        kind: crate::action::FoundKind::File,
        size: entry.size().unwrap_or_default(),
        mtime: entry.mtime,
        mode: entry.mode,
        same_link: false,
        same_attributes: true,
        makes_way: false,
    }
}

/// A sink that received these files in a manifest and found none of them at the target.
fn sink_of(sizes: &[u64]) -> Sink {
    let mut sink = sink();
    let entries = entries(sizes);
    let count = entries.len() as u64;
    sink.on_message(now(), Message::Manifest(encode_segment(EntryId(0), &entries))).unwrap();
    sink.on_message(now(), manifest_end(count)).unwrap();
    let nothing = TargetState { target: None, temporary: None };
    sink.on_examined(now(), EntryId(0), vec![nothing; entries.len()]);
    sink
}

fn actions(sink: &mut Sink) -> Vec<SinkAction> {
    std::iter::from_fn(|| sink.poll_action()).collect()
}

fn plans(actions: &[SinkAction]) -> Vec<&ChunkPlan> {
    let mut plans = Vec::new();
    for action in actions {
        if let SinkAction::Expect(plan) = action {
            plans.push(plan);
        }
    }
    plans
}

fn journalled(actions: &[SinkAction]) -> usize {
    let bytes = |action: &SinkAction| match action {
        SinkAction::Journal(bytes) => bytes.len(),
        _ => 0,
    };
    actions.iter().map(bytes).sum()
}

/// Both digests of the first piece of a chunk arrive, equal if `good`.
fn verify(sink: &mut Sink, chunk: u64, id: u32, good: bool) {
    let chunk = ChunkIndex(chunk);
    let piece = PieceDigest { entry: EntryId(id), digest: Digest([1; 32]) };
    sink.on_message(now(), Message::Digests { chunk, pieces: vec![piece] }).unwrap();
    sink.on_written(chunk, vec![(EntryId(id), Digest([if good { 1 } else { 2 }; 32]))]);
}

#[test]
fn a_name_comes_only_after_a_sync_and_progress_only_after_the_journals() {
    let mut sink = sink_of(&[100]);
    let first = actions(&mut sink);
    assert_eq!(plans(&first).len(), 1);
    verify(&mut sink, 0, 0, true);
    let [SinkAction::Sync(token)] = actions(&mut sink)[..] else { panic!("no sync") };
    sink.on_synced(token);
    let [SinkAction::Commit(ref batch), ..] = actions(&mut sink)[..] else { panic!("no commit") };
    assert_eq!(batch[0].0, EntryId(0));
    sink.on_committed(EntryId(0), Ok(()));
    let [SinkAction::JournalSync { token, .. }] = actions(&mut sink)[..] else { panic!("no sync") };
    sink.on_journal_synced(token);
    let output = actions(&mut sink);
    let progress = SinkAction::Send(Message::Progress(crate::message::Progress {
        verified: 100,
        durable: 100,
        files: 1,
        again: 0,
    }));
    assert!(output.contains(&progress), "{output:?}");
}

#[test]
fn a_piece_that_never_fits_fails_its_entry_alone() {
    let mut sink = sink_of(&[CHUNK.get(), 100]);
    actions(&mut sink);
    for _ in 1..MAX_TRIES {
        verify(&mut sink, 0, 0, false);
        let asked = actions(&mut sink);
        assert_eq!(plans(&asked).len(), 1);
        let again = |a: &SinkAction| {
            matches!(a, SinkAction::Send(Message::Need { again: true, ranges, .. })
                if *ranges == [Offset(0)..Offset(CHUNK.get())])
        };
        assert!(asked.iter().any(again), "{asked:?}");
    }
    verify(&mut sink, 0, 0, false);
    let failed = actions(&mut sink);
    let is_failed = |a: &SinkAction| {
        matches!(a, SinkAction::Send(Message::SinkFailed { entry: EntryId(0), failure })
            if failure.kind == FailureKind::Integrity)
    };
    assert!(failed.iter().any(is_failed), "{failed:?}");
    assert!(sink.entry(EntryId(1)).is_some());
}

#[test]
fn records_wait_for_a_sync_but_not_for_ever() {
    let chunks = 2 * SYNC_BYTES / CHUNK.get();
    let mut sink = sink_of(&[(2 * chunks + 1) * CHUNK.get()]);
    actions(&mut sink);
    let mut synced = Vec::new();
    let mut held = 0;
    for chunk in 0..chunks {
        verify(&mut sink, chunk, 0, true);
        let seen = actions(&mut sink);
        synced.extend(seen.iter().filter_map(|a| match a {
            SinkAction::Sync(token) => Some(*token),
            _ => None,
        }));
        if !synced.is_empty() {
            held = if journalled(&seen) > 0 { 0 } else { held + CHUNK.get() };
            assert!(held <= SYNC_BYTES, "a kill now would cost {held} bytes");
        }
    }
    assert_eq!(synced.len(), 1, "one sync at a time");
    sink.on_synced(synced[0]);
    assert_eq!(journalled(&actions(&mut sink)), 0, "this sync may say nothing of the records");
}

#[test]
fn a_second_segment_may_still_come_into_the_last_chunk() {
    let mut sink = sink();
    let all = entries(&[10, 10]);
    let nothing = TargetState { target: None, temporary: None };
    let segment = |first: u32, entry: &Entry| {
        Message::Manifest(encode_segment(EntryId(first), std::slice::from_ref(entry)))
    };
    sink.on_message(now(), segment(0, &all[0])).unwrap();
    sink.on_examined(now(), EntryId(0), vec![nothing]);
    assert_eq!(plans(&actions(&mut sink)).len(), 0);
    sink.on_message(now(), segment(1, &all[1])).unwrap();
    sink.on_message(now(), manifest_end(2)).unwrap();
    assert_eq!(plans(&actions(&mut sink)).len(), 0, "the second is not examined");
    sink.on_examined(now(), EntryId(1), vec![nothing]);
    let actions = actions(&mut sink);
    let plans = plans(&actions);
    assert_eq!(plans.len(), 1);
    assert_eq!(plans[0].pieces.len(), 2);
}

#[test]
fn what_is_asked_for_stays_in_the_window() {
    let mut sink = sink_of(&[1 << 40]);
    let asked = actions(&mut sink);
    assert_eq!(plans(&asked).len() as u64, (4 << 30) / CHUNK.get());
    verify(&mut sink, 0, 0, true);
    assert_eq!(plans(&actions(&mut sink)).len(), 1);
}

#[test]
fn a_stream_that_fails_is_not_planned_on() {
    let mut sink = sink();
    let all = [entry("stream", EntryKind::Stream)];
    sink.on_message(now(), Message::Manifest(encode_segment(EntryId(0), &all))).unwrap();
    let nothing = TargetState { target: None, temporary: None };
    sink.on_examined(now(), EntryId(0), vec![nothing]);
    assert!(plans(&actions(&mut sink)).len() > 100);
    sink.on_write_failed(EntryId(0), Failure::new(FailureKind::TargetRefused, "no"));
    assert_eq!(plans(&actions(&mut sink)).len(), 0);
}

#[test]
fn a_stream_is_open_until_it_ends() {
    let mut sink = sink();
    let all = [entry("stream", EntryKind::Stream)];
    sink.on_message(now(), Message::Manifest(encode_segment(EntryId(0), &all))).unwrap();
    assert!(sink.totals().stream_open);
    sink.on_message(now(), Message::StreamEnd { entry: EntryId(0), size: 5 }).unwrap();
    assert_eq!((sink.totals().stream_open, sink.totals().known), (false, ByteCount(5)));
}

#[test]
fn a_lost_goodbye_changes_nothing() {
    let mut sink = sink();
    sink.on_message(now(), manifest_end(0)).unwrap();
    let [.., SinkAction::RemoveLock, SinkAction::JournalSync { token, .. }] =
        actions(&mut sink)[..]
    else {
        panic!("no sync")
    };
    sink.on_journal_synced(token);
    let last = actions(&mut sink).pop();
    assert!(matches!(last, Some(SinkAction::Send(Message::Finished(_)))), "{last:?}");
    sink.cancel(now(), Failure::new(FailureKind::Temporary, "connection lost"));
    let [SinkAction::Finished(ref outcome)] = actions(&mut sink)[..] else { panic!("not over") };
    assert_eq!(outcome.failure, None);
}

#[test]
fn a_lost_sink_knows_what_it_moved_durably() {
    let mut unsynced = sink_of(&[100]);
    verify(&mut unsynced, 0, 0, true);
    let mut synced = at_the_end();
    last_sync(&mut synced);
    for (mut sink, durable) in [(unsynced, 0), (synced, 100)] {
        actions(&mut sink);
        sink.cancel(now(), Failure::new(FailureKind::Temporary, "connection lost"));
        let moved = sink.tally.summary();
        assert_eq!((moved.bytes_moved, moved.bytes_durable), (100, durable));
    }
}

/// A sink of one file, before its last sync.
fn at_the_end() -> Sink {
    let mut sink = sink_of(&[100]);
    verify(&mut sink, 0, 0, true);
    for action in actions(&mut sink) {
        if let SinkAction::Sync(token) = action {
            sink.on_synced(token);
        }
    }
    sink.on_committed(EntryId(0), Ok(()));
    last_sync(&mut sink);
    sink
}

fn last_sync(sink: &mut Sink) {
    for action in actions(sink) {
        if let SinkAction::JournalSync { token, .. } = action {
            sink.on_journal_synced(token);
        }
    }
}

#[test]
fn a_sink_with_the_sources_account_ends_without_its_goodbye() {
    let ends = |sink: &mut Sink| {
        let last = actions(sink);
        let finished = |a: &SinkAction| matches!(a, SinkAction::Send(Message::Finished(_)));
        let over = |a: &SinkAction| matches!(a, SinkAction::Finished(o) if o.failure.is_none());
        (last.iter().any(finished), last.iter().any(over))
    };
    // The account came before the end, or after it, or not at all.
    let mut sink = at_the_end();
    sink.on_accounted();
    last_sync(&mut sink);
    assert_eq!(ends(&mut sink), (true, true));
    let mut sink = at_the_end();
    last_sync(&mut sink);
    assert_eq!(ends(&mut sink), (true, false));
    sink.on_accounted();
    assert_eq!(ends(&mut sink), (false, true));
}

#[test]
fn an_account_does_not_cover_what_is_asked_for_later() {
    let mut sink = sink_of(&[100]);
    sink.on_accounted();
    actions(&mut sink);
    verify(&mut sink, 0, 0, false);
    let again = |a: &SinkAction| matches!(a, SinkAction::Send(Message::Need { again: true, .. }));
    assert!(actions(&mut sink).iter().any(again));
    assert!(!sink.accounted);
}

#[test]
fn the_first_request_comes_before_the_first_sync_of_the_journal() {
    let mut sink = sink_of(&[3 * CHUNK.get()]);
    let all = actions(&mut sink);
    let at = |wanted: fn(&SinkAction) -> bool| all.iter().position(wanted).expect("it is there");
    let header = at(|a| matches!(a, SinkAction::RewriteJournal(_)));
    let needs = |a: &SinkAction| matches!(a, SinkAction::Send(Message::Need { ranges, .. }) if !ranges.is_empty());
    assert!(at(needs) < header, "{all:?}");
    assert!(header < at(|a| matches!(a, SinkAction::Journal(_))), "{all:?}");
}

#[test]
fn garbage_instead_of_a_journal_is_refused() {
    let refused =
        Sink::new(Options::default(), anything(), b"my thesis, chapter one", [0; 16], now());
    assert!(refused.unwrap_err().text.contains("--no-resume"));
}

fn any_range() -> impl Strategy<Value = Range<Offset>> {
    let at = prop_oneof![0u64..(20 << 20), (0u64..6).prop_map(|c| c << 22), any::<u64>()];
    (at.clone(), at).prop_map(|(a, b)| Offset(a)..Offset(b))
}

fn any_message() -> impl Strategy<Value = Message> {
    let digest = (0u8..3).prop_map(|d| Digest([d; 32]));
    let failure = Failure::new(FailureKind::Changed, "no");
    let piece = (0u32..8, digest.clone())
        .prop_map(|(id, digest)| PieceDigest { entry: EntryId(id), digest });
    prop_oneof![
        4 => (0u64..9, proptest::collection::vec(piece, 0..4))
            .prop_map(|(chunk, pieces)| Message::Digests { chunk: ChunkIndex(chunk), pieces }),
        1 => any_range().prop_map(Message::Hole),
        1 => (0u32..9).prop_map(move |id| Message::SourceFailed {
            entry: EntryId(id),
            failure: failure.clone(),
        }),
        1 => (0u32..9, any::<u64>())
            .prop_map(|(id, size)| Message::StreamEnd { entry: EntryId(id), size }),
        1 => (0u32..9, digest)
            .prop_map(|(id, digest)| Message::Root { entry: EntryId(id), digest: Some(digest) }),
        1 => proptest::collection::vec(any::<u8>(), 0..60).prop_map(Message::Manifest),
        1 => (0u64..9).prop_map(|entries| Message::ManifestEnd {
            entries,
            failed: u64::MAX,
            vanished: u64::MAX,
            failures: vec![],
            empty: vec![b"d".to_vec()],
        }),
        1 => Just(Message::Bye),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn no_message_panics(
        stream in any::<bool>(),
        messages in proptest::collection::vec(any_message(), 1..40),
    ) {
        let mut sink = sink();
        let mut all = entries(&[5, CHUNK.get() * 2 + 1, 7, 0, CHUNK.get()]);
        if stream {
            all.push(entry("stream", EntryKind::Stream));
        }
        let segment = encode_segment(EntryId(0), &all);
        sink.on_message(now(), Message::Manifest(segment)).unwrap();
        for message in messages {
            let _ = sink.on_message(now(), message);
            for action in actions(&mut sink) {
                match action {
                    SinkAction::Examine(first, entries) => {
                        let nothing = TargetState { target: None, temporary: None };
                        sink.on_examined(now(), first, vec![nothing; entries.len()]);
                    }
                    SinkAction::MakeEmpty(id, _) => sink.on_made(id, Ok(())),
                    SinkAction::Expect(plan) => {
                        let hash = |(piece, _): &(packtrain_object::Piece, Entry)| {
                            (piece.entry, Digest([1; 32]))
                        };
                        sink.on_written(plan.chunk, plan.pieces.iter().map(hash).collect());
                    }
                    SinkAction::Sync(token) => sink.on_synced(token),
                    SinkAction::Commit(batch) => {
                        for (id, _) in batch {
                            sink.on_committed(id, Ok(()));
                        }
                    }
                    SinkAction::JournalSync { token, .. } => sink.on_journal_synced(token),
                    _ => {}
                }
            }
        }
    }
}

/// A sink with `--delete` that completed all these entries; the sources at `empty` have no file.
fn deleting(all: &[Entry], empty: &[&str], options: Options) -> Vec<SinkAction> {
    let options = Options { delete: true, ..options };
    let mut sink = Sink::new(options, anything(), &[], [1; 16], now()).unwrap();
    let count = all.len() as u64;
    sink.on_message(now(), Message::Manifest(encode_segment(EntryId(0), all))).unwrap();
    let empty = empty.iter().map(|path| path.as_bytes().to_vec()).collect();
    let end =
        Message::ManifestEnd { entries: count, failed: 0, vanished: 0, failures: vec![], empty };
    sink.on_message(now(), end).unwrap();
    let mtime = Mtime { secs: 1, nanos: 0 };
    let there = |entry: &Entry| TargetState {
        target: Some(crate::action::Found {
            kind: match entry.kind {
                EntryKind::Directory => crate::action::FoundKind::Directory,
                _ => crate::action::FoundKind::File,
            },
            size: entry.size().unwrap_or_default(),
            mtime,
            mode: 0o644,
            same_link: false,
            same_attributes: true,
            makes_way: false,
        }),
        temporary: None,
    };
    sink.on_examined(now(), EntryId(0), all.iter().map(there).collect());
    actions(&mut sink)
}

fn plan_of(output: &[SinkAction]) -> Option<&crate::action::DeletePlan> {
    output.iter().find_map(|action| match action {
        SinkAction::Delete(plan) => Some(plan),
        _ => None,
    })
}

#[test]
fn directories_alone_delete_nothing() {
    let empty = [entry("", EntryKind::Directory), entry("d", EntryKind::Directory)];
    let output = deleting(&empty, &[""], Options::default());
    assert_eq!(plan_of(&output), None, "{output:?}");
    let Some(SinkAction::Finished(outcome)) = output.last() else { panic!("not over: {output:?}") };
    assert_eq!(outcome.failure.as_ref().map(|f| f.kind), Some(FailureKind::Usage));
    let forced = Options { force_delete: true, ..Options::default() };
    let output = deleting(&empty, &[""], forced);
    assert!(plan_of(&output).is_some_and(|plan| plan.spared.is_empty()), "{output:?}");
}

/// A called end lets a caller without the right to write verify, whatever else it asks for.
#[test]
fn verify_lists_extra_names_and_removes_none() {
    let root = [entry("", EntryKind::Directory)];
    let asked = Options { verify: true, force_delete: true, dry_run: false, ..Options::default() };
    let output = deleting(&root, &[], asked);
    assert!(plan_of(&output).is_some_and(|plan| plan.dry_run), "{output:?}");
    let asked = Options { force_delete: true, ..Options::default() };
    let output = deleting(&root, &[], asked);
    assert!(plan_of(&output).is_some_and(|plan| !plan.dry_run), "{output:?}");
}

#[test]
fn a_source_without_a_file_is_spared_and_a_limit_passed_on() {
    let dir = |name| entry(name, EntryKind::Directory);
    let all = [dir("a"), entry("a/f", EntryKind::File { size: 0 }), dir("b"), dir("b/c")];
    let options = Options { max_delete: Some(3), ..Options::default() };
    let output = deleting(&all, &["b"], options);
    let plan = plan_of(&output).expect("a plan");
    assert_eq!((&plan.spared[..], plan.limit), (&[b"b".to_vec()][..], Some(3)));
}
