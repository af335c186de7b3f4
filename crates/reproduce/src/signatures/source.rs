//! The sources at the bottleneck: the measured flow and its competitors.

use packtrain_link::{Cross, CrossConfig, Pace};
use packtrain_units::{ByteCount, DataRate, Duration, Rng, Time};

use super::random::exponential;

/// The sending pattern of a source.
#[derive(Clone, Debug)]
pub(super) enum Sending {
    /// Trains of `quantum` packets at `line` within a train. Each train is delayed by up to
    /// `jitter` of the interval between two.
    Paced { rate: DataRate, quantum: u32, line: DataRate, jitter: f64 },
    /// The same with a rate that a simple controller changes: it grows by `factor` and `add` per
    /// round trip, and falls by `beta` after a loss, at most once per round trip.
    Probing { rate: DataRate, quantum: u32, line: DataRate, growth: Growth },
    /// The generators of the link crate.
    Cross(CrossConfig),
    /// Consecutive flows: slow start to the first loss, then as TCP.
    Tcp { rtt: Duration, line: DataRate, packets: u64, idle: Duration },
    /// A number of packets at once at the start, which fill the queue.
    Fill { packets: u64 },
}

/// See [`Sending::Probing`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Growth {
    pub(super) rtt: Duration,
    pub(super) factor: f64,
    pub(super) add: DataRate,
    pub(super) beta: f64,
    /// The limits of the rate.
    pub(super) min: DataRate,
    pub(super) max: DataRate,
}

/// A source of packets.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) size: u32,
    rng: Rng,
    state: State,
    next: Option<(Pace, u32)>,
    /// When the last generated packet is sent: packets of a source are sent in order.
    busy: Time,
}

#[derive(Debug)]
enum State {
    Paced { due: Time, rate: DataRate, quantum: u32, gap: Duration, jitter: f64 },
    Probing(Probing),
    Cross(Box<Cross>),
    Tcp(Tcp),
    Fill { left: u64 },
}

#[derive(Debug)]
struct Probing {
    due: Time,
    rate: DataRate,
    quantum: u32,
    gap: Duration,
    growth: Growth,
    /// The end of the current round trip of growth, the time of the pending decrease, and the time
    /// from which a new loss counts.
    grows: Time,
    falls: Option<Time>,
    deaf_until: Time,
}

#[derive(Debug)]
struct Tcp {
    rtt: Duration,
    gap: Duration,
    mean: u64,
    idle: Duration,
    left: u64,
    cwnd: u64,
    threshold: u64,
    round: Time,
    lost: bool,
}

impl Source {
    pub(super) fn new(sending: &Sending, size: u32, mut rng: Rng) -> Self {
        let one = ByteCount(u64::from(size));
        let state = match *sending {
            Sending::Paced { rate, quantum, line, jitter } => {
                let span = rate.time_for(one) * u64::from(quantum);
                let due = Time::ZERO + span.mul_f64(rng.unit());
                State::Paced { due, rate, quantum, gap: line.time_for(one), jitter }
            }
            Sending::Probing { rate, quantum, line, growth } => State::Probing(Probing {
                due: Time::ZERO,
                rate,
                quantum,
                gap: line.time_for(one),
                growth,
                grows: Time::ZERO + growth.rtt,
                falls: None,
                deaf_until: Time::ZERO,
            }),
            Sending::Cross(ref config) => {
                State::Cross(Box::new(Cross::new(config, rng.next_u64())))
            }
            Sending::Tcp { rtt, line, packets, idle } => State::Tcp(Tcp {
                rtt,
                gap: line.time_for(one),
                mean: packets,
                idle,
                left: 0,
                cwnd: 0,
                threshold: 0,
                // The flows start at different times, and some are already running.
                round: Time::ZERO + idle.mul_f64(rng.unit()),
                lost: false,
            }),
            Sending::Fill { packets } => State::Fill { left: packets },
        };
        let mut source = Self { size, rng, state, next: None, busy: Time::ZERO };
        source.next = source.in_order();
        source
    }

    /// When it sends next; `Time::MAX` if never.
    pub(super) fn due(&self) -> Time {
        self.next.map_or(Time::MAX, |(pace, _)| pace.first)
    }

    /// The next packets before `horizon`: at least one and at most `max`.
    pub(super) fn take(&mut self, horizon: Time, max: u32) -> Option<(Pace, u32)> {
        let (pace, count) = self.next.take()?;
        let before = match pace.gap.as_nanos() {
            0 => count,
            gap => {
                let n = horizon.since(pace.first).as_nanos().div_ceil(gap);
                u32::try_from(n).unwrap_or(u32::MAX)
            }
        };
        let n = before.clamp(1, count).min(max.max(1));
        if n < count {
            self.next = Some((pace.from(n), count - n));
        } else {
            self.next = self.in_order();
        }
        Some((pace, n))
    }

    /// A packet of it that arrived at `at` was lost.
    pub(super) fn lost(&mut self, at: Time) {
        match &mut self.state {
            State::Probing(probing) if at >= probing.deaf_until && probing.falls.is_none() => {
                probing.falls = Some(at + probing.growth.rtt);
            }
            State::Tcp(tcp) => tcp.lost = true,
            _ => {}
        }
    }

    fn in_order(&mut self) -> Option<(Pace, u32)> {
        let (mut pace, count) = self.make()?;
        pace.first = pace.first.max(self.busy);
        self.busy = pace.time(count);
        Some((pace, count))
    }

    fn make(&mut self) -> Option<(Pace, u32)> {
        let (size, rng) = (self.size, &mut self.rng);
        match &mut self.state {
            State::Paced { due, rate, quantum, gap, jitter } => {
                let span = rate.time_for(ByteCount(u64::from(size))) * u64::from(*quantum);
                let first = *due + span.mul_f64(*jitter * rng.unit());
                *due += span;
                Some((Pace { first, gap: *gap }, *quantum))
            }
            State::Probing(probing) => Some(probing.make(size)),
            State::Cross(cross) => {
                let (pace, packets) = cross.next_train(64)?;
                Some((pace, packets.count))
            }
            State::Tcp(tcp) => Some(tcp.make(rng)),
            State::Fill { left } => {
                let n = u32::try_from((*left).min(64)).unwrap_or(64);
                *left -= u64::from(n);
                (n > 0).then_some((Pace::at(Time::ZERO), n))
            }
        }
    }
}

impl Probing {
    fn make(&mut self, size: u32) -> (Pace, u32) {
        let Growth { rtt, factor, add, beta, min, max } = self.growth;
        if self.falls.is_some_and(|at| at <= self.due) {
            self.rate = self.rate.mul_f64(beta).max(min);
            self.falls = None;
            self.deaf_until = self.due;
            self.grows = self.due + rtt;
        }
        while self.grows <= self.due {
            // The rate grows until a loss is detected: this causes the overshoot.
            let grown = self.rate.mul_f64(factor).as_bps() + add.as_bps();
            self.rate = DataRate::from_bps(grown).min(max);
            self.grows += rtt;
        }
        let pace = Pace { first: self.due, gap: self.gap };
        self.due += self.rate.time_for(ByteCount(u64::from(size))) * u64::from(self.quantum);
        (pace, self.quantum)
    }
}

impl Tcp {
    fn make(&mut self, rng: &mut Rng) -> (Pace, u32) {
        if self.left == 0 {
            // A new flow: initial window of ten (RFC 6928), no threshold yet.
            self.round += exponential(rng, self.idle);
            let length = -libm::log(1.0 - rng.unit()) * self.mean as f64;
            (self.left, self.cwnd, self.threshold) = (length as u64 + 10, 10, u64::MAX);
        } else {
            self.round += self.rtt.max(self.gap * self.cwnd);
            if self.lost {
                self.cwnd = (self.cwnd / 2).max(2);
                self.threshold = self.cwnd;
            } else if self.cwnd < self.threshold {
                self.cwnd = (self.cwnd * 2).min(self.threshold);
            } else {
                self.cwnd += 1;
            }
        }
        self.lost = false;
        let count = self.cwnd.min(self.left);
        self.left -= count;
        // Two packets for each acknowledgement in slow start: the round's first half.
        let share = if self.threshold == u64::MAX { 2 } else { 1 };
        let gap = self.gap.max(self.rtt / (self.cwnd * share));
        (Pace { first: self.round, gap }, u32::try_from(count).unwrap_or(u32::MAX))
    }
}
