//! The memory that the sessions of a process share. No I/O.

use std::sync::atomic::{AtomicU64, Ordering};

use packtrain_units::ByteCount;

/// Memory that each direction of a session always has, in bytes.
pub const MIN_DIRECTION: u64 = 16 << 10;
/// Size of a ring's block, in bytes.
pub(crate) const BLOCK: u64 = 8 << 10;
/// Maximum memory of one direction, in bytes.
const MAX_DIRECTION: u64 = 1 << 20;
/// Size of the blocks for bytes that wait for a slow hop.
const KEPT_BLOCK: u64 = packtrain_net::relay::BLOCK as u64;
/// A direction borrows at most this multiple of the free memory, so that a direction that never
/// returns it leaves some for later ones (Choudhury and Hahne, dynamic queue length thresholds,
/// 1998).
const MAX_SHARE_OF_FREE: u64 = 16;

/// The number of sessions that the limit `allowed` and a pool of `bytes` permit.
pub fn sessions(bytes: ByteCount, allowed: u32) -> u32 {
    allowed.min(u32::try_from(bytes.get() / (2 * MIN_DIRECTION)).unwrap_or(u32::MAX))
}

/// Memory for relayed bytes, in fair shares.
///
/// [`MIN_DIRECTION`] is reserved for each direction of each possible session. The rest is shared by
/// the existing directions, each of which gets at most an equal share. For bytes that wait for a
/// slow hop a direction may use the shares of both directions of its session, since mostly one of
/// them moves data. So the lent memory never exceeds the pool, and no direction waits for another
/// that does not return memory.
#[derive(Debug)]
pub struct Pool {
    spare: u64,
    directions: AtomicU64,
    /// Bytes lent beyond the reserved ones.
    beyond: AtomicU64,
    /// Bytes lent in total, now and at most.
    lent: AtomicU64,
    most: AtomicU64,
    /// Memory that the kernel may use for all connections, in bytes.
    kernel: u64,
}

impl Pool {
    /// A pool of `bytes` for at most `sessions` sessions. The kernel may use about `kernel` bytes
    /// in addition.
    pub fn new(bytes: ByteCount, sessions: u32, kernel: ByteCount) -> Self {
        let zero = AtomicU64::default;
        let spare = bytes.get() - 2 * MIN_DIRECTION * u64::from(self::sessions(bytes, sessions));
        let kernel = kernel.get();
        Self { spare, directions: zero(), beyond: zero(), lent: zero(), most: zero(), kernel }
    }

    /// Adds a direction.
    pub fn join(&self) {
        self.directions.fetch_add(1, Ordering::Relaxed);
    }

    /// Removes a direction.
    pub fn leave(&self) {
        self.directions.fetch_sub(1, Ordering::Relaxed);
    }

    /// The memory that the kernel may use for one direction at each of its two sockets. Mostly one
    /// direction of a session moves data.
    pub fn kernel_limit(&self) -> ByteCount {
        ByteCount((self.kernel / self.directions.load(Ordering::Relaxed).max(1)).max(MIN_DIRECTION))
    }

    /// Lends memory to a direction that has borrowed none.
    pub fn take(&self) -> u64 {
        let directions = self.directions.load(Ordering::Relaxed).max(1);
        let want = (self.spare / directions).min(MAX_DIRECTION - MIN_DIRECTION);
        let mut got = 0;
        let _ = self.beyond.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |beyond| {
            got = want.min(self.spare.saturating_sub(beyond));
            Some(beyond + got)
        });
        self.lend(MIN_DIRECTION + got);
        MIN_DIRECTION + got
    }

    /// Returns lent memory.
    pub fn give_back(&self, lent: u64) {
        self.beyond.fetch_sub(lent - MIN_DIRECTION, Ordering::Relaxed);
        self.lent.fetch_sub(lent, Ordering::Relaxed);
    }

    /// Lends a block for bytes that wait for a slow hop, to a direction that has `kept` such
    /// blocks: while that is less than a session's equal share, and memory is left.
    pub fn lend_block(&self, kept: usize) -> bool {
        self.borrow(kept as u64 * KEPT_BLOCK, KEPT_BLOCK)
    }

    /// Returns a block.
    pub fn return_block(&self) {
        self.pay_back(KEPT_BLOCK);
    }

    /// Counts the reserved memory of a new ring.
    pub(crate) fn open_ring(&self) {
        self.lend(MIN_DIRECTION);
    }

    /// Removes a ring.
    pub(crate) fn close_ring(&self) {
        self.lent.fetch_sub(MIN_DIRECTION, Ordering::Relaxed);
    }

    fn lend(&self, bytes: u64) {
        let lent = self.lent.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.most.fetch_max(lent, Ordering::Relaxed);
    }

    /// The equal share of a session.
    fn part(&self) -> u64 {
        self.spare / (self.directions.load(Ordering::Relaxed) / 2).max(1)
    }

    /// Lends `bytes` to a direction that has borrowed `held` beyond its reserved memory; false if
    /// that exceeds a session's share, or too little is left.
    fn borrow(&self, held: u64, bytes: u64) -> bool {
        if held + bytes > self.part() {
            return false;
        }
        let more = |beyond| {
            let free = self.spare.saturating_sub(beyond);
            (bytes <= free && held + bytes <= free.saturating_mul(MAX_SHARE_OF_FREE))
                .then_some(beyond + bytes)
        };
        let got = self.beyond.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok();
        if got {
            self.lend(bytes);
        }
        got
    }

    fn pay_back(&self, bytes: u64) {
        self.beyond.fetch_sub(bytes, Ordering::Relaxed);
        self.lent.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Lends a block to the ring of a direction that has borrowed `blocks`; false if that exceeds
    /// its share, or nothing is left.
    pub(crate) fn block(&self, blocks: u64) -> bool {
        self.borrow(blocks * BLOCK, BLOCK)
    }

    /// Returns a block.
    pub(crate) fn block_back(&self) {
        self.pay_back(BLOCK);
    }

    /// The number of blocks that a direction with `blocks` could still borrow now.
    pub(crate) fn blocks_left(&self, blocks: u64) -> u64 {
        let free = self.spare.saturating_sub(self.beyond.load(Ordering::Relaxed)) / BLOCK;
        // The condition of `borrow`, block by block.
        let max_share =
            ((free + 1) * MAX_SHARE_OF_FREE).saturating_sub(blocks) / (MAX_SHARE_OF_FREE + 1);
        free.min(max_share).min((self.part() / BLOCK).saturating_sub(blocks))
    }

    /// Bytes lent now, and at most.
    pub fn lent(&self) -> (ByteCount, ByteCount) {
        let read = |one: &AtomicU64| ByteCount(one.load(Ordering::Relaxed));
        (read(&self.lent), read(&self.most))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn who_never_gives_back_leaves_something() {
        let pool = Pool::new(ByteCount(64 << 20), 256, ByteCount(64 << 20));
        let mut left = pool.spare;
        for stalled in 1..5 {
            pool.join();
            pool.join();
            let mut kept = 0;
            while pool.lend_block(kept) {
                kept += 1;
            }
            let now = pool.spare - pool.beyond.load(Ordering::Relaxed);
            assert!(
                now + KEPT_BLOCK >= left / (MAX_SHARE_OF_FREE + 2),
                "{stalled} leave {now} of {left}"
            );
            assert!(
                stalled > 1 || kept as u64 * KEPT_BLOCK >= pool.spare / 10 * 9,
                "one has most: {kept}"
            );
            left = now;
        }
    }

    proptest! {
        /// For any sequence of loans, some of which never return: no more is lent than the pool
        /// has, and every direction gets some.
        #[test]
        fn the_pool_is_never_exceeded(
            steps in prop::collection::vec((0usize..40, 0u8..6), 1..400),
            kilobytes in 32u64..20_000,
            sessions in 1u32..30,
        ) {
            let total = ByteCount(kilobytes << 10);
            let most = 2 * super::sessions(total, sessions) as usize;
            let pool = Pool::new(total, sessions, total);
            let mut directions: BTreeMap<usize, Option<u64>> = BTreeMap::new();
            let mut kept = [0; 40];
            for (who, what) in steps {
                match (what, directions.contains_key(&who)) {
                    (3 | 4, true) => {
                        let equal = (total.get() / (directions.len() as u64 / 2).max(1)) / KEPT_BLOCK;
                        let lent = pool.lend_block(kept[who]);
                        kept[who] += usize::from(lent);
                        prop_assert!(!lent || kept[who] as u64 <= equal);
                    }
                    (5, _) if kept[who] > 0 => {
                        kept[who] -= 1;
                        pool.return_block();
                    }
                    _ => {}
                }
                match (directions.get(&who).copied(), what) {
                    (None, _) if directions.len() < most => {
                        pool.join();
                        directions.insert(who, None);
                    }
                    (Some(None), 0) if kept[who] == 0 => {
                        pool.leave();
                        directions.remove(&who);
                    }
                    (Some(None), 1 | 2) => {
                        let lent = pool.take();
                        prop_assert!((MIN_DIRECTION..=MAX_DIRECTION).contains(&lent));
                        directions.insert(who, Some(lent));
                    }
                    (Some(Some(lent)), 0 | 1) => {
                        pool.give_back(lent);
                        directions.insert(who, None);
                    }
                    _ => {}
                }
                let out: u64 = directions.values().flatten().sum();
                let out = out + kept.iter().sum::<usize>() as u64 * KEPT_BLOCK;
                prop_assert_eq!(pool.lent().0.get(), out);
                prop_assert!(out <= total.get(), "{} of {}", out, total);
            }
        }
    }
}
