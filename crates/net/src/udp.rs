//! UDP sockets with the features that the flow engine needs: segmentation offload (`UDP_SEGMENT`),
//! coalescing (`UDP_GRO`), receive timestamps, the kernel's drop counter, congestion marks, and the
//! don't-fragment bit without the kernel's own path MTU discovery.
//!
//! A missing offload, or one that fails at run time (`EIO` from a device without checksums), only
//! costs speed: the socket then sends one datagram per call. Systems other than Linux have the
//! plain sockets of `portable`.

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
pub(crate) use socket::LOWER_EFFORT;
pub use socket::{BindError, Drops, Ecn, Offloads, SendError, UdpSocket};
