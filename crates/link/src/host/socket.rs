//! Coalescing at the interface, and the socket's buffer.

use std::collections::VecDeque;

use packtrain_units::{ByteCount, Time};

use super::{true_size, true_size_joined};
use crate::element::{DropCause, Observer, Pace, Segments};

/// Maximum datagrams of one read, unless a single coalesced buffer has more: about what one receive
/// call of ours requests, 32 small messages or two large ones.
const MAX_READ_DATAGRAMS: u32 = 64;

/// Datagrams that the interface has not passed on yet.
#[derive(Debug)]
pub(super) struct Joining<P> {
    until: Time,
    size: u32,
    count: u32,
    bytes: u64,
    parts: Vec<(Pace, P)>,
}

impl<P: Segments> Joining<P> {
    pub(super) fn new(pace: Pace, packet: P, until: Time) -> Self {
        let size = packet.size(0);
        let mut this = Self { until, size, count: 0, bytes: 0, parts: Vec::new() };
        this.add(pace, packet);
        this
    }

    /// Adds equal segments.
    pub(super) fn add(&mut self, pace: Pace, packet: P) {
        self.count += packet.count();
        self.bytes += u64::from(packet.count()) * u64::from(packet.size(0));
        self.parts.push((pace, packet));
    }

    /// When it is passed on at the latest.
    pub(super) fn until(&self) -> Time {
        self.until
    }

    pub(super) fn size(&self) -> u32 {
        self.size
    }

    pub(super) fn count(&self) -> u32 {
        self.count
    }

    fn cost(&self) -> u64 {
        match self.count {
            1 => true_size(ByteCount(self.bytes)).get(),
            count => true_size_joined(count, ByteCount(self.bytes)).get(),
        }
    }
}

/// The socket's buffer. As in Linux, a packet is accepted while the present contents do not exceed
/// the limit, so the last one may exceed it.
#[derive(Debug)]
pub(super) struct Socket<P> {
    limit: u64,
    used: u64,
    waiting: VecDeque<Waiting<P>>,
}

#[derive(Debug)]
struct Waiting<P> {
    /// True size of each datagram, or of the whole if they are coalesced.
    cost: u64,
    joined: bool,
    count: u32,
    parts: Vec<(Pace, P)>,
}

impl<P: Segments> Socket<P> {
    pub(super) fn new(limit: ByteCount) -> Self {
        Self { limit: limit.get(), used: 0, waiting: VecDeque::new() }
    }

    pub(super) fn used(&self) -> ByteCount {
        ByteCount(self.used)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) fn take_joined(&mut self, open: Joining<P>, observer: &mut impl Observer<P>) {
        if self.used > self.limit {
            for (pace, packet) in open.parts {
                observer.dropped(pace, packet, DropCause::Host);
            }
            return;
        }
        let cost = open.cost();
        self.used += cost;
        self.waiting.push_back(Waiting {
            cost,
            joined: true,
            count: open.count,
            parts: open.parts,
        });
    }

    /// Accepts equal datagrams, each in a buffer of its own.
    pub(super) fn take_singles(
        &mut self,
        pace: Pace,
        mut packet: P,
        observer: &mut impl Observer<P>,
    ) {
        let cost = true_size(ByteCount(u64::from(packet.size(0)))).get();
        let fit = match self.limit.checked_sub(self.used) {
            Some(room) => u32::try_from(room / cost + 1).unwrap_or(u32::MAX),
            None => 0,
        };
        let mut refused = None;
        if fit == 0 {
            return observer.dropped(pace, packet, DropCause::Host);
        } else if fit < packet.count() {
            refused = Some((pace.from(fit), packet.split_off(fit)));
        }
        let count = packet.count();
        self.used += cost * u64::from(count);
        self.waiting.push_back(Waiting { cost, joined: false, count, parts: vec![(pace, packet)] });
        if let Some((pace, packet)) = refused {
            observer.dropped(pace, packet, DropCause::Host);
        }
    }

    /// Removes the packets of one read.
    pub(super) fn read(&mut self) -> Vec<(Pace, P)> {
        let (mut packets, mut left) = (Vec::new(), MAX_READ_DATAGRAMS);
        while let Some(mut first) = self.waiting.pop_front() {
            if first.joined && first.count > left && !packets.is_empty() || left == 0 {
                self.waiting.push_front(first);
                break;
            }
            if first.joined {
                self.used -= first.cost;
            } else {
                if let Some((pace, packet)) = first.parts.first_mut().filter(|p| p.1.count() > left)
                {
                    let rest = packet.split_off(left);
                    let parts = vec![(pace.from(left), rest)];
                    let count = first.count - left;
                    self.waiting.push_front(Waiting {
                        cost: first.cost,
                        joined: false,
                        count,
                        parts,
                    });
                    first.count = left;
                }
                self.used -= first.cost * u64::from(first.count);
            }
            left = left.saturating_sub(first.count);
            packets.append(&mut first.parts);
        }
        packets
    }
}
