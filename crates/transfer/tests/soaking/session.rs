//! One connection of the mirror, in ticks.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;

use packtrain_object::{CHUNK, ChunkIndex, Digest, Entry, Piece};
use packtrain_transfer::{
    Failure, FailureKind, Found, FoundKind, Message, Options, PieceDigest, Requested, Sink,
    SinkAction, Source, SourceAction, TargetState, TransportEvent, TransportId,
};
use packtrain_units::{ByteCount, Duration, Offset, RangeSet, Time};

use super::{FILES, Mirror, TICK, content, named};

/// Bytes that the path carries per tick: 64 Mbit/s.
const TICK_BYTES: u64 = 2_000_000;
/// One-way delay.
const DELAY: Duration = Duration::from_millis(100);
/// Time without messages after which the connection is closed.
const DEAD: Duration = Duration::from_secs(60);

struct Expected {
    piece: Piece,
    entry: Entry,
    got: RangeSet,
    garbled: bool,
}

/// Delayed answers of the sink's driver.
enum Answer {
    Synced(u64),
    JournalSynced(u64),
}

pub(crate) struct Session<'m> {
    mirror: &'m mut Mirror,
    source: Source,
    sink: Sink,
    walked: u32,
    to_sink: VecDeque<(Time, Message)>,
    to_source: VecDeque<(Time, Message)>,
    transports: BTreeMap<TransportId, RangeSet>,
    next_transport: u32,
    /// Chunks whose digests the source has sent.
    reported: BTreeSet<ChunkIndex>,
    expected: BTreeMap<ChunkIndex, Vec<Expected>>,
    answers: VecDeque<(Time, Answer)>,
    /// The path is down until this time.
    out_until: Time,
    source_over: bool,
    sink_over: bool,
    failed: bool,
    cut: bool,
}

impl<'m> Session<'m> {
    pub(crate) fn new(mirror: &'m mut Mirror) -> Self {
        let options = Options { recursive: true, ..Options::default() };
        let now = mirror.now;
        let requested = Requested::anything(&options);
        let sink = Sink::new(options.clone(), requested, &mirror.disk.journal, [7; 16], now);
        let mut session = Self {
            source: Source::new(options, now),
            sink: sink.expect("our journal"),
            mirror,
            walked: 0,
            to_sink: VecDeque::new(),
            to_source: VecDeque::new(),
            transports: BTreeMap::new(),
            next_transport: 0,
            reported: BTreeSet::new(),
            expected: BTreeMap::new(),
            answers: VecDeque::new(),
            out_until: now,
            source_over: false,
            sink_over: false,
            failed: false,
            cut: false,
        };
        session.up(0);
        session.up(1);
        session
    }

    pub(crate) fn now(&self) -> Time {
        self.mirror.now
    }

    pub(crate) fn is_over(&self) -> bool {
        self.cut || self.source_over && self.sink_over
    }

    pub(crate) fn is_complete(&self) -> bool {
        !self.cut && self.is_over() && !self.failed
    }

    pub(crate) fn describe(&self) -> String {
        let (source, sink) = (self.source.totals(), self.sink.totals());
        format!("{source:?} {sink:?} expected {} {:?}", self.expected.len(), self.transports)
    }

    /// Advances the time by a tick, with random faults if `disturbed`.
    pub(crate) fn tick(&mut self, disturbed: bool) {
        self.mirror.now += TICK;
        if disturbed {
            self.disturb();
        }
        if self.cut {
            return;
        }
        let now = self.now();
        self.walk();
        let carries = now >= self.out_until;
        if carries {
            self.deliver();
            self.carry();
        }
        while self.answers.front().is_some_and(|(at, _)| *at <= now) {
            match self.answers.pop_front() {
                Some((_, Answer::Synced(token))) => self.sink.on_synced(token),
                Some((_, Answer::JournalSynced(token))) => self.sink.on_journal_synced(token),
                None => {}
            }
        }
        self.source.on_timeout(now);
        self.sink.on_timeout(now);
        self.pump();
        let queued = self.to_sink.len() + self.to_source.len() + self.expected.len();
        let own = queued + self.reported.len() + self.answers.len();
        self.mirror.note_held(self.source.held() + self.sink.held() + own);
    }

    /// Random outages, changes of transports, sleep, and killed programs.
    fn disturb(&mut self) {
        let per_hour = |times: f64| times / 14_400.0;
        let mirror = &mut *self.mirror;
        if mirror.rng.chance(per_hour(4.0)) {
            mirror.seen.outages += 1;
            let long = mirror.rng.chance(0.2);
            let length = Duration::from_secs(1 + mirror.rng.below(if long { 600 } else { 40 }));
            self.out_until = self.out_until.max(mirror.now + length);
            if length > DEAD {
                return self.lose();
            }
        }
        if self.mirror.rng.chance(per_hour(0.5)) {
            // Both machines sleep for an hour; the connection survives.
            self.mirror.seen.sleeps += 1;
            self.mirror.now += Duration::from_secs(3600);
        }
        if self.mirror.rng.chance(per_hour(2.0)) {
            self.mirror.seen.restarts += 1;
            self.cut = true;
            return;
        }
        if self.mirror.rng.chance(per_hour(12.0)) {
            self.swap_transport();
        }
    }

    /// The connection is lost. The sink shuts down cleanly if it has enough time.
    fn lose(&mut self) {
        self.mirror.seen.restarts += 1;
        self.cut = true;
        let now = self.now();
        self.sink.cancel(now, Failure::new(FailureKind::Temporary, "connection lost"));
        self.transports.clear();
        for _ in 0..self.mirror.rng.below(40) {
            self.mirror.now += TICK;
            while let Some((_, answer)) = self.answers.pop_front() {
                match answer {
                    Answer::Synced(token) => self.sink.on_synced(token),
                    Answer::JournalSynced(token) => self.sink.on_journal_synced(token),
                }
            }
            self.sink.on_timeout(self.now());
            self.pump_sink();
        }
        self.mirror.now = self.mirror.now.max(self.out_until);
    }

    fn up(&mut self, rank: u8) {
        let id = TransportId(self.next_transport);
        self.next_transport += 1;
        self.transports.insert(id, RangeSet::new());
        let now = self.now();
        self.source.on_transport_event(now, id, TransportEvent::Up { rank });
    }

    /// Closes a transport and opens another one.
    fn swap_transport(&mut self) {
        if let Some((&id, _)) = self.transports.iter().next() {
            self.transports.remove(&id);
            let failure = Failure::new(FailureKind::Temporary, "gone");
            let now = self.now();
            self.source.on_transport_event(now, id, TransportEvent::Closed(failure));
        }
        let rank = self.mirror.rng.below(2) as u8;
        self.up(rank);
    }

    fn walk(&mut self) {
        let credit = self.source.walk_credit().min(200) as u32;
        let end = FILES.min(self.walked + credit);
        if self.walked < end {
            let now = self.now();
            let files = (self.walked..end).map(|n| self.mirror.file(n)).collect();
            self.source.on_entries(now, files);
            self.walked = end;
            if end == FILES {
                self.source.on_walk_end(now, Vec::new(), Vec::new());
            }
        }
    }

    /// Delivers messages that are due, in order.
    fn deliver(&mut self) {
        let now = self.now();
        while self.to_sink.front().is_some_and(|(at, _)| *at <= now) {
            let (_, message) = self.to_sink.pop_front().expect("just seen");
            self.sink.on_message(now, message).expect("a message that fits");
        }
        while self.to_source.front().is_some_and(|(at, _)| *at <= now) {
            let (_, message) = self.to_source.pop_front().expect("just seen");
            self.source.on_message(now, message).expect("a message that fits");
        }
        self.pump();
    }

    /// Moves assigned ranges, up to the capacity of a tick.
    fn carry(&mut self) {
        let mut left = TICK_BYTES;
        let now = self.now();
        for id in self.transports.keys().copied().collect::<Vec<_>>() {
            while left > 0 {
                let Some(ranges) = self.transports.get_mut(&id) else { break };
                let most = ByteCount(left.min(1 + self.mirror.rng.below(2 * TICK_BYTES)));
                let Some(range) = ranges.pop_front(most) else { break };
                left -= range.end.since(range.start).get();
                if self.mirror.rng.chance(0.02) {
                    // Lost: sent again.
                    ranges.insert(range);
                    continue;
                }
                self.arrive(&range);
                if self.mirror.rng.chance(0.02) {
                    self.arrive(&range);
                }
                self.source.on_transport_event(now, id, TransportEvent::Placed(range));
            }
        }
        self.pump();
    }

    fn arrive(&mut self, range: &Range<Offset>) {
        self.mirror.seen.moved += range.end.since(range.start).get();
        for chunk in ChunkIndex::covering(range) {
            let Some(plan) = self.expected.get_mut(&chunk) else { continue };
            for expected in plan.iter_mut() {
                let piece = &expected.piece.range;
                let part = piece.start.max(range.start)..piece.end.min(range.end);
                if part.start >= part.end {
                    continue;
                }
                if expected.got.insert(part) > ByteCount::ZERO && self.mirror.rng.chance(2e-4) {
                    self.mirror.seen.garbled += 1;
                    expected.garbled = true;
                }
            }
            self.check(chunk);
        }
    }

    /// Writes and hashes a chunk when all its bytes have arrived.
    fn check(&mut self, chunk: ChunkIndex) {
        let Some(plan) = self.expected.get(&chunk) else { return };
        if plan.iter().any(|e| !e.got.contains_range(&e.piece.range)) {
            return;
        }
        let plan = self.expected.remove(&chunk).expect("just seen");
        if plan.is_empty() {
            return;
        }
        let mut hashes = Vec::new();
        for Expected { piece, entry, garbled, .. } in plan {
            let (n, version) = named(&entry);
            let content = content(n, version) ^ u64::from(garbled) << 60;
            self.mirror.disk.write(n, piece.file_offset / CHUNK.get(), content);
            hashes.push((piece.entry, hash(content, &piece)));
        }
        self.sink.on_written(chunk, hashes);
    }

    fn pump(&mut self) {
        while let Some(action) = self.source.poll_action() {
            self.source_action(action);
        }
        self.pump_sink();
        while let Some(action) = self.source.poll_action() {
            self.source_action(action);
        }
    }

    fn source_action(&mut self, action: SourceAction) {
        let now = self.now();
        match action {
            SourceAction::Send(message) => self.to_sink.push_back((now + DELAY, message)),
            SourceAction::Assign(id, range) => {
                for chunk in ChunkIndex::covering(&range) {
                    if self.reported.insert(chunk) {
                        self.report(chunk);
                    }
                }
                if let Some(ranges) = self.transports.get_mut(&id) {
                    ranges.insert(range);
                }
            }
            SourceAction::Revoke(id, range) => {
                let Some(ranges) = self.transports.get_mut(&id) else { return };
                for part in ranges.intersect(range).collect::<Vec<_>>() {
                    ranges.remove(part.clone());
                    self.source.on_transport_event(now, id, TransportEvent::Returned(part));
                }
            }
            SourceAction::Reread(range) | SourceAction::Forget(range) => {
                for chunk in ChunkIndex::covering(&range) {
                    self.reported.remove(&chunk);
                }
            }
            SourceAction::HashFile(_) => panic!("nobody asked for checksums"),
            SourceAction::Remove(_) => panic!("nobody asked for removals"),
            SourceAction::Compare(_) => panic!("nobody has an old version"),
            SourceAction::Finished(outcome) => {
                self.source_over = true;
                self.failed |= outcome.failure.is_some() || outcome.summary.failed > 0;
            }
        }
    }

    /// The source reads a chunk and sends its digests.
    fn report(&mut self, chunk: ChunkIndex) {
        let now = self.now();
        let mut digests = Vec::new();
        for piece in self.source.pieces_needed(chunk) {
            let Some(entry) = self.source.entry(piece.entry) else { continue };
            let (n, version) = named(entry);
            let digest = hash(content(n, version), &piece);
            digests.push(PieceDigest { entry: piece.entry, digest });
        }
        self.source.on_chunk_read(now, chunk, digests);
    }

    fn pump_sink(&mut self) {
        while let Some(action) = self.sink.poll_action() {
            self.sink_action(action);
        }
    }

    fn sink_action(&mut self, action: SinkAction) {
        let now = self.now();
        match action {
            SinkAction::Send(message) => self.to_source.push_back((now + DELAY, message)),
            SinkAction::Examine(first, entries) => {
                let states = entries.iter().map(|entry| self.examine(entry)).collect();
                self.sink.on_examined(now, first, states);
            }
            SinkAction::Expect(plan) => {
                let known = self.expected.entry(plan.chunk).or_default();
                for (piece, entry) in plan.pieces {
                    known.retain(|e| e.piece.entry != piece.entry);
                    known.push(Expected { piece, entry, got: RangeSet::new(), garbled: false });
                }
            }
            SinkAction::Unexpect(range) => {
                for chunk in ChunkIndex::covering(&range) {
                    if let Some(plan) = self.expected.get_mut(&chunk) {
                        plan.retain(|e| {
                            e.piece.range.start >= range.end || e.piece.range.end <= range.start
                        });
                    }
                    self.check(chunk);
                }
            }
            SinkAction::Rehash(chunk, piece, entry) => {
                let (n, _) = named(&entry);
                let there = self.mirror.disk.read(n, piece.file_offset / CHUNK.get());
                let digest = there.map(|content| hash(content, &piece));
                self.sink.on_rehashed(chunk, piece.entry, digest);
            }
            SinkAction::RewriteJournal(bytes) => self.mirror.disk.journal = bytes,
            SinkAction::Journal(bytes) => self.mirror.disk.journal.extend(bytes),
            SinkAction::Abandon(_) => {}
            SinkAction::RemoveJournal => self.mirror.disk.journal.clear(),
            SinkAction::Sync(token) => self.answer(Answer::Synced(token)),
            SinkAction::JournalSync { token, .. } => self.answer(Answer::JournalSynced(token)),
            SinkAction::Commit(batch) => {
                for (id, entry) in batch {
                    let (n, version) = named(&entry);
                    self.mirror.disk.commit(n, version);
                    self.sink.on_committed(id, Ok(()));
                }
            }
            SinkAction::Discard(_, entry) => self.mirror.disk.discard(named(&entry).0),
            SinkAction::Settle(_) | SinkAction::Report(..) | SinkAction::RemoveLock => {}
            SinkAction::Finished(outcome) => {
                self.sink_over = true;
                self.failed |= outcome.failure.is_some() || outcome.summary.failed > 0;
            }
            other => panic!("not of this tree: {other:?}"),
        }
    }

    /// A disk operation takes 0.1 to 2 seconds.
    fn answer(&mut self, answer: Answer) {
        let after = Duration::from_millis(100 + self.mirror.rng.below(1_900));
        let last = self.answers.back().map_or(self.now(), |(at, _)| *at);
        self.answers.push_back((last.max(self.now() + after), answer));
    }

    fn examine(&self, entry: &Entry) -> TargetState {
        let (n, _) = named(entry);
        let size = entry.size().unwrap_or_default();
        let target = self.mirror.disk.version(n).map(|version| {
            let mut mtime = entry.mtime;
            mtime.secs = super::FIRST_VERSION + i64::from(version);
            let (kind, mode) = (FoundKind::File, entry.mode);
            Found {
                kind,
                size,
                mtime,
                mode,
                same_link: false,
                same_attributes: true,
                makes_way: false,
            }
        });
        let temporary = self.mirror.disk.has_temporary(n).then_some(size);
        TargetState { target, temporary }
    }
}

/// The digest of a piece with this content.
fn hash(content: u64, piece: &Piece) -> Digest {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&content.to_le_bytes());
    bytes[8..16].copy_from_slice(&piece.file_offset.to_le_bytes());
    let len = piece.range.end.since(piece.range.start).get();
    bytes[16..24].copy_from_slice(&len.to_le_bytes());
    Digest(bytes)
}
