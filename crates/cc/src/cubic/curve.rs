//! The cubic function of time and its constants, for all users of CUBIC.

/// The constant C, in packets per second cubed (RFC 9438 section 5).
pub(crate) const C: f64 = 0.4;
/// The multiplicative decrease (RFC 9438 section 4.6; Linux has 717/1024).
pub(crate) const BETA: f64 = 0.7;

/// `W_cubic`: rises from the window after a cut to the window before it, is flat there, then rises
/// further.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Curve {
    /// The window of the plateau, in packets.
    pub(crate) w_max: f64,
    /// The time of the plateau, in seconds.
    pub(crate) k: f64,
}

impl Curve {
    /// From `start` packets to `w_max` (RFC 9438 equation 2); starts at the plateau if `start` is
    /// above `w_max`.
    pub(crate) fn new(start: f64, w_max: f64) -> Self {
        let rise = w_max - start;
        if rise > 0.0 {
            Self { w_max, k: cube_root(rise / C) }
        } else {
            Self { w_max: start, k: 0.0 }
        }
    }

    /// The window after `t` seconds (RFC 9438 equation 1).
    pub(crate) fn at(&self, t: f64) -> f64 {
        let offset = t - self.k;
        C * offset * offset * offset + self.w_max
    }
}

/// The cube root by Newton's method with additions and divisions only: it gives the same number on
/// every machine, which a C library does not guarantee.
fn cube_root(x: f64) -> f64 {
    if !(x > 0.0 && x.is_finite()) {
        return 0.0;
    }
    // A third of the exponent is within a factor of two.
    let mut root = f64::from_bits(x.to_bits() / 3 + (682 << 52));
    for _ in 0..6 {
        root = (2.0 * root + x / (root * root)) / 3.0;
    }
    root
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_starts_at_the_cut_is_flat_at_the_old_window_and_goes_on() {
        let curve = Curve::new(700.0, 1000.0);
        assert!((curve.k - 750f64.cbrt()).abs() < 1e-9, "{curve:?}");
        assert!((curve.at(0.0) - 700.0).abs() < 1e-6);
        assert!((curve.at(curve.k) - 1000.0).abs() < 1e-6);
        assert!((curve.at(curve.k + 1.0) - 1000.4).abs() < 1e-6);
        let above = Curve::new(80.0, 40.0);
        assert_eq!((above.k, above.at(0.0)), (0.0, 80.0));
    }

    #[test]
    fn the_root_is_a_root() {
        for x in [1e-9, 0.3, 1.0, 2.0, 7.9, 8.0, 12_345.0, 1e9, 3e15] {
            let root = cube_root(x);
            assert!((root * root * root / x - 1.0).abs() < 1e-12, "{x}: {root}");
        }
        assert_eq!((cube_root(0.0), cube_root(-1.0), cube_root(f64::NAN)), (0.0, 0.0, 0.0));
    }
}
