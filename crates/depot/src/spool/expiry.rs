//! Whether sessions are over, and the removal of expired ones.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use packtrain_os::clock;
use packtrain_session::Reason;
use packtrain_session::spool::Head;
use packtrain_units::{ByteCount, Duration, Time};

use super::super::Depot;
use super::{Denied, Kept, Spool, files, report};

/// An expired session stays on the disk for as long again as it was to be kept, at most for this
/// time. A machine may start with a wrong clock, which its time service corrects meanwhile.
const MAX_STAY: Duration = Duration::from_secs(600);

/// What a session still does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// It takes records and gives them.
    Live,
    /// Its time is over by the wall clock, which may be wrong: a corrected clock makes it live again,
    /// until the sweep ends it.
    Expired,
    /// It has no records any more.
    Ended,
}

/// An expired session.
pub(super) struct Swept {
    pub(super) kept: Arc<Kept>,
    /// The bytes that could have been claimed until now.
    pub(super) expired: Option<ByteCount>,
    pub(super) gone: std::io::Result<()>,
}

impl Kept {
    /// What the session still does at this time since 1970.
    pub(super) fn phase(&self, wall: Duration) -> Phase {
        if self.records.progress().over {
            Phase::Ended
        } else if wall >= self.expires {
            Phase::Expired
        } else {
            Phase::Live
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.phase(clock::wall()) != Phase::Live
    }

    /// The refusal of a session that is over.
    pub(super) fn over(&self) -> Denied {
        match self.phase(clock::wall()) {
            Phase::Ended => Denied::new(Reason::Absent, "this session is over"),
            Phase::Live | Phase::Expired => expired(&self.head),
        }
    }

    /// Whether it has been expired for so long that it may be removed.
    pub(super) fn is_due(&self, wall: Duration, now: Time) -> bool {
        let mut since = self.expired_since.lock();
        if self.expires > wall {
            *since = None;
            return false;
        }
        let keep = self.expires.saturating_sub(self.head.header.session.sent);
        now.since(*since.get_or_insert(now)) >= keep.min(MAX_STAY)
    }
}

/// The refusal of a session whose time is over by this depot's clock. A previous depot tries again,
/// until the time is over by its clock too: one of the clocks is wrong, and what the sender was told
/// is safe must not be given up for that. The sender itself learns it at once.
pub(super) fn expired(head: &Head) -> Denied {
    let nodes = head.header.session.nodes();
    let by_depot = nodes.get(usize::from(head.node)).is_some_and(|node| node.parent.is_some());
    let reason = if by_depot { Reason::Stale } else { Reason::Absent };
    Denied::new(
        reason,
        "the time of this session is over, or the sender's clock is behind the depot's",
    )
}

impl Spool {
    /// Removes sessions that have been expired for a while.
    pub(super) fn sweep(&self, now: Time) -> Vec<Swept> {
        let wall = clock::wall();
        let past: Vec<_> = {
            let mut sessions = self.sessions();
            let past = sessions.all.values().filter(|kept| kept.is_due(wall, now));
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
                self.give_back_all(&kept);
            } else {
                // The removal failed, so the session keeps its space until the next try.
                self.sessions().all.insert(kept.id, Arc::clone(&kept));
            }
            Swept { kept, expired, gone }
        });
        removed.collect()
    }
}

/// Removes expired sessions; called periodically.
pub(in super::super) fn sweep(depot: &Depot, spool: &Spool) {
    for Swept { kept, expired, gone } in tokio::task::block_in_place(|| spool.sweep(clock::now())) {
        if let Err(e) = gone
            && !kept.stuck.swap(true, Ordering::Relaxed)
        {
            depot.warn(format!("session {} in the spool: {e}", kept.id));
        }
        if let Some(bytes) = expired {
            report(depot, &kept, "expired", (String::new(), bytes));
        }
    }
}
