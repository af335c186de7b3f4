use packtrain_link::{
    CoDelConfig, HostConfig, Limit, LinkConfig, LossConfig, QueueConfig, Scheduler,
};
use packtrain_units::{ByteCount, DataRate, Duration, Time};

use crate::outcome::{FlowOutcome, Outcome};
use crate::run;
use crate::spec::{EngineSpec, FlowKind, FlowSpec, LinkSpec, NodeSpec, Scenario, TcpSpec};

const MTU: ByteCount = ByteCount(1_472);

pub(super) fn engine(cc: &str) -> EngineSpec {
    EngineSpec {
        cc: cc.to_owned(),
        bytes: None,
        mtu: MTU,
        codec: false,
        ceiling: None,
        coalesce: true,
        train: 44,
        warnings: true,
        ecn: true,
        probe_train: None,
        saved: None,
    }
}

pub(super) fn flow(name: &str, spec: EngineSpec) -> FlowSpec {
    FlowSpec {
        name: name.to_owned(),
        from: 0,
        to: 1,
        start: Time::ZERO,
        stop: None,
        kind: FlowKind::Engine(spec),
        from_depot: None,
    }
}

/// Two hosts, a link each way with a queue of one bandwidth-delay product.
pub(super) fn path(rate: DataRate, rtt: Duration, flows: Vec<FlowSpec>) -> Scenario {
    let queue = rate.bytes_in(rtt).get() / 1_500;
    let mut config = LinkConfig::new(rate, rtt / 2, queue.max(4));
    config.queue = QueueConfig::DropTail(Limit::Packets(queue.max(4)));
    let link =
        |name: &str, from, to| LinkSpec { name: name.to_owned(), from, to, config: config.clone() };
    let node = |name: &str| NodeSpec { name: name.to_owned(), host: None };
    Scenario {
        name: "engine".to_owned(),
        title: "An engine between two hosts.".to_owned(),
        duration: Duration::from_secs(6),
        warm_up: Duration::from_secs(2),
        seed: 1,
        sample: None,
        nodes: vec![node("near"), node("far")],
        links: vec![link("there", 0, 1), link("back", 1, 0)],
        flows,
        train: 64,
        record: None,
    }
}

pub(super) fn play(scenario: &Scenario) -> Outcome {
    run(scenario, &mut |_| ()).unwrap_or_else(|e| panic!("{e}"))
}

/// The outcome without its cost.
fn found(scenario: &Scenario) -> Outcome {
    Outcome { events: 0, ..play(scenario) }
}

fn share(outcome: &FlowOutcome, rate: DataRate) -> f64 {
    outcome.goodput.as_bps() as f64 / rate.as_bps() as f64
}

/// Short scenarios with many impairments.
fn trials() -> Vec<Scenario> {
    let ms = Duration::from_millis;
    let mbps = DataRate::from_mbps;
    let mut trials = Vec::new();
    for (rate, rtt, cc) in [
        (mbps(1_000), ms(100), "native"),
        (mbps(100), ms(20), "native"),
        (mbps(200), ms(3), "cubic"),
        (mbps(50), ms(40), "fixed:60mbit"),
        (mbps(200), ms(20), "udt:grid"),
        (mbps(100), ms(50), "udt:udt4"),
        (mbps(100), ms(41), "sabul"),
    ] {
        for loss in [0.0, 1e-3, 3e-2] {
            let mut scenario = path(rate, rtt, vec![flow("a", engine(cc))]);
            scenario.links[0].config.loss = LossConfig::Independent(loss);
            scenario.duration = ms(1_500);
            scenario.warm_up = ms(300);
            trials.push(scenario);
        }
    }
    let finite = EngineSpec { bytes: Some(ByteCount(3_000_001)), ..engine("native") };
    let late = FlowSpec { start: Time::ZERO + ms(150), ..flow("b", engine("native")) };
    let stopped = FlowSpec { stop: Some(Time::ZERO + ms(700)), ..late.clone() };
    let three = vec![flow("a", finite), late, FlowSpec { name: "c".to_owned(), ..stopped }];
    let mut shared = path(mbps(100), ms(30), three);
    (shared.warm_up, shared.duration) = (ms(300), ms(2_000));
    shared.links[0].config.duplicate = 0.01;
    shared.sample = Some(ms(100));
    trials.push(shared);
    trials
}

#[test]
fn trains_are_packets() {
    for scenario in trials() {
        let trains = found(&scenario);
        for train in [1, 5] {
            let packets = found(&Scenario { train, ..scenario.clone() });
            assert_eq!(trains, packets, "{train} {:?}", scenario.flows[0].kind);
        }
        let sent: u64 = trains.flows.iter().map(|f| f.sent_packets).sum();
        assert!(sent > 100, "{:?}", trains.flows);
    }
}

#[test]
fn the_codec_changes_nothing() {
    for mut scenario in trials() {
        let bare = found(&scenario);
        for flow in &mut scenario.flows {
            if let FlowKind::Engine(spec) = &mut flow.kind {
                spec.codec = true;
            }
        }
        assert_eq!(bare, found(&scenario), "{:?}", scenario.flows[0].kind);
    }
}

#[test]
fn udt_paces_by_packets_or_by_trains() {
    let rate = DataRate::from_mbps(100);
    for (train, coalesce) in [(1, false), (44, true)] {
        let spec = EngineSpec { train, coalesce, ..engine("udt:paper") };
        let scenario = path(rate, Duration::from_millis(20), vec![flow("a", spec)]);
        let outcome = &play(&scenario).flows[0];
        assert!(share(outcome, rate) > 0.85, "trains of {train}: {outcome:?}");
        // Each has 1472 bytes and headers, and 1435 of payload.
        let wire = outcome.throughput.as_bps() as f64 / outcome.goodput.as_bps() as f64;
        assert!((1.04..1.1).contains(&wire), "{wire}");
    }
}

#[test]
fn what_drains_after_a_stop_is_in_no_rate_before_it() {
    let rate = DataRate::from_mbps(10);
    let mut scenario =
        path(rate, Duration::from_millis(100), vec![flow("a", engine("fixed:12mbit"))]);
    scenario.warm_up = Duration::ZERO;
    scenario.duration = Duration::from_secs(8);
    scenario.flows[0].stop = Some(Time::ZERO + Duration::from_secs(3));
    // A queue of a second: its contents at the stop are delivered afterwards.
    scenario.links[0].config.queue = QueueConfig::DropTail(Limit::Bytes(ByteCount(1_250_000)));
    let stopped = play(&scenario).flows[0].clone();
    let all = DataRate::from_bytes_over(stopped.delivered, Duration::from_secs(3));
    assert!(all > rate, "{all}: the queue drains after the stop");
    assert!(stopped.goodput < rate && stopped.throughput <= rate, "{}", stopped.goodput);
}

#[test]
fn a_finite_source_completes() {
    let spec = EngineSpec { bytes: Some(ByteCount(50_000_000)), ..engine("native") };
    let mut scenario =
        path(DataRate::from_mbps(1_000), Duration::from_millis(20), vec![flow("a", spec)]);
    scenario.links[0].config.loss = LossConfig::Independent(1e-3);
    scenario.warm_up = Duration::ZERO;
    let outcome = &play(&scenario).flows[0];
    assert_eq!(outcome.delivered, ByteCount(50_000_000));
    let took = outcome.completed_in.unwrap();
    assert!(took < Duration::from_millis(1_000), "{took}");
}

#[test]
fn sabul_completes_though_its_channel_crosses_a_network_that_loses() {
    let spec = EngineSpec { bytes: Some(ByteCount(20_000_000)), ..engine("sabul:90mbit") };
    let rtt = Duration::from_millis(41);
    let mut scenario = path(DataRate::from_mbps(100), rtt, vec![flow("a", spec)]);
    scenario.warm_up = Duration::ZERO;
    for link in &mut scenario.links {
        link.config.loss = LossConfig::Independent(0.008);
    }
    let outcome = &play(&scenario).flows[0];
    assert_eq!(outcome.delivered, ByteCount(20_000_000));
    let took = outcome.completed_in.unwrap();
    assert!(took < Duration::from_millis(3_000), "{took}");
}

/// The loss shares at a link in stretches of this length.
fn losses(outcome: &Outcome, stretch: Duration) -> Vec<f64> {
    let mut counts: Vec<(u32, u32)> = Vec::new();
    for packet in &outcome.record {
        let at = (packet.offered.as_nanos() / stretch.as_nanos()) as usize;
        counts.resize(counts.len().max(at + 1), (0, 0));
        counts[at].0 += 1;
        counts[at].1 += u32::from(packet.left.is_none());
    }
    counts.iter().map(|(all, lost)| f64::from(*lost) / f64::from((*all).max(1))).collect()
}

#[test]
fn sabul_loses_less_than_one_per_cent_after_its_first_adjustment() {
    // Section 5 of the paper: "It almost always (except during the initial rate adjustment) keeps
    // the percent packet loss rate below the acceptable 1 percent".
    let (ms, mbps) = (Duration::from_millis, DataRate::from_mbps);
    for (rate, rtt, first, queue) in [
        (mbps(100), ms(41), "100mbit", 1.0),
        (mbps(100), ms(41), "100mbit", 0.3),
        (mbps(100), ms(40), "140mbit", 1.0),
        (mbps(20), ms(100), "30mbit", 0.5),
        (mbps(600), ms(120), "650mbit", 1.0),
        (mbps(400), ms(10), "390mbit", 1.0),
    ] {
        for seed in 1..=3 {
            let spec = engine(&format!("sabul:{first}"));
            let mut scenario = path(rate, rtt, vec![flow("a", spec)]);
            let packets = ((rate.bytes_in(rtt).get() / 1_500) as f64 * queue) as u64;
            let config = &mut scenario.links[0].config;
            config.queue = QueueConfig::DropTail(Limit::Packets(packets.max(20)));
            // A small random loss, so that the seed makes a difference.
            config.loss = LossConfig::Independent(1e-4);
            (scenario.seed, scenario.record) = (seed, Some(0));
            (scenario.warm_up, scenario.duration) = (Duration::ZERO, ms(12_000));
            let outcome = play(&scenario);
            let mut losses = losses(&outcome, ms(500));
            losses.truncate(24);
            let label = format!("{rate} {rtt} from {first}, queue {queue}, seed {seed}");
            // The initial adjustment ends when the loss falls below the limit.
            let spike = losses.iter().position(|loss| *loss > 0.01).unwrap_or(0);
            let end = spike + losses[spike..].iter().position(|loss| *loss < 0.01).unwrap();
            let later = &losses[end..];
            let above = later.iter().filter(|loss| **loss >= 0.01).count();
            // On the paper's path none. Elsewhere some stretches are slightly above the limit,
            // which a review of 500 packets with five losses does not detect; on average none are.
            let own = first == "100mbit";
            let most = if own { 0 } else { later.len() / 5 };
            let mean = later.iter().sum::<f64>() / later.len() as f64;
            assert!(end <= 6 && above <= most && mean < 0.008, "{label}: {losses:.4?}");
            // Share of the payload, which is 94 % to 96 % of the link's rate.
            let share = share(&outcome.flows[0], rate);
            assert!(share > 0.92, "{label}: {share:.3}");
        }
    }
}

#[test]
fn a_ceiling_holds() {
    let ceiling = Some(DataRate::from_mbps(80));
    let spec = EngineSpec { ceiling, ..engine("native") };
    let rate = DataRate::from_mbps(400);
    let outcome = play(&path(rate, Duration::from_millis(20), vec![flow("a", spec)]));
    let share = share(&outcome.flows[0], DataRate::from_mbps(80));
    assert!((0.9..1.0).contains(&share), "{share}");
}

#[test]
fn native_fills_a_long_fat_pipe_at_any_loss() {
    let rate = DataRate::from_mbps(1_000);
    for loss in [0.0, 1e-4, 1e-3, 1e-2] {
        let mut scenario =
            path(rate, Duration::from_millis(100), vec![flow("a", engine("native"))]);
        scenario.links[0].config.loss = LossConfig::Independent(loss);
        let outcome = &play(&scenario).flows[0];
        assert!(share(outcome, rate) > 0.85, "loss {loss}: {outcome:?}");
    }
}

#[test]
fn the_launch_loses_next_to_nothing() {
    let ms = Duration::from_millis;
    for (mbit, rtt) in [(1_000, ms(100)), (100, ms(100)), (300, ms(30))] {
        let scenario = path(DataRate::from_mbps(mbit), rtt, vec![flow("a", engine("native"))]);
        let scenario = Scenario { warm_up: Duration::ZERO, duration: ms(3_000), ..scenario };
        let outcome = &play(&scenario).flows[0];
        let lost = outcome.dropped_packets as f64 / outcome.sent_packets as f64;
        assert!(lost < 1e-3, "{mbit} Mbit/s: {outcome:?}");
    }
}

#[test]
fn the_launch_takes_four_round_trips() {
    let ms = Duration::from_millis;
    for (mbit, rtt) in [
        (100, ms(10)),
        (100, ms(300)),
        (300, ms(100)),
        (1_000, ms(10)),
        (1_000, ms(100)),
        (1_000, ms(300)),
        (5_000, ms(20)),
    ] {
        let rate = DataRate::from_mbps(mbit);
        // The path's validation takes a round trip, and data arrives one later than it is sent.
        let warm_up = rtt * 6 + ms(40);
        let scenario = path(rate, rtt, vec![flow("a", engine("native"))]);
        let scenario = Scenario { warm_up, duration: warm_up + rtt * 3, ..scenario };
        let share = share(&play(&scenario).flows[0], rate);
        assert!(share > 0.85, "{mbit} Mbit/s, {rtt}: {share:.3}");
    }
}

/// Shares of the link, after 15 s, of a native flow and of the flows that join it.
fn shares(rate: DataRate, joining: Vec<FlowKind>) -> Vec<f64> {
    let joined = joining.into_iter().enumerate().map(|(i, kind)| FlowSpec {
        name: format!("joins-{i}"),
        start: Time::ZERO + Duration::from_secs(3 + 2 * i as u64),
        kind,
        ..flow("", engine("native"))
    });
    let flows = std::iter::once(flow("first", engine("native"))).chain(joined).collect();
    let scenario = Scenario {
        warm_up: Duration::from_secs(15),
        duration: Duration::from_secs(45),
        ..path(rate, Duration::from_millis(40), flows)
    };
    play(&scenario).flows.iter().map(|flow| share(flow, rate)).collect()
}

#[test]
fn native_flows_that_join_get_their_share() {
    for others in [1, 3] {
        let joining = vec![FlowKind::Engine(engine("native")); others];
        let shares = shares(DataRate::from_mbps(200), joining);
        let (sum, squares) = shares.iter().fold((0.0, 0.0), |(s, q), x| (s + x, q + x * x));
        assert!(sum > 0.9, "{shares:?}");
        let jain = sum * sum / (shares.len() as f64 * squares);
        assert!(jain > 0.9, "{shares:?}");
    }
}

#[test]
fn native_lives_beside_tcp() {
    for cc in ["reno", "cubic"] {
        let shares = shares(DataRate::from_mbps(100), vec![FlowKind::Tcp(TcpSpec::linux(cc))]);
        assert!(shares[0] > 0.12 && shares[1] > 0.12, "native and {cc}: {shares:?}");
        assert!(shares[0] + shares[1] > 0.9, "native and {cc}: {shares:?}");
    }
}

/// A queue of the reverse direction delays the feedback, but is no queue of the data.
#[test]
fn native_fills_the_link_though_a_rival_fills_the_reverse_direction() {
    let rate = DataRate::from_mbps(100);
    let back = FlowSpec {
        name: "back".to_owned(),
        from: 1,
        to: 0,
        kind: FlowKind::Tcp(TcpSpec::linux("cubic")),
        ..flow("", engine("native"))
    };
    let scenario = Scenario {
        warm_up: Duration::from_secs(5),
        duration: Duration::from_secs(60),
        ..path(rate, Duration::from_millis(100), vec![flow("there", engine("native")), back])
    };
    let shares: Vec<f64> = play(&scenario).flows.iter().map(|flow| share(flow, rate)).collect();
    assert!(shares[0] > 0.85 && shares[1] > 0.85, "there and back: {shares:?}");
}

#[test]
fn a_busy_host_drops_and_is_told_apart() {
    let rate = DataRate::from_mbps(1_000);
    let mut scenario = path(rate, Duration::from_millis(20), vec![flow("a", engine("native"))]);
    let ms = Duration::from_millis;
    scenario.nodes[1].host = Some(HostConfig {
        buffer: ByteCount(212_992),
        coalesce: Duration::from_micros(20),
        coalesce_most: 44,
        per_packet: Duration::from_micros(1),
        per_batch: Duration::from_micros(5),
        scheduler: Scheduler::OnOff { on: ms(30), off: ms(5) },
        seed: 3,
    });
    let trains = found(&scenario);
    assert!(trains.flows[0].host_dropped_packets > 0, "{:?}", trains.flows[0]);
    assert_eq!(trains, found(&Scenario { train: 1, ..scenario }));
}

/// Goodput in Mbit/s over a gigabit and 65 ms to a host whose processor is shared, for a
/// controller, and the share that the host dropped.
fn starved(cc: &str, scheduler: Scheduler) -> (f64, f64) {
    let ms = Duration::from_millis;
    let rate = DataRate::from_mbps(1_000);
    let mut scenario = path(rate, ms(65), vec![flow("a", engine(cc))]);
    scenario.duration = ms(20_000);
    scenario.nodes[1].host = Some(HostConfig { scheduler, seed: 3, ..HostConfig::default() });
    let outcome = &play(&scenario).flows[0];
    let dropped = outcome.host_dropped_packets as f64 / outcome.sent_packets.max(1) as f64;
    (outcome.goodput.as_bps() as f64 / 1e6, dropped)
}

#[test]
fn a_starved_receiver_keeps_what_it_has_processor_time_for() {
    let ms = Duration::from_millis;
    let generator = Scheduler::Generator { most: 7, slice: ms(3), spread: 0.3, keep: ms(20) };
    let often = Scheduler::OnOff { on: ms(30), off: ms(5) };
    let seldom = Scheduler::OnOff { on: ms(500), off: ms(20) };
    // A microsecond per packet: with the whole processor it can take ten times the link's rate, so
    // even an eighth of the processor suffices for all packets.
    let (alone, _) = starved("native", Scheduler::Alone);
    for (name, scheduler) in [("generator", generator), ("often", often), ("seldom", seldom)] {
        let (native, dropped) = starved("native", scheduler);
        assert!(dropped > 1e-3, "{name}: {dropped}");
        assert!(native > 0.8 * alone, "{name}: {native} of {alone}, {dropped} dropped");
        let (cubic, _) = starved("cubic", scheduler);
        assert!(cubic < 0.4 * alone, "{name}: it takes a sleep for congestion: {cubic}");
    }
}

/// CoDel marks the packets of an engine, which then slows down without losing any.
#[test]
fn a_queue_that_manages_itself_marks_an_engine_and_drops_nothing() {
    let codel = QueueConfig::CoDel(CoDelConfig {
        limit: Limit::Packets(10_000),
        target: Duration::from_millis(5),
        interval: Duration::from_millis(100),
    });
    let with = |ecn| {
        let spec = EngineSpec { ecn, ..engine("cubic") };
        let (rate, rtt) = (DataRate::from_mbps(100), Duration::from_millis(40));
        let mut scenario = path(rate, rtt, vec![flow("a", spec)]);
        for link in &mut scenario.links {
            link.config.queue = codel.clone();
        }
        let outcome = play(&scenario);
        (outcome.links[0].marked, outcome.links[0].dropped[1], outcome.flows[0].goodput)
    };
    let (marked, dropped, goodput) = with(true);
    assert!(marked > 0 && dropped == 0, "{marked} {dropped}");
    let (unmarked, early, without) = with(false);
    assert!(unmarked == 0 && early > 0, "{unmarked} {early}");
    assert!(goodput.as_bps() * 10 > without.as_bps() * 9, "{goodput} {without}");
}
