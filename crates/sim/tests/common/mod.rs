//! Scenarios for tests.
#![allow(dead_code)]

use packtrain_link::{
    CoDelConfig, CrossConfig, CrossKind, DelayVariation, Limit, LinkConfig, LossConfig,
    QueueConfig, RedConfig, RedMode, ReorderConfig,
};
use packtrain_sim::outcome::Outcome;
use packtrain_sim::spec::{
    Arrivals, DepotSpec, EngineSpec, FlowKind, FlowSpec, LinkSpec, NodeSpec, Recovery, Scenario,
    ShortSpec, TcpSpec,
};
use packtrain_units::{ByteCount, DataRate, Duration, Time};
use proptest::prelude::*;

/// Runs a scenario to its end.
pub(crate) fn play(scenario: &Scenario) -> Outcome {
    packtrain_sim::run(scenario, &mut |_| {}).unwrap_or_else(|error| panic!("{error}"))
}

/// Nodes and links without a flow.
pub(crate) fn empty(
    nodes: usize,
    links: Vec<(usize, usize, LinkConfig)>,
    duration: Duration,
) -> Scenario {
    let node = |i| NodeSpec { name: format!("n{i}"), host: None };
    let link = |(i, (from, to, config))| LinkSpec { name: format!("l{i}"), from, to, config };
    Scenario {
        name: "test".to_owned(),
        title: String::new(),
        duration,
        warm_up: Duration::ZERO,
        seed: 1,
        sample: None,
        nodes: (0..nodes).map(node).collect(),
        links: links.into_iter().enumerate().map(link).collect(),
        flows: Vec::new(),
        train: 64,
        record: None,
    }
}

/// A flow over the whole duration.
pub(crate) fn flow(name: &str, from: usize, to: usize, kind: FlowKind) -> FlowSpec {
    FlowSpec {
        name: name.to_owned(),
        from,
        to,
        start: Time::ZERO,
        stop: None,
        kind,
        from_depot: None,
    }
}

/// Two hosts, a clean link each way.
pub(crate) fn pair(rate: DataRate, rtt: Duration, queue: u64, duration: Duration) -> Scenario {
    let config = LinkConfig::new(rate, rtt / 2, queue);
    empty(2, vec![(0, 1, config.clone()), (1, 0, config)], duration)
}

/// One flow at 10 Mbit/s and 20 ms with random loss.
pub(crate) fn lossy(cc: &str, p: f64) -> Scenario {
    let second = Duration::from_secs(1);
    let mut scenario = pair(DataRate::from_mbps(10), Duration::from_millis(20), 50, second * 20);
    scenario.links[0].config.loss = LossConfig::Independent(p);
    scenario.flows.push(flow("one", 0, 1, FlowKind::Tcp(TcpSpec::linux(cc))));
    scenario
}

fn any_queue() -> impl Strategy<Value = QueueConfig> {
    let red = RedConfig {
        limit: Limit::Packets(40),
        min_threshold: 5.0,
        max_threshold: 15.0,
        linterm: 10.0,
        weight: 0.02,
        mean_packet: ByteCount(1_000),
        mode: RedMode::Gentle,
    };
    let codel = CoDelConfig {
        limit: Limit::Packets(100),
        target: Duration::from_millis(5),
        interval: Duration::from_millis(100),
    };
    prop_oneof![
        4 => (2..60u64).prop_map(|n| QueueConfig::DropTail(Limit::Packets(n))),
        2 => (4_000..90_000u64).prop_map(|n| QueueConfig::DropTail(Limit::Bytes(ByteCount(n)))),
        1 => Just(QueueConfig::Red(red)),
        1 => Just(QueueConfig::CoDel(codel)),
    ]
}

fn any_link(rates: std::ops::Range<u64>) -> impl Strategy<Value = LinkConfig> {
    let loss = prop_oneof![
        3 => Just(LossConfig::None),
        2 => (0.0..0.03f64).prop_map(LossConfig::Independent),
    ];
    let jitter = prop_oneof![
        5 => Just(None),
        1 => Just(Some(DelayVariation::Uniform(Duration::from_micros(700)))),
        1 => Just(Some(DelayVariation::Normal(Duration::from_micros(300)))),
    ];
    let reorder = prop_oneof![
        5 => Just(None),
        1 => Just(Some(ReorderConfig { probability: 0.02, extra: Duration::from_micros(2_500) })),
    ];
    let duplicate = prop_oneof![5 => Just(0.0), 1 => Just(0.01)];
    let delay = prop_oneof![1 => Just(0u64), 6 => 1..12_000u64].prop_map(Duration::from_micros);
    (rates, delay, any_queue(), loss, jitter, reorder, duplicate, any::<u64>()).prop_map(
        |(rate, delay, queue, loss, jitter, reorder, duplicate, seed)| {
            let mut config = LinkConfig::new(DataRate::from_bps(rate * 1_000), delay, 1);
            (config.queue, config.loss, config.jitter) = (queue, loss, jitter);
            (config.reorder, config.duplicate, config.seed) = (reorder, duplicate, seed);
            config
        },
    )
}

fn any_tcp() -> impl Strategy<Value = TcpSpec> {
    let cc = prop::sample::select(vec!["reno", "cubic", "bbr", "highspeed", "scalable"]);
    let recovery = prop::sample::select(vec![Recovery::NewReno, Recovery::Sack, Recovery::Rack]);
    let bytes = prop_oneof![2 => Just(None), 1 => (1..400_000u64).prop_map(Some)];
    let window = prop_oneof![4 => Just(None), 1 => (3_000..60_000u64).prop_map(Some)];
    (cc, recovery, bytes, window, 1..4u32, 1..12u32, any::<bool>(), 300..1_500u64).prop_map(
        |(cc, recovery, bytes, window, ack_every, initial_window, paced, mss)| TcpSpec {
            recovery,
            bytes: bytes.map(ByteCount),
            window: window.map(ByteCount),
            ack_every,
            initial_window,
            paced,
            mss: ByteCount(mss),
            ..TcpSpec::linux(cc)
        },
    )
}

fn any_cross() -> impl Strategy<Value = CrossConfig> {
    let mbit = |n: u64| DataRate::from_bps(n * 1_000_000);
    let kind = prop_oneof![
        (1..4u64, 1..6u64).prop_map(move |(a, b)| CrossKind::Cbr(vec![
            (Time::ZERO, mbit(a)),
            (Time::from_nanos(900_000_000), DataRate::ZERO),
            (Time::from_nanos(1_300_000_000), mbit(b)),
        ])),
        (1..5u64).prop_map(move |a| CrossKind::Poisson(mbit(a))),
        (3..9u64).prop_map(move |a| CrossKind::ParetoOnOff {
            rate: mbit(a),
            on: Duration::from_millis(40),
            off: Duration::from_millis(90),
            shape: 1.5,
        }),
        (2..45u32).prop_map(move |packets| CrossKind::Bursts {
            packets,
            line: mbit(100),
            mean: mbit(2),
        }),
    ];
    (kind, 60..1_400u64).prop_map(|(kind, n)| CrossConfig { packet: ByteCount(n), kind })
}

fn any_engine() -> impl Strategy<Value = EngineSpec> {
    let cc =
        prop::sample::select(vec!["native", "udt:paper", "udt:grid", "udt:ns2-2003", "udt:udt4"]);
    let bytes = prop_oneof![2 => Just(None), 1 => (1..400_000u64).prop_map(Some)];
    (cc, bytes, any::<bool>(), any::<bool>(), any::<bool>()).prop_map(
        |(cc, bytes, trains, coalesce, warnings)| EngineSpec {
            cc: cc.to_owned(),
            bytes: bytes.map(ByteCount),
            mtu: ByteCount(1_472),
            codec: false,
            ceiling: None,
            coalesce,
            train: if trains { 44 } else { 1 },
            warnings,
            ecn: true,
            probe_train: trains.then_some(Duration::from_millis(60)),
            saved: None,
        },
    )
}

/// The depots of a session, and the segments of their buffers.
type Via = (usize, [u64; 3]);

fn any_via() -> impl Strategy<Value = Via> {
    let buffer = || 1..40u64;
    let buffers = (buffer(), 0..40u64, buffer()).prop_map(|(a, b, c)| [a, b, c]);
    (prop_oneof![2 => Just(0usize), 1 => 1..3usize], buffers)
}

/// Appends the flows of a session over `via`.
pub(crate) fn session(flows: &mut Vec<FlowSpec>, via: &[usize], buffers: [u64; 3], flow: FlowSpec) {
    let mut stations = vec![flow.from];
    stations.extend(via);
    stations.push(flow.to);
    let FlowKind::Tcp(tcp) = &flow.kind else { panic!("depots join TCP connections") };
    let [receive, user, send] = buffers.map(|segments| ByteCount(segments * tcp.mss.get()));
    for (hop, pair) in stations.windows(2).enumerate() {
        let of = flows.len().wrapping_sub(1);
        flows.push(FlowSpec {
            name: format!("{}-hop{hop}", flow.name),
            from: pair[0],
            to: pair[1],
            from_depot: (hop > 0).then_some(DepotSpec { of, receive, user, send }),
            ..flow.clone()
        });
    }
}

fn any_flow() -> impl Strategy<Value = (FlowKind, bool, u64, Via)> {
    let short = (any_tcp(), 1..30u32, any::<bool>()).prop_map(|(tcp, count, poisson)| ShortSpec {
        tcp: TcpSpec { bytes: tcp.bytes.or(Some(ByteCount(20_000))), ..tcp },
        count,
        arrivals: if poisson { Arrivals::Poisson(15.0) } else { Arrivals::Concurrent(3) },
    });
    let kind = prop_oneof![
        4 => any_tcp().prop_map(FlowKind::Tcp),
        1 => any_cross().prop_map(FlowKind::Cross),
        1 => short.prop_map(FlowKind::Short),
        2 => any_engine().prop_map(FlowKind::Engine),
    ];
    (kind, any::<bool>(), 0..800u64, any_via())
}

/// A dumbbell of two hosts on each side with some flows, some of them in the other direction.
pub(crate) fn any_scenario() -> impl Strategy<Value = Scenario> {
    let access = || any_link(8_000..60_000);
    let links = (access(), access(), any_link(1_000..12_000), any_link(3_000..20_000));
    let flows = prop::collection::vec(any_flow(), 1..5);
    let sample = prop_oneof![Just(None), Just(Some(Duration::from_millis(130)))];
    let warm_up = prop_oneof![Just(0u64), Just(777u64)];
    (links, flows, sample, warm_up, any::<u64>(), any::<bool>()).prop_map(
        |((near, far, out, back), flows, sample, warm_up, seed, record)| {
            // Hosts 0, 1 - router 4 - router 5 - hosts 2, 3.
            let mut links = vec![(4, 5, out), (5, 4, back)];
            for (host, router, config) in [(0, 4, &near), (1, 4, &far), (2, 5, &near), (3, 5, &far)]
            {
                let clean = LinkConfig::new(DataRate::from_mbps(50), config.delay, 200);
                links.push((host, router, clean));
                links.push((router, host, config.clone()));
            }
            let mut scenario = empty(6, links, Duration::from_millis(2_500));
            for (i, (kind, reverse, start, (depots, buffers))) in flows.into_iter().enumerate() {
                let (a, b) = (i % 2, 2 + i / 2 % 2);
                let (from, to) = if reverse { (b, a) } else { (a, b) };
                let start = Time::ZERO + Duration::from_millis(start);
                let name = format!("f{i}");
                let depots = if matches!(kind, FlowKind::Tcp(_)) { depots } else { 0 };
                let spec = FlowSpec { start, ..flow(&name, from, to, kind) };
                if depots == 0 {
                    scenario.flows.push(spec);
                } else {
                    let others: Vec<usize> = (0..4).filter(|n| *n != from && *n != to).collect();
                    session(&mut scenario.flows, &others[..depots], buffers, spec);
                }
            }
            scenario.sample = sample;
            scenario.warm_up = Duration::from_millis(warm_up);
            scenario.seed = seed;
            scenario.record = record.then_some(0);
            scenario
        },
    )
}
