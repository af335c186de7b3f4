//! Devices, addresses and routes, by rtnetlink.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::RawFd;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE, NLM_F_REQUEST, NetlinkMessage,
    NetlinkPayload,
};
use netlink_packet_route::AddressFamily;
use netlink_packet_route::RouteNetlinkMessage as Route;
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{
    AfSpecInet6, AfSpecUnspec, In6AddrGenMode, InfoData, InfoKind, InfoVeth, LinkAttribute,
    LinkFlags, LinkInfo, LinkMessage,
};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteMetric, RouteProtocol,
    RouteScope, RouteType,
};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};
use packtrain_units::ByteCount;

/// A netlink socket for the network namespace in which it was opened.
pub(crate) struct Netlink {
    socket: Socket,
    sequence: u32,
}

/// Drops of a device, as the kernel counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DeviceCounts {
    /// Packets from the host that the device dropped.
    pub(crate) sent_dropped: u64,
    /// Packets to the host that the device dropped.
    pub(crate) received_dropped: u64,
}

impl Netlink {
    /// A socket for the caller's namespace.
    pub(crate) fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(Self { socket, sequence: 0 })
    }

    /// Index of a device.
    pub(crate) fn index(&mut self, name: &str) -> io::Result<u32> {
        Ok(self.link(name)?.header.index)
    }

    /// The drops of a device.
    pub(crate) fn counts(&mut self, name: &str) -> io::Result<DeviceCounts> {
        let link = self.link(name)?;
        let stats = link.attributes.iter().find_map(|attribute| match attribute {
            LinkAttribute::Stats64(stats) => Some(*stats),
            _ => None,
        });
        let stats = stats.ok_or(io::ErrorKind::InvalidData)?;
        Ok(DeviceCounts {
            sent_dropped: stats.tx_dropped + stats.tx_errors,
            received_dropped: stats.rx_dropped + stats.rx_errors,
        })
    }

    /// Creates a veth pair: one end here, the other in another namespace.
    pub(crate) fn veth(
        &mut self,
        here: (&str, [u8; 6]),
        there: (&str, [u8; 6]),
        namespace: RawFd,
    ) -> io::Result<()> {
        let end = |(name, mac): (&str, [u8; 6])| {
            let mut link = LinkMessage::default();
            link.attributes.push(LinkAttribute::IfName(name.to_owned()));
            link.attributes.push(LinkAttribute::Address(mac.to_vec()));
            link
        };
        let mut peer = end(there);
        peer.attributes.push(LinkAttribute::NetNsFd(namespace));
        let mut link = end(here);
        link.attributes.push(LinkAttribute::LinkInfo(vec![
            LinkInfo::Kind(InfoKind::Veth),
            LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(peer))),
        ]));
        self.ask(Route::NewLink(link), NLM_F_CREATE | NLM_F_EXCL).map(|_| ())
    }

    /// Configures a device: MTU, queue length, no IPv6 addresses and no ARP, so that only programs
    /// send packets.
    pub(crate) fn ready(&mut self, index: u32, mtu: ByteCount, queue: u32) -> io::Result<()> {
        let mut quiet = LinkMessage::default();
        quiet.header.index = index;
        quiet.attributes.push(LinkAttribute::AfSpecUnspec(vec![AfSpecUnspec::Inet6(vec![
            AfSpecInet6::AddrGenMode(In6AddrGenMode::None),
        ])]));
        // A kernel without IPv6 refuses, which has the same effect.
        let _ = self.ask(Route::SetLink(quiet), 0);
        let mut link = LinkMessage::default();
        link.header.index = index;
        link.header.flags = LinkFlags::Up | LinkFlags::Noarp;
        link.header.change_mask = LinkFlags::Up | LinkFlags::Noarp;
        link.attributes.push(LinkAttribute::Mtu(u32::try_from(mtu.get()).unwrap_or(65_535)));
        link.attributes.push(LinkAttribute::TxQueueLen(queue));
        self.ask(Route::SetLink(link), 0).map(|_| ())
    }

    /// Sets the maximum number of segments per super-packet; one: no super-packets.
    pub(crate) fn set_max_segments(&mut self, index: u32, max: u32) -> io::Result<()> {
        let mut link = LinkMessage::default();
        link.header.index = index;
        link.attributes.push(LinkAttribute::GsoMaxSegs(max));
        self.ask(Route::SetLink(link), 0).map(|_| ())
    }

    /// Brings a device up without other changes.
    pub(crate) fn up(&mut self, index: u32) -> io::Result<()> {
        let mut link = LinkMessage::default();
        link.header.index = index;
        link.header.flags = LinkFlags::Up;
        link.header.change_mask = LinkFlags::Up;
        self.ask(Route::SetLink(link), 0).map(|_| ())
    }

    /// Gives a device an address in a network of `prefix` bits.
    pub(crate) fn address(&mut self, index: u32, own: Ipv4Addr, prefix: u8) -> io::Result<()> {
        let mut message = AddressMessage::default();
        message.header.family = AddressFamily::Inet;
        message.header.prefix_len = prefix;
        message.header.index = index;
        message.attributes = vec![
            AddressAttribute::Local(IpAddr::V4(own)),
            AddressAttribute::Address(IpAddr::V4(own)),
        ];
        self.ask(Route::NewAddress(message), NLM_F_CREATE | NLM_F_EXCL).map(|_| ())
    }

    /// Adds a route to one address through a device, with packets of at most `mtu`.
    pub(crate) fn route(&mut self, to: Ipv4Addr, index: u32, mtu: ByteCount) -> io::Result<()> {
        let mut message = RouteMessage::default();
        message.header = RouteHeader {
            address_family: AddressFamily::Inet,
            destination_prefix_length: 32,
            table: RouteHeader::RT_TABLE_MAIN,
            protocol: RouteProtocol::Static,
            scope: RouteScope::Link,
            kind: RouteType::Unicast,
            ..RouteHeader::default()
        };
        message.attributes = vec![
            RouteAttribute::Destination(RouteAddress::Inet(to)),
            RouteAttribute::Oif(index),
            RouteAttribute::Metrics(vec![RouteMetric::Mtu(
                u32::try_from(mtu.get()).unwrap_or(65_535),
            )]),
        ];
        self.ask(Route::NewRoute(message), NLM_F_CREATE | NLM_F_REPLACE).map(|_| ())
    }

    fn link(&mut self, name: &str) -> io::Result<LinkMessage> {
        let mut message = LinkMessage::default();
        message.attributes.push(LinkAttribute::IfName(name.to_owned()));
        match self.ask(Route::GetLink(message), 0)? {
            Some(Route::NewLink(link)) => Ok(link),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// Sends a request and waits for the response and the acknowledgement.
    fn ask(&mut self, message: Route, flags: u16) -> io::Result<Option<Route>> {
        self.sequence += 1;
        let mut request = NetlinkMessage::from(message);
        request.header.flags = NLM_F_REQUEST | NLM_F_ACK | flags;
        request.header.sequence_number = self.sequence;
        request.finalize();
        let mut bytes = vec![0; request.buffer_len()];
        request.serialize(&mut bytes);
        self.socket.send(&bytes, 0)?;
        let mut answer = None;
        let mut room = vec![0_u8; 65_536];
        loop {
            let len = self.socket.recv(&mut &mut room[..], 0)?;
            let mut at = 0;
            while at < len {
                let reply = NetlinkMessage::<Route>::deserialize(&room[at..len])
                    .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
                // Messages are aligned to four bytes.
                at += (reply.header.length as usize).max(16).next_multiple_of(4);
                if reply.header.sequence_number != self.sequence {
                    continue;
                }
                match reply.payload {
                    NetlinkPayload::Error(error) if error.code.is_some() => {
                        return Err(error.to_io());
                    }
                    NetlinkPayload::Error(_) | NetlinkPayload::Done(_) => return Ok(answer),
                    NetlinkPayload::InnerMessage(message) => answer = Some(message),
                    _ => {}
                }
            }
        }
    }
}
