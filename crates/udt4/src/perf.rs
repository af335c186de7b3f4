//! Statistics of a connection: UDT's performance monitor with typed units.

use packtrain_units::{ByteCount, DataRate, Duration};

/// Counters since the connection was established, and gauges. The names in parentheses are those of
/// UDT's `CPerfMon`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Perf {
    /// Age of the connection (`msTimeStamp`).
    pub age: Duration,
    /// Data packets sent, retransmissions included (`pktSentTotal`).
    pub sent_packets: u64,
    /// Data packets received, retransmissions included (`pktRecvTotal`).
    pub received_packets: u64,
    /// Packets reported lost by the peer (`pktSndLossTotal`).
    pub sender_lost_packets: u64,
    /// Packets detected as missing here (`pktRcvLossTotal`).
    pub receiver_lost_packets: u64,
    /// Packets retransmitted (`pktRetransTotal`).
    pub retransmitted_packets: u64,
    /// Acknowledgements sent (`pktSentACKTotal`).
    pub sent_acks: u64,
    /// Acknowledgements received (`pktRecvACKTotal`).
    pub received_acks: u64,
    /// Loss reports sent (`pktSentNAKTotal`).
    pub sent_naks: u64,
    /// Loss reports received (`pktRecvNAKTotal`).
    pub received_naks: u64,
    /// Time with data to send or acknowledge (`usSndDurationTotal`).
    pub sending_time: Duration,
    /// Payload bytes sent, retransmissions included.
    pub sent_bytes: ByteCount,
    /// Payload bytes received, without duplicates.
    pub received_bytes: ByteCount,
    /// Packets that had already arrived.
    pub duplicate_packets: u64,
    /// Packets beyond the window, or without room.
    pub refused_packets: u64,
    /// Invalid datagrams.
    pub bad_datagrams: u64,
    /// Messages that expired before they were delivered.
    pub expired_messages: u64,
    /// Interval between packets at the current pace (`usPktSndPeriod`); zero without pacing.
    pub send_period: Duration,
    /// Packets that the peer has room for (`pktFlowWindow`).
    pub flow_window: u64,
    /// Congestion window in packets (`pktCongestionWindow`).
    pub congestion_window: u64,
    /// Unacknowledged packets (`pktFlightSize`).
    pub flight_size: u64,
    /// Smoothed round trip (`msRTT`).
    pub rtt: Duration,
    /// Capacity of the path as the peer estimates it (`mbpsBandwidth`).
    pub bandwidth: Option<DataRate>,
    /// Room in the send buffer (`byteAvailSndBuf`).
    pub send_room: ByteCount,
    /// Room in the receive buffer (`byteAvailRcvBuf`).
    pub recv_room: ByteCount,
    /// The controller's name and state in short form.
    pub controller: String,
}
