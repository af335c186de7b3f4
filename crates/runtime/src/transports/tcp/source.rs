//! The sending end of the TCP transport.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use packtrain_net::limit::RateLimiter;
use packtrain_plan::route::PathId;
use packtrain_transfer::{Transport, TransportEvent};
use packtrain_units::{ByteCount, Duration, Offset, Time};

use super::group::Reading;
use super::streams::{Parts, Streams};
use super::{Tasks, TcpEnd, TcpStream};
use crate::candidate_paths::CandidatePaths;
use crate::transports::offer::{ControlMessage, Offer};
use crate::transports::path_samples::{Counters, PathSamples};
use crate::transports::transport::{Inbox, SourceContext, SourceTransport};
use crate::transports::{Moved, TransportConfig};
use packtrain_service::StreamsReport;
use packtrain_service::evidence::{Net, PathPart, TcpPart};

/// Maximum characters kept of the other end's reason.
const MAX_REASON: usize = 200;

/// Messages from the threads and tasks of the streams.
pub(super) enum StreamNews {
    /// An event of the transport.
    Event(TransportEvent),
    /// A stream is up on a path.
    Up(Box<TcpStream>, PathId),
    /// A connection from this end failed on a path, with the reason if it is known.
    Failed(PathId, String),
    /// A stream ended; whether it had data to move, and its last TCP statistics.
    Over { why: String, had: bool, way: PathId, last: Option<Box<Reading>> },
}

enum State {
    /// This end cannot listen, or it is over.
    Off,
    /// It listens; the peer's offer has not come.
    Bound(TcpEnd, Tasks, SourceContext),
    Running {
        streams: Box<Streams>,
        /// Takes the connections that the sink makes.
        _end: TcpEnd,
    },
}

/// All TCP streams of a source.
pub(in crate::transports) struct TcpSource {
    config: TransportConfig,
    limiter: Option<RateLimiter>,
    news: Inbox<StreamNews>,
    /// Messages that were taken out of the inbox and are not handled yet.
    events: VecDeque<TransportEvent>,
    later: VecDeque<StreamNews>,
    state: State,
    /// Whether the peer listens.
    tried: bool,
    sampled: Option<(TcpPart, Option<Duration>)>,
}

impl TcpSource {
    pub(in crate::transports) fn new(
        config: TransportConfig,
        limiter: Option<RateLimiter>,
    ) -> Self {
        Self {
            config,
            limiter,
            news: Inbox::default(),
            events: VecDeque::new(),
            later: VecDeque::new(),
            state: State::Off,
            tried: false,
            sampled: None,
        }
    }

    fn streams(&self) -> Option<&Streams> {
        match &self.state {
            State::Running { streams, .. } => Some(streams),
            _ => None,
        }
    }

    fn streams_mut(&mut self) -> Option<&mut Streams> {
        match &mut self.state {
            State::Running { streams, .. } => Some(streams),
            _ => None,
        }
    }

    /// The streams, none of which is connected.
    fn unconnected(&self, tasks: Tasks, context: SourceContext) -> Option<Streams> {
        Some(Streams::new(Parts {
            count: self.config.count(),
            modest: self.config.udp(),
            tasks,
            outbox: self.news.outbox(&context.wake),
            control: context.control,
            reader: context.reader?,
            limiter: self.limiter.clone(),
            most: self.config.most_streams,
            ways: self.config.ways.clone(),
        }))
    }

    fn on_news(&mut self, news: StreamNews) -> Option<TransportEvent> {
        let streams = self.streams_mut()?;
        match news {
            StreamNews::Event(event) => Some(event),
            StreamNews::Up(stream, way) => streams.connected(*stream, way),
            StreamNews::Failed(way, why) => {
                streams.failed(way, &why);
                None
            }
            StreamNews::Over { why, had, way, last } => {
                let closed = streams.over(&why, had, way, last.map(|last| *last))?;
                self.go_down(closed)
            }
        }
    }

    /// The last stream ended and the group returned all ranges. Events that it reported before come
    /// before `Closed`.
    fn go_down(&mut self, closed: TransportEvent) -> Option<TransportEvent> {
        let waiting = std::mem::take(&mut self.later);
        for news in waiting.into_iter().chain(std::iter::from_fn(|| self.news.next())) {
            match news {
                StreamNews::Event(event) => self.events.push_back(event),
                other => self.later.push_back(other),
            }
        }
        self.events.push_back(closed);
        self.events.pop_front()
    }

    /// The other end, which is the initiator, reports the paths over which it can open streams.
    fn on_candidate_paths(&mut self, bytes: &[u8]) {
        if let Some(ways) = &self.config.ways {
            return ways.update(bytes);
        }
        let Some(ways) = CandidatePaths::from_report(bytes) else { return };
        self.config.ways = Some(Arc::clone(&ways));
        if let Some(streams) = self.streams_mut() {
            streams.choose_from(ways);
        }
    }

    /// The other end failed to open a stream over a path.
    fn on_no_path(&mut self, way: u8, why: &str) {
        let known = self.config.ways.as_ref().is_some_and(|ways| ways.is_far() && ways.has(way));
        if let (true, Some(streams)) = (known, self.streams_mut()) {
            let why: String = why.chars().filter(|c| !c.is_control()).take(MAX_REASON).collect();
            streams.failed(PathId::numbered(way), &why);
        }
    }
}

impl Transport for TcpSource {
    fn name(&self) -> &'static str {
        "tcp"
    }

    fn assign(&mut self, range: Range<Offset>) {
        if let Some(streams) = self.streams() {
            streams.group().assign(range);
        }
    }

    fn revoke(&mut self, range: Range<Offset>) {
        if let Some(streams) = self.streams() {
            streams.group().revoke(&range);
        }
    }

    fn poll_event(&mut self, now: Time) -> Option<TransportEvent> {
        if let Some(event) = self.events.pop_front() {
            return Some(event);
        }
        while let Some(news) = self.later.pop_front().or_else(|| self.news.next()) {
            if let Some(event) = self.on_news(news) {
                return Some(event);
            }
        }
        self.streams_mut()?.poll(now);
        None
    }

    fn on_complete(&mut self) {
        if let Some(streams) = self.streams() {
            streams.group().all_placed();
        }
    }

    fn close(&mut self) {
        if let State::Running { streams, .. } = std::mem::replace(&mut self.state, State::Off) {
            streams.group().close();
        }
    }
}

impl SourceTransport for TcpSource {
    fn start(&mut self, context: &SourceContext, offer: &mut Offer) {
        if context.reader.is_none() {
            return;
        }
        let tasks = Tasks::default();
        let up = self.news.outbox(&context.wake);
        let listening = TcpEnd::listen(&self.config, &tasks, move |stream| {
            let way = super::way(&stream);
            up.send(StreamNews::Up(Box::new(stream), way));
        });
        let Ok(end) = listening else { return };
        // Over depots only this end connects.
        offer.tcp = if self.config.via.is_some() { 0 } else { end.port() };
        offer.tcp_key = end.key();
        self.state = State::Bound(end, tasks, context.clone());
    }

    fn on_agreed(&mut self, config: &TransportConfig, limiter: Option<&RateLimiter>) {
        (self.config, self.limiter) = (config.clone(), limiter.cloned());
    }

    fn on_offer(&mut self, offer: &Offer) {
        let State::Bound(end, tasks, context) = std::mem::replace(&mut self.state, State::Off)
        else {
            return;
        };
        self.tried = offer.tcp != 0;
        let Some(mut streams) = self.unconnected(tasks, context) else { return };
        streams.begin(end.connector(&self.config, offer));
        self.state = State::Running { streams: Box::new(streams), _end: end };
    }

    fn on_control(&mut self, _now: Time, message: &ControlMessage) {
        match message {
            ControlMessage::CandidatePaths(bytes) => self.on_candidate_paths(bytes),
            ControlMessage::NoWay(way, why) => self.on_no_path(*way, why),
            _ => {}
        }
    }

    fn on_remaining(&mut self, left: Option<ByteCount>) {
        if let Some(streams) = self.streams_mut() {
            streams.is_left(left);
        }
    }

    fn is_over(&self) -> bool {
        matches!(self.state, State::Off)
    }

    fn sample(&mut self, now: Time, samples: &mut PathSamples) {
        let State::Running { streams, .. } = &self.state else { return };
        let waiting = streams.group().waiting();
        samples.add_waiting(waiting);
        let Some(seen) = streams.record().seen() else { return };
        samples.add(Counters {
            transport: "tcp",
            at: now,
            sent: seen.part.sent,
            arrived: ByteCount(seen.arrived),
            lost: seen.part.retransmitted,
            rtt: seen.srtt,
            queue: seen.queue,
            waits_for_path: waiting == crate::transports::mover::Waiting::Out,
        });
        self.sampled = Some((seen.part, seen.min_rtt));
    }

    fn report_evidence(&self, part: &mut PathPart, up_after: Option<Duration>) -> Option<Net> {
        (part.race.tcp_tried, part.race.tcp_up) = (self.tried, up_after);
        if let Some((tcp, min_rtt)) = &self.sampled {
            part.tcp = Some(tcp.clone());
            part.min_rtt = part.min_rtt.or(*min_rtt);
        }
        part.by_tcp = self.streams().map_or(ByteCount::ZERO, Streams::moved);
        None
    }

    fn account(&mut self, moved: &mut Moved) {
        let State::Running { streams, .. } = &self.state else { return };
        moved.shares.push((self.name().to_owned(), streams.moved()));
        moved.retransmitted += streams.sent_again() + streams.retransmitted();
        moved.rtt = moved.rtt.or(streams.record().min_rtt());
    }

    fn report_streams(&self) -> Option<StreamsReport> {
        self.streams()?.report()
    }
}
