//! Tests of forecasts.

use std::collections::VecDeque;

use packtrain_units::Rng;
use proptest::prelude::*;

use super::method::{ALL, Forecaster};
use super::score::Score;
use super::*;

fn fed(method: Method, values: &[f64]) -> f64 {
    let mut forecaster = Forecaster::new(method);
    let mut past = VecDeque::new();
    for &value in values {
        forecaster.learn(value, &past);
        past.push_back(value);
    }
    forecaster.forecast(&past)
}

#[test]
fn each_method_says_what_its_name_says() {
    let values = [4.0, 8.0, 1.0, 100.0, 3.0, 5.0];
    for (method, wanted) in [
        (Method::Last, 5.0),
        (Method::RunningMean, 121.0 / 6.0),
        (Method::Smoothing(0.5), 16.1875),
        (Method::Mean(5), 117.0 / 5.0),
        (Method::Mean(31), 121.0 / 6.0),
        (Method::Median(5), 5.0),
        (Method::Median(31), 4.5),
        // 30 % of six is 1.8: 0.9 on either side, rounded to none.
        (Method::TrimmedMean(31, 0.3), 121.0 / 6.0),
        // 34 % is one on either side.
        (Method::TrimmedMean(31, 0.34), 20.0 / 4.0),
    ] {
        assert!((fed(method, &values) - wanted).abs() < 1e-12, "{method}");
    }
}

/// The window adapts to what would have forecast the last measurement better. The original compared
/// medians of other lengths than those it chose between.
#[test]
fn the_adaptive_window_shrinks_after_a_step_and_grows_in_noise() {
    let method = Method::AdaptiveMedian { first: 10, min: 5, max: 21 };
    let mut step = vec![100.0; 30];
    step.extend([10.0; 6]);
    // Of a window of ten, six tens would be a majority; of twenty-one they would not be.
    assert_eq!(fed(method, &step), 10.0);
    // One outlier among constant values never affects the median.
    let mut outlier = vec![100.0; 30];
    outlier[28] = 1e6;
    assert_eq!(fed(method, &outlier), 100.0);
}

/// The mean over all time divides by the number of all errors. The original's count stopped at the
/// window.
#[test]
fn an_error_over_all_time_is_divided_by_all() {
    let mut score = Score::default();
    for _ in 0..1000 {
        score.add(-2.0);
    }
    for (measure, wanted) in [(Measure::Absolute, 2.0), (Measure::Squared, 4.0)] {
        for span in [Span::All, Span::Last(1), Span::Last(100)] {
            assert_eq!(score.mean(Selector { measure, span }), wanted);
        }
    }
}

#[test]
fn the_battery_has_the_services_methods_and_selectors() {
    assert_eq!(ALL.len(), 18);
    assert_eq!(Selector::all().count(), 16);
    let names: Vec<String> = ALL.iter().map(ToString::to_string).collect();
    assert_eq!(names[2], "smoothing-0.05");
    assert_eq!(names[14], "trimmed-mean-31-30%");
    assert_eq!(names[16], "adaptive-median-5..21");
}

/// Series of different kinds: the error of the forecast is within 15 % of the best method's in all
/// of them, which no single method achieves.
#[test]
fn the_answer_follows_the_best_method() {
    type Nature = fn(&mut Rng, usize, f64) -> f64;
    let natures: [(&str, Nature); 4] = [
        ("noise around a level", |rng, _, _| 100.0 + 20.0 * (rng.unit() - 0.5)),
        ("a walk", |rng, _, last| (last + 10.0 * (rng.unit() - 0.5)).max(1.0)),
        ("steps", |rng, at, _| [100.0, 40.0, 70.0][at / 60 % 3] + 4.0 * (rng.unit() - 0.5)),
        ("outliers", |rng, _, _| if rng.unit() < 0.1 { 5.0 } else { 100.0 + rng.unit() }),
    ];
    let mut worst = vec![0.0_f64; ALL.len()];
    for (name, nature) in natures {
        let mut rng = Rng::new(7);
        let (mut battery, mut value, mut squared) = (Battery::new(), 100.0, 0.0);
        let mut alone = vec![0.0; ALL.len()];
        let mut methods: Vec<Forecaster> = ALL.iter().map(|&one| Forecaster::new(one)).collect();
        let mut past = VecDeque::new();
        for at in 0..600 {
            value = nature(&mut rng, at, value);
            let outcome = battery.learn(value).unwrap();
            if let Some(expected) = outcome.expected {
                squared += (expected - value).powi(2);
                for (error, method) in alone.iter_mut().zip(&methods) {
                    *error += (method.forecast(&past) - value).powi(2);
                }
            }
            for method in &mut methods {
                method.learn(value, &past);
            }
            past.push_back(value);
        }
        let best = alone.iter().copied().fold(f64::INFINITY, f64::min);
        let ratio = (squared / best).sqrt();
        assert!(ratio < 1.15, "{name}: {ratio:.3} of the best method's error");
        for (worst, error) in worst.iter_mut().zip(&alone) {
            *worst = worst.max((error / best).sqrt());
        }
    }
    for (method, worst) in ALL.iter().zip(worst) {
        assert!(worst > 1.15, "{method} alone would do: {worst:.3}");
    }
}

/// About four in five measurements are within the interval.
#[test]
fn the_interval_holds_what_it_says() {
    let mut rng = Rng::new(11);
    let mut battery = Battery::new();
    let (mut within, mut all) = (0, 0);
    for _ in 0..2000 {
        let normal: f64 = (0..12).map(|_| rng.unit()).sum::<f64>() - 6.0;
        let value = f64::max(100.0 + 15.0 * normal, 0.0);
        if let Some(forecast) = battery.forecast()
            && forecast.measurements > 5
        {
            all += 1;
            within += i32::from((forecast.interval.0..=forecast.interval.1).contains(&value));
        }
        battery.learn(value).unwrap();
    }
    let share = f64::from(within) / f64::from(all);
    assert!((0.74..0.88).contains(&share), "{share}");
    let deviation = battery.forecast().unwrap().relative_error;
    assert!((0.12..0.19).contains(&deviation), "{deviation}");
}

#[test]
fn what_cannot_be_measured_changes_nothing() {
    let mut battery = Battery::new();
    assert!(battery.forecast().is_none());
    for bad in [f64::NAN, f64::INFINITY, -1.0] {
        assert!(battery.learn(bad).is_err());
    }
    assert!(battery.forecast().is_none());
    battery.learn(0.0).unwrap();
    assert_eq!(battery.forecast().unwrap().value, 0.0);
}

proptest! {
    /// The forecast is within the range of the measurements, and its interval contains it.
    #[test]
    fn answers_are_between_the_extremes(
        values in proptest::collection::vec(0.0..1e12_f64, 1..150)
    ) {
        let mut battery = Battery::new();
        for &value in &values {
            battery.learn(value).unwrap();
        }
        let forecast = battery.forecast().unwrap();
        let min = values.iter().copied().fold(f64::INFINITY, f64::min);
        let max = values.iter().copied().fold(0.0, f64::max);
        prop_assert!(forecast.value >= min * (1.0 - 1e-9));
        prop_assert!(forecast.value <= max * (1.0 + 1e-9));
        prop_assert!(forecast.interval.0 <= forecast.value);
        prop_assert!(forecast.value <= forecast.interval.1);
    }
}
