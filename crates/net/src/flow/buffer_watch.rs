//! Checks whether the receive buffers are too small for the arrival rate.

use packtrain_units::{ByteCount, DataRate, Duration, Time};

use crate::udp::{BufferWarning, UdpSocket};

/// Interval over which the rate is measured.
const SPAN: Duration = Duration::from_secs(1);

/// Gives one warning per flow.
pub(super) struct BufferWatch {
    since: Time,
    bytes: u64,
    dropped: bool,
    warned: bool,
}

impl BufferWatch {
    pub(super) fn new(now: Time) -> Self {
        Self { since: now, bytes: 0, dropped: false, warned: false }
    }

    /// Adds received bytes.
    pub(super) fn note_bytes(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
    }

    /// Records a drop because of a full buffer.
    pub(super) fn note_drops(&mut self) {
        self.dropped = true;
    }

    /// A warning if datagrams were dropped in the last second, at a rate for which a system limit
    /// keeps the buffers too small.
    pub(super) fn check<'a>(
        &mut self,
        now: Time,
        mut sockets: impl ExactSizeIterator<Item = &'a UdpSocket>,
    ) -> Option<BufferWarning> {
        let span = now.since(self.since);
        if span < SPAN {
            return None;
        }
        let rate = DataRate::from_bytes_over(ByteCount(self.bytes), span);
        let concerned = self.dropped && !self.warned;
        let warned = self.warned;
        *self = Self { warned, ..Self::new(now) };
        if !concerned {
            return None;
        }
        let count = sockets.len();
        let warning = sockets.next()?.buffer_sizes().ok()?.warning(rate, count)?;
        self.warned = true;
        Some(warning)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(n: u64) -> Time {
        Time::ZERO + Duration::from_secs(n)
    }

    #[test]
    fn warns_once_and_only_of_drops() {
        let sockets = [UdpSocket::bind("127.0.0.1:0".parse().unwrap()).unwrap()];
        let mut buffer_watch = BufferWatch::new(second(0));
        let mut told = 0;
        for n in 0..10 {
            buffer_watch.note_bytes(100 << 30);
            assert!(
                buffer_watch.check(second(n) + Duration::from_millis(1), sockets.iter()).is_none()
            );
            if n % 2 == 1 {
                buffer_watch.note_drops();
            }
            told += u32::from(buffer_watch.check(second(n + 1), sockets.iter()).is_some());
        }
        // A machine that grants the requested size gives no warning.
        let sizes = sockets[0].buffer_sizes().unwrap();
        assert_eq!(told, u32::from(sizes.receive < sizes.wanted));
    }
}
