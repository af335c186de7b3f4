//! Success proportion: the share of losses followed by a loss.

use crate::Signature;

/// Lost packets whose next packet was also lost: two consecutive 0s of the signature (section 3.1.5
/// of the paper).
pub fn successes(signature: &Signature) -> usize {
    signature.losses().map(|run| run.len() - 1).sum()
}

/// [`successes`] divided by lost packets; `None` without losses.
pub fn success_proportion(signature: &Signature) -> Option<f64> {
    (signature.lost() > 0).then(|| successes(signature) as f64 / signature.lost() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Option<f64> {
        success_proportion(&text.parse().expect("bits"))
    }

    #[test]
    fn losses_followed_by_losses_are_counted() {
        assert_eq!(of("1111"), None);
        assert_eq!(of(""), None);
        assert_eq!(of("1010101"), Some(0.0));
        assert_eq!(of("1000100"), Some(3.0 / 5.0));
        assert_eq!(of("0000"), Some(0.75));
    }
}
