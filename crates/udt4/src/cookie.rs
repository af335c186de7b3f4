//! Unpredictable numbers derived from a secret: cookies, sequence numbers, ids.
//!
//! The stock library's cookie is a digest of the client's address and the minute, without a secret,
//! so anyone can compute it. Ours has the same 32 bits on the wire.

use std::net::{IpAddr, SocketAddr};

use aws_lc_rs::hmac;
use packtrain_units::{Duration, SeqNo, Time};

/// A cookie is valid for one to two of these.
const SLOT: Duration = Duration::from_secs(60);

/// Purpose of a number, to separate the uses of one secret.
#[derive(Clone, Copy)]
#[repr(u8)]
enum Purpose {
    Cookie,
    Isn,
    Id,
    Seed,
}

/// The keyed hash that generates the numbers.
#[derive(Debug)]
pub(super) struct TokenGenerator {
    key: hmac::Key,
    count: u64,
}

impl TokenGenerator {
    pub(super) fn new(secret: &[u8; 32]) -> Self {
        Self { key: hmac::Key::new(hmac::HMAC_SHA256, secret), count: 0 }
    }

    /// The cookie for a caller's socket.
    pub(super) fn cookie(&self, now: Time, from: SocketAddr, socket: u32) -> u32 {
        self.cookie_of(slot(now), from, socket)
    }

    /// Whether the caller was recently given this cookie.
    pub(super) fn is_valid(&self, now: Time, from: SocketAddr, socket: u32, cookie: u32) -> bool {
        let slot = slot(now);
        [Some(slot), slot.checked_sub(1)]
            .into_iter()
            .flatten()
            .any(|slot| self.cookie_of(slot, from, socket) == cookie)
    }

    /// The first sequence number of a connection.
    pub(super) fn isn(&mut self) -> SeqNo {
        SeqNo::new(self.fresh(Purpose::Isn) as u32)
    }

    /// A socket id: 30 bits, like the stock library's.
    pub(super) fn id(&mut self) -> u32 {
        self.fresh(Purpose::Id) as u32 & 0x3fff_ffff
    }

    /// A seed for a controller.
    pub(super) fn seed(&mut self) -> u64 {
        self.fresh(Purpose::Seed)
    }

    fn fresh(&mut self, purpose: Purpose) -> u64 {
        self.count += 1;
        self.hash(purpose, &[&self.count.to_be_bytes()])
    }

    fn cookie_of(&self, slot: u64, from: SocketAddr, socket: u32) -> u32 {
        let address = match from.ip() {
            IpAddr::V4(address) => address.to_ipv6_mapped(),
            IpAddr::V6(address) => address,
        };
        let parts: [&[u8]; 4] = [
            &slot.to_be_bytes(),
            &address.octets(),
            &from.port().to_be_bytes(),
            &socket.to_be_bytes(),
        ];
        // 0 would mean that the caller has none.
        (self.hash(Purpose::Cookie, &parts) as u32).max(1)
    }

    fn hash(&self, purpose: Purpose, parts: &[&[u8]]) -> u64 {
        let mut context = hmac::Context::with_key(&self.key);
        context.update(&[purpose as u8]);
        parts.iter().for_each(|part| context.update(part));
        let tag = context.sign();
        tag.as_ref().first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes))
    }
}

fn slot(now: Time) -> u64 {
    now.as_nanos() / SLOT.as_nanos()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_is_for_one_caller_and_two_minutes_at_most() {
        let tokens = TokenGenerator::new(&[1; 32]);
        let at = |seconds| Time::ZERO + Duration::from_secs(seconds);
        let from: SocketAddr = "192.0.2.1:9000".parse().unwrap();
        let cookie = tokens.cookie(at(59), from, 7);
        assert!(tokens.is_valid(at(59), from, 7, cookie));
        assert!(tokens.is_valid(at(119), from, 7, cookie));
        assert!(!tokens.is_valid(at(120), from, 7, cookie), "too old");
        assert!(!tokens.is_valid(at(59), from, 8, cookie), "another socket");
        assert!(!tokens.is_valid(at(59), "192.0.2.1:9001".parse().unwrap(), 7, cookie));
        let other = TokenGenerator::new(&[2; 32]);
        assert!(!other.is_valid(at(59), from, 7, cookie), "another secret");
        assert!(!tokens.is_valid(at(59), from, 7, 0));
    }

    #[test]
    fn numbers_differ() {
        let mut tokens = TokenGenerator::new(&[1; 32]);
        assert_ne!(tokens.isn(), tokens.isn());
        assert_ne!(tokens.id(), tokens.id());
        assert!(tokens.id() <= 0x3fff_ffff);
    }
}
