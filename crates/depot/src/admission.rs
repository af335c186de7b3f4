//! Admission of sessions within the depot's limits. No I/O.

use std::collections::BTreeMap;

use packtrain_session::Reason;
use packtrain_units::{ByteCount, DataRate, Duration, Time};

use super::metrics;
use packtrain_hops::pool::{self, Pool};
use packtrain_identity::pubkey::PublicKey;

/// The period in which the bytes of a key are counted.
const HOUR: Duration = Duration::from_secs(3600);
/// Suggested pause before the next try, if the right one is unknown.
const SHORT_RETRY: Duration = Duration::from_secs(2);

/// The limits of a depot.
#[derive(Clone, Debug, PartialEq)]
pub struct DepotLimits {
    /// Maximum concurrent sessions.
    pub sessions: u32,
    /// Maximum concurrent sessions of one key.
    pub key_sessions: u32,
    /// Maximum bytes of one key in an hour; `None` for no limit.
    pub key_bytes: Option<ByteCount>,
    /// Memory for the bytes that this process relays.
    pub pool: ByteCount,
    /// Approximate limit of the kernel's socket buffers when there are many connections; a default
    /// for this machine if `None`.
    pub kernel: Option<ByteCount>,
    /// New sessions are refused at this rate.
    pub rate: Option<DataRate>,
    /// New sessions are refused at this load per core.
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
    /// The number of sessions that the limit and the pool allow.
    pub(super) fn room(&self) -> u32 {
        pool::sessions(self.pool, self.sessions)
    }

    /// The memory pool of these limits.
    pub(super) fn pool(&self) -> Pool {
        Pool::new(self.pool, self.sessions, self.kernel.unwrap_or_else(metrics::socket_memory))
    }
}

/// A refusal, before the depot's position is added.
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

/// The admitted sessions.
#[derive(Debug)]
pub(super) struct Admission {
    limits: DepotLimits,
    accounts: BTreeMap<PublicKey, Account>,
    /// Running claims of the sessions that each key has deposited.
    claims: BTreeMap<PublicKey, u32>,
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
            claims: BTreeMap::new(),
            sessions: 0,
            rate: DataRate::ZERO,
            load: 0.0,
            draining: false,
        }
    }

    /// Number of sessions.
    pub(super) fn sessions(&self) -> u32 {
        self.sessions
    }

    /// Refuses all new sessions from now on.
    pub(super) fn drain(&mut self) {
        self.draining = true;
    }

    /// Sets the measured rate and load of this depot.
    pub(super) fn measured(&mut self, now: Time, rate: DataRate, load: f64) {
        (self.rate, self.load) = (rate, load);
        self.accounts.retain(|_, one| one.sessions > 0 || now.since(one.hour) < HOUR);
    }

    /// Admits a session of `key`, until [`Admission::leave`].
    pub(super) fn admit(&mut self, now: Time, key: PublicKey) -> Result<(), NoRoom> {
        let busy =
            |text: String| Err(NoRoom { reason: Reason::Busy, retry_after: SHORT_RETRY, text });
        if self.draining {
            let text = "this depot is about to end".to_owned();
            return Err(NoRoom { reason: Reason::Draining, retry_after: HOUR, text });
        }
        let room = self.limits.room();
        if self.sessions >= room {
            return busy(format!("the depot has {room} sessions, its limit"));
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
            let text = format!("this key has {} sessions, its limit", account.sessions);
            return quota(text, SHORT_RETRY);
        }
        if let Some(most) = self.limits.key_bytes.filter(|most| account.bytes >= *most) {
            let text = format!("this key has used its {most} of this hour");
            return quota(text, HOUR.saturating_sub(now.since(account.hour)));
        }
        account.sessions += 1;
        self.sessions += 1;
        Ok(())
    }

    /// Admits a claim by `capability` of a session that `depositor` has deposited, until
    /// [`Admission::leave_claim`]. A depositor makes as many capabilities as it likes, so the claims
    /// of all its sessions count together too. They count apart from its own sessions: whoever has
    /// its tickets cannot keep it from depositing.
    pub(super) fn admit_claim(
        &mut self,
        now: Time,
        capability: PublicKey,
        depositor: PublicKey,
    ) -> Result<(), NoRoom> {
        let claims = self.claims.get(&depositor).copied().unwrap_or_default();
        if claims >= self.limits.key_sessions {
            let text = format!("the sessions of this sender have {claims} claims, their limit");
            return Err(NoRoom { reason: Reason::Quota, retry_after: SHORT_RETRY, text });
        }
        self.admit(now, capability)?;
        self.claims.insert(depositor, claims + 1);
        Ok(())
    }

    /// Ends a claim.
    pub(super) fn leave_claim(&mut self, capability: &PublicKey, depositor: &PublicKey) {
        self.leave(capability);
        if let Some(claims) = self.claims.get_mut(depositor) {
            *claims = claims.saturating_sub(1);
            if *claims == 0 {
                self.claims.remove(depositor);
            }
        }
    }

    /// Adds bytes that a session of `key` moved.
    pub(super) fn moved(&mut self, key: &PublicKey, bytes: ByteCount) {
        if let Some(account) = self.accounts.get_mut(key) {
            account.bytes += bytes;
        }
    }

    /// Ends a session of `key`.
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
    fn claims_are_counted_by_depositor_too() {
        const TICKETS: [PublicKey; 3] =
            [PublicKey([3; 32]), PublicKey([4; 32]), PublicKey([5; 32])];
        let limits = DepotLimits { sessions: 8, key_sessions: 2, ..DepotLimits::default() };
        let mut door = Admission::new(limits);
        let mut claim =
            |ticket: usize, depositor| reason(door.admit_claim(at(1), TICKETS[ticket], depositor));
        assert_eq!(claim(0, A), None);
        assert_eq!(claim(1, A), None);
        assert_eq!(claim(2, A), Some(Reason::Quota), "a third ticket of the same depositor");
        assert_eq!(claim(2, B), None, "another depositor");
        // Claims leave a depositor its own sessions.
        assert_eq!(reason(door.admit(at(1), A)), None);
        door.leave_claim(&TICKETS[0], &A);
        assert_eq!(reason(door.admit_claim(at(1), TICKETS[2], A)), None, "one has ended");
        // A claim that is refused counts nowhere.
        assert_eq!(reason(door.admit_claim(at(1), TICKETS[2], B)), Some(Reason::Quota));
        door.leave_claim(&TICKETS[1], &A);
        door.leave_claim(&TICKETS[2], &A);
        door.leave_claim(&TICKETS[2], &B);
        door.leave(&A);
        assert!(door.claims.is_empty());
        assert_eq!(door.sessions(), 0);
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
