//! Mixtures of normal densities over a few features, some of which may be missing.

use serde::{Deserialize, Serialize};

/// Maximum features of a density.
pub(crate) const MAX_FEATURES: usize = 16;
/// ln of 2 pi.
const LN_TWO_PI: f64 = 1.837_877_066_409_345_3;

/// A weighted sum of normal densities.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Mixture {
    /// Its parts, whose weights sum to 1.
    pub parts: Vec<Part>,
}

/// One normal density of a mixture.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// Weight in the mixture.
    pub weight: f64,
    /// Means of the features.
    pub mean: Vec<f64>,
    /// Lower triangle of their covariance, row by row.
    pub covariance: Vec<f64>,
}

impl Part {
    /// Covariance of features `i` and `j`.
    pub(crate) fn covariance(&self, i: usize, j: usize) -> f64 {
        let (i, j) = (i.max(j), i.min(j));
        self.covariance[i * (i + 1) / 2 + j]
    }

    /// ln of the density of the known features; the others are integrated out.
    fn ln_density(&self, values: &[Option<f64>]) -> f64 {
        let mut present = [0usize; MAX_FEATURES];
        let mut apart = [0f64; MAX_FEATURES];
        let mut count = 0;
        for (index, (value, mean)) in values.iter().zip(&self.mean).enumerate() {
            if let Some(value) = value {
                present[count] = index;
                apart[count] = value - mean;
                count += 1;
            }
        }
        let mut factor = [[0f64; MAX_FEATURES]; MAX_FEATURES];
        let mut ln = 0.0;
        for i in 0..count {
            let (above, from_here) = factor.split_at_mut(i);
            let row = &mut from_here[0];
            for j in 0..i {
                let known: f64 = (0..j).map(|k| row[k] * above[j][k]).sum();
                row[j] = (self.covariance(present[i], present[j]) - known) / above[j][j];
            }
            let known: f64 = row[..i].iter().map(|value| value * value).sum();
            let pivot = self.covariance(present[i], present[i]) - known;
            if pivot <= 0.0 {
                return f64::NEG_INFINITY;
            }
            row[i] = pivot.sqrt();
            // Forward substitution in the same pass: the distance is the sum of squares.
            let known: f64 = (0..i).map(|k| row[k] * apart[k]).sum();
            apart[i] = (apart[i] - known) / row[i];
            ln -= 0.5 * apart[i] * apart[i] + row[i].ln();
        }
        ln - 0.5 * LN_TWO_PI * count as f64
    }

    /// Whether it is a valid density of `features` features.
    fn is_valid(&self, features: usize) -> bool {
        let sizes = self.mean.len() == features
            && self.covariance.len() == features * (features + 1) / 2
            && (0.0..=1.0).contains(&self.weight);
        let finite = self.mean.iter().chain(&self.covariance).all(|value| value.is_finite());
        let at_mean: Vec<_> = self.mean.iter().copied().map(Some).collect();
        sizes && finite && features <= MAX_FEATURES && self.ln_density(&at_mean).is_finite()
    }
}

impl Mixture {
    /// ln of the density of the known features; minus infinity without parts.
    pub fn ln_density(&self, values: &[Option<f64>]) -> f64 {
        ln_sum(self.parts.iter().map(|part| part.weight.ln() + part.ln_density(values)))
    }

    /// Whether all parts are valid densities of `features` features.
    pub(crate) fn is_valid(&self, features: usize) -> bool {
        !self.parts.is_empty() && self.parts.iter().all(|part| part.is_valid(features))
    }
}

/// ln of the sum of exponentials of `values`.
pub(crate) fn ln_sum(values: impl Iterator<Item = f64> + Clone) -> f64 {
    let max = values.clone().fold(f64::NEG_INFINITY, f64::max);
    if max == f64::NEG_INFINITY {
        return max;
    }
    max + values.map(|value| (value - max).exp()).sum::<f64>().ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(weight: f64, mean: &[f64], covariance: &[f64]) -> Part {
        Part { weight, mean: mean.to_vec(), covariance: covariance.to_vec() }
    }

    #[test]
    fn densities_by_hand() {
        let one = part(1.0, &[1.0], &[4.0]);
        let expected = -0.5 * LN_TWO_PI - 2f64.ln() - 0.5;
        assert!((one.ln_density(&[Some(3.0)]) - expected).abs() < 1e-12);
        // Correlation 0.6: determinant 0.64, inverse (1, -0.6; -0.6, 1) / 0.64.
        let two = part(1.0, &[0.0, 0.0], &[1.0, 0.6, 1.0]);
        let distance = (1.0 + 4.0 - 2.0 * 0.6 * 2.0) / 0.64;
        let expected = -LN_TWO_PI - 0.5 * 0.64f64.ln() - 0.5 * distance;
        assert!((two.ln_density(&[Some(1.0), Some(2.0)]) - expected).abs() < 1e-12);
    }

    #[test]
    fn a_missing_feature_is_integrated_out() {
        let three = part(1.0, &[1.0, 2.0, 3.0], &[2.0, 0.5, 1.0, 0.3, -0.4, 3.0]);
        let two = part(1.0, &[1.0, 3.0], &[2.0, 0.3, 3.0]);
        let there = [Some(0.5), None, Some(4.0)];
        assert!((three.ln_density(&there) - two.ln_density(&[there[0], there[2]])).abs() < 1e-12);
        assert!(three.ln_density(&[None, None, None]).abs() < 1e-12);
    }

    #[test]
    fn what_is_no_density_is_refused() {
        let valid = |part: Part| Mixture { parts: vec![part] }.is_valid(2);
        assert!(valid(part(1.0, &[0.0, 0.0], &[1.0, 0.5, 1.0])));
        assert!(!valid(part(1.0, &[0.0, 0.0], &[1.0, 2.0, 1.0])));
        assert!(!valid(part(1.0, &[0.0, f64::NAN], &[1.0, 0.5, 1.0])));
        assert!(!valid(part(1.0, &[0.0], &[1.0])));
        assert!(!Mixture::default().is_valid(2));
        assert!(Mixture::default().ln_density(&[Some(1.0)]) == f64::NEG_INFINITY);
    }
}
