//! What travels: packets of one flow, equal in size, numbered in equal steps.

mod engine;
mod sack;

use packtrain_link::{Pace, Segments};
use packtrain_units::Duration;

pub(crate) use self::engine::{EngineBody, HEADERS, Segment};
pub(crate) use self::sack::{BLOCKS, Sack};

/// The room of a receiver that never limits.
pub(crate) const ROOM: u32 = u32::MAX;

/// To which end of its flow a train goes.
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
    /// Which connection of it; zero but for short connections.
    pub(crate) conn: u32,
    /// Index of the node it goes to.
    pub(crate) to: u32,
    /// Bytes of each packet from the network header on.
    pub(crate) size: u32,
    /// How many packets.
    pub(crate) count: u32,
    /// Which end of the flow it goes to.
    pub(crate) toward: Toward,
    /// Number of the first packet; what it counts is the body's affair.
    pub(crate) first: u64,
    /// What the packets say.
    pub(crate) body: Body,
}

/// What packets say.
#[derive(Debug)]
pub(crate) enum Body {
    /// Nothing: cross traffic, numbered from zero.
    Bare,
    /// TCP: opens a connection.
    Syn,
    /// TCP: the answer.
    SynAck,
    /// TCP: segments from `first` on, one a packet; whether sent again.
    Data {
        /// A retransmission.
        again: bool,
    },
    /// TCP: acknowledgements without SACK blocks: everything below `first`, then below
    /// `first + step` and so on.
    Ack {
        /// From each to the next; zero: duplicates.
        step: u32,
        /// How many segments from the number on the receiver has room for; [`ROOM`]: any.
        room: u32,
    },
    /// TCP: asks how much room there is (the probe of a closed window).
    Probe,
    /// TCP: one acknowledgement with SACK blocks.
    Sack(Box<Sack>),
    /// An engine's datagrams.
    Engine(Box<EngineBody>),
}

impl Train {
    /// From each packet's number to the next one's.
    pub(crate) fn step(&self) -> u64 {
        match self.body {
            Body::Ack { step, .. } => u64::from(step),
            _ => 1,
        }
    }

    /// Puts `next`, which follows at `next_pace`, behind this train if nothing tells the result
    /// from one train offered whole, and it stays within `most` packets; else gives it back.
    pub(crate) fn append(
        &mut self,
        pace: &mut Pace,
        next: Self,
        next_pace: Pace,
        most: u32,
    ) -> Result<(), Self> {
        let same = self.flow == next.flow
            && self.count + next.count <= most
            && self.conn == next.conn
            && self.to == next.to
            && self.size == next.size
            && self.toward == next.toward;
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

    /// Whether the body of `next` goes on where this one's ends; makes it one body if so. The
    /// count is still the old one.
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
}
