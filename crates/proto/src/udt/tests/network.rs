//! The two ends and the network between them.

use std::collections::BTreeMap;

use packtrain_cc::udt::Variant;
use packtrain_units::{ByteCount, DataRate, Duration, Rng, Time};

use super::{DATAGRAM, Puppet};
use crate::test_network::{Path, START, UnderWay};
use crate::udt::{Message, Permit, Receiver, ReceiverConfig, Sender, SenderConfig, UnitStatus};

#[derive(Clone, Debug)]
enum Thing {
    Unit { unit: u64, joined: bool },
    Forth(Message),
    Back(Message),
}

/// Sender, receiver, network, and an owner that has `total` units to send.
pub(super) struct Pair {
    pub(super) sender: Sender,
    pub(super) receiver: Receiver,
    pub(super) now: Time,
    pub(super) puppet: Puppet,
    pub(super) total: u64,
    pub(super) first: u64,
    /// How often each unit was sent.
    pub(super) left: BTreeMap<u64, u32>,
    /// New units with the times at which they were sent.
    pub(super) fresh: Vec<(Time, u64)>,
    /// Messages of the receiver, with their times.
    pub(super) messages: Vec<(Time, Message)>,
    pub(super) keep: bool,
    /// Selects additional losses.
    pub(super) lose: Box<dyn FnMut(Time, Event<'_>) -> bool>,
    /// The sender received a false message.
    pub(super) lied_to: bool,
    placed: Vec<bool>,
    path: Path,
    rng: Rng,
    air: UnderWay<Thing>,
    config: ReceiverConfig,
}

/// A packet that is about to cross the network.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event<'a> {
    Unit(u64),
    Message(&'a Message),
}

impl Pair {
    pub(super) fn new(
        variant: Variant,
        puppet: Puppet,
        (first, total, window): (u64, u64, u64),
        train: u32,
        path: Path,
        seed: u64,
    ) -> Self {
        let now = Time::ZERO + START;
        let sender =
            SenderConfig { variant, first, datagram: DATAGRAM, train, window, bitmaps: false };
        let config = ReceiverConfig { variant, first, window, train, socket: None };
        Self {
            sender: Sender::new(sender, Box::new(puppet.clone()), now),
            receiver: Receiver::new(config, now),
            now,
            puppet,
            total,
            first,
            left: BTreeMap::new(),
            fresh: Vec::new(),
            messages: Vec::new(),
            keep: false,
            lose: Box::new(|_, _| false),
            lied_to: false,
            placed: vec![false; total as usize],
            path,
            rng: Rng::new(seed),
            air: UnderWay::default(),
            config,
        }
    }

    /// The receiver's socket holds this many packets. Nothing was sent so far.
    pub(super) fn set_socket(&mut self, socket: Option<u64>) {
        self.receiver = Receiver::new(ReceiverConfig { socket, ..self.config }, self.now);
    }

    pub(super) fn is_done(&self) -> bool {
        self.sender.acked() == self.first + self.total
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
        self.check();
    }

    fn arrive(&mut self, thing: Thing) {
        match thing {
            Thing::Unit { unit, joined } => {
                match self.receiver.check(unit) {
                    UnitStatus::New => {
                        let at = (unit - self.first) as usize;
                        assert!(!self.placed[at], "unit {unit} came twice");
                        self.placed[at] = true;
                        self.receiver.take(self.now, unit, 1);
                    }
                    UnitStatus::Duplicate => {}
                    UnitStatus::Outside => panic!("unit {unit} outside of the window"),
                }
                self.receiver.on_batch(self.now, unit, unit, 1, joined);
            }
            Thing::Forth(message) => self.receiver.on_message(self.now, &message).unwrap(),
            Thing::Back(message) => self.sender.on_message(self.now, &message).unwrap(),
        }
    }

    fn transmit(&mut self) {
        while let Some(message) = self.receiver.poll_message(self.now) {
            if self.keep {
                self.messages.push((self.now, message.clone()));
            }
            self.cross(Thing::Back(message));
        }
        while let Some(message) = self.sender.poll_message(self.now) {
            self.cross(Thing::Forth(message));
        }
        loop {
            let ready = self.first + self.total - self.sender.next();
            let Some(leave) = self.sender.poll(self.now, ready) else { break };
            let (first, count, again, joined) = match leave {
                Permit::Retransmit { first, count } => (first, count, true, false),
                Permit::Fresh { count, joined } => (self.sender.next(), count, false, joined),
            };
            assert!(count > 0);
            let wire = ByteCount(u64::from(count) * DATAGRAM.get());
            self.sender.on_sent(self.now, first, count, wire, again);
            for unit in first..first + u64::from(count) {
                *self.left.entry(unit).or_default() += 1;
                if !again && self.keep {
                    self.fresh.push((self.now, unit));
                }
                self.cross(Thing::Unit { unit, joined: joined || unit > first });
            }
        }
    }

    fn cross(&mut self, thing: Thing) {
        let event = match &thing {
            Thing::Unit { unit, .. } => Event::Unit(*unit),
            Thing::Forth(message) | Thing::Back(message) => Event::Message(message),
        };
        let loss = match event {
            Event::Unit(_) => self.path.loss,
            Event::Message(_) => self.path.message_loss,
        };
        if (self.lose)(self.now, event) {
            return;
        }
        for at in self.path.arrivals(self.now, loss, &mut self.rng) {
            self.air.put(at, thing.clone());
        }
    }

    /// Increases the delay of the path by `late`.
    pub(super) fn slow(&mut self, late: Duration) {
        self.path.delay = MS_5 + late;
    }

    fn check(&self) {
        let open = self.sender.next() - self.sender.acked();
        assert!(open <= self.config.window, "{open} units open");
        assert!(self.receiver.missing() < self.config.window);
        assert!(self.lied_to || self.receiver.next() >= self.sender.acked());
    }

    pub(super) fn all_placed(&self) -> bool {
        self.placed.iter().all(|placed| *placed)
    }

    pub(super) fn repeats(&self) -> u64 {
        self.left.values().map(|n| u64::from(*n) - 1).sum()
    }
}

/// A hundred megabits a second.
pub(super) const RATE: DataRate = DataRate::from_mbps(100);

const MS_5: Duration = Duration::from_millis(5);
