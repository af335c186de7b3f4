//! The positions and labels of the ticks of an axis.

/// The range of an axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Scale {
    low: f64,
    high: f64,
    log: bool,
}

impl Scale {
    /// A range that contains all of these values, with round limits.
    pub(super) fn over(values: impl Iterator<Item = f64>, log: bool, zero: bool) -> Self {
        let good = values.filter(|value| value.is_finite() && (!log || *value > 0.0));
        let (mut low, mut high) = good
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
                (low.min(value), high.max(value))
            });
        if low > high {
            (low, high) = if log { (1.0, 10.0) } else { (0.0, 1.0) };
        }
        if log {
            let (mut low, mut high) = (low.log10(), high.log10());
            if high - low < 0.3 {
                (low, high) = (low - 0.2, high + 0.2);
            }
            let room = (high - low) * 0.04;
            return Self { low: low - room, high: high + room, log };
        }
        if zero {
            (low, high) = (low.min(0.0), high.max(0.0));
        }
        if high - low <= f64::EPSILON * high.abs() {
            (low, high) = if low == 0.0 { (0.0, 1.0) } else { (low - low.abs() * 0.5, high * 1.5) };
        }
        if zero && low == 0.0 {
            Self { low, high: high * 1.06, log }
        } else {
            Self { low, high, log }
        }
    }

    /// The same range with the maximum value as its upper limit.
    pub(super) fn tight(self, values: impl Iterator<Item = f64>) -> Self {
        let high = values.filter(|value| value.is_finite()).fold(f64::NEG_INFINITY, f64::max);
        if high > self.low { Self { high, ..self } } else { self }
    }

    /// The range with exactly these limits.
    pub(super) fn exact(low: f64, high: f64) -> Self {
        Self { low, high, log: false }
    }

    /// The position of a value, from 0 at the lower limit to 1; none if it cannot be drawn.
    pub(super) fn place(&self, value: f64) -> Option<f64> {
        let value = if self.log { value.log10() } else { value };
        value.is_finite().then(|| (value - self.low) / (self.high - self.low))
    }

    /// Ticks with labels, about `count` of them.
    pub(super) fn ticks(&self, count: usize) -> Vec<(f64, String)> {
        if self.log { self.decades(count) } else { self.even(count) }
    }

    fn even(&self, count: usize) -> Vec<(f64, String)> {
        let raw = (self.high - self.low) / count.max(1) as f64;
        let power = 10f64.powf(raw.log10().floor());
        let step = [1.0, 2.0, 2.5, 5.0, 10.0].map(|m| m * power).into_iter().find(|s| *s >= raw);
        let step = step.unwrap_or(power * 10.0);
        let (first, last) = ((self.low / step).ceil(), (self.high / step + 1e-9).floor());
        if !(last - first).is_finite() || last - first > 100.0 {
            return Vec::new();
        }
        let tick = |n: f64| (n * step, plain(n * step, step));
        (0..=(last - first) as usize).map(|n| tick(first + n as f64)).collect()
    }

    fn decades(&self, count: usize) -> Vec<(f64, String)> {
        let (first, last) = (self.low.ceil() as i32, self.high.floor() as i32);
        let decades = usize::try_from(last - first + 1).unwrap_or(0);
        let stride = decades.div_ceil(count.max(1)).max(1);
        let mut ticks: Vec<f64> = (first..=last).step_by(stride).map(|e| 10f64.powi(e)).collect();
        if decades < 3 {
            // Intermediate ticks between powers of ten.
            let low = self.low.floor() as i32;
            ticks = (low..=last.max(low))
                .flat_map(|e| [1.0, 2.0, 5.0].map(|m| m * 10f64.powi(e)))
                .filter(|value| self.place(*value).is_some_and(|at| (0.0..=1.0).contains(&at)))
                .collect();
        }
        ticks.into_iter().map(|value| (value, short(value))).collect()
    }
}

/// A number with as many digits as steps of `step` need.
fn plain(value: f64, step: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    if value.abs() >= 1e6 || step < 1e-5 {
        return short(value);
    }
    // 2.5 has one digit more than its power of ten.
    let digits = (0..8).find(|&d| {
        let shifted = step * 10f64.powi(d);
        (shifted - shifted.round()).abs() < 1e-6
    });
    let digits = usize::try_from(digits.unwrap_or(8)).unwrap_or(0);
    format!("{value:.digits$}").replace('-', "\u{2013}")
}

/// A number with as few characters as possible.
pub(super) fn short(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    if (1e-3..1e6).contains(&value.abs()) {
        let text = format!("{value:.6}");
        return text.trim_end_matches('0').trim_end_matches('.').to_owned();
    }
    let exponent = value.abs().log10().floor();
    let mantissa = value / 10f64.powf(exponent);
    let raised: String = format!("{exponent}")
        .chars()
        .map(|letter| match letter {
            '-' => '⁻',
            digit => ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹']
                [digit.to_digit(10).unwrap_or(0) as usize],
        })
        .collect();
    let rounded = (mantissa * 100.0).round() / 100.0;
    if rounded == 1.0 { format!("10{raised}") } else { format!("{rounded}×10{raised}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(scale: Scale, count: usize) -> Vec<String> {
        scale.ticks(count).into_iter().map(|tick| tick.1).collect()
    }

    #[test]
    fn round_numbers() {
        let scale = Scale::over([0.0, 9.4].into_iter(), false, true);
        assert_eq!(labels(scale, 5), ["0", "2", "4", "6", "8"]);
        let scale = Scale::over([0.0, 1.0].into_iter(), false, true);
        assert_eq!(labels(scale, 5), ["0", "0.25", "0.50", "0.75", "1.00"]);
        let scale = Scale::over([1e-4, 1e-1].into_iter(), true, false);
        assert_eq!(labels(scale, 6), ["10⁻⁴", "0.001", "0.01", "0.1"]);
        let scale = Scale::over([2e-3, 3e-2].into_iter(), true, false);
        assert_eq!(labels(scale, 6), ["0.002", "0.005", "0.01", "0.02"]);
    }

    #[test]
    fn odd_values_have_a_scale() {
        for values in [vec![], vec![f64::NAN], vec![5.0], vec![0.0], vec![-1.0, 1e300]] {
            for (log, zero) in [(true, false), (false, true), (false, false)] {
                let scale = Scale::over(values.iter().copied(), log, zero);
                assert!(scale.low < scale.high, "{values:?} {scale:?}");
                assert!(scale.ticks(6).len() < 200);
            }
        }
    }
}
