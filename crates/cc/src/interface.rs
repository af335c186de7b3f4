//! What a controller is told and what it answers.

use std::fmt::Debug;

use packtrain_loss::{Signature, Verdict};
use packtrain_units::{ByteCount, DataRate, Duration, Time};

/// A controller of how much and how fast a flow sends.
pub trait CongestionController: Debug + Send {
    /// Its name in the registry.
    fn name(&self) -> &'static str;

    /// The signals without which it cannot work; a feedback that lacks one is refused at start.
    fn needs(&self) -> Signals {
        Signals::default()
    }

    /// Packets left; called once for a train.
    fn on_sent(&mut self, sent: &Sent);

    /// A report came in, or the loss detection spoke.
    fn on_feedback(&mut self, feedback: &Feedback<'_>);

    /// The instant of `poll_timeout` came.
    fn on_timeout(&mut self, now: Time) {
        let _ = now;
    }

    /// When `on_timeout` is to be called.
    fn poll_timeout(&self) -> Option<Time> {
        None
    }

    /// How many bytes may be in flight.
    fn cwnd(&self) -> ByteCount;

    /// The slow start threshold, once there is one: what a sender that reduces its window by
    /// degrees (RFC 6937) reduces it to.
    fn ssthresh(&self) -> Option<ByteCount> {
        None
    }

    /// Whether its pace is part of the algorithm, so that it needs a sender that spaces packets.
    /// Else the pace only smooths what the window allows, and a sender may leave it out.
    fn paces_itself(&self) -> bool {
        false
    }

    /// How fast packets may leave; none means as fast as `cwnd` lets them.
    fn pacing_rate(&self) -> Option<DataRate>;

    /// Nothing may leave before this time, whatever window and pace allow (UDT, section III.C: a
    /// freeze after a decrease). None, or a time that has passed: no freeze.
    fn frozen_until(&self) -> Option<Time> {
        None
    }

    /// How many bytes may leave back to back.
    fn send_quantum(&self) -> ByteCount;

    /// A train that the controller would like sent back to back to measure the path.
    fn probe(&self) -> Option<ProbeTrain> {
        None
    }

    /// Whether it gives windows to be judged (`poll_signature`). For one that does not, the flow
    /// collects them itself ([`Watched`](crate::Watched)): statistics want them of every flow.
    fn collects(&self) -> bool {
        false
    }

    /// A window with losses whose cause it wants to hear. Judging takes a while, so its owner does
    /// it elsewhere and comes back with `on_verdict`; a controller does not wait for it.
    fn poll_signature(&mut self) -> Option<LossWindow> {
        None
    }

    /// The cause of the losses of the window of this number.
    fn on_verdict(&mut self, now: Time, window: u64, verdict: &Verdict) {
        let _ = (now, window, verdict);
    }

    /// The controller's inner state in a few words, for logs and `--explain`.
    fn state(&self) -> String {
        String::new()
    }
}

/// Packets that left in one go.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    /// When the first of them left.
    pub now: Time,
    /// Send index of the first.
    pub first: u64,
    /// How many.
    pub count: u32,
    /// Wire bytes of all of them together.
    pub bytes: ByteCount,
    /// Bytes in flight, these included.
    pub in_flight: ByteCount,
    /// Whether they repeat data sent before.
    pub retransmission: bool,
    /// Whether the sender had nothing more to send.
    pub app_limited: bool,
}

/// One measurement of the round trip.
#[derive(Clone, Copy, Debug)]
pub struct RttSample {
    /// This sample, the receiver's own delay taken off.
    pub latest: Duration,
    /// Smoothed (RFC 9002 section 5.3).
    pub smoothed: Duration,
    /// Mean deviation (RFC 9002 section 5.3).
    pub variation: Duration,
    /// The least over the flow's life or the last ten seconds, whichever the feedback keeps.
    pub min: Duration,
}

/// Consecutive packets that were declared lost together.
#[derive(Clone, Copy, Debug)]
pub struct LossRange {
    /// Send index of the first. A feedback that repeats numbers and is told of lost numbers, not
    /// of lost transmissions, gives the index of the first transmission.
    pub first: u64,
    /// How many.
    pub count: u32,
    /// Their wire bytes.
    pub bytes: ByteCount,
    /// When the first of them was sent.
    pub sent_at: Time,
}

/// What one report, or one run of the loss detection, says.
#[derive(Clone, Debug)]
pub struct Feedback<'a> {
    /// When it was processed.
    pub now: Time,
    /// Highest send index acknowledged so far, if any.
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
    /// Queueing delay on the way out: one-way delay minus its skew-corrected minimum.
    pub queueing_delay: Option<Duration>,
    /// Rate at which data was delivered over the last round (draft-cheng-iccrg-delivery-rate).
    pub delivery_rate: Option<DataRate>,
    /// Rate at which packets arrived, as the receiver measured it.
    pub arrival_rate: Option<DataRate>,
    /// Capacity from the dispersion of trains of 16 and more.
    pub capacity: Option<DataRate>,
    /// Packets declared lost, host drops and refusals included.
    pub lost: &'a [LossRange],
    /// Packets once declared lost that turned out to have arrived.
    pub spurious: u64,
    /// Packets marked congestion-experienced.
    pub ecn_ce: u64,
    /// Packets that the receiving host itself dropped (socket buffer) since the last report.
    pub host_drops: u64,
    /// Packets that the receiver refused for want of room since the last report.
    pub refused: u64,
    /// Rate at which the receiver's application drains data, where it limits.
    pub drain_rate: Option<DataRate>,
    /// Whether the newest acknowledged packet was sent while the application limited the flow.
    pub app_limited: bool,
    /// A whole round trip passed since the last time this was true.
    pub round_ended: bool,
    /// The retransmission timer ran out (RFC 6298 section 5): nothing was heard for so long that
    /// everything in flight is taken for lost. A feedback that has no such timer never says so.
    pub timeout: bool,
    /// The receiver saw the delay grow from sample to sample (UDT's delay warning: Pathload's
    /// pairwise comparison and difference tests over its last 16 round trips).
    pub delay_rising: bool,
}

/// A train that is to leave back to back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbeTrain {
    /// How many packets.
    pub packets: u32,
    /// Not before this time.
    pub at: Time,
}

/// Consecutive transmissions, and which of them were lost.
#[derive(Clone, Debug, PartialEq)]
pub struct LossWindow {
    /// Counts windows from 0, those without losses too.
    pub number: u64,
    /// Received or lost, in the order of sending.
    pub signature: Signature,
    /// Datagrams that the receiving host said it dropped meanwhile, where somebody counts.
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

    /// What it is, in words.
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

    /// The signals of `other` that are not in this set.
    pub fn lacks(self, other: Self) -> Vec<Signal> {
        let is = |signal: &Signal| other.0 & !self.0 & 1 << *signal as u16 != 0;
        Signal::ALL.into_iter().filter(is).collect()
    }

    /// Whether every signal of `other` is in this set.
    pub fn covers(self, other: Self) -> bool {
        other.0 & !self.0 == 0
    }
}
