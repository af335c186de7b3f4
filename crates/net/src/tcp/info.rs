//! Statistics of a TCP connection from the kernel (`TCP_INFO`).

use std::io;
use std::os::fd::AsFd;

use packtrain_units::{ByteCount, DataRate, Duration};

use super::sys;

/// A sample of `TCP_INFO`. Fields that an older kernel lacks are `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TcpInfo {
    /// Smoothed round-trip time.
    pub srtt: Duration,
    /// Its mean deviation.
    pub rttvar: Duration,
    /// Minimum round-trip time of the last minutes.
    pub min_rtt: Option<Duration>,
    /// Retransmission timeout.
    pub rto: Duration,
    /// Sending segment size.
    pub mss: ByteCount,
    /// Path MTU according to the kernel.
    pub pmtu: ByteCount,
    /// Congestion window, in segments of `mss`.
    pub cwnd_segments: u32,
    /// Slow start threshold, in segments; `None` before the first loss.
    pub ssthresh_segments: Option<u32>,
    /// Segments in flight.
    pub in_flight_segments: u32,
    /// Segments retransmitted since the start.
    pub retransmitted_segments: u32,
    /// Bytes retransmitted since the start.
    pub retransmitted: Option<ByteCount>,
    /// Bytes sent since the start, retransmissions included.
    pub sent: Option<ByteCount>,
    /// Bytes acknowledged since the start.
    pub acked: Option<ByteCount>,
    /// Bytes received in order since the start.
    pub received: Option<ByteCount>,
    /// Bytes written and not sent yet.
    pub not_sent: Option<ByteCount>,
    /// Recent delivery rate.
    pub delivery_rate: Option<DataRate>,
    /// Whether the delivery rate was limited by the application.
    pub app_limited: bool,
    /// Pacing rate; `None` also if the kernel does not pace.
    pub pacing_rate: Option<DataRate>,
    /// Time with data to send.
    pub busy: Option<Duration>,
    /// Time limited by the receiver's window.
    pub receiver_limited: Option<Duration>,
    /// Time limited by the send buffer.
    pub send_buffer_limited: Option<Duration>,
    /// Bytes in flight that the receiver's window allows.
    pub receiver_window: Option<ByteCount>,
    /// Round-trip time measured by the receiving side; `None` before data has arrived.
    pub receive_rtt: Option<Duration>,
    /// Segments that arrived out of order since the start.
    pub out_of_order: Option<u32>,
    /// Bytes in flight that this end's window allows the peer.
    pub own_window: Option<ByteCount>,
    /// The congestion control in use.
    pub congestion: String,
}

/// Reads the statistics of a connection.
///
/// # Errors
/// The kernel's error, for example for a socket that is not TCP.
pub fn tcp_info(socket: &impl AsFd) -> io::Result<TcpInfo> {
    let mut bytes = [0; sys::INFO_MAX];
    let len = sys::tcp_info(socket.as_fd(), &mut bytes)?;
    let congestion = rustix::net::sockopt::tcp_congestion(socket).unwrap_or_default();
    parse(&bytes[..len], congestion).ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidData, "the kernel's TCP_INFO is too short")
    })
}

/// Reads the fields by their offset in Linux' `struct tcp_info` (include/uapi/linux/tcp.h), which
/// only grows at its end.
fn parse(bytes: &[u8], congestion: String) -> Option<TcpInfo> {
    let u32_at = |at: usize| Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let u64_at = |at: usize| Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    let micros = |at| u32_at(at).map(|us| Duration::from_micros(u64::from(us)));
    let long_micros = |at| u64_at(at).map(Duration::from_micros);
    let bytes_at = |at| u64_at(at).map(ByteCount);
    // In bytes per second; the largest value means that it is unset.
    let rate =
        |at| u64_at(at).filter(|r| *r != u64::MAX).map(|r| DataRate::from_bps(r.saturating_mul(8)));
    let segments_out = u32_at(24)?.saturating_add(u32_at(36)?);
    let segments_gone = u32_at(28)?.saturating_add(u32_at(32)?);
    Some(TcpInfo {
        srtt: micros(68)?,
        rttvar: micros(72)?,
        min_rtt: micros(148).filter(|rtt| rtt.as_micros() < u64::from(u32::MAX)),
        rto: micros(8)?,
        mss: ByteCount(u64::from(u32_at(16)?)),
        pmtu: ByteCount(u64::from(u32_at(60)?)),
        cwnd_segments: u32_at(80)?,
        // TCP_INFINITE_SSTHRESH means that it is unset.
        ssthresh_segments: u32_at(76).filter(|n| *n < 0x7fff_ffff),
        in_flight_segments: segments_out.saturating_sub(segments_gone),
        retransmitted_segments: u32_at(100)?,
        retransmitted: bytes_at(208),
        sent: bytes_at(200),
        acked: bytes_at(120),
        received: bytes_at(128),
        not_sent: u32_at(144).map(|n| ByteCount(u64::from(n))),
        delivery_rate: rate(160),
        app_limited: bytes[7] & 1 == 1,
        pacing_rate: rate(104),
        busy: long_micros(168),
        receiver_limited: long_micros(176),
        send_buffer_limited: long_micros(184),
        receiver_window: u32_at(228).map(|n| ByteCount(u64::from(n))),
        receive_rtt: micros(92).filter(|rtt| !rtt.is_zero()),
        out_of_order: u32_at(224),
        own_window: u32_at(232).map(|n| ByteCount(u64::from(n))),
        congestion,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    #[test]
    fn a_connection_on_this_machine_is_measured() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        client.write_all(&[7; 10_000]).unwrap();
        server.read_exact(&mut [0; 10_000]).unwrap();
        server.write_all(&[1]).unwrap();
        client.read_exact(&mut [0]).unwrap();
        let info = tcp_info(&client).unwrap();
        assert!(info.cwnd_segments > 0 && info.mss.get() > 500, "{info:?}");
        assert!(!info.congestion.is_empty());
        assert_eq!(info.acked.map(ByteCount::get), Some(10_001), "with the SYN");
        assert_eq!(info.sent, Some(ByteCount(10_000)));
        assert!(info.receiver_window.is_none_or(|window| window.get() > 10_000), "{info:?}");
        assert_eq!(info.ssthresh_segments, None, "nothing was lost");
        assert_eq!(tcp_info(&server).unwrap().received, Some(ByteCount(10_000)));
    }

    #[test]
    fn an_old_kernel_tells_less() {
        assert!(parse(&[0; 103], String::new()).is_none());
        let info = parse(&[0; 104], String::new()).unwrap();
        assert_eq!((info.delivery_rate, info.sent), (None, None));
    }

    #[test]
    fn another_socket_is_an_error() {
        let udp = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        assert!(tcp_info(&udp).is_err());
    }
}
