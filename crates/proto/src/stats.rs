//! What a flow has done so far.

use packtrain_loss::{Cause, Verdict};
use packtrain_units::{ByteCount, DataRate, Duration};

/// Counters and gauges of one flow. Counters never decrease.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FlowStats {
    /// Smoothed round trip, if measured.
    pub rtt: Option<Duration>,
    /// Least round trip, if measured.
    pub min_rtt: Option<Duration>,
    /// The newest sample of the round trip.
    pub rtt_latest: Option<Duration>,
    /// How many samples of the round trip there were.
    pub rtt_samples: u64,
    /// All of them added up.
    pub rtt_total: Duration,
    /// Queueing delay on the way to the receiver, newest.
    pub queueing_delay: Option<Duration>,
    /// Payload bytes sent, repeats included.
    pub sent_bytes: ByteCount,
    /// Packets sent with payload, repeats included.
    pub sent_packets: u64,
    /// Sender: payload bytes acknowledged, each once per transmission.
    pub acked_bytes: ByteCount,
    /// Payload bytes received and authentic, repeats included.
    pub received_bytes: ByteCount,
    /// Packets received with payload, repeats included.
    pub received_packets: u64,
    /// Payload bytes sent again.
    pub retransmitted_bytes: ByteCount,
    /// Packets sent again.
    pub retransmitted_packets: u64,
    /// Packets declared lost.
    pub lost_packets: u64,
    /// Rounds with losses: one begins with the loss of a packet that was sent after the last one
    /// had begun.
    pub loss_rounds: u64,
    /// Times at which no feedback came for so long that data stopped (RFC 8084).
    pub silences: u64,
    /// Of the lost packets, those that turned out to have arrived.
    pub spurious_packets: u64,
    /// Receiver: packets whose bytes were here already.
    pub duplicate_packets: u64,
    /// Datagrams dropped by the receiving host's socket buffers.
    pub host_drops: u64,
    /// Packets refused by the receiver for want of room.
    pub refused_packets: u64,
    /// Packets marked congestion-experienced.
    pub ecn_ce: u64,
    /// Datagrams that were not authentic or not well formed.
    pub bad_datagrams: u64,
    /// Datagrams that had been received before.
    pub replayed_datagrams: u64,
    /// Reports sent or received.
    pub reports: u64,
    /// Feedback `udt`, receiver: round trips whose trend was looked at.
    pub trend_tests: u64,
    /// Those at which it rose.
    pub trend_rises: u64,
    /// Warnings of a rising delay sent.
    pub delay_warnings: u64,
    /// Congestion window.
    pub cwnd: ByteCount,
    /// Bytes in flight.
    pub in_flight: ByteCount,
    /// Pacing rate.
    pub pacing_rate: Option<DataRate>,
    /// What the pace is held at because the receiving host drops.
    pub receiver_rate_cap: Option<DataRate>,
    /// Delivery rate of the last round.
    pub delivery_rate: Option<DataRate>,
    /// Rate at which packets arrived at the receiver, as it measured it.
    pub arrival_rate: Option<DataRate>,
    /// Capacity of the path, from the dispersion of trains.
    pub capacity: Option<DataRate>,
    /// UDP payload bytes of a full datagram.
    pub mtu: ByteCount,
    /// Lanes in use.
    pub lanes: u8,
    /// The controller's name and state in a few words.
    pub controller: String,
    /// What limits the sender now.
    pub limit: Limit,
    /// Sender: why packets were lost, as far as judged.
    pub loss: LossTally,
}

/// What was found to be the cause of losses, window by window.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LossTally {
    /// Windows with losses that were judged.
    pub windows: u64,
    /// Packets lost in them.
    pub lost: u64,
    /// Datagrams that the receiving host said it dropped meanwhile, a few repeats among them.
    pub host_drops: u64,
    /// Packets lost by what their window's verdict was.
    by_cause: [u64; 5],
    /// Probability of the processor, times packets lost.
    p_cpu: f64,
    /// The newest verdict.
    pub last: Option<Verdict>,
}

impl LossTally {
    const CAUSES: [Cause; 5] =
        [Cause::Network, Cause::Cpu, Cause::Hybrid, Cause::Link, Cause::Inconclusive];

    /// One more window.
    pub(crate) fn add(&mut self, host_drops: Option<u64>, verdict: &Verdict) {
        let lost = verdict.lost as u64;
        self.windows += 1;
        self.lost += lost;
        self.host_drops += host_drops.unwrap_or(0);
        if let Some(at) = Self::CAUSES.iter().position(|cause| *cause == verdict.cause) {
            self.by_cause[at] += lost;
        }
        self.p_cpu += verdict.p_cpu * lost as f64;
        self.last = Some(verdict.clone());
    }

    /// Packets lost in windows of this verdict.
    pub fn of(&self, cause: Cause) -> u64 {
        let at = Self::CAUSES.iter().position(|known| *known == cause);
        at.map_or(0, |at| self.by_cause[at])
    }

    /// The verdict on most of the losses, once there is any.
    pub fn cause(&self) -> Option<Cause> {
        let most = Self::CAUSES.into_iter().max_by_key(|cause| self.of(*cause))?;
        (self.of(most) > 0).then_some(most)
    }

    /// The probability that the receiving host lost a packet, in the mean of those lost.
    pub fn p_cpu(&self) -> Option<f64> {
        (self.lost > 0).then(|| self.p_cpu / self.lost as f64)
    }

    /// The share of the losses that the receiving host said were its own.
    pub fn host_share(&self) -> Option<f64> {
        (self.lost > 0).then(|| (self.host_drops as f64 / self.lost as f64).min(1.0))
    }
}

/// What keeps a sender from sending more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Limit {
    /// Nothing is assigned.
    #[default]
    Idle,
    /// The payload was not in memory.
    Payload,
    /// The congestion window.
    Window,
    /// The pacing rate.
    Pacing,
    /// The receiver's credit.
    Credit,
    /// The path is silent.
    Silence,
}
