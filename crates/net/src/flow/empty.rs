//! An empty payload for receivers, and an empty placement for senders.

use std::ops::Range;

use packtrain_proto::{Fill, Payload, Placed, Placement};
use packtrain_units::{ByteCount, Offset};

pub(super) struct NoPayload;

impl Payload for NoPayload {
    fn fill(&mut self, _at: Offset, _out: &mut [u8]) -> Fill {
        Fill::Failed
    }

    fn release(&mut self, _range: Range<Offset>) {}
}

pub(super) struct NoPlacement;

impl Placement for NoPlacement {
    fn place(&mut self, _at: Offset, _bytes: &[u8]) -> Placed {
        Placed::NoRoom
    }

    fn room(&self) -> ByteCount {
        ByteCount::ZERO
    }
}
