//! The moving average of the paper.

/// Weight of the past in every moving average (section III.B, under (1)).
pub(super) const ALPHA: f64 = 0.875;

/// An exponentially weighted moving average that starts at its first sample. The paper does not
/// define the start; from zero it would need forty reports to come within half a per cent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Average(Option<f64>);

impl Average {
    /// Starting at `value`.
    pub(super) fn from(value: f64) -> Self {
        Self(Some(value))
    }

    pub(super) fn add(&mut self, sample: f64) {
        self.0 = Some(self.0.map_or(sample, |old| old * ALPHA + sample * (1.0 - ALPHA)));
    }

    pub(super) fn get(self) -> Option<f64> {
        self.0
    }
}
