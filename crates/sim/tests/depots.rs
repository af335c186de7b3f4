//! Sessions over depots: every byte arrives once, backpressure starts at exactly the depot's
//! buffers, and shorter control loops give a gain.

mod common;

use common::{empty, flow, play, session};
use packtrain_link::{LinkConfig, LossConfig};
use packtrain_sim::outcome::Outcome;
use packtrain_sim::spec::{FlowKind, Recovery, Scenario, TcpSpec};
use packtrain_units::{ByteCount, DataRate, Duration, Time};
use proptest::prelude::*;

const MSS: u64 = 1_448;

/// Hosts in a row, with a link in each direction between neighbours.
fn row(links: &[(u64, u64)], seconds: u64) -> Scenario {
    let link = |(i, (mbps, ms)): (usize, &(u64, u64))| {
        let (rate, delay) = (DataRate::from_mbps(*mbps), Duration::from_millis(*ms) / 2);
        let config = LinkConfig::new(rate, delay, 20_000);
        [(i, i + 1, config.clone()), (i + 1, i, config)]
    };
    let all = links.iter().enumerate().flat_map(link).collect();
    empty(links.len() + 1, all, Duration::from_secs(seconds))
}

/// A copy from the first host to the last, over the hosts between.
fn copy(scenario: &mut Scenario, tcp: TcpSpec, depots: &[usize], buffers: [u64; 3]) {
    let last = scenario.nodes.len() - 1;
    session(&mut scenario.flows, depots, buffers, flow("copy", 0, last, FlowKind::Tcp(tcp)));
}

fn bytes(cc: &str, bytes: u64) -> TcpSpec {
    TcpSpec { bytes: Some(ByteCount(bytes)), ..TcpSpec::linux(cc) }
}

fn seconds(outcome: &Outcome) -> f64 {
    outcome.flows.last().unwrap().completed_in.expect("it completes").as_secs_f64()
}

#[test]
fn the_first_hop_breaks_at_exactly_the_buffers() {
    // A fast hop before a slow one, with buffers of 200, 300 and 100 segments.
    let mut scenario = row(&[(100, 20), (5, 20)], 30);
    copy(&mut scenario, bytes("cubic", 3_000 * MSS), &[1], [200, 300, 100]);
    scenario.sample = Some(Duration::from_millis(10));
    let outcome = play(&scenario);
    let acked = |flow: usize, at: u64| {
        let at = Time::ZERO + Duration::from_millis(at);
        let sample = outcome.samples.iter().find(|s| s.flow == flow && s.at == at).unwrap();
        sample.acked.unwrap().get() / MSS
    };
    for at in (600..4_000).step_by(100) {
        // Room is advertised in sixteenths of a buffer, with a round trip's delay.
        let ahead = acked(0, at) - acked(1, at);
        assert!((575..=600).contains(&ahead), "{ahead} segments in the depot after {at} ms");
    }
    assert_eq!(outcome.flows[1].delivered, ByteCount(3_000 * MSS));
    // The slow hop never starves: its time plus the setup.
    let alone = 3_000.0 * 1_500.0 * 8.0 / 5e6;
    assert!((alone..alone + 0.3).contains(&seconds(&outcome)), "{}", seconds(&outcome));
}

#[test]
fn a_clean_path_costs_half_a_round_trip() {
    let time = |depots: &[usize]| {
        let mut scenario = row(&[(100, 40), (100, 40)], 30);
        copy(&mut scenario, bytes("cubic", 20_000_000), depots, [6_000, 12_000, 6_000]);
        seconds(&play(&scenario))
    };
    let (direct, over) = (time(&[]), time(&[1]));
    assert!(over < direct * 1.03 + 0.08, "{over} after {direct} seconds");
}

#[test]
fn a_lost_update_of_the_window_is_asked_for() {
    // Half of the packets to the source are lost, window updates included.
    for seed in 1..20 {
        let mut scenario = row(&[(50, 10), (2, 10)], 3_600);
        scenario.links[1].config.loss = LossConfig::Independent(0.5);
        scenario.seed = seed;
        copy(&mut scenario, bytes("reno", 1_000_000), &[1], [10, 5, 10]);
        let outcome = play(&scenario);
        let done = outcome.flows[1].completed_in;
        assert!(done.is_some(), "seed {seed}: {:?}", outcome.flows);
    }
}

#[test]
fn two_short_loops_gain_what_theory_says() {
    // Random loss on either hop: Reno gains 2^1.5.
    let goodput = |depots: &[usize]| {
        let mut scenario = row(&[(1_000, 40), (1_000, 40)], 300);
        scenario.links[0].config.loss = LossConfig::Independent(5e-4);
        scenario.links[2].config.loss = LossConfig::Independent(5e-4);
        copy(&mut scenario, TcpSpec::linux("reno"), depots, [6_000, 12_000, 6_000]);
        scenario.warm_up = Duration::from_secs(30);
        play(&scenario).flows.last().unwrap().goodput.as_bps() as f64
    };
    let gain = goodput(&[1]) / goodput(&[]);
    assert!((0.8 * 2.83..1.3 * 2.83).contains(&gain), "{gain}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Under any loss, with any buffers and any recovery, everything arrives once.
    #[test]
    fn every_byte_arrives_once(
        loss in 0.0..0.08f64,
        back in 0.0..0.08f64,
        depots in 1..4usize,
        buffers in (1..30u64, 0..30u64, 1..30u64),
        size in 1..300_000u64,
        recovery in prop::sample::select(vec![Recovery::NewReno, Recovery::Sack, Recovery::Rack]),
        paced: bool,
        seed: u64,
    ) {
        let links: Vec<(u64, u64)> = (0..=depots as u64).map(|i| (5 + 3 * i, 4 + 2 * i)).collect();
        let mut scenario = row(&links, 600);
        for link in &mut scenario.links {
            let p = if link.from < link.to { loss } else { back };
            link.config.loss = LossConfig::Independent(p);
        }
        scenario.seed = seed;
        let spec = TcpSpec { recovery, paced, ..bytes("cubic", size) };
        let via: Vec<usize> = (1..=depots).collect();
        copy(&mut scenario, spec, &via, [buffers.0, buffers.1, buffers.2]);
        let outcome = play(&scenario);
        for flow in &outcome.flows {
            prop_assert_eq!(flow.delivered, ByteCount(size), "{:?}", &outcome.flows);
            prop_assert!(flow.completed_in.is_some());
        }
    }
}
