//! Counters of links and flows.

use packtrain_link::{DropCause, Histogram, Observer, Pace, Segments};
use packtrain_units::{Duration, Time};

use crate::outcome::Recorded;
use crate::trace::Digest;
use crate::train::{Toward, Train};

#[derive(Clone, Debug, Default)]
pub(crate) struct FlowAtLink {
    pub(crate) waits: Histogram,
    pub(crate) dropped: u64,
}

#[derive(Debug, Default)]
pub(crate) struct LinkStats {
    /// Packets offered.
    pub(crate) offered: u64,
    /// Packets accepted for transmission.
    pub(crate) passed: u64,
    /// Their bytes.
    pub(crate) bytes: u64,
    /// `passed` and `bytes` at the end of the warm-up, and until when the transmitter was busy with
    /// them.
    pub(crate) at_warm_up: (u64, u64, Time),
    /// By cause: overflow, early, random, other.
    pub(crate) dropped: [u64; 4],
    /// Packets marked instead of dropped early.
    pub(crate) marked: u64,
    /// Per flow, from its first packet on.
    pub(crate) flows: Vec<Option<Box<FlowAtLink>>>,
    /// Digest of the dropped packets.
    pub(crate) digest: Digest,
    /// The record of each packet, if enabled.
    pub(crate) record: Option<Record>,
}

/// The packets of the recorded link. While a packet is in the link, its index replaces its
/// connection number, because nothing else distinguishes two equal acknowledgements.
#[derive(Debug, Default)]
pub(crate) struct Record {
    /// All packets, in the order of arrival.
    pub(crate) packets: Vec<Recorded>,
    /// Their connection numbers.
    conns: Vec<u32>,
}

impl Record {
    /// A packet is offered.
    pub(crate) fn offered(&mut self, at: Time, packet: &mut Train) {
        self.conns.push(packet.conn);
        packet.conn = self.packets.len() as u32;
        self.packets.push(Recorded {
            offered: at,
            size: packet.size,
            flow: packet.flow as usize,
            left: None,
        });
    }

    /// It leaves or is dropped; of a duplicated packet the first copy counts.
    pub(crate) fn decided(&mut self, packet: &mut Train, left: Option<Time>) {
        let index = packet.conn as usize;
        if let (Some(recorded), Some(conn)) = (self.packets.get_mut(index), self.conns.get(index)) {
            recorded.left = recorded.left.or(left);
            packet.conn = *conn;
        }
    }
}

impl LinkStats {
    /// Resets the counters at the end of the warm-up.
    pub(crate) fn warmed_up(&mut self, busy_until: Time) {
        self.flows.iter_mut().for_each(|flow| *flow = None);
        self.at_warm_up = (self.passed, self.bytes, busy_until);
    }

    fn flow(&mut self, flow: u32) -> &mut FlowAtLink {
        let flow = flow as usize;
        if flow >= self.flows.len() {
            self.flows.resize_with(flow + 1, || None);
        }
        self.flows[flow].get_or_insert_default()
    }
}

impl Observer<Train> for LinkStats {
    fn dropped(&mut self, at: Pace, mut train: Train, cause: DropCause) {
        if let Some(record) = &mut self.record {
            record.decided(&mut train, None);
        }
        let count = u64::from(train.count());
        let kind = match cause {
            DropCause::Overflow => 0,
            DropCause::Early => 1,
            DropCause::Random => 2,
            DropCause::TooBig | DropCause::Host | DropCause::Down => 3,
        };
        self.dropped[kind] += count;
        self.digest.scatter(at, &train, cause as u64 + 1);
        if train.toward == Toward::Receiver {
            self.flow(train.flow).dropped += count;
        }
    }

    fn marked(&mut self, train: &Train) {
        self.marked += u64::from(train.count());
    }

    fn queued(&mut self, train: &Train, first: Duration, last: Duration) {
        let count = u64::from(train.count());
        self.passed += count;
        self.bytes += u64::from(train.size) * count;
        if train.toward == Toward::Receiver {
            self.flow(train.flow).waits.add_run(first, last, count);
        }
    }
}
