//! The source of a transfer that is a web server or an object store: the source's state machine
//! wired to requests instead of files. What arrives goes into the sink's memory at once, and its
//! digests, made of what arrived, to the sink as those of any source.

use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use crossbeam_channel::{Receiver, Sender, never, select, unbounded};
use packtrain_object::{ChunkIndex, Entry, EntryId, EntryKind, RelPath};
use packtrain_os::clock;
use packtrain_transfer::message::{Message, Options};
use packtrain_transfer::{
    Failure, FailureKind, Outcome, Source, SourceAction, TransportEvent, TransportId,
};
use packtrain_units::{Duration, Offset, Time};

use super::body::Pace;
use super::checksums::Sum;
use super::connection_pool::StreamCount;
use super::downloader::{FetchNews, Lines, Parts};
use super::http::Client;
use super::list::{self, Asked, Found};
use super::remote::Objects;
use packtrain_runtime::control::{Control, Incoming, PayloadSink};
use packtrain_runtime::session::{Observer, Pulse, Stop};
use packtrain_runtime::transports::Moved;
use packtrain_service::{Notice, NoticeLevel, executor};

/// The one transport there is.
const LINES: TransportId = TransportId(0);

/// What a fetch is started with.
pub(super) struct Setup<'a> {
    pub(super) control: Control,
    pub(super) options: Options,
    pub(super) asked: Asked,
    pub(super) client: Client,
    pub(super) observer: &'a dyn Observer,
    /// Where bytes go, once there is a place.
    pub(super) payload: Arc<OnceLock<Arc<dyn PayloadSink>>>,
    pub(super) count: StreamCount,
    pub(super) most: u32,
    pub(super) pace: Pace,
    pub(super) stop: Stop,
    /// What it is called: `https`, `http` or `s3`.
    pub(super) name: &'static str,
}

enum News {
    Found(Result<Found, Failure>),
    Fetch(FetchNews),
}

struct Runner<'a> {
    control: Control,
    observer: &'a dyn Observer,
    stop: Stop,
    source: Source,
    lines: Lines,
    objects: Objects,
    news: Receiver<News>,
    outcome: Option<Outcome>,
    told: Time,
    gone: bool,
    pulse: Pulse,
    name: &'static str,
    listing: tokio::task::AbortHandle,
    /// Files of which something was fetched, and where each is below the target.
    touched: HashSet<EntryId>,
    paths: HashMap<EntryId, RelPath>,
}

/// A file that was fetched, to be compared with what its server says.
pub(super) struct Check {
    pub(super) path: RelPath,
    pub(super) name: String,
    pub(super) sum: Sum,
}

/// Runs a fetch to its end.
pub(super) fn run(setup: Setup<'_>) -> (Outcome, Moved, Vec<Check>) {
    let (tell, news) = unbounded();
    let objects: Objects = Arc::new(Mutex::new(HashMap::new()));
    let Setup { control, options, asked, client, observer, payload, count, .. } = setup;
    let client = Arc::new(client);
    let listing = list(asked, options.clone(), Arc::clone(&client), tell.clone());
    let parts = Parts {
        client,
        objects: Arc::clone(&objects),
        payload,
        pace: setup.pace,
        count,
        most: setup.most,
        tell: Box::new(move |item| {
            let _ = tell.send(News::Fetch(item));
        }),
    };
    let runner = Runner {
        control,
        observer,
        stop: setup.stop,
        source: Source::new(options, clock::now()),
        lines: Lines::new(parts),
        objects,
        news,
        outcome: None,
        told: Time::ZERO,
        gone: false,
        pulse: Pulse::new(clock::now(), false),
        name: setup.name,
        listing,
        touched: HashSet::new(),
        paths: HashMap::new(),
    };
    runner.run()
}

fn list(
    asked: Asked,
    options: Options,
    client: Arc<Client>,
    tell: Sender<News>,
) -> tokio::task::AbortHandle {
    let task = executor::handle().spawn(async move {
        let found = list::find(&client, &asked, &options).await;
        let _ = tell.send(News::Found(found.map_err(super::answer::Trouble::failure)));
    });
    task.abort_handle()
}

impl Runner<'_> {
    fn run(mut self) -> (Outcome, Moved, Vec<Check>) {
        self.source.on_transport_up(clock::now(), LINES, 0);
        while self.outcome.is_none() {
            let now = clock::now();
            let tick = Duration::from_millis(50);
            let wait = self.source.poll_timeout().map_or(tick, |at| at.since(now).min(tick));
            let control = if self.gone { never() } else { self.control.rx.clone() };
            let news = self.news.clone();
            select! {
                recv(control) -> incoming => self.incoming(incoming.ok()),
                recv(news) -> item => {
                    if let Ok(item) = item {
                        self.take(item);
                    }
                    while let Ok(item) = self.news.try_recv() {
                        self.take(item);
                    }
                },
                default(wait.to_std()) => {}
            }
            let now = clock::now();
            if self.source.poll_timeout().is_some_and(|at| at <= now) {
                self.source.on_timeout(now);
            }
            if let Some(failure) = self.pulse.check(now, &self.control.tx) {
                self.source.cancel(now, failure);
            }
            if let Some(failure) = self.stop.take() {
                self.source.cancel(now, failure);
            }
            self.act();
            self.lines.poll(now);
            self.tell();
        }
        self.listing.abort();
        self.lines.close();
        self.told = Time::ZERO;
        self.tell();
        let moved = self.moved();
        let none = Failure::new(FailureKind::Fatal, "no outcome");
        let checks = self.checks();
        (self.outcome.unwrap_or_else(|| packtrain_runtime::sink::ended(none)), moved, checks)
    }

    fn checks(&mut self) -> Vec<Check> {
        let objects = self.objects.lock();
        let touched = self.touched.iter();
        let checks = touched.filter_map(|id| {
            let object = objects.get(id)?;
            let (path, sum) = (self.paths.remove(id)?, object.sum.clone()?);
            Some(Check { path, name: object.name.clone(), sum })
        });
        checks.collect()
    }

    fn moved(&self) -> Moved {
        let bytes = self.lines.moved();
        let shares = if bytes.get() > 0 { vec![(self.name.to_owned(), bytes)] } else { Vec::new() };
        Moved {
            shares,
            retransmitted: self.lines.twice(),
            rtt: self.lines.min_rtt(),
            held: self.lines.limited_by(),
            streams: self.lines.report(),
            ..Moved::default()
        }
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
                let gone = Failure::new(FailureKind::Temporary, "the receiving end is gone");
                self.source.cancel(now, gone);
            }
        }
    }

    fn message(&mut self, message: Message) {
        match message {
            // The sink is in this process: what its driver says goes by shorter ways.
            Message::Channel(_)
            | Message::DataTaken(_)
            | Message::Hello(_)
            | Message::Open(_)
            | Message::Opened(_)
            | Message::Data { .. }
            | Message::Pong(_) => {}
            message => {
                // An error has already cancelled the machine; its actions say so to the peer.
                let _ = self.source.on_message(clock::now(), message);
            }
        }
    }

    fn take(&mut self, item: News) {
        let now = clock::now();
        match item {
            News::Found(Ok(found)) => self.found(now, found),
            News::Found(Err(failure)) => self.source.cancel(now, failure),
            News::Fetch(FetchNews::Placed(range)) => {
                self.source.on_transport_event(now, LINES, TransportEvent::Placed(range));
            }
            News::Fetch(FetchNews::Digest(chunk, digest)) => {
                self.touched.insert(digest.entry);
                self.source.on_chunk_read(now, chunk, vec![digest]);
            }
            News::Fetch(FetchNews::Failed(entry, failure)) => {
                self.source.on_entry_failed(now, entry, failure);
            }
            News::Fetch(FetchNews::StreamEnd(entry, size)) => {
                self.source.on_stream_end(now, entry, size);
            }
            News::Fetch(FetchNews::Hopeless(failure)) => self.source.cancel(now, failure),
            News::Fetch(FetchNews::Say(text)) => {
                self.observer.notice(&Notice::new(NoticeLevel::Warning, text));
            }
        }
        self.act();
    }

    fn found(&mut self, now: Time, found: Found) {
        for text in found.say {
            self.observer.notice(&Notice::new(NoticeLevel::Warning, text));
        }
        let mut entries: Vec<Entry> = Vec::with_capacity(found.entries.len());
        for (at, (entry, object)) in found.entries.into_iter().enumerate() {
            if let Some(object) = object {
                if object.sum.is_some() {
                    self.paths.insert(EntryId(at as u32), entry.path.clone());
                }
                let mut objects = self.objects.lock();
                objects.insert(EntryId(at as u32), Arc::new(object));
            }
            entries.push(entry);
        }
        self.source.on_entries(now, entries);
        self.source.on_walk_end(now, found.failed, Vec::new());
    }

    fn act(&mut self) {
        while let Some(action) = self.source.poll_action() {
            match action {
                SourceAction::Send(message) => self.control.tx.send(&message),
                SourceAction::Assign(_, range) => self.assign(&range),
                SourceAction::Revoke(_, range) => {
                    let now = clock::now();
                    for part in self.lines.revoke(&range) {
                        let returned = TransportEvent::Returned(part);
                        self.source.on_transport_event(now, LINES, returned);
                    }
                }
                // What failed verification is asked for again, and fetched and hashed again then.
                SourceAction::Reread(_) | SourceAction::Forget(_) => {}
                // Nobody but the server has the whole file.
                SourceAction::HashFile(id) => self.source.on_root(clock::now(), id, None),
                SourceAction::Finished(outcome) => self.outcome = Some(outcome),
            }
        }
    }

    fn assign(&mut self, range: &Range<Offset>) {
        let piece = self.source.layout().piece_at(range.start);
        if let Some(piece) = piece
            && self.source.entry(piece.entry).is_some_and(|e| e.kind == EntryKind::Stream)
            && let Some(whole) = self.source.layout().range_of(piece.entry)
        {
            return self.lines.stream(piece.entry, whole.start, range);
        }
        for chunk in ChunkIndex::covering(range) {
            self.lines.assign(&self.source.pieces_needed(chunk), range);
        }
    }

    fn tell(&mut self) {
        let now = clock::now();
        if now.since(self.told) >= Duration::from_millis(100) {
            self.told = now;
            self.observer.transport(self.name);
            self.observer.source(&self.source.totals());
        }
    }
}
