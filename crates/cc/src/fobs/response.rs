//! The window for a loss rate, and the long-term loss rate.

use std::collections::VecDeque;

use super::options::Count;

/// Low_Window (RFC 3649 section 5): below it a flow behaves as standard TCP.
const LOW_WINDOW: f64 = 38.0;
/// The response function of HighSpeed TCP, 0.12 / p^0.835 (RFC 3649 section 5).
const HIGH: (f64, f64) = (0.12, 0.835);
/// The response function of standard TCP, 1.2 / sqrt(p) (RFC 3649 section 2).
const STANDARD: f64 = 1.2;
/// The long-term loss rate covers this many congestion events, as many as TFRC averages (RFC 5348
/// section 5.4), and the packets since the last one.
const EVENTS: usize = 8;
/// Weights of the intervals between events, the newest first (RFC 5348 section 5.4).
const WEIGHTS: [f64; EVENTS] = [1.0, 1.0, 1.0, 1.0, 0.8, 0.6, 0.4, 0.2];

/// Packets in flight at this loss rate; `None` without loss, which means no limit.
pub fn window(p: f64) -> Option<f64> {
    if p.is_nan() || p <= 0.0 {
        return None;
    }
    let p = p.min(1.0);
    let high = HIGH.0 / libm::pow(p, HIGH.1);
    Some(if high > LOW_WINDOW { high } else { STANDARD / libm::sqrt(p) })
}

/// Packets between losses that allow this window: `1 / p` where `window(p)` equals it.
fn interval(window: f64) -> f64 {
    let window = window.max(STANDARD);
    if window > LOW_WINDOW {
        libm::pow(window / HIGH.0, 1.0 / HIGH.1)
    } else {
        (window / STANDARD) * (window / STANDARD)
    }
}

/// The long-term loss rate of the network.
///
/// The paper does not define "long-term". A mean over the whole transfer would never forget one bad
/// minute. These estimators forget by events, so their memory is long where loss is rare and short
/// where it is frequent.
#[derive(Clone, Debug)]
pub(super) enum LongTerm {
    /// The share of lost packets.
    Packets(Packets),
    /// Events per packet.
    Events(Events),
}

impl LongTerm {
    pub(super) fn new(count: Count) -> Self {
        match count {
            Count::Packets => Self::Packets(Packets::default()),
            Count::Events => Self::Events(Events::default()),
        }
    }

    /// Adds packets of which the network lost none.
    pub(super) fn clean(&mut self, packets: u64) {
        match self {
            Self::Packets(long) => long.since += packets as f64,
            Self::Events(long) => long.open += packets as f64,
        }
    }

    /// Adds packets of which `lost` were lost, in events that began at the positions `events`.
    /// `allowed` packets were in flight.
    pub(super) fn congestion(&mut self, packets: u64, lost: u64, events: &[u64], allowed: f64) {
        match self {
            Self::Packets(long) => long.event(packets, lost),
            Self::Events(long) => long.events(packets, events, allowed),
        }
    }

    /// A launch measured the path: earlier losses no longer count.
    pub(super) fn restart(&mut self) {
        if let Self::Events(long) = self {
            *long = Events::default();
        }
    }

    /// The rate of loss.
    pub(super) fn rate(&self) -> f64 {
        match self {
            Self::Packets(long) => long.rate(),
            Self::Events(long) => long.rate(),
        }
    }
}

/// Packets sent and lost.
#[derive(Clone, Debug, Default)]
pub(super) struct Packets {
    /// Packets up to and including each event, oldest first.
    events: VecDeque<(f64, f64)>,
    /// Packets sent since the last event.
    since: f64,
}

impl Packets {
    fn event(&mut self, packets: u64, lost: u64) {
        if self.events.len() == EVENTS {
            self.events.pop_front();
        }
        let sent = std::mem::take(&mut self.since) + packets as f64;
        self.events.push_back((sent, lost as f64));
    }

    /// The packets since the last event count if they lower the rate.
    fn rate(&self) -> f64 {
        let (sent, lost) =
            self.events.iter().fold((self.since, 0.0), |sum, e| (sum.0 + e.0, sum.1 + e.1));
        if sent > 0.0 { lost / sent } else { 0.0 }
    }
}

/// Packets between events.
#[derive(Clone, Debug, Default)]
pub(super) struct Events {
    /// Newest first.
    intervals: VecDeque<f64>,
    /// Packets since the last event began.
    open: f64,
}

impl Events {
    fn events(&mut self, packets: u64, events: &[u64], allowed: f64) {
        let mut behind = 0;
        for event in events {
            self.open += event.saturating_sub(behind) as f64;
            behind = *event;
            self.close(allowed);
        }
        self.open += packets.saturating_sub(behind) as f64;
    }

    /// Adds an event. Where a launch chose the rate, the packets before the first event say nothing
    /// about the path: that interval is the one that allows the packets then in flight (RFC 5348
    /// section 6.3.1).
    fn close(&mut self, allowed: f64) {
        let open = std::mem::take(&mut self.open).max(1.0);
        let first = self.intervals.is_empty();
        self.intervals.push_front(if first { interval(allowed) } else { open });
        self.intervals.truncate(EVENTS);
    }

    /// The rate by the mean interval; the interval since the last event counts if it lowers the
    /// rate.
    fn rate(&self) -> f64 {
        if self.intervals.is_empty() {
            return 0.0;
        }
        let mean = |intervals: &mut dyn Iterator<Item = f64>| {
            let (sum, weights) =
                intervals.zip(WEIGHTS).fold((0.0, 0.0), |s, (i, w)| (s.0 + i * w, s.1 + w));
            sum / weights
        };
        let closed = mean(&mut self.intervals.iter().copied());
        let with_open = mean(&mut std::iter::once(self.open).chain(self.intervals.iter().copied()));
        1.0 / closed.max(with_open).max(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_functions_meet_at_low_window() {
        // RFC 3649 section 5: w = 38 at p = 1e-3 and 83000 at 1e-7.
        let high = |p| window(p).unwrap();
        assert!((high(9.9e-4) - 38.6).abs() < 0.7, "{}", high(9.9e-4));
        assert!((high(1e-7) / 83_000.0 - 1.0).abs() < 0.02, "{}", high(1e-7));
        assert!((high(1e-2) - 12.0).abs() < 1e-9);
        let (above, below) = (high(1.02e-3), high(1.05e-3));
        assert!((above / below - 1.0).abs() < 0.05, "they meet: {above} {below}");
        assert_eq!((window(0.0), window(-1.0), window(f64::NAN)), (None, None, None));
        assert!((high(7.0) - 1.2).abs() < 1e-9, "more than all is all");
    }

    #[test]
    fn an_interval_allows_its_window() {
        for packets in [2.0, 20.0, 37.0, 50.0, 5_400.0, 1e6] {
            let back = window(1.0 / interval(packets)).unwrap();
            assert!((back / packets - 1.0).abs() < 1e-6, "{packets} {back}");
        }
        assert_eq!(interval(0.0), 1.0);
    }

    #[test]
    fn losses_are_forgotten_by_events() {
        let mut long = LongTerm::new(Count::Packets);
        assert_eq!(long.rate(), 0.0);
        long.clean(9_000);
        long.congestion(1_000, 10, &[0], 40.0);
        assert!((long.rate() - 1e-3).abs() < 1e-12);
        long.clean(10_000);
        assert!((long.rate() - 5e-4).abs() < 1e-12);
        for _ in 0..EVENTS {
            long.congestion(1_000, 1, &[0], 40.0);
        }
        // The first of the eight has the 10,000 clean packets in it.
        assert!((long.rate() - 8.0 / 18_000.0).abs() < 1e-12);
    }

    #[test]
    fn one_event_however_much_it_loses_and_the_first_allows_what_was_sent() {
        let mut long = LongTerm::new(Count::Events);
        assert_eq!(long.rate(), 0.0);
        long.clean(10_000);
        long.congestion(1_000, 900, &[100], 5_400.0);
        assert!((window(long.rate()).unwrap() / 5_400.0 - 1.0).abs() < 1e-6);
        // Two more, 20,900 and 500 packets later.
        long.clean(20_000);
        long.congestion(1_000, 2, &[0, 500], 1.0);
        let mean = (interval(5_400.0) + 20_900.0 + 500.0) / 3.0;
        assert!((long.rate() * mean - 1.0).abs() < 1e-9, "{} {mean}", long.rate());
        long.clean(10_000_000);
        assert!(long.rate() < 1e-6, "what is clean counts before the next event");
        for _ in 0..EVENTS {
            long.congestion(1_000, 1, &[999], 1.0);
        }
        // 1,000 each but the oldest, which weighs least: its newest 500 are of the window above.
        assert!(long.rate() < 1.0 / 1_000.0 && long.rate() > 1.0 / 600_000.0);
        long.restart();
        assert_eq!(long.rate(), 0.0);
    }
}
