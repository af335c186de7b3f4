//! The search finds the result of an exhaustive search.

use std::num::NonZeroU32;

use proptest::prelude::*;

use super::super::models::Mean;
use super::*;

fn points(all: &[(u32, f64)]) -> Vec<Point> {
    let point = |(n, mbps): &(u32, f64)| Point::new(NonZeroU32::new(*n).expect("not zero"), *mbps);
    all.iter().map(point).collect()
}

/// Every pair or triple, every curve over all points.
fn exhaustive(model: Model, points: &[Point]) -> Option<(f64, Vec<Vec<NonZeroU32>>)> {
    let spread: Vec<Point> = spread(points.len()).iter().map(|at| points[*at]).collect();
    let (mut min, mut winners) = (f64::INFINITY, Vec::new());
    every(model.samples(), points, &mut |from| {
        let Ok(curve) = model.fit(from, 2) else { return };
        let error = squares(&curve, &spread, f64::INFINITY);
        if error < min {
            (min, winners) = (error, Vec::new());
        }
        if error == min && error < f64::INFINITY {
            winners.push(from.iter().map(|p| p.streams).collect());
        }
    });
    (min < f64::INFINITY).then_some((min, winners))
}

fn agree(model: Model, points: &[Point]) {
    match (best(model, points), exhaustive(model, points)) {
        (Ok(found), Some((min, winners))) => {
            let error = (min / points.len() as f64).sqrt();
            assert_eq!(found.error_mbps.to_bits(), error.to_bits(), "{found:?}, {winners:?}");
            assert!(winners.contains(&found.from), "{found:?}, {winners:?}");
        }
        (Err(_), None) => {}
        (found, wanted) => panic!("{model:?}: {found:?}, and trying everything: {wanted:?}"),
    }
}

/// A path with a peak, a rise, or neither, and some noise.
fn curves() -> impl Strategy<Value = Vec<(u32, f64)>> {
    let numbers = prop_oneof![
        (3..=24u32).prop_map(|count| (1..=count).collect::<Vec<_>>()),
        prop::collection::btree_set(1..=64u32, 3..=20).prop_map(|set| set.into_iter().collect()),
        prop::collection::btree_set(1..=u32::MAX, 3..=12).prop_map(|set| set.into_iter().collect()),
        Just(vec![1, 2, 4, 8, 16, 32, 64, 128, 256, 512]),
    ];
    let noise = prop_oneof![Just(0.0f64), Just(0.01), Just(0.1), Just(0.6)];
    let shape = (numbers, noise, 1.0..40.0f64, 1.5..12.0f64, -6.0..6.0f64);
    shape.prop_flat_map(|(numbers, noise, knee, order, scale)| {
        let noises = prop::collection::vec(-noise..=noise, numbers.len());
        noises.prop_map(move |noises| {
            let mbps = |n: u32| -> f64 {
                let x = f64::from(n) / knee;
                10f64.powf(scale) * x / (1.0 + x.powf(order)).sqrt()
            };
            let both = numbers.iter().zip(noises);
            both.map(|(n, noise): (&u32, f64)| (*n, (mbps(*n) * (1.0 + noise)).max(1e-6))).collect()
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(384))]

    #[test]
    fn newton_finds_what_trying_everything_finds(all in curves()) {
        agree(Model::Newton, &points(&all));
    }

    #[test]
    fn so_do_the_others(all in curves()) {
        for model in [
            Model::Dinda,
            Model::Averaging(Mean::Quadratic),
            Model::Break,
            Model::Logarithmic,
            Model::FullSecondOrder,
        ] {
            agree(model, &points(&all));
        }
    }
}

#[test]
fn what_is_ruled_out_would_not_have_won() {
    // Forty samples with noise: the sieve keeps few, and excludes none that is better.
    let noise = |n: u32| f64::from(n.wrapping_mul(2_654_435_761) >> 16 & 0xff) / 1275.0 - 0.1;
    let curve = |n: u32| {
        let x = f64::from(n) / 8.0;
        (n, 125.0 * f64::from(n) / (1.0 + x.powf(2.6)).sqrt() * (1.0 + noise(n)))
    };
    let points = points(&(1..=40).map(curve).collect::<Vec<_>>());
    agree(Model::Newton, &points);
    let min = exhaustive(Model::Newton, &points).expect("valid").0;
    let order = spread(points.len());
    let all: Vec<Point> = order.iter().map(|at| points[*at]).collect();
    let mut sieve = Sieve::new(&all);
    let (mut tried, mut left) = (0, 0);
    let place = |p: &Point| all.iter().position(|q| q == p).expect("there");
    every(3, &points, &mut |from| {
        let Some(mut pair) = sieve.pair(place(&from[0]), place(&from[1])) else { return };
        let out = sieve.rules_out(&mut pair, place(&from[2]), min * 1.05);
        (tried, left) = (tried + 1, left + usize::from(!out));
        if let (true, Ok(curve)) = (out, Model::Newton.fit(from, 0)) {
            assert!(squares(&curve, &all, f64::INFINITY) >= min * 1.05, "{from:?}");
        }
    });
    assert!(left * 4 < tried, "{left} of {tried} are left");
}
