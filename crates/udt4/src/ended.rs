//! Ended connections, remembered for a while: a peer that missed the shutdown gets another one when
//! it sends again.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use packtrain_units::{Duration, Time};

use super::options::limits;

/// How long one is remembered: a stock peer times out before.
const LIFE: Duration = Duration::from_secs(30);

#[derive(Debug)]
struct EndedConnection {
    peer: SocketAddr,
    peer_id: u32,
    next: Time,
    until: Time,
}

/// The ended connections, by local id.
#[derive(Debug, Default)]
pub(super) struct EndedConnections {
    connections: BTreeMap<u32, EndedConnection>,
    order: VecDeque<(Time, u32)>,
}

impl EndedConnections {
    pub(super) fn insert(&mut self, now: Time, id: u32, peer: SocketAddr, peer_id: u32) {
        while self.order.len() >= limits::MAX_ENDED_CONNECTIONS
            || self.order.front().is_some_and(|(until, _)| *until <= now)
        {
            let Some((_, id)) = self.order.pop_front() else { break };
            self.connections.remove(&id);
        }
        let (next, until) = (now + limits::HANDSHAKE_RETRY, now + LIFE);
        self.connections.insert(id, EndedConnection { peer, peer_id, next, until });
        self.order.push_back((until, id));
    }

    pub(super) fn contains(&self, id: u32) -> bool {
        self.connections.contains_key(&id)
    }

    /// Whether this was a connection with `from`.
    pub(super) fn is_peer(&self, id: u32, from: SocketAddr) -> bool {
        self.connections.get(&id).is_some_and(|connection| connection.peer == from)
    }

    /// A datagram arrived for an ended connection: returns the socket to send a shutdown to, if one
    /// is due.
    pub(super) fn on_datagram(&mut self, now: Time, id: u32, from: SocketAddr) -> Option<u32> {
        let connection =
            self.connections.get_mut(&id).filter(|connection| connection.peer == from)?;
        if now < connection.next || now >= connection.until {
            return None;
        }
        connection.next = now + limits::HANDSHAKE_RETRY;
        Some(connection.peer_id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peer_is_told_again_but_not_often_and_nobody_else() {
        let (mut connections, now) = (EndedConnections::default(), Time::ZERO);
        let peer = SocketAddr::from(([192, 0, 2, 1], 9));
        connections.insert(now, 5, peer, 77);
        let later = now + limits::HANDSHAKE_RETRY;
        assert!(connections.is_peer(5, peer) && !connections.is_peer(6, peer));
        assert_eq!(connections.on_datagram(now, 5, peer), None);
        assert_eq!(connections.on_datagram(later, 5, SocketAddr::from(([192, 0, 2, 1], 8))), None);
        assert_eq!(connections.on_datagram(later, 5, peer), Some(77));
        assert_eq!(connections.on_datagram(later, 5, peer), None);
        assert_eq!(connections.on_datagram(now + LIFE, 5, peer), None, "for a while");
        for id in 10..10 + 2 * limits::MAX_ENDED_CONNECTIONS as u32 {
            connections.insert(later, id, peer, 1);
        }
        assert!(
            !connections.contains(5)
                && connections.connections.len() <= limits::MAX_ENDED_CONNECTIONS
        );
    }
}
