//! Packets from the kernel: a single packet or a super-packet of many segments.

use std::io::IoSlice;
use std::rc::Rc;

use packtrain_link::Segments;

use crate::header::Layout;
use crate::parts::Parts;

/// The packet of one read of a device.
#[derive(Debug)]
pub(crate) struct Packet {
    parts: Parts,
    /// The positions of its parts.
    pub(crate) layout: Layout,
}

impl Packet {
    /// A packet from the data of a read.
    pub(crate) fn new(parts: Parts, layout: Layout) -> Self {
        Self { parts, layout }
    }

    /// Bytes of segment `i` from the network header on.
    pub(crate) fn size(&self, i: u32) -> u32 {
        let layout = &self.layout;
        let (from, to) = layout.payload(i, i + 1);
        layout.headers + (to - from)
    }

    /// The headers as they were read, from the link header on.
    pub(crate) fn head(&self) -> &[u8] {
        self.parts.head()
    }

    /// The bytes from `from` to `to`, as offsets in the read data, in at most four slices.
    pub(crate) fn slices(&self, from: usize, to: usize) -> impl Iterator<Item = IoSlice<'_>> {
        self.parts.slices(from, to)
    }

    /// Takes its memory.
    pub(crate) fn take_parts(&mut self) -> Parts {
        std::mem::take(&mut self.parts)
    }
}

/// Consecutive segments of a packet.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    /// The packet.
    pub(crate) packet: Rc<Packet>,
    /// The first segment.
    pub(crate) from: u32,
    /// Number of segments.
    pub(crate) count: u32,
    /// The wire that carries them.
    pub(crate) wire: usize,
    /// The number of the first among all packets offered to this wire.
    pub(crate) number: u64,
    /// A queue marked them as having experienced congestion.
    pub(crate) marked: bool,
}

impl Piece {
    /// All segments of a packet that is on no wire yet.
    pub(crate) fn whole(packet: Rc<Packet>) -> Self {
        let count = packet.layout.count;
        Self { packet, from: 0, count, wire: usize::MAX, number: 0, marked: false }
    }

    /// Bytes from the network header on, for every segment.
    pub(crate) fn bytes(&self) -> u64 {
        let layout = &self.packet.layout;
        let (from, to) = layout.payload(self.from, self.from + self.count);
        u64::from(to - from) + u64::from(layout.headers) * u64::from(self.count)
    }
}

impl Segments for Piece {
    fn count(&self) -> u32 {
        self.count
    }

    fn size(&self, i: u32) -> u32 {
        self.packet.size(self.from + i)
    }

    fn split_off(&mut self, at: u32) -> Self {
        let rest = Self {
            packet: Rc::clone(&self.packet),
            from: self.from + at,
            count: self.count - at,
            wire: self.wire,
            number: self.number + u64::from(at),
            marked: self.marked,
        };
        self.count = at;
        rest
    }

    fn duplicate(&self) -> Self {
        self.clone()
    }

    fn is_ect(&self) -> bool {
        self.packet.layout.is_ect(self.packet.head())
    }

    fn mark(&mut self) {
        self.marked = true;
    }
}
