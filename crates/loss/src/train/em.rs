//! Fits mixtures by expectation maximisation; the Bayesian information criterion selects their
//! size.

use packtrain_units::Rng;

use crate::gaussian::{Mixture, Part, ln_sum};

/// Maximum number of parts tried.
const MAX_PARTS: usize = 4;
/// Iterations of a fit.
const PASSES: usize = 40;
/// Added to every variance (features are scaled to 1), so that discrete features and small families
/// do not make a density too narrow.
const RIDGE: f64 = 0.05 * 0.05;
/// Number of prior observations, with the spread of the whole family, in every part.
const SHRINKAGE: f64 = 4.0;

/// The mixture that describes these rows best; `None` without rows.
pub(super) fn fit(rows: &[Vec<f64>], rng: &mut Rng) -> Option<Mixture> {
    let features = rows.first()?.len();
    let whole = spread(rows, features);
    let mut best: Option<(f64, Mixture)> = None;
    for parts in 1..=MAX_PARTS {
        let numbers = (parts * (1 + features + features * (features + 1) / 2)) as f64;
        if parts > 1 && rows.len() < 12 * parts {
            break;
        }
        let (ln_likelihood, mixture) = fit_parts(rows, parts, &whole, rng);
        let criterion = numbers * (rows.len() as f64).ln() - 2.0 * ln_likelihood;
        if best.as_ref().is_none_or(|(min, _)| criterion < *min) {
            best = Some((criterion, mixture));
        }
    }
    best.map(|(_, mixture)| rounded(mixture))
}

fn fit_parts(rows: &[Vec<f64>], parts: usize, whole: &[f64], rng: &mut Rng) -> (f64, Mixture) {
    let mut shares = nearest(rows, &seeds(rows, parts, rng));
    let mut mixture = maximise(rows, &shares, whole);
    let mut ln_likelihood = f64::NEG_INFINITY;
    for _ in 0..PASSES {
        let before = ln_likelihood;
        ln_likelihood = expect(rows, &mixture, &mut shares);
        if ln_likelihood - before < 1e-6 * rows.len() as f64 {
            break;
        }
        mixture = maximise(rows, &shares, whole);
    }
    (ln_likelihood, mixture)
}

/// Rows far apart from each other (k-means++).
fn seeds(rows: &[Vec<f64>], parts: usize, rng: &mut Rng) -> Vec<usize> {
    let mut chosen = vec![rng.below(rows.len() as u64) as usize];
    while chosen.len() < parts {
        let distance = |row: &Vec<f64>| {
            chosen.iter().map(|&seed| apart(row, &rows[seed])).fold(f64::INFINITY, f64::min)
        };
        let distances: Vec<f64> = rows.iter().map(distance).collect();
        let mut left = rng.unit() * distances.iter().sum::<f64>();
        let next = distances.iter().position(|distance| {
            left -= distance;
            left <= 0.0
        });
        chosen.push(next.unwrap_or(rows.len() - 1));
    }
    chosen
}

fn apart(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum()
}

/// Assigns each row to the nearest seed.
fn nearest(rows: &[Vec<f64>], seeds: &[usize]) -> Vec<Vec<f64>> {
    let of = |row: &Vec<f64>| {
        let near = (0..seeds.len())
            .min_by(|&a, &b| apart(row, &rows[seeds[a]]).total_cmp(&apart(row, &rows[seeds[b]])));
        (0..seeds.len()).map(|part| f64::from(u8::from(Some(part) == near))).collect()
    };
    rows.iter().map(of).collect()
}

fn expect(rows: &[Vec<f64>], mixture: &Mixture, shares: &mut [Vec<f64>]) -> f64 {
    let mut total = 0.0;
    for (row, share) in rows.iter().zip(shares) {
        let values: Vec<Option<f64>> = row.iter().copied().map(Some).collect();
        let one = |part: &Part| {
            Mixture { parts: vec![Part { weight: 1.0, ..part.clone() }] }.ln_density(&values)
        };
        let weights: Vec<f64> =
            mixture.parts.iter().map(|part| part.weight.ln() + one(part)).collect();
        let sum = ln_sum(weights.iter().copied());
        total += sum;
        for (share, weight) in share.iter_mut().zip(weights) {
            *share = (weight - sum).exp();
        }
    }
    total
}

fn maximise(rows: &[Vec<f64>], shares: &[Vec<f64>], whole: &[f64]) -> Mixture {
    let (parts, features) = (shares[0].len(), rows[0].len());
    let part = |index: usize| {
        let weight: f64 = shares.iter().map(|share| share[index]).sum();
        let safe = weight.max(1e-9);
        let mut mean = vec![0.0; features];
        for (row, share) in rows.iter().zip(shares) {
            for (mean, value) in mean.iter_mut().zip(row) {
                *mean += share[index] * value / safe;
            }
        }
        let mut covariance: Vec<f64> = whole.iter().map(|value| value * SHRINKAGE).collect();
        for (row, share) in rows.iter().zip(shares) {
            let apart: Vec<f64> = row.iter().zip(&mean).map(|(value, mean)| value - mean).collect();
            accumulate(&mut covariance, &apart, share[index]);
        }
        for value in &mut covariance {
            *value /= weight + SHRINKAGE;
        }
        add_ridge(&mut covariance, features);
        Part { weight: weight / rows.len() as f64, mean, covariance }
    };
    Mixture { parts: (0..parts).map(part).collect() }
}

/// A quarter of the variances of the whole, because parts are narrower. Covariances are left out:
/// those between parts need not be those within parts.
fn spread(rows: &[Vec<f64>], features: usize) -> Vec<f64> {
    let n = rows.len() as f64;
    let mut covariance = vec![0.0; features * (features + 1) / 2];
    for feature in 0..features {
        let mean = rows.iter().map(|row| row[feature]).sum::<f64>() / n;
        let variance = rows.iter().map(|row| (row[feature] - mean).powi(2)).sum::<f64>() / n;
        covariance[feature * (feature + 1) / 2 + feature] = 0.25 * variance + RIDGE;
    }
    covariance
}

fn accumulate(covariance: &mut [f64], apart: &[f64], weight: f64) {
    let mut at = 0;
    for i in 0..apart.len() {
        for j in 0..=i {
            covariance[at] += weight * apart[i] * apart[j];
            at += 1;
        }
    }
}

fn add_ridge(covariance: &mut [f64], features: usize) {
    for feature in 0..features {
        covariance[feature * (feature + 1) / 2 + feature] += RIDGE;
    }
}

/// Rounded for the file; the ridge exceeds the rounding error.
fn rounded(mut mixture: Mixture) -> Mixture {
    let round = |value: &mut f64| *value = (*value * 1e5).round() / 1e5;
    for part in &mut mixture.parts {
        part.mean.iter_mut().chain(&mut part.covariance).for_each(round);
        round(&mut part.weight);
    }
    mixture
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::train::normal;

    #[test]
    fn two_clouds_are_found() {
        let mut rng = Rng::new(3);
        let rows: Vec<Vec<f64>> = (0..600)
            .map(|i| {
                let (x, noise) = (normal(&mut rng), normal(&mut rng));
                if i % 3 == 0 {
                    vec![5.0 + x, -3.0 + 0.2 * noise]
                } else {
                    vec![x, x + 0.3 * noise]
                }
            })
            .collect();
        let mixture = fit(&rows, &mut rng).expect("rows");
        assert!(mixture.is_valid(2), "{mixture:?}");
        let mut means: Vec<_> =
            mixture.parts.iter().map(|part| (part.mean[0], part.weight)).collect();
        means.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (last, weight) = means[means.len() - 1];
        assert!(means.len() >= 2 && (last - 5.0).abs() < 0.3, "{means:?}");
        assert!((weight - 1.0 / 3.0).abs() < 0.05, "{means:?}");
        assert!(
            mixture.ln_density(&[Some(0.0), Some(0.0)])
                > mixture.ln_density(&[Some(0.0), Some(3.0)])
        );
    }

    #[test]
    fn constant_features_and_few_rows_give_densities_too() {
        let mut rng = Rng::new(4);
        assert!(fit(&[], &mut rng).is_none());
        let mixture = fit(&vec![vec![1.0, 2.0]; 40], &mut rng).expect("rows");
        assert!(mixture.is_valid(2), "{mixture:?}");
        assert!(fit(&[vec![1.0]], &mut rng).expect("a row").is_valid(1));
    }
}
