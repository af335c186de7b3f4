//! One direction of a link: checks the packet's size, then passes it through the queue, the
//! transmitter and the wire.
//!
//! With a queue that decides on arrival (`passing`), departures are computed when packets are
//! offered. With one that decides at its head (`holding`), packets are kept until they can be sent.

mod holding;
mod passing;

use packtrain_units::{ByteCount, Rng, Time};

use crate::config::LinkConfig;
use crate::departures::Departures;
use crate::element::{DropCause, Element, Observer, Pace, Segments};
use crate::queue::{Backlog, Discipline, Queue};
use crate::rate::{Sent, Transmitter};
use crate::wire::Wire;
use holding::Held;

/// A queue, a transmitter and a wire.
#[derive(Debug)]
pub struct Link<P> {
    mtu: u64,
    queue: Queue,
    backlog: Backlog,
    transmitter: Transmitter,
    wire: Wire,
    held: Held<P>,
    out: Departures<P>,
}

impl<P: Segments> Link<P> {
    /// A link that has been idle. A configuration that `LinkConfig::check` refuses gives
    /// unspecified results, but no panic.
    pub fn new(config: LinkConfig) -> Self {
        let mut rng = Rng::new(config.seed);
        let queue = Queue::new(&config.queue, rng.next_u64());
        Self::assembled(&config, queue, rng)
    }

    /// A link with a custom queue instead of the configured one.
    pub fn with_queue(config: &LinkConfig, queue: Box<dyn Discipline>) -> Self {
        let mut rng = Rng::new(config.seed);
        // Draw as for a built-in queue, so that the impairments are the same.
        rng.next_u64();
        Self::assembled(config, Queue::Own(queue), rng)
    }

    fn assembled(config: &LinkConfig, queue: Queue, mut rng: Rng) -> Self {
        let transmitter = Transmitter::new(&config.rate, config.overhead.get());
        let mut backlog = Backlog::default();
        backlog.set_transmitter(Time::ZERO, transmitter.rate());
        Self {
            mtu: config.mtu.get(),
            queue,
            backlog,
            transmitter,
            wire: Wire::new(config, &mut rng),
            held: Held::new(),
            out: Departures::new(),
        }
    }

    /// Packets and bytes that wait at `now`, which counts as a requested time.
    pub fn waiting(&mut self, now: Time) -> (u64, ByteCount) {
        (self.backlog.packets(now), self.backlog.bytes(now))
    }

    /// When everything accepted so far has been sent; with a queue that decides at its head,
    /// everything decided so far.
    pub fn busy_until(&self) -> Time {
        self.backlog.free()
    }

    /// Offers segments of equal size.
    fn offer_even(&mut self, pace: Pace, packet: P, observer: &mut impl Observer<P>) {
        if u64::from(packet.size(0)) > self.mtu {
            return observer.dropped(pace, packet, DropCause::TooBig);
        }
        if self.queue.decides_at_head() {
            self.hold(pace, packet, observer);
        } else {
            self.pass(pace, packet, observer);
        }
    }

    /// Passes on packets whose transmission is decided; `arrived` is when they were offered.
    #[inline]
    fn sent(&mut self, arrived: Pace, sent: Sent, packet: P, observer: &mut impl Observer<P>) {
        let last = sent.count - 1;
        let first_wait = sent.starts.first.since(arrived.first);
        let last_wait = sent.starts.time(last).since(arrived.time(last));
        observer.queued(&packet, first_wait, last_wait);
        self.wire.carry(sent.finishes(), packet, &mut self.out, observer);
    }
}

impl<P: Segments> Element<P> for Link<P> {
    fn offer(&mut self, pace: Pace, mut packet: P, observer: &mut impl Observer<P>) {
        let last = packet.count() - 1;
        if last > 0 && packet.size(last) != packet.size(0) {
            let short = packet.split_off(last);
            self.offer_even(pace, packet, observer);
            return self.offer_even(pace.from(last), short, observer);
        }
        self.offer_even(pace, packet, observer);
    }

    fn poll_departure(
        &mut self,
        until: Time,
        observer: &mut impl Observer<P>,
    ) -> Option<(Pace, P)> {
        if until != Time::MAX && !self.held.is_empty() {
            self.release(until, observer);
        }
        self.out.pop(until)
    }

    fn poll_timeout(&self) -> Option<Time> {
        let decision = self.held.next(self.backlog.free());
        decision.into_iter().chain(self.out.next()).min()
    }
}
