//! Counts the datagrams that the receiving host dropped at its socket.
//!
//! The kernel counts datagrams that it drops because the buffer is full, but with UDP_GRO it counts
//! a coalesced batch as one. A socket is a queue: dropped datagrams are missing right before the
//! first packet that was queued after them, and that packet brings the new count. The gap in the
//! lane's packet numbers at that place is therefore the number of dropped datagrams. Packets of
//! that gap that the path lost are counted as drops of the host too.

use super::window::Window;

/// Maximum datagrams of one batch (UDP_MAX_SEGMENTS of Linux).
const JOINED: u64 = 64;

/// The drops of one lane.
#[derive(Debug, Default)]
pub(crate) struct SocketDrops {
    /// Datagrams.
    total: u32,
    /// Counted batches whose gap has not been seen, and the skipped numbers before them.
    waiting: Option<(u64, u64)>,
}

impl SocketDrops {
    /// The kernel counted this many more batches before the next one.
    pub(crate) fn counted(&mut self, batches: u32, window: &Window) {
        let (count, _) = self.waiting.get_or_insert((0, window.skipped()));
        *count += u64::from(batches);
    }

    /// Handles a received batch. Returns the total of dropped datagrams, wrapping, if it changed.
    pub(crate) fn on_batch(&mut self, window: &Window) -> Option<u32> {
        let (count, before) = self.waiting.take()?;
        let gap = window.skipped() - before;
        if gap == 0 {
            // The dropped datagrams had arrived before, or did not belong to this flow.
            return None;
        }
        let datagrams = gap.clamp(count, count * JOINED);
        self.total = self.total.wrapping_add(datagrams.min(u64::from(u32::MAX)) as u32);
        Some(self.total)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gap_says_how_many_a_count_stands_for() {
        let (mut window, mut drops) = (Window::new(), SocketDrops::default());
        window.set_run(0, 100);
        assert_eq!(drops.on_batch(&window), None);
        window.set_run(110, 120);
        assert_eq!(drops.on_batch(&window), None, "lost on the way");
        drops.counted(3, &window);
        window.set_run(120, 130);
        assert_eq!(drops.on_batch(&window), None, "no gap, no drop of this flow's");
        drops.counted(1, &window);
        window.set(190);
        assert_eq!(drops.on_batch(&window), Some(60));
        window.set(191);
        assert_eq!(drops.on_batch(&window), None);
        drops.counted(1, &window);
        window.set(1_000);
        assert_eq!(drops.on_batch(&window), Some(60 + 64), "the rest was lost on the way");
        drops.counted(9, &window);
        window.set(1_002);
        assert_eq!(drops.on_batch(&window), Some(60 + 64 + 9), "duplicates count too");
    }
}
