//! Who is let in while there is room, and how the room is shared. No I/O.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use packtrain_session::Reason;
use packtrain_units::{ByteCount, DataRate, Duration, Time};

use super::metrics;
use crate::pubkey::PublicKey;

/// What each direction of a session may hold whatever the others do.
pub(crate) const LEAST: u64 = 16 << 10;
/// The unit in which rings borrow.
pub(crate) const BLOCK: u64 = 8 << 10;
/// The most that one direction holds.
const MOST: u64 = 1 << 20;
/// What a direction keeps for a slow hop comes in blocks of so many.
const KEPT: u64 = packtrain_net::relay::BLOCK as u64;
/// A direction borrows at most so many times what nobody has: who never gives back leaves something
/// to those who come later (Choudhury and Hahne, dynamic queue length thresholds, 1998).
const GREED: u64 = 16;
/// The time in which a key's bytes are counted.
const HOUR: Duration = Duration::from_secs(3600);
/// When to come again where it is not known.
const SOON: Duration = Duration::from_secs(2);

/// What a depot takes on.
#[derive(Clone, Debug, PartialEq)]
pub struct DepotLimits {
    /// Sessions at a time.
    pub sessions: u32,
    /// Sessions of one key at a time.
    pub key_sessions: u32,
    /// Bytes of one key in an hour; none for no limit.
    pub key_bytes: Option<ByteCount>,
    /// Bytes on their way through this process.
    pub pool: ByteCount,
    /// About as many of them as the kernel may hold beside, when there are many connections; what
    /// suits this machine if none.
    pub kernel: Option<ByteCount>,
    /// At this rate it takes on nothing new.
    pub rate: Option<DataRate>,
    /// At this load per core it takes on nothing new.
    pub load: Option<f64>,
}

impl Default for DepotLimits {
    fn default() -> Self {
        Self {
            sessions: 256,
            key_sessions: 64,
            key_bytes: None,
            pool: ByteCount(64 << 20),
            kernel: None,
            rate: None,
            load: None,
        }
    }
}

impl DepotLimits {
    /// The sessions that there can be: as many as are taken on and have room in the pool.
    pub(super) fn room(&self) -> u32 {
        let fit = self.pool.get() / (2 * LEAST);
        self.sessions.min(u32::try_from(fit).unwrap_or(u32::MAX))
    }
}

/// A refusal before it is one of this depot in particular.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NoRoom {
    pub(super) reason: Reason,
    pub(super) retry_after: Duration,
    pub(super) text: String,
}

#[derive(Debug)]
struct Account {
    sessions: u32,
    hour: Time,
    bytes: ByteCount,
}

/// Who is in.
#[derive(Debug)]
pub(super) struct Admission {
    limits: DepotLimits,
    accounts: BTreeMap<PublicKey, Account>,
    sessions: u32,
    rate: DataRate,
    load: f64,
    draining: bool,
}

impl Admission {
    pub(super) fn new(limits: DepotLimits) -> Self {
        Self {
            limits,
            accounts: BTreeMap::new(),
            sessions: 0,
            rate: DataRate::ZERO,
            load: 0.0,
            draining: false,
        }
    }

    /// Sessions under way.
    pub(super) fn sessions(&self) -> u32 {
        self.sessions
    }

    /// Lets nobody in any more.
    pub(super) fn drain(&mut self) {
        self.draining = true;
    }

    /// What was measured of this depot.
    pub(super) fn measured(&mut self, now: Time, rate: DataRate, load: f64) {
        (self.rate, self.load) = (rate, load);
        self.accounts.retain(|_, one| one.sessions > 0 || now.since(one.hour) < HOUR);
    }

    /// Lets a session of `key` in, which [`Admission::leave`] ends.
    pub(super) fn admit(&mut self, now: Time, key: PublicKey) -> Result<(), NoRoom> {
        let busy = |text: String| Err(NoRoom { reason: Reason::Busy, retry_after: SOON, text });
        if self.draining {
            let text = "this depot is about to end".to_owned();
            return Err(NoRoom { reason: Reason::Draining, retry_after: HOUR, text });
        }
        let room = self.limits.room();
        if self.sessions >= room {
            return busy(format!("the depot has {room} sessions, as many as it takes"));
        }
        if let Some(most) = self.limits.rate.filter(|most| self.rate >= *most) {
            return busy(format!("the depot relays {}, its limit is {most}", self.rate));
        }
        if let Some(most) = self.limits.load.filter(|most| self.load >= *most) {
            return busy(format!(
                "the depot's load is {:.1} per core, its limit {most}",
                self.load
            ));
        }
        let fresh = Account { sessions: 0, hour: now, bytes: ByteCount::ZERO };
        let account = self.accounts.entry(key).or_insert(fresh);
        if now.since(account.hour) >= HOUR {
            (account.hour, account.bytes) = (now, ByteCount::ZERO);
        }
        let quota =
            |text: String, retry_after| Err(NoRoom { reason: Reason::Quota, retry_after, text });
        if account.sessions >= self.limits.key_sessions {
            let text = format!("this key has {} sessions, as many as it may", account.sessions);
            return quota(text, SOON);
        }
        if let Some(most) = self.limits.key_bytes.filter(|most| account.bytes >= *most) {
            let text = format!("this key has had its {most} of this hour");
            return quota(text, HOUR.saturating_sub(now.since(account.hour)));
        }
        account.sessions += 1;
        self.sessions += 1;
        Ok(())
    }

    /// A session of `key` moved so much more.
    pub(super) fn moved(&mut self, key: &PublicKey, bytes: ByteCount) {
        if let Some(account) = self.accounts.get_mut(key) {
            account.bytes += bytes;
        }
    }

    /// A session of `key` is over.
    pub(super) fn leave(&mut self, key: &PublicKey) {
        self.sessions = self.sessions.saturating_sub(1);
        if let Some(account) = self.accounts.get_mut(key) {
            account.sessions = account.sessions.saturating_sub(1);
        }
    }
}

/// Room for bytes on their way, in fair shares.
///
/// [`LEAST`] is kept for each direction of each session that there can be; the rest is shared among
/// those there are, of whom each gets at most an equal part; what it keeps for a slow hop may be as much as both
/// directions of its session have, since mostly one of them moves. So what is lent never exceeds the
/// pool, and nobody waits for those who do not give back.
#[derive(Debug)]
pub(crate) struct Pool {
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
    pub(crate) fn new(limits: &DepotLimits) -> Self {
        let zero = AtomicU64::default;
        let spare = limits.pool.get() - 2 * LEAST * u64::from(limits.room());
        let kernel = limits.kernel.unwrap_or_else(metrics::socket_memory).get();
        Self { spare, directions: zero(), beyond: zero(), lent: zero(), most: zero(), kernel }
    }

    /// There is one direction more.
    pub(crate) fn join(&self) {
        self.directions.fetch_add(1, Ordering::Relaxed);
    }

    /// There is one direction less.
    pub(crate) fn leave(&self) {
        self.directions.fetch_sub(1, Ordering::Relaxed);
    }

    /// What the kernel may hold of one direction at each end: mostly one direction of a session
    /// moves.
    pub(super) fn outside(&self) -> ByteCount {
        ByteCount((self.kernel / self.directions.load(Ordering::Relaxed).max(1)).max(LEAST))
    }

    /// Lends room to one direction, which has none at the moment.
    pub(super) fn take(&self) -> u64 {
        let directions = self.directions.load(Ordering::Relaxed).max(1);
        let want = (self.spare / directions).min(MOST - LEAST);
        let mut got = 0;
        let _ = self.beyond.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |beyond| {
            got = want.min(self.spare.saturating_sub(beyond));
            Some(beyond + got)
        });
        self.lend(LEAST + got);
        LEAST + got
    }

    /// Takes back what was lent.
    pub(super) fn give_back(&self, lent: u64) {
        self.beyond.fetch_sub(lent - LEAST, Ordering::Relaxed);
        self.lent.fetch_sub(lent, Ordering::Relaxed);
    }

    /// Lends a block for bytes that wait for a slow hop, to a direction that keeps `kept` of them: while
    /// that is less than a session's equal part, and something is left.
    pub(super) fn keep(&self, kept: usize) -> bool {
        self.borrow(kept as u64 * KEPT, KEPT)
    }

    /// Takes a block back.
    pub(super) fn unkeep(&self) {
        self.pay_back(KEPT);
    }

    /// A ring has what each direction always has.
    pub(crate) fn open_ring(&self) {
        self.lend(LEAST);
    }

    /// It is over.
    pub(crate) fn close_ring(&self) {
        self.lent.fetch_sub(LEAST, Ordering::Relaxed);
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
            (bytes <= free && held + bytes <= free.saturating_mul(GREED)).then_some(beyond + bytes)
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
        let greed = ((free + 1) * GREED).saturating_sub(blocks) / (GREED + 1);
        free.min(greed).min((self.part() / BLOCK).saturating_sub(blocks))
    }

    /// Lent now, and the most that ever was.
    pub(crate) fn lent(&self) -> (ByteCount, ByteCount) {
        let read = |one: &AtomicU64| ByteCount(one.load(Ordering::Relaxed));
        (read(&self.lent), read(&self.most))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const A: PublicKey = PublicKey([1; 32]);
    const B: PublicKey = PublicKey([2; 32]);

    fn at(seconds: u64) -> Time {
        Time::ZERO + Duration::from_secs(seconds)
    }

    fn reason(result: Result<(), NoRoom>) -> Option<Reason> {
        result.err().map(|no| no.reason)
    }

    #[test]
    fn sessions_are_counted_in_all_and_by_key() {
        let limits = DepotLimits { sessions: 3, key_sessions: 2, ..DepotLimits::default() };
        let mut door = Admission::new(limits);
        assert_eq!(reason(door.admit(at(1), A)), None);
        assert_eq!(reason(door.admit(at(1), A)), None);
        assert_eq!(reason(door.admit(at(1), A)), Some(Reason::Quota));
        assert_eq!(reason(door.admit(at(1), B)), None);
        assert_eq!(reason(door.admit(at(1), B)), Some(Reason::Busy));
        door.leave(&A);
        assert_eq!(reason(door.admit(at(1), B)), None);
        door.drain();
        assert_eq!(reason(door.admit(at(1), A)), Some(Reason::Draining));
    }

    #[test]
    fn bytes_are_counted_by_the_hour() {
        let key_bytes = Some(ByteCount(100));
        let mut door = Admission::new(DepotLimits { key_bytes, ..DepotLimits::default() });
        assert_eq!(reason(door.admit(at(10), A)), None);
        door.moved(&A, ByteCount(100));
        let no = door.admit(at(70), A).expect_err("it had them all");
        assert_eq!((no.reason, no.retry_after), (Reason::Quota, Duration::from_secs(3540)));
        assert_eq!(reason(door.admit(at(70), B)), None);
        assert_eq!(reason(door.admit(at(3610), A)), None);
    }

    #[test]
    fn a_small_pool_rate_and_load_refuse() {
        let pool = ByteCount(4 * LEAST);
        let mut door = Admission::new(DepotLimits { pool, ..DepotLimits::default() });
        assert_eq!(reason(door.admit(at(1), A)), None);
        assert_eq!(reason(door.admit(at(1), A)), None);
        assert_eq!(reason(door.admit(at(1), A)), Some(Reason::Busy));
        let rate = Some(DataRate::from_bps(1000));
        let limits = DepotLimits { rate, load: Some(2.0), ..DepotLimits::default() };
        let mut door = Admission::new(limits);
        door.measured(at(1), DataRate::from_bps(1000), 0.0);
        assert_eq!(reason(door.admit(at(1), A)), Some(Reason::Busy));
        door.measured(at(1), DataRate::from_bps(999), 2.0);
        assert_eq!(reason(door.admit(at(1), A)), Some(Reason::Busy));
        door.measured(at(1), DataRate::from_bps(999), 1.9);
        assert_eq!(reason(door.admit(at(1), A)), None);
    }

    #[test]
    fn who_never_gives_back_leaves_something() {
        let pool = Pool::new(&DepotLimits::default());
        let mut left = pool.spare;
        for stalled in 1..5 {
            pool.join();
            pool.join();
            let mut kept = 0;
            while pool.keep(kept) {
                kept += 1;
            }
            let now = pool.spare - pool.beyond.load(Ordering::Relaxed);
            assert!(now + KEPT >= left / (GREED + 2), "{stalled} leave {now} of {left}");
            assert!(
                stalled > 1 || kept as u64 * KEPT >= pool.spare / 10 * 9,
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
            let limits = DepotLimits { pool: total, sessions, ..DepotLimits::default() };
            let most = 2 * limits.room() as usize;
            let pool = Pool::new(&limits);
            let mut directions: BTreeMap<usize, Option<u64>> = BTreeMap::new();
            let mut kept = [0; 40];
            for (who, what) in steps {
                match (what, directions.contains_key(&who)) {
                    (3 | 4, true) => {
                        let equal = (total.get() / (directions.len() as u64 / 2).max(1)) / KEPT;
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
                        prop_assert!((LEAST..=MOST).contains(&lent));
                        directions.insert(who, Some(lent));
                    }
                    (Some(Some(lent)), 0 | 1) => {
                        pool.give_back(lent);
                        directions.insert(who, None);
                    }
                    _ => {}
                }
                let out: u64 = directions.values().flatten().sum();
                let out = out + kept.iter().sum::<usize>() as u64 * KEPT;
                prop_assert_eq!(pool.lent().0.get(), out);
                prop_assert!(out <= total.get(), "{} of {}", out, total);
            }
        }
    }
}
