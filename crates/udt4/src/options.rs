//! Options of connections.

use packtrain_units::{ByteCount, DataRate, Duration};

use super::error::OpenError;

/// Whether a connection carries a stream of bytes or messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Bytes in order, without boundaries (`SOCK_STREAM`).
    #[default]
    Stream,
    /// Messages with boundaries, each with a time to live and in order or not (`SOCK_DGRAM`).
    Datagram,
}

/// Options of a connection, or of all connections that a listener accepts. The defaults are the
/// stock library's, except for the controller's name.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Largest IP packet, with headers (`UDT_MSS`); the smaller value of both ends applies.
    pub mss: ByteCount,
    /// Maximum unacknowledged packets (`UDT_FC`); the smaller value of both ends applies.
    pub flow_window: u32,
    /// Maximum bytes to send or not acknowledged (`UDT_SNDBUF`).
    pub send_buffer: ByteCount,
    /// Maximum unread bytes (`UDT_RCVBUF`); memory grows with the received data.
    pub recv_buffer: ByteCount,
    /// The receive buffer of the socket as the kernel counts it (`SO_RCVBUF`), if known. The receiver
    /// then does not let the sender have more packets on the way than the path and this buffer hold.
    pub socket_buffer: Option<ByteCount>,
    /// Stream or messages; must be the same at both ends.
    pub kind: Kind,
    /// How long a closed connection continues to deliver buffered data (`UDT_LINGER`).
    pub linger: Duration,
    /// Both ends call each other (`UDT_RENDEZVOUS`).
    pub rendezvous: bool,
    /// The congestion controller, by its name in the registry.
    pub cc: String,
    /// Maximum time to connect.
    pub connect_timeout: Duration,
    /// Maximum rate (`UDT_MAXBW`).
    pub max_rate: Option<DataRate>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            mss: ByteCount(1500),
            flow_window: 25_600,
            send_buffer: ByteCount(8192 * 1456),
            recv_buffer: ByteCount(8192 * 1456),
            socket_buffer: None,
            kind: Kind::Stream,
            linger: Duration::from_secs(180),
            rendezvous: false,
            cc: "udt:udt4".to_owned(),
            connect_timeout: Duration::from_secs(3),
            max_rate: None,
        }
    }
}

/// What the kernel counts for a packet of an Ethernet in a socket's buffer: 2048 bytes for the
/// packet, and its own record. Packets that receive offload joined take less.
const PACKET_IN_KERNEL: ByteCount = ByteCount(2304);

/// Limits of everything that a peer or a user can make large.
pub mod limits {
    use packtrain_units::{ByteCount, Duration};

    /// Minimum MSS. It may be below the 576 bytes that IPv4 guarantees, but a payload must remain.
    pub(crate) const MIN_MSS: ByteCount = ByteCount(76);
    /// Maximum MSS: the largest IP packet.
    pub(crate) const MAX_MSS: ByteCount = ByteCount(65_535);
    /// Minimum window in packets.
    pub(crate) const MIN_WINDOW: u32 = 16;
    /// Maximum window in packets: numbers have 31 bits and must stay unambiguous.
    pub const MAX_WINDOW: u32 = 1 << 22;
    /// Maximum size of a buffer.
    pub const MAX_BUFFER: ByteCount = ByteCount(4 << 30);
    /// Maximum connections of one endpoint.
    pub(crate) const CONNECTIONS: usize = 4096;
    /// Maximum connections that wait to be accepted, whatever the backlog.
    pub const BACKLOG: usize = 1024;
    /// Maximum answers to handshakes that wait to be sent; more are dropped, and the caller asks
    /// again.
    pub(crate) const ANSWERS: usize = 256;
    /// Maximum ended connections that are remembered in order to notify their peers.
    pub(crate) const MAX_ENDED_CONNECTIONS: usize = 1024;
    /// Interval of repeated handshakes.
    pub(crate) const HANDSHAKE_RETRY: Duration = Duration::from_millis(250);
    /// Interval of packets to a silent peer, except for [`LONG_PAUSE`].
    pub const KEEPALIVE: Duration = Duration::from_millis(500);
    /// Minimum length of the long pauses between packets to a silent peer. A stock sender
    /// retransmits the end of its data, which no later packet shows to be missing, only when nothing
    /// has arrived for its round trip and four deviations, and each keepalive restarts that timer.
    pub const LONG_PAUSE: Duration = Duration::from_secs(2);
    /// Maximum length of the long pauses.
    pub(crate) const MAX_LONG_PAUSE: Duration = Duration::from_secs(5);
    /// The pause is long after this number of datagrams without an answer, and again after each
    /// [`LONG_PAUSE_EVERY`].
    pub(crate) const LONG_PAUSE_AFTER: u32 = 3;
    /// See [`LONG_PAUSE_AFTER`].
    pub(crate) const LONG_PAUSE_EVERY: u32 = 7;
    /// A peer is gone when nothing was received from it for this time and 16
    /// datagrams were sent to it meanwhile.
    pub const SILENCE: Duration = Duration::from_secs(10);
    /// See [`SILENCE`].
    pub(crate) const SILENT_CALLS: u32 = 16;
}

impl Options {
    /// Bytes of a packet that are not payload: headers of IPv4, UDP and UDT. The stock library also
    /// uses IPv4's over IPv6.
    pub(super) const OVERHEAD: u64 = 28 + 16;

    /// Payload bytes of a full packet.
    pub(super) fn payload(mss: ByteCount) -> usize {
        mss.get().saturating_sub(Self::OVERHEAD) as usize
    }

    /// Refuses invalid options.
    pub(super) fn check(&self) -> Result<(), OpenError> {
        let refuse = |what| Err(OpenError::Option(what));
        if self.mss < limits::MIN_MSS || self.mss > limits::MAX_MSS {
            return refuse("the MSS must be 76 to 65535 bytes");
        }
        if self.flow_window < limits::MIN_WINDOW || self.flow_window > limits::MAX_WINDOW {
            return refuse("the flow window must be 16 to 4194304 packets");
        }
        let min = ByteCount(Self::payload(self.mss) as u64 * u64::from(limits::MIN_WINDOW));
        let bad = |size: ByteCount| size < min || size > limits::MAX_BUFFER;
        if bad(self.send_buffer) || bad(self.recv_buffer) {
            return refuse("a buffer must hold 16 packets and at most 4 GiB");
        }
        Ok(())
    }

    /// Packets that the socket's buffer holds.
    pub(super) fn socket_packets(&self) -> Option<u64> {
        self.socket_buffer.map(|bytes| bytes.get() / PACKET_IN_KERNEL.get().max(self.mss.get()))
    }

    /// Packets with this payload that the receive buffer holds, limited by the flow window.
    pub(super) fn recv_window(&self, payload: usize) -> u32 {
        let fit = self.recv_buffer.get() / payload.max(1) as u64;
        self.flow_window.min(u32::try_from(fit).unwrap_or(u32::MAX)).max(2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_what_cannot_work() {
        assert!(Options::default().check().is_ok());
        let small = Options { mss: ByteCount(75), ..Options::default() };
        assert!(small.check().is_err());
        let small = Options { flow_window: 15, ..Options::default() };
        assert!(small.check().is_err());
        let small = Options { recv_buffer: ByteCount(16 * 1456 - 1), ..Options::default() };
        assert!(small.check().is_err());
    }

    #[test]
    fn the_receive_window_is_what_fits() {
        let options = Options::default();
        assert_eq!(Options::payload(options.mss), 1456);
        assert_eq!(options.recv_window(1456), 8192, "the stock library's default");
        let small = Options { flow_window: 32, ..options };
        assert_eq!(small.recv_window(1456), 32);
    }
}
