//! `native` to a host that waits for a processor.

use packtrain_units::DataRate;

use super::tests::play;
use crate::file::ScenarioFile;

/// A receiver beside eleven processes of equal priority: it runs 3 ms of 36 ms; beside eight, of 27.
const STARVED: &str = r#"
name = "starved"
duration = "6s"
warm_up = "2s"
[[node]]
name = "far"
[node.host]
buffer = "16MiB"
scheduler = { kind = "slices", slice = "3ms", competitors = 11 }
[[link]]
name = "wan"
from = "near"
to = "far"
rate = "1gbit"
rtt = "1ms"
queue = "2000 packets"
reverse = { queue = "100000 packets" }
[[flow]]
name = "subject"
from = "near"
to = "far"
kind = "engine"
cc = "native"
"#;

#[test]
fn the_window_covers_the_time_in_which_the_receiver_does_not_run() {
    // The stalls of 24 and 33 ms are longer than the round trip, about as long, and shorter.
    for (rtt, competitors) in [("1ms", 11), ("5ms", 11), ("20ms", 8), ("60ms", 11)] {
        let sets = [format!("link.wan.rtt={rtt}")];
        let text = STARVED.replace("competitors = 11", &format!("competitors = {competitors}"));
        let file = ScenarioFile::parse("starved", &text, &sets).expect("a valid file");
        let outcome = play(&file.scenario(0).expect("a valid scenario"));
        let goodput = outcome.flows[0].goodput;
        assert!(goodput > DataRate::from_mbps(850), "{rtt}, {competitors}: {goodput}");
    }
}
