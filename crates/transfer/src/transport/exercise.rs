//! A test of any [`Transport`]: random calls, with every event checked against the rules.

use std::collections::VecDeque;

use packtrain_units::{ByteCount, Offset, RangeSet, Rng, Time};

use super::{Custody, Transport, TransportEvent};

/// Maximum bytes assigned and not answered.
const WINDOW: u64 = 6 << 20;
/// Maximum bytes of one assignment.
const MAX_RANGE: u64 = 1 << 20;

/// Moves an object of a given size over one transport, with random assignments and revocations.
#[derive(Debug)]
pub struct Exercise {
    seed: u64,
    rng: Rng,
    custody: Custody,
    /// Bytes that the transport does not own and that are not placed.
    pool: RangeSet,
    placed: RangeSet,
    size: u64,
    events: usize,
    /// The last eight events, oldest first.
    newest: VecDeque<TransportEvent>,
    closed: usize,
}

impl Exercise {
    /// An object of `size` bytes. The texts of all failures contain the seed.
    pub fn new(seed: u64, size: ByteCount) -> Self {
        let mut pool = RangeSet::new();
        pool.insert(Offset(0)..Offset(size.get()));
        Self {
            seed,
            rng: Rng::new(seed),
            custody: Custody::default(),
            pool,
            placed: RangeSet::new(),
            size: size.get(),
            events: 0,
            newest: VecDeque::new(),
            closed: 0,
        }
    }

    /// Processes the transport's events and makes random calls.
    ///
    /// # Panics
    /// The transport violated a rule.
    pub fn step(&mut self, now: Time, transport: &mut dyn Transport) {
        while let Some(event) = transport.poll_event(now) {
            self.on_event(&event);
        }
        if !self.custody.is_up() {
            return;
        }
        while self.custody.owned().len_bytes() < ByteCount(WINDOW) {
            let most = ByteCount(1 + self.rng.below(MAX_RANGE));
            let Some(range) = self.pool.pop_front(most) else { break };
            let assigned = self.custody.on_assign(&range);
            assigned.unwrap_or_else(|breach| panic!("{}", self.text(&breach)));
            transport.assign(range);
        }
        if self.rng.below(4) == 0 {
            let start = Offset(self.rng.below(self.size));
            let range = start..start + ByteCount(1 + self.rng.below(MAX_RANGE / 2));
            let owned: Vec<_> = self.custody.owned().intersect(range).collect();
            owned.into_iter().for_each(|part| transport.revoke(part));
        }
    }

    fn on_event(&mut self, event: &TransportEvent) {
        self.newest.push_back(event.clone());
        if self.newest.len() > 8 {
            self.newest.pop_front();
        }
        let owned = self.custody.owned().clone();
        let checked = self.custody.on_event(event);
        checked.unwrap_or_else(|breach| panic!("{}", self.text(&breach)));
        self.events += 1;
        match event {
            TransportEvent::Up { .. } => {}
            TransportEvent::Placed(range) => {
                self.placed.insert(range.clone());
            }
            TransportEvent::Returned(range) => {
                self.pool.insert(range.clone());
            }
            TransportEvent::Closed(_) => {
                self.closed += 1;
                self.pool.insert_all(&owned);
            }
        }
        // Each byte is in exactly one place: waiting, owned by the transport, or placed.
        let sum =
            self.pool.len_bytes() + self.custody.owned().len_bytes() + self.placed.len_bytes();
        assert_eq!(sum, ByteCount(self.size), "seed {}: after {event:?}", self.seed);
    }

    fn text(&self, breach: &super::Breach) -> String {
        format!("seed {}, after {} events: {breach}: {:?}", self.seed, self.events, self.newest)
    }

    /// Number of events.
    pub fn events(&self) -> usize {
        self.events
    }

    /// Number of times the transport closed.
    pub fn closed(&self) -> usize {
        self.closed
    }

    /// The ranges that the transport reported as placed.
    pub fn placed(&self) -> &RangeSet {
        &self.placed
    }

    /// Whether the whole object is placed.
    pub fn is_complete(&self) -> bool {
        self.placed.len_bytes() == ByteCount(self.size)
    }
}
