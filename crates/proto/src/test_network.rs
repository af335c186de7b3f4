//! What lies between the two ends of a protocol that counts units, in virtual time: the network of
//! the tests of UDT's and SABUL's feedback.

use std::collections::BTreeMap;

use packtrain_units::{Duration, Rng, Time};

/// When tests begin.
pub(crate) const START: Duration = Duration::from_secs(1);

/// What the network does to what crosses it, in thousandths.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Path {
    pub(crate) delay: Duration,
    /// Each packet takes up to so much longer.
    pub(crate) jitter: Duration,
    pub(crate) loss: u64,
    pub(crate) repeats: u64,
    /// From here on everything is lost for so long, once.
    pub(crate) outage: Option<(Duration, Duration)>,
    /// Of messages, where they are datagrams too.
    pub(crate) message_loss: u64,
    /// Messages on a channel that loses nothing take up to so much longer, each not less than those
    /// before.
    pub(crate) late: Duration,
}

impl Path {
    pub(crate) fn clean(delay: Duration) -> Self {
        let none = Duration::ZERO;
        Self { delay, jitter: none, loss: 0, repeats: 0, outage: None, message_loss: 0, late: none }
    }

    /// When a packet that leaves now arrives: once, twice, or never. `loss` is that of its kind.
    pub(crate) fn arrivals(&self, now: Time, loss: u64, rng: &mut Rng) -> Vec<Time> {
        let out = self.outage.is_some_and(|(from, span)| {
            let at = now.since(Time::ZERO + START);
            at >= from && at < from + span
        });
        if out || rng.below(1_000) < loss {
            return Vec::new();
        }
        let copies = 1 + u64::from(rng.below(1_000) < self.repeats);
        let mut late = || Duration::from_nanos(rng.below(self.jitter.as_nanos() + 1));
        (0..copies).map(|_| now + self.delay + late()).collect()
    }
}

/// What is under way; what arrives at the same time arrives in the order in which it left.
#[derive(Debug)]
pub(crate) struct UnderWay<T> {
    things: BTreeMap<(Time, u64), T>,
    serial: u64,
}

impl<T> Default for UnderWay<T> {
    fn default() -> Self {
        Self { things: BTreeMap::new(), serial: 0 }
    }
}

impl<T> UnderWay<T> {
    /// Something leaves that arrives at this time.
    pub(crate) fn put(&mut self, arrives: Time, thing: T) {
        self.serial += 1;
        self.things.insert((arrives, self.serial), thing);
    }

    /// When the next of it arrives.
    pub(crate) fn next_arrival(&self) -> Option<Time> {
        self.things.first_key_value().map(|((at, _), _)| *at)
    }

    /// The first that has arrived.
    pub(crate) fn arrived(&mut self, now: Time) -> Option<T> {
        let entry = self.things.first_entry().filter(|entry| entry.key().0 <= now)?;
        Some(entry.remove())
    }
}
