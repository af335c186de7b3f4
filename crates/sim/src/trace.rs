//! The digest of all events.
//!
//! Each node folds every packet that arrives at it (time, flow, connection, direction, size,
//! number), in order. Each link adds up every packet it drops (with the cause). At the end the
//! nodes' and links' digests are folded in the order of the scenario, so the digest does not depend
//! on the order in which the simulator visits nodes. A packet is a linear term in its time and
//! number, and a digest is a polynomial of those terms modulo 2^64, so a train of equal gaps folds
//! in closed form. It distinguishes runs; it is not a cryptographic hash.

use packtrain_link::{Pace, Segments};

use crate::train::{Body, ROOM, Toward, Train};

const BASE: u64 = 0x9e37_79b9_7f4a_7c15;
const BY_TIME: u64 = 0xbf58_476d_1ce4_e5b9;
const BY_NUMBER: u64 = 0x94d0_49bb_1331_11eb;
const BY_FLOW: u64 = 0xd6e8_feb8_6659_fd93;
const BY_SIZE: u64 = 0xa076_1d64_78bd_642f;
const BY_KIND: u64 = 0xe703_7ed1_a0b4_28db;

/// Maximum run that folds at once.
const RUN: usize = 64;

/// `POWERS[n]`: the base to the power n, the sum of its powers below n, and that sum weighted so
/// that term `i` of an arithmetic run counts `i` times.
const POWERS: [(u64, u64, u64); RUN + 1] = {
    let mut table = [(1, 0, 0); RUN + 1];
    let mut n = 0;
    while n < RUN {
        let (power, sum, weighted): (u64, u64, u64) = table[n];
        table[n + 1] = (
            power.wrapping_mul(BASE),
            sum.wrapping_mul(BASE).wrapping_add(1),
            weighted.wrapping_mul(BASE).wrapping_add(n as u64),
        );
        n += 1;
    }
    table
};

/// A digest under construction.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Digest(u64);

impl Digest {
    /// Folds a train that passes at `pace`; `note` distinguishes outcomes.
    pub(crate) fn train(&mut self, pace: Pace, train: &Train, note: u64) {
        self.run(pace, train, train.first, train.count(), note);
    }

    /// Adds a train packet by packet, independent of the order: a link may report drops of its
    /// queue before losses of its wire.
    pub(crate) fn scatter(&mut self, pace: Pace, train: &Train, note: u64) {
        let step = train.step();
        for i in 0..train.count() {
            let mut one = Self::default();
            let number = train.first.wrapping_add(step * u64::from(i));
            one.run(Pace::at(pace.time(i)), train, number, 1, note);
            self.0 = self.0.wrapping_add(one.get());
        }
    }

    /// Folds the `count` packets at `pace` that precede `rest`.
    pub(crate) fn taken(&mut self, pace: Pace, rest: &Train, count: u32) {
        let first = rest.first.wrapping_sub(rest.step() * u64::from(count));
        self.run(pace, rest, first, count, 0);
    }

    fn run(&mut self, pace: Pace, train: &Train, first: u64, count: u32, note: u64) {
        let kind = match train.body {
            Body::Bare => 1,
            Body::Syn => 2,
            Body::SynAck => 3,
            Body::Data { again } => 4 + again as u64,
            Body::Ack { .. } => 6,
            Body::Sack(_) => 7,
            Body::Engine(_) => 8,
            Body::Probe => 9,
        } + if train.toward == Toward::Receiver { 16 } else { 0 }
            + (note << 8)
            + room_of(&train.body);
        let tag = (u64::from(train.flow) << 32 | u64::from(train.conn))
            .wrapping_mul(BY_FLOW)
            .wrapping_add(u64::from(train.size).wrapping_mul(BY_SIZE))
            .wrapping_add(kind.wrapping_mul(BY_KIND));
        let term = pace
            .first
            .as_nanos()
            .wrapping_mul(BY_TIME)
            .wrapping_add(first.wrapping_mul(BY_NUMBER))
            .wrapping_add(tag);
        // A single packet has no gap and no step. They must not distinguish it from one of a train,
        // and do not, because term 0 counts no step.
        let step = pace
            .gap
            .as_nanos()
            .wrapping_mul(BY_TIME)
            .wrapping_add(train.step().wrapping_mul(BY_NUMBER));
        self.fold(term, step, count);
    }

    /// Folds `count` terms from `first` on in equal steps.
    fn fold(&mut self, mut first: u64, step: u64, mut count: u32) {
        while count > 0 {
            let n = count.min(RUN as u32);
            let (power, sum, weighted) = POWERS[n as usize];
            self.0 = self
                .0
                .wrapping_mul(power)
                .wrapping_add(first.wrapping_mul(sum))
                .wrapping_add(step.wrapping_mul(weighted));
            first = first.wrapping_add(step.wrapping_mul(u64::from(n)));
            count -= n;
        }
    }

    /// Folds another digest's value.
    pub(crate) fn value(&mut self, value: u64) {
        self.fold(mix(value), 0, 1);
    }

    /// The final value.
    pub(crate) fn get(self) -> u64 {
        mix(self.0)
    }
}

/// The room by which a receiver limits its sender; zero elsewhere.
fn room_of(body: &Body) -> u64 {
    let room = match body {
        Body::Ack { room, .. } => *room,
        Body::Sack(sack) => sack.room,
        _ => ROOM,
    };
    u64::from(ROOM - room) << 16
}

/// Spreads the bits of `x` (the finaliser of splitmix64).
pub(crate) fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(BY_TIME);
    let x = (x ^ (x >> 27)).wrapping_mul(BY_NUMBER);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_run_folds_as_its_terms_do(first: u64, step: u64, count in 1..300u32, start: u64) {
            let (mut whole, mut parts) = (Digest(start), Digest(start));
            whole.fold(first, step, count);
            for i in 0..count {
                parts.fold(first.wrapping_add(step.wrapping_mul(u64::from(i))), 77, 1);
            }
            prop_assert_eq!(whole.get(), parts.get());
        }
    }

    #[test]
    fn order_matters() {
        let (mut one, mut other) = (Digest::default(), Digest::default());
        one.fold(1, 0, 1);
        one.fold(2, 0, 1);
        other.fold(2, 0, 1);
        other.fold(1, 0, 1);
        assert_ne!(one.get(), other.get());
    }
}
