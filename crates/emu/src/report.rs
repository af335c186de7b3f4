//! The report of an emulation.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The result. Names end in their units, as in all machine-readable output.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Running time.
    pub seconds: f64,
    /// Kind of device: `tun` or `packet` (veth pairs with packet sockets).
    pub device: String,
    /// Whether packets passed separately.
    pub per_packet: bool,
    /// Each direction of each link.
    pub links: Vec<LinkReport>,
    /// Each host.
    pub hosts: Vec<HostReport>,
    /// Lateness of the deliveries.
    pub delay_error: DelayError,
    /// Processor time of the thread that moved the packets.
    pub cpu_seconds: f64,
    /// Why the emulator instead of the network limited the rate, if it did.
    pub bottleneck: Option<String>,
    /// Why the record is missing or incomplete.
    pub record_error: Option<String>,
}

/// One direction of a link.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LinkReport {
    /// Its name.
    pub name: String,
    /// Packets offered, each segment counted.
    pub offered: u64,
    /// Their bytes, from the network header on.
    pub offered_bytes: u64,
    /// Packets delivered.
    pub delivered: u64,
    /// Their bytes.
    pub delivered_bytes: u64,
    /// Rate from the first to the last of them.
    pub throughput_bps: u64,
    /// Rate in the busiest second.
    pub busiest_bps: u64,
    /// Maximum wait in the queue.
    pub longest_queue_seconds: f64,
    /// Packets dropped, by cause: `overflow`, `early`, `random`, `too_big`, `down`.
    pub dropped: BTreeMap<String, u64>,
    /// Lateness of its deliveries to hosts.
    pub delay_error: DelayError,
}

/// A host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HostReport {
    /// Its name.
    pub name: String,
    /// Its address.
    pub address: String,
    /// Packets that its device dropped because the emulator read too late; no link counted them.
    pub device_drops: u64,
    /// Packets whose write to its device failed.
    pub write_failures: u64,
    /// Packets for addresses of no host, and packets that are neither IPv4 nor IPv6.
    pub unroutable: u64,
}

/// The difference between actual deliveries and their nominal times, over all packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DelayError {
    /// The mean.
    pub mean_seconds: f64,
    /// The 99th percentile.
    pub p99_seconds: f64,
    /// The maximum.
    pub worst_seconds: f64,
}
