//! Data that has arrived and is not read yet.

mod assembly;

use packtrain_units::ByteCount;

use self::assembly::Assembly;
use super::units::Units;
use crate::options::Kind;
use crate::wire::Message;

/// The receive buffer: slots for the units from the oldest unread one to the end of the window.
#[derive(Debug)]
pub(crate) struct RecvBuffer {
    units: Units,
    payload: usize,
    window: u64,
    /// The oldest unread unit.
    base: u64,
    /// Bytes of it that were read.
    offset: usize,
    /// Messages: which of them are complete.
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

    /// Whether a unit is in the window.
    #[inline]
    pub(crate) fn admits(&self, unit: u64) -> bool {
        unit.wrapping_sub(self.base) < self.window
    }

    /// Number of units from `next` on that it has room for.
    pub(crate) fn room(&self, next: u64) -> u64 {
        (self.base + self.window).saturating_sub(next.max(self.base))
    }

    /// Room in bytes, in whole packets, from `next` on.
    pub(crate) fn room_bytes(&self, next: u64) -> ByteCount {
        ByteCount(self.room(next) * self.payload as u64)
    }

    /// Bytes in the buffer.
    pub(crate) fn bytes(&self) -> ByteCount {
        ByteCount(self.bytes)
    }

    /// Stores a unit that the window admits and that is not there yet.
    #[inline]
    pub(crate) fn put(&mut self, unit: u64, message: Message, bytes: &[u8]) {
        self.units.put(unit, message, bytes);
        self.bytes += bytes.len() as u64;
        if let Some(assembly) = &mut self.assembly {
            assembly.add(unit, message);
        }
    }

    /// The sender dropped this message, of which some units are missing.
    pub(crate) fn give_up(&mut self, message: u32) {
        if let Some(assembly) = &mut self.assembly {
            assembly.give_up(message);
        }
    }

    /// Whether there is data to read, when all units before `next` have arrived.
    pub(crate) fn readable(&self, next: u64) -> bool {
        match &self.assembly {
            None => self.base < next,
            Some(assembly) => assembly.ready(next).is_some(),
        }
    }

    /// Stream: copies the next bytes into `out`.
    pub(crate) fn read(&mut self, next: u64, out: &mut [u8]) -> usize {
        let mut filled = 0;
        self.take(next, out.len(), |part| {
            out[filled..filled + part.len()].copy_from_slice(part);
            filled += part.len();
        })
    }

    /// Stream: discards the next bytes, at most `most`.
    pub(crate) fn skip(&mut self, next: u64, most: usize) -> usize {
        self.take(next, most, |_| {})
    }

    /// Stream: passes the next bytes to `sink`, at most `most`, and removes them.
    fn take(&mut self, next: u64, most: usize, mut sink: impl FnMut(&[u8])) -> usize {
        let mut filled = 0;
        while self.base < next && filled < most {
            let unit = self.units.get(self.base).map_or(&[][..], |(_, bytes)| bytes);
            let rest = unit.get(self.offset..).unwrap_or_default();
            let part = rest.len().min(most - filled);
            sink(&rest[..part]);
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

    /// Messages: copies the next complete one into `out` and returns its length, even if only a
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

    /// Messages: moves the window past units that were read, dropped, or can never be read.
    pub(crate) fn advance(&mut self, next: u64) {
        if self.assembly.is_none() {
            return;
        }
        while self.base < next {
            if let Some((message, _)) = self.units.get(self.base) {
                let Some(assembly) = &mut self.assembly else { break };
                if assembly.can_become_readable(self.base, message, next) {
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
