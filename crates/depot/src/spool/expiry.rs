//! The removal of expired sessions.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use packtrain_os::clock;
use packtrain_units::{ByteCount, Duration, Time};

use super::super::Depot;
use super::{Kept, Spool, files, report};

/// An expired session stays on the disk for as long again as it was to be kept, at most for this
/// time. A machine may start with a wrong clock, which its time service corrects meanwhile.
const MAX_STAY: Duration = Duration::from_secs(600);

/// An expired session.
pub(super) struct Swept {
    pub(super) kept: Arc<Kept>,
    /// The bytes that could have been claimed until now.
    pub(super) expired: Option<ByteCount>,
    pub(super) gone: std::io::Result<()>,
}

impl Kept {
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
                let reserved = *kept.reserved.lock();
                self.ledger().give_back(kept.key, reserved);
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
