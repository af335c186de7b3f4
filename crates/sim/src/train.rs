//! Packets of one flow that travel together, equal in size, numbered in equal steps.

mod engine;
mod sack;

use packtrain_link::{Pace, Segments};
use packtrain_units::Duration;

pub(crate) use self::engine::{EngineBody, HEADERS, Segment};
pub(crate) use self::sack::{BLOCKS, Sack};

/// Congestion experienced.
const CE: u8 = 3;

/// The room of a receiver without a limit.
pub(crate) const ROOM: u32 = u32::MAX;

/// The direction of a train.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Toward {
    /// Forward: from the flow's sender to its receiver.
    Receiver,
    /// Back.
    Sender,
}

/// Packets that travel together.
#[derive(Debug)]
pub(crate) struct Train {
    /// Index of the flow in the scenario.
    pub(crate) flow: u32,
    /// Number of its connection; zero except for short connections.
    pub(crate) conn: u32,
    /// Index of its destination node.
    pub(crate) to: u32,
    /// Bytes of each packet from the network header on.
    pub(crate) size: u32,
    /// Number of packets.
    pub(crate) count: u32,
    /// Its direction.
    pub(crate) toward: Toward,
    /// Number of the first packet; its meaning depends on the body.
    pub(crate) first: u64,
    /// The ECN bits of each packet (RFC 3168).
    pub(crate) ecn: u8,
    /// Contents of the packets.
    pub(crate) body: Body,
}

/// Contents of packets.
#[derive(Debug)]
pub(crate) enum Body {
    /// None: cross traffic, numbered from zero.
    Bare,
    /// TCP: opens a connection.
    Syn,
    /// TCP: the answer to a SYN.
    SynAck,
    /// TCP: segments from `first` on, one per packet.
    Data {
        /// A retransmission.
        again: bool,
    },
    /// TCP: acknowledgements without SACK blocks: all segments below `first`, then below `first +
    /// step` and so on.
    Ack {
        /// Difference between successive acknowledgements; zero for duplicates.
        step: u32,
        /// Segments that the receiver has room for after the number; [`ROOM`] for no limit.
        room: u32,
    },
    /// TCP: probe of a closed window.
    Probe,
    /// TCP: one acknowledgement with SACK blocks.
    Sack(Box<Sack>),
    /// An engine's datagrams.
    Engine(Box<EngineBody>),
}

impl Train {
    /// Difference between successive packets' numbers.
    pub(crate) fn step(&self) -> u64 {
        match self.body {
            Body::Ack { step, .. } => u64::from(step),
            _ => 1,
        }
    }

    /// Appends `next`, which follows at `next_pace`, if the result equals a train offered as a
    /// whole and has at most `max_packets` packets; otherwise returns it.
    pub(crate) fn append(
        &mut self,
        pace: &mut Pace,
        next: Self,
        next_pace: Pace,
        max_packets: u32,
    ) -> Result<(), Self> {
        let same = self.flow == next.flow
            && self.count + next.count <= max_packets
            && self.conn == next.conn
            && self.to == next.to
            && self.size == next.size
            && self.toward == next.toward
            && self.ecn == next.ecn;
        if !same {
            return Err(next);
        }
        let gap = if self.count == 1 {
            if next_pace.first < pace.first {
                return Err(next);
            }
            next_pace.first.since(pace.first)
        } else {
            pace.gap
        };
        let fits = pace.first + gap * u64::from(self.count) == next_pace.first
            && (next.count == 1 || next_pace.gap == gap);
        if !fits || !self.join(&next) {
            return Err(next);
        }
        pace.gap = if self.count + next.count == 1 { Duration::ZERO } else { gap };
        self.count += next.count;
        Ok(())
    }

    /// Whether the body of `next` continues this one's; joins them if so. The count is not updated
    /// yet.
    fn join(&mut self, next: &Self) -> bool {
        match (&mut self.body, &next.body) {
            (Body::Bare, Body::Bare) => next.first == self.first + u64::from(self.count),
            (Body::Data { again: a }, Body::Data { again: b }) => {
                a == b && next.first == self.first + u64::from(self.count)
            }
            (Body::Ack { step: a, room }, Body::Ack { step: b, room: next_room }) => {
                if room != next_room {
                    return false;
                }
                let Some(ahead) = next.first.checked_sub(self.first) else { return false };
                let step = if self.count == 1 { ahead } else { u64::from(*a) };
                let fits = ahead == step * u64::from(self.count)
                    && step <= u64::from(u32::MAX)
                    && (next.count == 1 || u64::from(*b) == step);
                if fits {
                    *a = step as u32;
                }
                fits
            }
            _ => false,
        }
    }
}

impl Segments for Train {
    fn count(&self) -> u32 {
        self.count
    }

    fn size(&self, _: u32) -> u32 {
        self.size
    }

    fn split_off(&mut self, at: u32) -> Self {
        let body = match &mut self.body {
            Body::Bare => Body::Bare,
            Body::Syn => Body::Syn,
            Body::SynAck => Body::SynAck,
            Body::Data { again } => Body::Data { again: *again },
            Body::Ack { step, room } => Body::Ack { step: *step, room: *room },
            Body::Probe => Body::Probe,
            Body::Sack(sack) => Body::Sack(sack.clone()),
            Body::Engine(engine) => Body::Engine(Box::new(engine.split_off(at))),
        };
        let first = self.first + self.step() * u64::from(at);
        let rest = Self { count: self.count - at, first, body, ..*self };
        self.count = at;
        rest
    }

    fn duplicate(&self) -> Self {
        let body = match &self.body {
            Body::Bare => Body::Bare,
            Body::Syn => Body::Syn,
            Body::SynAck => Body::SynAck,
            Body::Data { again } => Body::Data { again: *again },
            Body::Ack { step, room } => Body::Ack { step: *step, room: *room },
            Body::Probe => Body::Probe,
            Body::Sack(sack) => Body::Sack(sack.clone()),
            Body::Engine(engine) => Body::Engine(Box::new(engine.duplicate())),
        };
        Self { body, ..*self }
    }

    fn is_ect(&self) -> bool {
        self.ecn != 0
    }

    fn mark(&mut self) {
        self.ecn = CE;
    }
}
