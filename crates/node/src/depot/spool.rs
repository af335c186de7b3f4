//! Sessions that are kept: their senders leave, their receivers come later.
//!
//! `store` is one session on the disk, `files` its directory, `ledger` who has how much room;
//! `deposit` takes records from a sender or the depot before, `forward` passes them on to the
//! depots behind, `claim` hands them out.

mod claim;
mod deposit;
mod files;
mod forward;
mod ledger;
mod store;

use std::collections::BTreeMap;
use std::fs::File;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use packtrain_io::clock;
use packtrain_proto::session::spool::{Head, Policy};
use packtrain_proto::session::{Hop, Reason, SessionId};
use packtrain_units::{ByteCount, Duration};
use tokio::sync::watch;

use super::{Depot, Told};
use crate::api::{DepotKept, NodeError};
use crate::pubkey::PublicKey;
use packtrain_transfer::FailureKind;

pub(super) use claim::claim;
pub(super) use deposit::deposit;

use files::{Files, Found};
use ledger::{LEAST, Ledger, Short};
use store::Records;

/// Sessions kept at a time, each with two open files.
const MOST_KEPT: usize = 4096;
/// How much more room is reserved at once for a stream whose length nobody knows.
const GROW: ByteCount = ByteCount(64 << 20);
/// When to come again where nobody knows.
const LATER: Duration = Duration::from_secs(60);
/// The longest wait that is told.
const LONGEST: Duration = Duration::from_secs(3600);

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
    /// Whether somebody passes it on.
    started: Mutex<bool>,
}

/// A depot that has its records from this one.
struct Branch {
    node: u8,
    policy: Policy,
    hop: Hop,
    /// Records that are safe there; all of those there ever will be once it is left or done.
    have: watch::Sender<u64>,
}

/// The sessions of one depot.
pub(super) struct Spool {
    settings: DepotSpool,
    sessions: Mutex<BTreeMap<SessionId, Arc<Kept>>>,
    ledger: Mutex<Ledger>,
    counted: Counted,
    /// Held for as long as this depot has the directory.
    _lock: File,
}

/// Why a session is not taken.
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
    ) -> std::io::Result<(Self, Option<String>)> {
        let (records, damage) = Records::open(id, files)?;
        let session = &head.header.session;
        let branches = session.nodes().into_iter().enumerate();
        let branches = branches.filter(|(_, node)| node.parent == Some(head.node));
        let branches = branches.filter_map(|(n, node)| {
            let (policy, hop) = (node.policy, node.hop.clone());
            Some(Branch { node: u8::try_from(n).ok()?, policy, hop, have: watch::Sender::new(0) })
        });
        let keep = head.deposit().map_or(Duration::ZERO, |deposit| deposit.keep);
        let kept = Self {
            id,
            key: PublicKey(head.header.sender),
            expires: session.sent + keep,
            branches: branches.collect(),
            records,
            reserved: Mutex::new(reserved),
            started: Mutex::new(false),
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
    pub(super) fn open(settings: DepotSpool) -> Result<(Self, Vec<String>), NodeError> {
        let dir = settings.dir.clone();
        let failed = |e: std::io::Error| {
            NodeError::new(FailureKind::Fatal, format!("the spool {}: {e}", dir.display()))
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
        let mut sessions = BTreeMap::new();
        for id in found {
            let opened = files::reopen(&dir, id).and_then(|found| match found {
                Found::Unfinished => Ok(None),
                Found::Session(head, files) => {
                    let (kept, damage) = Kept::new(id, *head, files, ByteCount::ZERO)?;
                    let size = kept.head.deposit().and_then(|deposit| deposit.size);
                    let size = if kept.records.progress().over { None } else { size };
                    let reserved = size.unwrap_or(kept.records.bytes()).max(LEAST);
                    *kept.reserved.lock().expect("no holder panics") = reserved;
                    Ok(Some((kept, damage)))
                }
            });
            match opened {
                Ok(None) => {}
                Ok(Some((kept, damage))) => {
                    warnings
                        .extend(damage.map(|text| format!("session {id} in the spool: {text}")));
                    ledger.take(kept.key, *kept.reserved.lock().expect("no holder panics"));
                    sessions.insert(id, Arc::new(kept));
                }
                Err(e) => warnings.push(format!("session {id} in the spool is left alone: {e}")),
            }
        }
        let spool = Self {
            settings,
            sessions: Mutex::new(sessions),
            ledger: Mutex::new(ledger),
            counted: Counted::default(),
            _lock: lock,
        };
        Ok((spool, warnings))
    }

    fn sessions(&self) -> MutexGuard<'_, BTreeMap<SessionId, Arc<Kept>>> {
        self.sessions.lock().expect("no holder panics")
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().expect("no holder panics")
    }

    fn find(&self, id: SessionId) -> Option<Arc<Kept>> {
        self.sessions().get(&id).cloned()
    }

    /// The session of `head`, if it is here already or there is room.
    fn admit(&self, head: Head) -> Result<Arc<Kept>, Denied> {
        let deposit = *head
            .deposit()
            .ok_or_else(|| Denied::new(Reason::Malformed, "nothing is deposited"))?;
        let mut sessions = self.sessions();
        if let Some(kept) = sessions.get(&deposit.session) {
            return match kept.head.header == head.header {
                _ if kept.is_over() => Err(Denied::new(Reason::Absent, "this session is over")),
                true if kept.head.node == head.node => Ok(Arc::clone(kept)),
                true => Err(Denied::new(Reason::Loop, "the tree comes by this depot twice")),
                false => {
                    let text = "another session has this number here";
                    Err(Denied::new(Reason::Stale, text))
                }
            };
        }
        let key = PublicKey(head.header.sender);
        if sessions.len() >= MOST_KEPT {
            let text = format!("the depot keeps {MOST_KEPT} sessions, as many as it can");
            let retry_after = Some(self.soonest(&sessions, None));
            return Err(Denied { reason: Reason::Busy, retry_after, text });
        }
        // Room for one that has no end yet grows as it comes.
        let first = deposit.size.unwrap_or(LEAST).max(LEAST);
        self.reserve(&sessions, key, first)?;
        let made = files::create(&self.settings.dir, deposit.session, &head)
            .and_then(|files| Kept::new(deposit.session, head, files, first));
        match made {
            Ok((kept, _)) => {
                let kept = Arc::new(kept);
                sessions.insert(deposit.session, Arc::clone(&kept));
                Ok(kept)
            }
            Err(e) => {
                self.ledger().give_back(key, first);
                Err(disk_failed(&e))
            }
        }
    }

    /// Reserves so much more, within quotas and what the disk has.
    fn reserve(
        &self,
        sessions: &BTreeMap<SessionId, Arc<Kept>>,
        key: PublicKey,
        more: ByteCount,
    ) -> Result<(), Denied> {
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
        let stored: ByteCount = sessions.values().map(|kept| kept.records.bytes()).sum();
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
        if need <= *kept.reserved.lock().expect("no holder panics") {
            return Ok(());
        }
        let deposit = kept.head.deposit();
        if deposit.is_some_and(|deposit| deposit.size.is_some()) {
            let text = "the session is longer than it was announced to be";
            return Err(Denied::new(Reason::Malformed, text));
        }
        let sessions = self.sessions();
        self.reserve(&sessions, kept.key, GROW)?;
        *kept.reserved.lock().expect("no holder panics") += GROW;
        Ok(())
    }

    /// What was set aside too much for a session that is complete.
    fn settle(&self, kept: &Kept) {
        let mut reserved = kept.reserved.lock().expect("no holder panics");
        let need = kept.records.bytes().max(LEAST);
        if *reserved > need {
            self.ledger().give_back(kept.key, reserved.saturating_sub(need));
            *reserved = need;
        }
    }

    /// When the next session (of a key) ends, and room may be there.
    fn soonest(
        &self,
        sessions: &BTreeMap<SessionId, Arc<Kept>>,
        key: Option<PublicKey>,
    ) -> Duration {
        let now = clock::wall();
        let own = sessions.values().filter(|kept| key.is_none_or(|key| kept.key == key));
        let ends = own.map(|kept| kept.expires.saturating_sub(now)).min();
        ends.unwrap_or(LATER).clamp(Duration::from_secs(1), LONGEST)
    }

    /// Lets a session's records go; that it was here is known until its time is over.
    fn release(&self, kept: &Kept) -> std::io::Result<()> {
        kept.records.end()?;
        self.settle(kept);
        self.counted.released.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Removes what is past its time.
    fn sweep(&self) -> Vec<(Arc<Kept>, std::io::Result<()>)> {
        let now = clock::wall();
        let mut sessions = self.sessions();
        let past: Vec<_> =
            sessions.values().filter(|kept| kept.expires <= now).map(Arc::clone).collect();
        let removed = past.into_iter().map(|kept| {
            sessions.remove(&kept.id);
            let reserved = *kept.reserved.lock().expect("no holder panics");
            self.ledger().give_back(kept.key, reserved);
            if !kept.records.progress().over {
                self.counted.expired.fetch_add(1, Ordering::Relaxed);
            }
            let gone = kept.records.end().and_then(|()| files::remove(&self.settings.dir, kept.id));
            (kept, gone)
        });
        removed.collect()
    }

    pub(super) fn stats(&self) -> SpoolStats {
        let read = |one: &AtomicU64| one.load(Ordering::Relaxed);
        let (sessions, bytes) = {
            let sessions = self.sessions();
            let live = sessions.values().filter(|kept| !kept.records.progress().over);
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
    let full = packtrain_io::disk::classify(error).is_full();
    let text = if full { "the depot's disk is full".to_owned() } else { format!("{error}") };
    Denied { reason: Reason::Busy, retry_after: Some(LATER), text }
}

/// Goes on with what a depot before left to be passed on.
pub(super) fn resume(depot: &Arc<Depot>, spool: &Arc<Spool>) {
    let all: Vec<_> = spool.sessions().values().cloned().collect();
    for kept in all {
        forward::start(depot, spool, &kept);
    }
}

/// Removes what is past its time: to be called now and then.
pub(super) fn sweep(depot: &Depot, spool: &Spool) {
    for (kept, gone) in tokio::task::block_in_place(|| spool.sweep()) {
        if let Err(e) = gone {
            depot.warn(format!("session {} in the spool: {e}", kept.id));
        }
        tell(depot, &kept, "expired", String::new());
    }
}

/// Tells of a session.
fn tell(depot: &Depot, kept: &Kept, what: &'static str, place: String) {
    depot.tell(Told::Kept(DepotKept {
        what,
        session: kept.id.to_string(),
        key: kept.key.fingerprint().to_string(),
        bytes: kept.records.bytes(),
        place,
    }));
}
