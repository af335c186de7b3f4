//! Burst sizes for a pace.

use packtrain_units::{ByteCount, DataRate, Duration};

/// Maximum bytes back to back at `rate`: 250 us of it, at least 2 and at most 44 packets.
pub(crate) fn quantum(rate: DataRate, mtu: ByteCount) -> ByteCount {
    let packets = rate.bytes_in(Duration::from_micros(250)).get() / mtu.get().max(1);
    ByteCount(packets.clamp(2, 44) * mtu.get())
}
