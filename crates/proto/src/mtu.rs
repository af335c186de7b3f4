//! The size of datagrams: packetization-layer path MTU discovery (RFC 8899).
//!
//! The search starts at the given size (Ethernet's) and confirms it with a padded probe while data
//! already flows. It falls back to the base size when probes or data of that size are lost while
//! small packets arrive. It then searches upwards to the largest size allowed.

use packtrain_units::{Duration, Time};

use crate::config::limits::BASE_MTU;

/// Probes of one size before it counts as too large (RFC 8899 MAX_PROBES).
const MAX_PROBES: u32 = 3;
/// Lost packets of the current size, with none of that size arriving, that count as a black hole.
const BLACK_HOLE_PACKETS: u32 = 24;
/// Pause before a finished search starts again (RFC 8899 PMTU_RAISE_TIMER).
const RAISE_INTERVAL: Duration = Duration::from_secs(600);
/// A search ends when its step is smaller than this, in bytes.
const MIN_STEP: u16 = 64;

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
    lost: u32,
    lost_since: Time,
}

#[derive(Clone, Copy, Debug)]
struct Probe {
    size: u16,
    tries: u32,
    token: u64,
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
            lost_since: Time::ZERO,
        }
    }

    /// UDP payload bytes of a full datagram.
    pub(crate) fn current(&self) -> u16 {
        self.current
    }

    /// When the next probe is due.
    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        self.wanted().map(|_| self.next_at)
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
        let tries = self.probe.map_or(0, |p| p.tries) + 1;
        self.probe = Some(Probe { size, tries, token });
        self.next_at = now + timeout;
        Some(size)
    }

    /// Handles the answer to a probe. Returns true if the size changed.
    pub(crate) fn on_pong(&mut self, now: Time, token: u64) -> bool {
        let Some(probe) = self.probe.filter(|p| p.token == token) else { return false };
        self.probe = None;
        self.next_at = now;
        self.lost = 0;
        self.confirmed = true;
        let grown = probe.size > self.current;
        self.current = self.current.max(probe.size);
        grown
    }

    /// The kernel refused a datagram of `size`. Returns true if the size changed.
    pub(crate) fn on_too_large(&mut self, now: Time, size: u16) -> bool {
        if size <= BASE_MTU {
            return false;
        }
        let before = self.current;
        self.too_large = self.too_large.min(size);
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
    pub(crate) fn on_acked(&mut self, wire: u16) {
        if wire > BASE_MTU && wire == self.current {
            self.lost = 0;
        }
    }

    /// Full-size packets were lost. Returns true if that is a black hole and the size changed.
    pub(crate) fn on_lost(&mut self, now: Time, wire: u16, packets: u32, srtt: Duration) -> bool {
        if wire != self.current || wire <= BASE_MTU {
            return false;
        }
        if self.lost == 0 {
            self.lost_since = now;
        }
        self.lost = self.lost.saturating_add(packets);
        let timeout = (srtt * 3).max(Duration::from_millis(200));
        if self.lost < BLACK_HOLE_PACKETS || now.since(self.lost_since) < timeout {
            return false;
        }
        self.too_large = self.too_large.min(wire);
        self.fall(now);
        true
    }

    fn fall(&mut self, now: Time) {
        self.current = BASE_MTU.min(self.current);
        self.confirmed = true;
        self.probe = None;
        self.lost = 0;
        // The path has just changed: wait a second before searching upwards.
        self.next_at = now + Duration::from_secs(1);
    }

    fn failed(&mut self, now: Time, size: u16) {
        self.probe = None;
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

    /// The next size to try while the search runs: the current size, then the largest, then
    /// Ethernet's, then the middle of the interval.
    fn wanted(&self) -> Option<u16> {
        if let Some(probe) = self.probe {
            return Some(probe.size);
        }
        if !self.confirmed && self.current > BASE_MTU {
            return Some(self.current);
        }
        let top = self.too_large - 1;
        if top <= self.current || (self.too_large <= self.max && top - self.current < MIN_STEP) {
            return None;
        }
        if self.too_large > self.max {
            return Some(self.max);
        }
        [1_472, 1_452, 1_420]
            .into_iter()
            .find(|s| *s > self.current && *s < self.too_large)
            .or(Some(self.current + (top - self.current).div_ceil(2)))
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
                mtu.on_pong(now, token);
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
        assert_eq!(search(1472, 8972, 8972), 8972);
        assert_eq!(search(1472, 8972, 1472), 1472);
        assert_eq!(search(1472, 1472, 1472), 1472);
        let tunnel = search(1472, 1472, 1400);
        assert!((1400 - MIN_STEP..=1400).contains(&tunnel), "{tunnel}");
        let middle = search(1472, 8972, 4000);
        assert!((4000 - MIN_STEP..=4000).contains(&middle), "{middle}");
    }

    #[test]
    fn a_black_hole_is_left_for_the_base_size() {
        let mut mtu = Mtu::new(1472, 1472);
        let (ms, srtt) = (Duration::from_millis(1), Duration::from_millis(20));
        assert!(!mtu.on_lost(Time::ZERO, 1472, 100, srtt), "one burst is only loss");
        mtu.on_acked(1472);
        assert!(!mtu.on_lost(Time::ZERO + ms * 300, 1472, 100, srtt));
        assert!(mtu.on_lost(Time::ZERO + ms * 600, 1472, 1, srtt));
        assert_eq!(mtu.current(), BASE_MTU);
    }

    #[test]
    fn the_kernel_may_refuse() {
        let mut mtu = Mtu::new(1472, 8972);
        assert!(mtu.on_too_large(Time::ZERO, 1472));
        assert_eq!(mtu.current(), BASE_MTU);
        assert!(!mtu.on_too_large(Time::ZERO, 1000), "the base size is never given up");
    }
}
