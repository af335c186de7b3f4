//! Determines which messages are complete.

use std::collections::{BTreeMap, BTreeSet};

use crate::wire::Message;

/// A partially received message.
#[derive(Clone, Copy, Debug)]
struct Part {
    /// Its lowest and highest unit so far.
    low: u64,
    high: u64,
    /// Number of its units that have arrived.
    have: u64,
    /// Whether `low` is its first unit, and whether `high` is its last.
    first: bool,
    last: bool,
    in_order: bool,
}

impl Part {
    fn is_whole(&self) -> bool {
        self.first && self.last && self.high - self.low + 1 == self.have
    }
}

/// A complete message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ready {
    /// Its first unit.
    pub(super) first: u64,
    /// One past its last unit.
    pub(super) end: u64,
    number: u32,
}

/// The messages in the window. Each has a unit in the buffer, so there are no more than slots.
#[derive(Debug, Default)]
pub(super) struct Assembly {
    parts: BTreeMap<u32, Part>,
    /// Complete ones by their first unit: those that may be read at once, and those that must wait
    /// until all units before them have arrived.
    free: BTreeSet<Ready>,
    ordered: BTreeSet<Ready>,
}

impl Assembly {
    /// A unit arrived for the first time.
    pub(super) fn add(&mut self, unit: u64, message: Message) {
        let number = message.number();
        let fresh = Part {
            low: unit,
            high: unit,
            have: 0,
            first: false,
            last: false,
            in_order: message.in_order(),
        };
        let part = self.parts.entry(number).or_insert(fresh);
        if part.is_whole() {
            // A second message with the same number: its units can never be read.
            return;
        }
        part.have += 1;
        part.low = part.low.min(unit);
        part.high = part.high.max(unit);
        part.first |= message.is_first();
        part.last |= message.is_last();
        if part.is_whole() {
            let ready = Ready { first: part.low, end: part.high + 1, number };
            if part.in_order { &mut self.ordered } else { &mut self.free }.insert(ready);
        }
    }

    /// The sender dropped the message. A complete one stays.
    pub(super) fn give_up(&mut self, number: u32) {
        if self.parts.get(&number).is_some_and(|part| !part.is_whole()) {
            self.parts.remove(&number);
        }
    }

    /// The next message to read, when all units before `next` have arrived.
    pub(super) fn ready(&self, next: u64) -> Option<Ready> {
        let ordered = self.ordered.first().filter(|ready| ready.end <= next);
        self.free.first().into_iter().chain(ordered).min().copied()
    }

    /// The message was read.
    pub(super) fn taken(&mut self, ready: Ready) {
        self.free.remove(&ready);
        self.ordered.remove(&ready);
        self.parts.remove(&ready.number);
    }

    /// Whether `unit`, the oldest in the buffer, can still be read: its message is complete, or its
    /// missing units are from `next` on and may still arrive.
    pub(super) fn can_become_readable(&self, unit: u64, message: Message, next: u64) -> bool {
        self.parts.get(&message.number()).is_some_and(|part| {
            let inside = (part.low..=part.high).contains(&unit);
            let open = part.high >= next || !part.last && part.high + 1 == next;
            inside && (part.is_whole() || part.first && open)
        })
    }
}
