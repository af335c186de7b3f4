//! What an emulation says of itself at its end.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// How it went. Names end in their units, as in everything that programs read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// How long it ran.
    pub seconds: f64,
    /// What joined hosts and links: `tun` or `packet` (pairs of devices and packet sockets).
    pub device: String,
    /// Whether packets passed one by one.
    pub per_packet: bool,
    /// Each direction of each link.
    pub links: Vec<LinkReport>,
    /// Each host.
    pub hosts: Vec<HostReport>,
    /// How far deliveries were from their nominal times.
    pub delay_error: DelayError,
    /// Processor time of the thread that moved the packets.
    pub cpu_seconds: f64,
    /// Why the emulator and not the network set the pace, if it did.
    pub bottleneck: Option<String>,
    /// Why the record is missing or not whole.
    pub record_error: Option<String>,
}

/// One direction of a link.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LinkReport {
    /// Its name.
    pub name: String,
    /// Packets that arrived at it, each segment counted.
    pub offered: u64,
    /// Their bytes, from the network header on.
    pub offered_bytes: u64,
    /// Packets that left it.
    pub delivered: u64,
    /// Their bytes.
    pub delivered_bytes: u64,
    /// Rate from the first to the last of them.
    pub throughput_bps: u64,
    /// Rate in the busiest second.
    pub busiest_bps: u64,
    /// The longest wait in the queue.
    pub longest_queue_seconds: f64,
    /// Packets that died, by cause: `overflow`, `early`, `random`, `too_big`, `down`.
    pub dropped: BTreeMap<String, u64>,
    /// How late its deliveries to hosts were.
    pub delay_error: DelayError,
}

/// A host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HostReport {
    /// Its name.
    pub name: String,
    /// Its address.
    pub address: String,
    /// Packets that its device lost because the emulator came too late: they never saw a link.
    pub device_drops: u64,
    /// Packets that could not be handed to it.
    pub write_failures: u64,
    /// Packets for addresses that no host has, and packets that are not IPv4.
    pub unroutable: u64,
}

/// How far deliveries were from their nominal times, over all packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DelayError {
    /// The mean.
    pub mean_seconds: f64,
    /// What 99 % are not above.
    pub p99_seconds: f64,
    /// The worst.
    pub worst_seconds: f64,
}
