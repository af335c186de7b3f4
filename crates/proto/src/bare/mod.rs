//! The core without a codec, for simulators: frames and trains instead of bytes and keys.
//!
//! A [`BareFlow`] is a [`Flow`](crate::Flow) without its codec. It sends [`BarePacket`]s: trains of
//! data packets without data, and control packets whose frames are not serialised. Numbers, sizes,
//! times and decisions equal those of the flow, packet for packet; a test of this crate compares
//! the two. The sender always has data ready. At the receiver a [`Pool`] models the room.
//!
//! ```
//! use packtrain_cc::{ControllerConfig, build};
//! use packtrain_proto::Role;
//! use packtrain_proto::bare::{BareConfig, BareFlow};
//! use packtrain_units::{ByteCount, Duration, Offset, Time};
//!
//! let mut now = Time::ZERO;
//! let config = ControllerConfig { mtu: ByteCount(1472), seed: 1, now, ceiling: None, rtt: None };
//! let controller = build("fixed:100mbit", &config).unwrap();
//! let mut ends = [
//!     BareFlow::new(BareConfig::new(Role::Sender), Some(controller), now).unwrap(),
//!     BareFlow::new(BareConfig::new(Role::Receiver), None, now).unwrap(),
//! ];
//! ends[0].assign(Offset(0)..Offset(1_000_000));
//! while ends[1].delivered() < ByteCount(1_000_000) {
//!     for (from, to) in [(0, 1), (1, 0)] {
//!         while let Some(packet) = ends[from].poll_transmit(now) {
//!             ends[to].handle(now, now, None, &[packet]);
//!         }
//!     }
//!     now = ends.iter().filter_map(BareFlow::poll_timeout).min().unwrap().max(now);
//!     ends.iter_mut().for_each(|end| end.handle_timeout(now));
//! }
//! ```

mod packet;
mod pool;

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::Range;

use packtrain_cc::CongestionController;
use packtrain_loss::{Classifier, Model};
use packtrain_units::{ByteCount, DataRate, Duration, Offset, Time};

pub use self::packet::{BareControl, BarePacket, BareTrain};
pub use self::pool::{NullPayload, Pool, Room};
use crate::config::limits;
use crate::config::{CoreConfig, FeedbackKind, FlowError, Role, TrainTarget};
use crate::core::edge::{Arrivals, Edge};
use crate::core::{Control, Core, Envelope, Load};
use crate::seam::{CloseReason, Event, Fill, TRAIN_PACKETS};
use crate::stats::FlowStats;

/// The configuration of a bare flow: a [`FlowConfig`](crate::FlowConfig) without keys and
/// addresses. The sender sends first, and the receiver learns its address.
#[derive(Clone, Debug)]
pub struct BareConfig {
    /// Direction of the data.
    pub role: Role,
    /// Number of lanes, 1 to 16.
    pub lanes: u8,
    /// UDP payload bytes that the path is known to carry.
    pub mtu: ByteCount,
    /// The largest datagram to probe for.
    pub max_mtu: ByteCount,
    /// The owner's ceiling on the wire rate.
    pub rate_ceiling: Option<DataRate>,
    /// Receiver: the room of its pool.
    pub room: Room,
    /// Seed of all randomness.
    pub seed: u64,
    /// Sender, feedback `native`: mark data packets ECN-capable.
    pub ecn: bool,
    /// The round trip of another connection to the peer, as in a fetch: the sender validates the
    /// path with a train of pings, and the receiver, which is the caller, reports at once.
    pub probe_train: Option<Duration>,
    /// How the receiver reports arrivals.
    pub feedback: FeedbackKind,
    /// Feedback `sabul`, sender: bytes sent once before lost ones among them are retransmitted.
    pub buffer: ByteCount,
    /// Feedback `udt`: maximum packets back to back. One is the paper's pacing by packet.
    pub train: u32,
    /// Feedback `udt`, receiver: send delay warnings.
    pub warnings: bool,
}

impl BareConfig {
    /// One lane over Ethernet, with endless room.
    pub fn new(role: Role) -> Self {
        Self {
            role,
            lanes: 1,
            mtu: ByteCount(u64::from(limits::BASE_MTU)),
            max_mtu: ByteCount(1_472),
            rate_ceiling: None,
            room: Room::Endless,
            seed: 1,
            ecn: false,
            probe_train: None,
            feedback: FeedbackKind::Native,
            buffer: limits::BUFFER,
            train: TRAIN_PACKETS,
            warnings: true,
        }
    }
}

/// One end of a flow without its codec.
#[derive(Debug)]
pub struct BareFlow {
    core: Core,
    pool: Pool,
    peer: IpAddr,
    out: VecDeque<BarePacket>,
    text: Vec<u8>,
    classifier: Classifier<'static>,
}

impl BareFlow {
    /// Creates a flow that starts probing its peer at `now`. A sender needs a controller.
    ///
    /// # Errors
    /// A configuration outside the limits, no controller, or a controller that needs signals that
    /// the feedback does not provide.
    pub fn new(
        config: BareConfig,
        controller: Option<Box<dyn CongestionController>>,
        now: Time,
    ) -> Result<Self, FlowError> {
        let BareConfig { role, lanes, room, .. } = config;
        let peer = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let known = |lane| match role {
            Role::Sender => vec![address(peer, lane)],
            Role::Receiver if config.probe_train.is_some() => vec![address(peer, lane)],
            Role::Receiver => Vec::new(),
        };
        let peers = (0..lanes).map(known).collect();
        let pool = Pool::new(room, now);
        let room = pool.room_now();
        let core = CoreConfig {
            role,
            peers,
            mtu: config.mtu,
            max_mtu: config.max_mtu,
            rate_ceiling: config.rate_ceiling,
            room,
            seed: config.seed,
            ecn: config.ecn,
            known_rtt: config.probe_train.filter(|_| role == Role::Receiver),
            train_to: config.probe_train.map(|rtt| TrainTarget { host: peer, rtt }),
            feedback: config.feedback,
            buffer: config.buffer,
            train: config.train,
            warnings: config.warnings,
        };
        let core = Core::new(core, controller, now)?;
        let classifier = Classifier::new(Model::builtin());
        Ok(Self { core, pool, peer, out: VecDeque::new(), text: Vec::new(), classifier })
    }

    /// Sender: adds bytes to send, in this order. Bytes that are assigned and not yet acknowledged
    /// must not be assigned again.
    pub fn assign(&mut self, range: Range<Offset>) {
        self.core.assign(range);
    }

    /// Sender: takes back the unacknowledged part of the range, returned as [`Event::Returned`].
    pub fn revoke(&mut self, range: Range<Offset>) {
        self.core.revoke(range);
    }

    /// Sender: payload bytes assigned and not yet acknowledged.
    pub fn backlog(&self) -> ByteCount {
        self.core.backlog()
    }

    /// Sender: the ECN bits of the data packets that `poll_transmit` returns now; control packets
    /// have none.
    pub fn ecn_bits(&self) -> u8 {
        self.core.ecn_bits()
    }

    /// Receiver: payload bytes received, each counted once.
    pub fn delivered(&self) -> ByteCount {
        self.pool.delivered()
    }

    /// Handles a batch received at `received_at` with these ECN bits; returns how many of its
    /// packets were new. Packets of several lanes count as several batches. Call `poll_transmit`
    /// afterwards.
    pub fn handle(
        &mut self,
        now: Time,
        received_at: Time,
        ecn: Option<u8>,
        packets: &[BarePacket],
    ) -> usize {
        self.pool.advance(now);
        let mut good = 0;
        for batch in packets.chunk_by(|a, b| a.lane() == b.lane()) {
            let mut arrivals = Arrivals::default();
            for packet in batch {
                match packet {
                    BarePacket::Train(train) => self.on_train(now, train, &mut arrivals),
                    BarePacket::Control(control) => self.on_control(now, control, &mut arrivals),
                }
            }
            if arrivals.good > 0 {
                let room = self.pool.room_now();
                self.core.on_arrivals(now, received_at, ecn, &arrivals, room);
            }
            good += arrivals.good;
        }
        good
    }

    /// The next message for the reliable channel, which only feedback `sabul` uses. The channel
    /// must deliver all bytes in order.
    pub fn poll_reliable(&mut self) -> Option<Vec<u8>> {
        self.core.poll_reliable()
    }

    /// Handles bytes of the reliable channel. Call `poll_transmit` afterwards.
    pub fn handle_reliable(&mut self, now: Time, bytes: &[u8]) {
        self.core.handle_reliable(now, bytes);
    }

    /// Receiver: reports that the socket of `lane` has dropped `total` datagrams since it was
    /// opened.
    pub fn host_drops(&mut self, lane: u8, total: u32) {
        self.core.host_drops(lane, total);
    }

    /// The next packets to send; runs due timers first. `None` means that nothing may be sent
    /// before `poll_timeout` or a received packet.
    pub fn poll_transmit(&mut self, now: Time) -> Option<BarePacket> {
        if let Some(packet) = self.out.pop_front() {
            return Some(packet);
        }
        self.core.release(|_| ());
        self.core.judge(now, &mut self.classifier);
        let Self { core, out, text, .. } = self;
        core.transmit(now, &mut Gathering { out, text })?;
        self.out.pop_front()
    }

    /// Runs the timers that are due; call it at the time that `poll_timeout` gave.
    pub fn handle_timeout(&mut self, now: Time) {
        if self.pool.poll_timeout().is_some_and(|at| at <= now) {
            self.pool.advance(now);
            self.core.set_room(now, self.pool.room_now());
        }
        self.core.tick(now);
    }

    /// When to call `handle_timeout` and then `poll_transmit`, pacing included. Valid after
    /// `poll_transmit` returned `None`.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.core.poll_timeout().into_iter().chain(self.pool.poll_timeout()).min()
    }

    /// The next event for the owner. [`Event::Placed`] appears after `poll_transmit`.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.core.poll_event()
    }

    /// Closes the flow: returns what is not acknowledged, notifies the peer
    /// (three times; keep polling until
    /// `is_closed`), and raises [`Event::Closed`].
    pub fn close(&mut self, now: Time, reason: CloseReason) {
        self.core.close(now, reason);
    }

    /// Whether the flow is over and has nothing more to send.
    pub fn is_closed(&self) -> bool {
        self.core.is_closed()
    }

    /// Counters and gauges.
    pub fn stats(&self) -> FlowStats {
        self.core.gauges()
    }

    /// Enables the event log: bounded JSON lines, fetched with `poll_log`.
    pub fn enable_log(&mut self) {
        self.core.log.enable();
    }

    /// The next line of the event log.
    pub fn poll_log(&mut self) -> Option<String> {
        self.core.log.poll()
    }

    fn on_train(&mut self, now: Time, packets: &BareTrain, arrivals: &mut Arrivals) {
        let Self { core, pool, .. } = self;
        let (lane, train) = (packets.lane(), packets.train());
        let envelope = |i: u32| Envelope {
            lane,
            pn: train.first + u64::from(i),
            from: address(self.peer, lane),
            size: packets.datagram(i).get() as usize,
        };
        let put = || pool.put_train(train);
        let whole = match packets.unit() {
            Some(unit) => core.on_units(now, lane, train, unit, put),
            None => core.on_train(lane, train, put),
        };
        if whole {
            arrivals.add(train.count as usize, envelope(train.count - 1));
            return;
        }
        for i in 0..train.count {
            let envelope = envelope(i);
            let (a, b) = train.span(i, i + 1);
            if !core.is_new(lane, envelope.pn) {
                continue;
            }
            let (len, put) = ((b - a) as usize, || pool.put(a, b));
            let sane = match packets.unit().map(|unit| unit.from(i)) {
                Some(unit) => core.on_unit(now, &envelope, unit, (a, len), put),
                None => core.on_data(&envelope, a, len, put),
            };
            if sane {
                arrivals.add(1, envelope);
            }
        }
    }

    fn on_control(&mut self, now: Time, control: &BareControl, arrivals: &mut Arrivals) {
        let (lane, pn) = (control.lane(), control.pn());
        if self.core.is_new(lane, pn) {
            let size = control.datagram().get() as usize;
            let envelope = Envelope { lane, pn, from: address(self.peer, lane), size };
            self.core.on_control(now, &envelope, vec![control.frame().clone()]);
            arrivals.add(1, envelope);
        }
    }
}

/// The address that stands for the peer's end of a lane in the core.
fn address(peer: IpAddr, lane: u8) -> SocketAddr {
    SocketAddr::new(peer, 1 + u16::from(lane))
}

/// Collects packets without serialising them.
struct Gathering<'a> {
    out: &'a mut VecDeque<BarePacket>,
    text: &'a mut Vec<u8>,
}

impl Edge for Gathering<'_> {
    fn control(&mut self, control: &Control, pn: u64) -> bool {
        let control = BareControl::new(control, pn, self.text);
        self.out.push_back(BarePacket::Control(control));
        true
    }

    fn data(&mut self, lane: u8, load: &Load) -> (u32, Fill) {
        self.out.push_back(BarePacket::Train(BareTrain::new(lane, load)));
        (load.train.count, Fill::Ready)
    }
}

#[cfg(test)]
mod tests;
