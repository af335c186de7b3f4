//! Files of several chunks and the journal.

use packtrain_object::journal::{FORMAT, Replay, encode, replay};
use packtrain_object::{FileKey, Record};

use super::*;
use crate::limits::{NEED_CHUNKS, SYNC_EVERY};

const GOOD: Digest = Digest([1; 32]);

fn key(entry: &Entry) -> FileKey {
    let size = entry.size().unwrap_or_default();
    FileKey { path: entry.path.clone(), size, mtime: entry.mtime }
}

/// A sink of these files whose earlier run left the first chunk of the last one.
fn resumed(sizes: &[u64]) -> Sink {
    let all = entries(sizes);
    let last = &all[all.len() - 1];
    let mut journal = Vec::new();
    for record in [
        Record::Begin { format: FORMAT, transfer: [1; 16], note: String::new() },
        Record::File { id: 0, key: key(last) },
        Record::Chunk { file: 0, index: 0, digest: GOOD },
        Record::Durable,
    ] {
        encode(&record, &mut journal);
    }
    let mut sink = Sink::new(Options::default(), anything(), &journal, [1; 16], now()).unwrap();
    sink.on_message(now(), Message::Manifest(encode_segment(EntryId(0), &all))).unwrap();
    sink.on_message(now(), manifest_end(all.len() as u64)).unwrap();
    let nothing = TargetState { target: None, temporary: None };
    let mut states = vec![nothing; all.len() - 1];
    states.push(TargetState { temporary: last.size(), ..nothing });
    sink.on_examined(now(), EntryId(0), states);
    sink
}

/// What a later run reads after these actions of a run that found no journal.
fn journal_of(actions: &[SinkAction]) -> Replay {
    let mut file = Vec::new();
    for action in actions {
        match action {
            SinkAction::RewriteJournal(bytes) => file.clone_from(bytes),
            SinkAction::Journal(bytes) => file.extend_from_slice(bytes),
            _ => {}
        }
    }
    replay(&file).expect("a journal")
}

fn fail(sink: &mut Sink, kind: FailureKind) {
    let failure = Failure::new(kind, "no");
    sink.on_message(now(), Message::SourceFailed { entry: EntryId(0), failure }).unwrap();
}

#[test]
fn a_failed_file_stays_in_the_journal_only_if_it_can_be_resumed() {
    const SIZE: u64 = 2 * CHUNK.get();
    let nothing_moved = sink_of(&[SIZE]);
    let mut one_verified = sink_of(&[SIZE]);
    verify(&mut one_verified, 0, 0, true);
    let one_not_read_back = resumed(&[SIZE]);
    for (mut sink, stays) in
        [(nothing_moved, false), (one_verified, true), (one_not_read_back, true)]
    {
        actions(&mut sink);
        fail(&mut sink, FailureKind::Unreadable);
        assert_eq!(sink.journal.has_files(), stays);
        let is_discarded = actions(&mut sink).iter().any(|a| matches!(a, SinkAction::Discard(..)));
        assert_eq!(is_discarded, !stays);
    }
}

#[test]
fn a_record_that_waits_for_a_sync_is_never_that_of_another_file() {
    let mut sink = sink();
    let all = entries(&[3 * CHUNK.get(), 2 * CHUNK.get()]);
    let nothing = TargetState { target: None, temporary: None };
    let announce = |sink: &mut Sink, id: u32| {
        let segment = encode_segment(EntryId(id), std::slice::from_ref(&all[id as usize]));
        sink.on_message(now(), Message::Manifest(segment)).unwrap();
        sink.on_examined(now(), EntryId(id), vec![nothing]);
    };
    announce(&mut sink, 0);
    verify(&mut sink, 0, 0, true);
    sink.on_timeout(now() + SYNC_EVERY);
    // A sync is under way: the record of this chunk waits. Then its file fails.
    verify(&mut sink, 1, 0, true);
    fail(&mut sink, FailureKind::Changed);
    announce(&mut sink, 1);
    let mut done = actions(&mut sink);
    let sync = done.iter().find_map(|action| match action {
        SinkAction::Sync(token) => Some(*token),
        _ => None,
    });
    sink.on_synced(sync.expect("a sync"));
    done.append(&mut actions(&mut sink));
    let later = journal_of(&done).state;
    let file = later.lookup(&key(&all[1])).expect("it was begun");
    assert!(file.chunks.is_empty(), "{:?} of another file", file.chunks);
}

#[test]
fn a_chunk_that_was_bad_is_requested_once() {
    let ahead = NEED_CHUNKS as u64;
    let mut sink = resumed(&[(ahead + 1) * CHUNK.get(), 2 * CHUNK.get()]);
    let bad = ChunkIndex(ahead + 1);
    let times =
        |actions: &[SinkAction]| plans(actions).iter().filter(|plan| plan.chunk == bad).count();
    assert_eq!(times(&actions(&mut sink)), 0, "the window is full of what comes before");
    sink.on_rehashed(bad, EntryId(1), None);
    verify(&mut sink, 0, 0, true);
    assert_eq!(times(&actions(&mut sink)), 1);
    verify(&mut sink, bad.0, 1, true);
    for chunk in 1..=ahead {
        verify(&mut sink, chunk, 0, true);
    }
    verify(&mut sink, bad.0 + 1, 1, true);
    let rest = actions(&mut sink);
    assert_eq!(times(&rest), 0, "the run of its file comes to it later");
    assert_eq!(sink.chunks.held(), 0, "nothing is waited for");
}
