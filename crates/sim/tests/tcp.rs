//! TCP as the RFCs and the papers describe it.

mod common;

use common::{empty, flow, lossy, pair, play};
use packtrain_link::{
    CrossConfig, CrossKind, DelayVariation, LinkConfig, LossConfig, RateSchedule, ReorderConfig,
};
use packtrain_sim::outcome::{FlowOutcome, Outcome};
use packtrain_sim::spec::{Arrivals, FlowKind, Recovery, Scenario, ShortSpec, TcpSpec};
use packtrain_units::{ByteCount, DataRate, Duration, Time};
use proptest::prelude::*;

const MS: Duration = Duration::from_millis(1);
const RECOVERIES: [Recovery; 3] = [Recovery::NewReno, Recovery::Sack, Recovery::Rack];

fn with(mut scenario: Scenario, tcp: TcpSpec) -> Scenario {
    scenario.flows = vec![flow("one", 0, 1, FlowKind::Tcp(tcp))];
    scenario
}

fn completed(flow: &FlowOutcome) -> Duration {
    flow.completed_in.unwrap_or_else(|| panic!("not completed: {flow:?}"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Every byte exactly once, whatever the network does to segments and acknowledgements.
    #[test]
    fn all_arrives_once(
        seed: u64,
        recovery in prop::sample::select(RECOVERIES.to_vec()),
        (loss, back) in (0.0..0.1f64, 0.0..0.1f64),
        (late, twice) in (0.0..0.1f64, 0.0..0.1f64),
        bytes in 1..300_000u64,
        (ack_every, queue) in (1..4u32, 3..40u64),
        jitter: bool,
    ) {
        let mut scenario = pair(DataRate::from_mbps(20), MS * 20, queue, Duration::from_secs(900));
        scenario.seed = seed;
        for (link, loss) in scenario.links.iter_mut().zip([loss, back]) {
            link.config.loss = LossConfig::Independent(loss);
            link.config.reorder = Some(ReorderConfig { probability: late, extra: MS * 7 });
            link.config.duplicate = twice;
            link.config.jitter = jitter.then_some(DelayVariation::Uniform(MS));
        }
        let tcp = TcpSpec {
            recovery, ack_every, bytes: Some(ByteCount(bytes)), ..TcpSpec::linux("reno")
        };
        let outcome = play(&with(scenario, tcp));
        prop_assert_eq!(outcome.flows[0].delivered, ByteCount(bytes));
        prop_assert!(outcome.flows[0].completed_in.is_some(), "{:?}", outcome.flows[0]);
    }
}

/// The time for 2,000 segments when these of them are lost once.
fn repair_time(recovery: Recovery, lost: &[usize]) -> (Duration, FlowOutcome) {
    let mut scenario = pair(DataRate::from_mbps(100), MS * 100, 1_000, Duration::from_secs(60));
    // The opening is packet 0.
    let mut outcomes = vec![false; 100_000];
    lost.iter().for_each(|i| outcomes[i + 1] = true);
    scenario.links[0].config.loss = LossConfig::Trace(outcomes);
    let tcp = TcpSpec {
        recovery,
        bytes: Some(ByteCount(2_000_000)),
        window: Some(ByteCount(100_000)),
        initial_window: 100,
        ..TcpSpec::ns2("reno")
    };
    let outcome = play(&with(scenario, tcp));
    let flow = outcome.flows[0].clone();
    (completed(&flow), flow)
}

#[test]
fn newreno_repairs_one_loss_a_round_trip_and_sack_all_in_one() {
    let lost = [410, 414, 419, 430, 433, 441];
    let times = |recovery| {
        let of = |n| {
            let (took, flow) = repair_time(recovery, &lost[..n]);
            assert_eq!((flow.timeouts, flow.loss_events), (0, 1), "{recovery:?} {n} {flow:?}");
            assert_eq!(flow.retransmitted, ByteCount(n as u64 * 1_000), "{recovery:?} {n}");
            took
        };
        (of(1), of(6))
    };
    let (one, six) = times(Recovery::NewReno);
    let more = six - one;
    assert!(more > MS * 350 && more < MS * 650, "NewReno: {more}");
    for recovery in [Recovery::Sack, Recovery::Rack] {
        let (one, six) = times(recovery);
        assert!(six.saturating_sub(one) < MS * 120, "{recovery:?}: {one} {six}");
    }
}

#[test]
fn rack_repairs_a_lost_retransmission_without_a_timeout() {
    // Segment 410 is lost; its retransmission is the first packet after what was in flight.
    let (_, once) = repair_time(Recovery::Rack, &[410]);
    assert_eq!(once.retransmitted, ByteCount(1_000));
    let again = (500..540).find_map(|i| {
        let (took, flow) = repair_time(Recovery::Rack, &[410, i]);
        (flow.loss_events == 1 && flow.retransmitted == ByteCount(2_000)).then_some((took, flow))
    });
    let (_, flow) = again.expect("one of these was the retransmission");
    assert_eq!(flow.timeouts, 0, "{flow:?}");
}

#[test]
fn a_tail_loss_is_probed_for() {
    // The last two segments of 2,000 are lost: no duplicate can reveal it.
    let (probed, flow) = repair_time(Recovery::Rack, &[1_998, 1_999]);
    assert_eq!(flow.timeouts, 0, "{flow:?}");
    let (waited, flow) = repair_time(Recovery::Sack, &[1_998, 1_999]);
    assert_eq!(flow.timeouts, 1, "{flow:?}");
    assert!(probed < waited + MS * 150, "{probed} {waited}");
}

#[test]
fn the_timer_backs_off_while_the_link_is_down() {
    for recovery in RECOVERIES {
        let mut scenario = pair(DataRate::from_mbps(10), MS * 40, 50, Duration::from_secs(60));
        let (rate, at) = (DataRate::from_mbps(10), |s: u64| Time::from_nanos(s * 1_000_000_000));
        scenario.links[0].config.rate = RateSchedule {
            steps: vec![(Time::ZERO, rate), (at(1), DataRate::ZERO), (at(9), rate)],
            period: None,
        };
        scenario.record = Some(0);
        let bytes = Some(ByteCount(4_000_000));
        let tcp = TcpSpec { recovery, bytes, ..TcpSpec::linux("reno") };
        let outcome = play(&with(scenario, tcp));
        let flow = &outcome.flows[0];
        assert_eq!(flow.delivered, ByteCount(4_000_000));
        assert!((3..=7).contains(&flow.timeouts), "{recovery:?} {flow:?}");
        // Unanswered packets are sent at doubling intervals.
        let vain: Vec<u64> = outcome
            .record
            .iter()
            .filter(|packet| packet.offered > at(1) + MS * 400 && packet.offered < at(9))
            .map(|packet| packet.offered.as_nanos())
            .collect();
        let gaps: Vec<u64> = vain.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(gaps.len() >= 2, "{vain:?}");
        assert!(gaps.windows(2).all(|g| g[1].abs_diff(2 * g[0]) <= 2), "{recovery:?} {gaps:?}");
    }
}

#[test]
fn a_lone_segment_is_acknowledged_after_the_delay_and_two_at_once() {
    let mut scenario = pair(DataRate::from_mbps(100), MS * 20, 50, Duration::from_secs(5));
    scenario.record = Some(1);
    let tcp =
        TcpSpec { bytes: Some(ByteCount(3 * 1_448)), initial_window: 1, ..TcpSpec::linux("reno") };
    let outcome = play(&with(scenario, tcp));
    // The answer to the opening; the first segment's; one for the last two.
    let at: Vec<Time> = outcome.record.iter().map(|packet| packet.offered).collect();
    assert_eq!(at.len(), 3, "{at:?}");
    let way = DataRate::from_mbps(100).time_for(ByteCount(52)) + MS * 10;
    let data = DataRate::from_mbps(100).time_for(ByteCount(1_500));
    let first = at[0] + way + data + MS * 10;
    assert_eq!(at[1], first + MS * 40);
    let last = at[1] + way + data * 2 + MS * 10;
    assert_eq!(at[2], last);
}

/// Segments per round trip.
fn window_of(outcome: &Outcome, rtt: Duration, mss: u64) -> f64 {
    outcome.flows[0].goodput.as_bps() as f64 / 8.0 * rtt.as_secs_f64() / mss as f64
}

fn ns2_reno(loss: LossConfig, seconds: u64) -> f64 {
    let rtt = MS * 50;
    let mut scenario = pair(DataRate::from_mbps(1_000), rtt, 10_000, Duration::from_secs(seconds));
    scenario.links[0].config.loss = loss;
    scenario.warm_up = Duration::from_secs(seconds / 20);
    window_of(&play(&with(scenario, TcpSpec::ns2("reno"))), rtt, 1_000)
}

#[test]
fn renos_sawtooth_has_the_period_of_its_square() {
    // A loss every n packets: W falls to W/2 and rises by one per round trip, so 3/8 W^2 packets
    // pass between losses, at 3/4 W per round trip.
    let n = 2_000;
    let mut outcomes = vec![false; n];
    outcomes[n - 1] = true;
    let mean = ns2_reno(LossConfig::Trace(outcomes), 300);
    let expected = 0.75 * (8.0 * n as f64 / 3.0).sqrt();
    assert!((mean / expected - 1.0).abs() < 0.06, "{mean} {expected}");
}

#[test]
fn throughput_follows_mathis() {
    // Mathis, Semke, Mahdavi and Ott 1997, table 1: C = 1.31 for random loss with an
    // acknowledgement for each packet (1.22 if losses are periodic).
    let p = 1e-3f64;
    let mean = ns2_reno(LossConfig::Independent(p), 900);
    let c = mean * p.sqrt();
    assert!((1.31 * 0.9..1.31 * 1.1).contains(&c), "C = {c}");
}

#[test]
fn nothing_vanishes_in_a_link() {
    let mut scenario = pair(DataRate::from_mbps(8), MS * 10, 20, Duration::from_secs(20));
    let mbit = DataRate::from_mbps;
    let kind = |kind| FlowKind::Cross(CrossConfig { packet: ByteCount(1_000), kind });
    scenario.flows = vec![
        flow("even", 0, 1, kind(CrossKind::Cbr(vec![(Time::ZERO, mbit(3))]))),
        flow("poisson", 0, 1, kind(CrossKind::Poisson(mbit(4)))),
        flow(
            "bursts",
            0,
            1,
            kind(CrossKind::Bursts { packets: 40, line: mbit(1_000), mean: mbit(2) }),
        ),
    ];
    let outcome = play(&scenario);
    let link = &outcome.links[0];
    let dropped: u64 = link.dropped.iter().sum();
    assert!(dropped > 100, "{link:?}");
    // At the end up to twenty wait and one is being transmitted.
    let waiting = link.offered - dropped - link.transmitted.get() / 1_000;
    assert!(waiting <= 21, "{link:?}");
    assert_eq!(link.offered, outcome.flows.iter().map(|f| f.sent_packets).sum::<u64>());
    let lost: u64 = outcome.flows.iter().map(|f| f.dropped_packets).sum();
    assert_eq!(lost, dropped);
    assert!((0.95..=1.0).contains(&link.utilisation), "{link:?}");
}

#[test]
fn short_connections_all_complete() {
    for (arrivals, p) in [(Arrivals::Concurrent(8), 0.0), (Arrivals::Poisson(40.0), 0.02)] {
        let mut scenario = pair(DataRate::from_mbps(50), MS * 30, 100, Duration::from_secs(60));
        scenario.links[0].config.loss = LossConfig::Independent(p);
        let tcp = TcpSpec { bytes: Some(ByteCount(14_480)), ..TcpSpec::linux("cubic") };
        let short = ShortSpec { tcp, count: 200, arrivals };
        scenario.flows = vec![flow("many", 0, 1, FlowKind::Short(short))];
        let outcome = play(&scenario);
        let (count, mean, p99) = outcome.flows[0].completed.unwrap_or_default();
        assert_eq!(count, 200);
        assert_eq!(outcome.flows[0].delivered, ByteCount(200 * 14_480));
        // An opening and ten segments in one window: two round trips and the transmissions.
        assert!(mean > MS * 60 && p99 >= mean, "{mean} {p99}");
        assert!(p > 0.0 || p99 < MS * 120, "{mean} {p99}");
    }
}

#[test]
fn packets_are_routed_by_the_shortest_delay() {
    let link = |ms| LinkConfig::new(DataRate::from_mbps(100), MS * ms, 100);
    // The direct link is slower than the path over node 2.
    let links = vec![(0, 1, link(50)), (1, 0, link(5)), (0, 2, link(10)), (2, 1, link(10))];
    let mut scenario = empty(3, links, Duration::from_secs(10));
    let tcp = TcpSpec { bytes: Some(ByteCount(5_000_000)), ..TcpSpec::linux("reno") };
    scenario.flows = vec![flow("one", 0, 1, FlowKind::Tcp(tcp))];
    let outcome = play(&scenario);
    assert_eq!(outcome.links[0].offered, 0);
    assert_eq!(outcome.links[2].offered, outcome.links[3].offered + outcome.links[2].dropped[0]);
    assert!(outcome.flows[0].rtt_mean >= MS * 25);
}

#[test]
fn a_fair_share_of_a_bottleneck() {
    let mut scenario = pair(DataRate::from_mbps(40), MS * 40, 130, Duration::from_secs(120));
    scenario.warm_up = Duration::from_secs(20);
    let tcp = || FlowKind::Tcp(TcpSpec::linux("reno"));
    scenario.flows = vec![flow("a", 0, 1, tcp()), flow("b", 0, 1, tcp())];
    let outcome = play(&scenario);
    let [a, b] = [0, 1].map(|i| outcome.flows[i].goodput.as_bps() as f64);
    assert!(a + b > 37e6, "{a} {b}");
    assert!((0.5..2.0).contains(&(a / b)), "{a} {b}");
    assert!(outcome.flows[0].queueing_p99 > outcome.flows[0].queueing_mean);
}

#[test]
fn curves_are_sampled() {
    let mut scenario = lossy("cubic", 1e-3);
    scenario.sample = Some(MS * 100);
    let outcome = play(&scenario);
    assert_eq!(outcome.samples.len(), 200);
    assert!(
        outcome
            .samples
            .iter()
            .all(|s| s.rtt.is_some_and(|rtt| rtt >= MS * 20) || s.at < Time::ZERO + MS * 200)
    );
    let mean = outcome.samples.iter().map(|s| s.goodput.as_bps()).sum::<u64>() / 200;
    let whole = outcome.flows[0].goodput.as_bps();
    assert!(mean.abs_diff(whole) < whole / 100, "{mean} {whole}");
}

#[test]
fn impossible_values_are_refused_with_their_place() {
    let path = |change: fn(&mut Scenario)| {
        let mut scenario = lossy("reno", 0.0);
        change(&mut scenario);
        scenario.check().expect_err("refused").to_string()
    };
    assert!(path(|s| s.duration = Duration::ZERO).starts_with("duration:"));
    assert!(path(|s| s.train = 65).starts_with("train:"));
    assert!(path(|s| s.flows[0].to = 9).starts_with("flows[0].to:"));
    assert!(path(|s| s.flows[0].to = 0).starts_with("flows[0].to:"));
    assert!(path(|s| s.links[1].to = 1).starts_with("links[1].to:"));
    assert!(path(|s| drop(s.links.pop())).starts_with("flows[0].to: no links lead back"));
    assert!(path(|s| s.links[0].config.mtu = ByteCount(1_000)).starts_with("flows[0].mss:"));
    assert!(
        path(|s| s.flows[0].kind = FlowKind::Tcp(TcpSpec::linux("quic")))
            .starts_with("flows[0].cc:")
    );
    assert!(
        path(
            |s| s.flows[0].kind = FlowKind::Tcp(TcpSpec { ack_every: 0, ..TcpSpec::linux("reno") })
        )
        .starts_with("flows[0].ack_every:")
    );
}
