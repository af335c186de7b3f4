//! Texts about measurements and decisions.

use std::num::NonZeroU32;

use packtrain_units::{DataRate, Duration};

use super::{Measured, StreamCountTuner};

impl StreamCountTuner {
    /// All reasons: steps, samples, models and the curve.
    pub fn reasons(&self) -> Vec<String> {
        let mut lines = self.reasons.clone();
        let sample = |(n, rate): (&u32, &DataRate)| format!("{n}: {rate}");
        let samples: Vec<_> = self.samples.iter().map(sample).collect();
        if !samples.is_empty() {
            lines.push(format!("samples (streams: rate): {}", samples.join(", ")));
        }
        if self.samples.len() < 2 {
            return lines;
        }
        let Some(found) = self.predicted() else { return lines };
        for model in &found.models {
            lines.push(match (&model.invalid, model.optimum) {
                (Some(why), _) => format!("model {}: not valid: {why}", model.name),
                (None, Some(best)) => format!("model {}: {best} streams are best", model.name),
                (None, None) => format!("model {}: it has no best number", model.name),
            });
        }
        let numbers = [1, 2, 4, 8, 16, 24, 32, 48, 64];
        let curve: Vec<String> = numbers
            .into_iter()
            .filter(|n| *n <= self.most)
            .filter_map(NonZeroU32::new)
            .map(|n| format!("{n}: {}", found.at(n).throughput))
            .collect();
        lines.push(format!("curve from all of them: {}", curve.join(", ")));
        let (low, high) = found.interval;
        lines.push(format!(
            "they say: {} streams, {} expected ({low} to {high})",
            found.streams, found.throughput
        ));
        lines
    }
}

/// The text of a measurement, for a reason.
pub(super) fn describe(at: Duration, n: u32, m: &Measured) -> String {
    format!(
        "after {:.1} s: {n} streams move {}, {:.3} % sent again, queue {:.0} ms",
        at.as_secs_f64(),
        rounded(m.rate),
        m.lost * 100.0,
        m.queue.as_secs_f64() * 1e3,
    )
}

/// Rounded to three significant digits.
fn rounded(rate: DataRate) -> DataRate {
    let bps = rate.as_bps();
    let digits = bps.checked_ilog10().unwrap_or(0);
    let unit = 10u64.pow(digits.saturating_sub(2));
    DataRate::from_bps((bps + unit / 2) / unit * unit)
}
