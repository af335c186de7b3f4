//! Start jitter: repeats of a scenario in which nothing else is random would be one run.

use packtrain_units::{Duration, Rng};

use crate::spec::Scenario;
use crate::trace::mix;

/// Makes each flow live up to `most` later, by a time from the scenario's seed and the place of the
/// flow. Repetition 0 stays as the file has it. The connections of a session over depots start
/// together. A flow never starts after the end: the last nanosecond is the latest.
pub(super) fn delay_starts(scenario: &mut Scenario, most: Duration, repetition: u64) {
    if most.is_zero() || repetition == 0 {
        return;
    }
    let latest = packtrain_units::Time::ZERO + scenario.duration - Duration::from_nanos(1);
    let mut delays: Vec<Duration> = Vec::with_capacity(scenario.flows.len());
    for (i, flow) in scenario.flows.iter_mut().enumerate() {
        let mut rng = Rng::new(mix(scenario.seed ^ mix(i as u64 ^ START_JITTER)));
        let own = Duration::from_nanos(rng.below(most.as_nanos().saturating_add(1)));
        let delay = flow.from_depot.as_ref().map_or(own, |depot| delays[depot.of]);
        flow.start = (flow.start + delay).min(latest);
        flow.stop = flow.stop.map(|stop| stop + delay);
        delays.push(delay);
    }
}

/// Keeps these draws apart from the seeds of links and flows.
const START_JITTER: u64 = 0x7374_6172_7400_0000;
