//! There is always a plausible answer.

use proptest::prelude::*;

use super::*;

fn samples(all: &[(u32, f64)]) -> Vec<Sample> {
    let sample = |(n, mbps): &(u32, f64)| Sample {
        streams: NonZeroU32::new(*n).expect("not zero"),
        throughput: from_mbps(*mbps),
    };
    all.iter().map(sample).collect()
}

fn of(all: &[(u32, f64)]) -> Prediction {
    predict(&samples(all), Options::default()).expect("samples")
}

fn mbps(rate: DataRate) -> f64 {
    rate.as_bps() as f64 / 1e6
}

#[test]
fn nothing_measured_is_an_error_and_everything_else_an_answer() {
    assert_eq!(predict(&[], Options::default()).err(), Some(NoSamples));
    let one = of(&[(4, 500.0)]);
    assert!((4..=8).contains(&one.streams.get()), "{}", one.streams);
    assert!((mbps(one.at(NonZeroU32::new(4).expect("four")).throughput) - 500.0).abs() < 25.0);
    let zero = of(&[(2, 0.0), (4, 0.0)]);
    assert_eq!((zero.streams.get(), zero.throughput), (2, DataRate::ZERO));
    let huge = of(&[(1, f64::MAX), (2, f64::MAX), (4, 1e-6)]);
    assert!(huge.throughput > DataRate::ZERO);
}

#[test]
fn flat_paths_need_few_streams() {
    let flat = of(&[(1, 940.0), (2, 941.0), (4, 938.0), (8, 939.0)]);
    assert!(flat.streams.get() <= 2, "{}", flat.streams);
    let falling = of(&[(1, 940.0), (2, 900.0), (4, 850.0)]);
    assert_eq!(falling.streams.get(), 1);
}

#[test]
fn a_rising_path_is_followed_as_far_as_samples_reach_and_a_step_more() {
    let knee = of(&[(1, 100.0), (2, 195.0), (4, 350.0), (8, 520.0)]);
    assert!((9..=16).contains(&knee.streams.get()), "{}", knee.streams);
    let straight = of(&[(1, 100.0), (2, 200.0), (4, 400.0), (8, 800.0)]);
    assert!((17..=32).contains(&straight.streams.get()), "{}", straight.streams);
    let asked = Options { max_streams: NonZeroU32::new(6).expect("six") };
    let all = samples(&[(1, 100.0), (2, 200.0), (4, 400.0), (8, 800.0)]);
    assert_eq!(predict(&all, asked).expect("samples").streams.get(), 6);
}

#[test]
fn a_peak_between_samples_is_found() {
    let curve = |n: f64| 1_000.0 * n / 6.0 / (1.0 + (n / 6.0).powf(3.0)).sqrt();
    let all: Vec<_> = [1, 2, 4, 8, 16, 32].iter().map(|n| (*n, curve(f64::from(*n)))).collect();
    let found = of(&all);
    let real = curve(f64::from(found.streams.get()));
    let best = (1..=64).map(|n| curve(f64::from(n))).fold(0.0, f64::max);
    assert!(real > 0.985 * best, "{}: {real} of {best}", found.streams);
    assert!((mbps(found.throughput) / real - 1.0).abs() < 0.05);
}

#[test]
fn numbers_with_which_nothing_moved_are_not_answered() {
    let found = of(&[(1, 100.0), (2, 190.0), (4, 0.0)]);
    assert!(found.streams.get() < 4, "{}", found.streams);
    let gap = of(&[(1, 100.0), (2, 0.0), (4, 380.0)]);
    assert!(gap.streams.get() >= 4, "{}", gap.streams);
}

#[test]
fn repeated_measurements_count_by_their_median() {
    let twice = of(&[(1, 100.0), (1, 102.0), (1, 9_000.0), (2, 150.0)]);
    assert!(mbps(twice.at(NonZeroU32::MIN).throughput) < 120.0);
}

#[test]
fn intervals_are_wider_where_nothing_was_measured() {
    let found = of(&[(1, 100.0), (2, 190.0), (4, 350.0), (8, 500.0)]);
    let width = |n| {
        let (low, high) = found.at(NonZeroU32::new(n).expect("not zero")).interval;
        assert!(low < high);
        mbps(high) / mbps(low)
    };
    assert!(width(64) > width(16) && width(16) > width(8));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// For any measurements: an answer within the limit, an interval around it, finite numbers, and
    /// the same answer for the same samples in another order.
    #[test]
    fn there_is_always_an_answer(
        all in prop::collection::vec((1u32..=65_535, any::<u64>()), 1..12), max in 1u32..=200,
    ) {
        let mut all: Vec<Sample> = all.iter().map(|(n, bps)| Sample {
            streams: NonZeroU32::new(*n).expect("above zero"),
            throughput: DataRate::from_bps(*bps >> (n % 64)),
        }).collect();
        let options = Options { max_streams: NonZeroU32::new(max).expect("above zero") };
        let found = predict(&all, options).expect("samples");
        prop_assert!(found.streams.get() <= max);
        prop_assert!(found.interval.0 <= found.throughput && found.throughput <= found.interval.1);
        all.reverse();
        let again = predict(&all, options).expect("samples");
        prop_assert_eq!((found.streams, found.throughput), (again.streams, again.throughput));
    }
}
