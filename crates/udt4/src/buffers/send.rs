//! Data to send that is not acknowledged yet.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use packtrain_units::{ByteCount, Time};

use super::units::Units;
use crate::wire::Message;

/// The send buffer: units in the order of their numbers.
#[derive(Debug)]
pub(crate) struct SendBuffer {
    units: Units,
    payload: usize,
    /// Maximum number of units.
    capacity: u64,
    /// The oldest unacknowledged unit.
    base: u64,
    /// One past the newest.
    end: u64,
    message: u32,
    /// Messages with a time to live: its end, first unit, one past the last.
    deadlines: BinaryHeap<Reverse<(Time, u64, u64)>>,
    bytes: u64,
}

impl SendBuffer {
    pub(crate) fn new(first: u64, payload: usize, size: ByteCount) -> Self {
        Self {
            units: Units::new(first, payload),
            payload,
            capacity: (size.get() / payload.max(1) as u64).max(2),
            base: first,
            end: first,
            message: 0,
            deadlines: BinaryHeap::new(),
            bytes: 0,
        }
    }

    /// Number of units from `next` on that wait for their first transmission.
    pub(crate) fn fresh(&self, next: u64) -> u64 {
        self.end.saturating_sub(next)
    }

    /// One past the newest unit.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// Room for whole units, in bytes.
    pub(crate) fn room(&self) -> ByteCount {
        ByteCount((self.capacity - (self.end - self.base).min(self.capacity)) * self.payload as u64)
    }

    /// Bytes that are not acknowledged.
    pub(crate) fn bytes(&self) -> ByteCount {
        ByteCount(self.bytes)
    }

    /// Whether a message of `len` bytes can ever fit.
    pub(crate) fn can_hold(&self, len: usize) -> bool {
        len.div_ceil(self.payload) as u64 <= self.capacity
    }

    /// Takes bytes of a stream; returns how many. `next` is the first unit that was never sent: a
    /// short unit before it no longer grows.
    pub(crate) fn write(&mut self, next: u64, bytes: &[u8]) -> usize {
        let mut taken = 0;
        if self.end > next.max(self.base) {
            taken = self.units.append(self.end - 1, bytes);
        }
        while taken < bytes.len() && self.end - self.base < self.capacity {
            let part = &bytes[taken..bytes.len().min(taken + self.payload)];
            // The stock library ignores flags and number of a stream's packets.
            self.units.put(self.end, Message::new(1).with(true, true, false), part);
            self.end += 1;
            taken += part.len();
        }
        self.bytes += taken as u64;
        taken
    }

    /// Takes a whole message, or nothing if there is no room now.
    pub(crate) fn write_message(
        &mut self,
        bytes: &[u8],
        expires: Option<Time>,
        in_order: bool,
    ) -> bool {
        let count = bytes.len().div_ceil(self.payload) as u64;
        if count == 0 || self.end - self.base + count > self.capacity {
            return false;
        }
        self.message = Message::after(self.message);
        let (first, end) = (self.end, self.end + count);
        for (unit, part) in (first..end).zip(bytes.chunks(self.payload)) {
            let message = Message::new(self.message).with(unit == first, unit + 1 == end, in_order);
            self.units.put(unit, message, part);
        }
        self.end = end;
        self.bytes += bytes.len() as u64;
        if let Some(at) = expires {
            self.deadlines.push(Reverse((at, first, end)));
            // Entries of messages that arrived long before their expiry are removed, so that they
            // do not accumulate.
            if self.deadlines.len() as u64 > 2 * self.capacity {
                let base = self.base;
                self.deadlines.retain(|Reverse((_, _, end))| *end > base);
            }
        }
        true
    }

    /// A unit's header word and bytes.
    #[inline]
    pub(crate) fn get(&self, unit: u64) -> Option<(Message, &[u8])> {
        self.units.get(unit)
    }

    /// The next message that has expired and is not completely acknowledged: its first unit and one
    /// past its last.
    pub(crate) fn expired(&mut self, now: Time) -> Option<(u64, u64)> {
        while self.expires()? <= now {
            let Reverse((_, first, end)) = self.deadlines.pop()?;
            if end > self.base {
                return Some((first, end));
            }
        }
        None
    }

    /// When to check for expired messages again.
    pub(crate) fn expires(&self) -> Option<Time> {
        self.deadlines.peek().map(|Reverse((at, ..))| *at)
    }

    /// All units below `unit` were acknowledged or dropped; returns whether that made room.
    pub(crate) fn release(&mut self, unit: u64) -> bool {
        let unit = unit.min(self.end);
        if unit <= self.base {
            return false;
        }
        for gone in self.base..unit {
            self.bytes -= self.units.get(gone).map_or(0, |(_, bytes)| bytes.len() as u64);
        }
        self.base = unit;
        self.units.release(unit);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_packed_full_until_sent() {
        let mut buffer = SendBuffer::new(5, 10, ByteCount(40));
        assert_eq!(buffer.write(5, &[1; 7]), 7);
        assert_eq!(buffer.write(5, &[2; 7]), 7, "fills the first packet up");
        assert_eq!(buffer.fresh(5), 2);
        assert_eq!(buffer.get(5).unwrap().1, [[1; 7].as_slice(), &[2; 3]].concat());
        assert_eq!(buffer.get(6).unwrap().1, [2; 4]);
        // Unit 6 was sent, so it keeps its bytes.
        assert_eq!(buffer.write(7, &[3; 30]), 20, "four packets are all");
        assert_eq!(buffer.get(6).unwrap().1.len(), 4);
        assert_eq!(buffer.room(), ByteCount(0));
        assert_eq!(buffer.bytes(), ByteCount(34));
        assert!(buffer.release(7));
        assert!(!buffer.release(7));
        assert_eq!((buffer.room(), buffer.bytes()), (ByteCount(20), ByteCount(20)));
    }

    #[test]
    fn messages_keep_boundaries_and_expire() {
        let mut buffer = SendBuffer::new(0, 10, ByteCount(100));
        assert!(buffer.write_message(&[1; 25], Some(Time::from_nanos(50)), true));
        assert!(buffer.write_message(&[2; 10], Some(Time::from_nanos(20)), false));
        let flags: Vec<_> = (0..4)
            .map(|unit| buffer.get(unit).unwrap().0)
            .map(|m| (m.number(), m.is_first(), m.is_last(), m.in_order()))
            .collect();
        let expected = [(1, true, false, true), (1, false, false, true), (1, false, true, true)];
        assert_eq!(flags[..3], expected);
        assert_eq!(flags[3], (2, true, true, false));
        assert!(!buffer.can_hold(101) && buffer.can_hold(100));
        assert!(!buffer.write_message(&[3; 70], None, false), "no room now");
        assert_eq!(buffer.expires(), Some(Time::from_nanos(20)));
        assert_eq!(buffer.expired(Time::from_nanos(30)), Some((3, 4)));
        assert_eq!(buffer.expired(Time::from_nanos(30)), None);
        buffer.release(3);
        assert_eq!(buffer.expired(Time::from_nanos(60)), None, "acknowledged in time");
        assert!(!buffer.write_message(&[], None, false));
        for i in 0..1000 {
            let at = Time::from_nanos(1_000_000 + i);
            assert!(buffer.write_message(&[4; 10], Some(at), false));
            buffer.release(buffer.end());
        }
        assert!(buffer.deadlines.len() <= 20, "{}", buffer.deadlines.len());
    }
}
