//! Deviations of a real curve from its shape, and of measurements from the curve.
//!
//! Both are relative, so the model is in logarithms: ln Th = shape + height + stray + noise. The
//! height is free, the stray is a Gaussian process over ln n, the noise is independent.

use super::point::Point;

/// Standard deviation of the height: large compared with all information in the samples.
const HEIGHT: f64 = 3.0;

/// Standard deviation of the stray.
const STRAY: f64 = 0.1;

/// Correlation lengths of the stray in ln n: a factor of e in streams, or a third of it.
const LENGTHS: [f64; 2] = [1.0, 0.3];

/// Standard deviations of a measurement.
const NOISES: [f64; 4] = [0.01, 0.03, 0.1, 0.2];

/// One assumption about stray and noise, evaluated for the positions of the samples.
#[derive(Clone, Debug)]
pub(crate) struct Residual {
    length: f64,
    noise: f64,
    ln_n: Vec<f64>,
    /// The lower triangle L of the covariance L L' of the samples, row by row.
    lower: Vec<f64>,
    /// ln det L.
    ln_det: f64,
}

/// All assumptions, for samples at these points.
pub(crate) fn all(points: &[Point]) -> Vec<Residual> {
    let pairs = LENGTHS.iter().flat_map(|length| NOISES.iter().map(move |noise| (length, noise)));
    pairs.map(|(length, noise)| Residual::new(*length, *noise, points)).collect()
}

impl Residual {
    fn new(length: f64, noise: f64, points: &[Point]) -> Self {
        let ln_n: Vec<f64> = points.iter().map(|p| p.ln_n).collect();
        let mut found = Self { length, noise, ln_n, lower: Vec::new(), ln_det: 0.0 };
        found.factor();
        found
    }

    fn covariance(&self, one: f64, two: f64) -> f64 {
        let distance = (one - two) / self.length;
        HEIGHT * HEIGHT + STRAY * STRAY * (-0.5 * distance * distance).exp()
    }

    /// Computes the Cholesky factor. The noise keeps every pivot positive.
    fn factor(&mut self) {
        let size = self.ln_n.len();
        self.lower = vec![0.0; size * size];
        for i in 0..size {
            for j in 0..=i {
                let mut sum = self.covariance(self.ln_n[i], self.ln_n[j]);
                if i == j {
                    sum += self.noise * self.noise;
                }
                for k in 0..j {
                    sum -= self.lower[i * size + k] * self.lower[j * size + k];
                }
                self.lower[i * size + j] = if i == j {
                    sum.max(f64::MIN_POSITIVE).sqrt()
                } else {
                    sum / self.lower[j * size + j]
                };
            }
            self.ln_det += self.lower[i * size + i].ln();
        }
    }

    /// L^-1 `values`, in place.
    fn forward(&self, values: &mut [f64]) {
        let size = values.len();
        for i in 0..size {
            let (done, rest) = values.split_at_mut(i);
            let row = &self.lower[i * size..i * size + i];
            let sum: f64 = row.iter().zip(&*done).map(|(l, v)| l * v).sum();
            rest[0] = (rest[0] - sum) / self.lower[i * size + i];
        }
    }

    /// ln of the likelihood of samples that lie `values` above a shape; replaces `values` by L^-1
    /// `values`, which [`Residual::mean`] needs.
    pub(crate) fn ln_likelihood(&self, values: &mut [f64]) -> f64 {
        self.forward(values);
        -0.5 * values.iter().map(|v| v * v).sum::<f64>() - self.ln_det
    }

    /// The weights of a prediction at `ln_n`.
    pub(crate) fn weights(&self, ln_n: f64) -> Weights {
        let mut weights: Vec<f64> =
            self.ln_n.iter().map(|own| self.covariance(*own, ln_n)).collect();
        self.forward(&mut weights);
        let explained: f64 = weights.iter().map(|w| w * w).sum();
        let left = self.covariance(ln_n, ln_n) - explained;
        Weights { weights, variance: left.max(0.0) + self.noise * self.noise }
    }
}

/// The weights of the samples in the prediction for one number of streams.
#[derive(Clone, Debug)]
pub(crate) struct Weights {
    weights: Vec<f64>,
    /// Variance of a measurement there, given the samples and a shape.
    pub(crate) variance: f64,
}

impl Weights {
    /// Expected distance of a measurement above the shape; `values` as [`Residual::ln_likelihood`]
    /// left them.
    pub(crate) fn mean(&self, values: &[f64]) -> f64 {
        self.weights.iter().zip(values).map(|(w, v)| w * v).sum()
    }
}
