//! The bytes of each data unit in flight.

use std::collections::VecDeque;

use crate::core::ledger::Train;

/// Units with consecutive numbers and consecutive offsets, all of one size but the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    first: u64,
    count: u64,
    offset: u64,
    size: u16,
    last: u16,
    /// They will not be delivered.
    dropped: bool,
}

impl Run {
    fn end(&self) -> u64 {
        self.first + self.count
    }

    /// The offsets of the units `from..to`, which lie in this run.
    fn span(&self, from: u64, to: u64) -> (u64, u64) {
        let at = |unit: u64| {
            let whole = self.offset + (unit - self.first) * u64::from(self.size);
            let short = if unit == self.end() { self.size - self.last } else { 0 };
            whole - u64::from(short)
        };
        (at(from), at(to))
    }

    /// The part from unit `from` to `to`.
    fn part(&self, from: u64, to: u64) -> Self {
        Self {
            first: from,
            count: to - from,
            offset: self.span(from, from.min(self.end() - 1)).0,
            last: if to == self.end() { self.last } else { self.size },
            ..*self
        }
    }
}

/// The units planned and not yet acknowledged. A long range of the object is one entry, so memory
/// does not grow with the packets in flight.
#[derive(Debug, Default)]
pub(crate) struct UnitMap {
    runs: VecDeque<Run>,
    next: u64,
}

impl UnitMap {
    /// The number of the next unit to be planned.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Numbers the packets of a train.
    pub(crate) fn plan(&mut self, train: &Train) {
        let Train { count, size, last, offset, .. } = *train;
        let count = u64::from(count);
        match self.runs.back_mut() {
            Some(back)
                if !back.dropped
                    && back.size == size
                    && back.last == size
                    && back.span(back.first, back.end()).1 == offset =>
            {
                back.count += count;
                back.last = last;
            }
            _ => {
                let run = Run { first: self.next, count, offset, size, last, dropped: false };
                self.runs.push_back(run);
            }
        }
        self.next += count;
    }

    /// Offset, size of each and of the last, and number of the units from `first` on, at most
    /// `max`, that are consecutive in the object.
    pub(crate) fn find(&self, first: u64, max: u32) -> Option<(u64, u16, u16, u32)> {
        let at = self.runs.partition_point(|run| run.end() <= first);
        let run = self.runs.get(at).filter(|run| run.first <= first && !run.dropped)?;
        let to = run.end().min(first + u64::from(max));
        let part = run.part(first, to);
        Some((part.offset, part.size, part.last, part.count as u32))
    }

    /// All units below `to` are acknowledged: calls `each` with the bytes of those that were to be
    /// delivered, and the size of the largest of these units.
    pub(crate) fn forget(&mut self, to: u64, mut each: impl FnMut(u64, u64, u16)) {
        while let Some(front) = self.runs.front_mut() {
            if front.first >= to {
                break;
            }
            let end = front.end().min(to);
            if !front.dropped {
                let (a, b) = front.span(front.first, end);
                each(a, b, if front.first + 1 < front.end() { front.size } else { front.last });
            }
            if end < front.end() {
                *front = front.part(end, front.end());
                break;
            }
            self.runs.pop_front();
        }
    }

    /// Drops every unit with a byte in `a..b`: calls `each` with their unit range and their byte
    /// range.
    pub(crate) fn drop_bytes(&mut self, a: u64, b: u64, each: impl FnMut(u64, u64, u64, u64)) {
        self.drop_parts(each, |run| {
            let (from, to) = run.span(run.first, run.end());
            if to <= a || b <= from {
                return None;
            }
            let size = u64::from(run.size);
            let first = run.first + a.saturating_sub(from) / size;
            let end = (run.first + (b.min(to) - from).div_ceil(size)).min(run.end());
            Some((first, end))
        });
    }

    /// Drops every unit larger than `size`.
    pub(crate) fn drop_larger(&mut self, size: u16, each: impl FnMut(u64, u64, u64, u64)) {
        self.drop_parts(each, |run| {
            let largest = if run.count == 1 { run.last } else { run.size };
            (largest > size).then_some((run.first, run.end()))
        });
    }

    fn drop_parts(
        &mut self,
        mut each: impl FnMut(u64, u64, u64, u64),
        part: impl Fn(&Run) -> Option<(u64, u64)>,
    ) {
        let touched = |run: &Run| if run.dropped { None } else { part(run) };
        if !self.runs.iter().any(|run| touched(run).is_some()) {
            return;
        }
        for run in std::mem::take(&mut self.runs) {
            let Some((first, end)) = touched(&run) else {
                self.runs.push_back(run);
                continue;
            };
            let (a, b) = run.span(first, end);
            each(first, end, a, b);
            if run.first < first {
                self.runs.push_back(run.part(run.first, first));
            }
            self.runs.push_back(Run { dropped: true, ..run.part(first, end) });
            if end < run.end() {
                self.runs.push_back(run.part(end, run.end()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn train(count: u32, size: u16, last: u16, offset: u64) -> Train {
        Train { first: 0, count, size, last, offset }
    }

    #[test]
    fn a_long_range_is_one_entry() {
        let mut map = UnitMap::default();
        for i in 0..1000u64 {
            map.plan(&train(44, 100, 100, i * 4400));
        }
        map.plan(&train(2, 100, 7, 4_400_000));
        map.plan(&train(1, 100, 9, 4_400_107));
        assert_eq!((map.runs.len(), map.next()), (2, 44_003));
        assert_eq!(map.find(44_001, 9), Some((4_400_100, 100, 7, 1)));
        assert_eq!(map.find(10, 44), Some((1000, 100, 100, 44)));
        assert_eq!(map.find(44_003, 1), None);
        let mut spans = Vec::new();
        map.forget(44_002, |a, b, _| spans.push((a, b)));
        assert_eq!(spans, [(0, 4_400_107)]);
    }

    /// The expected contents of the map: the bytes of each unit that is to be delivered.
    type Model = Vec<Option<(u64, u64)>>;

    fn dropped(map: &mut UnitMap, model: &mut Model, a: u64, b: u64) {
        let acked = map.runs.front().map_or(map.next, |run| run.first);
        let mut told = Vec::new();
        map.drop_bytes(a, b, |first, end, x, y| {
            assert_eq!(model[first as usize].unwrap().0, x);
            assert_eq!(model[end as usize - 1].unwrap().1, y);
            told.extend(first..end);
        });
        let touched: Vec<u64> = (acked..map.next)
            .filter(|u| model[*u as usize].is_some_and(|(x, y)| x < b && y > a))
            .collect();
        assert_eq!(told, touched);
        told.iter().for_each(|u| model[*u as usize] = None);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        #[test]
        fn agrees_with_a_list_of_units(
            steps in proptest::collection::vec((0u8..6, 1u32..9, 1u16..=20, any::<u16>()), 1..60)
        ) {
            let (mut map, mut model, mut at) = (UnitMap::default(), Model::new(), 0u64);
            let mut acked = 0;
            for (kind, count, last, dice) in steps {
                match kind {
                    0..3 => {
                        let last = if kind == 0 { 20 } else { last };
                        at += u64::from(dice % 3 == 0) * u64::from(dice % 50);
                        map.plan(&train(count, 20, last, at));
                        for i in 0..count {
                            let size = if i + 1 == count { last } else { 20 };
                            model.push(Some((at, at + u64::from(size))));
                            at += u64::from(size);
                        }
                    }
                    3 => {
                        let a = u64::from(dice) % (at + 1);
                        dropped(&mut map, &mut model, a, a + u64::from(count) * 11);
                    }
                    4 => {
                        let to = (acked + u64::from(count)).min(map.next());
                        let mut bytes = 0;
                        map.forget(to, |a, b, _| bytes += b - a);
                        let want: u64 =
                            (acked..to).filter_map(|u| model[u as usize]).map(|(a, b)| b - a).sum();
                        prop_assert_eq!(bytes, want);
                        acked = to;
                    }
                    _ => {
                        map.drop_larger(last, |first, end, _, _| {
                            (first..end).for_each(|u| model[u as usize] = None);
                        });
                        for unit in acked..map.next() {
                            let size = model[unit as usize].map_or(0, |(a, b)| b - a);
                            prop_assert!(size <= u64::from(last));
                        }
                    }
                }
                for unit in acked..map.next() {
                    let found = map.find(unit, 1).map(|(a, _, last, _)| (a, a + u64::from(last)));
                    prop_assert_eq!(found, model[unit as usize], "unit {}", unit);
                }
            }
        }
    }
}
