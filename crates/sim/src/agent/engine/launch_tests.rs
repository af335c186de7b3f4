//! The launch of `native` on a path of its own.

use packtrain_cc::SavedPath;
use packtrain_link::{DelayVariation, Limit, LossConfig, QueueConfig};
use packtrain_units::{DataRate, Duration, Time};

use super::tests::{engine, flow, path, play};
use crate::file::ScenarioFile;
use crate::outcome::Recorded;
use crate::spec::EngineSpec;

/// Smaller packets carry no data.
const MIN_DATA_BYTES: u32 = 1_000;
/// Round trips that are played.
const ROUNDS: u64 = 6;

/// When the path has delivered 90 % of its rate for half a round trip, in round trips from the
/// first data packet on. The delay of the path does not count.
fn reached(record: &[Recorded], rate: DataRate, rtt: Duration) -> f64 {
    let data: Vec<_> = record.iter().filter(|packet| packet.size > MIN_DATA_BYTES).collect();
    let since = data[0].offered + rtt / 2;
    let mut eighths = vec![0u64; 8 * ROUNDS as usize];
    for (packet, left) in data.iter().filter_map(|packet| packet.left.map(|left| (packet, left))) {
        let at = (left.since(since).as_nanos() * 8 / rtt.as_nanos()) as usize;
        if let Some(bytes) = eighths.get_mut(at) {
            *bytes += u64::from(packet.size);
        }
    }
    let full = rate.bytes_in(rtt / 2).get() * 9 / 10;
    let at = eighths.windows(4).position(|half| half.iter().sum::<u64>() >= full);
    at.map_or(f64::INFINITY, |at| at as f64 / 8.0)
}

#[test]
fn native_reaches_the_rate_within_four_round_trips_and_overflows_no_queue() {
    for mbps in [100, 300, 1_000] {
        for ms in [10, 100, 300] {
            for tenths in [1, 10] {
                let (rate, rtt) = (DataRate::from_mbps(mbps), Duration::from_millis(ms));
                let bdp = rate.bytes_in(rtt).get();
                let mut scenario = path(rate, rtt, vec![flow("a", engine("native"))]);
                let queue = QueueConfig::DropTail(Limit::Packets(bdp * tenths / 10 / 1_500));
                scenario.links[0].config.queue = queue;
                // The validation of the path takes a round trip.
                (scenario.warm_up, scenario.duration) = (Duration::ZERO, rtt * (ROUNDS + 1));
                scenario.record = Some(0);
                let outcome = play(&scenario);
                let cell = format!("{mbps} Mbit/s, {ms} ms, {tenths} tenths");
                let rounds = reached(&outcome.record, rate, rtt);
                assert!(rounds < 4.0, "{cell}: {rounds}");
                let overflow = outcome.links[0].dropped[0] * 1_500;
                assert!(overflow * 5 < bdp, "{cell}: {overflow} of {bdp}");
            }
        }
    }
}

#[test]
fn a_fetch_reaches_the_rate_a_round_trip_earlier() {
    for (mbps, ms) in [(100, 100), (300, 10), (1_000, 100), (1_000, 300), (5_000, 20)] {
        let (rate, rtt) = (DataRate::from_mbps(mbps), Duration::from_millis(ms));
        let rounds = |probe_train: Option<Duration>| {
            let spec = EngineSpec { probe_train, ..engine("native") };
            let mut scenario = path(rate, rtt, vec![flow("a", spec)]);
            (scenario.warm_up, scenario.duration) = (Duration::ZERO, rtt * (ROUNDS + 1));
            scenario.record = Some(0);
            let mut outcome = play(&scenario);
            assert_eq!(outcome.links[0].dropped[0], 0, "{mbps} Mbit/s, {ms} ms");
            // In the first round trip there are pings only.
            outcome.record.retain(|packet| packet.offered > Time::ZERO + rtt / 2);
            reached(&outcome.record, rate, rtt)
        };
        let (alone, fetch) = (rounds(None), rounds(Some(rtt)));
        assert!(fetch <= alone - 1.0, "{mbps} Mbit/s, {ms} ms: {fetch} and {alone}");
    }
}

/// The share of a link of `mbps`, at 100 ms and with this jitter and queue, that is delivered in the
/// first two seconds by a flow that knows of an earlier one at `saved` Mbit/s; and the bytes dropped.
fn share_of_two_seconds(mbps: u64, jitter: u64, saved: Option<u64>, seed: u64) -> (f64, u64) {
    let (rate, rtt) = (DataRate::from_mbps(mbps), Duration::from_millis(100));
    let saved = saved.map(|mbps| SavedPath { rate: DataRate::from_mbps(mbps), rtt });
    let mut scenario = path(rate, rtt, vec![flow("a", EngineSpec { saved, ..engine("native") })]);
    scenario.seed = seed;
    if jitter > 0 {
        let jitter = Duration::from_millis(jitter);
        scenario.links[0].config.jitter = Some(DelayVariation::Uniform(jitter));
    }
    (scenario.warm_up, scenario.duration) = (Duration::ZERO, Duration::from_secs(2));
    let outcome = play(&scenario);
    let bits = outcome.flows[0].delivered.get() as f64 * 8.0;
    (bits / 2.0 / rate.as_bps() as f64, outcome.links[0].dropped[0] * 1_500)
}

#[test]
fn a_known_path_is_used_at_once_where_jitter_hides_its_capacity() {
    let mean = |saved| {
        let seeds = (1..5).map(|seed| share_of_two_seconds(1_000, 20, saved, seed));
        seeds.fold((0.0, 0), |sum, (share, dropped)| (sum.0 + share / 4.0, sum.1 + dropped))
    };
    let ((blind, _), (resumed, dropped)) = (mean(None), mean(Some(900)));
    assert!(resumed > blind + 0.1, "{resumed} and {blind}");
    assert_eq!(dropped, 0);
}

#[test]
fn a_path_that_has_become_slower_is_found_out() {
    for seed in 1..4 {
        for jitter in [0, 5] {
            let (blind, lost) = share_of_two_seconds(100, jitter, None, seed);
            let (resumed, dropped) = share_of_two_seconds(100, jitter, Some(900), seed);
            let what = format!(
                "jitter {jitter}, seed {seed}: {resumed} and {blind}, {dropped} and {lost}"
            );
            // The step at half of the saved rate lasts until its own packets show the queue.
            let step = 450_000_000 / 8 / 10;
            assert!(resumed > blind - 0.15 && dropped < lost + 3 * step, "{what}");
        }
    }
}

#[test]
fn losses_at_random_do_not_end_the_launch() {
    let (rate, rtt) = (DataRate::from_mbps(1_000), Duration::from_millis(100));
    for loss in [1e-4, 1e-3, 1e-2] {
        let mut scenario = path(rate, rtt, vec![flow("a", engine("native"))]);
        scenario.links[0].config.loss = LossConfig::Independent(loss);
        (scenario.warm_up, scenario.duration) = (Duration::ZERO, rtt * (ROUNDS + 1));
        scenario.record = Some(0);
        let outcome = play(&scenario);
        let rounds = reached(&outcome.record, rate, rtt);
        assert!(rounds < 4.0, "{loss}: {rounds}");
    }
}

/// A CUBIC flow whose queue is full when `native` begins, so that it drops the end of the first burst.
const FULL: &str = r#"
name = "full"
duration = "12s"
[[link]]
name = "wan"
from = "router"
to = "far"
rate = "100mbit"
rtt = "10ms"
queue = "1bdp"
reverse = { queue = "1000000 packets" }
[[link]]
name = "access"
from = "near"
to = "router"
rate = "10gbit"
delay = "10us"
queue = "100000 packets"
[[flow]]
name = "rival"
from = "near"
to = "far"
cc = "cubic"
start = "5s"
[[flow]]
name = "subject"
from = "near"
to = "far"
kind = "engine"
cc = "native"
start = "10s"
"#;

#[test]
fn a_launch_that_ends_without_a_capacity_goes_on_when_one_is_measured() {
    let file = ScenarioFile::parse("full", FULL, &[]).expect("a valid file");
    let outcome = play(&file.scenario(0).expect("a valid scenario"));
    let capacity = outcome.flows[1].capacity.unwrap_or_default();
    assert!(capacity > DataRate::from_mbps(90), "{capacity}");
    let goodput = outcome.flows[1].goodput;
    assert!(goodput > DataRate::from_mbps(20), "{goodput}");
}
