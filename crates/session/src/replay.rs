//! Replay protection: a time window, and the session numbers seen within it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use packtrain_units::{Duration, Time};

use super::id::SessionId;

/// Maximum offset between a sender's clock and a depot's.
pub const MAX_CLOCK_OFFSET: Duration = Duration::from_secs(120);

/// A single sender may use at most this fraction of the memory.
const SENDER_SHARE: usize = 8;

/// Why a header is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    /// It was seen before.
    #[error("this session was here before")]
    Seen,
    /// Its clock is too far off.
    #[error(
        "the sender's clock and the depot's are {} apart, more than two minutes: set them",
        .0.to_readable()
    )]
    Clock(Duration),
    /// It is older than the depot's start, before which nothing is remembered.
    #[error("it was made before this depot began")]
    Before,
    /// The memory for sessions is full.
    #[error("more sessions in four minutes than this depot remembers")]
    Full,
}

/// Remembers seen sessions in bounded memory. When full it refuses new ones; it never forgets one
/// that could be replayed.
#[derive(Debug)]
pub struct ReplayGuard {
    began: Duration,
    max_sessions: usize,
    seen: BTreeSet<([u8; 32], SessionId)>,
    /// Number of entries per sender.
    each: BTreeMap<[u8; 32], usize>,
    /// When each entry may be removed.
    order: VecDeque<(Time, [u8; 32], SessionId)>,
}

impl ReplayGuard {
    /// A guard that starts at `wall` (since 1970) and remembers at most `max_sessions` sessions.
    pub fn new(wall: Duration, max_sessions: usize) -> Self {
        Self {
            began: wall,
            max_sessions,
            seen: BTreeSet::new(),
            each: BTreeMap::new(),
            order: VecDeque::new(),
        }
    }

    /// Admits a session that `sender` created at `sent`, once; both clocks are the depot's, `wall`
    /// since 1970.
    ///
    /// # Errors
    /// It was seen before, or that cannot be determined.
    pub fn admit(
        &mut self,
        now: Time,
        wall: Duration,
        sent: Duration,
        sender: &[u8; 32],
        id: SessionId,
    ) -> Result<(), ReplayError> {
        while let Some((until, sender, id)) = self.order.front().copied() {
            if until > now {
                break;
            }
            self.order.pop_front();
            self.seen.remove(&(sender, id));
            if let Some(count) = self.each.get_mut(&sender) {
                *count -= 1;
                if *count == 0 {
                    self.each.remove(&sender);
                }
            }
        }
        let off = wall.saturating_sub(sent).max(sent.saturating_sub(wall));
        if off > MAX_CLOCK_OFFSET {
            return Err(ReplayError::Clock(off));
        }
        // Stamps count whole milliseconds.
        if sent.as_millis() < self.began.as_millis() {
            return Err(ReplayError::Before);
        }
        if self.seen.contains(&(*sender, id)) {
            return Err(ReplayError::Seen);
        }
        // One sender cannot use the memory of all others.
        let own = self.each.get(sender).copied().unwrap_or_default();
        if self.order.len() >= self.max_sessions || own >= self.max_sessions.div_ceil(SENDER_SHARE)
        {
            return Err(ReplayError::Full);
        }
        self.seen.insert((*sender, id));
        self.each.insert(*sender, own + 1);
        // A stamp ahead of this clock remains valid for twice the window.
        self.order.push_back((now + MAX_CLOCK_OFFSET + MAX_CLOCK_OFFSET, *sender, id));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const KEY: [u8; 32] = [7; 32];

    fn at(seconds: u64) -> Time {
        Time::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn once_and_in_time() {
        let wall = Duration::from_secs;
        let mut guard = ReplayGuard::new(wall(1000), 2);
        assert_eq!(guard.max_sessions.div_ceil(SENDER_SHARE), 1);
        let id = |n| SessionId([n; 16]);
        assert_eq!(guard.admit(at(1), wall(1001), wall(1000), &KEY, id(1)), Ok(()));
        assert_eq!(guard.admit(at(1), wall(1001), wall(1000), &KEY, id(1)), Err(ReplayError::Seen));
        assert_eq!(guard.admit(at(1), wall(1001), wall(1001), &[8; 32], id(1)), Ok(()));
        assert_eq!(guard.admit(at(1), wall(1001), wall(1001), &KEY, id(2)), Err(ReplayError::Full));
        assert_eq!(
            guard.admit(at(1), wall(1001), wall(999), &KEY, id(2)),
            Err(ReplayError::Before)
        );
        let off = Duration::from_secs(121);
        let clock = Err(ReplayError::Clock(off));
        assert_eq!(guard.admit(at(1), wall(1001), wall(1122), &KEY, id(2)), clock);
        assert_eq!(guard.admit(at(200), wall(1200), wall(1079), &KEY, id(2)), clock);
        assert_eq!(guard.admit(at(242), wall(1242), wall(1242), &KEY, id(1)), Ok(()), "forgotten");
    }

    proptest! {
        /// In whatever order headers arrive and repeat, none is admitted twice.
        #[test]
        fn never_twice(headers in prop::collection::vec((0u64..400, 0u64..500, 0u8..6), 1..80)) {
            let mut guard = ReplayGuard::new(Duration::from_secs(0), 1000);
            let mut headers = headers;
            headers.sort_by_key(|(when, ..)| *when);
            let mut taken = BTreeSet::new();
            for (when, sent, id) in headers {
                let (wall, sent) = (Duration::from_secs(when), Duration::from_secs(sent));
                // A header is identified by its time stamp and its number: both are signed.
                let header = SessionId([id; 16]);
                if guard.admit(at(when), wall, sent, &KEY, header).is_ok() {
                    prop_assert!(taken.insert((sent.as_nanos(), id)));
                }
            }
            prop_assert!(guard.order.len() == guard.seen.len());
        }
    }
}
