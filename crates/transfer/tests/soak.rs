//! A mirror that runs for a day of virtual time: one tree, copied again and again over a path with
//! losses and outages, between machines that sleep and programs that are killed, while files change.
//!
//! Held state must not grow with time, what gets a name must be what the source has, and in the end
//! everything is there. Contents are symbolic (see `sim`), so that a day takes seconds.

mod soaking;

use packtrain_units::Duration;
use soaking::Mirror;

const HOUR: Duration = Duration::from_secs(3600);

/// Runs for `span` and checks that it ends well.
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
