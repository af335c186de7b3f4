//! Kept sessions: their senders have ended, their receivers come later.
//!
//! `store` is one session on the disk, `files` its directory, `ledger` the reserved space per key.
//! `deposit` receives records from a sender or the previous depot, `depositors` tracks those
//! connections, `forward` sends records to the next depots, `forward_turns` limits its connections,
//! `claim` sends records to receivers, and `expiry` removes what is expired.

mod claim;
mod deposit;
mod depositors;
mod expiry;
mod files;
mod forward;
mod forward_turns;
mod ledger;
mod store;

use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use packtrain_os::clock;
use packtrain_session::spool::{Head, Policy};
use packtrain_session::{Hop, Reason, Refusal, ReplayGuard, SessionId};
use packtrain_units::{ByteCount, Duration, Time};
use tokio::sync::watch;

use super::{Depot, Event};
use crate::DepotSpoolEvent;
use packtrain_identity::pubkey::PublicKey;
use packtrain_service::RequestError;
use packtrain_transfer::FailureKind;

pub(super) use claim::claim;
pub(super) use deposit::deposit;
pub(super) use expiry::sweep;

use depositors::Depositors;
use expiry::{Phase, expired};
use files::{Files, Found};
use forward_turns::ForwardTurns;
use ledger::{Ledger, MIN_SESSION_SPACE, QuotaError};
use store::Records;

/// Maximum number of kept sessions, each with two open files until it has ended, and of those of one
/// key.
const MAX_KEPT: (usize, usize) = (4096, 1024);
/// The same limits, including ended sessions that have not expired yet.
const MAX_KNOWN: (usize, usize) = (4 * MAX_KEPT.0, 4 * MAX_KEPT.1);
/// Claims of one session that are remembered, for four minutes, against replays. They have one key,
/// which may use an eighth of this: 16,384.
const MAX_CLAIMS: usize = 8 * 16_384;
/// Additional space that is reserved at once for a stream of unknown length.
const GROWTH_RESERVATION: ByteCount = ByteCount(64 << 20);
/// Suggested pause if the obstacle is short.
const SHORT_RETRY: Duration = Duration::from_secs(1);
/// Suggested pause if its duration is unknown.
const LONG_RETRY: Duration = Duration::from_secs(60);
/// Maximum suggested pause.
const MAX_INTERVAL: Duration = Duration::from_secs(3600);

/// Where and how many sessions are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DepotSpool {
    /// The directory. It belongs to one depot.
    pub dir: PathBuf,
    /// Maximum bytes of all sessions.
    pub quota: ByteCount,
    /// Maximum bytes of the sessions of one key.
    pub key_quota: Option<ByteCount>,
    /// Longest time that a session is kept.
    pub keep: Duration,
    /// Free space that remains on the disk.
    pub free: ByteCount,
}

/// Counters of kept sessions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpoolStats {
    /// Sessions that are kept.
    pub sessions: u64,
    /// Their bytes on the disk.
    pub bytes: ByteCount,
    /// Bytes reserved for them.
    pub reserved: ByteCount,
    /// Sessions that were received completely, so far.
    pub deposited: u64,
    /// Sessions that a next depot has completely, so far.
    pub forwarded: u64,
    /// Bytes sent to receivers, so far.
    pub claimed: ByteCount,
    /// Expired sessions, so far.
    pub expired: u64,
    /// Sessions released by their receivers, so far.
    pub released: u64,
    /// Refused deposits, so far.
    pub refused: u64,
    /// Dropped branches, so far.
    pub dropped: u64,
}

#[derive(Debug, Default)]
struct Counted {
    deposited: AtomicU64,
    forwarded: AtomicU64,
    claimed: AtomicU64,
    expired: AtomicU64,
    released: AtomicU64,
    refused: AtomicU64,
    dropped: AtomicU64,
}

/// One kept session.
pub(super) struct Kept {
    id: SessionId,
    key: PublicKey,
    head: Head,
    records: Records<Files>,
    /// Time since 1970.
    expires: Duration,
    reserved: Mutex<ByteCount>,
    branches: Vec<Branch>,
    depositors: Depositors,
    claims: Mutex<ReplayGuard>,
    /// The event `kept` was reported.
    told: AtomicBool,
    /// A failed removal was reported.
    stuck: AtomicBool,
    /// Since when the session has been expired, by a clock that does not jump.
    expired_since: Mutex<Option<Time>>,
}

/// A next depot that gets its records from this one.
struct Branch {
    node: u8,
    policy: Policy,
    hop: Hop,
    /// Number of records that are durable there; the total number once it is dropped or done.
    have: watch::Sender<u64>,
    stage: Mutex<Stage>,
}

/// The state of a branch.
enum Stage {
    /// No task forwards records.
    Idle,
    /// A task forwards records.
    Running,
    /// It has all records, or was dropped.
    Done,
    /// It was refused; the next connection of a depositor starts it again.
    Left(Refusal),
}

/// The sessions of the depot.
#[derive(Default)]
struct Sessions {
    all: BTreeMap<SessionId, Arc<Kept>>,
    /// Sessions whose directory is being created.
    making: BTreeSet<SessionId>,
}

/// The spool of one depot.
pub(super) struct Spool {
    settings: DepotSpool,
    /// Never held during disk I/O.
    sessions: Mutex<Sessions>,
    ledger: Mutex<Ledger>,
    counted: Counted,
    forwards: ForwardTurns,
    /// Start of the depot, also since 1970.
    began: (Time, Duration),
    /// Locks the directory for this depot.
    _lock: File,
}

/// Why a session was refused.
#[derive(Debug)]
struct Denied {
    reason: Reason,
    retry_after: Option<Duration>,
    text: String,
}

impl Denied {
    fn new(reason: Reason, text: impl Into<String>) -> Self {
        Self { reason, retry_after: None, text: text.into() }
    }
}

impl Kept {
    fn new(
        id: SessionId,
        head: Head,
        files: Files,
        reserved: ByteCount,
        began: (Time, Duration),
    ) -> std::io::Result<(Self, Option<String>)> {
        let (records, damage) = Records::open(id, files)?;
        let session = &head.header.session;
        let branches = session.nodes().into_iter().enumerate();
        let branches = branches.filter(|(_, node)| node.parent == Some(head.node));
        let branches = branches.filter_map(|(n, node)| {
            let (policy, hop) = (node.policy, node.hop.clone());
            let (have, stage) = (watch::Sender::new(0), Mutex::new(Stage::Idle));
            Some(Branch { node: u8::try_from(n).ok()?, policy, hop, have, stage })
        });
        let keep = head.deposit().map_or(Duration::ZERO, |deposit| deposit.keep);
        let progress = records.progress();
        let kept = Self {
            id,
            key: PublicKey(head.header.sender),
            expires: session.sent + keep,
            branches: branches.collect(),
            records,
            reserved: Mutex::new(reserved),
            depositors: Depositors::default(),
            claims: Mutex::new(ReplayGuard::new(began, MAX_CLAIMS)),
            told: AtomicBool::new(progress.all_safe || progress.over),
            stuck: AtomicBool::new(false),
            expired_since: Mutex::new(None),
            head,
        };
        Ok((kept, damage))
    }
}

impl Spool {
    /// Opens a spool with its sessions; also returns warnings about damage.
    pub(super) fn open(settings: DepotSpool) -> Result<(Self, Vec<String>), RequestError> {
        let dir = settings.dir.clone();
        let failed = |e: std::io::Error| {
            RequestError::new(FailureKind::Fatal, format!("the spool {}: {e}", dir.display()))
        };
        let lock = files::lock(&dir).map_err(failed)?;
        let (found, others) = files::list(&dir).map_err(failed)?;
        let mut warnings = Vec::new();
        if !others.is_empty() {
            let (count, first) = (others.len(), &others[0]);
            warnings.push(format!("the spool has {count} foreign files, such as {first}"));
        }
        let mut ledger = Ledger::new(settings.quota, settings.key_quota);
        let mut sessions = Sessions::default();
        let began = (clock::now(), clock::wall());
        for id in found {
            let opened = files::reopen(&dir, id).and_then(|found| match found {
                Found::Unfinished => Ok(None),
                Found::Session(head, files) => {
                    let (kept, damage) = Kept::new(id, *head, files, ByteCount::ZERO, began)?;
                    let size = kept.head.deposit().and_then(|deposit| deposit.size);
                    // A complete session has returned what it announced beyond its records.
                    let progress = kept.records.progress();
                    let size = size.filter(|_| !progress.over && !progress.all_safe);
                    let reserved = size.unwrap_or(kept.records.bytes()).max(MIN_SESSION_SPACE);
                    *kept.reserved.lock() = reserved;
                    Ok(Some((kept, damage)))
                }
            });
            match opened {
                Ok(None) => {}
                Ok(Some((kept, damage))) => {
                    warnings
                        .extend(damage.map(|text| format!("session {id} in the spool: {text}")));
                    ledger.take(kept.key, *kept.reserved.lock());
                    sessions.all.insert(id, Arc::new(kept));
                }
                Err(e) => warnings.push(format!("session {id} in the spool is ignored: {e}")),
            }
        }
        let spool = Self {
            settings,
            sessions: Mutex::new(sessions),
            ledger: Mutex::new(ledger),
            counted: Counted::default(),
            forwards: ForwardTurns::default(),
            began,
            _lock: lock,
        };
        Ok((spool, warnings))
    }

    fn sessions(&self) -> MutexGuard<'_, Sessions> {
        self.sessions.lock()
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock()
    }

    fn find(&self, id: SessionId) -> Option<Arc<Kept>> {
        self.sessions().all.get(&id).cloned()
    }

    /// The session of `head`, if it exists or there is space for it.
    fn admit(&self, head: Head) -> Result<Arc<Kept>, Denied> {
        let deposit = *head
            .deposit()
            .ok_or_else(|| Denied::new(Reason::Malformed, "the header has no deposit"))?;
        let (id, key) = (deposit.session, PublicKey(head.header.sender));
        // The reservation of a session of unknown length grows as it arrives.
        let first = deposit.size.unwrap_or(MIN_SESSION_SPACE).max(MIN_SESSION_SPACE);
        let (abandoned, room) = {
            let mut sessions = self.sessions();
            let abandoned = match sessions.known(&head, id)? {
                Some((kept, true)) => return Ok(kept),
                Some((kept, false)) => Some(kept),
                None => None,
            };
            if !sessions.making.insert(id) {
                let text = "this session is being created here";
                let retry_after = Some(SHORT_RETRY);
                return Err(Denied { retry_after, ..Denied::new(Reason::Busy, text) });
            }
            if let Some(old) = &abandoned {
                sessions.all.remove(&id);
                self.give_back_all(old);
            }
            let room = self.room(&sessions, key);
            (abandoned.is_some(), room.and_then(|()| self.reserve(&sessions, key, first)))
        };
        let removed = if abandoned { files::remove(&self.settings.dir, id) } else { Ok(()) };
        let made = room.and_then(|()| {
            let made = removed.and_then(|()| self.make(head, id, first));
            made.map_err(|e| {
                self.ledger().give_back(key, first);
                disk_failed(&e)
            })
        });
        let mut sessions = self.sessions();
        sessions.making.remove(&id);
        made.inspect(|kept| {
            sessions.all.insert(id, Arc::clone(kept));
        })
    }

    /// Creates the directory of a session.
    fn make(&self, head: Head, id: SessionId, first: ByteCount) -> std::io::Result<Arc<Kept>> {
        let dir = &self.settings.dir;
        let files = files::create(dir, id, &head)?;
        let made = Kept::new(id, head, files, first, self.began);
        if made.is_err() {
            // A remaining directory would block the next try.
            let _ = files::remove(dir, id);
        }
        made.map(|(kept, _)| Arc::new(kept))
    }

    /// Checks whether the key may have one more session.
    fn room(&self, sessions: &Sessions, key: PublicKey) -> Result<(), Denied> {
        let count = |own: bool, over: bool| {
            let all = sessions.all.values().filter(|kept| !own || kept.key == key);
            all.filter(|kept| over || !kept.records.progress().over).count()
        };
        let none = |own: bool, most: usize, what: &str| {
            let (whose, reason) = match own {
                true => ("for one key", Reason::Quota),
                false => ("in all", Reason::Busy),
            };
            let text = format!("the depot {what} {most} sessions {whose}, its limit");
            let retry_after = Some(self.soonest(sessions, own.then_some(key)));
            Err(Denied { reason, retry_after, text })
        };
        for (own, kept, known) in
            [(false, MAX_KEPT.0, MAX_KNOWN.0), (true, MAX_KEPT.1, MAX_KNOWN.1)]
        {
            if count(own, false) >= kept {
                return none(own, kept, "keeps");
            }
            if count(own, true) >= known {
                return none(own, known, "remembers");
            }
        }
        Ok(())
    }

    /// Reserves more bytes, within the quotas and the free space of the disk.
    fn reserve(&self, sessions: &Sessions, key: PublicKey, more: ByteCount) -> Result<(), Denied> {
        let settings = &self.settings;
        let mut ledger = self.ledger();
        let soon = |key| Some(self.soonest(sessions, key));
        ledger.reserve(key, more).map_err(|short| match short {
            QuotaError::Never => {
                let quota = settings.key_quota.unwrap_or(settings.quota).min(settings.quota);
                let text = format!("the depot keeps at most {quota} for one key, this is {more}");
                Denied::new(Reason::Forbidden, text)
            }
            QuotaError::Key => {
                let text = format!("this key's space in the spool has less than {more} left");
                Denied { reason: Reason::Quota, retry_after: soon(Some(key)), text }
            }
            QuotaError::Spool => {
                let text = format!("the spool has less than {more} left");
                Denied { reason: Reason::Busy, retry_after: soon(None), text }
            }
        })?;
        let stored: ByteCount = sessions.all.values().map(|kept| kept.records.bytes()).sum();
        let to_come = ledger.used().saturating_sub(stored);
        let left = rustix::fs::statvfs(&settings.dir)
            .map_or(ByteCount::ZERO, |vfs| ByteCount(vfs.f_bavail.saturating_mul(vfs.f_frsize)));
        let needed = to_come.get().saturating_add(settings.free.get());
        if needed > left.get() {
            ledger.give_back(key, more);
            let text = format!("the depot's disk has {left} free, too little for {more} more");
            return Err(Denied { reason: Reason::Busy, retry_after: soon(None), text });
        }
        Ok(())
    }

    /// Reserves space for a record of a session of unknown length.
    fn grow(&self, kept: &Kept, record: ByteCount) -> Result<(), Denied> {
        let need = kept.records.bytes() + record;
        if need <= *kept.reserved.lock() {
            return Ok(());
        }
        let deposit = kept.head.deposit();
        if deposit.is_some_and(|deposit| deposit.size.is_some()) {
            let text = "the session is longer than announced";
            return Err(Denied::new(Reason::Malformed, text));
        }
        let sessions = self.sessions();
        // A reservation for a session that has ended meanwhile would never be returned.
        let same = |one: &Arc<Kept>| std::ptr::eq(Arc::as_ptr(one), kept);
        if kept.is_over() || !sessions.all.get(&kept.id).is_some_and(same) {
            return Err(kept.over());
        }
        self.ledger().fits(need).map_err(|text| Denied::new(Reason::Forbidden, text))?;
        let more = GROWTH_RESERVATION.min(self.ledger().left(kept.key)).max(record);
        self.reserve(&sessions, kept.key, more)?;
        *kept.reserved.lock() += more;
        Ok(())
    }

    /// Returns the whole reservation of a session that is no longer here. Who still holds the session
    /// finds nothing to return.
    fn give_back_all(&self, kept: &Kept) {
        let reserved = std::mem::take(&mut *kept.reserved.lock());
        self.ledger().give_back(kept.key, reserved);
    }

    /// Returns the surplus reservation of a complete session.
    fn release_surplus(&self, kept: &Kept) {
        let mut reserved = kept.reserved.lock();
        let need = kept.records.bytes().max(MIN_SESSION_SPACE);
        if *reserved > need {
            self.ledger().give_back(kept.key, reserved.saturating_sub(need));
            *reserved = need;
        }
    }

    /// Time until the next session (of a key) expires, so that space may be free.
    fn soonest(&self, sessions: &Sessions, key: Option<PublicKey>) -> Duration {
        let now = clock::wall();
        let own = sessions.all.values().filter(|kept| key.is_none_or(|key| kept.key == key));
        let ends = own.map(|kept| kept.expires.saturating_sub(now)).min();
        ends.unwrap_or(LONG_RETRY).clamp(Duration::from_secs(1), MAX_INTERVAL)
    }

    /// Removes the records of a session. The session stays known until it expires.
    fn release(&self, kept: &Kept) -> std::io::Result<()> {
        kept.records.end()?;
        // The lock prevents a concurrent reservation for it.
        let sessions = self.sessions();
        self.release_surplus(kept);
        drop(sessions);
        self.counted.released.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    pub(super) fn stats(&self) -> SpoolStats {
        let read = |one: &AtomicU64| one.load(Ordering::Relaxed);
        let (sessions, bytes) = {
            let sessions = self.sessions();
            let live = sessions.all.values().filter(|kept| !kept.records.progress().over);
            let bytes = live.clone().map(|kept| kept.records.bytes()).sum();
            (live.count() as u64, bytes)
        };
        let counted = &self.counted;
        SpoolStats {
            sessions,
            bytes,
            reserved: self.ledger().used(),
            deposited: read(&counted.deposited),
            forwarded: read(&counted.forwarded),
            claimed: ByteCount(read(&counted.claimed)),
            expired: read(&counted.expired),
            released: read(&counted.released),
            refused: read(&counted.refused),
            dropped: read(&counted.dropped),
        }
    }
}

fn disk_failed(error: &std::io::Error) -> Denied {
    let full = packtrain_disk::classify(error).is_full();
    let text = if full { "the depot's disk is full".to_owned() } else { format!("{error}") };
    Denied { reason: Reason::Busy, retry_after: Some(LONG_RETRY), text }
}

impl Sessions {
    /// The session of `head`, if it exists, and whether it has the same position in its plan. A
    /// session at another position that is empty is abandoned: an observer may have replayed its
    /// header under a wrong position.
    fn known(&self, head: &Head, id: SessionId) -> Result<Option<(Arc<Kept>, bool)>, Denied> {
        let Some(kept) = self.all.get(&id) else { return Ok(None) };
        if kept.head.header != head.header {
            let text = "another session has this id here";
            return Err(Denied::new(Reason::Stale, text));
        }
        if kept.is_over() {
            return Err(kept.over());
        }
        if kept.head.node == head.node {
            return Ok(Some((Arc::clone(kept), true)));
        }
        if kept.records.abandon() {
            return Ok(Some((Arc::clone(kept), false)));
        }
        Err(Denied::new(Reason::Loop, "the tree passes this depot twice"))
    }
}

/// Resumes the forwarding that an earlier run left unfinished.
pub(super) fn resume(depot: &Arc<Depot>, spool: &Arc<Spool>) {
    let all: Vec<_> = spool.sessions().all.values().cloned().collect();
    for kept in all {
        forward::start(depot, spool, &kept);
    }
}

/// Syncs received records, and does the work of a complete session once.
async fn sync(depot: &Depot, spool: &Spool, kept: &Arc<Kept>) -> std::io::Result<()> {
    let working = Arc::clone(kept);
    let synced = tokio::task::spawn_blocking(move || working.records.sync()).await;
    let progress = synced.map_err(std::io::Error::other)??;
    if progress.all_safe && !progress.over && !kept.told.swap(true, Ordering::Relaxed) {
        spool.release_surplus(kept);
        spool.counted.deposited.fetch_add(1, Ordering::Relaxed);
        report(depot, kept, "kept", (String::new(), progress.bytes));
    }
    Ok(())
}

/// Reports an event of a session.
fn report(depot: &Depot, kept: &Kept, what: &'static str, (place, bytes): (String, ByteCount)) {
    depot.report(Event::Kept(DepotSpoolEvent {
        what,
        session: kept.id.to_string(),
        key: kept.key.fingerprint().to_string(),
        bytes,
        place,
    }));
}

#[cfg(test)]
mod tests;
