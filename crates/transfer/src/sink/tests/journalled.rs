//! Files of several chunks and the journal.

use packtrain_object::journal::{FORMAT, encode};
use packtrain_object::{FileKey, Record};

use super::*;

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
