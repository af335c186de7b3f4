//! Decides which host of a clique may probe: a token circulates among the hosts.
//!
//! Simultaneous probes measure each other. Hosts that measure paths between them therefore pass a
//! token, and only its holder probes, for at most a *lease* (the Network Weather Service; R.
//! Wolski, N. Spring, J. Hayes, 1999). A token is lost with its holder, or in transit. A member
//! that has seen no token for longer than one can be in transit *claims* the right to make a new
//! one with a higher [`Epoch`]. A member objects if it had a token recently or claims a higher
//! epoch. When two halves of a network join again and have two tokens, the one with the higher
//! epoch stays: a member that has seen it takes no other.
//!
//! If a message arrives within [`Timing::delay`] or not at all, there are never two holders in a
//! connected network; only after halves join, for one round. A sender does not know whether an
//! unconfirmed pass arrived, so it drops the token instead of sending it twice. No clock, no I/O.

use packtrain_units::{Duration, Time};

/// Identifies a token; the greater epoch stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch {
    /// Higher than all numbers that its author knew.
    pub number: u64,
    /// The member that made the token; unique among the members.
    pub author: u64,
}

/// Durations of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Maximum time that a holder probes.
    pub lease: Duration,
    /// Minimum time between the probes of two holders.
    pub rest: Duration,
    /// Maximum transit time of a message.
    pub delay: Duration,
}

/// The answer to a token or a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The token was taken, or there is no objection to the claim.
    pub taken: bool,
    /// The highest epoch known here.
    pub highest: Epoch,
}

/// The outcome of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// The answer arrived.
    Answered(Reply),
    /// It certainly did not arrive.
    Unreachable,
    /// It may have arrived.
    Unknown,
}

/// An action for the owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Probe now, until this time.
    Probe(Time),
    /// Pass the token to this member.
    Pass {
        /// Its place in the ring.
        to: usize,
        /// The token.
        epoch: Epoch,
        /// How often it has been passed on.
        serial: u64,
    },
    /// Ask this member whether it objects to a new token.
    Claim {
        /// Its place in the ring.
        to: usize,
        /// Epoch of the new token.
        epoch: Epoch,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    /// Members that have not answered yet, as bits.
    Claiming {
        epoch: Epoch,
        open: u64,
        until: Time,
    },
    Holding {
        since: Time,
        pass_at: Time,
    },
    Passing {
        to: usize,
        tried: usize,
        until: Time,
    },
}

/// One member of a clique.
#[derive(Clone, Debug)]
pub struct Clique {
    place: usize,
    members: usize,
    author: u64,
    timing: Timing,
    born: Time,
    highest: Epoch,
    serial: u64,
    state: State,
    /// When a token or a claim was last received, and when this member last had a token.
    last_seen: Time,
    last_held: Option<Time>,
    orders: Vec<Order>,
}

/// Maximum number of members.
pub const MAX_MEMBERS: usize = 64;
/// By how much an epoch may exceed the highest known one. Members count by one, so a member that
/// exceeds this is in error, and its epoch would leave none for later tokens.
const MAX_EPOCH_STEP: u64 = 1 << 32;

impl Clique {
    /// A member that starts now, at a position of the ring, which all members order alike. It has
    /// no state of an earlier run.
    ///
    /// # Panics
    /// If the place is beyond the members, or there are more than [`MAX_MEMBERS`].
    pub fn new(place: usize, members: usize, author: u64, timing: Timing, now: Time) -> Self {
        assert!(place < members && members <= MAX_MEMBERS, "{place} of {members}");
        Self {
            place,
            members,
            author,
            timing,
            born: now,
            highest: Epoch::default(),
            serial: 0,
            state: State::Idle,
            last_seen: now,
            last_held: None,
            orders: Vec::new(),
        }
    }

    /// Maximum time of one round of the token.
    pub fn round(&self) -> Duration {
        let pass = self.timing.delay * 2 * self.members as u64;
        (self.timing.lease + self.timing.rest + pass) * self.members as u64
    }

    /// Whether this member holds the token.
    pub fn holds(&self, now: Time) -> bool {
        matches!(self.state, State::Holding { since, .. } if now < since + self.timing.lease)
    }

    /// The highest epoch known here.
    pub fn highest(&self) -> Epoch {
        self.highest
    }

    /// Another member passes a token to this one.
    pub fn on_token(&mut self, now: Time, epoch: Epoch, serial: u64) -> Reply {
        if !self.is_plausible(epoch) {
            return Reply { taken: false, highest: self.highest };
        }
        let newer = epoch > self.highest || (epoch == self.highest && serial > self.serial);
        // A token that arrived twice may be from before a restart of this member.
        let young = now < self.born + self.timing.delay * 2;
        if !newer {
            let again = epoch == self.highest && serial == self.serial && !young;
            return Reply { taken: again, highest: self.highest };
        }
        // A copy of a refused token is refused too.
        (self.highest, self.serial) = (epoch, serial);
        if young {
            return Reply { taken: false, highest: self.highest };
        }
        self.hold(now);
        Reply { taken: true, highest: self.highest }
    }

    /// Another member claims a new token.
    pub fn on_claim(&mut self, now: Time, epoch: Epoch) -> Reply {
        let lately = self.last_held.is_some_and(|last_held| now < last_held + self.round());
        let own = match self.state {
            State::Idle => false,
            State::Claiming { epoch: own, .. } => own > epoch,
            State::Holding { .. } | State::Passing { .. } => true,
        };
        if lately || own || epoch <= self.highest || !self.is_plausible(epoch) {
            return Reply { taken: false, highest: self.highest };
        }
        // The claimant is first: older epochs no longer count.
        (self.highest, self.serial, self.last_seen) = (epoch, 0, now);
        self.state = State::Idle;
        Reply { taken: true, highest: epoch }
    }

    /// The outcome of a claim.
    pub fn on_claim_result(&mut self, now: Time, to: usize, asked: Epoch, sent: Sent) {
        let State::Claiming { epoch, ref mut open, .. } = self.state else { return };
        if asked != epoch || to >= self.members {
            return;
        }
        match sent {
            Sent::Answered(Reply { taken: true, .. }) | Sent::Unreachable => *open &= !(1 << to),
            Sent::Answered(reply) => {
                if self.is_plausible(reply.highest) {
                    self.highest = self.highest.max(reply.highest);
                }
                (self.state, self.last_seen) = (State::Idle, now);
            }
            // The claim is sent again.
            Sent::Unknown => {}
        }
    }

    /// The outcome of passing the token to this member; `serial` counts its passes.
    pub fn on_pass_result(&mut self, now: Time, to: usize, serial: u64, sent: Sent) {
        let State::Passing { to: waits, tried, .. } = self.state else { return };
        if to != waits || serial != self.serial.saturating_add(tried as u64) {
            return;
        }
        match sent {
            Sent::Answered(Reply { taken: true, .. }) | Sent::Unknown => self.rest(now),
            Sent::Answered(Reply { highest, .. })
                if highest > self.highest && self.is_plausible(highest) =>
            {
                (self.highest, self.serial) = (highest, 0);
                self.rest(now);
            }
            // A member that has just started takes no token.
            Sent::Answered(_) | Sent::Unreachable => self.pass(now, tried + 1),
        }
    }

    /// Probing in this turn is finished.
    pub fn done(&mut self, now: Time) {
        if let State::Holding { since, ref mut pass_at } = self.state {
            *pass_at = now.max(since + self.timing.rest).min(*pass_at);
        }
    }

    /// When to call [`Clique::on_timeout`].
    pub fn timeout(&self) -> Time {
        match self.state {
            State::Idle => self.last_seen + self.silence(),
            State::Claiming { until, .. } | State::Passing { until, .. } => until,
            State::Holding { pass_at, .. } => pass_at,
        }
    }

    /// Time has passed.
    pub fn on_timeout(&mut self, now: Time) {
        if now < self.timeout() {
            return;
        }
        match self.state {
            State::Idle => {
                let number = self.highest.number.saturating_add(1);
                let epoch = Epoch { number, author: self.author };
                let others = (0..self.members).filter(|other| *other != self.place);
                let open = others.fold(0, |open, other| open | 1 << other);
                self.claim(now, epoch, open);
            }
            // All members have answered, so concurrent claims are known.
            State::Claiming { epoch, open: 0, .. } => {
                (self.highest, self.serial) = (epoch, 0);
                self.hold(now);
            }
            State::Claiming { epoch, open, .. } => self.claim(now, epoch, open),
            State::Holding { .. } => self.pass(now, 1),
            State::Passing { .. } => self.rest(now),
        }
    }

    /// What is to be done next.
    pub fn poll(&mut self) -> Option<Order> {
        self.orders.pop()
    }

    fn is_plausible(&self, epoch: Epoch) -> bool {
        epoch.number.saturating_sub(self.highest.number) <= MAX_EPOCH_STEP
    }

    /// Longer than a token is unheard of while there is one, and later for each further place.
    fn silence(&self) -> Duration {
        self.round() + self.timing.delay * 4 * (self.place as u64 + 1)
    }

    fn claim(&mut self, now: Time, epoch: Epoch, open: u64) {
        self.orders.clear();
        for to in (0..self.members).filter(|to| open >> to & 1 == 1) {
            self.orders.push(Order::Claim { to, epoch });
        }
        self.state = State::Claiming { epoch, open, until: now + self.timing.delay * 3 };
    }

    fn hold(&mut self, now: Time) {
        (self.last_seen, self.last_held) = (now, Some(now));
        let until = now + self.timing.lease;
        self.state = State::Holding { since: now, pass_at: until.max(now + self.timing.rest) };
        self.orders.clear();
        self.orders.push(Order::Probe(until));
    }

    fn pass(&mut self, now: Time, tried: usize) {
        self.last_held = Some(now);
        if tried >= self.members {
            // Nobody is there: it is this member's turn again.
            self.serial = self.serial.saturating_add(tried as u64);
            return self.hold(now);
        }
        let to = (self.place + tried) % self.members;
        let (epoch, serial) = (self.highest, self.serial.saturating_add(tried as u64));
        self.orders.clear();
        self.orders.push(Order::Pass { to, epoch, serial });
        self.state = State::Passing { to, tried, until: now + self.timing.delay * 2 };
    }

    fn rest(&mut self, now: Time) {
        (self.state, self.last_seen) = (State::Idle, now);
        self.orders.clear();
    }
}

#[cfg(test)]
#[path = "clique_tests.rs"]
mod tests;
