//! One direction of a link.

use std::collections::VecDeque;

use packtrain_units::{ByteCount, Duration, Time};

use crate::config::{Limit, LinkConfig, QueueConfig};
use crate::element::{DropCause, Element, Observer, Pace, Segments};

/// A queue, a transmitter and a wire.
#[derive(Debug)]
pub struct Link<P> {
    config: LinkConfig,
    busy_until: Time,
    waiting: VecDeque<(Time, u32)>,
    bytes: u64,
    out: VecDeque<(Pace, P)>,
}

impl<P: Segments> Link<P> {
    /// A link that was idle for ever.
    pub fn new(config: LinkConfig) -> Self {
        Self {
            config,
            busy_until: Time::ZERO,
            waiting: VecDeque::new(),
            bytes: 0,
            out: VecDeque::new(),
        }
    }
}

impl<P: Segments> Element<P> for Link<P> {
    fn offer(&mut self, pace: Pace, packet: P, observer: &mut impl Observer<P>) {
        let (mut rest, mut pace) = (packet, pace);
        loop {
            let more = (rest.count() > 1).then(|| rest.split_off(1));
            let (at, size) = (pace.first, rest.size(0));
            while self.waiting.front().is_some_and(|(start, _)| *start <= at) {
                self.bytes -= u64::from(self.waiting.pop_front().map_or(0, |w| w.1));
            }
            let QueueConfig::DropTail(limit) = &self.config.queue else { unreachable!("skeleton") };
            let fits = match *limit {
                Limit::Packets(n) => (self.waiting.len() as u64) < n,
                Limit::Bytes(b) => self.bytes + u64::from(size) <= b.get(),
            };
            let start = self.busy_until.max(at);
            if fits || start == at {
                let rate = self.config.rate.steps[0].1;
                self.busy_until = start + rate.time_for(ByteCount(u64::from(size)));
                if start > at {
                    self.waiting.push_back((start, size));
                    self.bytes += u64::from(size);
                }
                let wait = start.since(at);
                observer.queued(&rest, wait, wait);
                self.out.push_back((Pace::at(self.busy_until + self.config.delay), rest));
            } else {
                observer.dropped(Pace::at(at), rest, DropCause::Overflow);
            }
            let Some(next) = more else { break };
            rest = next;
            pace = Pace { first: pace.first + pace.gap, gap: pace.gap };
        }
        let _ = Duration::ZERO;
    }

    fn poll_departure(&mut self, until: Time, _: &mut impl Observer<P>) -> Option<(Pace, P)> {
        if self.out.front()?.0.first > until {
            return None;
        }
        self.out.pop_front()
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.out.front().map(|(pace, _)| pace.first)
    }
}
