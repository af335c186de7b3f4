//! Every formula on curves that it must reproduce, and every erratum against the printed formula.

use std::num::NonZeroU32;

use packtrain_units::{ByteCount, DataRate, Duration};
use proptest::prelude::*;

use super::*;

fn point(n: u32, mbps: f64) -> Point {
    Point::new(NonZeroU32::new(n).expect("not zero"), mbps)
}

/// Points of `curve` at these numbers of streams.
fn on(curve: Curve, numbers: &[u32]) -> Vec<Point> {
    numbers.iter().map(|n| point(*n, curve.mbps(&point(*n, 1.0)))).collect()
}

fn near(found: f64, expected: f64) -> bool {
    (found - expected).abs() <= 1e-6 * expected.abs().max(1e-12)
}

/// The fitted curve passes through its samples.
fn passes(model: Model, samples: &[Point]) -> Curve {
    let curve = model.fit(samples, 2).expect("valid");
    for p in samples {
        assert!(near(curve.mbps(p), p.mbps), "{model:?} at {}: {}", p.n, curve.mbps(p));
    }
    curve
}

/// The maximum on a fine grid, for comparison with formulas of the peak.
fn by_search(value: impl Fn(f64) -> f64) -> (f64, f64) {
    let grid = (0..400_000).map(|i| 1.0 + f64::from(i) * 1e-3);
    grid.map(|n| (n, value(n))).max_by(|p, q| p.1.total_cmp(&q.1)).expect("not empty")
}

#[test]
fn hacker_is_the_bound_of_the_mathis_form() {
    let path =
        Path { mss: ByteCount(1460), rtt: Duration::from_millis(100), constant: 1.5_f64.sqrt() };
    // 1460 * 8 / 0.1 * 1.2247 / 0.01 = 14.3 Mbit/s.
    assert!((super::super::point::to_mbps(path.bound(1, 1e-4)) - 14.304).abs() < 0.01);
    assert_eq!(path.bound(4, 1e-4).as_bps(), 4 * path.bound(1, 1e-4).as_bps());
    let straight = [point(1, 10.0), point(2, 20.5), point(4, 38.0)];
    let curve = hacker::raw(&straight[0]);
    assert_eq!(uncongested(&curve, &straight), Ok(()));
    assert_eq!(uncongested(&curve, &[point(8, 60.0)]), Err(Invalid::Congested));
}

#[test]
fn the_loss_rate_model_gives_back_the_losses_it_was_made_of() {
    let real = LossCurve { a: 3e4, b: 1e4, x: 3 };
    let sample = |n| LossSample { streams: n, rate: real.loss(n) };
    let found = LossCurve::new(sample(2), sample(16), 3).expect("grows");
    assert!(near(found.a, real.a) && near(found.b, real.b), "{found:?}");
    let path = Path { mss: ByteCount(1460), rtt: Duration::from_millis(50), constant: 1.22 };
    // Equation 2 with equation 13 is (MSS c / RTT) sqrt(Th'), which throughputs alone also give.
    let numbers = [1, 2, 5, 16, 40];
    let mbps = |n| super::super::point::to_mbps(found.throughput(&path, n));
    let points: Vec<_> = numbers.iter().map(|n| point(*n, mbps(*n))).collect();
    let curve = loss_rate::fit(&points[1], &points[3], 3).expect("valid");
    for p in &points {
        assert!((curve.mbps(p) / p.mbps - 1.0).abs() < 1e-4, "{}: {}", p.n, curve.mbps(p));
    }
    assert!(loss_rate::fit(&point(1, 9.0), &point(2, 5.0), 2).is_err(), "falls");
    assert!(LossCurve::new(sample(16), LossSample { streams: 2, rate: 1e-9 }, 2).is_err());
}

#[test]
fn dinda_rises_to_its_limit_and_never_falls() {
    let real = Curve::Dinda { a: 1e-6, b: 4e-5 };
    let curve = passes(Model::Dinda, &on(real, &[1, 8]));
    assert_eq!(curve.peak(), None);
    let Curve::Dinda { a, b } = curve else { panic!("{curve:?}") };
    assert!(near(a, 1e-6) && near(b, 4e-5));
    let n = streams_for_share_of_limit(a, b, 0.9);
    assert!(near(n / (a * n * n + b).sqrt(), 0.9 / a.sqrt()), "equation 36");
    // A falling curve has b' < 0, one above proportional growth a' < 0.
    let falls = [point(4, 100.0), point(8, 90.0)];
    assert!(matches!(Model::Dinda.fit(&falls, 0), Err(Invalid::NotPositive { name: 'b', .. })));
    let above = [point(1, 10.0), point(2, 30.0)];
    assert!(matches!(Model::Dinda.fit(&above, 0), Err(Invalid::NotPositive { name: 'a', .. })));
}

#[test]
fn altman_needs_three_streams_for_nine_tenths() {
    let curve = Curve::Filling { capacity: 1.0, beta: HALVING };
    for (n, share) in [(1, 0.75), (2, 0.857_142_857), (3, 0.9)] {
        assert!(near(curve.mbps(&point(n, 1.0)), share), "{n}");
    }
    assert_eq!(streams_for_share(0.98, HALVING).ceil(), 17.0);
    assert_eq!(passes(Model::Altman, &[point(3, 900.0)]).coefficients()[0].1.round(), 1000.0);
}

#[test]
fn the_backlog_is_bits_waiting_by_bits_a_packet() {
    let backlog = Backlog {
        capacity: DataRate::from_mbps(1_200),
        rate: DataRate::from_mbps(100),
        delay: Duration::from_millis(10),
    };
    // 10 ms at 1.2 Gbit/s are 12 Mbit, 1000 packets of 1500 bytes.
    assert!(near(backlog.total(), 1_000.0));
    assert!(near(backlog.of_flow(), 1_000.0 / 12.0));
    assert!(near(backlog.utilisation(), 2_000.0 / 2_001.0));
    // Step 2 as printed, d 12 / C, falls as the capacity grows: twice the capacity with the same
    // delay is twice the backlog, not half of it.
    let twice = Backlog { capacity: DataRate::from_mbps(2_400), ..backlog };
    let printed = |b: &Backlog| b.delay.as_secs_f64() * 12_000.0 / b.capacity.as_bps() as f64;
    assert!(near(twice.total(), 2.0 * backlog.total()));
    assert!(printed(&twice) < printed(&backlog) && printed(&backlog) < 1e-6);
    // n = B / b up to the utilisation (equation 9).
    assert!((backlog.flows() - backlog.total() / backlog.of_flow()).abs() < 0.01);
    assert!((streams_to_add(backlog.flows(), 0.98, HALVING) - (16.333 - 11.994)).abs() < 0.01);
    assert_eq!(streams_to_add(40.0, 0.98, HALVING), 0.0);
}

#[test]
fn averages_are_of_the_coefficients() {
    let samples = [point(1, 100.0), point(4, 300.0), point(16, 400.0)];
    let (one, two) =
        (dinda::solve(&samples[0], &samples[1]), dinda::solve(&samples[0], &samples[2]));
    for (mean, a) in [
        (Mean::Arithmetic, (one.0 + two.0) / 2.0),
        (Mean::Geometric, (one.0 * two.0).sqrt()),
        (Mean::Quadratic, ((one.0 * one.0 + two.0 * two.0) / 2.0).sqrt()),
    ] {
        let curve = Model::Averaging(mean).fit(&samples, 0).expect("valid");
        assert!(near(curve.coefficients()[0].1, a), "{mean:?}");
        assert_eq!(curve.peak(), None);
    }
    let falling = [point(1, 100.0), point(4, 300.0), point(16, 90.0)];
    assert!(Model::Averaging(Mean::Arithmetic).fit(&falling, 0).is_err(), "as Dinda");
}

/// Erratum: with the paper's own rule no falling curve could be fitted by the break model.
#[test]
fn a_break_may_fall_after_it() {
    let samples = [point(1, 100.0), point(8, 500.0), point(32, 300.0)];
    let curve = passes(Model::Break, &samples);
    let Curve::Broken { fall, .. } = curve else { panic!("{curve:?}") };
    assert!(fall.1 < 0.0, "the second piece has b' = {}", fall.1);
    assert!(dinda::check(fall).is_err(), "which section 5.1 (iv) refuses");
    assert_eq!(curve.optimum(NonZeroU32::MAX).map(NonZeroU32::get), Some(8));
    assert!(curve.mbps(&point(16, 1.0)) < 500.0 && curve.mbps(&point(16, 1.0)) > 300.0);
}

/// "The optimal number of streams is certainly between n2 and n3" (section 3.2) if the second piece
/// falls; where it rises the model has no peak.
#[test]
fn a_break_that_rises_on_is_no_peak() {
    let curve = passes(Model::Break, &[point(2, 187.0), point(4, 360.0), point(8, 601.0)]);
    assert_eq!((curve.peak(), curve.optimum(NonZeroU32::MAX)), (None, None));
}

/// Erratum: equation 19 is a logarithm to the base e^(n1 - n2) of both factors, not of the first
/// times the second.
#[test]
fn the_logarithm_takes_both_factors() {
    let real = Curve::Exponential { a: 2e-5, b: 0.2 };
    let samples = on(real, &[2, 9]);
    let curve = passes(Model::Logarithmic, &samples);
    assert!(near(curve.coefficients()[1].1, 0.2));
    let (p, q) = (&samples[0], &samples[1]);
    let throughputs = (q.mbps / p.mbps).powi(2);
    let printed = throughputs.ln() / (p.n - q.n) * (p.n / q.n).powi(2);
    assert!((printed - 0.2).abs() > 0.1, "only the first factor inside: {printed}");
    let (n, peak) = by_search(|n| n / (2e-5 * (0.2 * n).exp()).sqrt());
    let found = curve.peak().expect("a peak");
    assert!((found.streams - n).abs() < 2e-3 && near(found.streams, 10.0));
    assert!((super::super::point::to_mbps(found.throughput) / peak - 1.0).abs() < 1e-5);
    // b >= 2: the peak is below one stream. b <= 0: there is none.
    let steep = [point(1, 100.0), point(2, 20.0)];
    assert_eq!(Model::Logarithmic.fit(&steep, 0), Err(Invalid::PeakBelowOne));
    let above = [point(1, 100.0), point(2, 210.0)];
    assert!(matches!(Model::Logarithmic.fit(&above, 0), Err(Invalid::NotPositive { .. })));
}

#[test]
fn newtons_iteration_finds_the_order_and_the_peak() {
    for (a, b, c) in [(1e-9, 4e-6, 3.3), (1e-7, 4e-6, 2.05), (1e-14, 1e-6, 7.0)] {
        let real = Curve::Power { a, b, c };
        let curve = passes(Model::Newton, &on(real, &[1, 6, 30]));
        let found = curve.coefficients();
        assert!((found[2].1 / c - 1.0).abs() < 1e-4, "{c}: {found:?}");
        let peak = curve.peak().expect("a peak");
        let (n, max) = by_search(|n| n / (a * n.powf(c) + b).sqrt());
        assert!((peak.streams / n - 1.0).abs() < 1e-2, "{c}: {} {n}", peak.streams);
        let peak = super::super::point::to_mbps(peak.throughput);
        assert!((peak / max - 1.0).abs() < 1e-3, "{c}: {peak} {max}");
    }
}

/// Errata: for c > 2 the curve falls to zero, not to a positive bound; c = 2, which the paper
/// allows, has no peak.
#[test]
fn newtons_curve_falls_to_zero_and_needs_an_order_above_two() {
    let curve = Curve::Power { a: 1e-9, b: 4e-6, c: 3.3 };
    let at = |n| curve.mbps(&point(n, 1.0));
    assert!(at(1_000_000) < at(100_000) / 4.0 && at(u32::MAX) < 1e-2 * at(1));
    let square = Curve::Power { a: 1e-7, b: 4e-6, c: 2.0 };
    assert_eq!(square.peak(), None);
    assert_eq!(Model::Newton.fit(&on(square, &[1, 4, 9]), 0), Err(Invalid::OrderTooLow));
}

#[test]
fn newtons_conditions_are_tested_before_the_iteration() {
    let fit = |mbps: [f64; 3]| {
        Model::Newton.fit(&[point(1, mbps[0]), point(2, mbps[1]), point(8, mbps[2])], 0)
    };
    assert_eq!(fit([100.0, 180.0, 500.0]), Err(Invalid::OrderTooLow));
    assert!(matches!(fit([10.0, 30.0, 60.0]), Err(Invalid::NotPositive { name: 'a', .. })));
    // A curve that falls from the first stream on: its peak is below one, or b' is not positive.
    assert!(matches!(
        fit([100.0, 30.0, 5.0]),
        Err(Invalid::PeakBelowOne | Invalid::NotPositive { name: 'b', .. })
    ));
    // Without conditions an order exists whenever K > 1, including c <= 0.
    let raw = Model::Newton.raw(&[point(1, 100.0), point(2, 180.0), point(8, 700.0)]);
    let order = raw.expect("K > 1").coefficients()[2].1;
    assert!(order < 2.0, "{order}");
    assert_eq!(Model::Newton.raw(&[point(1, 10.0), point(2, 19.0), point(8, 79.5)]), None);
}

/// Errata: equation 31 is printed with a second division by n2 - n1, equations 28 to 30 with n
/// instead of n1, n2, n3.
#[test]
fn the_second_order_passes_through_its_samples_only_as_corrected() {
    let (a, b, c) = (2e-6, -1e-5, 4e-5);
    let real = Curve::SecondOrder { a, b, c };
    let samples = on(real, &[1, 4, 20]);
    let curve = passes(Model::FullSecondOrder, &samples);
    for ((_, found), expected) in curve.coefficients().iter().zip([a, b, c]) {
        assert!((found / expected - 1.0).abs() < 1e-6, "{found} {expected}");
    }
    let [p, q, r] = &samples[..] else { panic!("three") };
    let slope = |u: &Point, v: &Point| (v.y - u.y) / (v.n - u.n);
    let printed_a = (slope(p, r) - slope(p, q)) / (q.n - p.n) / (r.n - q.n);
    let printed_b = slope(p, q) - (p.n + q.n) * printed_a;
    let printed_c = p.y - p.n * p.n * printed_a - p.n * printed_b;
    let printed = Curve::SecondOrder { a: printed_a, b: printed_b, c: printed_c };
    assert!((printed.mbps(r) / r.mbps - 1.0).abs() > 0.1, "{} {}", printed.mbps(r), r.mbps);
    // With n instead of n1 the equation for sample 1 would hold for one n only.
    let p_prime = |n: f64| a * p.n * p.n + b * n + c;
    assert!(near(p_prime(p.n), p.y) && !near(p_prime(5.0), p.y));
    let (n, peak) = by_search(|n| n / (a * n * n + b * n + c).sqrt());
    let found = curve.peak().expect("a peak");
    assert!((found.streams - 8.0).abs() < 1e-3 && (n - 8.0).abs() < 2e-3);
    assert!((super::super::point::to_mbps(found.throughput) / peak - 1.0).abs() < 1e-5);
}

/// Errata: section 5.4 ends with 2c' + b' > 1, where > 0 follows from a peak above one stream; b'^2
/// < 4 a' c' is missing, without which the curve has no value between two numbers of streams.
#[test]
fn the_second_orders_conditions_are_those_that_follow() {
    // All of p' here is below 1e-4: "> 1" would refuse it, and all measurements in Mbit/s.
    let (a, b, c) = (2e-6, -1e-5, 4e-5);
    assert!(2.0 * c + b > 0.0 && 2.0 * c + b < 1.0);
    assert!(
        Model::FullSecondOrder.fit(&on(Curve::SecondOrder { a, b, c }, &[1, 4, 20]), 0).is_ok()
    );
    // a > 0, b < 0, c > 0, 2c + b > 0, and no value at 5: (n - 4)(n - 6).
    let holes = Curve::SecondOrder { a: 1e-6, b: -1e-5, c: 2.4e-5 };
    let samples = on(holes, &[1, 2, 9]);
    assert!(samples.iter().all(|p| p.mbps.is_finite()));
    assert!(holes.mbps(&point(5, 1.0)).is_nan());
    assert_eq!(holes.at(NonZeroU32::new(5).expect("five")), None);
    assert_eq!(Model::FullSecondOrder.fit(&samples, 0), Err(Invalid::NoValue));
    // 2c + b <= 0: the peak is not above one stream.
    let early = Curve::SecondOrder { a: 1e-5, b: -1.2e-5, c: 5.9e-6 };
    assert_eq!(Model::FullSecondOrder.fit(&on(early, &[1, 2, 9]), 0), Err(Invalid::PeakBelowOne));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// A valid fit passes through its samples, has a value everywhere, and its optimum is not below
    /// its neighbours; an invalid one has a reason.
    #[test]
    fn whatever_is_valid_is_what_it_should_be(
        first in 1u32..20, gaps in (1u32..20, 1u32..20), mbps in prop::array::uniform3(0.1f64..1e5),
    ) {
        let numbers = [first, first + gaps.0, first + gaps.0 + gaps.1];
        let all: Vec<_> = numbers.iter().zip(mbps).map(|(n, mbps)| point(*n, mbps)).collect();
        for model in ALL {
            let samples = &all[..model.samples()];
            match model.fit(samples, 2) {
                Err(reason) => prop_assert!(!reason.to_string().is_empty()),
                Ok(curve) => {
                    let through = !matches!(model, Model::Averaging(_));
                    for p in samples.iter().filter(|_| through) {
                        let found = curve.mbps(p);
                        prop_assert!((found / p.mbps - 1.0).abs() < 1e-3, "{:?} {}", model, found);
                    }
                    for n in 1..100 {
                        let value = curve.mbps(&point(n, 1.0));
                        prop_assert!(value >= 0.0, "{:?} at {}: {}", model, n, value);
                    }
                    if let Some(best) = curve.optimum(NonZeroU32::new(64).expect("64")) {
                        let value = |n: u32| curve.mbps(&point(n.max(1), 1.0));
                        let best = best.get();
                        prop_assert!(best <= 64);
                        prop_assert!(value(best) >= value(best - 1) * (1.0 - 1e-9), "{:?}", model);
                    }
                }
            }
        }
    }
}
