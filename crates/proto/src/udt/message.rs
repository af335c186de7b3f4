//! Messages of the two ends of a UDT flow beside data. Codecs serialise them.

use packtrain_units::{ByteCount, DataRate, Duration};

/// A message of either end. Unit numbers are dense, start at the flow's first and never wrap here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Receiver: what arrived (section III.E).
    Ack(Ack),
    /// Sender: the ACK of this number arrived.
    Ack2 {
        /// Number of the ACK.
        number: u32,
    },
    /// Receiver: these units are missing.
    Nak {
        /// Half-open ranges, ascending, none empty.
        ranges: Vec<(u64, u64)>,
    },
    /// Receiver: the delay increases from sample to sample.
    Warning,
    /// Sender: these units will not be sent (again).
    Drop {
        /// The first of them.
        first: u64,
        /// One past the last of them.
        end: u64,
    },
}

/// A positive acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack {
    /// Its own number, which an ACK2 repeats. Light ACKs have none and are not answered.
    pub number: u32,
    /// The first unit that has not arrived.
    pub next: u64,
    /// Light ACK: only `next` is meaningful.
    pub light: bool,
    /// Sent before its time, perhaps every few packets: without `arrival` and `capacity`, and not every
    /// one is answered.
    pub early: bool,
    /// The receiver's smoothed round trip; zero while it has measured none.
    pub rtt: Duration,
    /// Its mean deviation.
    pub rtt_var: Duration,
    /// Number of units from `next` on that the receiver has room for.
    pub room: u64,
    /// Arrival speed AS (section III.B); `None` where the paper has 0.
    pub arrival: Option<PacketRate>,
    /// Newly estimated link capacity NB (section III.C), before the average of formula (6).
    pub capacity: Option<PacketRate>,
}

/// A rate in packets a second.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct PacketRate(f64);

// Always positive and finite.
impl Eq for PacketRate {}

impl PacketRate {
    /// The rate of packets at this interval; `None` for a zero interval.
    pub(crate) fn of_interval(interval: Duration) -> Option<Self> {
        Self::of_packets(1, interval)
    }

    /// The rate of `packets` in `span`; `None` if either is zero.
    pub fn of_packets(packets: u64, span: Duration) -> Option<Self> {
        Self::per_second(packets as f64 / span.as_secs_f64())
    }

    /// A rate in packets per second; `None` unless positive and finite.
    pub fn per_second(packets: f64) -> Option<Self> {
        (packets.is_finite() && packets > 0.0).then_some(Self(packets))
    }

    /// In packets per second.
    pub fn get(self) -> f64 {
        self.0
    }

    /// In bits per second, at `packet` bytes per packet.
    pub fn times(self, packet: ByteCount) -> DataRate {
        DataRate::from_bps((self.0 * packet.get() as f64 * 8.0) as u64)
    }
}

/// The peer sent an invalid message: a unit never sent, or an empty or inverted range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the peer spoke of units that cannot be")]
pub struct Impossible;
