//! One run of both ends, step by random step, until it finishes or is cut off.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;

use packtrain_object::{CHUNK, ChunkIndex, Entry, EntryId, EntryKind, Piece, RangeSet, RelPath};
use packtrain_transfer::message::encode;
use packtrain_transfer::{
    ChunkPlan, Decoder, Failure, FailureKind, FileReport, Message, Options, Outcome, PieceDigest,
    PieceHash, Sink, SinkAction, Source, SourceAction, TransportEvent, TransportId,
};
use packtrain_units::{Duration, Offset, Rng, Time};

use super::disk::{Disk, Node};
use super::tree::SourceEntry;
use super::{digest, root};

/// How likely what goes wrong.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// A transport returns ranges, closes, or comes back.
    pub transport: f64,
    /// A write is garbled.
    pub garble: f64,
    /// An entry fails at the source.
    pub source: f64,
    /// An entry fails at the sink.
    pub sink: f64,
    /// The target is full.
    pub full: f64,
}

/// A chunk by the file's path.
pub type Key = (Vec<u8>, u64);

enum Answer {
    Made(EntryId),
    Written(ChunkIndex, Vec<PieceHash>),
    Rehashed(ChunkIndex, EntryId, Option<packtrain_object::Digest>),
    Root(EntryId, Option<packtrain_object::Digest>),
    Synced(u64),
    Committed(EntryId),
    JournalSynced(u64),
    Deleted(Vec<(Vec<u8>, Result<(), Failure>)>),
}

struct Expected {
    piece: Piece,
    entry: Entry,
    got: RangeSet,
}

/// Both ends and everything between them.
pub struct Run<'a> {
    pub rng: Rng,
    pub now: Time,
    pub disk: &'a mut Disk,
    tree: BTreeMap<RelPath, SourceEntry>,
    options: Options,
    faults: Faults,
    source: Source,
    sink: Sink,
    walk: VecDeque<Entry>,
    to_sink: VecDeque<Vec<u8>>,
    to_source: VecDeque<Vec<u8>>,
    sink_decoder: Decoder,
    source_decoder: Decoder,
    transports: BTreeMap<TransportId, RangeSet>,
    next_transport: u32,
    placed: Vec<(TransportId, TransportEvent)>,
    to_read: VecDeque<ChunkIndex>,
    reported: BTreeSet<ChunkIndex>,
    roots_wanted: Vec<EntryId>,
    jobs: VecDeque<SinkAction>,
    answers: Vec<Answer>,
    expected: BTreeMap<ChunkIndex, Vec<Expected>>,
    pub source_outcome: Option<Outcome>,
    pub sink_outcome: Option<Outcome>,
    pub reports: Vec<(Vec<u8>, FileReport)>,
    /// Bytes of data that crossed.
    pub crossed: u64,
    /// Chunks asked for in this run, in the order asked.
    pub expected_keys: Vec<Key>,
    /// Chunks whose both digests the sink had, and that fit.
    pub verified: BTreeSet<Key>,
    told_digests: BTreeSet<Key>,
    told_hashes: BTreeSet<Key>,
    /// For each sync the chunks verified when it began.
    covered: BTreeMap<u64, BTreeSet<Key>>,
    durable_unreported: BTreeSet<Key>,
    /// Chunks durable and reported in this run.
    pub durable: BTreeSet<Key>,
    pub steps: u64,
    stream_left: Option<(EntryId, u64)>,
}

impl<'a> Run<'a> {
    pub fn new(
        seed: u64,
        tree: &[SourceEntry],
        options: &Options,
        faults: &Faults,
        disk: &'a mut Disk,
    ) -> Self {
        let mut rng = Rng::new(seed);
        let now = Time::from_nanos(1 + rng.below(1 << 40));
        let source = Source::new(options.clone(), now);
        let sink = Sink::new(options.clone(), &disk.journal, [7; 16], now).expect("our journal");
        let mut run = Self {
            rng,
            now,
            disk,
            tree: tree.iter().map(|e| (e.entry.path.clone(), e.clone())).collect(),
            options: options.clone(),
            faults: faults.clone(),
            source,
            sink,
            walk: tree.iter().map(|e| e.entry.clone()).collect(),
            to_sink: VecDeque::new(),
            to_source: VecDeque::new(),
            sink_decoder: Decoder::new(),
            source_decoder: Decoder::new(),
            transports: BTreeMap::new(),
            next_transport: 0,
            placed: Vec::new(),
            to_read: VecDeque::new(),
            reported: BTreeSet::new(),
            roots_wanted: Vec::new(),
            jobs: VecDeque::new(),
            answers: Vec::new(),
            expected: BTreeMap::new(),
            source_outcome: None,
            sink_outcome: None,
            reports: Vec::new(),
            crossed: 0,
            expected_keys: Vec::new(),
            verified: BTreeSet::new(),
            told_digests: BTreeSet::new(),
            told_hashes: BTreeSet::new(),
            covered: BTreeMap::new(),
            durable_unreported: BTreeSet::new(),
            durable: BTreeSet::new(),
            steps: 0,
            stream_left: None,
        };
        run.up();
        run
    }

    /// Whether both ends said that it is over.
    pub fn is_over(&self) -> bool {
        self.source_outcome.is_some() && self.sink_outcome.is_some()
    }

    /// Runs to the end.
    pub fn finish(&mut self) {
        while !self.is_over() {
            self.step();
            assert!(self.steps < 2_000_000, "it never ends: {}", self.describe());
        }
        self.drain();
    }

    /// The connection is lost; the sink goes on alone until it is over or `steps` are done.
    pub fn lose_source(&mut self, steps: u64) {
        self.to_sink.clear();
        self.source_outcome =
            Some(Outcome { summary: Default::default(), failure: None, failed: Vec::new() });
        self.sink.cancel(self.now, Failure::new(FailureKind::Temporary, "connection lost"));
        self.transports.clear();
        self.to_read.clear();
        self.placed.clear();
        self.walk.clear();
        for _ in 0..steps {
            if self.sink_outcome.is_some() {
                self.drain();
                return;
            }
            self.step();
        }
    }

    fn drain(&mut self) {
        while !self.jobs.is_empty() {
            self.do_job();
        }
    }

    fn up(&mut self) {
        let id = TransportId(self.next_transport);
        self.next_transport += 1;
        self.transports.insert(id, RangeSet::new());
        let rank = self.rng.below(3) as u8;
        self.source.on_transport_up(self.now, id, rank);
    }

    /// One thing happens.
    pub fn step(&mut self) {
        self.steps += 1;
        self.now += Duration::from_micros(self.rng.below(3000));
        self.pump();
        if self.is_over() {
            return;
        }
        let alone = self.source_outcome.is_some();
        let mut choices: Vec<u8> = Vec::with_capacity(16);
        let mut offer = |possible: bool, weight: usize, what: u8| {
            if possible {
                choices.extend(std::iter::repeat_n(what, weight));
            }
        };
        offer(!self.to_sink.is_empty(), 3, 0);
        offer(!self.to_source.is_empty() && !alone, 3, 1);
        offer(!self.jobs.is_empty(), 4, 2);
        offer(!self.answers.is_empty(), 4, 3);
        offer(self.transports.values().any(|r| !r.is_empty()), 4, 4);
        offer(!self.placed.is_empty(), 2, 5);
        offer(!self.to_read.is_empty(), 3, 6);
        offer(!self.walk.is_empty() && self.source.walk_credit() > 0, 2, 7);
        offer(!self.roots_wanted.is_empty(), 1, 8);
        offer(!alone && self.rng.chance(self.faults.transport), 1, 9);
        let at = self.rng.below(choices.len() as u64) as usize;
        match choices.get(at) {
            Some(0) => self.deliver_to_sink(),
            Some(1) => self.deliver_to_source(),
            Some(2) => self.do_job(),
            Some(3) => self.answer(),
            Some(4) => self.transport(),
            Some(5) => self.report_placed(),
            Some(6) => self.read_chunk(),
            Some(7) => self.walk_on(),
            Some(8) => self.hash_file(),
            Some(_) => self.disturb(),
            None => self.wait(),
        }
        self.pump();
    }

    /// Nothing can happen but time.
    fn wait(&mut self) {
        let next = [self.source.poll_timeout(), self.sink.poll_timeout()];
        if self.transports.is_empty() && self.source_outcome.is_none() {
            self.up();
            return;
        }
        let Some(next) = next.into_iter().flatten().min() else {
            panic!("nothing can happen any more: {}", self.describe());
        };
        self.now = self.now.max(next);
        self.source.on_timeout(self.now);
        self.sink.on_timeout(self.now);
    }

    pub fn describe(&self) -> String {
        format!(
            "step {} source {:?} over {} sink {:?} over {} expected {} transports {:?} jobs {}",
            self.steps,
            self.source.totals(),
            self.source_outcome.is_some(),
            self.sink.totals(),
            self.sink_outcome.is_some(),
            self.expected.len(),
            self.transports,
            self.jobs.len(),
        )
    }

    fn pump(&mut self) {
        while let Some(action) = self.source.poll_action() {
            self.source_action(action);
        }
        while let Some(action) = self.sink.poll_action() {
            match action {
                SinkAction::Send(message) => {
                    if let Message::Progress(_) = message {
                        let durable = std::mem::take(&mut self.durable_unreported);
                        self.durable.extend(durable);
                    }
                    let mut bytes = Vec::new();
                    encode(&message, &mut bytes);
                    self.to_source.push_back(bytes);
                }
                SinkAction::Finished(outcome) => self.sink_outcome = Some(outcome),
                SinkAction::Report(path, report) => self.reports.push((path, report)),
                // What may be placed is known at once: a `Need` follows.
                SinkAction::Expect(plan) => self.expect(plan),
                SinkAction::Zero(range) => self.zero(&range),
                SinkAction::EndStream(id, size) => self.end_stream(id, size.get()),
                SinkAction::Unexpect(range) => self.unexpect(&range),
                other => {
                    if let SinkAction::Sync(token) = other {
                        self.covered.insert(token, self.verified.clone());
                    }
                    self.jobs.push_back(other);
                }
            }
        }
    }

    fn source_action(&mut self, action: SourceAction) {
        match action {
            SourceAction::Send(message) => {
                let mut bytes = Vec::new();
                encode(&message, &mut bytes);
                self.to_sink.push_back(bytes);
            }
            SourceAction::Assign(id, range) => {
                for chunk in ChunkIndex::covering(&range) {
                    if !self.reported.contains(&chunk) && !self.to_read.contains(&chunk) {
                        self.to_read.push_back(chunk);
                    }
                }
                if let Some(ranges) = self.transports.get_mut(&id) {
                    assert_eq!(
                        ranges.insert(range.clone()),
                        range.end.since(range.start),
                        "assigned twice"
                    );
                }
            }
            SourceAction::Revoke(id, range) => {
                if let Some(ranges) = self.transports.get_mut(&id) {
                    let had: Vec<_> = ranges.intersect(range).collect();
                    for part in had {
                        ranges.remove(part.clone());
                        self.placed.push((id, TransportEvent::Returned(part)));
                    }
                }
            }
            SourceAction::Reread(range) => {
                for chunk in ChunkIndex::covering(&range) {
                    self.reported.remove(&chunk);
                }
            }
            SourceAction::HashFile(id) => self.roots_wanted.push(id),
            SourceAction::Forget(_) => {}
            SourceAction::Finished(outcome) => self.source_outcome = Some(outcome),
        }
    }

    fn deliver_to_sink(&mut self) {
        let bytes = self.to_sink.pop_front().expect("offered");
        self.sink_decoder.feed(&bytes);
        while let Some(message) = self.sink_decoder.next().expect("our message") {
            if let Message::Digests { chunk, pieces } = &message {
                for piece in pieces {
                    self.note_digest(*chunk, piece);
                }
            }
            self.sink.on_message(self.now, message).expect("a message that fits");
        }
    }

    fn deliver_to_source(&mut self) {
        let bytes = self.to_source.pop_front().expect("offered");
        self.source_decoder.feed(&bytes);
        while let Some(message) = self.source_decoder.next().expect("our message") {
            self.source.on_message(self.now, message).expect("a message that fits");
        }
    }

    fn key(&self, entry: &Entry, piece: &Piece) -> Key {
        (entry.path.as_bytes().to_vec(), piece.file_offset / CHUNK.get())
    }

    fn note_digest(&mut self, chunk: ChunkIndex, told: &PieceDigest) {
        let Some(entry) = self.sink.entry(told.entry).cloned() else { return };
        let Some(range) = self.source.layout().range_of(told.entry) else { return };
        let at = chunk.start().0.max(range.start.0) - range.start.0;
        let key = (entry.path.as_bytes().to_vec(), at / CHUNK.get());
        self.told_digests.insert(key.clone());
        self.note_verified(key);
    }

    fn note_verified(&mut self, key: Key) {
        // A sink that is ending takes no more in.
        let ending = self.source_outcome.is_some();
        if !ending && self.told_digests.contains(&key) && self.told_hashes.contains(&key) {
            self.verified.insert(key);
        }
    }

    fn walk_on(&mut self) {
        let count = 1 + self.rng.below(self.source.walk_credit().min(40) as u64) as usize;
        let entries: Vec<_> = self.walk.drain(..count.min(self.walk.len())).collect();
        if let Some(entry) = entries.iter().find(|e| e.kind == EntryKind::Stream) {
            let size = self.tree[&entry.path].content % (5 * CHUNK.get());
            let size = if self.rng.chance(0.1) { 0 } else { size };
            let id = self.source.totals().entries + entries.len() as u64 - 1;
            self.stream_left = Some((EntryId(id as u32), size));
        }
        self.source.on_entries(self.now, entries);
        if self.walk.is_empty() {
            self.source.on_walk_end(self.now, Vec::new());
        }
    }

    fn content(&self, id: EntryId) -> Option<&SourceEntry> {
        self.tree.get(&self.source.entry(id)?.path)
    }

    fn read_chunk(&mut self) {
        let at = self.rng.below(self.to_read.len() as u64) as usize;
        let chunk = self.to_read.remove(at).expect("in range");
        if let Some((id, size)) = self.stream_left {
            let start = self.source.layout().range_of(id).expect("a stream").start.0;
            if chunk.range().end.0 > start + size {
                self.stream_left = None;
                self.source.on_stream_end(self.now, id, size);
                self.pump();
            }
        }
        let pieces = self.source.pieces_needed(chunk);
        let mut digests = Vec::new();
        for piece in pieces {
            if self.rng.chance(self.faults.source) {
                let failure = Failure::new(FailureKind::Unreadable, "a bad sector");
                self.source.on_entry_failed(self.now, piece.entry, failure);
                continue;
            }
            let Some(entry) = self.content(piece.entry) else { continue };
            let len = piece.range.end.0 - piece.range.start.0;
            let digest = digest(entry.content, piece.file_offset, len);
            digests.push(PieceDigest { entry: piece.entry, digest });
            if entry.sparse && piece.file_offset == CHUNK.get() {
                self.hole(&piece);
            }
        }
        self.reported.insert(chunk);
        self.source.on_chunk_read(self.now, chunk, digests);
    }

    /// The reader finds that what is still to be moved of a piece is a hole.
    fn hole(&mut self, piece: &Piece) {
        let waiting: Vec<Range<Offset>> = self
            .transports
            .values()
            .flat_map(|ranges| ranges.intersect(piece.range.clone()).collect::<Vec<_>>())
            .collect();
        for range in waiting {
            self.source.on_hole(self.now, range);
        }
    }

    fn hash_file(&mut self) {
        let id = self.roots_wanted.pop().expect("offered");
        let size = self.source.entry(id).and_then(|e| e.size()).unwrap_or_default();
        let digest = self.content(id).map(|entry| root(entry.content, size));
        self.source.on_root(self.now, id, digest);
    }

    fn transport(&mut self) {
        let busy: Vec<_> =
            self.transports.iter().filter(|(_, r)| !r.is_empty()).map(|(id, _)| *id).collect();
        let id = busy[self.rng.below(busy.len() as u64) as usize];
        let max = 1 + self.rng.below(3 * CHUNK.get());
        let ranges = self.transports.get_mut(&id).expect("busy");
        let mut range = ranges.pop_front(packtrain_units::ByteCount(max)).expect("busy");
        if let Some((stream, size)) = self.stream_left {
            let end = self.source.layout().range_of(stream).expect("a stream").start.0 + size;
            if range.end.0 > end {
                let cut = Offset(end.max(range.start.0));
                self.transports.get_mut(&id).expect("busy").insert(cut..range.end);
                range.end = cut;
                if range.start >= cut {
                    return;
                }
            }
        }
        self.move_range(&range);
        if self.rng.chance(0.05) {
            self.move_range(&range);
        }
        self.placed.push((id, TransportEvent::Placed(range)));
    }

    /// Data crosses and is written.
    fn move_range(&mut self, range: &Range<Offset>) {
        for chunk in ChunkIndex::covering(range) {
            for piece in self.source.layout().pieces(chunk) {
                let part = piece.range.start.max(range.start)..piece.range.end.min(range.end);
                if part.start < part.end
                    && let Some(content) = self.content(piece.entry).map(|entry| entry.content)
                {
                    self.arrive(chunk, &piece, &part, content);
                }
            }
        }
    }

    fn arrive(&mut self, chunk: ChunkIndex, piece: &Piece, part: &Range<Offset>, content: u64) {
        self.crossed += part.end.0 - part.start.0;
        let garbled = self.rng.chance(self.faults.garble);
        let content = if garbled { content ^ 2 } else { content };
        let refused = self.rng.chance(self.faults.sink);
        let full = self.rng.chance(self.faults.full);
        let Some(plan) = self.expected.get_mut(&chunk) else { return };
        let Some(expected) = plan.iter_mut().find(|e| e.piece.entry == piece.entry) else { return };
        if refused || full {
            let kind = if full { FailureKind::TargetFull } else { FailureKind::TargetRefused };
            self.sink.on_write_failed(piece.entry, Failure::new(kind, "no"));
            return;
        }
        let end = part.end.min(expected.piece.range.end);
        if part.start >= end {
            return;
        }
        let part = part.start..end;
        // A duplicate of what is written already is dropped.
        for fresh in expected.got.gaps(part.clone()).collect::<Vec<_>>() {
            self.disk.write(&expected.entry, &expected.piece, fresh, content);
        }
        expected.got.insert(part);
        self.check_chunk(chunk);
    }

    /// Answers a chunk whose pieces are all written.
    fn check_chunk(&mut self, chunk: ChunkIndex) {
        let Some(plan) = self.expected.get(&chunk) else { return };
        if plan.iter().any(|e| !e.got.contains_range(&e.piece.range)) {
            return;
        }
        let plan = self.expected.remove(&chunk).expect("just seen");
        if plan.is_empty() {
            return;
        }
        let hashes = plan
            .iter()
            .map(|e| (e.piece.entry, self.disk.hash(&e.entry, &e.piece).expect("written")))
            .collect();
        self.answers.push(Answer::Written(chunk, hashes));
    }

    fn report_placed(&mut self) {
        let at = self.rng.below(self.placed.len() as u64) as usize;
        let (id, event) = self.placed.remove(at);
        self.source.on_transport_event(self.now, id, event);
    }

    fn disturb(&mut self) {
        let ids: Vec<_> = self.transports.keys().copied().collect();
        let id = ids.get(self.rng.below(ids.len() as u64 + 1) as usize).copied();
        match id {
            None => self.up(),
            Some(id) if self.rng.chance(0.3) => {
                self.transports.remove(&id);
                self.placed.retain(|(other, _)| *other != id);
                let failure = Failure::new(FailureKind::Temporary, "gone");
                self.source.on_transport_event(self.now, id, TransportEvent::Closed(failure));
            }
            Some(_) if self.rng.chance(0.5) => self.now += Duration::from_secs(4),
            Some(id) => {
                let ranges = self.transports.get_mut(&id).expect("known");
                if let Some(last) = ranges.last() {
                    ranges.remove(last.clone());
                    self.placed.push((id, TransportEvent::Returned(last)));
                }
            }
        }
        self.source.on_timeout(self.now);
        self.sink.on_timeout(self.now);
    }

    fn do_job(&mut self) {
        match self.jobs.pop_front().expect("offered") {
            SinkAction::Examine(first, entries) => {
                let states = entries.iter().map(|entry| self.disk.examine(entry)).collect();
                self.sink.on_examined(self.now, first, states);
            }
            SinkAction::MakeDirectory(id, entry) => {
                self.disk.place(&entry).target = Some(Node::Directory { entry: None });
                self.answers.push(Answer::Made(id));
            }
            SinkAction::MakeSymlink(id, entry) => {
                let EntryKind::Symlink { target } = &entry.kind else { panic!("not a link") };
                self.disk.place(&entry).target = Some(Node::Symlink(target.clone()));
                self.answers.push(Answer::Made(id));
            }
            SinkAction::MakeEmpty(id, entry) => {
                self.disk.place(&entry).temporary = Some(Default::default());
                self.answers.push(Answer::Made(id));
            }
            SinkAction::Rehash(chunk, piece, entry) => {
                let hash = self.disk.hash(&entry, &piece);
                self.answers.push(Answer::Rehashed(chunk, piece.entry, hash));
            }
            SinkAction::HashTarget(id, entry) => {
                self.answers.push(Answer::Root(id, self.disk.target_root(&entry)));
            }
            SinkAction::RewriteJournal(bytes) => self.disk.rewrite_journal(bytes),
            SinkAction::Journal(bytes) => self.disk.journal.extend_from_slice(&bytes),
            SinkAction::Sync(token) => {
                self.disk.begin_sync(token);
                self.answers.push(Answer::Synced(token));
            }
            SinkAction::Commit(batch) => {
                for (id, entry) in batch {
                    self.disk.commit(&entry);
                    self.answers.push(Answer::Committed(id));
                }
            }
            SinkAction::Settle(batch) => self.settle(batch),
            SinkAction::JournalSync(token) => {
                self.disk.begin_journal_sync(token);
                self.answers.push(Answer::JournalSynced(token));
            }
            SinkAction::Discard(_, entry) => self.disk.place(&entry).temporary = None,
            SinkAction::Delete(plan) => self.delete(&plan.keep, plan.dry_run),
            SinkAction::RemoveJournal => self.disk.remove_journal(),
            _ => panic!("not a job"),
        }
    }

    fn delete(&mut self, keep: &[Vec<u8>], dry_run: bool) {
        let gone: Vec<_> = self
            .disk
            .places
            .iter()
            .filter(|(path, place)| place.target.is_some() && keep.binary_search(path).is_err())
            .map(|(path, _)| path.clone())
            .collect();
        for path in gone.iter().filter(|_| !dry_run) {
            self.disk.places.remove(path);
        }
        let gone = gone.into_iter().map(|path| (path, Ok(()))).collect();
        self.answers.push(Answer::Deleted(gone));
    }

    fn settle(&mut self, batch: Vec<(EntryId, Entry)>) {
        for (_, entry) in batch {
            match &mut self.disk.place(&entry).target {
                Some(Node::Directory { entry: meta }) => *meta = Some(entry),
                Some(Node::File { entry: meta, .. }) => *meta = entry,
                other => panic!("settled what is {other:?}"),
            }
        }
    }

    fn expect(&mut self, plan: ChunkPlan) {
        let known = self.expected.entry(plan.chunk).or_default();
        let mut keys = Vec::new();
        for (piece, entry) in plan.pieces {
            known.retain(|e| e.piece.entry != piece.entry);
            keys.push((entry.path.as_bytes().to_vec(), piece.file_offset / CHUNK.get()));
            known.push(Expected { piece, entry, got: RangeSet::new() });
        }
        for key in keys {
            self.told_hashes.remove(&key);
            self.told_digests.remove(&key);
            self.verified.remove(&key);
            self.expected_keys.push(key);
        }
    }

    fn zero(&mut self, range: &Range<Offset>) {
        for chunk in ChunkIndex::covering(range) {
            for piece in self.source.layout().pieces(chunk) {
                let part = piece.range.start.max(range.start)..piece.range.end.min(range.end);
                let path = self.expected.get(&chunk).and_then(|plan| {
                    let expected = plan.iter().find(|e| e.piece.entry == piece.entry)?;
                    Some(expected.entry.path.clone())
                });
                if part.start < part.end
                    && let Some(path) = path
                {
                    let content = self.tree[&path].content;
                    self.arrive(chunk, &piece, &part, content);
                }
            }
        }
    }

    fn unexpect(&mut self, range: &Range<Offset>) {
        for chunk in ChunkIndex::covering(range) {
            if let Some(plan) = self.expected.get_mut(&chunk) {
                plan.retain(|e| {
                    e.piece.range.start >= range.end || e.piece.range.end <= range.start
                });
            }
            self.check_chunk(chunk);
        }
    }

    fn end_stream(&mut self, id: EntryId, size: u64) {
        let chunks: Vec<_> = self.expected.keys().copied().collect();
        let path = self.stream_path();
        for chunk in chunks {
            let plan = self.expected.get_mut(&chunk).expect("listed");
            for expected in plan.iter_mut().filter(|e| e.piece.entry == id) {
                let start = expected.piece.range.start.0 - expected.piece.file_offset;
                expected.piece.range.end = expected.piece.range.end.min(Offset(start + size));
            }
            plan.retain(|e| e.piece.range.start < e.piece.range.end);
            self.check_chunk(chunk);
        }
        if let Some(place) = self.disk.places.get_mut(&path)
            && let Some(temporary) = &mut place.temporary
        {
            temporary.size = size;
        }
    }

    fn stream_path(&self) -> Vec<u8> {
        let stream = self.tree.values().find(|e| e.entry.kind == EntryKind::Stream);
        stream.expect("a stream").entry.path.as_bytes().to_vec()
    }

    fn answer(&mut self) {
        let at = self.rng.below(self.answers.len() as u64) as usize;
        match self.answers.swap_remove(at) {
            Answer::Made(id) => {
                if self.rng.chance(self.faults.sink) {
                    let failure = Failure::new(FailureKind::TargetRefused, "no");
                    self.sink.on_made(id, Err(failure));
                } else {
                    self.sink.on_made(id, Ok(()));
                }
            }
            Answer::Written(chunk, hashes) => self.written(chunk, hashes),
            Answer::Rehashed(chunk, id, hash) => self.sink.on_rehashed(chunk, id, hash),
            Answer::Root(id, root) => self.sink.on_target_root(id, root),
            Answer::Synced(token) => {
                self.disk.synced(token);
                self.sink.on_synced(token);
            }
            Answer::Committed(id) => self.sink.on_committed(id, Ok(())),
            Answer::JournalSynced(token) => {
                self.disk.journal_synced(token);
                if let Some(keys) = self.covered.remove(&token) {
                    self.durable_unreported.extend(keys);
                }
                self.sink.on_journal_synced(token);
            }
            Answer::Deleted(paths) => self.sink.on_deleted(paths),
        }
        if self.rng.chance(0.2) {
            self.sink.on_timeout(self.now);
            self.source.on_timeout(self.now);
        }
    }

    fn written(&mut self, chunk: ChunkIndex, hashes: Vec<PieceHash>) {
        for (id, hash) in &hashes {
            let Some(entry) = self.sink.entry(*id).cloned() else { continue };
            let Some(range) = self.source.layout().range_of(*id) else { continue };
            let at = chunk.start().0.max(range.start.0) - range.start.0;
            let len = chunk.range().end.0.min(range.end.0) - range.start.0 - at;
            let key = (entry.path.as_bytes().to_vec(), at / CHUNK.get());
            let good = digest(self.tree[&entry.path].content, at, len) == *hash;
            if good {
                self.told_hashes.insert(key.clone());
                self.note_verified(key);
            }
        }
        self.sink.on_written(chunk, hashes);
    }

    /// The tree is at the target as it is at the source.
    pub fn assert_identical(&self) {
        for (path, source) in &self.tree {
            let place = self.disk.places.get(path.as_bytes());
            let target = place.and_then(|place| place.target.as_ref());
            match (&source.entry.kind, target) {
                (EntryKind::Directory, Some(Node::Directory { entry: Some(entry) })) => {
                    assert_eq!(entry, &source.entry);
                }
                (EntryKind::Symlink { target }, Some(Node::Symlink(found))) => {
                    assert_eq!(target, found);
                }
                (EntryKind::File { size }, Some(Node::File { content, size: found, entry })) => {
                    assert_eq!(size, found, "size of {path:?}");
                    let wanted = if *size == 0 { 0 } else { source.content };
                    assert_eq!(wanted, *content, "content of {path:?}");
                    assert_eq!((entry.mtime, entry.mode), (source.entry.mtime, source.entry.mode));
                }
                (EntryKind::Stream, Some(Node::File { content, size, .. })) => {
                    assert!(*size == 0 || *content == source.content, "content of the stream");
                }
                other => panic!("{path:?}: {other:?}"),
            }
            assert!(place.is_some_and(|p| p.temporary.is_none()), "a temporary of {path:?}");
        }
    }
}
