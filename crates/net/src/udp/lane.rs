//! A lane: a socket, its unsent datagrams and its drop counter.

use std::os::fd::{AsFd, BorrowedFd};

use packtrain_proto::Transmit;

use super::{Drops, UdpSocket};

/// A socket of an engine.
pub struct Lane {
    /// The socket.
    pub socket: UdpSocket,
    /// The kernel's counter at the last reading.
    seen: Drops,
    /// Estimated number of dropped datagrams.
    dropped: u32,
    /// Usual number of datagrams per message, times 16.
    usual: u32,
}

impl Lane {
    /// Creates a lane of this socket.
    pub fn new(mut socket: UdpSocket) -> Self {
        // Drops before the start of the flow are not counted.
        let seen = socket.drops();
        Self { socket, seen, dropped: 0, usual: 16 }
    }

    /// Records a message with `count` datagrams.
    pub fn note_message(&mut self, count: usize) {
        self.usual = self.usual - self.usual / 16 + count.min(1_024) as u32;
    }

    /// Estimated number of dropped datagrams so far; wraps.
    pub fn dropped(&self) -> u32 {
        self.dropped
    }

    /// Adds a reading of the kernel's counter; returns the new total of datagrams if it changed.
    /// The kernel counts a coalesced batch as one, so each drop counts as a batch of the usual
    /// size.
    pub fn note_drops(&mut self, total: Drops) -> Option<u32> {
        self.note_count(total)?;
        Some(self.dropped)
    }

    /// The same; returns the increase of the kernel's counter.
    pub(crate) fn note_count(&mut self, total: Drops) -> Option<u32> {
        let moved = total.0.wrapping_sub(self.seen.0);
        // Readings may be out of order: an older reading is ignored.
        if moved == 0 || moved > u32::MAX / 2 {
            return None;
        }
        self.seen = total;
        self.dropped = self.dropped.wrapping_add(moved.saturating_mul((self.usual / 16).max(1)));
        Some(moved)
    }
}

impl AsFd for Lane {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// A batch of which the kernel accepted only a part, or nothing, because its buffer was full.
pub struct Unsent {
    /// The batch.
    pub transmit: Transmit,
    /// Number of bytes sent.
    pub sent: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lane() -> Lane {
        Lane::new(UdpSocket::bind("127.0.0.1:0".parse().unwrap()).unwrap())
    }

    #[test]
    fn a_dropped_batch_counts_as_a_usual_one() {
        let mut lane = lane();
        assert_eq!(lane.note_drops(Drops(0)), None);
        assert_eq!(lane.note_drops(Drops(2)), Some(2));
        for _ in 0..200 {
            lane.note_message(44);
        }
        let total = lane.note_drops(Drops(3)).unwrap();
        assert!((40..=46).contains(&total), "{total}");
        assert_eq!(lane.note_drops(Drops(3)), None);
        assert_eq!(lane.note_drops(Drops(2)), None, "an old reading is not news");
    }

    #[test]
    fn the_counter_wraps() {
        let mut lane = lane();
        lane.seen = Drops(u32::MAX);
        assert_eq!(lane.note_drops(Drops(1)), Some(2));
    }
}
