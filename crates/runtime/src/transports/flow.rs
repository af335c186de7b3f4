//! The transport over datagrams, under the native feedback or that of UDT, FOBS or SABUL.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use packtrain_net::flow::{FlowEvent, FlowHandle, FlowSnapshot};
use packtrain_net::limit::RateLimiter;
use packtrain_net::udp::{BufferSizes, UdpSocket};
use packtrain_os::clock;
use packtrain_proto::{CloseReason, Event, FlowStats, Limit, LossTally, Placed, Placement};
use packtrain_transfer::message::Role;
use packtrain_transfer::{Transport, TransportEvent};
use packtrain_units::{ByteCount, DataRate, Duration, Offset, Time};

use super::beside::{self, Channels};
use super::intake::Intake;
use super::offer::{FlowOffer, Offer};
use super::path_samples::{Counters, PathSamples};
use super::payload::ReaderPayload;
use super::qlog::QlogFile;
use super::transport::{Inbox, Outbox, SinkTransport, SourceContext, SourceTransport, temporary};
use super::{Moved, TransportConfig, udp};
use crate::assembly::{Assembly, EMPTY_ROOM};
use crate::control::ControlSender;
use crate::reader::Reader;
use packtrain_service::evidence::{Buffers, LossVerdict, Net, PathPart};
use packtrain_service::{LossCause, Notice, NoticeLevel};

/// Datagrams are preferred to everything else.
const RANK: u8 = 0;
/// The source connects beside the flow first; the sink tries the other way round a little later.
const HEAD_START: Duration = Duration::from_millis(300);
/// Header and tag of a data packet, in bytes.
const PACKET_OVERHEAD: u64 = 33;

enum State {
    /// Not started, or over for good.
    Off,
    Bound(Vec<UdpSocket>, FlowOffer),
    Running(FlowHandle),
}

/// A message of the flow's threads.
enum News {
    Flow(Box<FlowEvent>),
    /// The connection beside the flow is up.
    BesideUp,
}

/// The sending end of a flow.
pub(super) struct FlowSource {
    config: TransportConfig,
    limiter: Option<RateLimiter>,
    news: Inbox<News>,
    outbox: Option<Outbox<News>>,
    reader: Option<Reader>,
    state: State,
    started: Time,
    /// Datagrams have passed both ways.
    established: bool,
    /// The connections beside the flow, where it has one, and whether it is up.
    channels: Option<Channels>,
    beside_up: bool,
    up: bool,
    /// It was closed because it cannot work.
    given_up: bool,
    notices: Vec<Notice>,
    last: Option<FlowSnapshot>,
    seen: Seen,
}

/// What is known of the flow's course.
#[derive(Default)]
struct Seen {
    tried: bool,
    /// Bytes assigned, and bytes of these that the flow gave back.
    assigned: ByteCount,
    returned: ByteCount,
    /// From when to when its network thread was in use.
    used: Option<(Time, Time)>,
    first_mtu: ByteCount,
    last_mtu: ByteCount,
    mtu_falls: u64,
    braked: u64,
}

impl FlowSource {
    pub(super) fn new(config: TransportConfig, limiter: Option<RateLimiter>) -> Self {
        Self {
            config,
            limiter,
            news: Inbox::default(),
            outbox: None,
            reader: None,
            state: State::Off,
            started: clock::now(),
            established: false,
            channels: None,
            beside_up: false,
            up: false,
            given_up: false,
            notices: Vec::new(),
            last: None,
            seen: Seen::default(),
        }
    }

    /// Binds its sockets; without a port the user is told, because the data takes another way.
    fn bind(&mut self) -> Option<Vec<UdpSocket>> {
        let bound = udp::bind(&self.config);
        bound.map_err(|why| self.notices.push(not_bound(self.name(), &why))).ok()
    }

    fn run(
        &mut self,
        sockets: Vec<UdpSocket>,
        flow: &FlowOffer,
        peer: &Offer,
    ) -> Result<FlowHandle, String> {
        let (Some(outbox), Some(reader)) = (self.outbox.clone(), self.reader.clone()) else {
            return Err("the transfer has not begun".to_owned());
        };
        let ready = outbox.clone();
        let payload = ReaderPayload::new(reader.clone());
        let log = QlogFile::from_environment(flow.id).unwrap_or_else(|text| {
            self.notices.push(Notice::new(NoticeLevel::Warning, text));
            None
        });
        let events = move |event| outbox.send(News::Flow(Box::new(event)));
        let keys = (flow, self.limiter.clone());
        let mut handle =
            udp::start_sender(&self.config, sockets, keys, peer, payload, log, events)?;
        if let (Some(channels), Some(beside)) = (&self.channels, handle.channel()) {
            channels.add(flow.id, beside, move || ready.send(News::BesideUp));
            channels.connect(&self.config, peer, Duration::ZERO);
        }
        let waker = handle.waker();
        reader.on_ready(move || waker.wake());
        Ok(handle)
    }

    fn on_news(&mut self, news: News) -> Option<TransportEvent> {
        match news {
            News::Flow(event) => self.on_flow_event(*event),
            News::BesideUp => {
                self.beside_up = true;
                self.come_up()
            }
        }
    }

    /// Payload bytes that the flow moved, each once. What it sent and had to give back did not
    /// arrive. The last of what it keeps arrives without an acknowledgement, because the transfer
    /// ends first.
    fn moved(&self, flow: &FlowStats) -> ByteCount {
        let sent = flow.sent_bytes.saturating_sub(flow.retransmitted_bytes);
        sent.min(self.seen.assigned.saturating_sub(self.seen.returned))
    }

    /// The flow takes ranges when all that it needs is up.
    fn come_up(&mut self) -> Option<TransportEvent> {
        let ready = self.established && (self.beside_up || !self.config.beside());
        if !ready || std::mem::replace(&mut self.up, true) {
            return None;
        }
        Some(TransportEvent::Up { rank: RANK })
    }

    fn go_down(&mut self, why: String) -> Option<TransportEvent> {
        (self.established, self.beside_up) = (false, false);
        // A flow that never came up says why it does not either.
        self.up = false;
        Some(TransportEvent::Closed(temporary(why)))
    }

    fn on_flow_event(&mut self, event: FlowEvent) -> Option<TransportEvent> {
        // What a flow gives back after the end of the transfer has arrived all the same.
        if let FlowEvent::Flow(Event::Returned(range) | Event::Unreadable(range)) = &event
            && matches!(self.state, State::Running(_))
        {
            self.seen.returned += range.end.since(range.start);
        }
        match event {
            FlowEvent::Flow(Event::Established { .. }) => {
                self.established = true;
                self.come_up()
            }
            // `Closed` returned all that the flow had. It also answers what it is given later.
            FlowEvent::Flow(Event::Placed(_) | Event::Returned(_) | Event::Unreadable(_))
                if !self.up =>
            {
                None
            }
            FlowEvent::Flow(Event::Placed(range)) => Some(TransportEvent::Placed(range)),
            FlowEvent::Flow(Event::Returned(range) | Event::Unreadable(range)) => {
                Some(TransportEvent::Returned(range))
            }
            FlowEvent::Flow(Event::Closed(reason)) => self.go_down(format!("UDP: {reason}")),
            FlowEvent::Flow(Event::Braked { to }) => {
                self.seen.braked += 1;
                let text = format!("persistent loss: the circuit breaker holds UDP at {to}");
                self.notices.push(Notice::new(NoticeLevel::Info, text));
                None
            }
            FlowEvent::Buffers(warning) => {
                self.notices.push(Notice::new(NoticeLevel::Warning, warning.to_string()));
                None
            }
            FlowEvent::Ended(last) => {
                self.last = Some(*last);
                self.state = State::Off;
                if self.up { self.go_down("UDP: the flow has ended".to_owned()) } else { None }
            }
            FlowEvent::Panicked => {
                self.state = State::Off;
                self.go_down("UDP: the network thread failed".to_owned())
            }
            FlowEvent::Flow(_) | FlowEvent::Log(_) => None,
        }
    }

    /// The connection beside the flow is overdue: without it the flow cannot work.
    fn check_beside(&mut self, now: Time) -> Option<TransportEvent> {
        let late = self.config.beside()
            && self.established
            && !self.beside_up
            && now.since(self.started) >= beside::WAIT;
        let State::Running(flow) = &self.state else { return None };
        if !late {
            return None;
        }
        flow.close(CloseReason::Channel);
        self.given_up = true;
        self.go_down(format!(
            "UDP gets through between the two ends, but not the TCP connection that --transport {} \
             needs beside it: open TCP ports too (--ports)",
            self.name(),
        ))
    }
}

impl Transport for FlowSource {
    fn name(&self) -> &'static str {
        self.config.datagrams().name()
    }

    fn assign(&mut self, range: Range<Offset>) {
        if let State::Running(flow) = &self.state {
            self.seen.assigned += range.end.since(range.start);
            flow.assign(range);
        }
    }

    fn revoke(&mut self, range: Range<Offset>) {
        if let State::Running(flow) = &self.state {
            flow.revoke(range);
        }
    }

    fn poll_event(&mut self, now: Time) -> Option<TransportEvent> {
        while let Some(news) = self.news.next() {
            if let Some(event) = self.on_news(news) {
                return Some(event);
            }
        }
        self.check_beside(now)
    }

    fn close(&mut self) {
        if let State::Running(flow) = std::mem::replace(&mut self.state, State::Off) {
            self.last = Some(flow.stats());
            flow.close(CloseReason::Done);
        }
        self.channels = None;
    }
}

impl SourceTransport for FlowSource {
    fn start(&mut self, context: &SourceContext, offer: &mut Offer) {
        self.started = clock::now();
        self.reader = context.reader.clone();
        self.outbox = Some(self.news.outbox(&context.wake));
        let Some(sockets) = self.bind() else { return };
        let flow = udp::offer();
        if self.config.beside() {
            self.channels = Channels::listen(&self.config, Role::Source).ok();
        }
        if let Some(channels) = &self.channels {
            channels.fill(offer);
        }
        offer.udp = udp::ports(&sockets);
        offer.flow = Some(flow.clone());
        self.state = State::Bound(sockets, flow);
    }

    fn on_agreed(&mut self, config: &TransportConfig, limiter: Option<&RateLimiter>) {
        (self.config, self.limiter) = (config.clone(), limiter.cloned());
    }

    fn on_offer(&mut self, offer: &Offer) {
        self.state = match std::mem::replace(&mut self.state, State::Off) {
            State::Bound(sockets, flow) if !offer.udp.is_empty() => {
                self.run(sockets, &flow, offer).map_or(State::Off, State::Running)
            }
            State::Bound(..) if self.config.udp() => {
                self.notices.push(not_offered(self.name()));
                State::Off
            }
            _ => State::Off,
        };
        if let State::Running(flow) = &self.state {
            self.seen.tried = true;
            // The flow begins with the base size and reaches at least this in its first round trip,
            // unless the path carries less.
            self.seen.first_mtu = flow.stats().flow.mtu.max(udp::MTU_V6);
        }
    }

    fn is_over(&self) -> bool {
        self.given_up || matches!(self.state, State::Off)
    }

    fn poll_notice(&mut self) -> Option<Notice> {
        self.notices.pop()
    }

    fn sample(&mut self, now: Time, samples: &mut PathSamples) {
        let State::Running(flow) = &self.state else { return };
        let snapshot = flow.stats();
        let flow = &snapshot.flow;
        let begun = self.seen.used.map_or(now, |(begun, _)| begun);
        self.seen.used = Some((begun, now));
        self.seen.mtu_falls += u64::from(flow.mtu < self.seen.last_mtu);
        self.seen.last_mtu = flow.mtu;
        samples.add_limit(flow.limit);
        let payload = flow.mtu.get().saturating_sub(PACKET_OVERHEAD);
        let lost = flow
            .lost_packets
            .saturating_sub(flow.spurious_packets + flow.host_drops + flow.refused_packets);
        let rtt = flow.rtt.unwrap_or_default();
        samples.add(Counters {
            transport: self.config.datagrams().name(),
            at: now,
            sent: flow.sent_bytes,
            arrived: flow.acked_bytes,
            lost: ByteCount(lost * payload),
            rtt,
            queue: flow.queueing_delay.unwrap_or(rtt - flow.min_rtt.unwrap_or(rtt)),
            waits_for_path: matches!(flow.limit, Limit::Window | Limit::Pacing | Limit::Silence),
        });
        self.last = Some(snapshot);
    }

    fn report_evidence(&self, part: &mut PathPart, up_after: Option<Duration>) -> Option<Net> {
        let seen = &self.seen;
        (part.race.udp_tried, part.race.udp_up) = (seen.tried, up_after);
        (part.mtu_begun, part.mtu_falls, part.braked) =
            (seen.first_mtu, seen.mtu_falls, seen.braked);
        let FlowSnapshot { flow, io, cpu, .. } = self.last.as_ref()?;
        part.by_udp = self.moved(flow);
        part.sent_packets = flow.sent_packets;
        part.lost_packets = flow.lost_packets.saturating_sub(flow.spurious_packets);
        part.host_drops = flow.host_drops;
        part.refused_packets = flow.refused_packets;
        part.marked_packets = flow.ecn_ce;
        part.min_rtt = flow.min_rtt.or(part.min_rtt);
        part.srtt = flow.rtt;
        part.capacity = flow.capacity;
        part.cwnd = flow.cwnd;
        part.controller.clone_from(&flow.controller);
        part.mtu = flow.mtu;
        part.refused_sends = io.refused;
        part.too_big = io.too_big;
        part.smallest_refused = io.smallest_refused;
        part.loss = loss_word(&flow.loss);
        let (begun, last) = seen.used?;
        Some(Net { cpu: *cpu, bytes: flow.sent_bytes, elapsed: last.since(begun) })
    }

    fn account(&mut self, moved_in_all: &mut Moved) {
        if let State::Running(flow) = &self.state {
            self.last = Some(flow.stats());
        }
        let Some(FlowSnapshot { flow, .. }) = &self.last else { return };
        moved_in_all.shares.push((self.name().to_owned(), self.moved(flow)));
        moved_in_all.retransmitted += flow.retransmitted_bytes;
        moved_in_all.rtt = flow.min_rtt.or(moved_in_all.rtt);
        moved_in_all.causes = causes(flow);
    }
}

/// The receiving end of a flow.
pub(super) struct FlowSink {
    config: TransportConfig,
    intake: Intake,
    assembly: LateAssembly,
    channels: Option<Channels>,
    sockets: Option<Vec<UdpSocket>>,
    flow: Option<FlowHandle>,
    /// When the flow was started, and its sockets' buffers.
    started: Time,
    buffers: Option<(BufferSizes, usize)>,
    notices: Vec<Notice>,
}

impl FlowSink {
    pub(super) fn new(config: TransportConfig, intake: Intake) -> Self {
        Self {
            config,
            intake,
            assembly: LateAssembly::default(),
            channels: None,
            sockets: None,
            flow: None,
            started: Time::ZERO,
            buffers: None,
            notices: Vec::new(),
        }
    }
}

fn not_bound(name: &str, why: &str) -> Notice {
    Notice::new(NoticeLevel::Warning, format!("{name} is not used: {why} at this end"))
}

fn not_offered(name: &str) -> Notice {
    let text =
        format!("{name} is not used: the other end found no free UDP port, or may bind none");
    Notice::new(NoticeLevel::Warning, text)
}

impl FlowSink {
    /// The flow sends reports when there is room again.
    fn wake_for_room(&self) {
        if let (Some(assembly), Some(flow)) = (self.assembly.0.get(), &self.flow) {
            let waker = flow.waker();
            assembly.on_room(move || waker.wake());
        }
    }
}

/// The assembly, which a flow that validates its path need not wait for.
#[derive(Clone, Default)]
struct LateAssembly(Arc<OnceLock<Assembly>>, Option<Assembly>);

impl Placement for LateAssembly {
    fn place(&mut self, at: Offset, bytes: &[u8]) -> Placed {
        if self.1.is_none() {
            self.1 = self.0.get().cloned();
        }
        // Nothing was asked for before it is there.
        self.1.as_mut().map_or(Placed::NoRoom, |assembly| assembly.place(at, bytes))
    }

    fn room(&self) -> ByteCount {
        self.0.get().map_or(EMPTY_ROOM, Placement::room)
    }
}

impl SinkTransport for FlowSink {
    fn bind(&mut self, _control: &ControlSender, offer: &mut Offer) {
        let sockets = match udp::bind(&self.config) {
            Ok(sockets) => sockets,
            Err(why) => {
                self.notices.push(not_bound(self.config.datagrams().name(), &why));
                return;
            }
        };
        if self.config.beside() {
            self.channels = Channels::listen(&self.config, Role::Sink).ok();
        }
        if let Some(channels) = &self.channels {
            channels.fill(offer);
        }
        offer.udp = udp::ports(&sockets);
        self.sockets = Some(sockets);
    }

    fn poll_notice(&mut self) -> Option<Notice> {
        self.notices.pop()
    }

    fn on_agreed(&mut self, config: &TransportConfig) {
        self.config = config.clone();
    }

    fn start(&mut self, assembly: &Assembly) {
        let _ = self.assembly.0.set(assembly.clone());
        self.wake_for_room();
    }

    fn on_offer(&mut self, offer: &Offer) {
        let Some(sockets) = self.sockets.take() else { return };
        let Some(flow) = offer.flow.clone().filter(|_| !offer.udp.is_empty()) else {
            if self.config.udp() {
                self.notices.push(not_offered(self.config.datagrams().name()));
            }
            return;
        };
        self.started = clock::now();
        let first = sockets.first().and_then(|socket| socket.buffer_sizes().ok());
        // The other end may have fewer.
        self.buffers = first.map(|sizes| (sizes, sockets.len().min(offer.udp.len())));
        let keys = (&flow, self.intake.limiter());
        let (config, placement) = (&self.config, self.assembly.clone());
        let started = udp::start_receiver(config, sockets, keys, offer, placement, |_| {});
        let Ok(mut handle) = started else { return };
        if let (Some(channels), Some(beside)) = (&self.channels, handle.channel()) {
            channels.add(flow.id, beside, || {});
            channels.connect(&self.config, offer, HEAD_START);
        }
        self.flow = Some(handle);
        self.wake_for_room();
    }

    fn received(&self) -> Option<(String, ByteCount)> {
        let flow = self.flow.as_ref()?;
        Some((self.config.datagrams().name().to_owned(), flow.stats().flow.received_bytes))
    }

    fn report_evidence(&self) -> (Option<Net>, Option<Buffers>) {
        let Some(flow) = &self.flow else { return (None, None) };
        let snapshot = flow.stats();
        let elapsed = snapshot.at.since(self.started);
        let bytes = snapshot.flow.received_bytes;
        let net = Net { cpu: snapshot.cpu, bytes, elapsed };
        let rate = DataRate::from_bytes_over(bytes, elapsed);
        let buffers = self.buffers.map(|(sizes, sockets)| Buffers {
            each: sizes.receive,
            sockets: sockets as u64,
            limit: sizes.receive_limit,
            covers: (rate > DataRate::ZERO).then(|| sizes.covers(rate, sockets)),
            drops: snapshot.io.drops,
        });
        (Some(net), buffers)
    }

    fn close(&mut self) {
        if let Some(flow) = self.flow.take() {
            // Its thread ends by itself; nobody waits for it.
            flow.close(CloseReason::Done);
        }
        self.channels = None;
    }
}

/// What the flow's loss classifier says of most of what was lost.
fn loss_word(tally: &LossTally) -> Option<LossVerdict> {
    let cause = tally.cause()?;
    Some(LossVerdict {
        cause: cause.name().to_owned(),
        p_cpu: tally.p_cpu().unwrap_or(0.0),
        share: tally.of(cause) as f64 / tally.lost.max(1) as f64,
        lost: tally.lost,
        windows: tally.windows,
    })
}

/// Losses by cause: the receiver's own drops, its lack of room, the path.
pub fn causes(flow: &FlowStats) -> LossCause {
    let size = flow.mtu.get().saturating_sub(PACKET_OVERHEAD);
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
#[path = "flow_tests.rs"]
mod tests;
