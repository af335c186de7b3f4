//! Packets in flight to a node over one link.

use std::collections::VecDeque;

use packtrain_link::{Pace, Segments};
use packtrain_units::{Duration, Time};

use crate::train::Train;

/// Trains that will arrive, ordered by (time of the first packet, order of insertion). Trains may
/// interleave where a link reorders.
#[derive(Debug, Default)]
pub(crate) struct Ingress {
    queue: VecDeque<Arrival>,
    inserted: u64,
    /// Insertion order of the train from which packets were last taken.
    taken: u64,
}

#[derive(Debug)]
struct Arrival {
    pace: Pace,
    train: Train,
    order: u64,
}

impl Ingress {
    /// When the first packet arrives; the end of time if none is in flight.
    #[inline]
    pub(crate) fn head(&self) -> Time {
        self.queue.front().map_or(Time::MAX, |arrival| arrival.pace.first)
    }

    /// The train of the first packet.
    pub(crate) fn front(&self) -> Option<&Train> {
        self.queue.front().map(|arrival| &arrival.train)
    }

    /// Adds a train that was decided after all earlier ones; joins it to the newest one if it
    /// continues it and both together have at most `max_packets` packets.
    pub(crate) fn push(&mut self, pace: Pace, train: Train, max_packets: u32) {
        let mut train = train;
        if let Some(back) = self.queue.back_mut() {
            // Only the newest: another one may be due in between because it was inserted earlier.
            if max_packets > 1 && back.order == self.inserted {
                match back.train.append(&mut back.pace, train, pace, max_packets) {
                    Ok(()) => return,
                    Err(same) => train = same,
                }
            }
        }
        self.inserted += 1;
        let arrival = Arrival { pace, train, order: self.inserted };
        let mut at = self.queue.len();
        while at > 0 && self.queue[at - 1].pace.first > pace.first {
            at -= 1;
        }
        if at == self.queue.len() {
            self.queue.push_back(arrival);
        } else {
            self.queue.insert(at, arrival);
        }
    }

    /// Takes the packets of the first train that arrive before `bound` (at least one) and before
    /// the next train's.
    pub(crate) fn take(&mut self, bound: Time) -> Option<(Pace, Train)> {
        let mut bound = bound;
        let order = self.queue.front()?.order;
        self.taken = order;
        if let Some(next) = self.queue.get(1) {
            let tie = Duration::from_nanos(u64::from(order < next.order));
            bound = bound.min(next.pace.first + tie);
        }
        let head = self.queue.front_mut()?;
        let within = before(head.pace, head.train.count(), bound);
        if within >= head.train.count() {
            return self.queue.pop_front().map(|arrival| (arrival.pace, arrival.train));
        }
        let pace = head.pace;
        let rest = head.train.split_off(within);
        let taken = std::mem::replace(&mut head.train, rest);
        head.pace = pace.from(within);
        self.settle();
        Some((pace, taken))
    }

    /// Puts back packets that were taken last and are not needed yet.
    pub(crate) fn put_back(&mut self, pace: Pace, train: Train) {
        self.queue.push_front(Arrival { pace, train, order: self.taken });
        self.settle();
    }

    /// Restores the order after the first train lost its first packets.
    fn settle(&mut self) {
        let key = |a: &Arrival| (a.pace.first, a.order);
        let mut i = 0;
        while i + 1 < self.queue.len() && key(&self.queue[i + 1]) < key(&self.queue[i]) {
            self.queue.swap(i, i + 1);
            i += 1;
        }
    }
}

/// How many of `count` packets at `pace` pass before `bound`; at least one.
pub(crate) fn before(pace: Pace, count: u32, bound: Time) -> u32 {
    if count == 1 || pace.time(count - 1) < bound {
        return count;
    }
    if pace.gap.is_zero() || bound <= pace.first {
        return 1;
    }
    let span = bound.since(pace.first).as_nanos();
    (span.div_ceil(pace.gap.as_nanos()) as u32).clamp(1, count)
}
