//! Hosts: each has a namespace, a device, an address, and routes to all others.

use std::fs;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, OwnedFd};

use packtrain_units::ByteCount;

use crate::device::Device;
use crate::error::{EmuError, Tried};
use crate::namespace::{self, Away};
use crate::netlink::Netlink;
use crate::sys;
use crate::topology::Topology;

/// Name of every host's device.
pub(crate) const DEVICE: &str = "wan0";
/// Length of the device's queue, in packets: enough for the emulator's longest sleep under load.
const QUEUE: u32 = 20_000;

/// Smallest MTU of a device with IPv6.
const MIN_V6_MTU: ByteCount = ByteCount(1_280);

/// The kind of device between a host and the links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceKind {
    /// A TUN device.
    Tun,
    /// A veth pair with a packet socket at one end.
    Packet,
}

impl DeviceKind {
    /// Its name in reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Tun => "tun",
            Self::Packet => "packet",
        }
    }
}

/// A host.
pub(crate) struct Host {
    /// Its index among the nodes.
    pub(crate) node: usize,
    /// Its name.
    pub(crate) name: String,
    /// Its address.
    pub(crate) address: Ipv4Addr,
    /// Its network namespace.
    pub(crate) namespace: OwnedFd,
    /// A netlink socket for queries about its devices.
    netlink: Netlink,
    /// The packet socket, to query its drops.
    socket: Option<OwnedFd>,
}

/// Options for hosts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostOptions {
    /// The kind of device; none: the first that works.
    pub(crate) kind: Option<DeviceKind>,
    /// Without super-packets.
    pub(crate) per_packet: bool,
    /// Bytes that TCP's buffers must be able to hold, if their limits are to be raised.
    pub(crate) buffers: Option<ByteCount>,
}

/// The result of [`make`].
pub(crate) struct CreatedHosts {
    /// The hosts.
    pub(crate) hosts: Vec<Host>,
    /// The device of each node.
    pub(crate) devices: Vec<Option<Device>>,
    /// Their kind.
    pub(crate) kind: DeviceKind,
}

/// Creates all hosts of a network. The caller has one thread, and is back in `away.net` afterwards.
pub(crate) fn make(
    topology: &Topology,
    away: &Away,
    options: HostOptions,
) -> Result<CreatedHosts, EmuError> {
    let kind = options.kind.unwrap_or_else(|| {
        let open = fs::OpenOptions::new().read(true).write(true).open("/dev/net/tun");
        if open.is_ok() { DeviceKind::Tun } else { DeviceKind::Packet }
    });
    let mut pairs = Netlink::open().tried("netlink")?;
    let mut hosts = Vec::new();
    let mut devices: Vec<Option<Device>> = topology.nodes.iter().map(|_| None).collect();
    for node in topology.hosts() {
        let namespace = namespace::another()?;
        let mut netlink = Netlink::open().tried("netlink")?;
        let address = topology.address(node).unwrap_or(Ipv4Addr::UNSPECIFIED);
        let number = address.octets()[3];
        let mut socket = None;
        let device = match kind {
            DeviceKind::Tun => {
                Device::tun(sys::tun(DEVICE, !options.per_packet).tried("/dev/net/tun")?)
            }
            DeviceKind::Packet => {
                let (inner, outer) = ([2, 0x70, 0x74, 0, 0, number], [2, 0x70, 0x74, 0, 1, number]);
                let name = format!("wan{number}");
                pairs
                    .veth((&name, outer), (DEVICE, inner), namespace.as_raw_fd())
                    .tried("a pair of devices")?;
                namespace::enter(&away.net)?;
                let index = pairs.index(&name).tried("a device")?;
                pairs.ready(index, ByteCount(65_535), QUEUE).tried("a device")?;
                let fd = sys::packet_socket(index).tried("a packet socket")?;
                socket = Some(fd.try_clone().tried("a packet socket")?);
                namespace::enter(&namespace)?;
                Device::packet(fd, outer, inner)
            }
        };
        devices[node] = Some(device);
        // Otherwise TCP would still build super-packets, which are segmented before the device:
        // bursts.
        let segments = options.per_packet.then_some(1);
        connect(topology, node, &mut netlink, segments).tried("addresses and routes")?;
        if let Some(room) = options.buffers {
            enlarge(room);
        }
        let name = topology.nodes[node].name.clone();
        hosts.push(Host { node, name, address, namespace, netlink, socket });
    }
    namespace::enter(&away.net)?;
    Ok(CreatedHosts { hosts, devices, kind })
}

impl Host {
    /// Packets that its device dropped because they were not read in time.
    pub(crate) fn device_drops(&mut self) -> u64 {
        let counts = self.netlink.counts(DEVICE).unwrap_or_default();
        let socket = self.socket.as_ref().map_or(0, sys::packet_drops);
        counts.sent_dropped + counts.received_dropped + socket
    }
}

/// Gives a host its address and its routes.
fn connect(
    topology: &Topology,
    node: usize,
    netlink: &mut Netlink,
    segments: Option<u32>,
) -> std::io::Result<()> {
    let loopback = netlink.index("lo")?;
    netlink.up(loopback)?;
    let index = netlink.index(DEVICE)?;
    let others = topology.hosts().filter(|other| *other != node);
    let ways: Vec<_> = others
        .filter_map(|other| Some((topology.address(other)?, topology.path_mtu(node, other)?)))
        .collect();
    let mtu = ways.iter().map(|(_, mtu)| *mtu).max().unwrap_or(ByteCount(1_500));
    // A TUN device carries at most 65,521 bytes.
    let mtu = mtu.clamp(ByteCount(68), ByteCount(65_521));
    if let Some(segments) = segments {
        netlink.set_max_segments(index, segments)?;
    }
    netlink.ready(index, mtu, QUEUE)?;
    if let Some(own) = topology.address(node) {
        netlink.address(index, own.into(), 24)?;
    }
    for (address, way) in &ways {
        if *way < mtu {
            netlink.route((*address).into(), index, *way)?;
        }
    }
    // IPv6 needs 1,280 bytes on every path (RFC 8200 section 5).
    let enough = |mtu: ByteCount| mtu >= MIN_V6_MTU;
    if !enough(mtu) || !enable_v6() {
        return Ok(());
    }
    if let Some(own) = topology.address6(node) {
        netlink.address(index, own.into(), 64)?;
    }
    let others = topology.hosts().filter(|other| *other != node);
    for other in others {
        let way = topology.path_mtu(node, other).filter(|way| enough(*way) && *way < mtu);
        if let (Some(address), Some(way)) = (topology.address6(other), way) {
            netlink.route(address.into(), index, way)?;
        }
    }
    Ok(())
}

/// Enables IPv6 on the device, where the system has disabled it for new devices. False: this kernel
/// has no IPv6.
fn enable_v6() -> bool {
    let path = format!("/proc/sys/net/ipv6/conf/{DEVICE}/disable_ipv6");
    match fs::read_to_string(&path) {
        Ok(value) if value.trim() == "0" => true,
        Ok(_) => fs::write(&path, "0").is_ok(),
        Err(_) => false,
    }
}

/// Raises the limits of TCP's buffers in the caller's namespace so that they hold `room`. If the
/// system refuses, the limits stay.
fn enlarge(room: ByteCount) {
    for name in ["tcp_rmem", "tcp_wmem"] {
        let path = format!("/proc/sys/net/ipv4/{name}");
        let Ok(text) = fs::read_to_string(&path) else { continue };
        let values: Vec<u64> = text.split_whitespace().filter_map(|v| v.parse().ok()).collect();
        if let [min, usual, max] = values[..] {
            let max = max.max(room.get().min(i32::MAX as u64));
            let _ = fs::write(&path, format!("{min} {usual} {max}"));
        }
    }
}
