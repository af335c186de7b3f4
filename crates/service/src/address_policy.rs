//! The addresses that a depot or a server may connect to: only those that its configuration allows.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;
use std::sync::Arc;

use packtrain_session::Host;

/// A rule: addresses or a name, with ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllowRule {
    to: To,
    ports: (u16, u16),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum To {
    /// The network whose addresses share this many leading bits.
    Net(IpAddr, u8),
    /// This name, at any of its addresses except those of this machine and its links.
    Name(String),
}

/// The text is not a rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a rule: write ADDRESS[/BITS][:PORT[-PORT]] or NAME[:PORT[-PORT]], with \
     brackets around an IPv6 address, such as 10.1.0.0/16:5000-5100 or [2001:db8::]/32:7876"
)]
pub struct AllowError(String);

/// Special address ranges: private, local, reserved or translated. A rule allows such an address
/// only if the rule's network lies within the range.
const SPECIAL_RANGES: [(IpAddr, u8); 17] = [
    (IpAddr::V4(Ipv4Addr::new(0, 0, 0, 0)), 8),
    (IpAddr::V4(Ipv4Addr::new(10, 0, 0, 0)), 8),
    (IpAddr::V4(Ipv4Addr::new(100, 64, 0, 0)), 10),
    (IpAddr::V4(Ipv4Addr::new(127, 0, 0, 0)), 8),
    (IpAddr::V4(Ipv4Addr::new(169, 254, 0, 0)), 16),
    (IpAddr::V4(Ipv4Addr::new(172, 16, 0, 0)), 12),
    (IpAddr::V4(Ipv4Addr::new(192, 0, 0, 0)), 24),
    (IpAddr::V4(Ipv4Addr::new(192, 168, 0, 0)), 16),
    (IpAddr::V4(Ipv4Addr::new(198, 18, 0, 0)), 15),
    (IpAddr::V6(Ipv6Addr::UNSPECIFIED), 128),
    (IpAddr::V6(Ipv6Addr::LOCALHOST), 128),
    // Prefixes that embed IPv4 addresses: NAT64, 6to4, Teredo.
    (IpAddr::V6(Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0)), 32),
    (IpAddr::V6(Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0)), 16),
    (IpAddr::V6(Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0)), 32),
    (IpAddr::V6(Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0)), 7),
    (IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0)), 10),
    (IpAddr::V6(Ipv6Addr::new(0xfec0, 0, 0, 0, 0, 0, 0, 0)), 10),
];

/// Whether `ip` begins with the first `bits` of `net`.
fn within(ip: IpAddr, net: IpAddr, bits: u8) -> bool {
    match (ip, net) {
        (IpAddr::V4(ip), IpAddr::V4(net)) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
            (ip.to_bits() ^ net.to_bits()) & mask == 0
        }
        (IpAddr::V6(ip), IpAddr::V6(net)) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
            (ip.to_bits() ^ net.to_bits()) & mask == 0
        }
        _ => false,
    }
}

/// The smallest special range that contains an address.
pub fn own(ip: IpAddr) -> Option<(IpAddr, u8)> {
    SPECIAL_RANGES
        .into_iter()
        .filter(|(net, bits)| within(ip, *net, *bits))
        .max_by_key(|(_, bits)| *bits)
}

/// Addresses that are not a valid destination of a connection.
fn is_unreachable(ip: IpAddr) -> bool {
    let broadcast = ip == IpAddr::V4(Ipv4Addr::BROADCAST);
    ip.is_multicast() || ip.is_unspecified() || broadcast
}

/// Addresses of this machine and its links. A rule with a name never allows them.
fn is_local(ip: IpAddr) -> bool {
    let link = match ip {
        IpAddr::V4(ip) => ip.is_link_local() || ip.octets()[0] == 0,
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    link || ip.is_loopback()
}

impl AllowRule {
    /// Whether the rule has a name instead of addresses.
    pub fn is_name(&self) -> bool {
        matches!(self.to, To::Name(_))
    }

    /// Whether the rule allows a connection to this address and port. `host` is the requested host,
    /// a name or an address.
    pub fn allows(&self, host: &Host, ip: IpAddr, port: u16) -> bool {
        let ip = ip.to_canonical();
        if is_unreachable(ip) || !(self.ports.0..=self.ports.1).contains(&port) {
            return false;
        }
        match &self.to {
            To::Net(net, bits) => {
                let named = |(own, own_bits)| *bits >= own_bits && within(*net, own, own_bits);
                within(ip, *net, *bits) && own(ip).is_none_or(named)
            }
            To::Name(name) => matches!(host, Host::Name(asked) if asked == name) && !is_local(ip),
        }
    }
}

/// The addresses that a called end may connect to when a message names them. The address of the
/// caller is always allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DialPolicy {
    /// Addresses that a rule allows.
    Rules(Arc<[AllowRule]>),
    /// Addresses that the caller names. The caller is the user of this account. Addresses that only
    /// the other end of the data names are not allowed.
    CallersChoice,
}

impl Default for DialPolicy {
    fn default() -> Self {
        Self::Rules(Arc::default())
    }
}

impl DialPolicy {
    /// Whether a rule allows a connection to this address, which a message named.
    pub fn allows(&self, ip: IpAddr, port: u16) -> bool {
        match self {
            Self::Rules(rules) => rules.iter().any(|rule| rule.allows(&Host::Ip(ip), ip, port)),
            Self::CallersChoice => false,
        }
    }
}

impl FromStr for AllowRule {
    type Err = AllowError;

    fn from_str(text: &str) -> Result<Self, AllowError> {
        read(text.trim()).ok_or_else(|| AllowError(text.to_owned()))
    }
}

fn read(text: &str) -> Option<AllowRule> {
    let (to, ports) = match text.strip_prefix('[') {
        // The colon of the port follows the bracket.
        Some(rest) => {
            let (ip, rest) = rest.split_once(']')?;
            let ip: Ipv6Addr = ip.parse().ok()?;
            let (bits, ports) = rest.split_once(':').map_or((rest, None), |(b, p)| (b, Some(p)));
            let bits = if bits.is_empty() { None } else { Some(bits.strip_prefix('/')?) };
            (net(ip.into(), bits)?, ports)
        }
        None => {
            let (to, ports) = text.split_once(':').map_or((text, None), |(t, p)| (t, Some(p)));
            let (host, bits) = to.split_once('/').map_or((to, None), |(h, b)| (h, Some(b)));
            match Host::parse(host).ok()? {
                Host::Ip(ip) => (net(ip, bits)?, ports),
                Host::Name(name) if bits.is_none() => (To::Name(name), ports),
                Host::Name(_) => return None,
            }
        }
    };
    let ports = match ports {
        None => (1, u16::MAX),
        Some(ports) => {
            let (first, last) = ports.split_once('-').unwrap_or((ports, ports));
            let port = |text: &str| text.parse::<u16>().ok().filter(|port| *port > 0);
            (port(first)?, port(last)?)
        }
    };
    (ports.0 <= ports.1).then_some(AllowRule { to, ports })
}

fn net(ip: IpAddr, bits: Option<&str>) -> Option<To> {
    let most = if ip.is_ipv4() { 32 } else { 128 };
    let bits = bits.map_or(Some(most), |bits| bits.parse().ok()).filter(|bits| *bits <= most)?;
    match ip.to_canonical() {
        canonical if canonical == ip => Some(To::Net(ip, bits)),
        // An IPv4-mapped IPv6 address.
        canonical => Some(To::Net(canonical, bits.checked_sub(96)?)),
    }
}

impl fmt::Display for AllowRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.to {
            To::Net(net, bits) => write!(f, "{}/{bits}", Host::Ip(*net))?,
            To::Name(name) => f.write_str(name)?,
        }
        match self.ports {
            (1, u16::MAX) => Ok(()),
            (first, last) if first == last => write!(f, ":{first}"),
            (first, last) => write!(f, ":{first}-{last}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rule(text: &str) -> AllowRule {
        text.parse().unwrap_or_else(|error| panic!("{error}"))
    }

    fn to(rule_text: &str, ip: &str, port: u16) -> bool {
        let ip: IpAddr = ip.parse().expect("an address");
        rule(rule_text).allows(&Host::Ip(ip), ip, port)
    }

    #[test]
    fn rules_read_back() {
        for (text, shown) in [
            ("10.1.0.0/16:5000-5100", "10.1.0.0/16:5000-5100"),
            ("192.0.2.1", "192.0.2.1/32"),
            ("[2001:db8::]/32:7876", "[2001:db8::]/32:7876"),
            ("[::ffff:10.0.0.0]/104", "10.0.0.0/8"),
            ("DTN.example.org:7876", "dtn.example.org:7876"),
            ("0.0.0.0/0", "0.0.0.0/0"),
        ] {
            assert_eq!(rule(text).to_string(), shown);
            assert_eq!(rule(shown), rule(text));
        }
        for bad in
            ["", "10.0.0.0/33", "a/8", "1.2.3.4:0", "1.2.3.4:9-8", "::1:5", "[10.0.0.1]", ":7", "*"]
        {
            assert!(bad.parse::<AllowRule>().is_err(), "{bad}");
        }
    }

    #[test]
    fn only_what_is_named_and_its_ports() {
        assert!(to("192.0.2.0/24:7000-7010", "192.0.2.9", 7010));
        assert!(!to("192.0.2.0/24:7000-7010", "192.0.2.9", 7011));
        assert!(!to("192.0.2.0/24", "192.0.3.9", 7000));
        assert!(!to("0.0.0.0/0", "2001:db8::1", 7000), "the other family");
    }

    #[test]
    fn a_wide_rule_does_not_mean_what_is_a_sites_own() {
        for own in [
            "10.0.0.1",
            "127.0.0.1",
            "169.254.169.254",
            "172.31.0.1",
            "192.168.1.1",
            "100.64.0.1",
            "0.0.0.0",
            "255.255.255.255",
            "224.0.0.1",
        ] {
            assert!(!to("0.0.0.0/0", own, 80), "{own}");
            let mapped = format!("::ffff:{own}");
            assert!(!to("[::]/0", &mapped, 80) && !to("0.0.0.0/0", &mapped, 80), "{mapped}");
        }
        for own in [
            "::1",
            "::",
            "fe80::1",
            "fc00::1",
            "fd12::1",
            "ff02::1",
            "64:ff9b::a00:1",
            "2002:a00:1::",
        ] {
            assert!(!to("[::]/0", own, 80), "{own}");
        }
        assert!(to("0.0.0.0/0", "8.8.8.8", 80) && to("[::]/0", "2606::1", 80));
        assert!(to("10.0.0.0/8", "10.9.9.9", 80) && to("127.0.0.1", "127.0.0.1", 80));
        assert!(to("127.0.0.1", "::ffff:127.0.0.1", 80), "the same by another name");
        assert!(to("[fd12::]/16", "fd12::1", 80) && to("[::1]", "::1", 80));
        assert!(!to("10.0.0.0/7", "10.0.0.1", 80), "wider than the site's own");
        assert!(!to("0.0.0.0", "0.0.0.0", 80) && !to("224.0.0.0/4", "224.0.0.1", 80));
    }

    #[test]
    fn a_name_is_not_this_machine() {
        let named = |ip: &str| {
            let host = Host::Name("dtn.example".to_owned());
            rule("dtn.example").allows(&host, ip.parse().expect("an address"), 80)
        };
        assert!(named("192.0.2.1") && named("10.0.0.1"));
        assert!(!named("127.0.0.1") && !named("169.254.169.254") && !named("::ffff:127.0.0.1"));
        assert!(!to("dtn.example", "192.0.2.1", 80), "an address is no name");
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "[0-9a-f:./\\[\\]-]{0,40}|.{0,20}") {
            if let Ok(read) = text.parse::<AllowRule>() {
                prop_assert_eq!(read.to_string().parse::<AllowRule>(), Ok(read));
            }
        }

        /// Whatever the rule, it allows an address of a special range only if the rule lies within
        /// that range.
        #[test]
        fn never_an_open_relay(ip: [u8; 4], bits in 0u8..=32, target: [u8; 4]) {
            let text = format!("{}/{bits}", Ipv4Addr::from(ip));
            let target = IpAddr::from(target);
            if rule(&text).allows(&Host::Ip(target), target, 80)
                && let Some((net, own_bits)) = own(target)
            {
                prop_assert!(bits >= own_bits && within(ip.into(), net, own_bits));
            }
        }
    }
}
