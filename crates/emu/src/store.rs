//! A pool of memory for packets.
//!
//! The size of the next packet is unknown before the read. Every read therefore goes into four
//! parts of increasing size and keeps those that it filled: a small packet holds little memory, and
//! a super-packet is never copied.

use std::io::IoSliceMut;
use std::rc::Rc;

use crate::header::Layout;
use crate::packet::Packet;
use crate::parts::{Parts, SIZES};

/// Maximum free parts of each size; more are freed.
const SPARE: [usize; 4] = [8_192, 8_192, 512, 512];

/// The pool.
#[derive(Debug)]
pub(crate) struct Store {
    spare: [Vec<Box<[u8]>>; 4],
    next: [Box<[u8]>; 4],
    /// Packets without memory.
    shells: Vec<Rc<Packet>>,
}

impl Store {
    /// An empty store.
    pub(crate) fn new() -> Self {
        Self { spare: Default::default(), next: SIZES.map(new_part), shells: Vec::new() }
    }

    /// Memory for the next read, enough for the largest packet.
    pub(crate) fn room(&mut self) -> [IoSliceMut<'_>; 4] {
        self.next.each_mut().map(|part| IoSliceMut::new(part))
    }

    /// The first part of that memory.
    pub(crate) fn head(&self) -> &[u8] {
        &self.next[0]
    }

    /// Makes a packet of the first `len` bytes of that memory.
    pub(crate) fn packet(&mut self, len: usize, layout: Layout) -> Rc<Packet> {
        let packet = Packet::new(self.take(len), layout);
        if let Some(mut shell) = self.shells.pop()
            && let Some(place) = Rc::get_mut(&mut shell)
        {
            *place = packet;
            return shell;
        }
        Rc::new(packet)
    }

    /// Recycles a packet unless it is still referenced.
    pub(crate) fn reclaim(&mut self, mut packet: Rc<Packet>) {
        if let Some(last) = Rc::get_mut(&mut packet) {
            let parts = last.take_parts();
            self.give_back(parts);
            if self.shells.len() < SPARE[0] {
                self.shells.push(packet);
            }
        }
    }

    fn take(&mut self, len: usize) -> Parts {
        let mut parts = Parts { parts: Default::default(), len };
        let mut start = 0;
        for (i, size) in SIZES.iter().enumerate() {
            if start < len {
                let fresh = self.spare[i].pop().unwrap_or_else(|| new_part(*size));
                parts.parts[i] = Some(std::mem::replace(&mut self.next[i], fresh));
            }
            start += size;
        }
        parts
    }

    fn give_back(&mut self, parts: Parts) {
        for (i, part) in parts.parts.into_iter().enumerate() {
            if let (Some(part), true) = (part, self.spare[i].len() < SPARE[i]) {
                self.spare[i].push(part);
            }
        }
    }
}

fn new_part(size: usize) -> Box<[u8]> {
    vec![0; size].into_boxed_slice()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_keeps_the_parts_it_fills() {
        let mut store = Store::new();
        for part in &mut store.room() {
            part.fill(7);
        }
        let parts = store.take(300);
        assert!(parts.parts[1].is_some() && parts.parts[2].is_none());
        assert_eq!(parts.head().len(), 256);
        assert_eq!(parts.slices(250, 300).map(|s| s.len()).collect::<Vec<_>>(), [6, 44]);
        store.give_back(parts);
        assert_eq!(store.spare[0].len(), 1);
        assert!(store.take(65_792).parts.iter().all(Option::is_some));
    }
}
