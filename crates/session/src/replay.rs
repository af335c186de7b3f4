//! Replay protection: a time window, and the session numbers seen within it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use packtrain_units::{Duration, Time};

use super::id::SessionId;

/// Maximum offset between a sender's clock and a depot's.
pub const MAX_CLOCK_OFFSET: Duration = Duration::from_secs(120);

/// How long an admitted header may be valid: a stamp ahead of this clock, for twice the window.
const VALID_FOR: Duration = Duration::from_nanos(2 * MAX_CLOCK_OFFSET.as_nanos());

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
    /// The depot has started only now, and it may have been seen before the start, of which nothing
    /// is remembered.
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
    /// The start, by a clock that does not jump and by the wall clock of that time.
    began: (Time, Duration),
    max_sessions: usize,
    seen: BTreeSet<([u8; 32], SessionId)>,
    /// Number of entries per sender.
    each: BTreeMap<[u8; 32], usize>,
    /// When each entry may be removed.
    order: VecDeque<(Time, [u8; 32], SessionId)>,
}

impl ReplayGuard {
    /// A guard that starts at `now`, which is `wall` since 1970, and remembers at most `max_sessions`
    /// sessions.
    pub fn new((now, wall): (Time, Duration), max_sessions: usize) -> Self {
        Self {
            began: (now, wall),
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
        if self.may_precede(now, wall, sent) {
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
        self.order.push_back((now + VALID_FOR, *sender, id));
        Ok(())
    }

    /// Whether a header of this time may have been admitted before the start. Such a header is valid
    /// for as long as one that is remembered, so later the start no longer matters: a clock that was
    /// ahead at the start, and is right since, would refuse new headers until it is that time again.
    fn may_precede(&self, now: Time, wall: Duration, sent: Duration) -> bool {
        let age = now.since(self.began.0);
        // The time of the start by the clock of then, or by that of now if it was set forward since.
        let began = self.began.1.max(wall.saturating_sub(age));
        // Stamps count whole milliseconds.
        age < VALID_FOR && sent.as_millis() < began.as_millis()
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
        let mut guard = ReplayGuard::new((at(0), wall(1000)), 2);
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

    #[test]
    fn a_clock_that_was_ahead_at_the_start_refuses_for_four_minutes() {
        let wall = Duration::from_secs;
        // It is an hour ahead for ten seconds.
        let mut guard = ReplayGuard::new((at(50), wall(4600)), 9);
        let id = |n| SessionId([n; 16]);
        let mut come = |after: u64, n| {
            let now = wall(1000 + after);
            guard.admit(at(50 + after), now, now, &KEY, id(n))
        };
        assert_eq!(come(10, 1), Err(ReplayError::Before));
        assert_eq!(come(239, 2), Err(ReplayError::Before));
        assert_eq!(come(240, 3), Ok(()));
        assert_eq!(come(240, 3), Err(ReplayError::Seen));
    }

    #[test]
    fn a_clock_that_was_behind_at_the_start_admits_nothing_from_before() {
        let wall = Duration::from_secs;
        // It shows 1970 for ten seconds.
        let mut guard = ReplayGuard::new((at(50), wall(7)), 9);
        let mut come = |after: u64, sent: u64, n| {
            let (now, id) = (at(50 + after), SessionId([n; 16]));
            guard.admit(now, wall(1000 + after), wall(sent), &KEY, id)
        };
        assert_eq!(come(10, 999, 1), Err(ReplayError::Before));
        assert_eq!(come(10, 1000, 1), Ok(()));
    }

    proptest! {
        /// What one guard has admitted its successor refuses, at any later time, also if the clock
        /// is set forward.
        #[test]
        fn nothing_from_before_the_start(
            admitted in 0u64..600, early in 0u64..=120, pause in 0u64..300, later in 0u64..600,
            forward in 0u64..300,
        ) {
            let wall = |seconds: u64| Duration::from_secs(1000 + seconds);
            let (id, sent) = (SessionId([1; 16]), wall(admitted.saturating_sub(early)));
            let mut guard = ReplayGuard::new((at(0), wall(0)), 9);
            prop_assert_eq!(guard.admit(at(admitted), wall(admitted), sent, &KEY, id), Ok(()));
            let start = admitted + 1 + pause;
            let mut guard = ReplayGuard::new((at(start), wall(start)), 9);
            let now = start + later;
            let again = guard.admit(at(now), wall(now + forward), sent, &KEY, id);
            prop_assert!(again.is_err());
        }

        /// In whatever order headers arrive and repeat, none is admitted twice.
        #[test]
        fn never_twice(headers in prop::collection::vec((0u64..400, 0u64..500, 0u8..6), 1..80)) {
            let mut guard = ReplayGuard::new((at(0), Duration::ZERO), 1000);
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
