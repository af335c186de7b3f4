//! Whose turn it is to probe: a token that passes round a clique of hosts.
//!
//! Probes that run at once measure each other. So hosts that measure paths between them pass a token
//! round, and only who holds it probes, for a *lease* at most (the Network Weather Service; R.
//! Wolski, N. Spring, J. Hayes, 1999). A token is lost with its holder, or on its way. Who has
//! heard of none for longer than one can be on its way *claims* to make a new one, of a higher
//! [`Epoch`]; whoever has had a token lately, or claims a higher one, objects. Of two tokens, which there
//! are when two halves of a network meet again, the one of the higher epoch stays: whoever has
//! seen that takes no other.
//!
//! As long as a message arrives within [`Timing::delay`] or not at all, there are never two holders
//! in a network that hangs together; only after halves meet, for a round. Whether a pass that
//! nobody confirmed arrived is not known, so its sender forgets the token rather than send it twice. No
//! clock, no I/O.

use packtrain_units::{Duration, Time};

/// Which token it is; the greater one stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch {
    /// Higher than all that its author knew.
    pub number: u64,
    /// Who made it; unlike that of any other member.
    pub author: u64,
}

/// How long things take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// The longest that a holder probes.
    pub lease: Duration,
    /// The shortest time between two holders' probes.
    pub rest: Duration,
    /// The longest that a message is on its way.
    pub delay: Duration,
}

/// What is said to a token or a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The token was taken; the claim is not objected to.
    pub taken: bool,
    /// The highest epoch known here.
    pub highest: Epoch,
}

/// What became of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// This is what was said to it.
    Answered(Reply),
    /// It certainly did not arrive.
    Unreachable,
    /// It may have arrived.
    Unknown,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Probe now, and be done by then.
    Probe(Time),
    /// Pass the token on to the member of this place.
    Pass {
        /// Its place in the ring.
        to: usize,
        /// Which token.
        epoch: Epoch,
        /// How often it was passed on.
        serial: u64,
    },
    /// Ask the member of this place whether it objects to a new token.
    Claim {
        /// Its place in the ring.
        to: usize,
        /// That of the new token.
        epoch: Epoch,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    /// Members that are still to say something, as bits.
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
    /// When a token or a claim was last heard of, and a token had here.
    heard: Time,
    had: Option<Time>,
    orders: Vec<Order>,
}

/// The most members.
pub const MAX_MEMBERS: usize = 64;

impl Clique {
    /// A member that begins now, at a place of the ring that all members order alike. It knows
    /// nothing of an earlier life.
    ///
    /// # Panics
    /// The place is beyond the members, or there are more than [`MAX_MEMBERS`].
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
            heard: now,
            had: None,
            orders: Vec::new(),
        }
    }

    /// The longest that a token takes once round.
    pub fn round(&self) -> Duration {
        let pass = self.timing.delay * 2 * self.members as u64;
        (self.timing.lease + self.timing.rest + pass) * self.members as u64
    }

    /// Whether it is this member's turn.
    pub fn holds(&self, now: Time) -> bool {
        matches!(self.state, State::Holding { since, .. } if now < since + self.timing.lease)
    }

    /// The highest epoch known here.
    pub fn highest(&self) -> Epoch {
        self.highest
    }

    /// Somebody passes a token on to this member.
    pub fn on_token(&mut self, now: Time, epoch: Epoch, serial: u64) -> Reply {
        let newer = epoch > self.highest || (epoch == self.highest && serial > self.serial);
        // What came twice may come from before an end that this member knows nothing of.
        let young = now < self.born + self.timing.delay * 2;
        if !newer {
            let again = epoch == self.highest && serial == self.serial && !young;
            return Reply { taken: again, highest: self.highest };
        }
        // A copy of what was refused is refused too.
        (self.highest, self.serial) = (epoch, serial);
        if young {
            return Reply { taken: false, highest: self.highest };
        }
        self.hold(now);
        Reply { taken: true, highest: self.highest }
    }

    /// Somebody wants to make a new token.
    pub fn on_claim(&mut self, now: Time, epoch: Epoch) -> Reply {
        let lately = self.had.is_some_and(|had| now < had + self.round());
        let own = match self.state {
            State::Idle => false,
            State::Claiming { epoch: own, .. } => own > epoch,
            State::Holding { .. } | State::Passing { .. } => true,
        };
        if lately || own || epoch <= self.highest {
            return Reply { taken: false, highest: self.highest };
        }
        // Its maker's turn comes first: nothing older counts from now on.
        (self.highest, self.serial, self.heard) = (epoch, 0, now);
        self.state = State::Idle;
        Reply { taken: true, highest: epoch }
    }

    /// What became of a claim.
    pub fn claimed(&mut self, now: Time, to: usize, asked: Epoch, sent: Sent) {
        let State::Claiming { epoch, ref mut open, .. } = self.state else { return };
        if asked != epoch || to >= self.members {
            return;
        }
        match sent {
            Sent::Answered(Reply { taken: true, .. }) | Sent::Unreachable => *open &= !(1 << to),
            Sent::Answered(reply) => {
                self.highest = self.highest.max(reply.highest);
                (self.state, self.heard) = (State::Idle, now);
            }
            // It is asked again.
            Sent::Unknown => {}
        }
    }

    /// What became of a pass to the member of this place, the token's so manieth.
    pub fn passed(&mut self, now: Time, to: usize, serial: u64, sent: Sent) {
        let State::Passing { to: waits, tried, .. } = self.state else { return };
        if to != waits || serial != self.serial.saturating_add(tried as u64) {
            return;
        }
        match sent {
            Sent::Answered(Reply { taken: true, .. }) | Sent::Unknown => self.rest(now),
            Sent::Answered(Reply { highest, .. }) if highest > self.highest => {
                (self.highest, self.serial) = (highest, 0);
                self.rest(now);
            }
            // Who has just begun takes none.
            Sent::Answered(_) | Sent::Unreachable => self.pass(now, tried + 1),
        }
    }

    /// Nothing more is to be probed in this turn.
    pub fn done(&mut self, now: Time) {
        if let State::Holding { since, ref mut pass_at } = self.state {
            *pass_at = now.max(since + self.timing.rest).min(*pass_at);
        }
    }

    /// When [`Clique::on_timeout`] is to be called.
    pub fn timeout(&self) -> Time {
        match self.state {
            State::Idle => self.heard + self.silence(),
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
            // All that were to say something have; what was asked at the same time is known too.
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
        (self.heard, self.had) = (now, Some(now));
        let until = now + self.timing.lease;
        self.state = State::Holding { since: now, pass_at: until.max(now + self.timing.rest) };
        self.orders.clear();
        self.orders.push(Order::Probe(until));
    }

    fn pass(&mut self, now: Time, tried: usize) {
        self.had = Some(now);
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
        (self.state, self.heard) = (State::Idle, now);
        self.orders.clear();
    }
}

#[cfg(test)]
#[path = "clique_tests.rs"]
mod tests;
