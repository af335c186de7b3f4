//! The cost of the state machines for many small files, with drivers that answer at once. The
//! test prints the time and checks the numbers of messages, syncs and commits.

use std::collections::VecDeque;

use packtrain_object::{Digest, Entry, EntryId, EntryKind, Mtime, RelPath};
use packtrain_transfer::message::encode;
use packtrain_transfer::{
    Message, Options, PieceDigest, Requested, Sink, SinkAction, Source, SourceAction, TargetState,
    TransportEvent, TransportId,
};
use packtrain_units::{Duration, Time};

fn file(n: u32, size: u64) -> Entry {
    let path = RelPath::new(format!("d{:03}/f{n:06}", n / 1000).into_bytes()).expect("a path");
    let mtime = Mtime { secs: 1, nanos: 0 };
    let kind = EntryKind::File { size };
    Entry { path, kind, mode: 0o644, mtime, uid: 0, gid: 0, extras: Default::default() }
}

/// The file, preceded by its directory if it is the first file in it.
fn entries(n: u32, size: u64) -> impl Iterator<Item = Entry> {
    let path = RelPath::new(format!("d{:03}", n / 1000).into_bytes()).expect("a path");
    let directory = Entry { path, kind: EntryKind::Directory, mode: 0o755, ..file(n, size) };
    n.is_multiple_of(1000).then_some(directory).into_iter().chain([file(n, size)])
}

struct Pair {
    files: u32,
    size: fn(u32) -> u64,
    now: Time,
    source: Source,
    sink: Sink,
    walked: u32,
    to_sink: VecDeque<Message>,
    to_source: VecDeque<Message>,
    messages: u64,
    bytes: u64,
    syncs: u64,
    commits: u64,
    over: u8,
}

impl Pair {
    fn count(&mut self, message: &Message) {
        let mut bytes = Vec::new();
        encode(message, &mut bytes);
        self.messages += 1;
        self.bytes += bytes.len() as u64;
    }

    fn walk(&mut self) {
        let credit = self.source.walk_credit().min(1001).saturating_sub(1) as u32;
        let end = (self.walked + credit).min(self.files);
        if self.walked < end {
            let entries = (self.walked..end).flat_map(|n| entries(n, (self.size)(n)));
            self.source.on_entries(self.now, entries.collect());
            self.walked = end;
            if end == self.files {
                self.source.on_walk_end(self.now, Vec::new(), Vec::new());
            }
        }
    }

    fn source_actions(&mut self) {
        while let Some(action) = self.source.poll_action() {
            match action {
                SourceAction::Send(message) => {
                    self.count(&message);
                    self.to_sink.push_back(message);
                }
                SourceAction::Assign(id, range) => {
                    for chunk in packtrain_object::ChunkIndex::covering(&range) {
                        let piece = |p: packtrain_object::Piece| PieceDigest {
                            entry: p.entry,
                            digest: Digest([1; 32]),
                        };
                        let pieces = self.source.pieces_needed(chunk);
                        let digests = pieces.into_iter().map(piece).collect();
                        self.source.on_chunk_read(self.now, chunk, digests);
                    }
                    self.source.on_transport_event(self.now, id, TransportEvent::Placed(range));
                }
                SourceAction::Finished(outcome) => {
                    assert_eq!(outcome.summary.files_moved, u64::from(self.files));
                    self.over += 1;
                }
                _ => {}
            }
        }
    }

    fn sink_actions(&mut self) {
        while let Some(action) = self.sink.poll_action() {
            match action {
                SinkAction::Send(message) => {
                    self.count(&message);
                    self.to_source.push_back(message);
                }
                SinkAction::Examine(first, entries) => {
                    let nothing = TargetState { target: None, temporary: None };
                    self.sink.on_examined(self.now, first, vec![nothing; entries.len()]);
                }
                SinkAction::MakeDirectory(id, _) => self.sink.on_made(id, Ok(())),
                SinkAction::Expect(plan) => {
                    let hash =
                        |(p, _): &(packtrain_object::Piece, Entry)| (p.entry, Digest([1; 32]));
                    self.sink.on_written(plan.chunk, plan.pieces.iter().map(hash).collect());
                }
                SinkAction::Sync(token) => {
                    self.syncs += 1;
                    self.sink.on_synced(token);
                }
                SinkAction::Commit(batch) => {
                    self.commits += 1;
                    let ids: Vec<EntryId> = batch.iter().map(|(id, _)| *id).collect();
                    for id in ids {
                        self.sink.on_committed(id, Ok(()));
                    }
                }
                SinkAction::JournalSync { token, .. } => self.sink.on_journal_synced(token),
                SinkAction::Finished(_) => self.over += 1,
                _ => {}
            }
        }
    }
}

/// Moves files of these sizes.
fn moved(files: u32, size: fn(u32) -> u64) -> Pair {
    let now = Time::from_nanos(1);
    let mut pair = Pair {
        files,
        size,
        now,
        source: Source::new(Options::default(), now),
        sink: Sink::new(
            Options::default(),
            Requested::anything(&Options::default()),
            &[],
            [0; 16],
            now,
        )
        .expect("no journal"),
        walked: 0,
        to_sink: VecDeque::new(),
        to_source: VecDeque::new(),
        messages: 0,
        bytes: 0,
        syncs: 0,
        commits: 0,
        over: 0,
    };
    pair.source.on_transport_event(now, TransportId(0), TransportEvent::Up { rank: 0 });
    while pair.over < 2 {
        assert!(pair.now < now + Duration::from_secs(3600), "it stands still");
        pair.now += Duration::from_millis(5);
        pair.walk();
        pair.source.on_timeout(pair.now);
        pair.source_actions();
        while let Some(message) = pair.to_sink.pop_front() {
            pair.sink.on_message(pair.now, message).expect("a message that fits");
        }
        pair.sink.on_timeout(pair.now);
        pair.sink_actions();
        while let Some(message) = pair.to_source.pop_front() {
            pair.source.on_message(pair.now, message).expect("a message that fits");
        }
    }
    pair
}

#[test]
fn a_hundred_thousand_small_files_cost_little() {
    const FILES: u32 = 100_000;
    let pair = moved(FILES, |n| 1000 + u64::from(n % 7000));
    let per_file = pair.bytes / u64::from(FILES);
    eprintln!("{} messages, {per_file} bytes a file, {} syncs", pair.messages, pair.syncs);
    // Digests alone take about 35 bytes per file.
    assert!(per_file < 80, "{per_file} bytes of control a file");
    assert!(pair.messages < 2000, "{} messages", pair.messages);
    assert!(pair.syncs < 100, "{} syncs", pair.syncs);
    assert!(pair.commits < 1000, "{} commits", pair.commits);
}

/// All of them lie in one chunk, and the source may not announce all before any is complete.
#[test]
fn tiny_files_do_not_wait_for_their_chunk_to_fill() {
    const FILES: u32 = 300_000;
    let pair = moved(FILES, |_| 10);
    let per_file = pair.bytes / u64::from(FILES);
    eprintln!("{} messages, {per_file} bytes a file, {} syncs", pair.messages, pair.syncs);
    assert!(per_file < 80, "{per_file} bytes of control a file");
    assert!(pair.messages < 6000, "{} messages", pair.messages);
}
