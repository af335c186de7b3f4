//! Packets as the kernel hands them over: one, or a super-packet of many segments.

use std::cell::Cell;
use std::io::IoSlice;
use std::rc::Rc;

use packtrain_link::Segments;

use crate::header::Layout;
use crate::store::Parts;

/// The most segments whose death is noted one by one; see [`Packet::dead`].
const NOTED: usize = 1_024;

/// What one read of a device gave.
#[derive(Debug)]
pub(crate) struct Packet {
    parts: Parts,
    /// Where everything in it is.
    pub(crate) layout: Layout,
    /// Segments that died on their way, so that what is left is joined without waiting for them.
    dead: [Cell<u64>; NOTED / 64],
}

impl Packet {
    /// A packet of what was read.
    pub(crate) fn new(parts: Parts, layout: Layout) -> Self {
        Self { parts, layout, dead: [const { Cell::new(0) }; NOTED / 64] }
    }

    /// Bytes of segment `i` from the network header on.
    pub(crate) fn size(&self, i: u32) -> u32 {
        let layout = &self.layout;
        let (from, to) = layout.payload(i, i + 1);
        layout.headers + (to - from)
    }

    /// The headers as they were read, link header first.
    pub(crate) fn head(&self) -> &[u8] {
        self.parts.head()
    }

    /// The bytes from `from` to `to`, counted from the start of what was read, in at most four
    /// slices.
    pub(crate) fn slices(&self, from: usize, to: usize) -> impl Iterator<Item = IoSlice<'_>> {
        self.parts.slices(from, to)
    }

    /// Notes that a segment died.
    pub(crate) fn bury(&self, i: u32) {
        if let Some(word) = self.dead.get(i as usize / 64) {
            word.set(word.get() | 1 << (i % 64));
        }
    }

    /// Whether segment `i` is known to have died.
    pub(crate) fn is_dead(&self, i: u32) -> bool {
        self.dead.get(i as usize / 64).is_some_and(|word| word.get() >> (i % 64) & 1 == 1)
    }

    /// The memory, when nobody needs the packet any more.
    pub(crate) fn into_parts(self) -> Parts {
        self.parts
    }
}

/// Some segments of a packet.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    /// What they are segments of.
    pub(crate) packet: Rc<Packet>,
    /// The first.
    pub(crate) from: u32,
    /// How many.
    pub(crate) count: u32,
    /// The number of the first among all that the link was offered.
    pub(crate) number: u64,
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
            number: self.number + u64::from(at),
        };
        self.count = at;
        rest
    }

    fn duplicate(&self) -> Self {
        self.clone()
    }
}
