//! The room of a receiver whose reader may be slow: a depot's.

use crate::train::ROOM;

/// A receive buffer of some segments and the reader behind it, who takes what he has room for at
/// once. The window told is the room left, its edge never goes back (RFC 9293 section 3.8.6), and
/// it is not opened for crumbs (section 3.8.6.2.2).
#[derive(Clone, Debug)]
pub(crate) struct Space {
    /// The buffer.
    size: u64,
    /// The reader has room for all below.
    readable: u64,
    /// The sender was told that there is room for all below.
    edge: u64,
}

impl Space {
    /// A buffer of `size` segments, whose reader has room for as many as `readable`.
    pub(crate) fn new(size: u64, readable: u64) -> Self {
        Self { size, readable, edge: size }
    }

    /// The reader has room for all below `until`.
    pub(super) fn readable_until(&mut self, until: u64) {
        self.readable = self.readable.max(until);
    }

    /// Room for all below this, where all below `next` arrived.
    fn end(&self, next: u64) -> u64 {
        next.min(self.readable) + self.size
    }

    /// How many segments after `number`, below which all arrived, it tells the sender to have room
    /// for.
    pub(super) fn room(&mut self, number: u64) -> u32 {
        let end = self.end(number);
        if end - number >= (self.size / 16).max(1) {
            self.edge = self.edge.max(end);
        }
        u32::try_from(self.edge.saturating_sub(number)).unwrap_or(ROOM)
    }

    /// Whether there is twice the room that the sender knows of, once that is below half the
    /// buffer.
    pub(super) fn worth_telling(&self, next: u64) -> bool {
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
        // Fifty are read, a hundred wait: nothing fits any more.
        assert_eq!((space.room(100), space.room(150)), (50, 0));
        space.readable_until(52);
        assert!(!space.worth_telling(150), "two of a hundred are crumbs");
        assert_eq!(space.room(150), 0);
        space.readable_until(60);
        assert!(space.worth_telling(150));
        assert_eq!(space.room(150), 10);
        assert!(!space.worth_telling(150), "it was told");
        space.readable_until(1_000);
        assert_eq!(space.room(150), 100);
    }
}
