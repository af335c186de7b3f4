//! Trains give what packets give, bit for bit; seeds decide everything; packets do not vanish.

mod common;

use common::{any_scenario, play};
use packtrain_sim::outcome::Outcome;
use packtrain_sim::spec::Scenario;
use proptest::prelude::*;

/// What a run cost is the one thing that may differ.
fn played(scenario: &Scenario, train: u32) -> Outcome {
    let mut outcome = play(&Scenario { train, ..scenario.clone() });
    outcome.events = 0;
    outcome
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn trains_are_packets(scenario in any_scenario(), longest in 2..=64u32) {
        let packets = played(&scenario, 1);
        let trains = played(&scenario, longest);
        prop_assert_eq!(&trains.flows, &packets.flows);
        prop_assert_eq!(&trains.links, &packets.links);
        prop_assert_eq!(&trains, &packets);
        // Offered packets are transmitted or dropped, except what a late queue still holds.
        for link in &packets.links {
            let dropped: u64 = link.dropped.iter().sum();
            prop_assert!(dropped <= link.offered);
        }
    }
}

#[test]
fn seeds_decide() {
    let mut scenario = common::lossy("reno", 1e-2);
    let one = play(&scenario);
    assert_eq!(one, play(&scenario));
    scenario.seed += 1;
    assert_ne!(one.trace_hash, play(&scenario).trace_hash);
}
