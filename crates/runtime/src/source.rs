//! The source: drives the source's state machine with files and transports.
//!
//! Threads: this thread drives the machine; `walk` lists the sources; the threads of the reader
//! read and hash chunks; each transport has its own.

mod collected;
mod content;
mod holes;
mod links;
mod local;
mod table;
mod walk;

use crossbeam_channel::{Receiver, Sender, never, select};
use packtrain_object::{Digest, Entry, EntryId};
use packtrain_os::clock;
use packtrain_transfer::message::{Message, Open, Options};
use packtrain_transfer::{Failure, FailureKind, Outcome, Source, SourceAction, TransportId};
use packtrain_units::{ByteCount, Duration, Offset, Time};
use std::ops::Range;

use crate::control::{Control, Incoming};
use crate::handshake::{Agreed, Call};
use crate::meters::EndWatch;
use crate::not_kept::NotKept;
use crate::reader::{self, ReadEvent};
use crate::session::{Observer, Pulse, Stop};
use crate::sink::Leftovers;
use crate::skipped::Skipped;
use crate::target_failures::TargetFailures;
use crate::transports::offer::ControlMessage;
use crate::transports::transport::Wake;
use crate::transports::{SourceTransports, TransportConfig, TransportNews};
pub use collected::{Collected, collect};
pub use content::{Content, ContentInbox, ContentReports, content_reports};
use local::LocalContent;
use packtrain_service::evidence::{self, Part, PartRole};
use packtrain_service::{Notice, NoticeLevel, cipher};
pub(crate) use table::Table;
pub use table::stdin_is_taken;
pub use walk::SourceSpec;
pub(crate) use walk::explain;

/// How often the driver looks around without an event, and near the end, where transports do not
/// report that the last byte has left.
const TICK: Duration = Duration::from_millis(50);
const TAIL_TICK: Duration = Duration::from_millis(5);

/// Messages from the threads.
pub(crate) enum SourceEvent {
    /// Entries in manifest order.
    Entries(Vec<Entry>),
    /// A file of rules: the number of its rule, the path of its directory at the target and its
    /// content.
    Rules(u32, Vec<u8>, Vec<u8>),
    /// The walk is over, with the paths that could not be listed and the target paths of the
    /// sources without a file.
    WalkEnd(Vec<(Vec<u8>, Failure)>, Vec<Vec<u8>>),
    /// A source does not exist: nothing is sent.
    Refuse(Failure),
    /// An event of the reader.
    Read(ReadEvent),
    /// A suspected hole was read; whether it is one.
    Hole(TransportId, Range<Offset>, bool),
    /// The root digest of a file.
    Root(EntryId, Option<Digest>),
    /// The digest of a piece of which the sink has an old version, by the start of the piece.
    Compared(Offset, Option<Digest>),
    /// A file that the sink has was removed, or why it was not.
    Removed(EntryId, Result<(), Failure>),
    /// Standard input ended.
    StreamEnd(EntryId, u64),
    /// The pipes, sockets and devices that were skipped.
    Skipped(Skipped),
    /// What the walk found and does not keep.
    NotKept(NotKept),
    /// A warning for the user.
    Warn(String),
    /// A transport has events to poll.
    Wake,
}

/// Parameters of a source.
pub struct SourceSetup<'a> {
    /// The connection to the sink.
    pub control: Control,
    /// The options of the transfer.
    pub options: Options,
    /// Observes the transfer.
    pub observer: &'a dyn Observer,
    /// Moves the data.
    pub transports: SourceTransports,
    /// Requests to stop.
    pub stop: Stop,
}

/// Runs a source to its end. The transports report what they moved.
pub fn run(setup: SourceSetup<'_>, spec: SourceSpec) -> (Outcome, crate::transports::Moved) {
    let (reports, inbox) = content_reports();
    let content = LocalContent::new(spec, setup.options.clone(), reports);
    run_content(setup, Box::new(content), inbox)
}

/// A source that lists its files while the connection to the sink is made.
pub struct Prepared(Option<(Box<dyn Content>, ContentInbox)>);

impl Prepared {
    /// Begins to list the files, as far as a source that has sent nothing may.
    pub fn start(spec: SourceSpec, options: &Options) -> Self {
        let (reports, inbox) = content_reports();
        let mut content = Box::new(LocalContent::new(spec, options.clone(), reports));
        content.set_credit(Source::new(options.clone(), clock::now()).walk_credit());
        content.start();
        Self(Some((content, inbox)))
    }
}

impl Drop for Prepared {
    fn drop(&mut self) {
        // There was no connection.
        if let Some((content, _)) = &mut self.0 {
            content.close();
        }
    }
}

/// The configuration of an initiator's transports once the responder has agreed. It has the limits
/// of both ends, and is otherwise the one that the transports were made with.
pub type Agree<'a> = Box<dyn FnOnce(Agreed) -> TransportConfig + 'a>;

/// What an initiator waits for.
struct Calling<'a> {
    call: Call,
    agree: Agree<'a>,
}

/// Runs the source of an initiator to its end. It does not wait for the responder's answer to
/// `open`: the offer and the first entries go with the request.
///
/// # Errors
/// The responder did not agree: there was no transfer.
pub fn run_calling<'a>(
    setup: SourceSetup<'a>,
    mut source: Prepared,
    open: Open,
    agree: Agree<'a>,
) -> Result<(Outcome, crate::transports::Moved), Failure> {
    let Some((content, inbox)) = source.0.take() else {
        return Err(Failure::new(FailureKind::Fatal, "the source has run: a bug"));
    };
    let call = Call::begin(&setup.control, open);
    let mut runner = Runner::new(setup, content, inbox);
    runner.setup.transports.wait_for_agreement();
    (runner.prepared, runner.calling) = (true, Some(Calling { call, agree }));
    runner.run()
}

/// Runs a source whose content comes from elsewhere and is reported to this inbox.
pub fn run_content(
    setup: SourceSetup<'_>,
    content: Box<dyn Content>,
    inbox: ContentInbox,
) -> (Outcome, crate::transports::Moved) {
    let runner = Runner::new(setup, content, inbox);
    // Only a source that calls is refused.
    runner.run().unwrap_or_else(|failure| (crate::sink::ended(failure), Default::default()))
}

/// Bytes left to move; none while the walk is incomplete.
fn left(totals: &packtrain_transfer::SourceTotals) -> Option<ByteCount> {
    let whole = totals.known.saturating_sub(totals.present);
    totals.walk_done.then(|| whole.saturating_sub(totals.placed.min(whole)))
}

struct Runner<'a> {
    setup: SourceSetup<'a>,
    /// Whether the content was started before.
    prepared: bool,
    /// At an initiator, until the responder has agreed.
    calling: Option<Calling<'a>>,
    /// Why the responder did not agree.
    refused: Option<Failure>,
    source: Source,
    content: Box<dyn Content>,
    news: Sender<SourceEvent>,
    inbox: Receiver<SourceEvent>,
    outcome: Option<Outcome>,
    reported_at: Time,
    gone: bool,
    pulse: Pulse,
    watch: EndWatch,
    leftovers_reported: bool,
    not_kept_reported: bool,
    /// Entries that the sink changed, as it says.
    changed: u64,
    target_failures: TargetFailures,
    /// Bytes that were not moved because they are holes.
    holes: ByteCount,
    /// The requested and repeated bytes that the sink was last given an account of.
    accounted: Option<(ByteCount, ByteCount)>,
}

impl<'a> Runner<'a> {
    fn new(setup: SourceSetup<'a>, content: Box<dyn Content>, inbox: ContentInbox) -> Self {
        let ContentInbox { news, inbox } = inbox;
        let now = clock::now();
        Self {
            prepared: false,
            calling: None,
            refused: None,
            pulse: Pulse::new(now, setup.transports.is_relayed()),
            watch: EndWatch::new(content.meters(), reader::THREADS, Some(cipher::suite())),
            source: Source::new(setup.options.clone(), now),
            setup,
            content,
            news,
            inbox,
            outcome: None,
            reported_at: Time::ZERO,
            gone: false,
            leftovers_reported: false,
            not_kept_reported: false,
            changed: 0,
            target_failures: TargetFailures::default(),
            holes: ByteCount::ZERO,
            accounted: None,
        }
    }

    fn run(mut self) -> Result<(Outcome, crate::transports::Moved), Failure> {
        let news = self.news.clone();
        self.setup.transports.start(
            &self.setup.control,
            self.content.reader(),
            Wake::new(move || {
                let _ = news.send(SourceEvent::Wake);
            }),
        );
        if !self.prepared {
            self.content.start();
        }
        while self.outcome.is_none() && self.refused.is_none() {
            self.content.set_credit(self.source.walk_credit());
            let now = clock::now();
            let tick = if self.is_tail() { TAIL_TICK } else { TICK };
            let wait = self.source.poll_timeout().map_or(tick, |at| at.since(now).min(tick));
            // A closed connection delivers no more messages.
            let control = if self.gone { never() } else { self.setup.control.rx.clone() };
            let inbox = self.inbox.clone();
            select! {
                recv(control) -> incoming => {
                    self.incoming(incoming.ok());
                    // Only the messages that wait now, so that a peer that keeps sending does not
                    // block the loop.
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
            self.check_call(now);
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
            self.perform_actions();
            self.account_at_end();
            self.report_progress();
        }
        self.content.close();
        if let Some(failure) = self.refused {
            self.setup.transports.close();
            return Err(failure);
        }
        let last = self.part();
        self.deliver_evidence(last);
        let moved = self.setup.transports.close();
        self.reported_at = Time::ZERO;
        self.report_progress();
        let none = Failure::new(FailureKind::Fatal, "no outcome");
        let mut outcome = self.outcome.unwrap_or_else(|| crate::sink::ended(none));
        outcome.summary.changed = self.changed;
        self.target_failures.append_to(&mut outcome);
        Ok((outcome, moved))
    }

    fn incoming(&mut self, incoming: Option<Incoming>) {
        let now = clock::now();
        match incoming {
            Some(Incoming::Message(message)) => {
                self.pulse.on_message(now);
                match self.calling {
                    Some(_) => self.answer(now, message),
                    None => self.message(message),
                }
            }
            Some(Incoming::Closed(failure)) => self.lost(now, failure),
            None => {
                let gone = Failure::new(FailureKind::Temporary, "the connection is gone");
                self.lost(now, gone);
            }
        }
    }

    fn lost(&mut self, now: Time, failure: Failure) {
        self.gone = true;
        match self.calling {
            Some(_) => self.refused = Some(failure),
            None => self.source.cancel(now, failure),
        }
    }

    /// A message of a responder that has not agreed yet.
    fn answer(&mut self, now: Time, message: Message) {
        let Some(mut calling) = self.calling.take() else { return };
        match calling.call.on_message(now, message) {
            Ok(Some(agreed)) => self.setup.transports.agree((calling.agree)(agreed)),
            Ok(None) => self.calling = Some(calling),
            Err(failure) => self.refused = Some(failure),
        }
    }

    /// Before the responder has agreed, its silence and a request to stop are no end of a transfer.
    fn check_call(&mut self, now: Time) {
        let Some(calling) = &self.calling else { return };
        let over = self.setup.stop.asked().or_else(|| calling.call.overdue(now));
        self.refused = self.refused.take().or(over);
    }

    fn tell_not_kept(&self, left: &NotKept) {
        for notice in left.notices() {
            self.setup.observer.notice(&notice);
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
                // Once only: a repeated message has no new information.
                Some(ControlMessage::Leftovers(files, bytes)) if !self.leftovers_reported => {
                    self.leftovers_reported = true;
                    self.setup.observer.notice(&Leftovers { files, bytes }.notice());
                }
                Some(ControlMessage::NotKept(left)) if !self.not_kept_reported => {
                    self.not_kept_reported = true;
                    self.tell_not_kept(&left);
                }
                Some(ControlMessage::TargetFailures(failures)) => {
                    self.target_failures.add(failures);
                }
                Some(ControlMessage::Changed(entries)) => self.changed = entries,
                Some(message) => {
                    if let Some(failure) = self.setup.transports.on_control(&message) {
                        self.source.cancel(now, failure);
                    }
                }
                None => {}
            },
            Message::DataTaken(total) => self.setup.transports.on_data_taken(total),
            Message::Pong(_) if self.pulse.on_pong() => {}
            message => {
                if matches!(message, Message::Finished(_)) {
                    self.setup.transports.on_complete();
                    let moved = self.setup.transports.moved_with_streams();
                    self.send_account(moved);
                }
                // After an error the machine is already cancelled, and its actions inform the peer.
                let _ = self.source.on_message(now, message);
            }
        }
    }

    /// Whether all that there is was asked for. The rest is under way.
    fn is_tail(&self) -> bool {
        let totals = self.source.totals();
        let asked = totals.present + totals.needed;
        let is_comparing = totals.comparing > ByteCount::ZERO;
        totals.walk_done && !totals.stream_open && !is_comparing && asked >= totals.known
    }

    /// Tells the sink at the end what each transport did, as soon as all has been sent and again
    /// after repairs. It then need not wait for this end's farewell.
    fn account_at_end(&mut self) {
        let needed = self.source.totals().needed;
        let is_told = self.accounted.is_some_and(|(told, _)| told == needed);
        self.setup.transports.set_end_near(is_told && self.is_tail());
        if self.calling.is_some() || !self.is_tail() {
            return;
        }
        let moved = self.setup.transports.moved();
        let sent: ByteCount = moved.shares.iter().map(|(_, bytes)| *bytes).sum();
        let told = (needed, moved.retransmitted);
        if sent + self.holes >= needed && self.accounted != Some(told) {
            self.accounted = Some(told);
            self.setup.transports.set_end_near(true);
            let streams = self.setup.transports.report_streams();
            self.send_account(crate::transports::Moved { streams, ..moved });
        }
    }

    /// The initiator, for whom this is, may be at the sink's end, or a third party.
    fn send_account(&mut self, moved: crate::transports::Moved) {
        self.report_evidence();
        if let Some(streams) = &moved.streams {
            let word = ControlMessage::Tcp(streams.encode());
            self.setup.control.tx.send(&Message::Channel(word.encode()));
        }
        self.setup.control.tx.send(&Message::Channel(ControlMessage::Moved(moved).encode()));
    }

    fn news(&mut self, item: SourceEvent) {
        let now = clock::now();
        match item {
            SourceEvent::Entries(entries) => {
                self.source.on_entries(now, entries);
                self.content.set_credit(self.source.walk_credit());
            }
            SourceEvent::Rules(number, dir, text) => self.source.on_rules(number, dir, text),
            SourceEvent::WalkEnd(failed, empty) => self.source.on_walk_end(now, failed, empty),
            SourceEvent::Refuse(failure) => self.source.cancel(now, failure),
            SourceEvent::Read(ReadEvent::Read(chunk, digests)) => {
                self.source.on_chunk_read(now, chunk, digests);
            }
            // No source is reachable at the moment, which affects all files.
            SourceEvent::Read(ReadEvent::Failed(_, failure))
                if failure.kind == FailureKind::Temporary =>
            {
                self.source.cancel(now, failure);
            }
            SourceEvent::Read(ReadEvent::Failed(entry, failure)) => {
                self.source.on_entry_failed(now, entry, failure);
            }
            SourceEvent::Hole(_, range, true) => {
                self.holes += range.end.since(range.start);
                self.source.on_hole(now, range);
            }
            SourceEvent::Hole(transport, range, false) => {
                self.setup.transports.assign(transport, range)
            }
            SourceEvent::Root(entry, digest) => self.source.on_root(now, entry, digest),
            SourceEvent::Removed(entry, result) => self.source.on_removed(now, entry, result),
            SourceEvent::Compared(start, digest) => self.source.on_compared(now, start, digest),
            SourceEvent::StreamEnd(entry, size) => {
                self.source.on_stream_end(now, entry, size);
            }
            SourceEvent::Warn(text) => {
                self.setup.observer.notice(&Notice::new(NoticeLevel::Warning, text));
            }
            SourceEvent::NotKept(left) => {
                if self.setup.observer.keeps() {
                    self.tell_not_kept(&left);
                } else {
                    let word = ControlMessage::NotKept(left);
                    self.setup.control.tx.send(&Message::Channel(word.encode()));
                }
            }
            SourceEvent::Skipped(skipped) => {
                if self.setup.observer.keeps() {
                    self.setup.observer.notice(&skipped.notice());
                } else {
                    let word = ControlMessage::Skipped(skipped.count, skipped.first);
                    self.setup.control.tx.send(&Message::Channel(word.encode()));
                }
            }
            // The driver polls the transports after this.
            SourceEvent::Wake => {}
        }
        self.perform_actions();
    }

    fn transport(&mut self, item: TransportNews) {
        let now = clock::now();
        match item {
            TransportNews::Event(id, event) => self.source.on_transport_event(now, id, event),
            TransportNews::Hopeless(failure) => self.source.cancel(now, failure),
        }
    }

    fn perform_actions(&mut self) {
        while let Some(action) = self.source.poll_action() {
            match action {
                SourceAction::Send(message) => self.setup.control.tx.send(&message),
                SourceAction::Assign(transport, range) => self.assign(transport, range),
                SourceAction::Revoke(transport, range) => {
                    self.setup.transports.revoke(transport, range);
                }
                SourceAction::Reread(range) => self.content.reread(&range),
                SourceAction::HashFile(id) => self.content.hash(id),
                SourceAction::Remove(id) => {
                    if !self.content.remove(id) {
                        let text = "nothing of this source is removed";
                        let kept = Failure::new(FailureKind::Unreadable, text);
                        self.source.on_removed(clock::now(), id, Err(kept));
                    }
                }
                SourceAction::Compare(piece) => {
                    if !self.content.compare(&piece) {
                        self.source.on_compared(clock::now(), piece.range.start, None);
                    }
                }
                SourceAction::Forget(range) => self.content.forget(&self.source, &range),
                SourceAction::Finished(outcome) => self.outcome = Some(outcome),
            }
        }
    }

    /// Passes the range to its transport, without the parts that the content examines first.
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

    /// Reports the evidence of this end and the path, to the observer here or to the initiator.
    fn report_evidence(&mut self) {
        let part = self.part();
        if !self.setup.observer.keeps() {
            self.setup.control.tx.send(&Message::Channel(ControlMessage::part(&part)));
        }
        self.deliver_evidence(part);
    }

    fn part(&mut self) -> Part {
        let (path, net) = self.setup.transports.evidence();
        let end = self.watch.read(net, None);
        Part { role: PartRole::Source, end, path: Some(path) }
    }

    /// Passes evidence to the observer of this end.
    fn deliver_evidence(&self, part: Part) {
        if self.setup.observer.keeps() {
            self.setup.observer.part(part);
        } else {
            self.setup.observer.saw(&part);
        }
    }

    fn report_progress(&mut self) {
        let now = clock::now();
        if self.watch.is_due(now) {
            self.report_evidence();
        }
        if now.since(self.reported_at) >= Duration::from_millis(100) {
            self.reported_at = now;
            if let Some(name) = self.setup.transports.current() {
                self.setup.observer.transport(name);
            }
            self.setup.observer.source(&self.source.totals());
        }
    }
}
