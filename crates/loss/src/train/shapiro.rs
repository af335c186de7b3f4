//! The Shapiro-Wilk test of normality, by Royston's algorithm AS R94 (Applied Statistics 44,
//! 1995, 547-551) for uncensored samples of 3 to 5000 values.

use std::f64::consts::{FRAC_PI_2, PI};

/// W and its p-value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Normality {
    /// The statistic: 1 for values exactly at the expected positions of a normal sample.
    pub w: f64,
    /// Probability of a smaller W for a normal sample.
    pub p: f64,
}

/// Tests a sample; `None` for fewer than 3 or more than 5000 values, or identical values.
pub fn shapiro_wilk(values: &[f64]) -> Option<Normality> {
    let n = values.len();
    if !(3..=5000).contains(&n) || values.iter().any(|value| !value.is_finite()) {
        return None;
    }
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let mean = sorted.iter().sum::<f64>() / n as f64;
    let squares: f64 = sorted.iter().map(|value| (value - mean).powi(2)).sum();
    if squares <= f64::EPSILON * mean.abs().max(f64::MIN_POSITIVE) {
        return None;
    }
    let product: f64 = weights(n).iter().zip(&sorted).map(|(a, x)| a * x).sum();
    let w = (product * product / squares).min(1.0);
    Some(Normality { w, p: significance(w, n) })
}

/// The coefficients of the ordered values, antisymmetric and of unit length.
fn weights(n: usize) -> Vec<f64> {
    if n == 3 {
        return vec![-std::f64::consts::FRAC_1_SQRT_2, 0.0, std::f64::consts::FRAC_1_SQRT_2];
    }
    // Blom's approximation of the expected normal order statistics.
    let m: Vec<f64> = (1..=n).map(|i| quantile((i as f64 - 0.375) / (n as f64 + 0.25))).collect();
    let square: f64 = m.iter().map(|m| m * m).sum();
    let u = 1.0 / (n as f64).sqrt();
    let c = |i: usize| m[i] / square.sqrt();
    let last = c(n - 1) + poly(&[0.0, 0.221157, -0.147981, -2.071190, 4.434685, -2.706056], u);
    let second = c(n - 2) + poly(&[0.0, 0.042981, -0.293762, -1.752461, 5.682633, -3.582633], u);
    let mut a = vec![0.0; n];
    let (fixed, phi) = if n > 5 {
        let left = square - 2.0 * (m[n - 1].powi(2) + m[n - 2].powi(2));
        (2, left / (1.0 - 2.0 * (last * last + second * second)))
    } else {
        (1, (square - 2.0 * m[n - 1].powi(2)) / (1.0 - 2.0 * last * last))
    };
    for i in fixed..n - fixed {
        a[i] = m[i] / phi.sqrt();
    }
    a[n - 1] = last;
    a[0] = -last;
    if fixed == 2 {
        a[n - 2] = second;
        a[1] = -second;
    }
    a
}

/// Probability of a W below `w`, by the normalising transformations of the paper.
fn significance(w: f64, n: usize) -> f64 {
    let size = n as f64;
    if n == 3 {
        let p = 6.0 / PI * (w.sqrt().asin() - 0.75f64.sqrt().asin());
        return p.clamp(0.0, 1.0);
    }
    let y = (1.0 - w).max(f64::MIN_POSITIVE).ln();
    let (y, mean, deviation) = if n <= 11 {
        let gamma = poly(&[-2.273, 0.459], size);
        if y >= gamma {
            return 0.0;
        }
        let mean = poly(&[0.5440, -0.39978, 0.025054, -0.000_671_4], size);
        (-(gamma - y).ln(), mean, poly(&[1.3822, -0.77857, 0.062767, -0.002_032_2], size).exp())
    } else {
        let x = size.ln();
        let mean = poly(&[-1.5861, -0.31082, -0.083751, 0.003_891_5], x);
        (y, mean, poly(&[-0.4803, -0.082676, 0.003_030_2], x).exp())
    };
    0.5 * libm::erfc((y - mean) / deviation / std::f64::consts::SQRT_2)
}

fn poly(coefficients: &[f64], x: f64) -> f64 {
    coefficients.iter().rev().fold(0.0, |sum, c| sum * x + c)
}

/// Quantile of the normal distribution: Newton's method on erfc, from a logistic guess.
pub(super) fn quantile(p: f64) -> f64 {
    let mut x = (p / (1.0 - p)).ln() / (8.0 / PI).sqrt();
    for _ in 0..60 {
        let below = 0.5 * libm::erfc(-x / std::f64::consts::SQRT_2);
        let density = (-0.5 * x * x).exp() / (4.0 * FRAC_PI_2).sqrt();
        let step = ((below - p) / density).clamp(-0.5, 0.5);
        x -= step;
        if step.abs() < 1e-14 {
            break;
        }
    }
    x
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(values: &[f64], w: f64, p: f64) {
        let test = shapiro_wilk(values).expect("a sample");
        assert!((test.w - w).abs() < 5e-4 && (test.p - p).abs() < 5e-4, "{test:?}, not {w} {p}");
    }

    #[test]
    fn published_values() {
        // Shapiro and Wilk 1965, weights of eleven men: W = 0.79 (0.7888 by Royston's weights).
        let men = [148., 154., 158., 160., 161., 162., 166., 170., 182., 195., 236.];
        near(&men, 0.78881, 0.00670);
    }

    #[test]
    fn quantiles_of_the_normal_distribution() {
        for (p, x) in [(0.5, 0.0), (0.975, 1.959_963_985), (0.001, -3.090_232_306)] {
            assert!((quantile(p) - x).abs() < 1e-8, "{p}");
        }
        assert!((quantile(1e-5) + 4.264_890_794).abs() < 1e-7);
    }

    #[test]
    fn weights_have_unit_length_and_small_samples_their_tables() {
        for n in [3, 4, 5, 6, 11, 12, 50, 500, 5000] {
            let a = weights(n);
            let length: f64 = a.iter().map(|a| a * a).sum();
            assert!((length - 1.0).abs() < 1e-9, "{n}: {length}");
        }
        // Shapiro and Wilk's table for n = 10: 0.5739, 0.3291, 0.2141, 0.1224, 0.0399.
        let a = weights(10);
        for (i, table) in [0.5739, 0.3291, 0.2141, 0.1224, 0.0399].iter().enumerate() {
            assert!((a[9 - i] - table).abs() < 3e-3, "{i}: {} {table}", a[9 - i]);
        }
    }

    #[test]
    fn five_percent_of_normal_samples_are_rejected() {
        let mut rng = packtrain_units::Rng::new(11);
        for n in [7, 30, 200] {
            let rejected = (0..1000)
                .filter(|_| {
                    let sample: Vec<f64> =
                        (0..n).map(|_| quantile(rng.unit().clamp(1e-12, 1.0 - 1e-12))).collect();
                    shapiro_wilk(&sample).expect("a sample").p < 0.05
                })
                .count();
            assert!((30..=75).contains(&rejected), "{n}: {rejected} of 1000");
        }
        let uniform: Vec<f64> = (0..200).map(|_| rng.unit()).collect();
        assert!(shapiro_wilk(&uniform).expect("a sample").p < 1e-3);
    }

    #[test]
    fn what_cannot_be_tested_is_not() {
        assert!(shapiro_wilk(&[1.0, 2.0]).is_none());
        assert!(shapiro_wilk(&[1.0; 20]).is_none());
        assert!(shapiro_wilk(&[1.0, 2.0, f64::NAN]).is_none());
    }
}
