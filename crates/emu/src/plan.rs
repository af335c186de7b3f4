//! The description of an emulation: the network and the programs.

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
    /// Without super-packets: each packet passes separately, at its own time.
    pub per_packet: bool,
    /// The kind of device between hosts and links; none: a TUN device if one can be opened.
    pub device: Option<DeviceKind>,
    /// Interval between the emulator's wake-ups under load; zero: every packet at its own time;
    /// none: [`Topology::tick`].
    pub tick: Option<Duration>,
    /// Raises the limits of TCP's buffers in the hosts to at least this.
    pub buffers: Option<ByteCount>,
    /// Path prefix of the record: a capture, arrivals and drops.
    pub record: Option<PathBuf>,
    /// The main program and its arguments.
    pub command: Vec<OsString>,
    /// The host on which it runs.
    pub on: String,
    /// Shell commands on other hosts, started before the program and killed at the end.
    pub others: Vec<(String, String)>,
}
