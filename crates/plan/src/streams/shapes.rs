//! Possible shapes of throughput over the number of streams.
//!
//! A shape rises, bends at a knee, and may fall beyond another. In logarithms, with r the
//! steepness before the knee k, s its sharpness, e the steepness of the fall beyond d:
//!
//! ```text
//! ln Th(n) = ln C - ln(1 + (k/n)^(s r)) / s - e ln(1 + (n/d)^2) / 2
//! ```
//!
//! Dinda's model is the shape r = 1, s = 2, e = 0 (k^2 = b/a), Altman's r = 1, s = 1, e = 0;
//! Hacker's is any with k beyond all n; Newton's and the full second order rise and fall like
//! those with e > 0. C is free.

/// Steepness before the knee: a share of proportional growth, and slightly above it (a path on
/// which the first stream alone pays for its start).
const RISES: [f64; 4] = [0.5, 0.8, 1.0, 1.25];

/// Range and number of knees, evenly spaced in logarithms.
const KNEES: (f64, f64, usize) = (0.5, 90.0, 12);

/// Sharpness of the knee: Altman's, Dinda's, and nearly a corner.
const SHARPNESS: [f64; 3] = [1.0, 2.0, 4.0];

/// Steepness of the fall.
const FALLS: [f64; 4] = [0.1, 0.2, 0.4, 0.8];

/// The fall begins at the knee, or at this multiple of it.
const PLATEAUS: [f64; 2] = [1.0, 3.0];

/// Prior of the knee: near 5 streams, within a factor e^1.2 with probability 2/3. Where the samples
/// give no information, knees at 1 or at 60 are less probable than between.
const KNEE_PRIOR: (f64, f64) = (5.0, 1.2);

/// Prior share of paths on which too many streams reduce throughput.
const FALLING_SHARE: f64 = 0.8;

/// One shape, without its height.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    rise: f64,
    ln_knee: f64,
    sharpness: f64,
    fall: f64,
    ln_fall: f64,
    /// The logarithm of its prior probability.
    pub(crate) prior: f64,
}

impl Shape {
    /// ln Th at ln n, without ln C.
    #[inline]
    pub(crate) fn ln_at(&self, ln_n: f64) -> f64 {
        let rise = softplus(self.sharpness * self.rise * (self.ln_knee - ln_n)) / self.sharpness;
        if self.fall == 0.0 {
            return -rise;
        }
        -rise - 0.5 * self.fall * softplus(2.0 * (ln_n - self.ln_fall))
    }
}

/// ln(1 + e^x) without overflow.
#[inline]
fn softplus(x: f64) -> f64 {
    if x > 36.0 { x } else { x.exp().ln_1p() }
}

/// All shapes.
pub(crate) fn all() -> Vec<Shape> {
    let (low, high, count) = KNEES;
    let step = (high / low).ln() / (count - 1) as f64;
    let mut shapes = Vec::new();
    for rise in RISES {
        for knee in 0..count {
            let ln_knee = low.ln() + step * knee as f64;
            let distance = (ln_knee - KNEE_PRIOR.0.ln()) / KNEE_PRIOR.1;
            for sharpness in SHARPNESS {
                let likely = -0.5 * distance * distance;
                let mut push = |fall: f64, ln_fall: f64, share: f64| {
                    let prior = likely + share.ln();
                    shapes.push(Shape { rise, ln_knee, sharpness, fall, ln_fall, prior });
                };
                push(0.0, 0.0, 1.0 - FALLING_SHARE);
                for fall in FALLS {
                    for plateau in PLATEAUS {
                        let each = FALLING_SHARE / (FALLS.len() * PLATEAUS.len()) as f64;
                        push(fall, ln_knee + plateau.ln(), each);
                    }
                }
            }
        }
    }
    shapes
}
