//! What may be set for a connection.

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

/// The options of a connection, or of all that a listener accepts. The defaults are the stock
/// library's, except for the controller's name.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Largest IP packet, headers included (`UDT_MSS`); the smaller one of both ends counts.
    pub mss: ByteCount,
    /// Most packets that may be unacknowledged (`UDT_FC`); the smaller one of both ends counts.
    pub flow_window: u32,
    /// Bytes that may wait for being sent or acknowledged (`UDT_SNDBUF`).
    pub send_buffer: ByteCount,
    /// Bytes that may wait for being read (`UDT_RCVBUF`); memory grows with what arrives.
    pub recv_buffer: ByteCount,
    /// Stream or messages; both ends must mean the same.
    pub kind: Kind,
    /// How long a closed connection goes on delivering what it was given (`UDT_LINGER`).
    pub linger: Duration,
    /// Both ends call each other (`UDT_RENDEZVOUS`).
    pub rendezvous: bool,
    /// The congestion controller, by the name of the registry.
    pub cc: String,
    /// How long to try to connect.
    pub connect_timeout: Duration,
    /// Never send faster (`UDT_MAXBW`).
    pub max_rate: Option<DataRate>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            mss: ByteCount(1500),
            flow_window: 25_600,
            send_buffer: ByteCount(8192 * 1456),
            recv_buffer: ByteCount(8192 * 1456),
            kind: Kind::Stream,
            linger: Duration::from_secs(180),
            rendezvous: false,
            cc: "udt:udt4".to_owned(),
            connect_timeout: Duration::from_secs(3),
            max_rate: None,
        }
    }
}

/// Bounds of everything that a peer or a user can make large.
pub mod limits {
    use packtrain_units::{ByteCount, Duration};

    /// Least MSS: what IPv4 guarantees to pass, 576 bytes, is no law here, but a payload must
    /// remain.
    pub const MIN_MSS: ByteCount = ByteCount(76);
    /// Largest MSS: the largest IP packet.
    pub const MAX_MSS: ByteCount = ByteCount(65_535);
    /// Least window in packets.
    pub const MIN_WINDOW: u32 = 16;
    /// Largest window in packets: numbers have 31 bits and must stay unambiguous.
    pub const MAX_WINDOW: u32 = 1 << 22;
    /// Largest buffer.
    pub const MAX_BUFFER: ByteCount = ByteCount(4 << 30);
    /// Most connections of one endpoint.
    pub const CONNECTIONS: usize = 4096;
    /// Most connections that wait to be accepted, whatever backlog is asked for.
    pub const BACKLOG: usize = 1024;
    /// Answers to handshakes that wait to be sent; more are dropped, the caller asks again.
    pub const ANSWERS: usize = 256;
    /// Ended connections that are remembered to tell their peers so.
    pub const TOMBS: usize = 1024;
    /// A handshake is repeated as often as this.
    pub const HANDSHAKE_RETRY: Duration = Duration::from_millis(250);
    /// A peer hears at least this often of us.
    pub const KEEPALIVE: Duration = Duration::from_millis(500);
    /// A peer of which nothing was heard for this long is gone, if it was also called
    /// [`SILENT_CALLS`] times meanwhile.
    pub const SILENCE: Duration = Duration::from_secs(10);
    /// See [`SILENCE`].
    pub const SILENT_CALLS: u32 = 16;
}

impl Options {
    /// Bytes of a packet that are not payload: headers of IPv4, UDP and UDT. The stock library
    /// reckons with IPv4's also over IPv6.
    pub(super) const OVERHEAD: u64 = 28 + 16;

    /// Payload bytes of a full packet.
    pub(super) fn payload(mss: ByteCount) -> usize {
        mss.get().saturating_sub(Self::OVERHEAD) as usize
    }

    /// Refuses what cannot work.
    pub(super) fn check(&self) -> Result<(), OpenError> {
        let refuse = |what| Err(OpenError::Option(what));
        if self.mss < limits::MIN_MSS || self.mss > limits::MAX_MSS {
            return refuse("the MSS must be 76 to 65535 bytes");
        }
        if self.flow_window < limits::MIN_WINDOW || self.flow_window > limits::MAX_WINDOW {
            return refuse("the flow window must be 16 to 4194304 packets");
        }
        let least = ByteCount(Self::payload(self.mss) as u64 * u64::from(limits::MIN_WINDOW));
        let bad = |size: ByteCount| size < least || size > limits::MAX_BUFFER;
        if bad(self.send_buffer) || bad(self.recv_buffer) {
            return refuse("a buffer must hold 16 packets and at most 4 GiB");
        }
        Ok(())
    }

    /// Packets of payload `payload` that the receive buffer holds, the flow window being enough.
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
