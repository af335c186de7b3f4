//! One lane: a socket, what could not be sent yet, and what the kernel dropped.

use std::os::fd::{AsFd, BorrowedFd};

use packtrain_proto::Transmit;

use super::{Drops, UdpSocket};

/// One socket of an engine.
pub struct Lane {
    /// The socket.
    pub socket: UdpSocket,
    /// The kernel's counter when we last looked.
    seen: Drops,
    /// Datagrams dropped, estimated.
    dropped: u32,
    /// Datagrams that a message usually carries, times 16.
    usual: u32,
}

impl Lane {
    /// A lane over this socket.
    pub fn new(mut socket: UdpSocket) -> Self {
        // What was dropped before the flow began is none of its business.
        let seen = socket.drops();
        Self { socket, seen, dropped: 0, usual: 16 }
    }

    /// A message with `count` datagrams came.
    pub fn note_message(&mut self, count: usize) {
        self.usual = self.usual - self.usual / 16 + count.min(1_024) as u32;
    }

    /// Datagrams dropped so far, estimated; wraps.
    pub fn dropped(&self) -> u32 {
        self.dropped
    }

    /// Takes a reading of the kernel's counter; gives the new total of datagrams when it moved.
    /// The kernel counts a coalesced batch as one, so a drop is taken for a usual batch.
    pub fn note_drops(&mut self, total: Drops) -> Option<u32> {
        self.note_count(total)?;
        Some(self.dropped)
    }

    /// The same; gives how far the kernel's counter moved.
    pub fn note_count(&mut self, total: Drops) -> Option<u32> {
        let moved = total.0.wrapping_sub(self.seen.0);
        // Readings may come out of order: one from before the last is not news.
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

/// A batch of which the kernel took only a part, or nothing, for want of buffer.
pub struct Unsent {
    /// The batch.
    pub transmit: Transmit,
    /// Bytes of it that left.
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
