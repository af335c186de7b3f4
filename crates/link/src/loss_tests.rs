use super::*;

fn lost(config: &LossConfig, n: u32, size: u32) -> Vec<bool> {
    let mut loss = Loss::new(config, Rng::new(11));
    (0..n).map(|_| loss.next_in(1, size).is_some()).collect()
}

fn share(outcomes: &[bool]) -> f64 {
    outcomes.iter().filter(|lost| **lost).count() as f64 / outcomes.len() as f64
}

#[test]
fn independent_losses_have_their_share() {
    let outcomes = lost(&LossConfig::Independent(0.01), 1_000_000, 1_500);
    assert!((share(&outcomes) - 0.01).abs() < 0.0003, "{}", share(&outcomes));
    assert_eq!(share(&lost(&LossConfig::Independent(0.0), 1_000, 1)), 0.0);
    assert_eq!(share(&lost(&LossConfig::Independent(1.0), 1_000, 1)), 1.0);
    assert_eq!(share(&lost(&LossConfig::None, 1_000, 1)), 0.0);
}

#[test]
fn bit_errors_hit_large_packets_more_often() {
    for size in [40, 1_500, 9_000] {
        let share = share(&lost(&LossConfig::BitError(1e-5), 1_000_000, size));
        let right = 1.0 - (1.0 - 1e-5f64).powf(8.0 * f64::from(size));
        assert!((share - right).abs() < 0.06 * right, "{size}: {share} for {right}");
    }
}

#[test]
fn bad_times_have_their_length_and_their_share() {
    let config =
        LossConfig::GilbertElliott { to_bad: 0.01, to_good: 0.2, loss_good: 0.0, loss_bad: 1.0 };
    let outcomes = lost(&config, 1_000_000, 1_500);
    // A share of 0.01 / 0.21 in runs of five.
    assert!((share(&outcomes) - 0.0476).abs() < 0.001, "{}", share(&outcomes));
    let runs = outcomes.windows(2).filter(|w| !w[0] && w[1]).count();
    let length = outcomes.iter().filter(|lost| **lost).count() as f64 / runs as f64;
    assert!((length - 5.0).abs() < 0.1, "{length}");
}

#[test]
fn both_states_lose_with_their_own_probability() {
    let config =
        LossConfig::GilbertElliott { to_bad: 0.1, to_good: 0.1, loss_good: 0.02, loss_bad: 0.3 };
    let share = share(&lost(&config, 1_000_000, 1_500));
    assert!((share - 0.16).abs() < 0.002, "{share}");
}

#[test]
fn a_trace_is_replayed_again_and_again() {
    let outcomes = [false, true, true, false, false];
    let config = LossConfig::Trace(outcomes.to_vec());
    let all = lost(&config, 20, 1_500);
    assert!(all.chunks(5).all(|chunk| chunk == outcomes), "{all:?}");
    assert_eq!(share(&lost(&LossConfig::Trace(vec![false; 3]), 100, 1)), 0.0);
    assert_eq!(share(&lost(&LossConfig::Trace(vec![true]), 100, 1)), 1.0);
    assert_eq!(share(&lost(&LossConfig::Trace(Vec::new()), 100, 1)), 0.0);
    let mut trace = Loss::new(&config, Rng::new(1));
    assert_eq!(trace.next_in(100, 1), Some(1));
    assert_eq!(trace.next_in(100, 1), Some(0));
    assert_eq!(trace.next_in(3, 1), None);
    assert_eq!(trace.next_in(1, 1), Some(0));
}
