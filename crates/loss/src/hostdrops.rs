//! What a host's own counter of drops says.
//!
//! A host that counts (SO_RXQ_OVFL) has seen its drops itself; its number need not fit the
//! window exactly, since the counter is read a little before or after it. Each explanation
//! expects its own share of the losses, as a beta distribution.

/// Shares that each explanation expects: parameters of a beta distribution.
const CPU: (f64, f64) = (50.0, 1.0);
const HYBRID: (f64, f64) = (1.0, 1.0);
const ELSEWHERE: (f64, f64) = (1.0, 50.0);
/// Priors in the same order.
const PRIORS: [f64; 3] = [0.4, 0.2, 0.4];

/// Posteriors that the host, host and path, the path alone lost `lost` packets of which the host
/// counted `drops`. The counter also sees packets that were sent again: more than all is all.
pub(crate) fn posterior(drops: u64, lost: u64) -> [f64; 3] {
    let (n, k) = (lost as f64, drops.min(lost) as f64);
    let mut weights =
        [CPU, HYBRID, ELSEWHERE].map(|(a, b)| ln_beta(k + a, n - k + b) - ln_beta(a, b));
    for (weight, prior) in weights.iter_mut().zip(PRIORS) {
        *weight += prior.ln();
    }
    let sum = crate::gaussian::ln_sum(weights.iter().copied());
    weights.map(|weight| (weight - sum).exp())
}

fn ln_beta(a: f64, b: f64) -> f64 {
    libm::lgamma(a) + libm::lgamma(b) - libm::lgamma(a + b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counter_decides_when_it_is_clear() {
        let [cpu, ..] = posterior(500, 500);
        assert!(cpu > 0.98, "{cpu}");
        let [_, _, elsewhere] = posterior(0, 500);
        assert!(elsewhere > 0.98, "{elsewhere}");
        let [_, hybrid, _] = posterior(250, 500);
        assert!(hybrid > 0.999, "{hybrid}");
        let [_, hybrid, _] = posterior(440, 500);
        assert!(hybrid > 0.5, "an eighth elsewhere is not nothing: {hybrid}");
        // The counter is read a little late.
        assert!(posterior(520, 500)[0] > 0.98 && posterior(495, 500)[0] > 0.9);
        let sum: f64 = posterior(7, 9).iter().sum();
        assert!((sum - 1.0).abs() < 1e-9);
    }
}
