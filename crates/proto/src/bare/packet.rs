//! Packets of bare flows.

use packtrain_units::{ByteCount, Offset};

use crate::codec::frame::{self, Frame};
use crate::codec::header::{CONTROL_HEAD, DATA_OVERHEAD, TAG, UNIT_OVERHEAD};
use crate::codec::unit::Unit;
use crate::core::ledger::Train;
use crate::core::{Control, Load};

/// Packets of one lane with consecutive numbers, or one control packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BarePacket {
    /// Data packets.
    Train(BareTrain),
    /// A control packet.
    Control(BareControl),
}

impl BarePacket {
    /// The lane that it uses.
    pub fn lane(&self) -> u8 {
        match self {
            Self::Train(train) => train.lane(),
            Self::Control(control) => control.lane(),
        }
    }

    /// Number of packets that it stands for, at least one.
    pub fn count(&self) -> u32 {
        match self {
            Self::Train(train) => train.count(),
            Self::Control(_) => 1,
        }
    }

    /// UDP payload bytes of packet `i`.
    pub fn datagram(&self, i: u32) -> ByteCount {
        match self {
            Self::Train(train) => train.datagram(i),
            Self::Control(control) => control.datagram(),
        }
    }

    /// Number of the first packet.
    pub fn first(&self) -> u64 {
        match self {
            Self::Train(train) => train.train.first,
            Self::Control(control) => control.pn(),
        }
    }
}

/// Data packets sent back to back, or some of them: consecutive numbers and offsets, all of one
/// size but the last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BareTrain {
    lane: u8,
    train: Train,
    unit: Option<Unit>,
}

impl BareTrain {
    pub(super) fn new(lane: u8, load: &Load) -> Self {
        Self { lane, train: load.train, unit: load.unit }
    }

    #[cfg(test)]
    pub(super) fn with_unit(self, unit: Option<Unit>) -> Self {
        Self { unit, ..self }
    }

    /// The data units that they carry, where the feedback counts in units.
    pub(super) fn unit(&self) -> Option<Unit> {
        self.unit
    }

    pub(super) fn train(&self) -> &Train {
        &self.train
    }

    /// The lane that it uses.
    pub fn lane(&self) -> u8 {
        self.lane
    }

    /// Number of packets, at least one.
    pub fn count(&self) -> u32 {
        self.train.count
    }

    /// Offset of the first payload byte.
    pub fn offset(&self) -> Offset {
        Offset(self.train.offset)
    }

    /// Payload bytes of all packets.
    pub fn payload(&self) -> ByteCount {
        ByteCount(self.train.bytes())
    }

    /// UDP payload bytes of packet `i`: payload, header and tag.
    pub fn datagram(&self, i: u32) -> ByteCount {
        let payload = if i + 1 == self.train.count { self.train.last } else { self.train.size };
        let overhead = if self.unit.is_some() { UNIT_OVERHEAD } else { DATA_OVERHEAD };
        ByteCount(u64::from(payload) + overhead as u64)
    }

    /// Splits off and returns the packets from `at` on; `0 < at < count`.
    pub fn split_off(&mut self, at: u32) -> Self {
        assert!(0 < at && at < self.train.count, "both parts have packets");
        let train = Train {
            first: self.train.first + u64::from(at),
            count: self.train.count - at,
            offset: self.train.span(0, at).1,
            ..self.train
        };
        self.train.count = at;
        self.train.last = self.train.size;
        Self { lane: self.lane, train, unit: self.unit.map(|unit| unit.from(at)) }
    }

    /// Appends the packets of `next` if they continue this train in number, offset and size (and,
    /// for data units, in unit number and back to back). Returns false and changes nothing
    /// otherwise, or if the result would exceed 64 packets.
    pub fn join(&mut self, next: &Self) -> bool {
        let (a, b) = (&mut self.train, &next.train);
        let follows = match (self.unit, next.unit) {
            (None, None) => true,
            (Some(one), Some(other)) => one.from(a.count) == other,
            _ => false,
        };
        let fits = self.lane == next.lane
            && follows
            && a.end() == b.first
            && a.offset + a.bytes() == b.offset
            && a.last == a.size
            && (a.size == b.size || b.count == 1 && b.last < a.size)
            && a.count + b.count <= u64::BITS;
        if fits {
            a.count += b.count;
            a.last = b.last;
        }
        fits
    }
}

/// A control packet: probes, reports, closes. Its contents are private to the flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BareControl(Box<Contents>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Contents {
    lane: u8,
    pn: u64,
    size: u16,
    frame: Frame,
}

impl BareControl {
    /// Uses `text` as scratch space: only the length of the serialised frame matters.
    pub(super) fn new(control: &Control, pn: u64, text: &mut Vec<u8>) -> Self {
        text.clear();
        frame::write(&control.frame, text);
        let size = ((CONTROL_HEAD + text.len() + TAG) as u16).max(control.pad.unwrap_or(0));
        Self(Box::new(Contents { lane: control.lane, pn, size, frame: control.frame.clone() }))
    }

    pub(super) fn pn(&self) -> u64 {
        self.0.pn
    }

    pub(super) fn frame(&self) -> &Frame {
        &self.0.frame
    }

    /// The lane that it uses.
    pub fn lane(&self) -> u8 {
        self.0.lane
    }

    /// UDP payload bytes.
    pub fn datagram(&self) -> ByteCount {
        ByteCount(u64::from(self.0.size))
    }
}
