//! The receiving end's transports: everything that comes is placed.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use packtrain_net::flow::{FlowEvent, FlowHandle};
use packtrain_net::udp::{BufferSizes, UdpSocket};
use packtrain_os::clock;
use packtrain_plan::route::PathId;
use packtrain_proto::CloseReason;
use packtrain_transfer::Failure;
use packtrain_transfer::message::{Message, Role};
use packtrain_units::{ByteCount, DataRate, Duration, Time};

use super::beside::Channels;
use super::intake::Intake;
use super::offer::{ControlMessage, Offer};
use super::tcp::{Connector, Tasks, TcpEnd};
use super::{Moved, TransportConfig, udp};
use crate::assembly::Assembly;
use crate::control::{ControlSender, PayloadSink};
use packtrain_service::ceilings::HeldBy;
use packtrain_service::evidence::{Buffers, Net};
use packtrain_service::{Notice, StreamsReport};

/// The source connects first; the sink tries the other way round a little later.
const HEAD_START: Duration = Duration::from_millis(300);
/// The wait before a connection over depots is tried again, times the failures so far.
const AGAIN: Duration = Duration::from_millis(250);
/// How often within a transfer.
const MAX_AGAIN: u32 = 64;
/// Connections over ways that a source gets in one transfer.
const MAX_DIALLED: u32 = 1024;

enum Udp {
    Off,
    Bound(Vec<UdpSocket>),
    Running(FlowHandle),
}

/// Connects again over depots where a connection did not come about or broke, as nobody else can:
/// the source does not know them.
#[derive(Clone, Default)]
struct Redial {
    connector: Arc<OnceLock<Connector>>,
    again: Arc<AtomicU32>,
}

impl Redial {
    fn dial(&self, after: Duration) {
        let Some(connector) = self.connector.get() else { return };
        let this = self.clone();
        connector.connect(after, move || this.again());
    }

    fn again(&self) {
        let again = self.again.fetch_add(1, Ordering::Relaxed);
        if again < MAX_AGAIN {
            self.dial(AGAIN * u64::from(again.min(8) + 1));
        }
    }
}

/// All transports of a sink.
pub struct SinkTransports {
    plan: TransportConfig,
    /// What may come in, over all transports together.
    intake: Intake,
    control: ControlSender,
    udp: Udp,
    tcp: Option<TcpEnd>,
    /// The connections beside the flow, where it has one.
    channels: Option<Channels>,
    connector: Option<Connector>,
    redial: Redial,
    /// Connections made from here.
    connected: u32,
    /// Connections over ways that the source asked for.
    dialled: u32,
    /// What the source knows of the ways.
    told: Option<u32>,
    /// The peer's offer, if it came before there was a place for data.
    early: Option<Offer>,
    assembly: Option<Assembly>,
    /// What the source says each transport did.
    moved: Moved,
    /// What came over TCP, for the case that the source cannot say it any more.
    tcp_received: Arc<AtomicU64>,
    /// The peer made its offer; another is not listened to.
    offered: bool,
    /// When the flow was started, and its sockets' buffers.
    up: Time,
    sizes: Option<(BufferSizes, usize)>,
}

impl SinkTransports {
    /// Binds, listens and makes the peer an offer.
    pub fn new(plan: TransportConfig, control: ControlSender) -> Self {
        Self {
            intake: Intake::new(&plan),
            plan,
            control,
            udp: Udp::Off,
            tcp: None,
            channels: None,
            connector: None,
            redial: Redial::default(),
            connected: 0,
            dialled: 0,
            told: None,
            early: None,
            assembly: None,
            moved: Moved::default(),
            tcp_received: Arc::default(),
            offered: false,
            up: Time::ZERO,
            sizes: None,
        }
    }

    /// From now on data has a place.
    pub(crate) fn start(&mut self, assembly: &Assembly) {
        self.assembly = Some(assembly.clone());
        let mut offer = Offer::new(&self.plan);
        if self.plan.udp()
            && let Ok(sockets) = udp::bind(&self.plan)
        {
            if self.plan.beside() {
                self.channels = Channels::listen(&self.plan, Role::Sink).ok();
            }
            if let Some(channels) = &self.channels {
                channels.fill(&mut offer);
            }
            offer.udp = udp::ports(&sockets);
            self.udp = Udp::Bound(sockets);
        }
        if self.plan.tcp() {
            let assembly = assembly.clone();
            let tasks = Tasks::default();
            let running = tasks.clone();
            let (redial, intake) = (self.redial.clone(), self.intake.clone());
            let received = Arc::clone(&self.tcp_received);
            let up = move |stream| {
                let redial = redial.clone();
                let broke = move || redial.again();
                let (assembly, received) = (assembly.clone(), Arc::clone(&received));
                super::tcp::wire::receive(&running, stream, &intake, assembly, received, broke);
            };
            if let Ok(end) = TcpEnd::listen(&self.plan, &tasks, up) {
                // Over depots only this end connects.
                offer.tcp = if self.plan.via.is_some() { 0 } else { end.port() };
                offer.tcp_key = end.key();
                self.tcp = Some(end);
            }
        }
        if self.plan.udp() || self.plan.tcp() {
            self.control.send(&Message::Channel(offer.encode()));
        }
        self.tell_ways();
        if let Some(offer) = self.early.take() {
            self.connect(&offer);
        }
    }

    /// What takes the payload that comes over the control connection.
    pub(crate) fn pipe(&self, assembly: &Assembly) -> Arc<dyn PayloadSink> {
        self.intake.pipe(assembly.clone())
    }

    /// The peer's offer.
    ///
    /// # Errors
    /// The two ends cannot go together.
    pub(crate) fn on_channel(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let offer = match ControlMessage::decode(bytes) {
            Some(ControlMessage::Offer(offer)) => offer,
            Some(ControlMessage::Moved(moved)) => {
                self.moved = Moved { streams: self.moved.streams.take(), ..moved };
                return Ok(());
            }
            Some(ControlMessage::Tcp(bytes)) => {
                self.moved.streams = StreamsReport::decode(&bytes);
                return Ok(());
            }
            Some(ControlMessage::Streams(wanted)) => {
                self.invited(wanted);
                return Ok(());
            }
            Some(ControlMessage::Dial(way, wanted)) => {
                self.dial(way, wanted);
                return Ok(());
            }
            Some(
                ControlMessage::Reports(_) | ControlMessage::OfferBy(..) | ControlMessage::Part(_),
            )
            | Some(
                ControlMessage::CandidatePaths(_)
                | ControlMessage::NoWay(..)
                | ControlMessage::Leftovers(..),
            )
            | None => return Ok(()),
        };
        if std::mem::replace(&mut self.offered, true) {
            return Ok(());
        }
        offer.check(&self.plan)?;
        if self.assembly.is_some() {
            self.connect(&offer);
        } else {
            self.early = Some(offer);
        }
        Ok(())
    }

    fn connect(&mut self, offer: &Offer) {
        let Some(assembly) = self.assembly.clone() else { return };
        if let Some(tcp) = &self.tcp {
            self.connector = tcp.connector(&self.plan, offer);
            if let Some(connector) = &self.connector {
                if self.plan.via.is_some() {
                    let _ = self.redial.connector.set(connector.clone());
                    self.redial.dial(Duration::ZERO);
                } else {
                    connector.connect(HEAD_START, || {});
                }
                self.connected = 1;
            }
        }
        let Some(flow) = offer.flow.clone().filter(|_| !offer.udp.is_empty()) else { return };
        self.udp = match std::mem::replace(&mut self.udp, Udp::Off) {
            Udp::Bound(sockets) => {
                let room = assembly.clone();
                let events = |_: FlowEvent| {};
                self.up = clock::now();
                let first = sockets.first().and_then(|s| s.buffer_sizes().ok());
                // The other end may have fewer.
                self.sizes = first.map(|sizes| (sizes, sockets.len().min(offer.udp.len())));
                let keys = (&flow, self.intake.limiter().cloned());
                match udp::start_receiver(&self.plan, sockets, keys, offer, assembly, events) {
                    Ok(mut handle) => {
                        if let (Some(channels), Some(beside)) = (&self.channels, handle.beside()) {
                            channels.add(flow.id, beside, || {});
                            channels.connect(&self.plan, offer, HEAD_START);
                        }
                        let waker = handle.waker();
                        room.on_room(move || waker.wake());
                        Udp::Running(handle)
                    }
                    Err(_) => Udp::Off,
                }
            }
            other => other,
        };
    }

    /// The source cannot reach this end, which it can: it wants so many streams from here.
    fn invited(&mut self, wanted: u32) {
        let Some(connector) = &self.connector else { return };
        let wanted = wanted.min(self.plan.most_streams);
        for _ in self.connected..wanted {
            if self.plan.via.is_some() {
                self.redial.dial(Duration::ZERO);
            } else {
                connector.connect(Duration::ZERO, || {});
            }
        }
        self.connected = self.connected.max(wanted);
    }

    /// Tells the source, which chooses, of the ways and of what was found out since.
    pub(crate) fn tell_ways(&mut self) {
        let Some(ways) = self.plan.ways.as_ref().filter(|_| self.tcp.is_some()) else { return };
        let version = ways.version();
        if self.told != Some(version) {
            self.told = Some(version);
            self.control
                .send(&Message::Channel(ControlMessage::CandidatePaths(ways.encode()).encode()));
        }
    }

    /// The source wants so many streams over a way that it was told of.
    fn dial(&mut self, way: u8, wanted: u32) {
        if self.plan.ways.is_none() {
            return;
        }
        for _ in 0..wanted.min(self.plan.most_streams) {
            let control = self.control.clone();
            let failed = move |why: String| {
                control.send(&Message::Channel(ControlMessage::NoWay(way, why).encode()));
            };
            match &self.connector {
                _ if self.dialled >= MAX_DIALLED => failed("too many were wanted".to_owned()),
                Some(connector) => connector.bring(PathId::numbered(way), failed),
                None => failed("no address of the other end is known".to_owned()),
            }
            self.dialled = self.dialled.saturating_add(1);
        }
    }

    /// The thread that receives datagrams and its buffers, if there is one.
    pub(crate) fn evidence(&self) -> (Option<Net>, Option<Buffers>) {
        let Udp::Running(flow) = &self.udp else { return (None, None) };
        let snapshot = flow.stats();
        let elapsed = snapshot.at.since(self.up);
        let bytes = snapshot.flow.received_bytes;
        let net = Net { cpu: snapshot.cpu, bytes, elapsed };
        let rate = DataRate::from_bytes_over(bytes, elapsed);
        let buffers = self.sizes.map(|(sizes, sockets)| Buffers {
            each: sizes.receive,
            sockets: sockets as u64,
            limit: sizes.receive_limit,
            covers: (rate > DataRate::ZERO).then(|| sizes.covers(rate, sockets)),
            drops: snapshot.io.drops,
        });
        (Some(net), buffers)
    }

    /// Whether depots are in between.
    pub(crate) fn is_relayed(&self) -> bool {
        self.plan.relayed
    }

    /// What there is to say of the way.
    pub(crate) fn said(&self) -> Vec<Notice> {
        self.plan.via.as_ref().map_or_else(Vec::new, |via| via.route.said())
    }

    /// What came over each transport, most first. Bytes that came twice count twice.
    fn received(&self) -> Vec<(String, ByteCount)> {
        let udp = match &self.udp {
            Udp::Running(flow) => flow.stats().flow.received_bytes,
            _ => ByteCount::ZERO,
        };
        let tcp = ByteCount(self.tcp_received.load(Ordering::Relaxed));
        let mut shares = vec![(self.plan.datagrams().name().to_owned(), udp), ("tcp".into(), tcp)];
        shares.retain(|(_, bytes)| *bytes > ByteCount::ZERO);
        shares.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
        shares
    }

    /// Ends them all; what the source says they did, or what is known here if it said nothing.
    pub(crate) fn close(&mut self) -> Moved {
        if self.moved.shares.is_empty() {
            self.moved.shares = self.received();
        }
        if let Udp::Running(flow) = std::mem::replace(&mut self.udp, Udp::Off) {
            // Its thread says goodbye by itself; nobody waits for it.
            flow.close(CloseReason::Done);
        }
        self.redial.again.store(MAX_AGAIN, Ordering::Relaxed);
        (self.tcp, self.channels) = (None, None);
        let mut moved = std::mem::take(&mut self.moved);
        // The source told it as it sees it.
        let told = moved.held.map(HeldBy::seen_from_peer);
        moved.held = told.or(self.plan.held_by(self.intake.limiter()));
        if let (Some(ways), Some(streams)) = (&self.plan.ways, &mut moved.streams) {
            // The source gave its reasons; what was found out here comes before them.
            streams.way_reasons.splice(..0, ways.told());
        }
        moved
    }
}
