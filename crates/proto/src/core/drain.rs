//! The rate at which a receiver's application takes placed bytes.

use std::collections::VecDeque;

use packtrain_units::{ByteCount, DataRate, Duration, Time};

/// Time over which the rate is averaged: the round trip, because the sender lends as much as the
/// rate brings in one, within these limits. Writers take blocks of megabytes: over a few
/// milliseconds their rate is zero or many times its mean.
const SPAN: (Duration, Duration) = (Duration::from_millis(50), Duration::from_millis(200));
/// Measurements in that time.
const STEPS: u64 = 8;

/// The rate at which the pool empties: bytes placed less the decrease of room.
#[derive(Debug)]
pub(crate) struct Drain {
    /// Bytes per second that leave the pool.
    pub(crate) rate: DataRate,
    /// The most room ever seen.
    pub(crate) max_room: ByteCount,
    /// Bytes placed so far.
    pub(crate) placed: u64,
    /// The state at times one step apart, oldest first; at least one, at most `STEPS + 1`.
    states: VecDeque<State>,
    span: Duration,
}

/// The pool at one time.
#[derive(Clone, Copy, Debug)]
struct State {
    at: Time,
    placed: u64,
    room: ByteCount,
}

impl Drain {
    /// A pool with this much room.
    pub(crate) fn new(now: Time, room: ByteCount) -> Self {
        let state = State { at: now, placed: 0, room };
        Self {
            rate: DataRate::ZERO,
            max_room: room,
            placed: 0,
            states: VecDeque::from([state]),
            span: SPAN.0,
        }
    }

    /// The round trip of the flow.
    pub(crate) fn set_rtt(&mut self, rtt: Duration) {
        self.span = rtt.clamp(SPAN.0, SPAN.1);
    }

    /// Takes the current room of the pool.
    pub(crate) fn update(&mut self, now: Time, room: ByteCount) {
        self.max_room = self.max_room.max(room);
        let newest = self.states.back().map_or(Time::ZERO, |state| state.at);
        if now.since(newest) < self.span / STEPS {
            return;
        }
        let from = self.states.iter().rev().find(|state| now.since(state.at) >= self.span);
        let Some(from) = from.or(self.states.front()).copied() else { return };
        let drained = (self.placed - from.placed + room.get()).saturating_sub(from.room.get());
        // An empty pool that nothing enters gives no information about its drain rate.
        if drained > 0 || room.get() < self.max_room.get() / 2 {
            let span = now.since(from.at).max(self.span);
            self.rate = DataRate::from_bytes_over(ByteCount(drained), span);
        }
        self.states.push_back(State { at: now, placed: self.placed, room });
        while self.states.len() > STEPS as usize + 1 {
            self.states.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn the_drain_rate_is_what_left_the_pool() {
        let mut drain = Drain::new(Time::ZERO, ByteCount(1_000_000));
        drain.placed = 500_000;
        drain.update(Time::ZERO + MS * 50, ByteCount(600_000));
        assert_eq!(drain.rate, DataRate::from_bps(100_000 * 8 * 20));
        drain.update(Time::ZERO + MS * 100, ByteCount(1_000_000));
        assert_eq!(drain.rate, DataRate::from_bps(400_000 * 8 * 20));
    }

    /// A writer that takes 400 kB every 40 ms, while as much arrives evenly.
    #[test]
    fn a_writer_that_takes_blocks_has_its_mean_rate() {
        for rtt in [20, 100, 300] {
            let mut drain = Drain::new(Time::ZERO, ByteCount(1_000_000));
            drain.set_rtt(MS * rtt);
            let mut greatest = DataRate::ZERO;
            for ms in 1..2_000u64 {
                drain.placed += 10_000;
                let held = ms % 40 * 10_000;
                drain.update(Time::ZERO + MS * ms, ByteCount(1_000_000 - held));
                if ms > 100 {
                    greatest = greatest.max(drain.rate);
                }
            }
            assert!(
                greatest < DataRate::from_mbps(160),
                "{rtt} ms: {greatest} instead of 80 Mbit/s"
            );
        }
    }
}
