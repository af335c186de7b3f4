//! Devices, addresses and routes, asked of the kernel over rtnetlink.
//!
//! The crate composes its few requests itself (netlink(7), rtnetlink(7)): a library of all
//! messages of rtnetlink takes a twentieth of the time in which the program is built.

use std::io;
use std::net::IpAddr;
use std::os::fd::{OwnedFd, RawFd};

use packtrain_units::ByteCount;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with,
};

/// Bytes of `struct nlmsghdr`.
const HEADER_BYTES: usize = 16;
/// Bytes of `struct ifinfomsg`.
const LINK_BYTES: usize = 16;
/// Bytes of the head of an attribute: its length and its kind.
const ATTRIBUTE_HEAD_BYTES: usize = 4;
/// `VETH_INFO_PEER` of linux/veth.h.
const VETH_INFO_PEER: u16 = 1;
/// `IFLA_INET6_ADDR_GEN_MODE` of linux/if_link.h.
const INET6_ADDR_GEN_MODE: u16 = 8;
/// `IN6_ADDR_GEN_MODE_NONE` of linux/if_link.h.
const NO_IPV6_ADDRESSES: u8 = 1;
/// `RTAX_MTU` of linux/rtnetlink.h.
const METRIC_MTU: u16 = 2;

/// A socket to the kernel, for the network namespace in which it was opened.
pub(crate) struct Netlink {
    socket: OwnedFd,
    sequence: u32,
}

/// What a device lost, as the kernel counts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DeviceCounts {
    /// Packets of the host that the device could not take.
    pub(crate) sent_dropped: u64,
    /// Packets for the host that the device could not pass on.
    pub(crate) received_dropped: u64,
}

impl Netlink {
    /// For the namespace of the caller.
    pub(crate) fn open() -> io::Result<Self> {
        let (family, kind) = (AddressFamily::NETLINK, SocketType::RAW);
        // No protocol is that of rtnetlink.
        let socket = socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
        Ok(Self { socket, sequence: 0 })
    }

    /// Index of a device.
    pub(crate) fn index(&mut self, name: &str) -> io::Result<u32> {
        // The index is behind family, padding and type.
        number(self.link(name)?.get(4..8))
    }

    /// What a device lost.
    pub(crate) fn counts(&mut self, name: &str) -> io::Result<DeviceCounts> {
        let link = self.link(name)?;
        let stats =
            find(&link[LINK_BYTES..], libc::IFLA_STATS64).ok_or(io::ErrorKind::InvalidData)?;
        // `struct rtnl_link_stats64`: packets and bytes of both ways are first.
        let [rx_errors, tx_errors, rx_dropped, tx_dropped] = [4, 5, 6, 7].map(|nth: usize| {
            let bytes = stats.get(nth * 8..).and_then(|rest| rest.first_chunk());
            bytes.map_or(0, |bytes| u64::from_ne_bytes(*bytes))
        });
        Ok(DeviceCounts {
            sent_dropped: tx_dropped + tx_errors,
            received_dropped: rx_dropped + rx_errors,
        })
    }

    /// A pair of Ethernet devices: one here, one in another namespace.
    pub(crate) fn veth(
        &mut self,
        here: (&str, [u8; 6]),
        there: (&str, [u8; 6]),
        namespace: RawFd,
    ) -> io::Result<()> {
        let end = |(name, mac): (&str, [u8; 6])| {
            Body::link(0, 0).text(libc::IFLA_IFNAME, name).bytes(libc::IFLA_ADDRESS, &mac)
        };
        let peer = end(there).bytes(libc::IFLA_NET_NS_FD, &namespace.to_ne_bytes());
        let info = Body::default()
            .text(libc::IFLA_INFO_KIND, "veth")
            .nested(libc::IFLA_INFO_DATA, &Body::default().nested(VETH_INFO_PEER, &peer));
        let link = end(here).nested(libc::IFLA_LINKINFO, &info);
        self.ask(libc::RTM_NEWLINK, libc::NLM_F_CREATE | libc::NLM_F_EXCL, &link).map(|_| ())
    }

    /// Makes a device ready: size of packets, length of its queue; no IPv6 addresses of the
    /// kernel's own and no address resolution, so that nothing is sent but what programs send.
    pub(crate) fn ready(&mut self, index: u32, mtu: ByteCount, queue: u32) -> io::Result<()> {
        let mode = Body::default().bytes(INET6_ADDR_GEN_MODE, &[NO_IPV6_ADDRESSES]);
        let families = Body::default().nested(libc::AF_INET6 as u16, &mode);
        let quiet = Body::link(index, 0).nested(libc::IFLA_AF_SPEC, &families);
        // A kernel without IPv6 refuses, which is as good.
        let _ = self.ask(libc::RTM_SETLINK, 0, &quiet);
        let link = Body::link(index, libc::IFF_UP | libc::IFF_NOARP)
            .number(libc::IFLA_MTU, mtu_of(mtu))
            .number(libc::IFLA_TXQLEN, queue);
        self.ask(libc::RTM_SETLINK, 0, &link).map(|_| ())
    }

    /// The most segments of a super-packet that the device takes; one: no super-packets.
    pub(crate) fn set_max_segments(&mut self, index: u32, most: u32) -> io::Result<()> {
        let link = Body::link(index, 0).number(libc::IFLA_GSO_MAX_SEGS, most);
        self.ask(libc::RTM_SETLINK, 0, &link).map(|_| ())
    }

    /// Brings a device up as it is.
    pub(crate) fn up(&mut self, index: u32) -> io::Result<()> {
        self.ask(libc::RTM_SETLINK, 0, &Body::link(index, libc::IFF_UP)).map(|_| ())
    }

    /// Gives a device an address in a network of `prefix` bits. An IPv6 address is used at once:
    /// nobody else can have it, so it is not searched for (RFC 4862 section 5.4).
    pub(crate) fn address(&mut self, index: u32, own: IpAddr, prefix: u8) -> io::Result<()> {
        let (family, octets) = octets(own);
        let flags = if own.is_ipv6() { libc::IFA_F_NODAD as u8 } else { 0 };
        // `struct ifaddrmsg`: family, prefix, flags, scope, index.
        let mut head = vec![family, prefix, flags, 0];
        head.extend(index.to_ne_bytes());
        let address = Body(head).bytes(libc::IFA_LOCAL, &octets).bytes(libc::IFA_ADDRESS, &octets);
        self.ask(libc::RTM_NEWADDR, libc::NLM_F_CREATE | libc::NLM_F_EXCL, &address).map(|_| ())
    }

    /// Sends what is for one address through a device, in packets of at most `mtu`.
    pub(crate) fn route(&mut self, to: IpAddr, index: u32, mtu: ByteCount) -> io::Result<()> {
        let (family, octets) = octets(to);
        // `struct rtmsg`: family, bits of destination and source, service, table, protocol,
        // scope, kind, flags.
        let bits = octets.len() as u8 * 8;
        let mut head = vec![family, bits, 0, 0, libc::RT_TABLE_MAIN];
        head.extend([libc::RTPROT_STATIC, libc::RT_SCOPE_LINK, libc::RTN_UNICAST, 0, 0, 0, 0]);
        let route = Body(head)
            .bytes(libc::RTA_DST, &octets)
            .number(libc::RTA_OIF, index)
            .nested(libc::RTA_METRICS, &Body::default().number(METRIC_MTU, mtu_of(mtu)));
        self.ask(libc::RTM_NEWROUTE, libc::NLM_F_CREATE | libc::NLM_F_REPLACE, &route).map(|_| ())
    }

    /// A device: `struct ifinfomsg` and its attributes.
    fn link(&mut self, name: &str) -> io::Result<Vec<u8>> {
        let wanted = Body::link(0, 0).text(libc::IFLA_IFNAME, name);
        let link = self.ask(libc::RTM_GETLINK, 0, &wanted)?;
        link.filter(|link| link.len() >= LINK_BYTES)
            .ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// Asks, and waits for the answer and the acknowledgement.
    fn ask(&mut self, kind: u16, flags: i32, body: &Body) -> io::Result<Option<Vec<u8>>> {
        self.sequence += 1;
        let flags = (libc::NLM_F_REQUEST | libc::NLM_F_ACK | flags) as u16;
        let mut request = ((HEADER_BYTES + body.0.len()) as u32).to_ne_bytes().to_vec();
        request.extend(kind.to_ne_bytes());
        request.extend(flags.to_ne_bytes());
        request.extend(self.sequence.to_ne_bytes());
        // The port is the kernel's to choose.
        request.extend([0; 4]);
        request.extend(&body.0);
        send(&self.socket, &request, SendFlags::empty())?;
        let mut answer = None;
        let mut room = vec![0_u8; 65_536];
        loop {
            let (len, _) = recv(&self.socket, &mut room[..], RecvFlags::empty())?;
            let mut rest = &room[..len];
            while let Some(head) = rest.first_chunk::<HEADER_BYTES>() {
                let len = number(head.get(..4))? as usize;
                let payload = rest.get(HEADER_BYTES..len).ok_or(io::ErrorKind::InvalidData)?;
                let (kind, sequence) =
                    (u16::from_ne_bytes([head[4], head[5]]), number(head.get(8..12))?);
                // Messages are aligned to four bytes.
                rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
                match i32::from(kind) {
                    _ if sequence != self.sequence => {}
                    // An acknowledgement is an error with the number 0.
                    libc::NLMSG_ERROR => match number(payload.get(..4))? as i32 {
                        0 => return Ok(answer),
                        errno => return Err(io::Error::from_raw_os_error(-errno)),
                    },
                    libc::NLMSG_DONE => return Ok(answer),
                    _ => answer = Some(payload.to_vec()),
                }
            }
        }
    }
}

/// What follows the header of a message, or is in an attribute: perhaps a fixed part, and
/// attributes.
#[derive(Default)]
struct Body(Vec<u8>);

impl Body {
    /// `struct ifinfomsg`, with flags to be set.
    fn link(index: u32, set: i32) -> Self {
        // Family, padding and type are none.
        let fields = [0, index, set as u32, set as u32];
        Self(fields.into_iter().flat_map(u32::to_ne_bytes).collect())
    }

    fn bytes(mut self, kind: u16, payload: &[u8]) -> Self {
        self.0.extend(((ATTRIBUTE_HEAD_BYTES + payload.len()) as u16).to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
        self.0.extend(payload);
        // Attributes are aligned to four bytes.
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    fn text(self, kind: u16, text: &str) -> Self {
        self.bytes(kind, &[text.as_bytes(), &[0]].concat())
    }

    fn number(self, kind: u16, number: u32) -> Self {
        self.bytes(kind, &number.to_ne_bytes())
    }

    fn nested(self, kind: u16, inner: &Self) -> Self {
        self.bytes(kind, &inner.0)
    }
}

/// The family and the bytes of an address.
fn octets(address: IpAddr) -> (u8, Vec<u8>) {
    match address {
        IpAddr::V4(address) => (libc::AF_INET as u8, address.octets().to_vec()),
        IpAddr::V6(address) => (libc::AF_INET6 as u8, address.octets().to_vec()),
    }
}

/// The payload of the first attribute of this kind.
fn find(mut attributes: &[u8], wanted: u16) -> Option<&[u8]> {
    while let Some(&[low, high, first, second]) = attributes.first_chunk() {
        let len = usize::from(u16::from_ne_bytes([low, high]));
        let payload = attributes.get(ATTRIBUTE_HEAD_BYTES..len)?;
        if u16::from_ne_bytes([first, second]) == wanted {
            return Some(payload);
        }
        attributes = attributes.get(len.next_multiple_of(4)..)?;
    }
    None
}

fn number(bytes: Option<&[u8]>) -> io::Result<u32> {
    let bytes = bytes.and_then(|bytes| bytes.try_into().ok());
    bytes.map(u32::from_ne_bytes).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

fn mtu_of(mtu: ByteCount) -> u32 {
    u32::try_from(mtu.get()).unwrap_or(65_535)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_aligned_and_found() {
        let body = Body::default()
            .text(libc::IFLA_IFNAME, "a")
            .nested(libc::IFLA_LINKINFO, &Body::default().text(libc::IFLA_INFO_KIND, "veth"))
            .number(libc::IFLA_MTU, 1_500);
        assert_eq!(body.0.len(), 8 + 4 + 12 + 8);
        assert_eq!(find(&body.0, libc::IFLA_IFNAME), Some(&b"a\0"[..]));
        assert_eq!(find(&body.0, libc::IFLA_MTU), Some(&1_500_u32.to_ne_bytes()[..]));
        let info = find(&body.0, libc::IFLA_LINKINFO).expect("there");
        assert_eq!(find(info, libc::IFLA_INFO_KIND), Some(&b"veth\0"[..]));
        assert_eq!(find(&body.0, libc::IFLA_STATS64), None);
        for end in 0..body.0.len() {
            // What is cut off is not found, and nothing is read beyond it.
            assert_eq!(find(&body.0[..end], libc::IFLA_MTU), None);
        }
        assert_eq!(find(&[0; 64], libc::IFLA_MTU), None, "a length of zero ends the search");
    }

    #[test]
    fn the_kernel_answers() {
        let mut netlink = Netlink::open().expect("any user may ask");
        assert!(netlink.index("lo").expect("every namespace has one") > 0);
        netlink.counts("lo").expect("every device counts");
        let error = netlink.index("no-such-device").expect_err("there is none");
        assert_eq!(error.raw_os_error(), Some(libc::ENODEV));
    }
}
