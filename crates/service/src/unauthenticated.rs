//! Connections whose peer is not authenticated yet. A listening process holds a limited number, in
//! total and per network.
//!
//! A new connection is never refused. If its network has reached its limit, the oldest connection
//! of that network is closed. If the total is reached, the oldest connection of the largest network
//! is closed, within the site with the most connections. So idle connections do not block others,
//! and the connections of one host, or of one site with many networks of IPv6, evict only each other.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

/// The connections of one listening process.
#[derive(Debug)]
pub struct Unauthenticated {
    /// Maximum connections in total.
    max: usize,
    /// Maximum connections per network.
    max_per_network: usize,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    next: u64,
    /// Connections in the order of their arrival.
    connections: BTreeMap<u64, (IpAddr, oneshot::Sender<()>)>,
    /// By site, then by network.
    sites: BTreeMap<IpAddr, BTreeMap<IpAddr, BTreeSet<u64>>>,
}

/// One connection; it counts until this value is dropped.
#[derive(Debug)]
pub struct UnauthenticatedPeer {
    all: Arc<Unauthenticated>,
    number: u64,
}

/// Signals that a connection must close in favour of a newer one.
#[derive(Debug)]
pub struct Eviction(oneshot::Receiver<()>);

impl Eviction {
    /// Waits until the connection must close; forever after its [`UnauthenticatedPeer`] was
    /// dropped.
    pub async fn wait(self) {
        if self.0.await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

impl Unauthenticated {
    /// Allows `max` connections, and `max_per_network` of one network; each at least one.
    pub fn new(max: usize, max_per_network: usize) -> Arc<Self> {
        let (max, max_per_network) = (max.max(1), max_per_network.max(1));
        Arc::new(Self { max, max_per_network, table: Mutex::default() })
    }

    /// The number of connections.
    pub fn count(&self) -> usize {
        self.table.lock().connections.len()
    }

    /// Registers a new connection from `address`, and evicts another one if a limit is exceeded.
    pub fn register(self: &Arc<Self>, address: IpAddr) -> (UnauthenticatedPeer, Eviction) {
        let network = network(address);
        let mut table = self.table.lock();
        let own = table.sites.get(&site(network)).and_then(|site| site.get(&network));
        let own = own.filter(|own| own.len() >= self.max_per_network);
        let victim = match own.and_then(|own| own.first()) {
            Some(oldest) => Some(*oldest),
            None if table.connections.len() >= self.max => table.oldest_of_largest(),
            None => None,
        };
        if let Some(victim) = victim
            && let Some(evict) = table.remove(victim)
        {
            // The receiver may have ended already.
            let _ = evict.send(());
        }
        let (evict, eviction) = oneshot::channel();
        let number = table.next;
        table.next += 1;
        table.connections.insert(number, (network, evict));
        let networks = table.sites.entry(site(network)).or_default();
        networks.entry(network).or_default().insert(number);
        (UnauthenticatedPeer { all: Arc::clone(self), number }, Eviction(eviction))
    }
}

impl Table {
    fn remove(&mut self, number: u64) -> Option<oneshot::Sender<()>> {
        let (network, evict) = self.connections.remove(&number)?;
        let site = site(network);
        if let Some(networks) = self.sites.get_mut(&site)
            && let Some(own) = networks.get_mut(&network)
        {
            own.remove(&number);
            if own.is_empty() {
                networks.remove(&network);
            }
            if networks.is_empty() {
                self.sites.remove(&site);
            }
        }
        Some(evict)
    }

    /// The oldest connection of the largest network of the site with the most connections; among
    /// equals the oldest of all.
    fn oldest_of_largest(&self) -> Option<u64> {
        let sizes = self.sites.values().map(|networks| {
            let connections: usize = networks.values().map(BTreeSet::len).sum();
            let largest = networks.values().map(BTreeSet::len).max().unwrap_or_default();
            (connections, largest)
        });
        let largest = sizes.clone().max()?;
        let equals = self.sites.values().zip(sizes).filter(|(_, size)| *size == largest);
        let networks = equals.flat_map(|(networks, _)| networks.values());
        let own = networks.filter(|own| own.len() == largest.1);
        own.filter_map(|own| own.first().copied()).min()
    }
}

impl Drop for UnauthenticatedPeer {
    fn drop(&mut self) {
        self.all.table.lock().remove(self.number);
    }
}

/// The network of one host: an IPv4 address, or a /64 of IPv6.
pub fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(six) => {
            let [a, b, c, d, ..] = six.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        four => four,
    }
}

/// The site of a network: an IPv4 address, or a /48 of IPv6, which many hosts are given.
fn site(network: IpAddr) -> IpAddr {
    match network {
        IpAddr::V6(six) => {
            let [a, b, c, ..] = six.segments();
            Ipv6Addr::new(a, b, c, 0, 0, 0, 0, 0).into()
        }
        four @ IpAddr::V4(_) => four,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    fn is_evicted(eviction: &mut Eviction) -> bool {
        eviction.0.try_recv().is_ok()
    }

    #[test]
    fn a_network_with_too_many_loses_its_own_oldest() {
        let all = Unauthenticated::new(8, 3);
        let (_other, mut other) = all.register(at("2001:db8:0:1::1"));
        let mut own: Vec<_> =
            (1..=3).map(|n| all.register(at(&format!("2001:db8::{n}")))).collect();
        assert!(own.iter_mut().all(|(_, eviction)| !is_evicted(eviction)));
        let (_newest, mut newest) = all.register(at("2001:db8::ffff:1"));
        let evicted: Vec<bool> = own.iter_mut().map(|(_, eviction)| is_evicted(eviction)).collect();
        assert_eq!(evicted, [true, false, false], "the oldest of the same /64");
        assert!(!is_evicted(&mut newest) && !is_evicted(&mut other));
        // A connection that is authenticated or closed cannot be evicted any more, and frees its
        // slot.
        let (second, mut eviction) = own.remove(1);
        drop(second);
        let (_more, _) = all.register(at("2001:db8::9"));
        assert!(!is_evicted(&mut eviction) && !is_evicted(&mut own[1].1));
    }

    #[test]
    fn where_there_are_too_many_the_largest_network_loses() {
        let all = Unauthenticated::new(4, 3);
        let (_first, mut first) = all.register(at("192.0.2.1"));
        let (_a, mut a) = all.register(at("192.0.2.2"));
        let (_b, mut b) = all.register(at("::ffff:192.0.2.2"));
        let (_last, mut last) = all.register(at("192.0.2.3"));
        let (_new, mut new) = all.register(at("192.0.2.4"));
        assert!(is_evicted(&mut a), "the oldest of the network with two");
        assert!([&mut first, &mut b, &mut last, &mut new].into_iter().all(|e| !is_evicted(e)));
        let (_newer, _) = all.register(at("192.0.2.5"));
        assert!(is_evicted(&mut first), "among equals the oldest of all");
    }

    #[test]
    fn where_there_are_too_many_a_site_with_many_networks_loses() {
        let all = Unauthenticated::new(8, 3);
        let (_stranger, mut stranger) = all.register(at("192.0.2.1"));
        let (_other, mut other) = all.register(at("2001:db8:1::1"));
        let mut site: Vec<_> =
            (0..6).map(|n| all.register(at(&format!("2001:db8:0:{n}::1")))).collect();
        let mut more: Vec<_> =
            (6..30).map(|n| all.register(at(&format!("2001:db8:0:{n:x}::1")))).collect();
        assert!(!is_evicted(&mut stranger) && !is_evicted(&mut other));
        assert!(site.iter_mut().all(|(_, eviction)| is_evicted(eviction)));
        let left =
            more.iter_mut().filter_map(|(_, eviction)| (!is_evicted(eviction)).then_some(()));
        assert_eq!(left.count(), 6);
    }

    #[tokio::test]
    async fn an_eviction_wakes_who_waits_and_never_who_was_let_in() {
        let all = Unauthenticated::new(1, 1);
        let (_victim, eviction) = all.register(at("192.0.2.1"));
        let waiter = tokio::spawn(eviction.wait());
        let (admitted, eviction) = all.register(at("192.0.2.1"));
        waiter.await.expect("it was evicted");
        drop(admitted);
        let (_next, _) = all.register(at("192.0.2.1"));
        let mut waits = std::pin::pin!(eviction.wait());
        assert!(futures_poll(waits.as_mut()).is_pending());
    }

    fn futures_poll<F: Future>(future: std::pin::Pin<&mut F>) -> std::task::Poll<F::Output> {
        future.poll(&mut std::task::Context::from_waker(std::task::Waker::noop()))
    }

    proptest! {
        /// For any sequence of events: both limits hold, and the counts match the open connections.
        #[test]
        fn the_bounds_hold(events in prop::collection::vec((0u8..9, any::<bool>()), 0..200)) {
            let all = Unauthenticated::new(7, 3);
            let mut held: Vec<(UnauthenticatedPeer, Eviction)> = Vec::new();
            for (host, comes) in events {
                if comes || held.is_empty() {
                    let address = match host {
                        0..3 => IpAddr::from([192, 0, 2, host]),
                        _ => at(&format!("2001:db8:{}:{host}::1", host / 5)),
                    };
                    held.push(all.register(address));
                } else {
                    held.remove(usize::from(host) % held.len());
                }
                held.retain_mut(|(_, eviction)| !is_evicted(eviction));
                let table = all.table.lock();
                prop_assert_eq!(table.connections.len(), held.len());
                prop_assert!(held.len() <= 7);
                let networks = || table.sites.values().flat_map(|networks| networks.values());
                prop_assert!(networks().all(|own| (1..=3).contains(&own.len())));
                prop_assert_eq!(networks().map(BTreeSet::len).sum::<usize>(), held.len());
                prop_assert!(table.sites.values().all(|networks| !networks.is_empty()));
            }
        }
    }
}
