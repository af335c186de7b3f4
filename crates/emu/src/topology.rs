//! Hosts, routers and links as values, and the routes between them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use packtrain_link::LinkConfig;
use packtrain_units::{ByteCount, Duration};

use crate::error::EmuError;

/// Maximum hosts: their addresses share 10.77.0.0/24, and have the same number in fd00:77::/64.
pub const MAX_HOSTS: usize = 254;

/// The number of the host that has this address, from 1; `None` if no host can have it.
pub(crate) fn host_number(address: IpAddr) -> Option<u8> {
    match address {
        IpAddr::V4(address) => match address.octets() {
            [10, 77, 0, number] => Some(number),
            _ => None,
        },
        IpAddr::V6(address) => match address.segments() {
            [0xfd00, 0x77, 0, 0, 0, 0, 0, number] => u8::try_from(number).ok(),
            _ => None,
        },
    }
}

/// Maximum of [`Topology::tick`].
const MAX_TICK: Duration = Duration::from_micros(200);
/// Ticks per shortest delay.
const TICKS: u64 = 50;

/// A network to emulate.
#[derive(Clone, Debug, PartialEq)]
pub struct Topology {
    /// Hosts and routers.
    pub nodes: Vec<Node>,
    /// Each direction of each link.
    pub wires: Vec<Wire>,
}

/// A host or a router.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Whether it is a host: programs run on it, and it has a namespace, a device and an address.
    pub host: bool,
}

/// One direction of a link between two nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct Wire {
    /// Its name, for reports.
    pub name: String,
    /// Index of the node at its start.
    pub from: usize,
    /// Index of the node at its end.
    pub to: usize,
    /// Its configuration.
    pub config: LinkConfig,
}

impl Topology {
    /// Two hosts, `near` and `far`, and the link between them.
    pub fn pair(forward: LinkConfig, backward: LinkConfig) -> Self {
        let node = |name: &str| Node { name: name.to_owned(), host: true };
        let wire = |name: &str, from, to, config| Wire { name: name.to_owned(), from, to, config };
        Self {
            nodes: vec![node("near"), node("far")],
            wires: vec![wire("near>far", 0, 1, forward), wire("far>near", 1, 0, backward)],
        }
    }

    /// Checks that this network can be emulated.
    ///
    /// # Errors
    ///
    /// [`EmuError::Topology`] with the invalid value and a valid one.
    pub fn check(&self) -> Result<(), EmuError> {
        let wrong = |text: String| Err(EmuError::Topology(text));
        let hosts = self.nodes.iter().filter(|n| n.host).count();
        if hosts == 0 || hosts > MAX_HOSTS {
            return wrong(format!("there are {hosts} hosts; there must be 1 to {MAX_HOSTS}"));
        }
        for (i, node) in self.nodes.iter().enumerate() {
            let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
            if node.name.is_empty() || !node.name.chars().all(plain) {
                return wrong(format!(
                    "node {:?}: a name has letters, digits, dots, dashes and underscores",
                    node.name
                ));
            }
            if self.nodes[..i].iter().any(|other| other.name == node.name) {
                return wrong(format!("two nodes have the name {:?}", node.name));
            }
        }
        for wire in &self.wires {
            if wire.from >= self.nodes.len() || wire.to >= self.nodes.len() || wire.from == wire.to
            {
                return wrong(format!("link {}: it must join two different nodes", wire.name));
            }
        }
        Ok(())
    }

    /// Index of a host by name.
    pub fn host(&self, name: &str) -> Option<usize> {
        self.nodes.iter().position(|node| node.host && node.name == name)
    }

    /// The hosts in the order of their addresses, as indices of nodes.
    pub fn hosts(&self) -> impl Iterator<Item = usize> + '_ {
        self.nodes.iter().enumerate().filter(|(_, node)| node.host).map(|(i, _)| i)
    }

    /// The address of a host: the first has 10.77.0.1.
    pub fn address(&self, node: usize) -> Option<Ipv4Addr> {
        let number = self.hosts().position(|host| host == node)? + 1;
        u8::try_from(number).ok().map(|n| Ipv4Addr::new(10, 77, 0, n))
    }

    /// The IPv6 address of a host: the first has fd00:77::1.
    pub fn address6(&self, node: usize) -> Option<Ipv6Addr> {
        let [.., number] = self.address(node)?.octets();
        Some(Ipv6Addr::new(0xfd00, 0x77, 0, 0, 0, 0, 0, number.into()))
    }

    /// The default interval between the emulator's wake-ups under load: 2 % of the shortest delay,
    /// and at most 200 us.
    pub fn tick(&self) -> Duration {
        let shortest = self.wires.iter().map(|wire| wire.config.delay).min();
        shortest.map_or(MAX_TICK, |delay| (delay / TICKS).min(MAX_TICK))
    }

    /// The routing tables: for each node and each target the wire to take.
    pub(crate) fn routes(&self) -> Vec<Vec<Option<usize>>> {
        (0..self.nodes.len()).fold(
            vec![vec![None; self.nodes.len()]; self.nodes.len()],
            |mut routes, target| {
                for (node, wire) in self.towards(target).into_iter().enumerate() {
                    routes[node][target] = wire.map(|(_, _, wire)| wire);
                }
                routes
            },
        )
    }

    /// The path MTU from one node to another, if there is a route.
    pub(crate) fn path_mtu(&self, from: usize, to: usize) -> Option<ByteCount> {
        let routes = self.routes();
        let (mut node, mut mtu) = (from, ByteCount(65_535));
        while node != to {
            let wire = &self.wires[routes[node][to]?];
            mtu = mtu.min(wire.config.mtu);
            node = wire.to;
        }
        Some(mtu)
    }

    /// For each node the first wire of its best route to `target`, by delay, then hops, then the
    /// order of the wires. Bellman and Ford: these networks are small.
    fn towards(&self, target: usize) -> Vec<Option<(Duration, usize, usize)>> {
        let mut best: Vec<Option<(Duration, usize, usize)>> = vec![None; self.nodes.len()];
        for _ in 0..self.nodes.len() {
            for (index, wire) in self.wires.iter().enumerate() {
                let beyond = if wire.to == target {
                    Some((Duration::ZERO, 0))
                } else {
                    best[wire.to].map(|(delay, hops, _)| (delay, hops))
                };
                let Some((delay, hops)) = beyond else { continue };
                let way = (delay + wire.config.delay, hops + 1, index);
                if wire.from != target && best[wire.from].is_none_or(|old| way < old) {
                    best[wire.from] = Some(way);
                }
            }
        }
        best
    }
}

#[cfg(test)]
mod tests {
    use packtrain_units::DataRate;

    use super::*;

    fn wire(from: usize, to: usize, ms: u64) -> Wire {
        let mut config = LinkConfig::new(DataRate::from_mbps(10), Duration::from_millis(ms), 10);
        config.mtu = ByteCount(1_000 + ms);
        Wire { name: format!("{from}>{to}"), from, to, config }
    }

    fn line() -> Topology {
        let node = |name: &str, host| Node { name: name.to_owned(), host };
        Topology {
            nodes: vec![node("a", true), node("r", false), node("b", true)],
            wires: vec![wire(0, 1, 5), wire(1, 2, 5), wire(0, 2, 20), wire(2, 1, 1), wire(1, 0, 1)],
        }
    }

    #[test]
    fn the_way_is_the_shortest_by_delay() {
        let routes = line().routes();
        assert_eq!(routes[0][2], Some(0), "over the router");
        assert_eq!(routes[1][2], Some(1));
        assert_eq!(routes[2][0], Some(3));
        assert_eq!(line().path_mtu(0, 2), Some(ByteCount(1_005)));
        assert_eq!(line().path_mtu(2, 0), Some(ByteCount(1_001)));
    }

    #[test]
    fn addresses_count_hosts_only() {
        let line = line();
        assert_eq!(line.address(0), Some(Ipv4Addr::new(10, 77, 0, 1)));
        assert_eq!(line.address(1), None);
        assert_eq!(line.address(2), Some(Ipv4Addr::new(10, 77, 0, 2)));
        assert_eq!(line.address6(2), Some("fd00:77::2".parse().expect("an address")));
        assert_eq!(line.address6(1), None);
        for (address, number) in [
            ("10.77.0.2", Some(2)),
            ("10.77.1.2", None),
            ("fd00:77::2", Some(2)),
            ("fd00:77::102", None),
            ("fd00:77::1:2", None),
            ("fe80::2", None),
            ("ff02::16", None),
        ] {
            assert_eq!(host_number(address.parse().expect("an address")), number, "{address}");
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let mut twice = line();
        twice.nodes[2].name = "a".to_owned();
        assert!(twice.check().unwrap_err().to_string().contains("two nodes"));
        let mut odd = line();
        odd.nodes[0].name = "a b".to_owned();
        assert!(odd.check().is_err());
        let mut loose = line();
        loose.wires[0].to = 7;
        assert!(loose.check().is_err());
        let none = Topology { nodes: vec![], wires: vec![] };
        assert!(none.check().is_err());
        assert!(line().check().is_ok());
    }
}
