//! The room of a receiver with a slow reader: a depot's.

use crate::train::ROOM;

/// A receive buffer of a number of segments, with a reader that takes what it has room for at once.
/// The advertised window is the remaining room; its edge never moves back (RFC 9293 section 3.8.6),
/// and it does not open in small steps (section 3.8.6.2.2).
#[derive(Clone, Debug)]
pub(crate) struct Space {
    /// The buffer.
    size: u64,
    /// The reader has room for all segments below.
    readable: u64,
    /// The advertised edge: room for all segments below.
    edge: u64,
}

impl Space {
    /// A buffer of `size` segments, whose reader has room for all below `readable`.
    pub(crate) fn new(size: u64, readable: u64) -> Self {
        Self { size, readable, edge: size }
    }

    /// The reader has room for all segments below `until`.
    pub(super) fn readable_until(&mut self, until: u64) {
        self.readable = self.readable.max(until);
    }

    /// The end of the room, when all segments below `next` have arrived.
    fn end(&self, next: u64) -> u64 {
        next.min(self.readable) + self.size
    }

    /// The number of segments after `number` that it advertises room for, when all below `number`
    /// have arrived.
    pub(super) fn room(&mut self, number: u64) -> u32 {
        let end = self.end(number);
        if end - number >= (self.size / 16).max(1) {
            self.edge = self.edge.max(end);
        }
        u32::try_from(self.edge.saturating_sub(number)).unwrap_or(ROOM)
    }

    /// Whether there is twice the advertised room, while that is below half the buffer.
    pub(super) fn needs_update(&self, next: u64) -> bool {
        let (known, room) = (self.edge.saturating_sub(next), self.end(next) - next);
        2 * known <= self.size && room >= (2 * known).max(self.size / 16).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_closes_and_opens_again() {
        let mut space = Space::new(100, 50);
        assert_eq!(space.room(10), 100);
        // Fifty are read, a hundred wait: the buffer is full.
        assert_eq!((space.room(100), space.room(150)), (50, 0));
        space.readable_until(52);
        assert!(!space.needs_update(150), "two of a hundred are crumbs");
        assert_eq!(space.room(150), 0);
        space.readable_until(60);
        assert!(space.needs_update(150));
        assert_eq!(space.room(150), 10);
        assert!(!space.needs_update(150), "it was told");
        space.readable_until(1_000);
        assert_eq!(space.room(150), 100);
    }
}
