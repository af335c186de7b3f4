use packtrain_units::Duration;
use proptest::prelude::*;

use super::*;
use crate::bottleneck::{Bottleneck, config};
use crate::hostile;

/// RFC 3649 appendix B: the first window with an increase of so many packets, and its decrease.
const TABLE: &[(f64, f64, f64)] = &[
    (118.0, 2.0, 0.44),
    (221.0, 3.0, 0.41),
    (347.0, 4.0, 0.38),
    (495.0, 5.0, 0.37),
    (663.0, 6.0, 0.35),
    (851.0, 7.0, 0.34),
    (1_058.0, 8.0, 0.33),
    (1_284.0, 9.0, 0.32),
    (1_529.0, 10.0, 0.31),
    (2_378.0, 13.0, 0.28),
    (3_399.0, 16.0, 0.27),
    (5_036.0, 20.0, 0.25),
    (9_991.0, 29.0, 0.21),
];

#[test]
fn the_table_of_the_rfc() {
    for &(w, a, b) in TABLE {
        // The RFC rounds p(w) to 0.078 / w^1.2.
        assert!((increase(w) / a - 1.0).abs() < 0.03, "a({w}) = {} instead of {a}", increase(w));
        assert!((decrease(w) - b).abs() < 0.0051, "b({w}) = {} instead of {b}", decrease(w));
    }
    assert_eq!((increase(38.0), decrease(38.0)), (1.0, 0.5));
    assert!((increase(83_000.0) - 72.5).abs() < 1.0, "{}", increase(83_000.0));
    assert!((decrease(1e6) - 0.1).abs() < 1e-12, "never below");
}

#[test]
fn from_a_cut_at_a_thousand_packets() {
    let mut path = Bottleneck::new(DataRate::from_mbps(100), Duration::from_millis(100), 400);
    let start = Start { paced: false, ..Start::default() };
    let mut controller = HighSpeed::new(&config(), &start);
    let (span, step) = (Duration::from_secs(40), Duration::from_secs(1));
    insta::assert_snapshot!(path.curve(&mut controller, span, step));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn nothing_told_breaks_it(script in hostile::script()) {
        hostile::run("highspeed", &script)?;
    }
}
