//! Speed of the simulator.

use packtrain_units::Duration;
use serde::Serialize;

use crate::error::SimError;
use crate::file::ScenarioFile;

/// The result of a case: the line `{"event":"bench",...}`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Bench {
    /// `bench`.
    pub event: &'static str,
    /// Name of the case.
    pub name: &'static str,
    /// Packets that links carried, each hop counted.
    pub packets: u64,
    /// Virtual time.
    pub virtual_seconds: f64,
    /// Real time on one core.
    pub seconds: f64,
    /// Packets divided by real seconds.
    pub packets_per_second: f64,
    /// Virtual seconds divided by real seconds.
    pub virtual_seconds_per_second: f64,
    /// Digest of all events.
    pub trace_hash: String,
}

/// A benchmark case.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Its name.
    pub name: &'static str,
    /// Its description.
    pub title: &'static str,
    scenario: &'static str,
    seconds: u64,
    train: u32,
}

const ONE: &str = r#"
duration = "1s"
[[link]]
name = "wan"
from = "a"
to = "b"
rate = "10gbit"
rtt = "100ms"
queue = "1bdp"
[[flow]]
name = "flow"
from = "a"
to = "b"
"#;

const MANY: &str = r#"
duration = "1s"
[[link]]
from = "a"
to = "left"
rate = "40gbit"
delay = "1ms"
[[link]]
name = "wan"
from = "left"
to = "right"
rate = "10gbit"
rtt = "96ms"
queue = "1bdp"
[[link]]
from = "right"
to = "b"
rate = "40gbit"
delay = "1ms"
[[flow]]
from = "a"
to = "b"
cc = "cubic"
count = 100
stagger = "10ms"
"#;

const fn case(name: &'static str, title: &'static str, seconds: u64) -> Case {
    Case { name, title, scenario: ONE, seconds, train: 64 }
}

/// All cases.
pub const CASES: &[Case] = &[
    case("reno", "TCP Reno, 10 Gbit/s, 100 ms", 30),
    case("cubic", "TCP CUBIC, 10 Gbit/s, 100 ms", 30),
    case("native", "engine core with the native controller, 10 Gbit/s, 100 ms", 10),
    Case { train: 1, ..case("cubic-packets", "TCP CUBIC packet by packet", 10) },
    Case { scenario: MANY, ..case("dumbbell-100", "100 CUBIC flows over 10 Gbit/s, 3 links", 5) },
];

/// Runs a case; `clock` returns a time that advances during the run.
///
/// # Errors
/// The simulator's error.
pub fn bench(case: &Case, clock: &dyn Fn() -> Duration) -> Result<Bench, SimError> {
    let mut sets = vec![format!("duration={}s", case.seconds), format!("train={}", case.train)];
    match case.name {
        "reno" => sets.push("flow.flow.cc=reno".to_owned()),
        "native" => sets.push("flow.flow.kind=engine".to_owned()),
        _ => {}
    }
    let file = ScenarioFile::parse(case.name, case.scenario, &sets);
    let scenario = file.and_then(|file| file.scenario(0));
    let scenario = scenario.map_err(|error| SimError::invalid(case.name, error.to_string()))?;
    let start = clock();
    let outcome = crate::run(&scenario, &mut |_| {})?;
    let seconds = clock().saturating_sub(start).as_secs_f64().max(1e-9);
    let virtual_seconds = scenario.duration.as_secs_f64();
    Ok(Bench {
        event: "bench",
        name: case.name,
        packets: outcome.packet_hops,
        virtual_seconds,
        seconds,
        packets_per_second: outcome.packet_hops as f64 / seconds,
        virtual_seconds_per_second: virtual_seconds / seconds,
        trace_hash: outcome.trace_hash,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_can_be_read() {
        for case in CASES {
            let file = ScenarioFile::parse(case.name, case.scenario, &[]).expect(case.name);
            file.check().expect(case.name);
        }
    }
}
