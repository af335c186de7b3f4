//! The capacity of the kernel's socket buffers, and a warning if they are too small.

use std::fmt;

use packtrain_units::{ByteCount, DataRate, Duration};

/// Kernel memory per datagram of a full coalesced batch in a receive buffer, measured on Linux
/// 6.18: a buffer of 212992 bytes, doubled, holds about 264 datagrams of 1456 bytes.
const COST_PER_DATAGRAM: u64 = 1_613;
/// Payload of such a datagram, in bytes.
const DATAGRAM: u64 = 1_456;
/// How long an ordinary scheduler may delay a receiving thread.
const SCHEDULING_LATENCY: Duration = Duration::from_millis(4);

/// Sizes of a socket's buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferSizes {
    /// Memory for received datagrams, including the kernel's overhead.
    pub receive: ByteCount,
    /// Memory for datagrams that are not sent yet.
    pub send: ByteCount,
    /// The requested size of each.
    pub wanted: ByteCount,
    /// The system's limit on receive buffers (`net.core.rmem_max`), if known.
    pub receive_limit: Option<ByteCount>,
}

/// A warning for the user about a receive buffer that is too small for a rate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BufferWarning {
    /// How long the sockets together can buffer `rate` while the thread does not run.
    pub covers: Duration,
    /// The rate.
    pub rate: DataRate,
    /// Number of sockets.
    pub sockets: usize,
    /// The buffer sizes of each socket.
    pub sizes: BufferSizes,
    /// The required limit.
    pub needed: ByteCount,
}

impl BufferSizes {
    /// How long `sockets` such buffers can hold traffic of `rate` before datagrams are dropped.
    pub fn covers(&self, rate: DataRate, sockets: usize) -> Duration {
        let payload = self.receive.get() / COST_PER_DATAGRAM * DATAGRAM;
        rate.time_for(ByteCount(payload.saturating_mul(sockets as u64)))
    }

    /// A warning if traffic of `rate` over `sockets` sockets overflows the buffers within an
    /// ordinary scheduling latency (4 ms), and the system's limit is the reason.
    pub fn warning(&self, rate: DataRate, sockets: usize) -> Option<BufferWarning> {
        let covers = self.covers(rate, sockets);
        if covers >= SCHEDULING_LATENCY || self.receive.get() >= self.wanted.get() {
            return None;
        }
        let share = rate.bytes_in(SCHEDULING_LATENCY).get() / (sockets.max(1) as u64);
        let cost = share / DATAGRAM * COST_PER_DATAGRAM;
        // The kernel doubles the requested size, so half the memory is sufficient as the limit.
        let needed = ByteCount((cost / 2).next_power_of_two().max(1 << 20));
        Some(BufferWarning { covers, rate, sockets, sizes: *self, needed })
    }
}

impl fmt::Display for BufferWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { covers, rate, sockets, sizes, needed } = self;
        let ms = covers.as_secs_f64() * 1e3;
        let each = if *sockets == 1 {
            "the UDP receive buffer is".to_owned()
        } else {
            format!("the {sockets} UDP receive buffers are, each,")
        };
        write!(f, "{each} {} and hold {ms:.1} ms of {rate}", sizes.receive)?;
        match sizes.receive_limit {
            Some(limit) => write!(f, " (the limit net.core.rmem_max is {})", limit.get())?,
            None => f.write_str(" (a limit of this system)")?,
        }
        write!(
            f,
            ": a busy machine will drop packets; an administrator can raise it with \
             `sysctl -w net.core.rmem_max={}`",
            needed.get()
        )
    }
}

/// The system's limit on receive buffers.
pub(super) fn receive_limit() -> Option<ByteCount> {
    let text = std::fs::read_to_string("/proc/sys/net/core/rmem_max").ok()?;
    text.trim().parse().ok().map(ByteCount)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(receive: u64) -> BufferSizes {
        BufferSizes {
            receive: ByteCount(receive),
            send: ByteCount(receive),
            wanted: ByteCount(8 << 20),
            receive_limit: Some(ByteCount(receive / 2)),
        }
    }

    #[test]
    fn default_limit_hurts_at_high_rates_only() {
        let default = sizes(425_984);
        assert_eq!(default.warning(DataRate::from_mbps(100), 1), None);
        let warning = default.warning(DataRate::from_mbps(8_000), 1).unwrap();
        assert!(warning.covers < Duration::from_micros(500), "{warning}");
        let text = warning.to_string();
        assert!(text.contains("net.core.rmem_max is 212992"), "{text}");
        assert!(text.contains("sysctl -w net.core.rmem_max="), "{text}");
        // With the recommended limit there is no warning.
        let better = sizes(warning.needed.get() * 2);
        assert_eq!(better.warning(DataRate::from_mbps(8_000), 1), None);
    }

    #[test]
    fn sockets_share_the_load() {
        let default = sizes(425_984);
        assert!(default.warning(DataRate::from_mbps(4_000), 2).is_some());
        assert_eq!(default.warning(DataRate::from_mbps(4_000), 8), None);
    }

    #[test]
    fn a_granted_wish_needs_no_warning() {
        assert_eq!(sizes(8 << 20).warning(DataRate::from_mbps(100_000), 1), None);
    }
}
