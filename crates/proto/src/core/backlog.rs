//! The ranges of a sender: assigned, to be retransmitted, not yet acknowledged.

use std::collections::VecDeque;
use std::ops::Range;

use packtrain_units::{Offset, RangeSet};

/// The ranges of one sender.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    /// Not sent yet, in the order of assignment.
    fresh: VecDeque<(u64, u64)>,
    fresh_bytes: u64,
    /// Declared lost and not retransmitted yet; lowest first.
    lost: RangeSet<u64>,
    /// Assigned and not acknowledged, sent or not.
    unacked: RangeSet<u64>,
}

/// A piece to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) offset: u64,
    pub(crate) len: u64,
    pub(crate) repeat: bool,
}

impl Backlog {
    /// Bytes assigned and not acknowledged.
    pub(crate) fn unacked(&self) -> u64 {
        self.unacked.count()
    }

    /// Bytes not sent yet.
    pub(crate) fn fresh(&self) -> u64 {
        self.fresh_bytes
    }

    /// Bytes that could be sent now.
    pub(crate) fn sendable(&self) -> u64 {
        self.fresh_bytes + self.lost.count()
    }

    pub(crate) fn is_done(&self) -> bool {
        self.unacked.is_empty()
    }

    pub(crate) fn assign(&mut self, a: u64, b: u64) {
        if a >= b {
            return;
        }
        self.unacked.insert(a..b);
        self.fresh_bytes += b - a;
        match self.fresh.back_mut() {
            Some(back) if back.1 == a => back.1 = b,
            _ => self.fresh.push_back((a, b)),
        }
    }

    /// The next piece to send: retransmissions first unless `skip_lost`.
    pub(crate) fn next(&self, skip_lost: bool) -> Option<Piece> {
        if !skip_lost && let Some(Range { start, end }) = self.lost.first() {
            return Some(Piece { offset: start, len: end - start, repeat: true });
        }
        let (a, b) = self.fresh.front()?;
        Some(Piece { offset: *a, len: b - a, repeat: false })
    }

    /// The first `n` bytes of the piece that `next` returned were sent.
    pub(crate) fn advance(&mut self, repeat: bool, n: u64) {
        if repeat {
            self.lost.pop_front(n);
            return;
        }
        if let Some(front) = self.fresh.front_mut() {
            front.0 += n;
            self.fresh_bytes -= n;
            if front.0 >= front.1 {
                self.fresh.pop_front();
            }
        }
    }

    /// `a..b` arrived: calls `new` with each part that was not known to have arrived.
    pub(crate) fn acked(&mut self, a: u64, b: u64, mut new: impl FnMut(u64, u64)) {
        if !self.lost.is_empty() {
            self.lost.remove(a..b);
        }
        self.unacked.remove_with(a..b, |part| new(part.start, part.end));
    }

    /// `a..b` arrived: appends the part that was not known to have arrived to `released`.
    pub(crate) fn release(&mut self, a: u64, b: u64, released: &mut Vec<Range<Offset>>) {
        self.acked(a, b, |a, b| match released.last_mut() {
            Some(last) if last.end.get() == a => last.end = Offset(b),
            _ => released.push(Offset(a)..Offset(b)),
        });
    }

    /// Puts the unacknowledged part of `a..b`, which must have been sent, before all other data to
    /// send.
    pub(crate) fn send_first(&mut self, a: u64, b: u64) {
        let mut at = b;
        while at > a {
            let Some(part) = self.unacked.last_before(at).filter(|part| part.end > a) else {
                break;
            };
            let (start, end) = (part.start.max(a), part.end.min(at));
            self.fresh_bytes += end - start;
            match self.fresh.front_mut() {
                Some(front) if front.0 == end => front.0 = start,
                _ => self.fresh.push_front((start, end)),
            }
            at = start;
        }
    }

    /// `a..b` was lost: its unacknowledged part will be retransmitted.
    pub(crate) fn lost(&mut self, a: u64, b: u64) {
        for part in self.unacked.intersect(a..b) {
            self.lost.insert(part);
        }
    }

    /// Takes back the unacknowledged part of `a..b`.
    pub(crate) fn revoke(&mut self, a: u64, b: u64, mut returned: impl FnMut(u64, u64)) {
        self.lost.remove(a..b);
        self.unacked.remove_with(a..b, |part| returned(part.start, part.end));
        let fresh = std::mem::take(&mut self.fresh);
        self.fresh_bytes = 0;
        for (s, e) in fresh {
            for (s, e) in [(s, e.min(a)), (s.max(b), e)] {
                if s < e {
                    self.fresh.push_back((s, e));
                    self.fresh_bytes += e - s;
                }
            }
        }
    }

    /// The lowest unacknowledged bytes, at most `limit`, for a tail probe.
    pub(crate) fn oldest(&self, limit: u64) -> Option<(u64, u64)> {
        let Range { start: a, end: b } = self.unacked.first()?;
        let sent = self.fresh.front().filter(|(s, _)| *s >= a).map_or(b, |(s, _)| b.min(*s));
        (a < sent).then(|| (a, sent.min(a + limit)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acked(backlog: &mut Backlog, a: u64, b: u64) -> Vec<(u64, u64)> {
        let mut new = Vec::new();
        backlog.acked(a, b, |s, e| new.push((s, e)));
        new
    }

    #[test]
    fn each_byte_is_acknowledged_once() {
        let mut backlog = Backlog::default();
        backlog.assign(0, 100);
        backlog.assign(100, 200);
        assert_eq!(backlog.next(false), Some(Piece { offset: 0, len: 200, repeat: false }));
        backlog.advance(false, 150);
        backlog.lost(10, 30);
        assert_eq!(backlog.next(false), Some(Piece { offset: 10, len: 20, repeat: true }));
        assert_eq!(backlog.next(true), Some(Piece { offset: 150, len: 50, repeat: false }));
        assert_eq!(acked(&mut backlog, 0, 20), [(0, 20)]);
        assert_eq!(backlog.next(false), Some(Piece { offset: 20, len: 10, repeat: true }));
        assert_eq!(acked(&mut backlog, 0, 150), [(20, 150)]);
        backlog.lost(0, 150);
        assert_eq!(backlog.sendable(), 50, "what is acknowledged is never repeated");
        assert_eq!(backlog.unacked(), 50);
    }

    #[test]
    fn what_is_to_be_sent_again_comes_first() {
        let mut backlog = Backlog::default();
        backlog.assign(0, 100);
        backlog.assign(200, 300);
        backlog.advance(false, 80);
        assert_eq!(acked(&mut backlog, 20, 40), [(20, 40)]);
        backlog.send_first(10, 60);
        backlog.send_first(70, 80);
        assert_eq!(backlog.fresh(), 10 + 20 + 10 + 20 + 100);
        assert_eq!(backlog.next(true), Some(Piece { offset: 70, len: 10, repeat: false }));
        backlog.advance(false, 10);
        assert_eq!(backlog.next(true), Some(Piece { offset: 10, len: 10, repeat: false }));
        backlog.advance(false, 10);
        assert_eq!(backlog.next(true), Some(Piece { offset: 40, len: 20, repeat: false }));
    }

    #[test]
    fn revoked_ranges_are_neither_sent_nor_repeated() {
        let mut backlog = Backlog::default();
        backlog.assign(0, 100);
        backlog.advance(false, 40);
        backlog.lost(0, 10);
        assert_eq!(acked(&mut backlog, 10, 20), [(10, 20)]);
        let mut returned = Vec::new();
        backlog.revoke(5, 60, |s, e| returned.push((s, e)));
        assert_eq!(returned, [(5, 10), (20, 60)]);
        assert_eq!(backlog.unacked(), 5 + 40);
        assert_eq!(backlog.sendable(), 5 + 40);
        backlog.lost(0, 100);
        assert_eq!(backlog.next(false), Some(Piece { offset: 0, len: 5, repeat: true }));
        backlog.advance(true, 5);
        assert_eq!(backlog.next(false), Some(Piece { offset: 60, len: 40, repeat: true }));
    }
}
