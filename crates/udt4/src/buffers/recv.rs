//! What arrived and was not read yet.

mod assembly;

use packtrain_units::ByteCount;

use self::assembly::Assembly;
use super::units::Units;
use crate::options::Kind;
use crate::wire::Message;

/// The receive buffer: slots for the units from the oldest unread one up to the window's end.
#[derive(Debug)]
pub(crate) struct RecvBuffer {
    units: Units,
    payload: usize,
    window: u64,
    /// The oldest unit that was not read.
    base: u64,
    /// Bytes of it that were.
    offset: usize,
    /// Of messages: which are whole.
    assembly: Option<Assembly>,
    bytes: u64,
}

impl RecvBuffer {
    pub(crate) fn new(first: u64, payload: usize, window: u32, kind: Kind) -> Self {
        Self {
            units: Units::new(first, payload),
            payload,
            window: u64::from(window),
            base: first,
            offset: 0,
            assembly: (kind == Kind::Datagram).then(Assembly::default),
            bytes: 0,
        }
    }

    /// Whether a unit lies in the window.
    #[inline]
    pub(crate) fn admits(&self, unit: u64) -> bool {
        unit.wrapping_sub(self.base) < self.window
    }

    /// Units it has room for from `next` on.
    pub(crate) fn room(&self, next: u64) -> u64 {
        (self.base + self.window).saturating_sub(next.max(self.base))
    }

    /// Room in bytes, whole packets, counted from `next` on.
    pub(crate) fn room_bytes(&self, next: u64) -> ByteCount {
        ByteCount(self.room(next) * self.payload as u64)
    }

    /// Bytes that are here.
    pub(crate) fn bytes(&self) -> ByteCount {
        ByteCount(self.bytes)
    }

    /// Puts a unit that the window admits and that is not here.
    #[inline]
    pub(crate) fn put(&mut self, unit: u64, message: Message, bytes: &[u8]) {
        self.units.put(unit, message, bytes);
        self.bytes += bytes.len() as u64;
        if let Some(assembly) = &mut self.assembly {
            assembly.add(unit, message);
        }
    }

    /// The sender gave up this message, of which not all units came.
    pub(crate) fn give_up(&mut self, message: u32) {
        if let Some(assembly) = &mut self.assembly {
            assembly.give_up(message);
        }
    }

    /// Whether there is something to read, all before `next` having arrived.
    pub(crate) fn readable(&self, next: u64) -> bool {
        match &self.assembly {
            None => self.base < next,
            Some(assembly) => assembly.ready(next).is_some(),
        }
    }

    /// Stream: copies what is next into `out`.
    pub(crate) fn read(&mut self, next: u64, out: &mut [u8]) -> usize {
        let mut filled = 0;
        while self.base < next && filled < out.len() {
            let unit = self.units.get(self.base).map_or(&[][..], |(_, bytes)| bytes);
            let rest = unit.get(self.offset..).unwrap_or_default();
            let part = rest.len().min(out.len() - filled);
            out[filled..filled + part].copy_from_slice(&rest[..part]);
            filled += part;
            if part == rest.len() {
                self.base += 1;
                self.offset = 0;
            } else {
                self.offset += part;
            }
        }
        self.bytes -= filled as u64;
        self.units.release(self.base);
        filled
    }

    /// Messages: copies the next whole one into `out` and returns its length, even if only a
    /// part of it fits.
    pub(crate) fn read_message(&mut self, next: u64, out: &mut [u8]) -> Option<usize> {
        let ready = self.assembly.as_ref()?.ready(next)?;
        let (mut len, mut filled) = (0, 0);
        for unit in ready.first..ready.end {
            let bytes = self.units.get(unit).map_or(&[][..], |(_, bytes)| bytes);
            let part = bytes.len().min(out.len() - filled);
            out[filled..filled + part].copy_from_slice(&bytes[..part]);
            filled += part;
            len += bytes.len();
        }
        for unit in ready.first..ready.end {
            self.forget(unit);
        }
        if let Some(assembly) = &mut self.assembly {
            assembly.taken(ready);
        }
        self.advance(next);
        Some(len)
    }

    /// Messages: moves the window over what was read, given up, or never can be read.
    pub(crate) fn advance(&mut self, next: u64) {
        if self.assembly.is_none() {
            return;
        }
        while self.base < next {
            if let Some((message, _)) = self.units.get(self.base) {
                let Some(assembly) = &mut self.assembly else { break };
                if assembly.hopeful(self.base, message, next) {
                    break;
                }
                assembly.give_up(message.number());
                self.forget(self.base);
            }
            self.base += 1;
        }
        self.units.release(self.base);
    }

    fn forget(&mut self, unit: u64) {
        if let Some((_, bytes)) = self.units.get(unit) {
            self.bytes -= bytes.len() as u64;
            self.units.remove(unit);
        }
    }
}

#[cfg(test)]
mod tests;
