//! Trains give the same result as packets, bit for bit; seeds decide all randomness; packets are
//! conserved.

mod common;

use common::{any_scenario, play};
use packtrain_sim::outcome::Outcome;
use packtrain_sim::spec::Scenario;
use proptest::prelude::*;

/// Only the cost of a run may differ.
fn played(scenario: &Scenario, train: u32) -> Outcome {
    let mut outcome = play(&Scenario { train, ..scenario.clone() });
    outcome.events = 0;
    outcome
}

/// Where two outcomes begin to differ.
fn difference(trains: &Outcome, packets: &Outcome) -> Option<String> {
    let (one, other) = (format!("{trains:?}"), format!("{packets:?}"));
    let at = one.bytes().zip(other.bytes()).position(|(a, b)| a != b);
    let around = |text: &str, at: usize| text[at.saturating_sub(160)..].chars().take(240).collect();
    let both = |at| -> [String; 2] { [around(&one, at), around(&other, at)] };
    (trains != packets).then(|| format!("{:#?}", both(at.unwrap_or(0))))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn trains_are_packets(scenario in any_scenario(), longest in 2..=64u32) {
        let packets = played(&scenario, 1);
        let trains = played(&scenario, longest);
        let differs = difference(&trains, &packets);
        prop_assert!(differs.is_none(), "{}", differs.unwrap_or_default());
        // Offered packets are transmitted or dropped, except those that a late queue still holds.
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
