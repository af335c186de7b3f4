//! The two ends and the network between them.

use packtrain_cc::{ControllerConfig, build};
use packtrain_units::{ByteCount, Duration, Rng, Time};

use crate::sabul::{Message, Receiver, Sender, SenderConfig};
use crate::test_network::{Path, START, UnderWay};
use crate::udt::{Permit, UnitStatus};

pub(super) const DATAGRAM: ByteCount = ByteCount(1_472);

#[derive(Clone, Debug)]
enum Thing {
    Unit(u64),
    Forth(Message),
    Back(Message),
}

/// Sender, receiver, network, and an owner that has `total` units to send.
pub(super) struct Pair {
    pub(super) sender: Sender,
    pub(super) receiver: Receiver,
    pub(super) now: Time,
    pub(super) total: u64,
    /// Units in the order of sending, with their times.
    pub(super) left: Vec<(Time, u64)>,
    /// Messages of the receiver, with their times.
    pub(super) messages: Vec<(Time, Message)>,
    /// Selects additional losses.
    pub(super) lose: Box<dyn FnMut(Time, u64) -> bool>,
    placed: Vec<bool>,
    path: Path,
    rng: Rng,
    air: UnderWay<Thing>,
    /// When the newest message of each direction arrives.
    channel: [Time; 2],
}

impl Pair {
    /// `sizes` are the total units, the units of the window, and those of a buffer.
    pub(super) fn new(
        cc: &str,
        (total, window, buffer): (u64, u64, u64),
        train: u32,
        path: Path,
        seed: u64,
    ) -> Self {
        let now = Time::ZERO + START;
        let config = ControllerConfig { mtu: DATAGRAM, seed, now, ceiling: None, rtt: None };
        let controller = build(cc, &config).unwrap();
        let config = SenderConfig { datagram: DATAGRAM, train, window, buffer };
        Self {
            sender: Sender::new(config, controller, now),
            receiver: Receiver::new(window, None, now),
            now,
            total,
            left: Vec::new(),
            messages: Vec::new(),
            lose: Box::new(|_, _| false),
            placed: vec![false; total as usize],
            path,
            rng: Rng::new(seed),
            air: UnderWay::default(),
            channel: [now; 2],
        }
    }

    pub(super) fn is_done(&self) -> bool {
        self.sender.acked() == self.total
    }

    /// Runs until all is acknowledged or `limit` has passed.
    pub(super) fn run(&mut self, limit: Duration) {
        let end = self.now + limit;
        self.transmit();
        while !self.is_done() && self.now < end && self.next_event().is_some() {
            self.step();
        }
    }

    /// Runs until no event remains, or until `limit` has passed. Returns true if no event remains.
    pub(super) fn settle(&mut self, limit: Duration) -> bool {
        let end = self.now + limit;
        while self.now < end {
            if self.next_event().is_none() {
                return true;
            }
            self.step();
        }
        false
    }

    fn next_event(&self) -> Option<Time> {
        [self.air.next_arrival(), self.sender.poll_timeout(), self.receiver.poll_timeout()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Advances to the next event.
    pub(super) fn step(&mut self) {
        self.transmit();
        let Some(next) = self.next_event() else { return };
        self.now = self.now.max(next);
        while let Some(thing) = self.air.arrived(self.now) {
            self.arrive(thing);
        }
        self.sender.handle_timeout(self.now);
        self.receiver.handle_timeout(self.now);
        self.transmit();
        assert!(self.receiver.next() >= self.sender.acked());
    }

    fn arrive(&mut self, thing: Thing) {
        match thing {
            Thing::Unit(unit) => match self.receiver.check(unit) {
                UnitStatus::New => {
                    assert!(!self.placed[unit as usize], "unit {unit} came twice");
                    self.placed[unit as usize] = true;
                    self.receiver.take(self.now, unit, 1);
                }
                UnitStatus::Duplicate => {}
                UnitStatus::Outside => panic!("unit {unit} outside of the window"),
            },
            Thing::Forth(message) => self.receiver.on_message(self.now, &message).unwrap(),
            Thing::Back(message) => self.sender.on_message(self.now, &message).unwrap(),
        }
    }

    fn transmit(&mut self) {
        while let Some(message) = self.receiver.poll_message(self.now) {
            self.messages.push((self.now, message.clone()));
            self.channel(1, Thing::Back(message));
        }
        loop {
            while let Some(message) = self.sender.poll_message() {
                self.channel(0, Thing::Forth(message));
            }
            let Some(leave) = self.sender.poll(self.now, self.total - self.sender.next()) else {
                break;
            };
            let (first, count, again) = match leave {
                Permit::Retransmit { first, count } => (first, count, true),
                Permit::Fresh { count, .. } => (self.sender.next(), count, false),
            };
            assert!(count > 0);
            let wire = ByteCount(u64::from(count) * DATAGRAM.get());
            self.sender.on_sent(self.now, first, count, wire, again);
            for unit in first..first + u64::from(count) {
                self.left.push((self.now, unit));
                self.cross(unit);
            }
        }
        while let Some(message) = self.sender.poll_message() {
            self.channel(0, Thing::Forth(message));
        }
    }

    /// The channel neither loses nor reorders.
    fn channel(&mut self, way: usize, message: Thing) {
        let late = Duration::from_nanos(self.rng.below(self.path.late.as_nanos() + 1));
        let at = (self.now + self.path.delay + late).max(self.channel[way]);
        self.channel[way] = at;
        self.air.put(at, message);
    }

    fn cross(&mut self, unit: u64) {
        if (self.lose)(self.now, unit) {
            return;
        }
        for at in self.path.arrivals(self.now, self.path.loss, &mut self.rng) {
            self.air.put(at, Thing::Unit(unit));
        }
    }

    pub(super) fn all_placed(&self) -> bool {
        self.placed.iter().all(|placed| *placed)
    }

    /// Number of retransmissions.
    pub(super) fn repeats(&self) -> u64 {
        self.left.len() as u64 - self.total
    }
}
