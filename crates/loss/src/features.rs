//! Features of a signature, and of the delay around its losses.

use std::ops::Range;

use packtrain_units::Duration;

use crate::{Delay, DelayAround, Signature};

/// Consecutive received packets that end an episode of losses: a full queue admits some packets
/// while it overflows, within tens of packets.
const EPISODE_GAP: usize = 64;
/// Number of bins for the index of dispersion.
const BINS: usize = 64;
/// Added to delays before taking their ratio: the jitter of real timestamps.
const JITTER: Duration = Duration::from_micros(200);

/// Names of the features of a signature, in the order of [`Features::pattern`].
pub const PATTERN: [&str; 10] = [
    "log10 of the loss rate",
    "complexity",
    "success proportion (log odds)",
    "run in which the median lost packet lies (ln packets)",
    "variation of the run lengths (ln)",
    "losses per packet within episodes (log odds)",
    "losses per episode (ln)",
    "variation of the distances of episodes (ln)",
    "index of dispersion of losses (ln)",
    "losses that stand alone (log odds)",
];

/// Names of the features of the delay, in the order of [`Features::delay`].
pub const DELAY: [&str; 4] = [
    "arrival: rise before losses over the usual (ln)",
    "arrival: rise after losses over that before (ln)",
    "read: rise before losses over the usual (ln)",
    "read: rise after losses over that before (ln)",
];

/// The features of one window.
#[derive(Clone, Debug, PartialEq)]
pub struct Features {
    /// Features of the signature; those that too few losses do not determine have a fixed value.
    pub pattern: [f64; PATTERN.len()],
    /// Features of the delay, where known.
    pub delay: [Option<f64>; DELAY.len()],
}

impl Features {
    /// Measures a window; `None` without losses. `complexity` is that of the signature.
    pub fn of(signature: &Signature, complexity: f64, delay: Option<&Delay>) -> Option<Self> {
        if signature.lost() == 0 {
            return None;
        }
        let pattern = pattern(signature, complexity);
        Some(Self { pattern, delay: delay.map(delays).unwrap_or_default() })
    }
}

fn pattern(signature: &Signature, complexity: f64) -> [f64; PATTERN.len()] {
    let lost = signature.lost() as f64;
    let runs: Vec<Range<usize>> = signature.losses().collect();
    let mut lengths: Vec<f64> = runs.iter().map(|run| run.len() as f64).collect();
    let episodes = episodes(&runs);
    let span: usize = episodes.iter().map(ExactSizeIterator::len).sum();
    let alone = runs.iter().filter(|run| run.len() == 1).count() as f64;
    let distances: Vec<f64> =
        episodes.windows(2).map(|pair| (pair[1].start - pair[0].start) as f64).collect();
    let variation_of_runs = variation(&lengths);
    lengths.sort_by(f64::total_cmp);
    [
        signature.loss_rate().log10(),
        complexity,
        log_odds(lost - runs.len() as f64, lost),
        median_by_loss(&lengths, lost).ln(),
        variation_of_runs,
        log_odds(lost, span as f64),
        (lost / episodes.len() as f64).ln(),
        variation(&distances),
        dispersion(signature.len(), &runs, lost),
        log_odds(alone, lost),
    ]
}

/// ln((k + 1/2) / (n - k + 1/2)).
fn log_odds(k: f64, n: f64) -> f64 {
    ((k + 0.5) / (n - k + 0.5)).ln()
}

/// Joins runs that are closer than [`EPISODE_GAP`].
fn episodes(runs: &[Range<usize>]) -> Vec<Range<usize>> {
    let mut episodes: Vec<Range<usize>> = Vec::new();
    for run in runs {
        match episodes.last_mut() {
            Some(last) if run.start - last.end < EPISODE_GAP => last.end = run.end,
            _ => episodes.push(run.clone()),
        }
    }
    episodes
}

/// Length of the run that contains the median lost packet, from sorted lengths.
fn median_by_loss(sorted: &[f64], lost: f64) -> f64 {
    let mut sum = 0.0;
    let found = sorted.iter().find(|length| {
        sum += **length;
        sum >= lost / 2.0
    });
    found.copied().unwrap_or(1.0)
}

/// ln of the coefficient of variation: 0 for exponential distances, far below for periodic ones.
/// With fewer than three values it is 0.
fn variation(values: &[f64]) -> f64 {
    if values.len() < 3 {
        return 0.0;
    }
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (n - 1.0);
    (variance.sqrt() / mean + 0.05).ln()
}

/// ln of variance over mean of the losses in equal parts of the window: 0 for independent losses.
fn dispersion(packets: usize, runs: &[Range<usize>], lost: f64) -> f64 {
    let mut bins = [0f64; BINS];
    let width = packets.div_ceil(BINS).max(1);
    for run in runs {
        let mut at = run.start;
        while at < run.end {
            let bin = at / width;
            let end = run.end.min((bin + 1) * width);
            bins[bin] += (end - at) as f64;
            at = end;
        }
    }
    let mean = lost / BINS as f64;
    let variance = bins.iter().map(|bin| (bin - mean).powi(2)).sum::<f64>() / (BINS - 1) as f64;
    (variance / mean + 0.1).ln()
}

fn delays(delay: &Delay) -> [Option<f64>; DELAY.len()] {
    let ratios = |around: &DelayAround| {
        let ln = |value: Duration| ((value.as_nanos() + JITTER.as_nanos()) as f64).ln();
        let before = ln(around.before);
        // Not the maximum rise: a single late timestamp would determine it.
        [before - ln(around.typical), ln(around.after) - before]
    };
    let mut values = [None; DELAY.len()];
    for (clock, around) in [delay.arrival, delay.read].iter().enumerate() {
        let Some(around) = around else { continue };
        for (index, ratio) in ratios(around).into_iter().enumerate() {
            values[clock * 2 + index] = Some(ratio);
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(len: usize, lost: impl Iterator<Item = Range<usize>>) -> [f64; PATTERN.len()] {
        let signature = Signature::from_lost(len, lost).expect("fits");
        Features::of(&signature, 0.3, None).expect("losses").pattern
    }

    #[test]
    fn periodic_single_losses() {
        let features = of(10_000, (0..50).map(|i| i * 200..i * 200 + 1));
        assert!((features[0] - 0.005f64.log10()).abs() < 1e-12);
        assert!(features[2] < -4.0 && features[9] > 4.0, "none in a row, all alone");
        assert!(features[3].abs() < 1e-12 && features[6].abs() < 1e-12);
        assert!((features[7] - 0.05f64.ln()).abs() < 1e-12, "no variation at all");
        assert!(features[8] < -0.5, "more even than chance: {}", features[8]);
    }

    #[test]
    fn solid_bursts_and_holey_ones() {
        let solid = of(10_000, (0..5).map(|i| i * 2000..i * 2000 + 100));
        let holey = of(
            10_000,
            (0..5).flat_map(|i| (0..50).map(move |j| i * 2000 + 2 * j..i * 2000 + 2 * j + 1)),
        );
        assert!((solid[6] - 100f64.ln()).abs() < 1e-12 && (holey[6] - 50f64.ln()).abs() < 1e-12);
        assert!(solid[5] > 6.0 && holey[5].abs() < 0.1, "{} {}", solid[5], holey[5]);
        assert!((solid[3] - 100f64.ln()).abs() < 1e-12 && holey[3].abs() < 1e-12);
    }

    #[test]
    fn few_losses_and_none() {
        assert!(Features::of(&"1111".parse().expect("bits"), 0.0, None).is_none());
        let one = of(100, std::iter::once(4..5));
        assert!(one.iter().all(|value| value.is_finite()), "{one:?}");
        let all = of(100, std::iter::once(0..100));
        assert!(all.iter().all(|value| value.is_finite()), "{all:?}");
    }

    #[test]
    fn delay_of_one_clock_leaves_the_other_open() {
        let us = Duration::from_micros;
        let around =
            DelayAround { before: us(1800), after: us(1800), typical: us(0), most: us(9000) };
        let delay = Delay { arrival: None, read: Some(around) };
        let values = delays(&delay);
        assert_eq!(values[..2], [None, None]);
        assert!((values[2].expect("known") - 10f64.ln()).abs() < 1e-12);
        assert!(values[3].expect("known").abs() < 1e-12);
    }
}
