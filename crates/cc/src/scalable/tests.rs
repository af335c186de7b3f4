use packtrain_units::Duration;
use proptest::prelude::*;

use super::*;
use crate::bottleneck::{Bottleneck, config};
use crate::hostile;

const UNPACED: Start = Start { initial_window: 10, paced: false, whole_packets: false };

#[test]
fn a_hundredth_an_acknowledgement_above_sixteen_packets() {
    let mut scalable = Scalable::new(&config(), &UNPACED);
    scalable.window.ssthresh = 2.0;
    scalable.window.cwnd = 100.0;
    scalable.grow(50.0);
    assert_eq!(scalable.window.cwnd, 100.5);
    assert_eq!(scalable.kept(), 0.875);
    scalable.window.cwnd = 10.0;
    scalable.grow(5.0);
    assert_eq!((scalable.window.cwnd, scalable.kept()), (10.5, 0.5));
}

#[test]
fn the_time_between_losses_is_the_same_at_any_rate() {
    let (span, step) = (Duration::from_secs(20), Duration::from_millis(500));
    let mut scalable = Scalable::new(&config(), &UNPACED);
    let mut path = Bottleneck::new(DataRate::from_mbps(100), Duration::from_millis(100), 400);
    insta::assert_snapshot!(path.curve(&mut scalable, span, step));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn nothing_told_breaks_it(script in hostile::script()) {
        hostile::run("scalable", &script)?;
    }
}
