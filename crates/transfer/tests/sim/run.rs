//! One run of both ends in random steps, until it finishes or is cut off.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use packtrain_object::{
    Attributes, CHUNK, ChunkIndex, Entry, EntryId, EntryKind, HardLink, Piece, RelPath,
};
use packtrain_transfer::message::encode;
use packtrain_transfer::{
    ChunkPlan, Decoder, Failure, FailureKind, FileReport, LinkPlan, Linked, Message, Options,
    Outcome, PieceDigest, PieceHash, Requested, Sink, SinkAction, Source, SourceAction,
    TransportEvent, TransportId,
};
use packtrain_units::{Duration, Offset, RangeSet, Rng, Time};

use super::disk::{Disk, Node};
use super::tree::SourceEntry;
use super::{chunk_content, chunk_contents, digest, root};

mod sink_node;
mod source_node;

/// Probabilities of faults.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// A transport returns ranges, closes or reconnects.
    pub transport: f64,
    /// Written bytes are corrupted.
    pub garble: f64,
    /// An entry fails at the source.
    pub source: f64,
    /// An entry fails at the sink.
    pub sink: f64,
    /// The target is full.
    pub full: f64,
    /// A hard link cannot be made.
    pub link: f64,
}

/// The path of a file and the index of a chunk in it.
pub type Key = (Vec<u8>, u64);

enum Answer {
    Made(EntryId),
    Linked(EntryId, Linked),
    Written(ChunkIndex, Vec<PieceHash>),
    Rehashed(ChunkIndex, EntryId, Option<packtrain_object::Digest>),
    OldHashed(ChunkIndex, EntryId, Option<packtrain_object::Digest>),
    Copied(ChunkIndex, EntryId, Option<packtrain_object::Digest>),
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

/// Both ends and the channels between them.
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
    to_compare: Vec<Piece>,
    to_remove: Vec<EntryId>,
    /// Paths that the source removed.
    pub removed: BTreeSet<RelPath>,
    /// Files that it kept because they changed.
    pub kept: u64,
    jobs: VecDeque<SinkAction>,
    answers: Vec<Answer>,
    expected: BTreeMap<ChunkIndex, Vec<Expected>>,
    pub source_outcome: Option<Outcome>,
    pub sink_outcome: Option<Outcome>,
    pub reports: Vec<(Vec<u8>, FileReport)>,
    /// Bytes of payload moved.
    pub crossed: u64,
    /// Bytes copied from old versions.
    pub copied: u64,
    /// Hard links made.
    pub links: u64,
    /// How often an old version could not be read at an end, or changed.
    pub old_faults: u64,
    /// Chunks requested in this run, in order.
    pub expected_keys: Vec<Key>,
    /// Chunks for which the sink had both digests, and they matched.
    pub verified: BTreeSet<Key>,
    told_digests: BTreeSet<Key>,
    told_hashes: BTreeSet<Key>,
    /// The chunks verified when each sync began.
    covered: BTreeMap<u64, BTreeSet<Key>>,
    durable_unreported: BTreeSet<Key>,
    /// Chunks reported durable in this run.
    pub durable: BTreeSet<Key>,
    pub steps: u64,
    /// Maximum microseconds per step. Slow steps give a run with many syncs.
    pace: u64,
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
        disk.made = false;
        let now = Time::from_nanos(1 + rng.below(1 << 40));
        let pace = [3_000, 300_000][rng.below(2) as usize];
        let source = Source::new(options.clone(), now);
        let sink =
            Sink::new(options.clone(), Requested::anything(options), &disk.journal, [7; 16], now)
                .expect("our journal");
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
            to_compare: Vec::new(),
            to_remove: Vec::new(),
            removed: BTreeSet::new(),
            kept: 0,
            jobs: VecDeque::new(),
            answers: Vec::new(),
            expected: BTreeMap::new(),
            source_outcome: None,
            sink_outcome: None,
            reports: Vec::new(),
            crossed: 0,
            copied: 0,
            links: 0,
            old_faults: 0,
            expected_keys: Vec::new(),
            verified: BTreeSet::new(),
            told_digests: BTreeSet::new(),
            told_hashes: BTreeSet::new(),
            covered: BTreeMap::new(),
            durable_unreported: BTreeSet::new(),
            durable: BTreeSet::new(),
            steps: 0,
            pace,
            stream_left: None,
        };
        run.up();
        run
    }

    /// Something about an old version goes wrong.
    fn old_fault(&mut self) -> bool {
        let fault = self.rng.chance(0.02);
        self.old_faults += u64::from(fault);
        fault
    }

    /// Unchanged pieces of old versions do not travel.
    #[must_use]
    pub fn with_changed_pieces(mut self) -> Self {
        self.sink = self.sink.with_changed_pieces();
        self
    }

    /// Whether both ends are over.
    pub fn is_over(&self) -> bool {
        self.source_outcome.is_some() && self.sink_outcome.is_some()
    }

    /// Runs until both ends are over.
    pub fn finish(&mut self) {
        while !self.is_over() {
            self.step();
            assert!(self.steps < 2_000_000, "it never ends: {}", self.describe());
        }
        self.drain();
    }

    /// The connection is lost. The sink continues alone until it is over or `steps` are done.
    pub fn lose_source(&mut self, steps: u64) {
        self.to_sink.clear();
        self.source_outcome =
            Some(Outcome { summary: Default::default(), failure: None, failed: Vec::new() });
        self.sink.cancel(self.now, Failure::new(FailureKind::Temporary, "connection lost"));
        self.transports.clear();
        self.to_read.clear();
        self.to_compare.clear();
        self.to_remove.clear();
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
        self.source.on_transport_event(self.now, id, TransportEvent::Up { rank });
    }

    /// Executes one random event.
    pub fn step(&mut self) {
        self.steps += 1;
        self.now += Duration::from_micros(self.rng.below(self.pace));
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
        offer(!self.to_compare.is_empty(), 2, 10);
        offer(!self.to_remove.is_empty(), 2, 11);
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
            Some(10) => self.compare(),
            Some(11) => self.remove(),
            Some(_) => self.disturb(),
            None => self.wait(),
        }
        self.pump();
    }

    /// No event is possible: advances the time.
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
                // Applied at once, because a `Need` follows and its ranges may be placed.
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

    fn deliver_to_sink(&mut self) {
        let bytes = self.to_sink.pop_front().expect("offered");
        self.sink_decoder.feed(&bytes);
        while let Some(message) = self.sink_decoder.next().expect("our message") {
            if let Message::Digests { chunk, pieces } = &message {
                for piece in pieces {
                    self.note_digest(*chunk, piece);
                }
            }
            if let Message::Same(start) = &message
                && let Some(piece) = self.source.layout().piece_at(*start)
            {
                // The sink knows the digest already.
                let digest = packtrain_object::Digest([0; 32]);
                let told = PieceDigest { entry: piece.entry, digest };
                self.note_digest(ChunkIndex::of(*start), &told);
            }
            self.sink.on_message(self.now, message).expect("a message that fits");
        }
        // The account of a source is about what moved, and may come at any time.
        if self.rng.chance(0.05) {
            self.sink.on_accounted();
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
        // A sink that is ending processes no more digests.
        let ending = self.source_outcome.is_some();
        if !ending && self.told_digests.contains(&key) && self.told_hashes.contains(&key) {
            self.verified.insert(key);
        }
    }
}
