//! The sending end's transports.

use std::ops::Range;
use std::sync::Arc;

use packtrain_net::flow::{FlowEvent, FlowHandle, FlowSnapshot};
use packtrain_net::limit::RateLimiter;
use packtrain_net::udp::UdpSocket;
use packtrain_os::clock;
use packtrain_plan::route::PathId;
use packtrain_proto::{CloseReason, Event};
use packtrain_transfer::message::{Message, Role};
use packtrain_transfer::{Failure, TransportEvent, TransportId};
use packtrain_units::{ByteCount, Duration, Offset, Time};

use super::beside::{self, Channels};
use super::look::Look;
use super::mover::{Mover, Tell};
use super::offer::Offer;
use super::payload::ReaderPayload;
use super::tcp::group::Reading;
use super::tcp::streams::{Parts, Streams};
use super::tcp::{Tasks, TcpEnd, TcpStream};
use super::{Moved, TransportConfig, TransportNews, pipe, temporary, udp};
use crate::candidate_paths::CandidatePaths;
use crate::control::{Control, ControlSender};
use crate::reader::Reader;
use crate::session::Observer;
use packtrain_service::evidence::{Net, PathPart};
use packtrain_service::{LossCause, Notice, NoticeLevel};

/// How long UDP and TCP have before the pipe is used.
const RACE: Duration = Duration::from_secs(2);

/// Without any transport for this long, and no pipe allowed, the transfer ends.
const GIVE_UP: Duration = Duration::from_secs(35);

/// Characters of another end's reason that are kept.
const MAX_WHY: usize = 200;

const UDP: TransportId = TransportId(0);
const PIPE: TransportId = TransportId(1);
const TCP: TransportId = TransportId(2);

const RANK_UDP: u8 = 0;
const RANK_TCP: u8 = 10;
const RANK_PIPE: u8 = 20;

/// A message from a transport's threads to the transports themselves.
pub(crate) enum Internal {
    /// The datagram flow.
    Udp(Box<FlowEvent>),
    /// The connection beside the datagram flow is up.
    BesideUp,
    /// A TCP stream is up.
    TcpUp(Box<TcpStream>, PathId),
    /// A connection of ours did not come about on a way, and why if that is known.
    TcpFailed(PathId, String),
    /// A TCP stream is over; whether it had anything to move, and what the kernel said last.
    TcpOver { why: String, had: bool, way: PathId, last: Option<Box<Reading>> },
}

enum Udp {
    Off,
    Bound(Vec<UdpSocket>, super::offer::FlowOffer),
    Running(FlowHandle),
    Over,
}

/// All transports of a source.
pub struct SourceTransports {
    plan: TransportConfig,
    /// What all transports together are held to.
    limiter: Option<RateLimiter>,
    started: Time,
    alone_since: Time,
    control: Option<ControlSender>,
    reader: Option<Reader>,
    tell: Option<Tell>,
    udp: Udp,
    udp_up: bool,
    /// Datagrams have passed both ways.
    established: bool,
    /// The connections beside the flow, where it has one, and whether it is up.
    channels: Option<Channels>,
    beside_up: bool,
    /// Why the flow ended.
    ended: Option<String>,
    last: Option<FlowSnapshot>,
    tcp: Option<TcpEnd>,
    tasks: Tasks,
    /// The peer made its offer; another is not listened to.
    offered: bool,
    streams: Option<Streams>,
    pipe: Option<Mover>,
    piped_before: ByteCount,
    look: Look,
}

impl SourceTransports {
    /// The transports of a source, none of which is connected yet.
    pub fn new(plan: TransportConfig) -> Self {
        Self {
            limiter: plan.send_limiter(),
            plan,
            started: clock::now(),
            alone_since: clock::now(),
            control: None,
            reader: None,
            tell: None,
            udp: Udp::Off,
            udp_up: false,
            established: false,
            channels: None,
            beside_up: false,
            ended: None,
            last: None,
            tcp: None,
            tasks: Tasks::default(),
            offered: false,
            streams: None,
            pipe: None,
            piped_before: ByteCount::ZERO,
            look: Look::default(),
        }
    }

    /// Binds, listens and makes the peer an offer.
    pub(crate) fn start(&mut self, control: &Control, reader: &Reader, tell: Tell) {
        self.started = clock::now();
        self.control = Some(control.tx.clone());
        self.reader = Some(reader.clone());
        let mut offer = Offer::new(&self.plan);
        if self.plan.udp()
            && let Ok(sockets) = udp::bind(&self.plan)
        {
            let flow = udp::offer();
            if self.plan.beside() {
                self.channels = Channels::listen(&self.plan, Role::Source).ok();
            }
            if let Some(channels) = &self.channels {
                channels.fill(&mut offer);
            }
            offer.udp = udp::ports(&sockets);
            offer.flow = Some(flow.clone());
            self.udp = Udp::Bound(sockets, flow);
        }
        if self.plan.tcp() {
            let tell = Arc::clone(&tell);
            let up = move |stream| {
                let way = super::tcp::way(&stream);
                let word = Internal::TcpUp(Box::new(stream), way);
                tell(TransportNews::Internal(word));
            };
            if let Ok(end) = TcpEnd::listen(&self.plan, &self.tasks, up) {
                // Over depots only this end connects.
                offer.tcp = if self.plan.via.is_some() { 0 } else { end.port() };
                offer.tcp_key = end.key();
                self.tcp = Some(end);
            }
        }
        if self.tcp.is_some() {
            self.streams = Some(Streams::new(Parts {
                id: TCP,
                rank: RANK_TCP,
                count: self.plan.count(),
                modest: self.plan.udp(),
                tasks: self.tasks.clone(),
                tell: Arc::clone(&tell),
                control: control.tx.clone(),
                reader: reader.clone(),
                limiter: self.limiter.clone(),
                most: self.plan.most_streams,
                ways: self.plan.ways.clone(),
            }));
        }
        self.tell = Some(tell);
        if self.plan.udp() || self.plan.tcp() {
            control.tx.send(&Message::Channel(offer.encode()));
        }
    }

    /// The peer's offer.
    pub(crate) fn on_offer(&mut self, offer: &Offer) {
        if std::mem::replace(&mut self.offered, true) {
            return;
        }
        let (Some(tell), Some(reader)) = (self.tell.clone(), self.reader.clone()) else { return };
        if let Err(failure) = offer.check(&self.plan) {
            tell(TransportNews::Hopeless(failure));
            return;
        }
        self.udp = match std::mem::replace(&mut self.udp, Udp::Over) {
            Udp::Bound(sockets, flow) if !offer.udp.is_empty() => {
                let payload = ReaderPayload::new(reader.clone());
                let tell = Arc::clone(&tell);
                let ready = Arc::clone(&tell);
                let events = move |e| tell(TransportNews::Internal(Internal::Udp(Box::new(e))));
                let keys = (&flow, self.limiter.clone());
                match udp::start_sender(&self.plan, sockets, keys, offer, payload, events) {
                    Ok(mut handle) => {
                        if let (Some(channels), Some(beside)) = (&self.channels, handle.beside()) {
                            let up = move || ready(TransportNews::Internal(Internal::BesideUp));
                            channels.add(flow.id, beside, up);
                            channels.connect(&self.plan, offer, Duration::ZERO);
                        }
                        let waker = handle.waker();
                        reader.on_ready(move || waker.wake());
                        Udp::Running(handle)
                    }
                    Err(_) => Udp::Over,
                }
            }
            Udp::Bound(..) => Udp::Over,
            other => other,
        };
        let udp = matches!(self.udp, Udp::Running(_));
        let mtu = match &self.udp {
            Udp::Running(flow) => Some(flow.stats().flow.mtu).filter(|mtu| mtu.get() > 0),
            _ => None,
        };
        let mtu = mtu.or(udp.then_some(udp::MTU_V6));
        self.look.begin(clock::now(), udp, self.tcp.is_some() && offer.tcp != 0, mtu);
        if let (Some(tcp), Some(streams)) = (&self.tcp, &mut self.streams) {
            streams.begin(tcp.connector(&self.plan, offer));
        }
    }

    /// What the other end, which called, says of the ways it could bring streams over.
    pub(crate) fn on_ways(&mut self, bytes: &[u8]) {
        if let Some(ways) = &self.plan.ways {
            return ways.learn(bytes);
        }
        if self.plan.relayed {
            return;
        }
        let Some(ways) = CandidatePaths::told_of(bytes) else { return };
        self.plan.ways = Some(Arc::clone(&ways));
        if let Some(streams) = &mut self.streams {
            streams.choose_from(ways);
        }
    }

    /// It could not bring a stream over a way.
    pub(crate) fn on_no_way(&mut self, way: u8, mut why: String) {
        let known = self.plan.ways.as_ref().is_some_and(|ways| ways.is_far() && ways.has(way));
        if let (true, Some(streams)) = (known, &mut self.streams) {
            why.retain(|c| !c.is_control());
            let end = why.char_indices().nth(MAX_WHY).map_or(why.len(), |(at, _)| at);
            why.truncate(end);
            streams.failed(PathId::numbered(way), &why);
        }
    }

    /// Whether depots are in between.
    pub(crate) fn is_relayed(&self) -> bool {
        self.plan.relayed
    }

    /// Whether a TCP stream is up.
    fn tcp_is_up(&self) -> bool {
        self.streams.as_ref().is_some_and(Streams::is_up)
    }

    /// The peer took this many bytes off the pipe.
    pub(crate) fn on_taken(&mut self, total: u64) {
        if let Some(pipe) = &self.pipe {
            pipe.taken(total.saturating_sub(self.piped_before.get()));
        }
    }

    pub(crate) fn assign(&mut self, id: TransportId, range: Range<Offset>) {
        match (id, &self.udp, &self.pipe) {
            (UDP, Udp::Running(flow), _) => flow.assign(range),
            (PIPE, _, Some(pipe)) => pipe.assign(range),
            _ => match &self.streams {
                Some(streams) if streams.is_up() => streams.group().assign(range),
                _ => self.give_back(id, range),
            },
        }
    }

    pub(crate) fn revoke(&mut self, id: TransportId, range: Range<Offset>) {
        match (id, &self.udp, &self.pipe) {
            (UDP, Udp::Running(flow), _) => flow.revoke(range),
            (PIPE, _, Some(pipe)) => pipe.revoke(&range),
            _ => match &self.streams {
                Some(streams) if streams.is_up() => streams.group().revoke(&range),
                _ => self.give_back(id, range),
            },
        }
    }

    /// A transport that is gone has nothing: what it is asked for is returned.
    fn give_back(&self, id: TransportId, range: Range<Offset>) {
        if let Some(tell) = &self.tell {
            tell(TransportNews::Event(id, TransportEvent::Returned(range)));
        }
    }

    /// So much is left to move, as far as that is known.
    pub(crate) fn is_left(&mut self, left: Option<ByteCount>) {
        if let Some(streams) = &mut self.streams {
            streams.is_left(left);
        }
    }

    /// Turns the pipe on when nothing else came up in time or all else is gone.
    pub(crate) fn poll(&mut self, now: Time, observer: &dyn Observer) -> Vec<TransportNews> {
        if let Some(streams) = &mut self.streams {
            streams.poll(now);
        }
        if let Some(via) = &self.plan.via {
            via.route.said().iter().for_each(|notice| observer.notice(notice));
        }
        self.sample(now);
        let alone = !self.udp_up && !self.tcp_is_up();
        if !alone || self.plan.pipe() {
            self.alone_since = now;
        } else if now.since(self.alone_since) >= GIVE_UP {
            self.alone_since = now;
            let name = self.plan.choice.name();
            let text = match &self.plan.allowed {
                Some(allowed) => format!(
                    "nothing gets through by {name} between the two ends, and policy allows only \
                     {}: open its ports (--ports)",
                    allowed.join(", ")
                ),
                None => format!(
                    "nothing gets through by {name} between the two ends: open its ports (--ports), \
                     or let --transport auto choose"
                ),
            };
            return vec![TransportNews::Hopeless(temporary(text))];
        }
        if let Some(failure) = self.nothing_left(now) {
            return vec![TransportNews::Hopeless(failure)];
        }
        let waited = now.since(self.started) >= RACE;
        let hopeless = matches!(self.udp, Udp::Off | Udp::Over) && self.tcp.is_none();
        if self.pipe.is_some() || !alone || !self.plan.pipe() || !(waited || hopeless) {
            return Vec::new();
        }
        let (Some(control), Some(reader), Some(tell)) =
            (self.control.clone(), self.reader.clone(), self.tell.clone())
        else {
            return Vec::new();
        };
        if !hopeless {
            let text = "neither UDP nor TCP gets through between the two ends: the data goes \
                        through the control connection, which is slower; open UDP or TCP ports \
                        (--ports) for full speed";
            observer.notice(&Notice::new(NoticeLevel::Warning, text));
        }
        self.look.piped(now);
        self.pipe = Some(pipe::start(PIPE, control, reader, tell, self.limiter.clone()));
        vec![TransportNews::Up(PIPE, RANK_PIPE)]
    }

    /// Why nothing can move any more, where the flow was all there was to be.
    fn nothing_left(&mut self, now: Time) -> Option<Failure> {
        let late = self.plan.beside()
            && self.established
            && !self.beside_up
            && now.since(self.started) >= beside::WAIT;
        if late && let Udp::Running(flow) = &self.udp {
            let text = format!(
                "UDP gets through between the two ends, but not the TCP connection that \
                 --transport {} needs beside it: open TCP ports too (--ports)",
                self.plan.datagrams().name(),
            );
            flow.close(CloseReason::Channel);
            self.established = false;
            return Some(temporary(text));
        }
        let over = matches!(self.udp, Udp::Over) && !self.plan.tcp() && !self.plan.pipe();
        let why = if over { self.ended.take() } else { None }?;
        let name = self.plan.choice.name();
        Some(temporary(format!("{why}; --transport {name} leaves no other way")))
    }

    pub(crate) fn internal(
        &mut self,
        internal: Internal,
        observer: &dyn Observer,
    ) -> Vec<TransportNews> {
        match internal {
            Internal::Udp(event) => self.udp_event(*event, observer),
            Internal::BesideUp => {
                self.beside_up = true;
                self.udp_ready()
            }
            Internal::TcpUp(stream, way) => self.tcp_up(*stream, way),
            Internal::TcpFailed(way, why) => {
                if let Some(streams) = &mut self.streams {
                    streams.failed(way, &why);
                }
                Vec::new()
            }
            Internal::TcpOver { why, had, way, last } => match &mut self.streams {
                Some(streams) => streams.over(&why, had, way, last.map(|last| *last)),
                None => Vec::new(),
            },
        }
    }

    fn tcp_up(&mut self, stream: TcpStream, way: PathId) -> Vec<TransportNews> {
        self.look.tcp_up(clock::now());
        self.streams.as_mut().map_or_else(Vec::new, |streams| streams.connected(stream, way))
    }

    /// The flow may be used when all that it needs is up.
    fn udp_ready(&mut self) -> Vec<TransportNews> {
        let up = self.established && (self.beside_up || !self.plan.beside());
        if !up || std::mem::replace(&mut self.udp_up, true) {
            return Vec::new();
        }
        self.look.udp_up(clock::now());
        vec![TransportNews::Up(UDP, RANK_UDP)]
    }

    fn udp_event(&mut self, event: FlowEvent, observer: &dyn Observer) -> Vec<TransportNews> {
        let tell = |event| vec![TransportNews::Event(UDP, event)];
        match event {
            FlowEvent::Flow(Event::Established { .. }) => {
                self.established = true;
                self.udp_ready()
            }
            FlowEvent::Flow(Event::Placed(range)) => tell(TransportEvent::Placed(range)),
            FlowEvent::Flow(Event::Returned(range) | Event::Unreadable(range)) => {
                tell(TransportEvent::Returned(range))
            }
            FlowEvent::Flow(Event::Closed(reason)) => {
                let failure = temporary(format!("UDP: {reason}"));
                self.ended.get_or_insert_with(|| failure.text.clone());
                (self.established, self.beside_up) = (false, false);
                tell(TransportEvent::Closed(failure))
            }
            FlowEvent::Flow(Event::Braked { to }) => {
                self.look.braked += 1;
                let text = format!("persistent loss: the circuit breaker holds UDP at {to}");
                observer.notice(&Notice::new(NoticeLevel::Info, text));
                Vec::new()
            }
            FlowEvent::Buffers(warning) => {
                observer.notice(&Notice::new(NoticeLevel::Warning, warning.to_string()));
                Vec::new()
            }
            FlowEvent::Ended(last) => {
                self.last = Some(*last);
                let was_up = std::mem::replace(&mut self.udp_up, false);
                self.udp = Udp::Over;
                let over = temporary("UDP: the flow has ended");
                if was_up { tell(TransportEvent::Closed(over)) } else { Vec::new() }
            }
            FlowEvent::Panicked => {
                self.udp_up = false;
                self.udp = Udp::Over;
                tell(TransportEvent::Closed(temporary("UDP: the network thread failed")))
            }
            FlowEvent::Flow(_) | FlowEvent::Log(_) => Vec::new(),
        }
    }

    /// A transport has closed.
    pub(crate) fn closed(&mut self, id: TransportId, failure: &Failure, observer: &dyn Observer) {
        let was_up = match id {
            UDP => std::mem::replace(&mut self.udp_up, false),
            TCP => true,
            _ => false,
        };
        if was_up {
            let text = format!("{}; going on without it", failure.text);
            observer.notice(&Notice::new(NoticeLevel::Info, text));
        }
    }

    /// What holds the transports up, sampled.
    fn sample(&mut self, now: Time) {
        if !self.look.is_due(now) {
            return;
        }
        if let Udp::Running(flow) = &self.udp
            && self.udp_up
        {
            let snapshot = flow.stats();
            self.look.flow(now, &snapshot);
            self.last = Some(snapshot);
        } else {
            let tcp = self.streams.as_ref().filter(|streams| streams.is_up());
            let movers = tcp.map(|tcp| tcp.group().waiting()).into_iter();
            let movers = movers.chain(self.pipe.as_ref().map(Mover::waiting));
            self.look.movers(now, movers, tcp.and_then(|tcp| tcp.record().seen()));
        }
    }

    /// What is known of the path, and of the thread that sends datagrams.
    pub(crate) fn evidence(&mut self) -> (PathPart, Option<Net>) {
        let moved = self.moved();
        let last = self.last.as_ref();
        let mut part = self.look.part(last);
        let by = |name: &str| {
            moved.shares.iter().filter(|s| s.0 == name).map(|s| s.1).sum::<ByteCount>()
        };
        (part.by_tcp, part.by_pipe) = (by("tcp"), by("pipe"));
        part.asked_rate = Look::rate(self.plan.rate_bps);
        let name = moved.shares.first().map(|s| s.0.as_str()).or(self.current());
        part.transport = name.unwrap_or("none").to_owned();
        (part, self.look.net(last))
    }

    /// The transport that moves data now.
    pub(crate) fn current(&self) -> Option<&'static str> {
        match (self.udp_up, self.tcp_is_up(), &self.pipe) {
            (true, _, _) => Some(self.plan.datagrams().name()),
            (false, true, _) => Some("tcp"),
            (false, false, Some(_)) => Some("pipe"),
            (false, false, None) => None,
        }
    }

    /// The sink has the whole object: what is under way arrived.
    pub(crate) fn all_placed(&self) {
        if let Some(streams) = &self.streams {
            streams.group().all_placed();
        }
        if let Some(pipe) = &self.pipe {
            pipe.all_placed();
        }
    }

    /// Ends them all; what they moved.
    pub(crate) fn close(&mut self) -> Moved {
        let moved = self.moved();
        if let Udp::Running(flow) = std::mem::replace(&mut self.udp, Udp::Over) {
            flow.close(CloseReason::Done);
        }
        if let Some(streams) = &self.streams {
            streams.group().close();
        }
        (self.tcp, self.channels) = (None, None);
        if let Some(pipe) = &self.pipe {
            pipe.close();
        }
        moved
    }

    /// What they have moved so far.
    pub(crate) fn moved(&mut self) -> Moved {
        if let Udp::Running(flow) = &self.udp {
            self.last = Some(flow.stats());
        }
        let tcp = self.streams.as_ref().map_or(ByteCount::ZERO, Streams::moved);
        let piped = self.pipe.as_ref().map_or(ByteCount::ZERO, Mover::moved);
        let held = self.plan.held_by(self.limiter.as_ref());
        let mut moved = Moved { held, ..Moved::default() };
        let mut udp = ByteCount::ZERO;
        if let Some(last) = &self.last {
            let flow = &last.flow;
            udp = flow.sent_bytes.saturating_sub(flow.retransmitted_bytes);
            moved.retransmitted = flow.retransmitted_bytes;
            moved.rtt = flow.min_rtt;
            moved.causes = causes(flow);
        }
        if let Some(streams) = &self.streams {
            moved.retransmitted += streams.sent_again() + streams.retransmitted();
            moved.rtt = moved.rtt.or(streams.record().min_rtt());
            moved.streams = streams.report();
        }
        moved.shares = [(self.plan.datagrams().name(), udp), ("tcp", tcp), ("pipe", piped)]
            .into_iter()
            .filter(|(_, bytes)| *bytes > ByteCount::ZERO)
            .map(|(name, bytes)| (name.to_owned(), bytes))
            .collect();
        moved.shares.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
        moved
    }
}

/// Losses by what they are put down to: the receiver's own drops, its lack of room, the path.
pub fn causes(flow: &packtrain_proto::FlowStats) -> LossCause {
    let size = flow.mtu.get().saturating_sub(33);
    let lost = flow.lost_packets.saturating_sub(flow.spurious_packets);
    let host = flow.host_drops.min(lost);
    let refused = flow.refused_packets.min(lost - host);
    let path = lost - host - refused;
    let mut causes = LossCause::judged(&flow.loss);
    for (name, packets) in [("host", host), ("receiver", refused), ("path", path)] {
        if packets > 0 {
            causes.bytes.insert(name.to_owned(), ByteCount(packets * size));
        }
    }
    causes
}

#[cfg(test)]
#[path = "sources_tests.rs"]
mod tests;
