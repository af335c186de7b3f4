//! Sessions that are kept: their senders leave, their receivers come later.
//!
//! `store` is one session on the disk, `files` its directory, `ledger` who has how much room;
//! `deposit` takes records from a sender or the depot before, `depositors` are those connections,
//! `forward` passes records on to the depots behind, `claim` hands them out.

mod claim;
mod deposit;
mod depositors;
mod files;
mod forward;
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
use packtrain_units::{ByteCount, Duration};
use tokio::sync::{Semaphore, watch};

use super::{Depot, Told};
use crate::DepotKept;
use packtrain_identity::pubkey::PublicKey;
use packtrain_service::RequestError;
use packtrain_transfer::FailureKind;

pub(super) use claim::claim;
pub(super) use deposit::deposit;

use depositors::Depositors;
use files::{Files, Found};
use ledger::{LEAST, Ledger, Short};
use store::Records;

/// Sessions kept at a time, each with two open files, and those of one key.
const MAX_KEPT: (usize, usize) = (4096, 1024);
/// The same with those that are over and whose time is not.
const MAX_KNOWN: (usize, usize) = (4 * MAX_KEPT.0, 4 * MAX_KEPT.1);
/// Connections to depots behind at a time; more wait for their turn.
const MAX_FORWARDS: usize = 256;
/// Claims of one session that are remembered, so that none comes twice: of four minutes. They have one
/// key, which has an eighth of this: 16,384.
const MAX_CLAIMS: usize = 8 * 16_384;
/// How much more room is reserved at once for a stream whose length nobody knows.
const GROW: ByteCount = ByteCount(64 << 20);
/// When to come again where it takes no time.
const SOON: Duration = Duration::from_secs(1);
/// When to come again where nobody knows.
const LATER: Duration = Duration::from_secs(60);
/// The longest wait that is told.
const MAX_INTERVAL: Duration = Duration::from_secs(3600);

/// Where sessions are kept, and how many.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DepotSpool {
    /// The directory; one depot has it alone.
    pub dir: PathBuf,
    /// The most bytes of all sessions.
    pub quota: ByteCount,
    /// The most bytes of one key's.
    pub key_quota: Option<ByteCount>,
    /// The longest time that a session is kept.
    pub keep: Duration,
    /// Bytes of the disk that are left free.
    pub free: ByteCount,
}

/// What is kept and became of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpoolStats {
    /// Sessions that are kept.
    pub sessions: u64,
    /// Bytes that they have.
    pub bytes: ByteCount,
    /// Bytes that are set aside for them.
    pub reserved: ByteCount,
    /// Sessions of which everything was taken in, so far.
    pub deposited: u64,
    /// Sessions of which a depot behind has everything, so far.
    pub forwarded: u64,
    /// Bytes that were claimed, so far.
    pub claimed: ByteCount,
    /// Sessions whose time was over, so far.
    pub expired: u64,
    /// Sessions that their receivers gave up, so far.
    pub released: u64,
    /// Deposits refused, so far.
    pub refused: u64,
    /// Branches dropped, so far.
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

/// One session that is kept.
pub(super) struct Kept {
    id: SessionId,
    key: PublicKey,
    head: Head,
    records: Records<Files>,
    /// Since 1970.
    expires: Duration,
    reserved: Mutex<ByteCount>,
    branches: Vec<Branch>,
    depositors: Depositors,
    claims: Mutex<ReplayGuard>,
    /// It was told that everything is safe.
    told: AtomicBool,
    /// It was told that it cannot be removed.
    stuck: AtomicBool,
}

/// A depot that has its records from this one.
struct Branch {
    node: u8,
    policy: Policy,
    hop: Hop,
    /// Records that are safe there; all of those there ever will be once it is dropped or done.
    have: watch::Sender<u64>,
    stage: Mutex<Stage>,
}

/// What becomes of a branch.
enum Stage {
    /// Nobody passes anything on.
    Idle,
    /// Somebody does.
    Running,
    /// It has all, or was dropped.
    Done,
    /// It is left, until who brings the session does so again.
    Left(Refusal),
}

/// What the depot knows of.
#[derive(Default)]
struct Sessions {
    all: BTreeMap<SessionId, Arc<Kept>>,
    /// Those whose directory is being made.
    making: BTreeSet<SessionId>,
}

/// The sessions of one depot.
pub(super) struct Spool {
    settings: DepotSpool,
    /// Held for no longer than it takes to look: never while a disk works.
    sessions: Mutex<Sessions>,
    ledger: Mutex<Ledger>,
    counted: Counted,
    forwards: Semaphore,
    /// When it began, since 1970.
    began: Duration,
    /// Held for as long as this depot has the directory.
    _lock: File,
}

/// Why a session is not taken.
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
        began: Duration,
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
            head,
        };
        Ok((kept, damage))
    }

    fn is_over(&self) -> bool {
        self.records.progress().over || clock::wall() >= self.expires
    }
}

impl Spool {
    /// Opens a spool with all that is in it; also says what is wrong with it.
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
            warnings
                .push(format!("the spool has {count} files of somebody else's, such as {first}"));
        }
        let mut ledger = Ledger::new(settings.quota, settings.key_quota);
        let mut sessions = Sessions::default();
        let began = clock::wall();
        for id in found {
            let opened = files::reopen(&dir, id).and_then(|found| match found {
                Found::Unfinished => Ok(None),
                Found::Session(head, files) => {
                    let (kept, damage) = Kept::new(id, *head, files, ByteCount::ZERO, began)?;
                    let size = kept.head.deposit().and_then(|deposit| deposit.size);
                    let size = if kept.records.progress().over { None } else { size };
                    let reserved = size.unwrap_or(kept.records.bytes()).max(LEAST);
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
                Err(e) => warnings.push(format!("session {id} in the spool is left alone: {e}")),
            }
        }
        let spool = Self {
            settings,
            sessions: Mutex::new(sessions),
            ledger: Mutex::new(ledger),
            counted: Counted::default(),
            forwards: Semaphore::new(MAX_FORWARDS),
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

    /// The session of `head`, if it is here already or there is room.
    fn admit(&self, head: Head) -> Result<Arc<Kept>, Denied> {
        let deposit = *head
            .deposit()
            .ok_or_else(|| Denied::new(Reason::Malformed, "nothing is deposited"))?;
        let (id, key) = (deposit.session, PublicKey(head.header.sender));
        // Room for one that has no end yet grows as it comes.
        let first = deposit.size.unwrap_or(LEAST).max(LEAST);
        let (forsaken, room) = {
            let mut sessions = self.sessions();
            let forsaken = match sessions.known(&head, id)? {
                Some((kept, true)) => return Ok(kept),
                Some((kept, false)) => Some(kept),
                None => None,
            };
            if !sessions.making.insert(id) {
                let text = "this session is just beginning here";
                let retry_after = Some(SOON);
                return Err(Denied { retry_after, ..Denied::new(Reason::Busy, text) });
            }
            if let Some(old) = &forsaken {
                sessions.all.remove(&id);
                let reserved = *old.reserved.lock();
                self.ledger().give_back(old.key, reserved);
            }
            let room = self.room(&sessions, key);
            (forsaken.is_some(), room.and_then(|()| self.reserve(&sessions, key, first)))
        };
        let removed = if forsaken { files::remove(&self.settings.dir, id) } else { Ok(()) };
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

    /// Makes a session's directory.
    fn make(&self, head: Head, id: SessionId, first: ByteCount) -> std::io::Result<Arc<Kept>> {
        let dir = &self.settings.dir;
        let files = files::create(dir, id, &head)?;
        let made = Kept::new(id, head, files, first, self.began);
        if made.is_err() {
            // Else it would be in the way of the next try.
            let _ = files::remove(dir, id);
        }
        made.map(|(kept, _)| Arc::new(kept))
    }

    /// Whether there may be one session more of this key.
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
            let text = format!("the depot {what} {most} sessions {whose}, as many as it does");
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

    /// Reserves so much more, within quotas and what the disk has.
    fn reserve(&self, sessions: &Sessions, key: PublicKey, more: ByteCount) -> Result<(), Denied> {
        let settings = &self.settings;
        let mut ledger = self.ledger();
        let soon = |key| Some(self.soonest(sessions, key));
        ledger.reserve(key, more).map_err(|short| match short {
            Short::Never => {
                let quota = settings.key_quota.unwrap_or(settings.quota).min(settings.quota);
                let text = format!("the depot keeps at most {quota} for one key, this is {more}");
                Denied::new(Reason::Forbidden, text)
            }
            Short::Key => {
                let text = format!("this key's room in the spool does not have {more} left");
                Denied { reason: Reason::Quota, retry_after: soon(Some(key)), text }
            }
            Short::Spool => {
                let text = format!("the spool does not have {more} left");
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

    /// Makes room for a record of a session whose length nobody knows.
    fn grow(&self, kept: &Kept, record: ByteCount) -> Result<(), Denied> {
        let need = kept.records.bytes() + record;
        if need <= *kept.reserved.lock() {
            return Ok(());
        }
        let deposit = kept.head.deposit();
        if deposit.is_some_and(|deposit| deposit.size.is_some()) {
            let text = "the session is longer than it was announced to be";
            return Err(Denied::new(Reason::Malformed, text));
        }
        let sessions = self.sessions();
        // Nobody would give back what one that has ended meanwhile reserves.
        let same = |one: &Arc<Kept>| std::ptr::eq(Arc::as_ptr(one), kept);
        if kept.is_over() || !sessions.all.get(&kept.id).is_some_and(same) {
            return Err(Denied::new(Reason::Absent, "this session is over"));
        }
        self.ledger().fits(need).map_err(|text| Denied::new(Reason::Forbidden, text))?;
        let more = GROW.min(self.ledger().left(kept.key)).max(record);
        self.reserve(&sessions, kept.key, more)?;
        *kept.reserved.lock() += more;
        Ok(())
    }

    /// What was set aside too much for a session that is complete.
    fn settle(&self, kept: &Kept) {
        let mut reserved = kept.reserved.lock();
        let need = kept.records.bytes().max(LEAST);
        if *reserved > need {
            self.ledger().give_back(kept.key, reserved.saturating_sub(need));
            *reserved = need;
        }
    }

    /// When the next session (of a key) ends, and room may be there.
    fn soonest(&self, sessions: &Sessions, key: Option<PublicKey>) -> Duration {
        let now = clock::wall();
        let own = sessions.all.values().filter(|kept| key.is_none_or(|key| kept.key == key));
        let ends = own.map(|kept| kept.expires.saturating_sub(now)).min();
        ends.unwrap_or(LATER).clamp(Duration::from_secs(1), MAX_INTERVAL)
    }

    /// Lets a session's records go; that it was here is known until its time is over.
    fn release(&self, kept: &Kept) -> std::io::Result<()> {
        kept.records.end()?;
        // Nobody reserves more for it at the same time.
        let sessions = self.sessions();
        self.settle(kept);
        drop(sessions);
        self.counted.released.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Removes what is past its time.
    fn sweep(&self) -> Vec<Swept> {
        let now = clock::wall();
        let past: Vec<_> = {
            let mut sessions = self.sessions();
            let past = sessions.all.values().filter(|kept| kept.expires <= now);
            let past: Vec<_> = past.cloned().collect();
            for kept in &past {
                sessions.all.remove(&kept.id);
            }
            past
        };
        let removed = past.into_iter().map(|kept| {
            let (bytes, over) = (kept.records.bytes(), kept.records.progress().over);
            let gone = kept.records.end();
            if gone.is_ok() && !over {
                self.counted.expired.fetch_add(1, Ordering::Relaxed);
            }
            let expired = (gone.is_ok() && !over).then_some(bytes);
            let gone = gone.and_then(|()| files::remove(&self.settings.dir, kept.id));
            if gone.is_ok() {
                let reserved = *kept.reserved.lock();
                self.ledger().give_back(kept.key, reserved);
            } else {
                // Another time: until then it has its room.
                self.sessions().all.insert(kept.id, Arc::clone(&kept));
            }
            Swept { kept, expired, gone }
        });
        removed.collect()
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
    Denied { reason: Reason::Busy, retry_after: Some(LATER), text }
}

/// A session whose time is over.
struct Swept {
    kept: Arc<Kept>,
    /// The bytes that somebody could have claimed until now.
    expired: Option<ByteCount>,
    gone: std::io::Result<()>,
}

impl Sessions {
    /// The session of `head` if it is here, and whether as the same depot of its plan. If not, it has
    /// nothing and is over: a header can be replayed under another position by who first saw it.
    fn known(&self, head: &Head, id: SessionId) -> Result<Option<(Arc<Kept>, bool)>, Denied> {
        let Some(kept) = self.all.get(&id) else { return Ok(None) };
        if kept.head.header != head.header {
            let text = "another session has this number here";
            return Err(Denied::new(Reason::Stale, text));
        }
        if kept.is_over() {
            return Err(Denied::new(Reason::Absent, "this session is over"));
        }
        if kept.head.node == head.node {
            return Ok(Some((Arc::clone(kept), true)));
        }
        if kept.records.forsake() {
            return Ok(Some((Arc::clone(kept), false)));
        }
        Err(Denied::new(Reason::Loop, "the tree comes by this depot twice"))
    }
}

/// Goes on with what a depot before left to be passed on.
pub(super) fn resume(depot: &Arc<Depot>, spool: &Arc<Spool>) {
    let all: Vec<_> = spool.sessions().all.values().cloned().collect();
    for kept in all {
        forward::start(depot, spool, &kept);
    }
}

/// Removes what is past its time: to be called now and then.
pub(super) fn sweep(depot: &Depot, spool: &Spool) {
    for Swept { kept, expired, gone } in tokio::task::block_in_place(|| spool.sweep()) {
        if let Err(e) = gone
            && !kept.stuck.swap(true, Ordering::Relaxed)
        {
            depot.warn(format!("session {} in the spool: {e}", kept.id));
        }
        if let Some(bytes) = expired {
            tell(depot, &kept, "expired", (String::new(), bytes));
        }
    }
}

/// Makes safe what came, and does once what is to be done when that is all.
async fn sync(depot: &Depot, spool: &Spool, kept: &Arc<Kept>) -> std::io::Result<()> {
    let working = Arc::clone(kept);
    let synced = tokio::task::spawn_blocking(move || working.records.sync()).await;
    let progress = synced.map_err(std::io::Error::other)??;
    if progress.all_safe && !progress.over && !kept.told.swap(true, Ordering::Relaxed) {
        spool.settle(kept);
        spool.counted.deposited.fetch_add(1, Ordering::Relaxed);
        tell(depot, kept, "kept", (String::new(), progress.bytes));
    }
    Ok(())
}

/// Tells of a session, of whom it is about and how much there is.
fn tell(depot: &Depot, kept: &Kept, what: &'static str, (place, bytes): (String, ByteCount)) {
    depot.tell(Told::Kept(DepotKept {
        what,
        session: kept.id.to_string(),
        key: kept.key.fingerprint().to_string(),
        bytes,
        place,
    }));
}

#[cfg(test)]
mod tests;
