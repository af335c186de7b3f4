//! The interface of controllers.

use std::fmt::Debug;

use packtrain_loss::{Signature, Verdict};
use packtrain_units::{ByteCount, DataRate, Duration, Time};

/// Controls how much and how fast a flow sends.
pub trait CongestionController: Debug + Send {
    /// Its name in the registry.
    fn name(&self) -> &'static str;

    /// The signals that it needs; a feedback that lacks one is refused at the start.
    fn needs(&self) -> Signals {
        Signals::default()
    }

    /// An earlier flow measured this of what may be the same path (careful resume,
    /// draft-ietf-tsvwg-careful-resume). At most once, before data is sent. A controller that uses it
    /// first sends as if it knew nothing: the path may have changed.
    fn on_saved_path(&mut self, saved: SavedPath) {
        let _ = saved;
    }

    /// The path answered a probe in `rtt`, the shortest so far. Only before data is acknowledged.
    fn on_path(&mut self, rtt: Duration) {
        let _ = rtt;
    }

    /// Whether the controller uses a capacity that is known before the first data.
    fn launches_at_capacity(&self) -> bool {
        false
    }

    /// Pings before the first data show this capacity, in wire bytes of full datagrams. It is
    /// coarser than that of `Feedback`, which data shows later.
    fn on_capacity(&mut self, capacity: DataRate) {
        let _ = capacity;
    }

    /// A full datagram has `mtu` wire bytes from now on: the path carries more than
    /// `ControllerConfig::mtu`, or less. What is counted in packets keeps its bytes, except that a
    /// first window of some packets stays that many packets while nothing was acknowledged (RFC 9002
    /// section 7.2).
    fn set_mtu(&mut self, mtu: ByteCount);

    /// Packets were sent; called once per train.
    fn on_sent(&mut self, sent: &Sent);

    /// A report arrived, or loss detection ran.
    fn on_feedback(&mut self, feedback: &Feedback<'_>);

    /// The time of `poll_timeout` has come.
    fn on_timeout(&mut self, now: Time) {
        let _ = now;
    }

    /// When to call `on_timeout`.
    fn poll_timeout(&self) -> Option<Time> {
        None
    }

    /// Maximum bytes in flight.
    fn cwnd(&self) -> ByteCount;

    /// The slow start threshold, if set: the target of a sender that reduces its window gradually
    /// (RFC 6937).
    fn ssthresh(&self) -> Option<ByteCount> {
        None
    }

    /// Whether pacing is part of the algorithm, so that it needs a sender that paces. Otherwise the
    /// pace only smooths the window, and a sender may ignore it.
    fn paces_itself(&self) -> bool {
        false
    }

    /// Pacing rate; `None` means as fast as `cwnd` allows.
    fn pacing_rate(&self) -> Option<DataRate>;

    /// Whether it answers a congestion mark as it answers a loss. Otherwise packets are not marked
    /// ECN-capable, because a queue would mark them in vain instead of dropping them (RFC 3168
    /// section 5).
    fn answers_marks(&self) -> bool {
        false
    }

    /// No packet may be sent before this time, whatever window and pace allow (UDT, section III.C:
    /// a freeze after a decrease). `None`, or a time that has passed, means no freeze.
    fn frozen_until(&self) -> Option<Time> {
        None
    }

    /// Maximum bytes back to back.
    fn send_quantum(&self) -> ByteCount;

    /// A train to send back to back to measure the path.
    fn probe(&self) -> Option<ProbeTrain> {
        None
    }

    /// Whether it produces windows to classify (`poll_signature`). For a controller that does not,
    /// the flow collects them itself ([`Watched`](crate::Watched)), because statistics need them
    /// for every flow.
    fn collects(&self) -> bool {
        false
    }

    /// A window with losses to classify. Classification takes time, so the owner runs it elsewhere
    /// and returns the result with `on_verdict`; the controller does not wait.
    fn poll_signature(&mut self) -> Option<LossWindow> {
        None
    }

    /// Takes the cause of the losses of window number `window`.
    fn on_verdict(&mut self, now: Time, window: u64, verdict: &Verdict) {
        let _ = (now, window, verdict);
    }

    /// The controller's internal state in short form, for logs and `--explain`.
    fn state(&self) -> String {
        String::new()
    }
}

/// What an earlier flow measured of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SavedPath {
    /// The rate at which data was delivered for seconds.
    pub rate: DataRate,
    /// The minimum round trip.
    pub rtt: Duration,
}

/// Packets that were sent at once.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    /// When the first of them was sent.
    pub now: Time,
    /// Send index of the first.
    pub first: u64,
    /// Number of packets.
    pub count: u32,
    /// Wire bytes of all of them together.
    pub bytes: ByteCount,
    /// Bytes in flight, including these.
    pub in_flight: ByteCount,
    /// Whether they are retransmissions.
    pub retransmission: bool,
    /// Whether the sender had no more data.
    pub app_limited: bool,
}

/// One measurement of the round trip.
#[derive(Clone, Copy, Debug)]
pub struct RttSample {
    /// This sample, without the receiver's own delay.
    pub latest: Duration,
    /// Smoothed (RFC 9002 section 5.3).
    pub smoothed: Duration,
    /// Mean deviation (RFC 9002 section 5.3).
    pub variation: Duration,
    /// The minimum over the flow's life or the last ten seconds, depending on the feedback.
    pub min: Duration,
}

/// One-way delay of a report, above the lowest ever: the queue of the reverse direction, or a longer
/// path.
#[derive(Clone, Copy, Debug)]
pub struct ReverseQueue {
    /// Of this report.
    pub newest: Duration,
    /// The minimum of the last twelve seconds.
    pub least: Duration,
}

/// Consecutive packets that were declared lost together.
#[derive(Clone, Copy, Debug)]
pub struct LossRange {
    /// Send index of the first. A feedback that repeats numbers and reports lost numbers, not lost
    /// transmissions, gives the index of the first transmission.
    pub first: u64,
    /// Number of packets.
    pub count: u32,
    /// Their wire bytes.
    pub bytes: ByteCount,
    /// When the first of them was sent.
    pub sent_at: Time,
}

/// The contents of one report, or of one run of loss detection.
#[derive(Clone, Debug)]
pub struct Feedback<'a> {
    /// When it was processed.
    pub now: Time,
    /// Highest send index newly acknowledged here, if any.
    pub largest_acked: Option<u64>,
    /// When the newest packet acknowledged here was sent.
    pub newest_acked_sent_at: Option<Time>,
    /// Bytes newly acknowledged.
    pub acked: ByteCount,
    /// Packets newly acknowledged.
    pub acked_packets: u64,
    /// Bytes still in flight after it.
    pub in_flight: ByteCount,
    /// The round trip, if this report measured one.
    pub rtt: Option<RttSample>,
    /// Queueing delay on the forward path: one-way delay minus its skew-corrected minimum.
    pub queueing_delay: Option<Duration>,
    /// The queue that this feedback met on its way. `None` without one-way delays.
    pub reverse_queue: Option<ReverseQueue>,
    /// Rate at which data was delivered over the last round (draft-cheng-iccrg-delivery-rate).
    pub delivery_rate: Option<DataRate>,
    /// Rate at which packets arrived, as the receiver measured it.
    pub arrival_rate: Option<DataRate>,
    /// Capacity measured from the dispersion of packets sent back to back.
    pub capacity: Option<DataRate>,
    /// Packets declared lost, host drops and refusals included.
    pub lost: &'a [LossRange],
    /// Packets declared lost earlier that have arrived.
    pub spurious: u64,
    /// Packets marked congestion-experienced.
    pub ecn_ce: u64,
    /// Packets dropped by the receiving host (socket buffer) since the last report.
    pub host_drops: u64,
    /// Packets refused by the receiver because it had no room, since the last report.
    pub refused: u64,
    /// Drain rate of the receiver's application, where it limits.
    pub drain_rate: Option<DataRate>,
    /// Whether the newest acknowledged packet was sent while the application limited the flow.
    pub app_limited: bool,
    /// A whole round trip passed since the last time this was true.
    pub round_ended: bool,
    /// The retransmission timer expired (RFC 6298 section 5): no feedback arrived for so long that
    /// everything in flight counts as lost. The native feedback sets it for persistent congestion
    /// (RFC 9002 section 7.6): everything sent for three probe timeouts was lost.
    pub timeout: bool,
    /// The receiver saw the delay increase from sample to sample (UDT's delay warning: Pathload's
    /// pairwise comparison and difference tests over its last 16 round trips).
    pub delay_rising: bool,
    /// The longest time between the sending of two packets that arrived together although the path
    /// cannot carry them so fast; zero if there were none. Jitter does this, a queue does not.
    pub bunched: Duration,
    /// How long the receiver held back the feedback on the oldest packet whose arrival it shows, by
    /// the receiver's clock. None if the feedback does not show it.
    pub held: Option<Duration>,
}

/// A train to send back to back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbeTrain {
    /// Number of packets.
    pub packets: u32,
    /// Earliest time to send it.
    pub at: Time,
}

/// Consecutive transmissions, and which of them were lost.
#[derive(Clone, Debug, PartialEq)]
pub struct LossWindow {
    /// Number of the window from 0; windows without losses count too.
    pub number: u64,
    /// Received or lost, in the order of sending.
    pub signature: Signature,
    /// Datagrams that the receiving host reported as dropped meanwhile, where this is counted.
    pub host_drops: Option<u64>,
}

/// A kind of measurement that a feedback may provide and a controller may need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Round-trip time.
    Rtt,
    /// One-way queueing delay.
    QueueingDelay,
    /// Delivery rate.
    DeliveryRate,
    /// Arrival rate at the receiver.
    ArrivalRate,
    /// Capacity of the path.
    Capacity,
    /// Losses as ranges of send indices.
    Losses,
    /// Drops in the receiving host.
    HostDrops,
    /// Congestion marks.
    Ecn,
    /// Whether the delay grows.
    DelayTrend,
}

impl Signal {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Rtt,
        Self::QueueingDelay,
        Self::DeliveryRate,
        Self::ArrivalRate,
        Self::Capacity,
        Self::Losses,
        Self::HostDrops,
        Self::Ecn,
        Self::DelayTrend,
    ];

    /// Its description.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rtt => "round trips",
            Self::QueueingDelay => "one-way queueing delay",
            Self::DeliveryRate => "the rate of delivery",
            Self::ArrivalRate => "the rate of arrival",
            Self::Capacity => "the capacity of the path",
            Self::Losses => "losses",
            Self::HostDrops => "drops in the receiving host",
            Self::Ecn => "congestion marks",
            Self::DelayTrend => "whether the delay grows",
        }
    }
}

/// A set of signals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Signals(u16);

impl Signals {
    /// The set of `signals`.
    pub fn of(signals: &[Signal]) -> Self {
        Self(signals.iter().fold(0, |bits, s| bits | 1 << *s as u16))
    }

    /// The signals of `other` that are missing in this set.
    pub fn lacks(self, other: Self) -> Vec<Signal> {
        let is = |signal: &Signal| other.0 & !self.0 & 1 << *signal as u16 != 0;
        Signal::ALL.into_iter().filter(is).collect()
    }

    /// Whether this set contains every signal of `other`.
    pub fn covers(self, other: Self) -> bool {
        other.0 & !self.0 == 0
    }
}
