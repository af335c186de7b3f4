//! The channel of SABUL's state: a substitute for TCP over the simulated network, with its queues
//! and losses.
//!
//! It has TCP's segments, cumulative acknowledgements, fast retransmission and timer (RFC 6298,
//! with doubling), so a loss delays the data behind it. It has no congestion window, because a
//! state every 500 packets never fills one.

use std::collections::{BTreeMap, VecDeque};

use packtrain_units::{Duration, Time};

use crate::train::{HEADERS, Segment};

/// Bytes of a full segment: an Ethernet frame less [`HEADERS`].
const SEGMENT: usize = 1_500 - HEADERS as usize;
/// Minimum retransmission timeout, as in Linux.
const MIN_RTO: Duration = Duration::from_millis(200);
/// Timeout before a round trip is known (RFC 6298 section 2).
const FIRST_RTO: Duration = Duration::from_secs(1);
/// Duplicate acknowledgements that indicate a loss (RFC 5681).
const DUPLICATES: u32 = 3;

/// One end of the channel.
#[derive(Debug, Default)]
pub(super) struct Channel {
    /// Unacknowledged segments: offset, bytes, sending time, and whether retransmitted.
    open: VecDeque<(u64, Vec<u8>, Time, bool)>,
    /// One past the last byte written.
    next: u64,
    duplicates: u32,
    rtt: Option<(Duration, Duration)>,
    doublings: u32,
    /// All bytes below have been read.
    expected: u64,
    early: BTreeMap<u64, Vec<u8>>,
    out: VecDeque<Segment>,
}

impl Channel {
    /// Queues bytes for the other end.
    pub(super) fn write(&mut self, now: Time, bytes: &[u8]) {
        for piece in bytes.chunks(SEGMENT) {
            let (at, bytes) = (self.next, piece.to_vec());
            self.next += piece.len() as u64;
            self.out.push_back(Segment { at, bytes: bytes.clone(), acked: 0 });
            self.open.push_back((at, bytes, now, false));
        }
    }

    /// The next segment to send.
    pub(super) fn poll(&mut self) -> Option<Segment> {
        let acked = self.expected;
        self.out.pop_front().map(|segment| Segment { acked, ..segment })
    }

    /// Takes a received segment; returns the bytes that can be read now.
    pub(super) fn arrive(&mut self, now: Time, segment: Segment) -> Vec<u8> {
        self.on_ack(now, segment.acked, segment.bytes.is_empty());
        if segment.bytes.is_empty() {
            return Vec::new();
        }
        self.early.entry(segment.at).or_insert(segment.bytes);
        let mut read = Vec::new();
        while let Some(entry) = self.early.first_entry()
            && *entry.key() <= self.expected
        {
            let (at, bytes) = entry.remove_entry();
            if at == self.expected {
                self.expected += bytes.len() as u64;
                read.extend_from_slice(&bytes);
            }
        }
        self.out.push_back(Segment { at: self.next, bytes: Vec::new(), acked: 0 });
        read
    }

    fn on_ack(&mut self, now: Time, acked: u64, pure: bool) {
        let before = self.open.len();
        while let Some((at, bytes, sent, again)) = self.open.front() {
            if at + bytes.len() as u64 > acked {
                break;
            }
            if !again {
                self.rtt = Some(sampled(self.rtt, now.since(*sent)));
            }
            self.open.pop_front();
        }
        if self.open.len() < before {
            (self.duplicates, self.doublings) = (0, 0);
        } else if pure && !self.open.is_empty() {
            self.duplicates += 1;
            if self.duplicates == DUPLICATES {
                self.retransmit(now);
            }
        }
    }

    /// Retransmits the first open segment.
    fn retransmit(&mut self, now: Time) {
        if let Some((at, bytes, sent, again)) = self.open.front_mut() {
            (*sent, *again) = (now, true);
            self.out.push_back(Segment { at: *at, bytes: bytes.clone(), acked: 0 });
        }
    }

    /// When the timer expires; the epoch if a segment waits.
    pub(super) fn poll_timeout(&self) -> Option<Time> {
        if !self.out.is_empty() {
            return Some(Time::ZERO);
        }
        let (_, _, sent, _) = self.open.front()?;
        let rto = self.rtt.map_or(FIRST_RTO, |(rtt, var)| (rtt + var * 4).max(MIN_RTO));
        Some(*sent + rto * (1 << self.doublings.min(6)))
    }

    /// Runs the timer if it is due.
    pub(super) fn handle_timeout(&mut self, now: Time) {
        if self.out.is_empty() && self.poll_timeout().is_some_and(|at| at <= now) {
            self.doublings += 1;
            self.retransmit(now);
        }
    }
}

/// RFC 6298 section 2.
fn sampled(old: Option<(Duration, Duration)>, sample: Duration) -> (Duration, Duration) {
    let Some((rtt, var)) = old else { return (sample, sample / 2) };
    let off = sample.max(rtt) - sample.min(rtt);
    ((rtt * 7 + sample) / 8, (var * 3 + off) / 4)
}

#[cfg(test)]
mod tests {
    use packtrain_units::Rng;

    use super::*;

    #[test]
    fn what_is_written_is_read_in_order_over_any_network() {
        let mut rng = Rng::new(4);
        let mut ends = [Channel::default(), Channel::default()];
        let mut air: BTreeMap<(Time, u64), (usize, Segment)> = BTreeMap::new();
        let (mut now, mut serial, mut wrote, mut read) = (Time::ZERO, 0u64, Vec::new(), Vec::new());
        while read.len() < 200_000 {
            if wrote.len() < 200_000 && rng.below(3) == 0 {
                let piece: Vec<u8> = (0..rng.below(4_000)).map(|_| rng.below(256) as u8).collect();
                ends[0].write(now, &piece);
                wrote.extend(piece);
            }
            for (i, end) in ends.iter_mut().enumerate() {
                end.handle_timeout(now);
                while let Some(segment) = end.poll() {
                    serial += 1;
                    let late = Duration::from_millis(20 + rng.below(15));
                    if rng.below(10) > 0 {
                        air.insert((now + late, serial), (1 - i, segment));
                    }
                }
            }
            now += Duration::from_millis(5);
            while let Some(entry) = air.first_entry().filter(|entry| entry.key().0 <= now) {
                let (to, segment) = entry.remove();
                let bytes = ends[to].arrive(now, segment);
                if to == 1 {
                    read.extend(bytes);
                }
            }
            assert!(now < Time::ZERO + Duration::from_secs(3_600));
            if wrote.len() >= 200_000 && read.len() == wrote.len() {
                break;
            }
        }
        assert!(wrote.starts_with(&read));
    }
}
