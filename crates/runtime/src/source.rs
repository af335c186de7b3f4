//! The sending end of a transfer: the source's state machine wired to files and transports.
//!
//! Threads: this one drives the machine; `walk` lists the sources; the reader's threads read and
//! hash chunks; each transport has its own.

mod collected;
mod content;
mod holes;
mod local;
mod table;
mod walk;

use crossbeam_channel::{Receiver, Sender, never, select};
use packtrain_object::{Digest, Entry, EntryId};
use packtrain_os::clock;
use packtrain_transfer::message::{Message, Options};
use packtrain_transfer::{Failure, FailureKind, Outcome, Source, SourceAction, TransportId};
use packtrain_units::{ByteCount, Duration, Offset, Time};
use std::ops::Range;

use crate::control::{Control, Incoming};
use crate::meters::EndWatch;
use crate::reader::{self, ReadEvent};
use crate::session::{Observer, Pulse, Stop};
use crate::sink::Leftovers;
use crate::transports::offer::ControlMessage;
use crate::transports::transport::Wake;
use crate::transports::{SourceTransports, TransportNews};
pub use collected::{Collected, collect};
pub use content::{Content, ContentInbox, ContentReports, content_reports};
use local::LocalContent;
use packtrain_service::evidence::{self, Part, PartRole};
use packtrain_service::{Notice, NoticeLevel, cipher};
pub(crate) use table::Table;
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
    /// A warning for the user.
    Warn(String),
    /// A transport has something to poll.
    Wake,
}

/// What a source is started with.
pub struct SourceSetup<'a> {
    /// The connection to the sink.
    pub control: Control,
    /// What the transfer is to do.
    pub options: Options,
    /// Who is told of what it does.
    pub observer: &'a dyn Observer,
    /// What moves the bytes.
    pub transports: SourceTransports,
    /// Ends it early.
    pub stop: Stop,
}

/// Runs a source to its end; the transports tell what they moved.
pub fn run(setup: SourceSetup<'_>, spec: SourceSpec) -> (Outcome, crate::transports::Moved) {
    let (reports, inbox) = content_reports();
    let content = LocalContent::new(spec, setup.options.clone(), reports);
    run_content(setup, Box::new(content), inbox)
}

/// Runs a source whose content comes from elsewhere; it reports into this inbox.
pub fn run_content(
    setup: SourceSetup<'_>,
    content: Box<dyn Content>,
    inbox: ContentInbox,
) -> (Outcome, crate::transports::Moved) {
    let ContentInbox { news, inbox } = inbox;
    let now = clock::now();
    let runner = Runner {
        pulse: Pulse::new(now, setup.transports.is_relayed()),
        watch: EndWatch::new(content.meters(), reader::THREADS, cipher::suite()),
        source: Source::new(setup.options.clone(), now),
        setup,
        content,
        news,
        inbox,
        outcome: None,
        told: Time::ZERO,
        gone: false,
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
    content: Box<dyn Content>,
    news: Sender<News>,
    inbox: Receiver<News>,
    outcome: Option<Outcome>,
    told: Time,
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
            self.content.reader(),
            Wake::new(move || {
                let _ = news.send(News::Wake);
            }),
        );
        self.content.start();
        while self.outcome.is_none() {
            self.content.set_credit(self.source.walk_credit());
            let now = clock::now();
            let tick = Duration::from_millis(50);
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
            for text in self.content.notices() {
                self.setup.observer.notice(&Notice::new(NoticeLevel::Warning, text));
            }
            let now = clock::now();
            self.setup.transports.on_remaining(left(&self.source.totals()));
            for item in self.setup.transports.poll(now, self.setup.observer) {
                self.transport(item);
            }
            self.act();
            self.tell();
        }
        self.content.close();
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
        let now = clock::now();
        match message {
            Message::Channel(bytes) => match ControlMessage::decode(&bytes) {
                Some(ControlMessage::Reports(reports)) => {
                    for (path, report) in reports {
                        self.setup.observer.file(&path, &report);
                    }
                }
                Some(ControlMessage::Part(bytes)) => {
                    if let Some(part) = evidence::decode(&bytes) {
                        self.setup.observer.part(part);
                    }
                }
                // Once: whoever sends it again has nothing new to tell.
                Some(ControlMessage::Leftovers(files, bytes)) => {
                    if !std::mem::replace(&mut self.leftovers_told, true) {
                        self.setup.observer.notice(&Leftovers { files, bytes }.notice());
                    }
                }
                Some(message) => {
                    if let Some(failure) = self.setup.transports.on_control(&message) {
                        self.source.cancel(now, failure);
                    }
                }
                None => {}
            },
            Message::DataTaken(total) => self.setup.transports.on_data_taken(total),
            Message::Pong(_) if self.pulse.was_asked() => {}
            message => {
                if matches!(message, Message::Finished(_)) {
                    self.setup.transports.on_complete();
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
                let _ = self.source.on_message(now, message);
            }
        }
    }

    fn news(&mut self, item: News) {
        let now = clock::now();
        match item {
            News::Entries(entries) => {
                self.source.on_entries(now, entries);
                self.content.set_credit(self.source.walk_credit());
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
            News::Warn(text) => {
                self.setup.observer.notice(&Notice::new(NoticeLevel::Warning, text));
            }
            // The driver polls after this.
            News::Wake => {}
        }
        self.act();
    }

    fn transport(&mut self, item: TransportNews) {
        let now = clock::now();
        match item {
            TransportNews::Event(id, event) => self.source.on_transport_event(now, id, event),
            TransportNews::Hopeless(failure) => self.source.cancel(now, failure),
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
                SourceAction::Reread(range) => self.content.reread(&range),
                SourceAction::HashFile(id) => self.content.hash(id),
                SourceAction::Forget(range) => self.content.forget(&self.source, &range),
                SourceAction::Finished(outcome) => self.outcome = Some(outcome),
            }
        }
    }

    /// Hands the range to its transport, without the parts that the content examines first.
    fn assign(&mut self, transport: TransportId, range: Range<Offset>) {
        let held_back = self.content.prepare(&self.source, transport, &range);
        let mut at = range.start;
        for part in held_back {
            if at < part.start {
                self.setup.transports.assign(transport, at..part.start);
            }
            at = at.max(part.end);
        }
        if at < range.end {
            self.setup.transports.assign(transport, at..range.end);
        }
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
