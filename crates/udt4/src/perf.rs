//! What a connection has done: UDT's performance monitor with its units in types.

use packtrain_units::{ByteCount, DataRate, Duration};

/// Counters since the connection was made, and gauges. The names behind each are those of UDT's
/// `CPerfMon`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Perf {
    /// Age of the connection (`msTimeStamp`).
    pub age: Duration,
    /// Data packets sent, repeats included (`pktSentTotal`).
    pub sent_packets: u64,
    /// Data packets received, repeats included (`pktRecvTotal`).
    pub received_packets: u64,
    /// Packets reported lost by the peer (`pktSndLossTotal`).
    pub sender_lost_packets: u64,
    /// Packets found missing here (`pktRcvLossTotal`).
    pub receiver_lost_packets: u64,
    /// Packets sent again (`pktRetransTotal`).
    pub retransmitted_packets: u64,
    /// Acknowledgements sent (`pktSentACKTotal`).
    pub sent_acks: u64,
    /// Acknowledgements received (`pktRecvACKTotal`).
    pub received_acks: u64,
    /// Loss reports sent (`pktSentNAKTotal`).
    pub sent_naks: u64,
    /// Loss reports received (`pktRecvNAKTotal`).
    pub received_naks: u64,
    /// Time during which there was something to send or acknowledge (`usSndDurationTotal`).
    pub sending_time: Duration,
    /// Payload bytes sent, repeats included.
    pub sent_bytes: ByteCount,
    /// Payload bytes received, repeats not included.
    pub received_bytes: ByteCount,
    /// Packets that were here before.
    pub duplicate_packets: u64,
    /// Packets beyond the window, or without room.
    pub refused_packets: u64,
    /// Datagrams that made no sense or claimed the impossible.
    pub bad_datagrams: u64,
    /// Messages whose time to live passed before they were delivered.
    pub expired_messages: u64,
    /// Time between two packets at the present pace (`usPktSndPeriod`); zero: no pace.
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
    /// The controller's name and state in a few words.
    pub controller: String,
}
