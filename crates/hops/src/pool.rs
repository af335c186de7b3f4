//! The memory that the sessions of a process share. No I/O.

use std::sync::atomic::{AtomicU64, Ordering};

use packtrain_units::ByteCount;

/// What each direction of a session may hold whatever the others do, in bytes.
pub const MIN_DIRECTION: u64 = 16 << 10;
/// The unit in which rings borrow, in bytes.
pub(crate) const BLOCK: u64 = 8 << 10;
/// The most that one direction holds, in bytes.
const MAX_DIRECTION: u64 = 1 << 20;
/// What a direction keeps for a slow hop comes in blocks of so many bytes.
const KEPT_BLOCK: u64 = packtrain_net::relay::BLOCK as u64;
/// A direction borrows at most this many times what is free, so that a direction that never gives
/// back leaves something to later ones (Choudhury and Hahne, dynamic queue length thresholds, 1998).
const MAX_SHARE_OF_FREE: u64 = 16;

/// The sessions that there can be: as many as are allowed and have room in a pool of `bytes`.
pub fn sessions(bytes: ByteCount, allowed: u32) -> u32 {
    allowed.min(u32::try_from(bytes.get() / (2 * MIN_DIRECTION)).unwrap_or(u32::MAX))
}

/// Room for bytes on their way, in fair shares.
///
/// [`MIN_DIRECTION`] is kept for each direction of each session that there can be; the rest is shared among
/// those there are, of whom each gets at most an equal part; what it keeps for a slow hop may be as much as both
/// directions of its session have, since mostly one of them moves. So what is lent never exceeds the
/// pool, and nobody waits for those who do not give back.
#[derive(Debug)]
pub struct Pool {
    spare: u64,
    directions: AtomicU64,
    /// Lent beyond what each direction always has.
    beyond: AtomicU64,
    /// Lent altogether, and the most that ever was.
    lent: AtomicU64,
    most: AtomicU64,
    /// What the kernel may hold for all connections.
    kernel: u64,
}

impl Pool {
    /// A pool of so many bytes for at most `sessions` sessions; the kernel may hold about `kernel`
    /// bytes beside it.
    pub fn new(bytes: ByteCount, sessions: u32, kernel: ByteCount) -> Self {
        let zero = AtomicU64::default;
        let spare = bytes.get() - 2 * MIN_DIRECTION * u64::from(self::sessions(bytes, sessions));
        let kernel = kernel.get();
        Self { spare, directions: zero(), beyond: zero(), lent: zero(), most: zero(), kernel }
    }

    /// There is one direction more.
    pub fn join(&self) {
        self.directions.fetch_add(1, Ordering::Relaxed);
    }

    /// There is one direction less.
    pub fn leave(&self) {
        self.directions.fetch_sub(1, Ordering::Relaxed);
    }

    /// What the kernel may hold of one direction at each end: mostly one direction of a session
    /// moves.
    pub fn outside(&self) -> ByteCount {
        ByteCount((self.kernel / self.directions.load(Ordering::Relaxed).max(1)).max(MIN_DIRECTION))
    }

    /// Lends room to one direction, which has none at the moment.
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

    /// Takes back what was lent.
    pub fn give_back(&self, lent: u64) {
        self.beyond.fetch_sub(lent - MIN_DIRECTION, Ordering::Relaxed);
        self.lent.fetch_sub(lent, Ordering::Relaxed);
    }

    /// Lends a block for bytes that wait for a slow hop, to a direction that keeps `kept` of them: while
    /// that is less than a session's equal part, and something is left.
    pub fn keep(&self, kept: usize) -> bool {
        self.borrow(kept as u64 * KEPT_BLOCK, KEPT_BLOCK)
    }

    /// Takes a block back.
    pub fn unkeep(&self) {
        self.pay_back(KEPT_BLOCK);
    }

    /// A ring has what each direction always has.
    pub(crate) fn open_ring(&self) {
        self.lend(MIN_DIRECTION);
    }

    /// It is over.
    pub(crate) fn close_ring(&self) {
        self.lent.fetch_sub(MIN_DIRECTION, Ordering::Relaxed);
    }

    fn lend(&self, bytes: u64) {
        let lent = self.lent.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.most.fetch_max(lent, Ordering::Relaxed);
    }

    /// A session's equal part of what is shared.
    fn part(&self) -> u64 {
        self.spare / (self.directions.load(Ordering::Relaxed) / 2).max(1)
    }

    /// Lends so many bytes to a direction that has `held` beyond what it always has; false if that is
    /// more than a session's part, or not so much is left.
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

    /// Lends a block to a direction's ring that has `blocks` beyond what it always has; false if that is
    /// its share, or nothing is left.
    pub(crate) fn block(&self, blocks: u64) -> bool {
        self.borrow(blocks * BLOCK, BLOCK)
    }

    /// A block comes back.
    pub(crate) fn block_back(&self) {
        self.pay_back(BLOCK);
    }

    /// Blocks that a direction with `blocks` could still get now.
    pub(crate) fn blocks_left(&self, blocks: u64) -> u64 {
        let free = self.spare.saturating_sub(self.beyond.load(Ordering::Relaxed)) / BLOCK;
        // As `borrow` lends them one by one.
        let greed =
            ((free + 1) * MAX_SHARE_OF_FREE).saturating_sub(blocks) / (MAX_SHARE_OF_FREE + 1);
        free.min(greed).min((self.part() / BLOCK).saturating_sub(blocks))
    }

    /// Lent now, and the most that ever was.
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
            while pool.keep(kept) {
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
        /// However loans come and go, and some never come back, no more is out than there is, and
        /// everybody gets some.
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
                        let lent = pool.keep(kept[who]);
                        kept[who] += usize::from(lent);
                        prop_assert!(!lent || kept[who] as u64 <= equal);
                    }
                    (5, _) if kept[who] > 0 => {
                        kept[who] -= 1;
                        pool.unkeep();
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
