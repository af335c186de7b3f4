//! Who is let in while there is room, and how the room is shared. No I/O.

use std::collections::BTreeMap;

use packtrain_session::Reason;
use packtrain_units::{ByteCount, DataRate, Duration, Time};

use super::metrics;
use packtrain_hops::pool::{self, Pool};
use packtrain_identity::pubkey::PublicKey;

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
        pool::sessions(self.pool, self.sessions)
    }

    /// The memory that these limits allow.
    pub(super) fn pool(&self) -> Pool {
        Pool::new(self.pool, self.sessions, self.kernel.unwrap_or_else(metrics::socket_memory))
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

#[cfg(test)]
mod tests {
    use super::*;
    use packtrain_hops::pool::MIN_DIRECTION;

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
        let pool = ByteCount(4 * MIN_DIRECTION);
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
}
