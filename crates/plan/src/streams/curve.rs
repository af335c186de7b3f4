//! Fitted models: throughput as a function of the number of streams.

use std::num::NonZeroU32;

use packtrain_units::DataRate;

use super::models::Mean;
use super::point::{Point, from_mbps};

/// A model with its coefficients, for throughputs in Mbit/s.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Curve {
    /// Th = n t (equation 2 with constant loss and round trip).
    Linear {
        /// Mbit/s per stream.
        t: f64,
    },
    /// Th = sqrt(a n^(1/x) + b) (equations 12 and 2).
    Loss {
        /// a'.
        a: f64,
        /// b'.
        b: f64,
        /// x.
        x: u32,
    },
    /// Th = C (1 - 1 / (1 + n (1 + B) / (1 - B))) (equation 7).
    Filling {
        /// Mbit/s of the bottleneck.
        capacity: f64,
        /// The multiplicative decrease of a window.
        beta: f64,
    },
    /// Th = n / sqrt(a n^2 + b) (equation 4).
    Dinda {
        /// a'.
        a: f64,
        /// b'.
        b: f64,
    },
    /// The same, from averaged coefficients.
    Averaged {
        /// How they were averaged.
        mean: Mean,
        /// a'.
        a: f64,
        /// b'.
        b: f64,
    },
    /// One function up to the break, another after it.
    Broken {
        /// a' and b' up to the break.
        rise: (f64, f64),
        /// a' and b' after it.
        fall: (f64, f64),
        /// The break.
        at: f64,
    },
    /// Th = n / sqrt(a e^(b n)) (equation 17).
    Exponential {
        /// a'.
        a: f64,
        /// b'.
        b: f64,
    },
    /// Th = n / sqrt(a n^c + b) (equation 21).
    Power {
        /// a'.
        a: f64,
        /// b'.
        b: f64,
        /// c'.
        c: f64,
    },
    /// Th = n / sqrt(a n^2 + b n + c) (equation 27).
    SecondOrder {
        /// a'.
        a: f64,
        /// b'.
        b: f64,
        /// c'.
        c: f64,
    },
}

/// The maximum of a curve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Peak {
    /// The number of streams, as a real number.
    pub streams: f64,
    /// The throughput there.
    pub throughput: DataRate,
}

impl Curve {
    /// The throughput of `streams` streams; `None` where the formula has no value ("out of the
    /// domain", section 6.2.1).
    pub fn at(&self, streams: NonZeroU32) -> Option<DataRate> {
        let mbps = self.mbps(&Point::new(streams, 1.0));
        (mbps > 0.0 && mbps.is_finite()).then(|| from_mbps(mbps))
    }

    /// The same in Mbit/s; NaN or not positive outside the domain.
    #[inline]
    pub(crate) fn mbps(&self, at: &Point) -> f64 {
        let n = at.n;
        match *self {
            Self::Linear { t } => n * t,
            Self::Loss { a, b, x } => (a * (at.ln_n / f64::from(x)).exp() + b).sqrt(),
            Self::Filling { capacity, beta } => {
                capacity * (1.0 - 1.0 / (1.0 + n * (1.0 + beta) / (1.0 - beta)))
            }
            Self::Dinda { a, b } | Self::Averaged { a, b, .. } => n / (a * n * n + b).sqrt(),
            Self::Broken { rise, fall, at } => {
                let (a, b) = if n <= at { rise } else { fall };
                n / (a * n * n + b).sqrt()
            }
            Self::Exponential { a, b } => n / (a * (b * n).exp()).sqrt(),
            Self::Power { a, b, c } => n / (a * (c * at.ln_n).exp() + b).sqrt(),
            Self::SecondOrder { a, b, c } => n / (a * n * n + b * n + c).sqrt(),
        }
    }

    /// The peak by the model's own formula; `None` if the curve only rises.
    pub fn peak(&self) -> Option<Peak> {
        let (streams, mbps) = match *self {
            Self::Linear { .. } | Self::Loss { .. } | Self::Filling { .. } => return None,
            Self::Dinda { .. } | Self::Averaged { .. } => return None,
            // With b' > 0 the second piece keeps rising (Dinda's limit), and the break is no peak.
            Self::Broken { fall: (_, b), .. } if b > 0.0 => return None,
            Self::Broken { rise: (a, b), at, .. } => (at, at / (a * at * at + b).sqrt()),
            // d/dn n^2 e^(-bn) = 0 at n = 2/b.
            Self::Exponential { a, b } => (2.0 / b, 2.0 / (std::f64::consts::E * b * a.sqrt())),
            Self::Power { a, b, c } => {
                let n = (2.0 * b / (a * (c - 2.0))).powf(1.0 / c);
                (n, n * ((c - 2.0) / (b * c)).sqrt())
            }
            Self::SecondOrder { a, b, c } => {
                (-2.0 * c / b, 2.0 * (c / (4.0 * a * c - b * b)).sqrt())
            }
        };
        (streams.is_finite() && mbps.is_finite())
            .then(|| Peak { streams, throughput: from_mbps(mbps) })
    }

    /// The whole number of streams at the peak, between one and `max`; `None` if the curve only
    /// rises.
    pub fn optimum(&self, max: NonZeroU32) -> Option<NonZeroU32> {
        let peak = self.peak()?.streams.clamp(1.0, f64::from(max.get()));
        let below = NonZeroU32::new(peak.floor() as u32)?;
        let above = below.saturating_add(1).min(max);
        let value = |n| self.mbps(&Point::new(n, 1.0));
        Some(if value(above) > value(below) { above } else { below })
    }

    /// Names and values of the coefficients.
    pub fn coefficients(&self) -> Vec<(&'static str, f64)> {
        match *self {
            Self::Linear { t } => vec![("mbps_per_stream", t)],
            Self::Loss { a, b, x } => vec![("a", a), ("b", b), ("x", f64::from(x))],
            Self::Filling { capacity, beta } => vec![("capacity_mbps", capacity), ("beta", beta)],
            Self::Dinda { a, b } | Self::Averaged { a, b, .. } | Self::Exponential { a, b } => {
                vec![("a", a), ("b", b)]
            }
            Self::Broken { rise, fall, at } => {
                vec![("a", rise.0), ("b", rise.1), ("a2", fall.0), ("b2", fall.1), ("break", at)]
            }
            Self::Power { a, b, c } | Self::SecondOrder { a, b, c } => {
                vec![("a", a), ("b", b), ("c", c)]
            }
        }
    }
}
