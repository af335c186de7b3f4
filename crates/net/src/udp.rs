//! UDP sockets with everything the flow engine lives on: segmentation offload out
//! (`UDP_SEGMENT`), coalescing in (`UDP_GRO`), receive timestamps, the kernel's own drop counter,
//! congestion marks, and the don't-fragment bit with probing left to us.
//!
//! An offload that the kernel lacks, or refuses while running (`EIO` from a device without
//! checksums), costs speed and nothing else: the socket falls back to one datagram a call.
//! Systems other than Linux get the plain sockets of `portable`.

mod buffers;
mod control;
mod lane;
#[cfg(target_os = "linux")]
mod linux;
#[cfg(any(not(target_os = "linux"), test))]
mod portable;
mod ports;
mod slab;
mod socket;
#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
mod sys;

#[cfg(target_os = "linux")]
use linux as platform;
#[cfg(not(target_os = "linux"))]
use portable as platform;

pub use buffers::{BufferSizes, BufferWarning};
pub use lane::{Lane, Unsent};
pub use ports::{PortRange, PortRangeError};
pub use slab::{Message, RecvSlab};
pub use socket::{BindError, Drops, Ecn, LOWER_EFFORT, Offloads, SendError, UdpSocket};
