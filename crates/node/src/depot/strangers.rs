//! Connections that have not said yet what they want.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

/// So many at a time; more are dropped.
const MOST: usize = 1024;
/// So many of one network: as many streams as anybody opens at once, and the rest is for others.
const MOST_EACH: usize = 256;

/// Who is at the door, counted by network.
#[derive(Debug, Default)]
pub(super) struct Strangers(Mutex<BTreeMap<IpAddr, usize>>);

/// One of them, until it is dropped.
#[derive(Debug)]
pub(super) struct Stranger {
    all: Arc<Strangers>,
    network: IpAddr,
}

impl Strangers {
    /// Lets one wait at the door; none if there is no room for him.
    pub(super) fn meet(self: &Arc<Self>, address: IpAddr) -> Option<Stranger> {
        let network = network(address);
        let mut waiting = self.0.lock();
        if waiting.values().sum::<usize>() >= MOST {
            return None;
        }
        let count = waiting.entry(network).or_default();
        if *count >= MOST_EACH {
            return None;
        }
        *count += 1;
        Some(Stranger { all: Arc::clone(self), network })
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        let mut waiting = self.all.0.lock();
        if let Some(count) = waiting.get_mut(&self.network) {
            *count -= 1;
            if *count == 0 {
                waiting.remove(&self.network);
            }
        }
    }
}

/// What one host has of addresses: one of IPv4, a /64 of IPv6.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(six) => {
            let [a, b, c, d, ..] = six.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        four => four,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_network_does_not_shut_the_door() {
        let door: Arc<Strangers> = Arc::default();
        let at = |text: &str| text.parse::<IpAddr>().unwrap();
        let mut many: Vec<_> = (0..MOST).map_while(|_| door.meet(at("2001:db8::1"))).collect();
        assert_eq!(many.len(), MOST_EACH);
        assert!(door.meet(at("2001:db8::ffff:1")).is_none(), "the same /64");
        let other = door.meet(at("2001:db8:0:1::1")).unwrap();
        assert!(door.meet(at("10.0.0.1")).is_some());
        many.pop();
        assert!(door.meet(at("2001:db8::2")).is_some());
        drop((many, other));
        assert!(door.0.lock().is_empty());
        let hosts = (0..MOST).map(|n| at(&format!("10.0.{}.{}", n / 64, n % 64)));
        let all: Vec<_> = hosts.map_while(|host| door.meet(host)).collect();
        assert_eq!(all.len(), MOST);
        assert!(door.meet(at("10.1.0.0")).is_none());
    }
}
