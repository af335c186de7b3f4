//! The packets that one lane has sent, and their outcome, per train.

use std::collections::VecDeque;

use packtrain_units::{Duration, Time};

/// Packets sent back to back with consecutive numbers and offsets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Train {
    /// First packet number.
    pub(crate) first: u64,
    /// Number of packets, at most 64.
    pub(crate) count: u32,
    /// Payload bytes of each but the last; zero for a control packet.
    pub(crate) size: u16,
    /// Payload bytes of the last.
    pub(crate) last: u16,
    /// Offset of the first.
    pub(crate) offset: u64,
}

impl Train {
    /// The payload bytes of all packets.
    pub(crate) fn bytes(&self) -> u64 {
        u64::from(self.count - 1) * u64::from(self.size) + u64::from(self.last)
    }

    /// One past the last packet number.
    pub(crate) fn end(&self) -> u64 {
        self.first + u64::from(self.count)
    }

    /// Payload bytes of the largest of the packets from `from` on, counted within the train.
    pub(crate) fn largest(&self, from: u32) -> u16 {
        if from + 1 < self.count { self.size } else { self.last }
    }

    /// The offsets of the packets `from..to`, counted within the train.
    pub(crate) fn span(&self, from: u32, to: u32) -> (u64, u64) {
        let start = self.offset + u64::from(from) * u64::from(self.size);
        let end = if to >= self.count {
            self.offset + self.bytes()
        } else {
            self.offset + u64::from(to) * u64::from(self.size)
        };
        (start, end)
    }
}

/// A train with the state of the flow when it was sent.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) train: Train,
    /// Send index of the first packet.
    pub(crate) index: u64,
    /// Send index of the first packet of the back-to-back run that it belongs to.
    pub(crate) run: u64,
    pub(crate) sent_at: Time,
    /// Payload bytes delivered when it was sent, and when the last of them were.
    pub(crate) delivered: u64,
    pub(crate) delivered_at: Time,
    /// When the first packet of the sample's send interval was sent.
    pub(crate) first_sent_at: Time,
    pub(crate) app_limited: bool,
    acked: u64,
    lost: u64,
}

impl Sent {
    pub(crate) fn new(train: Train, index: u64, sent_at: Time) -> Self {
        Self {
            train,
            index,
            run: index,
            sent_at,
            delivered: 0,
            delivered_at: sent_at,
            first_sent_at: sent_at,
            app_limited: false,
            acked: 0,
            lost: 0,
        }
    }

    fn all(&self) -> u64 {
        u64::MAX >> (64 - self.train.count)
    }
}

/// Some packets of one train with the same outcome.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    /// Positions within the train.
    pub(crate) from: u32,
    pub(crate) to: u32,
    /// They had been declared lost before.
    pub(crate) spurious: bool,
}

/// The acknowledgement is impossible: it covers packets that were never sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Impossible;

/// The sent packets of one lane.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    trains: VecDeque<Sent>,
    /// Number of trains at the front whose packets are all acknowledged or lost.
    settled: usize,
    skipped: VecDeque<u64>,
    /// Largest acknowledged number, plus one.
    acked_to: u64,
    newest_acked_sent: Time,
    next: u64,
}

impl Ledger {
    /// The next packet number to send.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Skips one number, to detect a receiver that acknowledges packets that it did not get.
    pub(crate) fn skip(&mut self) {
        self.skipped.push_back(self.next);
        self.next += 1;
    }

    /// Takes the next number for a packet that is not tracked.
    pub(crate) fn take(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    /// Takes `count` numbers for packets that the feedback tracks by other numbers.
    pub(crate) fn take_many(&mut self, count: u32) {
        self.next += u64::from(count);
    }

    /// A train was sent.
    pub(crate) fn push(&mut self, sent: Sent) {
        debug_assert!(sent.train.first >= self.next, "numbers only grow");
        self.next = sent.train.end();
        self.trains.push_back(sent);
    }

    /// Whether all packets are acknowledged or lost.
    pub(crate) fn is_settled(&self) -> bool {
        self.settled == self.trains.len()
    }

    /// The train of packet `pn`, if it is still kept.
    pub(crate) fn find(&self, pn: u64) -> Option<&Sent> {
        let at = self.trains.partition_point(|s| s.train.end() <= pn);
        self.trains.get(at).filter(|s| s.train.first <= pn)
    }

    /// `start..end` was acknowledged: calls `each` with every part not acknowledged before.
    pub(crate) fn ack(
        &mut self,
        start: u64,
        end: u64,
        mut each: impl FnMut(&Sent, Part),
    ) -> Result<(), Impossible> {
        let skipped = self.skipped.get(self.skipped.partition_point(|pn| *pn < start));
        if end > self.next || skipped.is_some_and(|pn| *pn < end) {
            return Err(Impossible);
        }
        self.acked_to = self.acked_to.max(end);
        let at = self.trains.partition_point(|s| s.train.end() <= start);
        for sent in self.trains.range_mut(at..) {
            if sent.train.first >= end {
                break;
            }
            let from = start.saturating_sub(sent.train.first);
            let to = (end - sent.train.first).min(u64::from(sent.train.count));
            let new = mask(from as u32, to as u32) & !sent.acked;
            if new == 0 {
                continue;
            }
            let again = new & sent.lost;
            sent.acked |= new;
            sent.lost &= !new;
            self.newest_acked_sent = self.newest_acked_sent.max(sent.sent_at);
            for (bits, spurious) in [(new & !again, false), (again, true)] {
                for_runs(bits, |from, to| each(sent, Part { from, to, spurious }));
            }
        }
        self.settle();
        Ok(())
    }

    /// Declares packets lost that were sent `window` before a later packet that arrived, or that a
    /// later packet overtook and that are older than `overdue`. Calls `each` with every part.
    pub(crate) fn detect(
        &mut self,
        now: Time,
        window: Duration,
        overdue: Duration,
        mut each: impl FnMut(&Sent, Part),
    ) {
        for sent in self.trains.range_mut(self.settled..) {
            if sent.train.first >= self.acked_to {
                break;
            }
            let overtaken = sent.sent_at + window <= self.newest_acked_sent;
            if !overtaken && now.since(sent.sent_at) < overdue {
                break;
            }
            let below = (self.acked_to - sent.train.first).min(u64::from(sent.train.count));
            let bits = mask(0, below as u32) & !(sent.acked | sent.lost);
            sent.lost |= bits;
            for_runs(bits, |from, to| each(sent, Part { from, to, spurious: false }));
        }
        self.settle();
    }

    /// Declares all open packets lost.
    pub(crate) fn abandon(&mut self, mut each: impl FnMut(&Sent, Part)) {
        for sent in self.trains.range_mut(self.settled..) {
            let bits = sent.all() & !(sent.acked | sent.lost);
            sent.lost |= bits;
            for_runs(bits, |from, to| each(sent, Part { from, to, spurious: false }));
        }
        self.settle();
    }

    /// When the oldest open packet that a later one overtook will be overdue.
    pub(crate) fn deadline(&self, overdue: Duration) -> Option<Time> {
        let sent = self.trains.get(self.settled)?;
        let below = self.acked_to.checked_sub(sent.train.first)?.min(u64::from(sent.train.count));
        let open = mask(0, below as u32) & !(sent.acked | sent.lost);
        (open != 0).then(|| sent.sent_at + overdue)
    }

    /// Drops settled trains at the front. Those with lost packets are kept for `keep`, to recognise
    /// late arrivals.
    pub(crate) fn forget(&mut self, now: Time, keep: Duration) {
        while self.settled > 0 {
            let Some(front) = self.trains.front() else { break };
            if front.lost != 0 && now.since(front.sent_at) < keep {
                break;
            }
            self.trains.pop_front();
            self.settled -= 1;
        }
        let floor = self.trains.front().map_or(self.next, |s| s.train.first);
        while self
            .skipped
            .front()
            .is_some_and(|pn| *pn + crate::config::limits::WINDOW_PACKETS < floor)
        {
            self.skipped.pop_front();
        }
    }

    fn settle(&mut self) {
        while let Some(sent) = self.trains.get(self.settled)
            && sent.acked | sent.lost == sent.all()
        {
            self.settled += 1;
        }
    }
}

/// The bits `from..to`.
fn mask(from: u32, to: u32) -> u64 {
    if from >= to {
        return 0;
    }
    (u64::MAX >> (64 - (to - from))) << from
}

/// Calls `each` with every run of ones.
fn for_runs(mut bits: u64, mut each: impl FnMut(u32, u32)) {
    while bits != 0 {
        let from = bits.trailing_zeros();
        let to = from + (!(bits >> from)).trailing_zeros();
        each(from, to);
        bits &= !mask(from, to);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Time {
        Time::ZERO + Duration::from_millis(n)
    }

    fn ledger(trains: &[(u64, u32)]) -> Ledger {
        let mut ledger = Ledger::default();
        for &(at, count) in trains {
            let train = Train { first: ledger.next(), count, size: 100, last: 50, offset: 0 };
            ledger.push(Sent::new(train, train.first, ms(at)));
        }
        ledger
    }

    fn lost(ledger: &mut Ledger, now: u64) -> Vec<(u64, u32, u32)> {
        let mut lost = Vec::new();
        let (window, overdue) = (Duration::from_millis(5), Duration::from_millis(50));
        ledger.detect(ms(now), window, overdue, |s, p| lost.push((s.train.first, p.from, p.to)));
        lost
    }

    #[test]
    fn later_trains_convict_earlier_packets() {
        let mut ledger = ledger(&[(0, 44), (10, 44), (12, 44)]);
        ledger.ack(0, 10, |_, _| {}).unwrap();
        assert_eq!(lost(&mut ledger, 20), [], "nothing later arrived");
        ledger.ack(44, 50, |_, _| {}).unwrap();
        assert_eq!(lost(&mut ledger, 20), [(0, 10, 44)]);
        assert_eq!(ledger.deadline(Duration::from_millis(50)), None);
        ledger.ack(60, 61, |_, _| {}).unwrap();
        assert_eq!(ledger.deadline(Duration::from_millis(50)), Some(ms(60)));
        assert_eq!(lost(&mut ledger, 60), [(44, 6, 16)]);
    }

    #[test]
    fn a_late_arrival_is_spurious_once() {
        let mut ledger = ledger(&[(0, 4), (10, 4)]);
        ledger.ack(4, 8, |_, _| {}).unwrap();
        assert_eq!(lost(&mut ledger, 20), [(0, 0, 4)]);
        let mut parts = Vec::new();
        ledger.ack(0, 8, |_, p| parts.push((p.from, p.to, p.spurious))).unwrap();
        ledger.ack(0, 8, |_, _| panic!("twice")).unwrap();
        assert_eq!(parts, [(0, 4, true)]);
        ledger.forget(ms(20), Duration::from_secs(1));
        assert!(ledger.trains.is_empty());
    }

    #[test]
    fn numbers_never_sent_cannot_be_acknowledged() {
        let mut ledger = ledger(&[(0, 4)]);
        assert_eq!(ledger.ack(0, 5, |_, _| {}), Err(Impossible));
        ledger.skip();
        ledger.take();
        assert_eq!(ledger.ack(3, 6, |_, _| {}), Err(Impossible));
        assert_eq!(ledger.ack(5, 6, |_, _| {}), Ok(()));
    }

    #[test]
    fn spans_know_the_short_last_packet() {
        let train = Train { first: 0, count: 3, size: 100, last: 50, offset: 1000 };
        assert_eq!(train.bytes(), 250);
        assert_eq!(train.span(0, 3), (1000, 1250));
        assert_eq!(train.span(1, 2), (1100, 1200));
    }
}
