//! Late events: failures and the end of the transfer during renames, and answers in another order.

use super::*;
use packtrain_object::Record;
use packtrain_object::journal::encode;

use crate::Outcome;
use crate::limits::MAX_HELD_PATHS;
use crate::message::ExtraOptions;

/// A sink of two files that are being renamed.
fn committing() -> Sink {
    let mut sink = sink_of(&[100, 100]);
    actions(&mut sink);
    verify(&mut sink, 0, 0, true);
    verify(&mut sink, 0, 1, true);
    let [SinkAction::Sync(token)] = actions(&mut sink)[..] else { panic!("no sync") };
    sink.on_synced(token);
    let [SinkAction::Commit(ref batch)] = actions(&mut sink)[..] else { panic!("no commit") };
    assert_eq!(batch.len(), 2);
    sink
}

fn source_failed(sink: &mut Sink, id: u32) {
    let failure = Failure::new(FailureKind::Changed, "it changed");
    sink.on_message(now(), Message::SourceFailed { entry: EntryId(id), failure }).unwrap();
}

/// Answers syncs until the sink requests none. Returns all its actions.
fn answer_syncs(sink: &mut Sink) -> Vec<SinkAction> {
    let mut output = Vec::new();
    loop {
        let more = actions(sink);
        let sync = more.iter().find_map(|action| match action {
            SinkAction::JournalSync { token, .. } => Some(*token),
            _ => None,
        });
        output.extend(more);
        let Some(token) = sync else { return output };
        sink.on_journal_synced(token);
    }
}

fn finished(output: &[SinkAction]) -> crate::message::Summary {
    let Some(SinkAction::Send(Message::Finished(summary))) = output.last() else {
        panic!("it is not over: {output:?}");
    };
    *summary
}

#[test]
fn a_file_that_fails_at_the_source_while_it_gets_its_name_is_whole() {
    let mut sink = committing();
    source_failed(&mut sink, 0);
    assert_eq!(actions(&mut sink), []);
    sink.on_committed(EntryId(0), Ok(()));
    assert_eq!(actions(&mut sink), []);
    sink.on_committed(EntryId(1), Ok(()));
    let summary = finished(&answer_syncs(&mut sink));
    assert_eq!((summary.files_moved, summary.failed), (2, 0));
}

#[test]
fn a_file_that_fails_at_the_source_while_it_waits_for_a_sync_is_whole() {
    let mut sink = sink_of(&[100, 100]);
    verify(&mut sink, 0, 0, true);
    actions(&mut sink);
    source_failed(&mut sink, 0);
    source_failed(&mut sink, 1);
    let output = actions(&mut sink);
    let Some(SinkAction::Sync(token)) = output.last() else { panic!("no sync: {output:?}") };
    sink.on_synced(*token);
    sink.on_committed(EntryId(0), Ok(()));
    let summary = finished(&answer_syncs(&mut sink));
    assert_eq!((summary.files_moved, summary.failed), (1, 1));
}

#[test]
fn a_cycle_ends_although_an_entry_of_it_failed_meanwhile() {
    let mut sink = committing();
    sink.on_write_failed(EntryId(0), Failure::new(FailureKind::TargetRefused, "no"));
    sink.on_committed(EntryId(0), Ok(()));
    sink.on_committed(EntryId(1), Ok(()));
    let summary = finished(&answer_syncs(&mut sink));
    assert_eq!((summary.files_moved, summary.failed), (1, 1));
}

#[test]
fn a_cancel_while_names_are_given_waits_for_them_and_ends() {
    for failed_before in [false, true] {
        let mut sink = committing();
        if failed_before {
            source_failed(&mut sink, 0);
            sink.on_write_failed(EntryId(1), Failure::new(FailureKind::TargetRefused, "no"));
            actions(&mut sink);
        }
        sink.cancel(now(), Failure::new(FailureKind::Cancelled, "enough"));
        assert_eq!(actions(&mut sink), [], "names and journal first");
        sink.on_committed(EntryId(0), Ok(()));
        sink.on_committed(EntryId(1), Ok(()));
        let output = answer_syncs(&mut sink);
        let Some(SinkAction::Finished(outcome)) = output.last() else {
            panic!("not over: {output:?}")
        };
        assert_eq!(outcome.failure.as_ref().map(|f| f.kind), Some(FailureKind::Cancelled));
        assert_eq!(outcome.summary.files_moved, 2 - u64::from(failed_before));
    }
}

#[test]
fn metadata_is_set_before_the_last_sync_and_the_end_waits_for_it() {
    let mut sink = sink();
    let all = [entry("", EntryKind::Directory), entry("d", EntryKind::Directory)];
    sink.on_message(now(), Message::Manifest(encode_segment(EntryId(0), &all))).unwrap();
    sink.on_message(now(), manifest_end(2)).unwrap();
    sink.on_examined(now(), EntryId(0), vec![TargetState { target: None, temporary: None }; 2]);
    actions(&mut sink);
    sink.on_made(EntryId(0), Ok(()));
    sink.on_made(EntryId(1), Ok(()));
    let [SinkAction::Sync(token)] = actions(&mut sink)[..] else { panic!("no sync") };
    sink.on_synced(token);
    let [SinkAction::JournalSync { token, .. }] = actions(&mut sink)[..] else { panic!("no sync") };
    sink.on_journal_synced(token);
    let last = actions(&mut sink);
    // The metadata of the destination is set after the journal and the lock in it are removed.
    let [
        ..,
        SinkAction::Settle(first),
        SinkAction::RemoveJournal,
        SinkAction::RemoveLock,
        SinkAction::Settle(root),
        SinkAction::JournalSync { token, .. },
    ] = &last[..]
    else {
        panic!("not settled and then synced: {last:?}");
    };
    assert_eq!((first[0].0, root[0].0), (EntryId(1), EntryId(0)));
    let is_end = |a: &SinkAction| matches!(a, SinkAction::Send(Message::Finished(_)));
    assert!(!last.iter().any(is_end));
    sink.on_journal_synced(*token);
    finished(&actions(&mut sink));
}

#[test]
fn pieces_are_expected_again_in_their_order_whatever_the_peers() {
    let mut sink = sink_of(&[100, 100, 100]);
    actions(&mut sink);
    let ids = [2, 0, 1].map(EntryId);
    sink.on_written(ChunkIndex(0), ids.map(|id| (id, Digest([2; 32]))).to_vec());
    let pieces = ids.map(|entry| PieceDigest { entry, digest: Digest([1; 32]) }).to_vec();
    sink.on_message(now(), Message::Digests { chunk: ChunkIndex(0), pieces }).unwrap();
    let asked = actions(&mut sink);
    let plans = plans(&asked);
    assert_eq!(plans.len(), 1);
    let starts: Vec<_> = plans[0].pieces.iter().map(|(piece, _)| piece.range.start).collect();
    assert!(starts.is_sorted() && starts.len() == 3, "{starts:?}");
}

#[test]
fn a_flood_of_long_paths_is_refused() {
    let mut sink = sink();
    let long = format!("{}/", "d".repeat(250)).repeat(15);
    let slashes = long.bytes().enumerate().filter(|(_, b)| *b == b'/').map(|(at, _)| at);
    let above: Vec<_> = slashes.map(|at| entry(&long[..at], EntryKind::Directory)).collect();
    let mut first = above.len() as u32;
    sink.on_message(now(), Message::Manifest(encode_segment(EntryId(0), &above))).unwrap();
    let mut paths = sink.entries.paths();
    for _ in 0..1000 {
        let path = |n: u32| entry(&format!("{long}{n:08}"), EntryKind::File { size: 1 });
        let all: Vec<_> = (first..first + 1000).map(path).collect();
        let bytes: usize = all.iter().map(|e| e.path.as_bytes().len()).sum();
        let segment = encode_segment(EntryId(first), &all);
        match sink.on_message(now(), Message::Manifest(segment)) {
            Ok(()) => paths += bytes as u64,
            Err(failure) => {
                assert_eq!(failure.kind, FailureKind::Protocol);
                assert!(paths <= MAX_HELD_PATHS && paths + bytes as u64 > MAX_HELD_PATHS);
                assert_eq!(sink.entries.paths(), paths);
                return;
            }
        }
        actions(&mut sink);
        first += 1000;
    }
    panic!("{paths} bytes of paths are held");
}

/// A run before this one renamed the file, and crashed before it synced the name.
#[test]
fn the_journal_of_an_earlier_run_is_removed_after_a_sync_of_names() {
    let large = entry("f0", EntryKind::File { size: 2 * CHUNK.get() });
    let manifest = || Message::Manifest(encode_segment(EntryId(0), std::slice::from_ref(&large)));
    let mut first = sink();
    first.on_message(now(), manifest()).unwrap();
    first.on_examined(now(), EntryId(0), vec![TargetState { target: None, temporary: None }]);
    let mut journal = Vec::new();
    for action in actions(&mut first) {
        match action {
            SinkAction::RewriteJournal(bytes) => journal = bytes,
            SinkAction::Journal(bytes) => journal.extend(bytes),
            _ => {}
        }
    }
    assert!(!journal.is_empty());
    let mut next = Sink::new(Options::default(), anything(), &journal, [1; 16], now()).unwrap();
    next.on_message(now(), manifest()).unwrap();
    let there = TargetState { target: Some(found_like(&large)), temporary: None };
    next.on_examined(now(), EntryId(0), vec![there]);
    next.on_message(now(), manifest_end(1)).unwrap();
    let before = actions(&mut next);
    let Some(SinkAction::JournalSync { token, .. }) = before.last() else { panic!("{before:?}") };
    assert!(!before.contains(&SinkAction::RemoveJournal), "{before:?}");
    next.on_journal_synced(*token);
    let output = answer_syncs(&mut next);
    assert!(output.contains(&SinkAction::RemoveJournal), "{output:?}");
    assert_eq!(finished(&output).unchanged, 1);
}

#[test]
fn what_another_source_has_received_stays() {
    let with = |origin: u8, delete: bool| {
        let extra = ExtraOptions { origin: [origin; 16], ..ExtraOptions::default() };
        Options { extra: Box::new(extra), delete, ..Options::default() }
    };
    // A copy of `large`, which is interrupted.
    let large = entry("large", EntryKind::File { size: 2 * CHUNK.get() });
    let mut journal = Vec::new();
    let begin = |options: Options, journal: &mut Vec<u8>| {
        let mut sink = Sink::new(options, anything(), journal, [1; 16], now()).unwrap();
        let manifest = encode_segment(EntryId(0), std::slice::from_ref(&large));
        sink.on_message(now(), Message::Manifest(manifest)).unwrap();
        sink.on_examined(now(), EntryId(0), vec![TargetState { target: None, temporary: None }]);
        for action in actions(&mut sink) {
            match action {
                SinkAction::RewriteJournal(bytes) => *journal = bytes,
                SinkAction::Journal(bytes) => journal.extend(bytes),
                _ => {}
            }
        }
    };
    begin(with(1, false), &mut journal);
    // A run that finds all its files, of which `large` is none.
    let run = |options: Options, journal: &[u8]| {
        let mut sink = Sink::new(options, anything(), journal, [1; 16], now()).unwrap();
        let files = entries(&[5]);
        sink.on_message(now(), Message::Manifest(encode_segment(EntryId(0), &files))).unwrap();
        let there = TargetState { target: Some(found_like(&files[0])), temporary: None };
        sink.on_examined(now(), EntryId(0), vec![there]);
        sink.on_message(now(), manifest_end(1)).unwrap();
        let mut output = answer_syncs(&mut sink);
        if output.iter().any(|action| matches!(action, SinkAction::Delete(_))) {
            sink.on_deleted(Vec::new());
            output.extend(answer_syncs(&mut sink));
        }
        finished(&output);
        let left = output.contains(&SinkAction::Abandon(vec![large.path.clone()]));
        assert_eq!(output.contains(&SinkAction::RemoveJournal), left, "{output:?}");
        left
    };
    assert!(run(with(1, false), &journal), "its source has it no longer");
    assert!(!run(with(2, false), &journal));
    assert!(run(with(2, true), &journal), "the target is to be as the source");
    begin(with(2, false), &mut journal);
    assert!(!run(with(2, false), &journal), "the other one began it too");
}

/// After a write-back that failed they can be read from memory, and are lost on the disk.
#[test]
fn chunks_that_no_sync_covered_are_asked_for_again() {
    let size = 2 * CHUNK.get();
    let mut first = sink_of(&[size]);
    let mut journal = Vec::new();
    let mut note = |sink: &mut Sink| {
        for action in actions(sink) {
            match action {
                SinkAction::RewriteJournal(bytes) => journal = bytes,
                SinkAction::Journal(bytes) => journal.extend(bytes),
                _ => {}
            }
        }
    };
    note(&mut first);
    verify(&mut first, 0, 0, true);
    note(&mut first);
    let resumed = |journal: &[u8]| {
        let mut next = Sink::new(Options::default(), anything(), journal, [1; 16], now()).unwrap();
        let segment = encode_segment(EntryId(0), &entries(&[size]));
        next.on_message(now(), Message::Manifest(segment)).unwrap();
        next.on_message(now(), manifest_end(1)).unwrap();
        let begun = TargetState { target: None, temporary: Some(size) };
        next.on_examined(now(), EntryId(0), vec![begun]);
        let actions = actions(&mut next);
        let rehashed = actions.iter().filter(|a| matches!(a, SinkAction::Rehash(..))).count();
        (rehashed, plans(&actions).len())
    };
    assert_eq!(resumed(&journal), (0, 2), "both chunks are expected");
    encode(&Record::Durable, &mut journal);
    let (rehashed, expected) = resumed(&journal);
    assert_eq!((rehashed, expected < 2), (1, true), "one is read back");
}

/// A sink of an empty file that is there already. Its source removes files.
fn removing() -> Sink {
    let extra = ExtraOptions { remove_source_files: true, ..ExtraOptions::default() };
    let options = Options { extra: Box::new(extra), ..Options::default() };
    let mut sink = Sink::new(options, anything(), &[], [1; 16], now()).unwrap();
    let files = entries(&[0]);
    sink.on_message(now(), Message::Manifest(encode_segment(EntryId(0), &files))).unwrap();
    sink.on_message(now(), manifest_end(1)).unwrap();
    let there = TargetState { target: Some(found_like(&files[0])), temporary: None };
    sink.on_examined(now(), EntryId(0), vec![there]);
    sink
}

/// A sink that has told its source that all is stored.
fn removed_awaited() -> Sink {
    let mut sink = removing();
    actions(&mut sink);
    sink.on_made(EntryId(0), Ok(()));
    let [SinkAction::Sync(token)] = actions(&mut sink)[..] else { panic!("no sync") };
    sink.on_synced(token);
    actions(&mut sink);
    sink.on_committed(EntryId(0), Ok(()));
    answer_syncs(&mut sink);
    sink
}

#[test]
fn a_source_that_removes_files_is_waited_for() {
    let mut sink = removing();
    let removed = |failed| Message::Removed { files: 1, failed, failures: Vec::new() };
    assert!(sink.on_message(now(), removed(0)).is_err(), "nothing is stored yet");
    let mut sink = removing();
    assert!(actions(&mut sink).iter().any(|a| matches!(a, SinkAction::MakeEmpty(..))));
    sink.on_made(EntryId(0), Ok(()));
    let [SinkAction::Sync(token)] = actions(&mut sink)[..] else { panic!("no sync") };
    sink.on_synced(token);
    let [SinkAction::Commit(..)] = actions(&mut sink)[..] else { panic!("no commit") };
    sink.on_committed(EntryId(0), Ok(()));
    let [SinkAction::JournalSync { token, .. }] = actions(&mut sink)[..] else { panic!("no sync") };
    sink.on_journal_synced(token);
    let stored = Message::Stored { entries: vec![EntryId(0)], left: vec![] };
    let output = answer_syncs(&mut sink);
    assert!(output.contains(&SinkAction::Send(stored)), "{output:?}");
    sink.on_accounted();
    assert_eq!(actions(&mut sink), [], "it waits");
    let mut lost = removed_awaited();
    lost.cancel(now(), Failure::new(FailureKind::Temporary, "connection lost"));
    let over = actions(&mut lost);
    let [SinkAction::Finished(Outcome { failure: Some(failure), .. })] = &over[..] else {
        panic!("{over:?}")
    };
    assert_eq!(failure.kind, FailureKind::Fatal, "{failure}");
    sink.on_message(now(), removed(2)).unwrap();
    assert!(sink.on_message(now(), removed(2)).is_err(), "told twice");
    sink.on_message(now(), Message::Bye).unwrap();
    let over = actions(&mut sink);
    let [SinkAction::Finished(outcome)] = &over[..] else { panic!("{over:?}") };
    assert_eq!((outcome.summary.removed, outcome.summary.failed), (1, 2));
}

#[test]
fn a_link_in_a_directory_without_a_name_stays_at_the_source() {
    for is_named in [true, false] {
        let extra = ExtraOptions { remove_source_files: true, ..ExtraOptions::default() };
        let options = Options { extra: Box::new(extra), ..Options::default() };
        let mut sink = Sink::new(options, anything(), &[], [1; 16], now()).unwrap();
        let mut link = entries(&[0]).remove(0);
        link.kind = EntryKind::Symlink { target: b"target".to_vec() };
        sink.on_message(now(), Message::Manifest(encode_segment(EntryId(0), &[link]))).unwrap();
        sink.on_message(now(), manifest_end(1)).unwrap();
        let nothing = TargetState { target: None, temporary: None };
        sink.on_examined(now(), EntryId(0), vec![nothing]);
        let output = actions(&mut sink);
        assert!(output.iter().any(|a| matches!(a, SinkAction::MakeSymlink(..))), "{output:?}");
        sink.on_made(EntryId(0), Ok(()));
        let [SinkAction::Sync(token)] = actions(&mut sink)[..] else { panic!("no sync") };
        sink.on_synced(token);
        let [SinkAction::Commit(..)] = actions(&mut sink)[..] else { panic!("no commit") };
        let failure = Failure::new(FailureKind::TargetRefused, "the directory has no name");
        sink.on_committed(EntryId(0), is_named.then_some(()).ok_or(failure));
        let output = answer_syncs(&mut sink);
        let stored = Message::Stored { entries: vec![EntryId(0)], left: vec![] };
        assert_eq!(output.contains(&SinkAction::Send(stored)), is_named, "{output:?}");
        let is_failed = |a: &SinkAction| matches!(a, SinkAction::Send(Message::SinkFailed { .. }));
        assert_eq!(output.iter().any(is_failed), !is_named, "{output:?}");
        assert!(!output.iter().any(|a| matches!(a, SinkAction::Discard(..))), "{output:?}");
    }
}

#[test]
fn the_temporaries_of_files_that_the_source_no_longer_has_are_removed_at_a_good_end() {
    let journal = |names: &[&str]| {
        let mut sink = sink();
        let size = 3 * CHUNK.get();
        let files: Vec<Entry> =
            names.iter().map(|name| entry(name, EntryKind::File { size })).collect();
        sink.on_message(now(), Message::Manifest(encode_segment(EntryId(0), &files))).unwrap();
        let nothing = TargetState { target: None, temporary: None };
        sink.on_examined(now(), EntryId(0), vec![nothing; names.len()]);
        let mut bytes = Vec::new();
        for action in actions(&mut sink) {
            match action {
                SinkAction::RewriteJournal(all) => bytes = all,
                SinkAction::Journal(more) => bytes.extend(more),
                _ => {}
            }
        }
        bytes
    };
    let abandoned = |bytes: &[u8], is_good: bool| {
        let mut sink = Sink::new(Options::default(), anything(), bytes, [1; 16], now()).unwrap();
        let kept = [entry("kept", EntryKind::File { size: 3 * CHUNK.get() })];
        sink.on_message(now(), Message::Manifest(encode_segment(EntryId(0), &kept))).unwrap();
        if !is_good {
            source_failed(&mut sink, 0);
        }
        sink.on_message(now(), manifest_end(1)).unwrap();
        // The target is the source's file already.
        let found = TargetState { target: Some(found_like(&kept[0])), temporary: None };
        sink.on_examined(now(), EntryId(0), vec![found]);
        let output = answer_syncs(&mut sink);
        let paths = |action: &SinkAction| match action {
            SinkAction::Abandon(paths) => paths.iter().map(|p| p.as_bytes().to_vec()).collect(),
            _ => Vec::new(),
        };
        output.iter().flat_map(paths).collect::<Vec<_>>()
    };
    let both = journal(&["gone", "kept"]);
    assert_eq!(abandoned(&both, true), [b"gone".to_vec(), b"kept".to_vec()]);
    assert_eq!(abandoned(&both, false), [] as [Vec<u8>; 0], "a later run may resume them");
    assert_eq!(abandoned(&[], true), [] as [Vec<u8>; 0]);
}

#[test]
fn a_stop_before_the_source_says_what_it_removed_is_a_stop_and_no_failure_of_the_source() {
    let ended = |early: Option<FailureKind>| {
        let extra = Box::new(ExtraOptions { remove_source_files: true, ..Default::default() });
        let options = Options { extra, ..Options::default() };
        let mut sink = Sink::new(options, anything(), &[], [1; 16], now()).unwrap();
        sink.on_message(now(), manifest_end(0)).unwrap();
        answer_syncs(&mut sink);
        match early {
            Some(kind) => sink.cancel(now(), Failure::new(kind, "early")),
            None => sink.on_message(now(), Message::Bye).unwrap(),
        }
        let output = actions(&mut sink);
        let Some(SinkAction::Finished(outcome)) = output.last() else {
            panic!("not over: {output:?}")
        };
        outcome.failure.as_ref().map(|failure| failure.kind)
    };
    assert_eq!(ended(Some(FailureKind::Cancelled)), Some(FailureKind::Cancelled));
    assert_eq!(ended(Some(FailureKind::Temporary)), Some(FailureKind::Fatal));
    assert_eq!(ended(None), Some(FailureKind::Fatal));
}
