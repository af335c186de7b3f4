//! The sending end of a transfer: the source's state machine wired to files and transports.
//!
//! Threads: this one drives the machine; `walk` lists the sources; the reader's threads read and
//! hash chunks; each transport has its own.

mod collected;
mod holes;
mod table;
mod walk;

use crossbeam_channel::{Receiver, Sender, never, select, unbounded};
use packtrain_object::{ChunkIndex, Digest, Entry, EntryId};
use packtrain_os::clock;
use packtrain_transfer::message::{Message, Options};
use packtrain_transfer::{
    Failure, FailureKind, Outcome, Source, SourceAction, TransportEvent, TransportId,
};
use packtrain_units::{ByteCount, Duration, Offset, Time};
use std::ops::Range;
use std::sync::Arc;

use crate::control::{Control, Incoming};
use crate::meters::{EndWatch, Meters};
use crate::reader::{self, ReadEvent, Reader};
use crate::session::{Observer, Pulse, Stop};
use crate::sink::Leftovers;
use crate::transports::offer::ControlMessage;
use crate::transports::{SourceTransports, TransportNews};
pub use collected::{Collected, collect};
use packtrain_service::evidence::{self, Part, PartRole};
use packtrain_service::executor::spawn;
use packtrain_service::{Notice, NoticeLevel, cipher};
pub(crate) use table::Table;
use walk::Credit;
pub use walk::SourceSpec;

/// What the threads tell.
pub(crate) enum News {
    /// Entries in manifest order.
    Entries(Vec<Entry>),
    /// The walk is over; these paths could not be listed, and the sources at those of the target
    /// brought no file.
    WalkEnd(Vec<(Vec<u8>, Failure)>, Vec<Vec<u8>>),
    /// A source is not there at all: nothing is sent.
    Refuse(Failure),
    /// The reader.
    Read(ReadEvent),
    /// A hole was verified, or turned out to be none.
    Hole(TransportId, Range<Offset>, bool),
    /// A file's root digest.
    Root(EntryId, Option<Digest>),
    /// Standard input ended.
    StreamEnd(EntryId, u64),
    /// A transport.
    Transport(TransportNews),
}

/// What a source is started with.
pub struct SourceSetup<'a> {
    /// The connection to the sink.
    pub control: Control,
    /// What the transfer is to do.
    pub options: Options,
    /// What it reads.
    pub spec: SourceSpec,
    /// Who is told of what it does.
    pub observer: &'a dyn Observer,
    /// What moves the bytes.
    pub transports: SourceTransports,
    /// Ends it early.
    pub stop: Stop,
}

/// Runs a source to its end; the transports tell what they moved.
pub fn run(setup: SourceSetup<'_>) -> (Outcome, crate::transports::Moved) {
    let (news, inbox) = unbounded();
    let table = Arc::new(Table::default());
    let credit = Arc::new(Credit::default());
    let meters = Arc::<Meters>::default();
    let reader = {
        let news = news.clone();
        let tell = move |event| {
            let _ = news.send(News::Read(event));
        };
        match &setup.spec {
            SourceSpec::Kept(kept) => {
                let pieces = table::KeptPieces(kept.clone(), Arc::clone(&meters));
                Reader::new(pieces, Arc::clone(&meters), tell)
            }
            _ => {
                let files = table::Files::new(Arc::clone(&table), Arc::clone(&meters));
                Reader::new(files, Arc::clone(&meters), tell)
            }
        }
    };
    walk::start(
        setup.spec.clone(),
        setup.options.clone(),
        Arc::clone(&table),
        Arc::clone(&credit),
        Arc::clone(&meters),
        news.clone(),
    );
    let source = Source::new(setup.options.clone(), clock::now());
    let runner = Runner {
        pulse: Pulse::new(clock::now(), setup.transports.is_relayed()),
        setup,
        source,
        reader,
        table,
        credit,
        news,
        inbox,
        outcome: None,
        told: Time::ZERO,
        streaming: false,
        gone: false,
        watch: EndWatch::new(meters, reader::THREADS, cipher::suite()),
        leftovers_told: false,
    };
    runner.run()
}

/// What is left to move; not known while the walk may find more than is known.
fn left(totals: &packtrain_transfer::SourceTotals) -> Option<ByteCount> {
    let whole = totals.known.saturating_sub(totals.present);
    totals.walk_done.then(|| whole.saturating_sub(totals.placed.min(whole)))
}

struct Runner<'a> {
    setup: SourceSetup<'a>,
    source: Source,
    reader: Reader,
    table: Arc<Table>,
    credit: Arc<Credit>,
    news: Sender<News>,
    inbox: Receiver<News>,
    outcome: Option<Outcome>,
    told: Time,
    streaming: bool,
    gone: bool,
    pulse: Pulse,
    watch: EndWatch,
    leftovers_told: bool,
}

impl Runner<'_> {
    fn run(mut self) -> (Outcome, crate::transports::Moved) {
        let news = self.news.clone();
        self.setup.transports.start(
            &self.setup.control,
            &self.reader,
            Arc::new(move |item| {
                let _ = news.send(News::Transport(item));
            }),
        );
        while self.outcome.is_none() {
            self.credit.set(self.source.walk_credit());
            let now = clock::now();
            let tick = Duration::from_millis(100);
            let wait = self.source.poll_timeout().map_or(tick, |at| at.since(now).min(tick));
            // A connection that is gone has nothing more to say.
            let control = if self.gone { never() } else { self.setup.control.rx.clone() };
            let inbox = self.inbox.clone();
            select! {
                recv(control) -> incoming => {
                    self.incoming(incoming.ok());
                    // No more than wait now: who sends on and on is answered in between.
                    for _ in 0..self.setup.control.rx.len() {
                        let Ok(more) = self.setup.control.rx.try_recv() else { break };
                        self.incoming(Some(more));
                    }
                },
                recv(inbox) -> item => {
                    if let Ok(item) = item {
                        self.news(item);
                    }
                    while let Ok(item) = self.inbox.try_recv() {
                        self.news(item);
                    }
                },
                default(wait.to_std()) => {}
            }
            let now = clock::now();
            if self.source.poll_timeout().is_some_and(|at| at <= now) {
                self.source.on_timeout(now);
            }
            if let Some(failure) = self.pulse.check(now, &self.setup.control.tx) {
                self.source.cancel(now, failure);
            }
            if let Some(failure) = self.setup.stop.take() {
                self.source.cancel(clock::now(), failure);
            }
            if let SourceSpec::Kept(kept) = &self.setup.spec {
                for text in kept.said() {
                    self.setup.observer.notice(&Notice::new(NoticeLevel::Warning, text));
                }
            }
            let now = clock::now();
            self.setup.transports.is_left(left(&self.source.totals()));
            for item in self.setup.transports.poll(now, self.setup.observer) {
                self.transport(item);
            }
            self.act();
            self.tell();
        }
        self.credit.close();
        self.reader.close();
        let last = self.part();
        self.bear(last);
        let moved = self.setup.transports.close();
        self.told = Time::ZERO;
        self.tell();
        let none = Failure::new(FailureKind::Fatal, "no outcome");
        (self.outcome.unwrap_or_else(|| crate::sink::ended(none)), moved)
    }

    fn incoming(&mut self, incoming: Option<Incoming>) {
        let now = clock::now();
        match incoming {
            Some(Incoming::Message(message)) => {
                self.pulse.heard(now);
                self.message(message);
            }
            Some(Incoming::Closed(failure)) => {
                self.gone = true;
                self.source.cancel(now, failure);
            }
            None => {
                self.gone = true;
                let gone = Failure::new(FailureKind::Temporary, "the connection is gone");
                self.source.cancel(now, gone);
            }
        }
    }

    fn message(&mut self, message: Message) {
        match message {
            Message::Channel(bytes) => match ControlMessage::decode(&bytes) {
                Some(ControlMessage::Reports(reports)) => {
                    for (path, report) in reports {
                        self.setup.observer.file(&path, &report);
                    }
                }
                Some(ControlMessage::Offer(offer)) => self.setup.transports.on_offer(&offer),
                Some(ControlMessage::Part(bytes)) => {
                    if let Some(part) = evidence::decode(&bytes) {
                        self.setup.observer.part(part);
                    }
                }
                Some(ControlMessage::CandidatePaths(bytes)) => {
                    self.setup.transports.on_ways(&bytes)
                }
                Some(ControlMessage::NoWay(way, why)) => self.setup.transports.on_no_way(way, why),
                Some(
                    ControlMessage::Moved(_)
                    | ControlMessage::OfferBy(..)
                    | ControlMessage::Streams(_)
                    | ControlMessage::Tcp(_),
                )
                | Some(ControlMessage::Dial(..))
                | None => {}
                // Once: whoever sends it again has nothing new to tell.
                Some(ControlMessage::Leftovers(files, bytes)) => {
                    if !std::mem::replace(&mut self.leftovers_told, true) {
                        self.setup.observer.notice(&Leftovers { files, bytes }.notice());
                    }
                }
            },
            Message::DataTaken(total) => self.setup.transports.on_taken(total),
            Message::Pong(_) if self.pulse.was_asked() => {}
            message => {
                if matches!(message, Message::Finished(_)) {
                    self.setup.transports.all_placed();
                    self.report_evidence();
                    // The caller may be at the sink's end, or in between.
                    let moved = self.setup.transports.moved();
                    if let Some(streams) = &moved.streams {
                        let word = ControlMessage::Tcp(streams.encode());
                        self.setup.control.tx.send(&Message::Channel(word.encode()));
                    }
                    let moved = ControlMessage::Moved(moved);
                    self.setup.control.tx.send(&Message::Channel(moved.encode()));
                }
                // An error has already cancelled the machine; its actions say so to the peer.
                let _ = self.source.on_message(clock::now(), message);
            }
        }
    }

    fn news(&mut self, item: News) {
        let now = clock::now();
        match item {
            News::Entries(entries) => {
                self.source.on_entries(now, entries);
                self.credit.set(self.source.walk_credit());
            }
            News::WalkEnd(failed, empty) => self.source.on_walk_end(now, failed, empty),
            News::Refuse(failure) => self.source.cancel(now, failure),
            News::Read(ReadEvent::Read(chunk, digests)) => {
                self.source.on_chunk_read(now, chunk, digests);
            }
            // Nobody can be asked at the moment: it is not about one file.
            News::Read(ReadEvent::Failed(_, failure)) if failure.kind == FailureKind::Temporary => {
                self.source.cancel(now, failure);
            }
            News::Read(ReadEvent::Failed(entry, failure)) => {
                self.source.on_entry_failed(now, entry, failure);
            }
            News::Hole(_, range, true) => self.source.on_hole(now, range),
            News::Hole(transport, range, false) => self.setup.transports.assign(transport, range),
            News::Root(entry, digest) => self.source.on_root(now, entry, digest),
            News::StreamEnd(entry, size) => {
                self.source.on_stream_end(now, entry, size);
            }
            News::Transport(item) => self.transport(item),
        }
        self.act();
    }

    fn transport(&mut self, item: TransportNews) {
        let now = clock::now();
        match item {
            TransportNews::Up(id, rank) => self.source.on_transport_up(now, id, rank),
            TransportNews::Event(id, event) => {
                if let TransportEvent::Closed(failure) = &event {
                    self.setup.transports.closed(id, failure, self.setup.observer);
                }
                self.source.on_transport_event(now, id, event);
            }
            TransportNews::Hopeless(failure) => self.source.cancel(now, failure),
            TransportNews::Internal(internal) => {
                for item in self.setup.transports.internal(internal, self.setup.observer) {
                    self.transport(item);
                }
            }
        }
    }

    fn act(&mut self) {
        while let Some(action) = self.source.poll_action() {
            match action {
                SourceAction::Send(message) => self.setup.control.tx.send(&message),
                SourceAction::Assign(transport, range) => self.assign(transport, range),
                SourceAction::Revoke(transport, range) => {
                    self.setup.transports.revoke(transport, range);
                }
                SourceAction::Reread(range) => {
                    for chunk in ChunkIndex::covering(&range) {
                        self.reader.doubt(chunk);
                    }
                }
                SourceAction::HashFile(id) => self.hash(id),
                SourceAction::Forget(range) => self.forget(&range),
                SourceAction::Finished(outcome) => self.outcome = Some(outcome),
            }
        }
    }

    /// Announces the chunks to the reader and hands the range to its transport, the parts that
    /// the file system reports as holes only after they were read and found to be zeros.
    fn assign(&mut self, transport: TransportId, range: Range<Offset>) {
        if let Some(id) = self.stream_of(&range) {
            self.stream(id);
            return self.setup.transports.assign(transport, range);
        }
        let mut suspects = Vec::new();
        for chunk in ChunkIndex::covering(&range) {
            let pieces = self.source.pieces_needed(chunk);
            for piece in &pieces {
                suspects.extend(holes::reported(&self.table, piece, &range));
            }
            self.reader.announce(chunk, pieces);
        }
        let mut at = range.start;
        for hole in &suspects {
            if at < hole.start {
                self.setup.transports.assign(transport, at..hole.start);
            }
            at = at.max(hole.end);
        }
        if at < range.end {
            self.setup.transports.assign(transport, at..range.end);
        }
        if !suspects.is_empty() {
            holes::verify(&self.reader, transport, suspects, self.news.clone());
        }
    }

    fn stream_of(&self, range: &Range<Offset>) -> Option<EntryId> {
        if !self.setup.spec.is_stream() {
            return None;
        }
        self.source.layout().piece_at(range.start).map(|piece| piece.entry)
    }

    /// Starts reading standard input, once.
    fn stream(&mut self, id: EntryId) {
        if std::mem::replace(&mut self.streaming, true) {
            return;
        }
        let Some(range) = self.source.layout().range_of(id) else { return };
        self.reader.expect_stream();
        let (reader, news) = (self.reader.clone(), self.news.clone());
        spawn("stdin", move || {
            table::read_stream(id, range.start, &reader, &news);
            reader.end_stream();
        });
    }

    fn hash(&self, id: EntryId) {
        let (table, news) = (Arc::clone(&self.table), self.news.clone());
        self.table.hasher().run(move || {
            let _ = news.send(News::Root(id, table.root_of(id)));
        });
    }

    fn forget(&mut self, range: &Range<Offset>) {
        for chunk in ChunkIndex::covering(range) {
            if range.start <= chunk.range().start && chunk.range().end <= range.end
                || self.source.pieces_needed(chunk).is_empty()
            {
                self.reader.forget(chunk);
            }
        }
        let source = &self.source;
        self.table.forget_while(|id| source.entry(id).is_none());
    }

    /// Tells what this end and the path are like, here or to whoever called.
    fn report_evidence(&mut self) {
        let part = self.part();
        if !self.setup.observer.keeps() {
            self.setup.control.tx.send(&Message::Channel(ControlMessage::part(&part)));
        }
        self.bear(part);
    }

    fn part(&mut self) -> Part {
        let (path, net) = self.setup.transports.evidence();
        let end = self.watch.read(net, None);
        Part { role: PartRole::Source, end, path: Some(path) }
    }

    /// Gives a part to whoever watches here.
    fn bear(&self, part: Part) {
        if self.setup.observer.keeps() {
            self.setup.observer.part(part);
        } else {
            self.setup.observer.saw(&part);
        }
    }

    fn tell(&mut self) {
        let now = clock::now();
        if self.watch.is_due(now) {
            self.report_evidence();
        }
        if now.since(self.told) >= Duration::from_millis(100) {
            self.told = now;
            if let Some(name) = self.setup.transports.current() {
                self.setup.observer.transport(name);
            }
            self.setup.observer.source(&self.source.totals());
        }
    }
}
