//! Pings back to back before the first data: the times of their answers show the capacity of the
//! path to the peer.
//!
//! The answers are small, so only the path of the pings spreads them. Gaps that the path back or a
//! thread adds are treated as the ticks of a host are (`dispersion`). If the answers arrive
//! together, there is no result, and the first burst of data measures the capacity.

use std::net::SocketAddr;

use packtrain_units::{ByteCount, DataRate, Duration, Time};

use crate::config::TrainTarget;
use crate::core::spread::{LONG_BURST, first_burst};
use crate::dispersion::{MIN_COARSE_SPAN, MIN_SPAN, Run, Spread};

/// Trains that one flow sends at most: one to an address that the owner named, and one to that from
/// which the peer's first packet came, if they differ.
const MAX_TRAINS: u32 = 2;
/// A ceiling on the rate must allow a whole train within this time.
const MAX_TRAIN_SPAN: Duration = Duration::from_millis(10);

/// What the answers show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shown {
    /// The capacity of the path.
    Capacity(DataRate),
    /// The answers to all of so many pings came within a time that is too short to measure.
    TooShort(u64, Duration),
}

/// The trains of one flow.
#[derive(Debug)]
pub(crate) struct ProbeTrains {
    target: Option<TrainTarget>,
    /// Pings of a train, at most 64.
    pings: u64,
    left: u32,
    sent: Option<Sent>,
    /// When the newest answer arrived.
    last: Option<Time>,
    /// Answers since then that are not in `run` yet.
    new: u64,
    run: Run,
}

/// The newest train: answers to earlier ones do not count.
#[derive(Debug)]
struct Sent {
    to: SocketAddr,
    /// Token of its first ping; the others follow.
    token: u64,
    /// Wire bytes of a ping.
    size: ByteCount,
    /// The pings that were answered.
    answered: u64,
    over: bool,
}

impl ProbeTrains {
    /// Trains may go to this host, unless the ceiling is so low that the capacity is of no use. They
    /// are as long as the first burst of data.
    pub(crate) fn new(target: Option<TrainTarget>, ceiling: Option<DataRate>) -> Self {
        let pings = target.map_or(0, |target| first_burst(target.rtt));
        let allowed =
            ceiling.is_none_or(|rate| rate.bytes_in(MAX_TRAIN_SPAN).get() >= pings * 1_500);
        let left = if allowed { MAX_TRAINS } else { 0 };
        Self { target, pings, left, sent: None, last: None, new: 0, run: Run::default() }
    }

    /// Pings of a train.
    pub(crate) fn pings(&self) -> u64 {
        self.pings
    }

    /// The address to send a train to, of those that are pinged for the first time now: that of the
    /// peer's last packet, which is the last one, or the first one that the owner named.
    pub(crate) fn target(
        &self,
        heard: Option<SocketAddr>,
        named: &[SocketAddr],
    ) -> Option<SocketAddr> {
        let host = self.target?.host.to_canonical();
        let allowed = |to: &SocketAddr| to.ip().to_canonical() == host;
        let mut targets = heard.into_iter().chain(named.iter().copied());
        let before = self.sent.as_ref().map(|sent| sent.to);
        targets.find(allowed).filter(|to| self.left > 0 && before != Some(*to))
    }

    /// A train leaves for `to` whose pings have `size` bytes of UDP payload and the tokens from `token` on.
    pub(crate) fn on_sent(&mut self, to: SocketAddr, token: u64, size: u16) {
        self.left -= 1;
        let size = ByteCount(u64::from(size));
        self.sent = Some(Sent { to, token, size, answered: 0, over: false });
        (self.last, self.new, self.run) = (None, 0, Run::default());
    }

    /// A pong with this token arrived, which may answer a ping of the train.
    pub(crate) fn on_pong(&mut self, token: u64) {
        let Some(sent) = &mut self.sent else { return };
        let index = token.wrapping_sub(sent.token);
        if index >= self.pings {
            return;
        }
        let is_new = sent.answered & (1 << index) == 0;
        sent.answered |= 1 << index;
        self.new += u64::from(is_new);
    }

    /// Whether answers to a train are coming.
    pub(crate) fn is_answered(&self) -> bool {
        self.sent.as_ref().is_some_and(|sent| sent.answered > 0 && !sent.over)
    }

    /// A batch of packets arrived, `on_pong` took its pongs. Returns what the train shows, once.
    pub(crate) fn on_batch(&mut self, at: Time) -> Option<Shown> {
        let sent = self.sent.as_mut().filter(|sent| !sent.over && self.new > 0)?;
        let new = std::mem::take(&mut self.new);
        // The first bursts of data measure again.
        let least = if self.pings >= LONG_BURST { MIN_COARSE_SPAN } else { MIN_SPAN };
        // What came with the first answer began to arrive at an unknown time.
        if let Some(last) = self.last.replace(at) {
            self.run.push(new, at.since(last));
        }
        let answered = u64::from(sent.answered.count_ones());
        let whole = answered == self.pings;
        // The end of the train may be lost in a short queue.
        if !whole && (answered < self.pings * 3 / 4 || !self.run.is_measured(least)) {
            return None;
        }
        sent.over = true;
        let span = self.run.span();
        match self.run.finish(least) {
            Spread::Measured { packets, span } => {
                let bytes = ByteCount(packets * sent.size.get());
                Some(Shown::Capacity(DataRate::from_bytes_over(bytes, span)))
            }
            Spread::AtMost { .. } | Spread::TooShort => Some(Shown::TooShort(self.pings, span)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: u16 = 1_472;
    const TOKEN: u64 = u64::MAX - 5;

    fn addr(host: u8, port: u16) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, host], port))
    }

    fn target(rtt: Duration) -> Option<TrainTarget> {
        Some(TrainTarget { host: addr(1, 0).ip(), rtt })
    }

    fn trains() -> ProbeTrains {
        let mut trains = ProbeTrains::new(target(Duration::from_millis(100)), None);
        trains.on_sent(addr(1, 9), TOKEN, SIZE);
        trains
    }

    /// Answers to these pings, one every `gap` microseconds, read in batches of one tick.
    fn answer(
        trains: &mut ProbeTrains,
        pings: impl Iterator<Item = u64>,
        (gap, tick): (u64, u64),
    ) -> Option<Shown> {
        pings
            .filter_map(|i| {
                trains.on_pong(TOKEN.wrapping_add(i));
                let us = (i * gap).div_ceil(tick) * tick;
                trains.on_batch(Time::ZERO + Duration::from_micros(1_000 + us))
            })
            .last()
    }

    fn mbps(shown: Option<Shown>) -> f64 {
        match shown {
            Some(Shown::Capacity(rate)) => rate.as_bps() as f64 / 1e6,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_spread_of_the_answers_is_the_capacity() {
        // 1472 bytes in 12 us are 981 Mbit/s, in 120 us a tenth of that.
        for (gap, tick, wanted) in [(12, 1, 981.0), (120, 1, 98.1), (12, 50, 981.0)] {
            let got = mbps(answer(&mut trains(), 0..64, (gap, tick)));
            assert!((got / wanted - 1.0).abs() < 0.1, "{got} instead of {wanted}");
        }
        let short = answer(&mut trains(), 0..64, (2, 1));
        assert_eq!(short, Some(Shown::TooShort(64, Duration::from_micros(126))));
    }

    #[test]
    fn a_train_without_its_end_is_measured_and_one_with_gaps_shows_less() {
        let cut = mbps(answer(&mut trains(), 0..50, (12, 1)));
        assert!((cut / 981.0 - 1.0).abs() < 0.05, "{cut}");
        assert_eq!(answer(&mut trains(), 0..47, (12, 1)), None, "too much may be missing");
        // Lost pings are not counted as arrived: one in five is missing.
        let gaps = mbps(answer(&mut trains(), (0..64).filter(|i| i % 5 != 4), (12, 1)));
        assert!(gaps < 850.0, "{gaps}");
    }

    #[test]
    fn an_answer_counts_once_and_only_to_the_newest_train() {
        let mut trains = trains();
        trains.on_pong(TOKEN.wrapping_sub(1));
        trains.on_pong(TOKEN.wrapping_add(64));
        assert!(!trains.is_answered());
        for i in 0..1_000 {
            trains.on_pong(TOKEN);
            assert_eq!(trains.on_batch(Time::ZERO + Duration::from_micros(12 * i)), None);
        }
        trains.on_sent(addr(1, 10), 5, SIZE);
        trains.on_pong(TOKEN);
        assert!(!trains.is_answered());
    }

    #[test]
    fn trains_go_to_the_host_that_asked_and_not_often() {
        let named = [addr(2, 9), addr(1, 9)];
        let mut trains = ProbeTrains::new(target(Duration::from_millis(100)), None);
        assert_eq!(trains.target(None, &named[..1]), None, "another host");
        assert_eq!(trains.target(Some(addr(2, 8)), &named[..1]), None, "another host");
        assert_eq!(trains.target(None, &named), Some(addr(1, 9)));
        trains.on_sent(addr(1, 9), TOKEN, SIZE);
        assert_eq!(trains.target(None, &named), None, "the same address");
        // The peer's packets come through an address translator.
        assert_eq!(trains.target(Some(addr(1, 77)), &named), Some(addr(1, 77)));
        trains.on_sent(addr(1, 77), TOKEN, SIZE);
        assert_eq!(trains.target(Some(addr(1, 78)), &named), None, "two trains");
        assert_eq!(ProbeTrains::new(None, None).target(None, &named), None);
    }

    #[test]
    fn the_round_trip_and_the_ceiling_bound_a_train() {
        let pings = |ms| ProbeTrains::new(target(Duration::from_millis(ms)), None).pings();
        assert_eq!([1, 10, 50, 100, 10_000].map(pings), [20, 20, 32, 64, 64]);
        let allowed = |mbps| {
            let ceiling = Some(DataRate::from_mbps(mbps));
            let trains = ProbeTrains::new(target(Duration::from_millis(100)), ceiling);
            trains.target(None, &[addr(1, 9)]).is_some()
        };
        assert!(allowed(80) && !allowed(70));
    }
}
