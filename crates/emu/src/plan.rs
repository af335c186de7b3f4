//! What is to be emulated, and what runs there.

use std::ffi::OsString;
use std::path::PathBuf;

use packtrain_units::{ByteCount, Duration};

use crate::hosts::DeviceKind;
use crate::topology::Topology;

/// An emulation to run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The network.
    pub topology: Topology,
    /// No super-packets: each packet passes alone, at its own time.
    pub per_packet: bool,
    /// What joins hosts and links; none: a TUN device where one can be opened.
    pub device: Option<DeviceKind>,
    /// How far apart the emulator's wake-ups are where there is much to do; zero: every packet
    /// at its own time; none: [`Topology::tick`].
    pub tick: Option<Duration>,
    /// Make TCP's buffers in the hosts hold at least this, if they would hold less.
    pub buffers: Option<ByteCount>,
    /// Keep a capture, arrivals and drops in files that begin so.
    pub record: Option<PathBuf>,
    /// The program, and its arguments.
    pub command: Vec<OsString>,
    /// The host on which it runs.
    pub on: String,
    /// Command lines for a shell on other hosts, started before and killed at the end.
    pub others: Vec<(String, String)>,
}
