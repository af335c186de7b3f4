//! The window that the path and the receiving socket's buffer hold together.

use packtrain_units::{Duration, Time};

use crate::udt::PacketRate;

/// How long a minimum of the round trip counts: at least this, at most twice as long.
const MEMORY: Duration = Duration::from_secs(5);
/// How much more than the arrival speed times the minimum round trip the path may hold: both are
/// estimates, and a window that they limit must be able to grow.
const PATH_MARGIN: f64 = 2.0;

/// UDT's window covers the packets of a round trip and of SYN. On a short fast path those of SYN are
/// many times what a socket holds (10 ms at 10 Gbit/s are 8,600 packets, and a buffer of the default
/// size holds 180), so a receiver that reads its socket a little late loses packets, and UDT takes
/// that for congestion. A receiver that knows the size of the buffer therefore advertises no more room
/// than the path and the buffer hold.
#[derive(Debug)]
pub(super) struct SocketWindow {
    /// Packets that the buffer holds, if the owner knows.
    buffer: Option<u64>,
    /// The minimum round trip since `since`, and of the time before.
    newest: Option<Duration>,
    before: Option<Duration>,
    since: Time,
}

impl SocketWindow {
    pub(super) fn new(buffer: Option<u64>, now: Time) -> Self {
        Self { buffer, newest: None, before: None, since: now }
    }

    /// A sample of the round trip.
    pub(super) fn sample(&mut self, now: Time, rtt: Duration) {
        if now.since(self.since) > MEMORY {
            (self.before, self.since) = (self.newest.take(), now);
        }
        self.newest = Some(self.newest.map_or(rtt, |min| min.min(rtt)));
    }

    /// Maximum packets beyond the first missing one, once it is known. The arrival speed is a median,
    /// which is found only where it is needed.
    pub(super) fn get(&self, arrival: impl FnOnce() -> Option<PacketRate>) -> Option<u64> {
        let buffer = self.buffer?;
        let rtt = [self.newest, self.before].into_iter().flatten().min()?;
        let path = arrival()?.get() * rtt.as_secs_f64() * PATH_MARGIN;
        Some(buffer.saturating_add(path as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(packets: f64) -> impl FnOnce() -> Option<PacketRate> {
        move || PacketRate::per_second(packets)
    }

    #[test]
    fn it_is_the_buffer_and_twice_what_the_path_holds() {
        let mut window = SocketWindow::new(Some(180), Time::ZERO);
        assert_eq!(window.get(rate(1e6)), None, "no round trip is known");
        window.sample(Time::ZERO, Duration::from_millis(2));
        window.sample(Time::ZERO, Duration::from_micros(100));
        assert_eq!(window.get(|| None), None, "no speed is known");
        assert_eq!(window.get(rate(1e6)), Some(180 + 200));
        let mut unknown = SocketWindow::new(None, Time::ZERO);
        unknown.sample(Time::ZERO, Duration::from_micros(100));
        assert_eq!(unknown.get(rate(1e6)), None);
    }

    #[test]
    fn a_path_that_became_longer_widens_it() {
        let mut window = SocketWindow::new(Some(180), Time::ZERO);
        window.sample(Time::ZERO, Duration::from_millis(1));
        for ms in 1..=100 {
            window.sample(Time::ZERO + Duration::from_millis(ms * 110), Duration::from_millis(50));
        }
        assert_eq!(window.get(rate(1e5)), Some(180 + 10_000));
    }
}
