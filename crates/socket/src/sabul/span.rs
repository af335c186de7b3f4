//! The received or acknowledged ranges of a stream whose first part is contiguous.

use std::ops::Range;

use packtrain_units::RangeSet;

/// An edge below which everything is present, and ranges beyond it.
#[derive(Debug, Default)]
pub(super) struct Span {
    edge: u64,
    /// Ranges that do not touch the edge.
    beyond: RangeSet<u64>,
}

impl Span {
    pub(super) fn edge(&self) -> u64 {
        self.edge
    }

    /// Number of bytes beyond the edge.
    pub(super) fn beyond(&self) -> u64 {
        self.beyond.count()
    }

    /// Adds a range; returns whether any of its bytes was new.
    pub(super) fn insert(&mut self, range: Range<u64>) -> bool {
        let new = self.beyond.insert(range.start.max(self.edge)..range.end);
        if let Some(first) = self.beyond.first().filter(|first| first.start == self.edge) {
            self.edge = first.end;
            self.beyond.pop_front(u64::MAX);
        }
        new > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_join_in_any_order() {
        let mut span = Span::default();
        assert!(span.insert(10..20) && span.insert(30..40) && span.insert(18..25));
        assert!(!span.insert(12..24) && !span.insert(5..5));
        assert_eq!((span.edge(), span.beyond()), (0, 25));
        assert!(span.insert(25..30));
        assert_eq!(span.beyond(), 30);
        assert!(span.insert(0..10));
        assert_eq!((span.edge(), span.beyond()), (40, 0));
        assert!(!span.insert(0..40));
    }

    #[test]
    fn it_is_what_a_table_of_bytes_is() {
        let mut seed = 1u64;
        let mut next = |most: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % most
        };
        for _ in 0..200 {
            let (mut span, mut table) = (Span::default(), [false; 64]);
            for _ in 0..40 {
                let start = next(60);
                let end = start + next(10).min(64 - start);
                let new = (start..end).any(|at| !table[at as usize]);
                assert_eq!(span.insert(start..end), new);
                table[start as usize..end as usize].fill(true);
                let edge = table.iter().take_while(|here| **here).count();
                let all = table.iter().filter(|here| **here).count();
                assert_eq!((span.edge(), span.beyond()), (edge as u64, (all - edge) as u64));
            }
        }
    }
}
