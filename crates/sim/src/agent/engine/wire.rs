//! The engine of an end, with or without its codec, and the datagrams that it sends.

use std::net::SocketAddr;

use packtrain_cc::CongestionController;
use packtrain_proto::bare::{BareConfig, BareFlow, BarePacket, NullPayload, Pool, Room};
use packtrain_proto::{
    BATCH_BYTES, CloseReason, Datagrams, Event, Flow, FlowConfig, FlowError, FlowKeys, FlowStats,
    Role, Suite, TrainTarget,
};
use packtrain_units::{ByteCount, Offset, Time};

use super::batch::Batch;
use crate::train::EngineBody;

/// Port of the sender; the receiver has the next one.
const PORT: u16 = 7_000;

/// Datagrams of one size that are sent together.
pub(super) struct Leaving {
    pub(super) count: u32,
    /// UDP payload bytes of each.
    pub(super) size: ByteCount,
    /// Their ECN bits.
    pub(super) ecn: u8,
    pub(super) body: EngineBody,
}

/// The configuration of an engine.
pub(super) struct Setup {
    pub(super) role: Role,
    pub(super) codec: bool,
    pub(super) config: BareConfig,
    pub(super) controller: Option<Box<dyn CongestionController>>,
}

/// One end of a flow.
#[derive(Debug)]
pub(super) enum Wire {
    Bare(Box<BareFlow>, Option<BarePacket>),
    Sealed(Box<Sealed>),
}

/// The product's flow with its surroundings.
#[derive(Debug)]
pub(super) struct Sealed {
    flow: Flow,
    pool: Pool,
    peer: SocketAddr,
    slab: Vec<u8>,
    /// The part of the last batch not handed out yet: from, to, stride.
    rest: (usize, usize, usize),
    /// The ECN bits of that batch.
    ecn: u8,
}

impl Wire {
    pub(super) fn new(setup: Setup, now: Time) -> Result<Self, FlowError> {
        let Setup { role, codec, config, controller } = setup;
        if !codec {
            let flow = BareFlow::new(config, controller, now)?;
            return Ok(Self::Bare(Box::new(flow), None));
        }
        Ok(Self::Sealed(Box::new(Sealed::new(role, &config, controller, now)?)))
    }

    pub(super) fn assign(&mut self, bytes: ByteCount) {
        let range = Offset(0)..Offset(bytes.get());
        match self {
            Self::Bare(flow, _) => flow.assign(range),
            Self::Sealed(sealed) => sealed.flow.assign(range),
        }
    }

    pub(super) fn close(&mut self, now: Time) {
        match self {
            Self::Bare(flow, _) => flow.close(now, CloseReason::Done),
            Self::Sealed(sealed) => sealed.flow.close(now, CloseReason::Done),
        }
    }

    /// Reads a batch whose last packet arrived at `received_at`.
    pub(super) fn handle(&mut self, now: Time, received_at: Time, batch: &mut Batch) {
        match self {
            Self::Bare(flow, _) => {
                flow.handle(now, received_at, Some(batch.ecn()), &batch.packets);
            }
            Self::Sealed(sealed) => sealed.handle(now, received_at, batch),
        }
    }

    /// The next message for the reliable channel.
    pub(super) fn poll_reliable(&mut self) -> Option<Vec<u8>> {
        match self {
            Self::Bare(flow, _) => flow.poll_reliable(),
            Self::Sealed(sealed) => sealed.flow.poll_reliable(),
        }
    }

    /// Handles bytes of the reliable channel.
    pub(super) fn handle_reliable(&mut self, now: Time, bytes: &[u8]) {
        match self {
            Self::Bare(flow, _) => flow.handle_reliable(now, bytes),
            Self::Sealed(sealed) => sealed.flow.handle_reliable(now, bytes),
        }
    }

    pub(super) fn host_drops(&mut self, total: u32) {
        match self {
            Self::Bare(flow, _) => flow.host_drops(0, total),
            Self::Sealed(sealed) => sealed.flow.host_drops(0, total),
        }
    }

    /// The next datagrams to send.
    pub(super) fn poll_transmit(&mut self, now: Time) -> Option<Leaving> {
        match self {
            Self::Bare(flow, rest) => {
                let mut packet = rest.take().or_else(|| flow.poll_transmit(now))?;
                if let BarePacket::Train(train) = &mut packet
                    && train.count() > 1
                    && train.datagram(train.count() - 1) != train.datagram(0)
                {
                    // The end of a range: the last packet is shorter.
                    *rest = Some(BarePacket::Train(train.split_off(train.count() - 1)));
                }
                let (count, size) = (packet.count(), packet.datagram(0));
                let ecn = match &packet {
                    BarePacket::Train(_) => flow.ecn_bits(),
                    BarePacket::Control(_) => 0,
                };
                Some(Leaving { count, size, ecn, body: EngineBody::Bare(packet) })
            }
            Self::Sealed(sealed) => sealed.poll_transmit(now),
        }
    }

    pub(super) fn handle_timeout(&mut self, now: Time) {
        match self {
            Self::Bare(flow, _) => flow.handle_timeout(now),
            Self::Sealed(sealed) => sealed.handle_timeout(now),
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        match self {
            Self::Bare(flow, _) => flow.poll_timeout(),
            Self::Sealed(sealed) => sealed.poll_timeout(),
        }
    }

    pub(super) fn poll_event(&mut self) -> Option<Event> {
        match self {
            Self::Bare(flow, _) => flow.poll_event(),
            Self::Sealed(sealed) => sealed.flow.poll_event(),
        }
    }

    pub(super) fn stats(&self) -> FlowStats {
        match self {
            Self::Bare(flow, _) => flow.stats(),
            Self::Sealed(sealed) => sealed.flow.stats(),
        }
    }

    pub(super) fn delivered(&self) -> ByteCount {
        match self {
            Self::Bare(flow, _) => flow.delivered(),
            Self::Sealed(sealed) => sealed.pool.delivered(),
        }
    }
}

impl Sealed {
    fn new(
        role: Role,
        bare: &BareConfig,
        controller: Option<Box<dyn CongestionController>>,
        now: Time,
    ) -> Result<Self, FlowError> {
        let at = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let peer = at(if role == Role::Sender { PORT + 1 } else { PORT });
        let pings = role == Role::Sender || bare.probe_train.is_some();
        let known = if pings { vec![peer] } else { Vec::new() };
        let known_rtt = bare.probe_train.filter(|_| role == Role::Receiver);
        let train_to = bare.probe_train.map(|rtt| TrainTarget { host: peer.ip(), rtt });
        let keys = FlowKeys { suite: Suite::Aes128Gcm, secret: [7; 32] };
        let pool = Pool::new(Room::Endless, now);
        let config = FlowConfig {
            mtu: bare.mtu,
            max_mtu: bare.max_mtu,
            rate_ceiling: bare.rate_ceiling,
            room: pool.room_now(),
            seed: bare.seed,
            feedback: bare.feedback,
            train: bare.train,
            warnings: bare.warnings,
            ecn: bare.ecn,
            known_rtt,
            train_to,
            ..FlowConfig::new(role, keys, 1, vec![known])
        };
        let flow = Flow::new(config, controller, now)?;
        Ok(Self { flow, pool, peer, slab: vec![0; BATCH_BYTES], rest: (0, 0, 0), ecn: 0 })
    }

    fn handle(&mut self, now: Time, received_at: Time, batch: &mut Batch) {
        self.pool.advance(now);
        let (from, stride, ecn) = (self.peer, batch.stride(), batch.ecn());
        let bytes = &mut batch.bytes[..];
        let ecn = Some(ecn);
        let input = Datagrams { lane: 0, from, bytes, stride, ecn, received_at };
        self.flow.handle(now, input, &mut self.pool);
    }

    fn poll_transmit(&mut self, now: Time) -> Option<Leaving> {
        if self.rest.0 == self.rest.1 {
            let sent = self.flow.poll_transmit(now, &mut NullPayload, &mut self.slab)?;
            self.rest = (0, sent.len, sent.segment);
            self.ecn = sent.ecn;
        }
        let (from, to, stride) = self.rest;
        let full = (to - from) / stride;
        // The last one of a batch may be shorter and is sent separately.
        let (count, stride) = if full > 0 { (full, stride) } else { (1, to - from) };
        let until = from + count * stride;
        self.rest.0 = until;
        let body = EngineBody::Sealed(self.slab[from..until].to_vec(), stride);
        let size = ByteCount(stride as u64);
        Some(Leaving { count: count as u32, size, ecn: self.ecn, body })
    }

    fn handle_timeout(&mut self, now: Time) {
        if self.pool.poll_timeout().is_some_and(|at| at <= now) {
            self.pool.advance(now);
            self.flow.set_room(now, self.pool.room_now());
        }
        self.flow.handle_timeout(now);
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.flow.poll_timeout().into_iter().chain(self.pool.poll_timeout()).min()
    }
}
