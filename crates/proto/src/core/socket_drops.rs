//! How many datagrams the receiving host dropped at its socket.
//!
//! The kernel counts what it drops for want of buffer, but where it joins datagrams (UDP_GRO) it
//! counts a whole batch as one. A socket is a queue: what was dropped at it is missing right
//! before the first packet that was queued behind, and with that packet comes the new count. So
//! the gap in the lane's packet numbers there says how many datagrams they were. If the path lost
//! some of the same gap they are taken for the host's.

use super::window::Window;

/// Most datagrams of one batch (UDP_MAX_SEGMENTS of Linux).
const JOINED: u64 = 64;

/// The drops of one lane.
#[derive(Debug, Default)]
pub(crate) struct SocketDrops {
    /// Datagrams.
    total: u32,
    /// Batches whose gap has not been seen, and what had been jumped over before them.
    waiting: Option<(u64, u64)>,
}

impl SocketDrops {
    /// The kernel counted so many more batches, before what comes next.
    pub(crate) fn counted(&mut self, batches: u32, window: &Window) {
        let (count, _) = self.waiting.get_or_insert((0, window.skipped()));
        *count += u64::from(batches);
    }

    /// Packets came. The datagrams dropped so far, wrapping, if that is news.
    pub(crate) fn on_batch(&mut self, window: &Window) -> Option<u32> {
        let (count, before) = self.waiting.take()?;
        let gap = window.skipped() - before;
        if gap == 0 {
            // What was dropped had come before, or was nothing of ours.
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
