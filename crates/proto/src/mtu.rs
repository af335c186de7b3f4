//! The size of datagrams: packetization-layer path MTU discovery (RFC 8899).
//!
//! Data starts at the base size, which every path carries, or at a size that the owner vouches for.
//! The pings that validate the path are also sent padded to Ethernet's size: where the path carries
//! it, their answers raise the size before the first data packet. The search then continues to the
//! largest size allowed.
//!
//! When no full-size packet arrives for a probe timeout while a small one does, the size falls to
//! the base at once, and the old size is probed again: an answer restores it, because then the
//! cause was a burst of losses or an outage and not a black hole.

use packtrain_units::{Duration, Time};

use crate::config::limits::BASE_MTU;

/// Probes of one size before it counts as too large (RFC 8899 MAX_PROBES).
const MAX_PROBES: usize = 3;
/// Tokens of one probe that are kept: before the path is validated it is sent as often as a small
/// ping, which is six times in a round trip of half a second.
const TOKENS: usize = 8;
/// Lost packets of the current size, with none of that size arriving, that may be a black hole.
const BLACK_HOLE_PACKETS: u32 = 8;
/// Falls from one size, without data of that size arriving in between, after which it counts as too
/// large although probes of it are answered.
const MAX_FALLS: u32 = 2;
/// Pause before a finished search starts again (RFC 8899 PMTU_RAISE_TIMER).
const RAISE_INTERVAL: Duration = Duration::from_secs(600);
/// Time after the first probes in which they are not repeated: the round trip is not known yet.
const FIRST_TIMEOUT: Duration = Duration::from_secs(1);
/// A search ends when its step is smaller than this, in bytes.
const MIN_STEP: u16 = 64;
/// UDP payload of a full Ethernet frame over IPv4 and over IPv6, and that of common tunnels.
const ETHERNET: (u16, u16) = (1_472, 1_452);
const COMMON: [u16; 3] = [ETHERNET.0, ETHERNET.1, 1_420];

/// Searches for the largest datagram that the path carries.
#[derive(Debug)]
pub(crate) struct Mtu {
    current: u16,
    confirmed: bool,
    /// Largest size allowed, and smallest size known to fail.
    max: u16,
    too_large: u16,
    probe: Option<Probe>,
    next_at: Time,
    /// Lost packets of the current size since one arrived, and when that was.
    lost: u32,
    arrived_at: Time,
    /// The size before a fall that the path may still carry.
    suspected: Option<u16>,
    /// Falls since data of that size arrived.
    falls: u32,
}

#[derive(Clone, Copy, Debug)]
struct Probe {
    size: u16,
    /// How often it was sent since the path was validated: before, a missing answer has other
    /// causes.
    tries: usize,
    /// Those of the last transmissions.
    tokens: [u64; TOKENS],
    sent: usize,
}

impl Mtu {
    /// Starts at `size` and searches up to `max`.
    pub(crate) fn new(size: u16, max: u16) -> Self {
        let max = max.max(size);
        Self {
            current: size,
            confirmed: false,
            max,
            too_large: max + 1,
            probe: None,
            next_at: Time::ZERO,
            lost: 0,
            arrived_at: Time::ZERO,
            suspected: None,
            falls: 0,
        }
    }

    /// UDP payload bytes of a full datagram.
    pub(crate) fn current(&self) -> u16 {
        self.current
    }

    /// The size to report: that before a fall until it is certain that the path does not carry it.
    pub(crate) fn reported(&self) -> u16 {
        self.suspected.unwrap_or(self.current)
    }

    /// When the next probe is due.
    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        self.wanted().map(|_| self.next_at)
    }

    /// The size to which a ping that validates the path is padded besides the small one: that of
    /// Ethernet, or what is left to try of it. `v6` if it goes to an IPv6 address.
    pub(crate) fn first_probe(&self, v6: bool) -> Option<u16> {
        let ethernet = if v6 { ETHERNET.1 } else { ETHERNET.0 };
        let size = ethernet.min(self.max).min(self.too_large - 1);
        (size > self.current).then_some(size)
    }

    /// Padded pings of up to `size` bytes were sent with this token before the path was validated.
    pub(crate) fn on_first_probe(&mut self, now: Time, token: u64, size: u16) {
        self.record(token, size, 0);
        self.next_at = now + FIRST_TIMEOUT;
    }

    /// The path was validated, and its round trip is known: a first probe that was not answered
    /// with the small ping is repeated at once.
    pub(crate) fn on_validated(&mut self, now: Time) {
        self.next_at = self.next_at.min(now);
    }

    /// The size of the probe to send now. `token` identifies it; `timeout` is how long to wait for
    /// its answer.
    pub(crate) fn poll(&mut self, now: Time, token: u64, timeout: Duration) -> Option<u16> {
        if now < self.next_at {
            return None;
        }
        if let Some(probe) = self.probe
            && probe.tries >= MAX_PROBES
        {
            self.failed(now, probe.size);
            return None;
        }
        let size = self.probe.map(|p| p.size).or_else(|| self.wanted())?;
        self.record(token, size, 1);
        self.next_at = now + timeout;
        Some(size)
    }

    fn record(&mut self, token: u64, size: u16, tries: usize) {
        let tokens = [token; TOKENS];
        let probe = self.probe.get_or_insert(Probe { size, tries: 0, tokens, sent: 0 });
        probe.tokens[probe.sent % TOKENS] = token;
        probe.size = size;
        probe.sent += 1;
        probe.tries += tries;
    }

    /// Handles the answer to a probe: the peer received a datagram of `size` bytes with `token`.
    /// Returns true if the size changed.
    pub(crate) fn on_pong(&mut self, now: Time, token: u64, size: u16) -> bool {
        let Some(probe) = self.probe.filter(|p| p.tokens.contains(&token)) else { return false };
        let size = size.min(probe.size);
        if size <= self.current && size < probe.size {
            return false;
        }
        self.probe = None;
        self.next_at = now;
        (self.lost, self.arrived_at) = (0, now);
        self.confirmed = true;
        self.suspected = None;
        let grown = size > self.current;
        self.current = self.current.max(size);
        grown
    }

    /// The kernel refused a datagram of `size`. Returns true if the size changed.
    pub(crate) fn on_too_large(&mut self, now: Time, size: u16) -> bool {
        if size <= BASE_MTU {
            return false;
        }
        let before = self.current;
        self.too_large = self.too_large.min(size);
        self.suspected = self.suspected.filter(|suspected| *suspected < size);
        if self.probe.is_some_and(|p| p.size >= self.too_large) {
            self.probe = None;
            self.next_at = now;
        }
        if self.current >= self.too_large {
            self.fall(now);
        }
        self.current != before
    }

    /// A full-size packet arrived.
    pub(crate) fn on_acked(&mut self, now: Time, wire: u16) {
        if wire > BASE_MTU && wire == self.current {
            (self.lost, self.arrived_at) = (0, now);
            self.falls = 0;
        }
    }

    /// Full-size packets were lost although a later packet arrived; `timeout` is the time after
    /// which the report on a packet is overdue. Returns true if the size fell.
    pub(crate) fn on_lost(
        &mut self,
        now: Time,
        wire: u16,
        packets: u32,
        timeout: Duration,
    ) -> bool {
        if wire != self.current || wire <= BASE_MTU {
            return false;
        }
        self.lost = self.lost.saturating_add(packets);
        if self.lost < BLACK_HOLE_PACKETS || now.since(self.arrived_at) < timeout {
            return false;
        }
        self.falls += 1;
        if self.falls > MAX_FALLS {
            self.too_large = self.too_large.min(wire);
        } else {
            self.suspected = Some(wire);
        }
        self.fall(now);
        true
    }

    fn fall(&mut self, now: Time) {
        self.current = BASE_MTU.min(self.current);
        self.confirmed = true;
        self.probe = None;
        self.lost = 0;
        self.next_at = now;
    }

    fn failed(&mut self, now: Time, size: u16) {
        self.probe = None;
        self.suspected = None;
        self.too_large = self.too_large.min(size);
        self.next_at = now;
        if size <= self.current && self.current > BASE_MTU {
            self.current = BASE_MTU;
            self.confirmed = true;
        }
        if self.wanted().is_none() {
            self.too_large = self.max + 1;
            self.next_at = now + RAISE_INTERVAL;
        }
    }

    /// The next size to try while the search runs: the current size, then the one before a fall,
    /// then Ethernet's, then the largest, then the middle of the interval.
    fn wanted(&self) -> Option<u16> {
        if let Some(probe) = self.probe {
            return Some(probe.size);
        }
        if !self.confirmed && self.current > BASE_MTU {
            return Some(self.current);
        }
        if self.suspected.is_some() {
            return self.suspected;
        }
        let top = self.too_large - 1;
        if top <= self.current || (self.too_large <= self.max && top - self.current < MIN_STEP) {
            return None;
        }
        let common = COMMON.into_iter().find(|s| *s > self.current && *s <= top);
        if self.too_large > self.max {
            return Some(common.unwrap_or(self.max));
        }
        common.or(Some(self.current + (top - self.current).div_ceil(2)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the search on a path that carries `path` bytes; returns the size found.
    fn search(start: u16, max: u16, path: u16) -> u16 {
        let mut mtu = Mtu::new(start, max);
        let mut now = Time::ZERO;
        for token in 0..60 {
            if let Some(size) = mtu.poll(now, token, Duration::from_millis(100))
                && size <= path
            {
                mtu.on_pong(now, token, size);
            }
            now += Duration::from_millis(100);
            if mtu.lost == 0 && mtu.poll_timeout().is_none_or(|at| at > now + RAISE_INTERVAL / 2) {
                break;
            }
        }
        mtu.current()
    }

    #[test]
    fn finds_jumbo_ethernet_and_tunnels() {
        for start in [BASE_MTU, 1472] {
            assert_eq!(search(start, 8972, 8972), 8972);
            assert_eq!(search(start, 8972, 1472), 1472);
            assert_eq!(search(start, 1472, 1472), 1472);
            let tunnel = search(start, 1472, 1400);
            assert!((1400 - MIN_STEP..=1400).contains(&tunnel), "{tunnel}");
            let middle = search(start, 8972, 4000);
            assert!((4000 - MIN_STEP..=4000).contains(&middle), "{middle}");
        }
    }

    #[test]
    fn the_answer_to_any_first_probe_counts() {
        let mut mtu = Mtu::new(BASE_MTU, 8972);
        assert_eq!((mtu.first_probe(false), mtu.first_probe(true)), (Some(1472), Some(1452)));
        mtu.on_first_probe(Time::ZERO, 7, 1472);
        mtu.on_first_probe(Time::ZERO, 8, 1472);
        assert!(!mtu.on_pong(Time::ZERO, 9, 1472), "unknown");
        assert!(mtu.on_pong(Time::ZERO, 7, 1452), "the one to an IPv6 address came");
        assert_eq!(mtu.current(), 1452);
        assert!(!mtu.on_pong(Time::ZERO, 8, 1472), "the search has gone on");
    }

    #[test]
    fn a_black_hole_is_left_for_the_base_size() {
        let mut mtu = Mtu::new(1472, 1472);
        let (ms, timeout) = (Duration::from_millis(1), Duration::from_millis(40));
        mtu.on_acked(Time::ZERO, 1472);
        assert!(!mtu.on_lost(Time::ZERO + ms * 39, 1472, 100, timeout), "a burst is only loss");
        mtu.on_acked(Time::ZERO + ms * 39, 1472);
        assert!(!mtu.on_lost(Time::ZERO + ms * 79, 1472, 7, timeout), "few");
        assert!(mtu.on_lost(Time::ZERO + ms * 79, 1472, 1, timeout));
        assert_eq!((mtu.current(), mtu.reported()), (BASE_MTU, 1472));
    }

    #[test]
    fn a_false_alarm_ends_with_the_next_answer() {
        let mut mtu = Mtu::new(1472, 1472);
        let second = |n| Time::ZERO + Duration::from_secs(n);
        let timeout = Duration::from_millis(40);
        for n in 1..=3 {
            assert!(mtu.on_lost(second(n), 1472, 100, timeout));
            let probed = mtu.poll(second(n), n, timeout).unwrap();
            assert_eq!(probed == 1472, n < 3, "probes pass and data does not");
            assert!(mtu.on_pong(second(n), n, probed));
        }
        assert_eq!((mtu.current(), mtu.reported()), (1452, 1452));
    }

    #[test]
    fn the_kernel_may_refuse() {
        let mut mtu = Mtu::new(1472, 8972);
        assert!(mtu.on_too_large(Time::ZERO, 1472));
        assert_eq!(mtu.current(), BASE_MTU);
        assert!(!mtu.on_too_large(Time::ZERO, 1000), "the base size is never given up");
        let mut mtu = Mtu::new(BASE_MTU, 8972);
        mtu.on_first_probe(Time::ZERO, 7, 1472);
        assert!(!mtu.on_too_large(Time::ZERO, 1472), "a probe");
        assert_eq!(mtu.first_probe(false), Some(1471));
    }
}
