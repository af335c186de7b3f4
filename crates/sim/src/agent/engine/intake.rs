//! Passes packets from the network to the engine.

use std::collections::VecDeque;

use packtrain_link::{DropCause, Host, HostConfig, Observer, Pace, Segments};
use packtrain_units::Time;

use super::batch::Batch;
use super::wire::Wire;
use crate::train::Train;

/// The path between the network and the engine.
#[derive(Debug)]
pub(super) enum Intake {
    /// Batches by time and size only.
    Plain(Batch),
    /// A model of the host.
    Host(Box<Socket>),
}

/// A socket on a modelled host.
#[derive(Debug)]
pub(super) struct Socket {
    host: Host<Train>,
    /// Batches that the process has read and still works on.
    reading: VecDeque<packtrain_link::Batch<Train>>,
    /// Drops since the beginning.
    drops: Drops,
    /// When the newest packet arrived.
    last: Time,
    batch: Batch,
}

#[derive(Debug, Default)]
struct Drops(u32);

impl Observer<Train> for Drops {
    fn dropped(&mut self, _: Pace, packet: Train, _: DropCause) {
        self.0 = self.0.wrapping_add(packet.count());
    }
}

impl Intake {
    /// With a host model whose randomness is this flow's own, from `seed`.
    pub(super) fn host(config: &HostConfig, seed: u64) -> Self {
        let config = HostConfig { seed: crate::trace::mix(config.seed ^ seed), ..config.clone() };
        Self::Host(Box::new(Socket {
            host: Host::new(&config),
            reading: VecDeque::new(),
            drops: Drops::default(),
            last: Time::ZERO,
            batch: Batch::joined(),
        }))
    }

    /// Takes packets that arrive no later than `until`, at least one; returns the others. A read
    /// that becomes due comes before them.
    pub(super) fn take(&mut self, pace: Pace, train: Train, until: Time) -> Option<(Pace, Train)> {
        match self {
            Self::Plain(batch) => batch.take(pace, train, until),
            Self::Host(socket) => socket.take(pace, train),
        }
    }

    /// When the newest packet arrived.
    pub(super) fn last(&self) -> Time {
        match self {
            Self::Plain(batch) => batch.last(),
            Self::Host(socket) => socket.last,
        }
    }

    /// When `read` has work.
    pub(super) fn due(&self) -> Option<Time> {
        match self {
            Self::Plain(batch) => batch.due(),
            Self::Host(socket) => {
                let done = socket.reading.front().map(|batch| batch.done);
                done.into_iter().chain(socket.host.poll_timeout()).min()
            }
        }
    }

    /// Passes due batches to the engine.
    pub(super) fn read(&mut self, now: Time, wire: &mut Wire) {
        match self {
            Self::Plain(batch) => {
                if batch.due().is_some_and(|due| due <= now) {
                    hand_over(now, batch, wire);
                }
            }
            Self::Host(socket) => socket.read(now, wire),
        }
    }
}

impl Socket {
    /// Takes one packet at a time: whether the process reads between two of them depends on its
    /// scheduling.
    fn take(&mut self, pace: Pace, mut train: Train) -> Option<(Pace, Train)> {
        let rest = (train.count() > 1).then(|| (pace.from(1), train.split_off(1)));
        self.last = pace.first;
        self.host.arrive(Pace::at(pace.first), train, &mut self.drops);
        rest
    }

    /// Passes a batch to the engine when the process has finished it, with the socket's drop
    /// counter, like `SO_RXQ_OVFL`.
    fn read(&mut self, now: Time, wire: &mut Wire) {
        while let Some(batch) = self.host.poll_read(now, &mut self.drops) {
            self.reading.push_back(batch);
        }
        while self.reading.front().is_some_and(|batch| batch.done <= now) {
            let Some(read) = self.reading.pop_front() else { return };
            wire.host_drops(self.drops.0);
            for (pace, train) in read.packets {
                let mut rest = Some((pace, train));
                while let Some((pace, train)) = rest.take() {
                    rest = self.batch.take(pace, train, Time::MAX);
                    if rest.is_some() {
                        hand_over(now, &mut self.batch, wire);
                    }
                }
            }
            hand_over(now, &mut self.batch, wire);
        }
    }
}

fn hand_over(now: Time, batch: &mut Batch, wire: &mut Wire) {
    if batch.due().is_some() {
        wire.handle(now, batch.last(), batch);
        batch.clear();
    }
}
