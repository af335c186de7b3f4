//! The maximum of the last rounds from three samples: the best, the best after it, and the best
//! after that (Nichols' windowed filter, as in Linux `win_minmax`).

/// Length of the window in rounds.
const WINDOW: u64 = 10;

/// A running maximum over ten rounds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MaxFilter {
    /// Round and value, the greatest first.
    best: [(u64, f64); 3],
}

impl MaxFilter {
    pub(super) fn get(&self) -> f64 {
        self.best[0].1
    }

    /// All values change by `factor`.
    pub(super) fn scale(&mut self, factor: f64) {
        self.best.iter_mut().for_each(|(_, value)| *value *= factor);
    }

    pub(super) fn update(&mut self, round: u64, value: f64) {
        let new = (round, value);
        let [first, second, third] = &mut self.best;
        if value >= first.1 || round.saturating_sub(third.0) > WINDOW {
            self.best = [new; 3];
            return;
        }
        if value >= second.1 {
            (*second, *third) = (new, new);
        } else if value >= third.1 {
            *third = new;
        }
        let age = round.saturating_sub(first.0);
        if age > WINDOW {
            self.best = [self.best[1], self.best[2], new];
            if round.saturating_sub(self.best[0].0) > WINDOW {
                self.best = [self.best[1], self.best[2], new];
            }
        } else if second.0 == first.0 && age > WINDOW / 4 {
            // A quarter of the window without a second best: take one from this quarter.
            (*second, *third) = (new, new);
        } else if third.0 == second.0 && age > WINDOW / 2 {
            *third = new;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_forgets_after_ten_rounds() {
        let mut filter = MaxFilter::default();
        filter.update(0, 9.0);
        (1..=10).for_each(|round| filter.update(round, 5.0));
        assert_eq!(filter.get(), 9.0);
        filter.update(11, 4.0);
        assert_eq!(filter.get(), 5.0);
        filter.update(12, 6.0);
        assert_eq!(filter.get(), 6.0);
        filter.update(40, 1.0);
        assert_eq!(filter.get(), 1.0);
    }
}
