//! The memory of one packet, in parts of increasing size.

use std::io::IoSlice;

/// Sizes of the parts. The first holds all headers: 10 bytes for virtio, 14 for Ethernet, up to 120
/// for IP and TCP. All parts together hold the largest packet, 65,535 bytes, and the virtio and
/// Ethernet headers.
pub(crate) const SIZES: [usize; 4] = [256, 1_792, 14_336, 49_408];

/// Memory with a packet.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    pub(crate) parts: [Option<Box<[u8]>>; 4],
    pub(crate) len: usize,
}

impl Parts {
    /// The start of the packet, with all its headers.
    pub(crate) fn head(&self) -> &[u8] {
        let head = self.parts[0].as_deref().unwrap_or_default();
        &head[..self.len.min(head.len())]
    }

    /// The bytes from `from` to `to`, in at most as many slices as there are parts.
    pub(crate) fn slices(&self, from: usize, to: usize) -> impl Iterator<Item = IoSlice<'_>> {
        let mut start = 0;
        self.parts.iter().zip(SIZES).filter_map(move |(part, size)| {
            let (a, b) = (from.max(start) - start, to.min(start + size).saturating_sub(start));
            start += size;
            let part = part.as_deref()?;
            (a < b).then(|| IoSlice::new(&part[a..b]))
        })
    }
}
