//! Connections that are gone, remembered for a while: a peer whose word of the end was lost is
//! told again when it calls.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use packtrain_units::{Duration, Time};

use super::options::limits;

/// How long one is remembered: a stock peer gives up by itself before.
const LIFE: Duration = Duration::from_secs(30);

#[derive(Debug)]
struct Tomb {
    peer: SocketAddr,
    peer_id: u32,
    next: Time,
    until: Time,
}

/// The ended connections, by our id.
#[derive(Debug, Default)]
pub(super) struct Tombs {
    tombs: BTreeMap<u32, Tomb>,
    order: VecDeque<(Time, u32)>,
}

impl Tombs {
    pub(super) fn bury(&mut self, now: Time, id: u32, peer: SocketAddr, peer_id: u32) {
        while self.order.len() >= limits::TOMBS
            || self.order.front().is_some_and(|(until, _)| *until <= now)
        {
            let Some((_, id)) = self.order.pop_front() else { break };
            self.tombs.remove(&id);
        }
        let (next, until) = (now + limits::HANDSHAKE_RETRY, now + LIFE);
        self.tombs.insert(id, Tomb { peer, peer_id, next, until });
        self.order.push_back((until, id));
    }

    pub(super) fn holds(&self, id: u32) -> bool {
        self.tombs.contains_key(&id)
    }

    /// Whether this was a connection with `from`.
    pub(super) fn knows(&self, id: u32, from: SocketAddr) -> bool {
        self.tombs.get(&id).is_some_and(|tomb| tomb.peer == from)
    }

    /// A datagram came for a connection that is gone: whether to say so, and to which socket.
    pub(super) fn knock(&mut self, now: Time, id: u32, from: SocketAddr) -> Option<u32> {
        let tomb = self.tombs.get_mut(&id).filter(|tomb| tomb.peer == from)?;
        if now < tomb.next || now >= tomb.until {
            return None;
        }
        tomb.next = now + limits::HANDSHAKE_RETRY;
        Some(tomb.peer_id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peer_is_told_again_but_not_often_and_nobody_else() {
        let (mut tombs, now) = (Tombs::default(), Time::ZERO);
        let peer = SocketAddr::from(([192, 0, 2, 1], 9));
        tombs.bury(now, 5, peer, 77);
        let later = now + limits::HANDSHAKE_RETRY;
        assert!(tombs.knows(5, peer) && !tombs.knows(6, peer));
        assert_eq!(tombs.knock(now, 5, peer), None);
        assert_eq!(tombs.knock(later, 5, SocketAddr::from(([192, 0, 2, 1], 8))), None);
        assert_eq!(tombs.knock(later, 5, peer), Some(77));
        assert_eq!(tombs.knock(later, 5, peer), None);
        assert_eq!(tombs.knock(now + LIFE, 5, peer), None, "for a while");
        for id in 10..10 + 2 * limits::TOMBS as u32 {
            tombs.bury(later, id, peer, 1);
        }
        assert!(!tombs.holds(5) && tombs.tombs.len() <= limits::TOMBS);
    }
}
