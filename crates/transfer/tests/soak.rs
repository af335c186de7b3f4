//! A mirror over a day of virtual time: one tree is copied repeatedly over a path with losses and
//! outages. Machines sleep, programs are killed, and files change.
//!
//! Held state must not grow with time, a renamed file must match the source, and at the end all
//! files must be complete. Contents are symbolic (see `sim`), so that a day takes seconds.

mod soaking;

use packtrain_units::Duration;
use soaking::Mirror;

const HOUR: Duration = Duration::from_secs(3600);

/// Runs for `span` and checks the result.
fn soak(seed: u64, span: Duration) {
    eprintln!("seed {seed}");
    let mut mirror = Mirror::new(seed);
    mirror.run(span);
    eprintln!("{}", mirror.describe());
    mirror.assert_nothing_grew();
    mirror.finish();
    mirror.assert_identical();
    mirror.assert_eventful(span);
}

#[test]
fn a_mirror_runs_for_three_hours() {
    for seed in 1..=2 {
        soak(seed, HOUR * 3);
    }
}

#[test]
#[ignore = "takes a minute; `cargo xtask nightly` runs it"]
fn a_mirror_runs_for_a_day() {
    for seed in 1..=4 {
        soak(seed, HOUR * 24);
    }
}
