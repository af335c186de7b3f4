//! Packets that have arrived and are not read yet.

use packtrain_link::{Pace, Segments};
use packtrain_proto::TRAIN_PACKETS;
use packtrain_proto::bare::BarePacket;
use packtrain_units::{Duration, Time};

use crate::train::{Body, EngineBody, Train};

/// How long a receiving process sleeps after a packet arrives.
const COALESCE: Duration = Duration::from_micros(50);

/// Packets of one size and with the same ECN bits, the last perhaps shorter.
#[derive(Debug)]
pub(super) struct Batch {
    /// Without a codec: the packets.
    pub(super) packets: Vec<BarePacket>,
    /// With a codec: the bytes.
    pub(super) bytes: Vec<u8>,
    size: u32,
    ecn: u8,
    stride: usize,
    count: u32,
    opened: Time,
    last: Time,
    /// Whether a packet shorter than the others ended it.
    ended: bool,
    max_packets: u32,
    span: Duration,
}

impl Batch {
    /// For an end that takes each packet at once.
    pub(super) fn single() -> Self {
        Self {
            packets: Vec::new(),
            bytes: Vec::new(),
            size: 0,
            ecn: 0,
            stride: 0,
            count: 0,
            opened: Time::ZERO,
            last: Time::ZERO,
            ended: false,
            max_packets: 1,
            span: Duration::ZERO,
        }
    }

    /// For an end that sleeps after a packet arrives.
    pub(super) fn coalescing() -> Self {
        Self { max_packets: TRAIN_PACKETS, span: COALESCE, ..Self::single() }
    }

    /// For packets that a socket has already coalesced: only size and number end the batch.
    pub(super) fn joined() -> Self {
        Self { max_packets: TRAIN_PACKETS, span: Duration::MAX, ..Self::single() }
    }

    /// Bytes of each datagram except the last.
    pub(super) fn stride(&self) -> usize {
        self.stride
    }

    /// The ECN bits of its packets.
    pub(super) fn ecn(&self) -> u8 {
        self.ecn
    }

    /// When its last packet arrived.
    pub(super) fn last(&self) -> Time {
        self.last
    }

    /// When it is due to be read.
    pub(super) fn due(&self) -> Option<Time> {
        if self.count == 0 {
            return None;
        }
        let full = self.ended || self.count == self.max_packets;
        Some(if full { self.last } else { self.opened + self.span })
    }

    /// Takes the packets of a train that belong to this batch and arrive no later than `until`.
    /// Returns the others. The batch must be read before the first of them, unless that arrives
    /// later than `until`.
    pub(super) fn take(
        &mut self,
        pace: Pace,
        mut train: Train,
        until: Time,
    ) -> Option<(Pace, Train)> {
        if self.count > 0 && (train.size > self.size || train.ecn != self.ecn) {
            self.ended = true;
            return Some((pace, train));
        }
        if self.count == 0 {
            (self.size, self.ecn, self.opened) = (train.size, train.ecn, pace.first);
        }
        if self.ended || self.count == self.max_packets {
            return Some((pace, train));
        }
        let shorter = train.size < self.size;
        let room = if shorter { 1 } else { self.max_packets - self.count };
        let until = until.min(self.opened + self.span);
        let count = train.count.min(room).min(before(pace, until));
        if count == 0 {
            return Some((pace, train));
        }
        let rest = (count < train.count).then(|| {
            let rest = train.split_off(count);
            (pace.from(count), rest)
        });
        self.last = pace.time(count - 1);
        self.count += count;
        self.ended |= shorter;
        self.put(train);
        rest
    }

    /// Empties it.
    pub(super) fn clear(&mut self) {
        self.packets.clear();
        self.bytes.clear();
        (self.count, self.ended) = (0, false);
    }

    fn put(&mut self, train: Train) {
        let Body::Engine(body) = train.body else {
            debug_assert!(false, "an engine is sent what an engine sent");
            return;
        };
        match *body {
            EngineBody::Bare(packet) => {
                if let (Some(BarePacket::Train(last)), BarePacket::Train(next)) =
                    (self.packets.last_mut(), &packet)
                    && last.join(next)
                {
                    return;
                }
                self.packets.push(packet);
            }
            // Channel segments do not pass here.
            EngineBody::Channel(_) => debug_assert!(false, "a segment is no datagram"),
            EngineBody::Sealed(bytes, stride) => {
                if self.bytes.is_empty() {
                    self.stride = stride;
                }
                self.bytes.extend_from_slice(&bytes);
            }
        }
    }
}

/// How many packets at this pace arrive no later than `until`.
fn before(pace: Pace, until: Time) -> u32 {
    if pace.first > until {
        return 0;
    }
    let span = until.since(pace.first).as_nanos();
    match pace.gap.as_nanos() {
        0 => u32::MAX,
        gap => u32::try_from(span / gap).unwrap_or(u32::MAX - 1) + 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_counted_up_to_and_at_an_instant() {
        let at = |us| Time::ZERO + Duration::from_micros(us);
        let pace = Pace { first: at(10), gap: Duration::from_micros(5) };
        assert_eq!(before(pace, at(9)), 0);
        assert_eq!(before(pace, at(10)), 1);
        assert_eq!(before(pace, at(19)), 2);
        assert_eq!(before(pace, at(20)), 3);
        assert_eq!(before(Pace::at(at(1)), at(1)), u32::MAX);
    }
}
