//! Statistics of a flow.

use packtrain_loss::{Cause, Verdict};
use packtrain_units::{ByteCount, DataRate, Duration};

/// Counters and gauges of one flow. Counters never decrease.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FlowStats {
    /// Smoothed round trip, if measured.
    pub rtt: Option<Duration>,
    /// Minimum round trip, if measured.
    pub min_rtt: Option<Duration>,
    /// The newest round-trip sample.
    pub rtt_latest: Option<Duration>,
    /// Number of round-trip samples.
    pub rtt_samples: u64,
    /// Sum of all round-trip samples.
    pub rtt_total: Duration,
    /// Newest queueing delay on the way to the receiver.
    pub queueing_delay: Option<Duration>,
    /// Payload bytes sent, retransmissions included.
    pub sent_bytes: ByteCount,
    /// Packets sent with payload, retransmissions included.
    pub sent_packets: u64,
    /// Sender: payload bytes acknowledged, once per transmission.
    pub acked_bytes: ByteCount,
    /// Payload bytes of authentic received packets, retransmissions included.
    pub received_bytes: ByteCount,
    /// Packets received with payload, retransmissions included.
    pub received_packets: u64,
    /// Payload bytes retransmitted.
    pub retransmitted_bytes: ByteCount,
    /// Packets retransmitted.
    pub retransmitted_packets: u64,
    /// Packets declared lost.
    pub lost_packets: u64,
    /// Rounds with losses. A round begins with the loss of a packet that was sent after the
    /// previous round began.
    pub loss_rounds: u64,
    /// How often the sender stopped sending data because no feedback arrived (RFC 8084).
    pub silences: u64,
    /// Packets declared lost that had arrived.
    pub spurious_packets: u64,
    /// Receiver: packets whose bytes had already arrived.
    pub duplicate_packets: u64,
    /// Datagrams dropped by the receiving host's socket buffers.
    pub host_drops: u64,
    /// Packets that the receiver refused because it had no room.
    pub refused_packets: u64,
    /// Packets marked congestion-experienced.
    pub ecn_ce: u64,
    /// Packets marked ECN-capable, ECT(0), without congestion.
    pub ecn_ect0: u64,
    /// Sender: whether it marks its packets ECN-capable: the owner wants it, and the path has not
    /// changed the marks.
    pub ecn: bool,
    /// Datagrams that were not authentic or not well formed.
    pub bad_datagrams: u64,
    /// Datagrams received more than once.
    pub replayed_datagrams: u64,
    /// Reports sent or received.
    pub reports: u64,
    /// Feedback `udt`, receiver: trend tests of the delay.
    pub trend_tests: u64,
    /// Trend tests that found a rising delay.
    pub trend_rises: u64,
    /// Delay warnings sent.
    pub delay_warnings: u64,
    /// Congestion window.
    pub cwnd: ByteCount,
    /// Bytes in flight.
    pub in_flight: ByteCount,
    /// Pacing rate.
    pub pacing_rate: Option<DataRate>,
    /// Cap on the pace because the receiving host drops datagrams.
    pub receiver_rate_cap: Option<DataRate>,
    /// Delivery rate of the last round.
    pub delivery_rate: Option<DataRate>,
    /// Arrival rate as measured by the receiver.
    pub arrival_rate: Option<DataRate>,
    /// Capacity of the path, from the dispersion of trains.
    pub capacity: Option<DataRate>,
    /// UDP payload bytes of a full datagram.
    pub mtu: ByteCount,
    /// Lanes in use.
    pub lanes: u8,
    /// The controller's name and state in short form.
    pub controller: String,
    /// What limits the sender now.
    pub limit: Limit,
    /// Sender: causes of packet losses, as far as classified.
    pub loss: LossTally,
}

/// Verdicts on the causes of losses, added up over windows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LossTally {
    /// Windows with losses that were classified.
    pub windows: u64,
    /// Packets lost in these windows.
    pub lost: u64,
    /// Datagrams that the receiving host reported as dropped meanwhile, including a few
    /// retransmissions.
    pub host_drops: u64,
    /// Packets lost, by the verdict on their window.
    by_cause: [u64; 5],
    /// Sum over lost packets of the probability that the receiving host dropped them.
    p_cpu: f64,
    /// The newest verdict.
    pub last: Option<Verdict>,
}

impl LossTally {
    const CAUSES: [Cause; 5] =
        [Cause::Network, Cause::Cpu, Cause::Hybrid, Cause::Link, Cause::Inconclusive];

    /// Adds a window.
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

    /// Packets lost in windows with this verdict.
    pub fn of(&self, cause: Cause) -> u64 {
        let at = Self::CAUSES.iter().position(|known| *known == cause);
        at.map_or(0, |at| self.by_cause[at])
    }

    /// The verdict on most of the losses; `None` without losses.
    pub fn cause(&self) -> Option<Cause> {
        let largest = Self::CAUSES.into_iter().max_by_key(|cause| self.of(*cause))?;
        (self.of(largest) > 0).then_some(largest)
    }

    /// The mean probability, over lost packets, that the receiving host dropped the packet.
    pub fn p_cpu(&self) -> Option<f64> {
        (self.lost > 0).then(|| self.p_cpu / self.lost as f64)
    }

    /// The share of the losses that the receiving host reported as its own drops.
    pub fn host_share(&self) -> Option<f64> {
        (self.lost > 0).then(|| (self.host_drops as f64 / self.lost as f64).min(1.0))
    }
}

/// What limits the sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Limit {
    /// No data is assigned.
    #[default]
    Idle,
    /// The payload is not in memory.
    Payload,
    /// The congestion window.
    Window,
    /// The pacing rate.
    Pacing,
    /// The receiver's credit.
    Credit,
    /// No feedback arrives.
    Silence,
}
