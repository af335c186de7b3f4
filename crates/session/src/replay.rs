//! No header twice: a window of time, and the numbers seen within it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use packtrain_units::{Duration, Time};

use super::id::SessionId;

/// How far a sender's clock may be from a depot's.
pub const MAX_CLOCK_OFFSET: Duration = Duration::from_secs(120);

/// Of what is remembered one sender has at most this part.
const SENDER_SHARE: usize = 8;

/// Why a header is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    /// It was here before.
    #[error("this session was here before")]
    Seen,
    /// Its clock is too far off.
    #[error("the sender's clock and the depot's are {0} apart, more than two minutes: set them")]
    Clock(Duration),
    /// It was made before the depot began, which does not know any more what it saw then.
    #[error("it was made before this depot began")]
    Before,
    /// More sessions than can be remembered.
    #[error("more sessions in four minutes than this depot remembers")]
    Full,
}

/// Remembers what was seen, within bounds: full, it refuses what is new; it never forgets what
/// could come again.
#[derive(Debug)]
pub struct ReplayGuard {
    began: Duration,
    most: usize,
    seen: BTreeSet<([u8; 32], SessionId)>,
    /// How many each sender has among them.
    each: BTreeMap<[u8; 32], usize>,
    /// When each may be forgotten.
    order: VecDeque<(Time, [u8; 32], SessionId)>,
}

impl ReplayGuard {
    /// A guard that began at `wall` (since 1970) and remembers at most `most` sessions.
    pub fn new(wall: Duration, most: usize) -> Self {
        Self {
            began: wall,
            most,
            seen: BTreeSet::new(),
            each: BTreeMap::new(),
            order: VecDeque::new(),
        }
    }

    /// Takes a session that `sender` made at `sent`, once; both clocks are the depot's, `wall`
    /// since 1970.
    ///
    /// # Errors
    /// It was here before, or nobody can tell any more.
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
        // Nobody takes the room of all the others.
        let own = self.each.get(sender).copied().unwrap_or_default();
        if self.order.len() >= self.most || own >= self.most.div_ceil(SENDER_SHARE) {
            return Err(ReplayError::Full);
        }
        self.seen.insert((*sender, id));
        self.each.insert(*sender, own + 1);
        // A stamp ahead of our clock stays good for twice the window.
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
        assert_eq!(guard.most.div_ceil(SENDER_SHARE), 1);
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
        /// Whatever order headers come in and come again, none is taken twice.
        #[test]
        fn never_twice(comes in prop::collection::vec((0u64..400, 0u64..500, 0u8..6), 1..80)) {
            let mut guard = ReplayGuard::new(Duration::from_secs(0), 1000);
            let mut comes = comes;
            comes.sort_by_key(|(when, ..)| *when);
            let mut taken = BTreeSet::new();
            for (when, sent, id) in comes {
                let (wall, sent) = (Duration::from_secs(when), Duration::from_secs(sent));
                // A header is its stamp and its number together: both are signed.
                let header = SessionId([id; 16]);
                if guard.admit(at(when), wall, sent, &KEY, header).is_ok() {
                    prop_assert!(taken.insert((sent.as_nanos(), id)));
                }
            }
            prop_assert!(guard.order.len() == guard.seen.len());
        }
    }
}
