use packtrain_link::{HostConfig, Limit, LossConfig, QueueConfig};
use packtrain_units::{ByteCount, DataRate, Duration, Time};
use proptest::prelude::*;

use super::*;
use crate::check::IDLE_HOST;
use crate::error::SimError;
use crate::spec::{FlowKind, Recovery};

const DUMBBELL: &str = r#"
name = "dumbbell"
title = "Two flows share a link"
duration = "60s"
warm_up = "10s"
seed = 7

[[link]]
from = "a"
to = "r"
rate = "10gbit"
delay = "1ms"

[[link]]
name = "bottleneck"
from = "r"
to = "b"
rate = "1gbit"
delay = "24ms"
queue = "1bdp"
loss = 1e-4
reverse = { loss = 0, queue = "100 packets" }

[[flow]]
name = "one"
from = "a"
to = "b"
cc = "reno"
count = 2
stagger = "1s"

[[flow]]
name = "noise"
from = "a"
to = "b"
kind = "cross"
traffic = "poisson"
rate = "10mbit"
"#;

fn read(text: &str) -> Result<Scenario, FileError> {
    ScenarioFile::parse("x.toml", text, &[])?.scenario(0)
}

#[test]
fn a_scenario_is_read() {
    let scenario = read(DUMBBELL).expect("it is right");
    assert_eq!((scenario.seed, scenario.train, scenario.nodes.len()), (7, 64, 3));
    let names: Vec<_> = scenario.links.iter().map(|link| link.name.as_str()).collect();
    assert_eq!(names, ["a-r", "a-r'", "bottleneck", "bottleneck'"]);
    let bottleneck = &scenario.links[2].config;
    // 1 Gbit/s times 2 * (1 + 24) ms.
    assert_eq!(bottleneck.queue, QueueConfig::DropTail(Limit::Bytes(ByteCount(6_250_000))));
    assert_eq!(bottleneck.loss, LossConfig::Independent(1e-4));
    let back = &scenario.links[3].config;
    assert_eq!(back.queue, QueueConfig::DropTail(Limit::Packets(100)));
    assert_eq!(back.loss, LossConfig::None);
    assert_eq!(back.rate.steps, [(Time::ZERO, DataRate::from_mbps(1_000))]);
    assert_ne!(back.seed, bottleneck.seed);
    let flows: Vec<_> = scenario.flows.iter().map(|flow| flow.name.as_str()).collect();
    assert_eq!(flows, ["one-1", "one-2", "noise"]);
    assert_eq!(scenario.flows[1].start, Time::ZERO + Duration::from_secs(1));
    let FlowKind::Tcp(tcp) = &scenario.flows[0].kind else { panic!("a tcp flow") };
    assert_eq!((tcp.cc.as_str(), tcp.recovery), ("reno", Recovery::Rack));
}

#[test]
fn a_queue_is_so_many_products_but_at_least_so_many_packets() {
    for (text, packets) in
        [("0.1bdp, at least 10 packets", 416), ("1e-6bdp, at least 10 packets", 10)]
    {
        let scenario = read(&DUMBBELL.replacen("1bdp", text, 1)).expect("it is right");
        let limit = QueueConfig::DropTail(Limit::Packets(packets));
        assert_eq!(scenario.links[2].config.queue, limit, "{text}");
    }
    for bad in ["1bdp, at least", "5 packets, at least 3 packets", "1bdp, at least 0 packets"] {
        wrong("1bdp", bad, "20:9", &["1bdp, at least 10 packets"]);
    }
}

/// Changes `from` in the valid file and expects this position and these words.
fn wrong(from: &str, to: &str, at: &str, words: &[&str]) {
    assert!(DUMBBELL.contains(from), "{from}");
    let text = DUMBBELL.replacen(from, to, 1);
    let error = read(&text).expect_err(to).to_string();
    assert!(error.starts_with(&format!("x.toml:{at}: ")), "{to}: {error}");
    for word in words {
        assert!(error.contains(word), "{to}: {word}: {error}");
    }
}

#[test]
fn errors_name_line_field_and_what_would_be_right() {
    for (from, to, at, words) in [
        (
            "rate = \"10gbit\"",
            "rat = \"1gbit\"",
            "8:1",
            &["link.a-r.rate", "rate = \"100mbit\""][..],
        ),
        ("queue = \"1bdp\"", "qeue = \"1bdp\"", "20:1", &["bottleneck.qeue", "mean `queue`?"]),
        ("rate = \"10gbit\"", "rate = 10", "11:8", &["a-r.rate", "\"10mbit\" or \"10MB/s\""]),
        ("rate = \"10gbit\"", "rate = \"-1gbit\"", "11:8", &["below zero", "100mbit"]),
        ("rate = \"10gbit\"", "rate = \"0gbit\"", "11:8", &["sends nothing"]),
        ("rate = \"10gbit\"", "rate = true", "11:8", &["true is not a rate"]),
        ("queue = \"1bdp\"", "queue = \"0 packets\"", "20:9", &["holds no packet", "1 packet"]),
        ("queue = \"1bdp\"", "queue = \"900B\"", "20:9", &["less than a packet", "1 packet"]),
        ("queue = \"1bdp\"", "queue = \"100\"", "20:9", &["\"100 packets\" or \"100KiB\""]),
        ("loss = 1e-4", "loss = 1.5", "21:8", &["1.5 is not a probability", "from 0 to 1"]),
        ("loss = 1e-4", "loss = -0.5", "21:8", &["probability"]),
        ("to = \"b\"", "to = \"r\"", "17:6", &["where the link starts"]),
        (
            "from = \"a\"\nto = \"b\"\ncc",
            "from = \"q\"\nto = \"b\"\ncc",
            "26:8",
            &["no link has a node `q`"],
        ),
        ("cc = \"reno\"", "cc = \"renno\"", "28:6", &["mean `reno`"]),
        ("name = \"noise\"", "name = \"one-2\"", "33:8", &["a flow `one-2` already"]),
        ("name = \"bottleneck\"", "name = \"a-r\"", "14:1", &["a link `a-r` already"]),
        ("warm_up = \"10s\"", "warm_up = \"60s\"", "5:11", &["below the duration, 60s"]),
        ("duration = \"60s\"", "duration = \"1s\"", "30:11", &["before every flow started"]),
        ("stagger = \"1s\"", "mss = \"9000B\"", "27:6", &["do not fit link `a-r`", "mtu is 1500"]),
        ("traffic = \"poisson\"", "traffic = \"fish\"", "37:11", &["no `fish`", "`poisson`"]),
        ("seed = 7", "seed = -7", "6:8", &["whole number from 0"]),
        ("seed = 7", "seed = ", "6:8", &[]),
    ] {
        wrong(from, to, at, words);
    }
}

#[test]
fn a_host_where_no_engine_receives_is_refused() {
    let host = "\n[[node]]\nname = \"a\"\n[node.host]\nbuffer = \"1MiB\"\n";
    let error = read(&format!("{DUMBBELL}{host}")).expect_err("only TCP there").to_string();
    assert!(error.contains("node.a.host"), "{error}");
    assert!(error.contains("no flow of kind \"engine\" ends here"), "{error}");
    let error = SimError::invalid("nodes[0].host", IDLE_HOST).to_string();
    let mut scenario = read(DUMBBELL).expect("it is right");
    scenario.nodes[0].host = Some(HostConfig::default());
    assert_eq!(scenario.check().expect_err("only TCP there").to_string(), error);
}

#[test]
fn a_flow_without_a_way_is_refused() {
    let text = DUMBBELL.replacen(
        "loss = 1e-4\nreverse = { loss = 0, queue = \"100 packets\" }",
        "one_way = true",
        1,
    );
    let error = read(&text).expect_err("acknowledgements have no way").to_string();
    assert!(error.contains("no links lead from `b` to `a`"), "{error}");
}

#[test]
fn a_sweep_is_every_combination() {
    let text = format!(
        "{DUMBBELL}\n[sweep]\nrepeat = 2\n\"link.bottleneck.loss\" = [1e-4, 1e-3, 1e-2]\n\
         flow.one.cc = [\"reno\", \"cubic\"]\n"
    );
    let file = ScenarioFile::parse("x.toml", &text, &[]).expect("it is right");
    file.check().expect("every value is");
    assert_eq!(file.runs(), 12);
    let seen: Vec<_> = (0..file.runs())
        .map(|run| {
            let scenario = file.scenario(run).expect("it is right");
            let FlowKind::Tcp(tcp) = &scenario.flows[0].kind else { panic!("tcp") };
            (tcp.cc.clone(), format!("{:?}", scenario.links[2].config.loss), scenario.seed)
        })
        .collect();
    let unique: std::collections::BTreeSet<_> = seen.iter().collect();
    assert_eq!(unique.len(), 12);
    assert_eq!((seen[0].2, seen[1].2), (7, 8));
    let first = file.settings(0);
    assert_eq!(first.len(), 2);
    assert!(first.iter().any(|s| s.path == "link.bottleneck.loss" && s.value == "1e-4"));
}

#[test]
fn a_wrong_value_of_a_sweep_is_found_where_it_stands() {
    let text = format!("{DUMBBELL}\n[sweep]\n\"link.bottleneck.loss\" = [1e-4, 2]\n");
    let file = ScenarioFile::parse("x.toml", &text, &[]).expect("its axes are right");
    let error = file.check().expect_err("2 is no probability").to_string();
    assert!(error.starts_with("x.toml:41:33: link.bottleneck.loss: "), "{error}");
    let text = format!("{DUMBBELL}\n[sweep]\n\"link.bottle.loss\" = [1e-4]\n");
    let file = ScenarioFile::parse("x.toml", &text, &[]).expect("its axes are right");
    let error = file.check().expect_err("no such link").to_string();
    assert!(error.contains("no link `bottle`"), "{error}");
}

#[test]
fn values_together() {
    let text = format!(
        "{DUMBBELL}\n[sweep]\n\"link.bottleneck.rate, flow.noise.rate\" = [[\"1gbit\", \"2mbit\"], \
         [\"2gbit\", \"4mbit\"]]\n"
    );
    let file = ScenarioFile::parse("x.toml", &text, &[]).expect("it is right");
    let scenario = file.scenario(1).expect("it is right");
    assert_eq!(scenario.links[2].config.rate.steps[0].1, DataRate::from_mbps(2_000));
}

#[test]
fn set_changes_a_value() {
    let set = |set: &str| {
        let file = ScenarioFile::parse("x.toml", DUMBBELL, &[set.to_owned()])?;
        file.check()?;
        file.scenario(0)
    };
    assert_eq!(set("duration=20s").expect("right").duration, Duration::from_secs(20));
    let loss = set("link.bottleneck.loss = 0.5").expect("right").links[2].config.loss.clone();
    assert_eq!(loss, LossConfig::Independent(0.5));
    for (bad, says) in [
        ("duration", "PATH=VALUE"),
        ("duration=-1s", "--set duration=-1s: duration: `-1s` is below zero"),
        ("link.nowhere.loss=0", "no link `nowhere`"),
        ("link.loss=0", "which link?"),
        ("flow.one.frob=0", "flow.one.frob: there is no such key"),
        ("seed.x=1", "`seed` is a value"),
    ] {
        let error = set(bad).expect_err(bad).to_string();
        assert!(error.contains(says), "{bad}: {error}");
    }
}

#[test]
fn the_whole_vocabulary() {
    let text = r#"
duration = "10s"
sample = "10ms"
train = 1
record = "wan"
[[node]]
name = "b"
[node.host]
buffer = "208KiB"
scheduler = { kind = "slices", slice = "3ms", competitors = 2 }
[[link]]
name = "wan"
from = "a"
to = "b"
rtt = "100ms"
rate = { steps = [["0s", "1gbit"], ["5s", "0mbit"], ["6s", "1gbit"]], period = "8s" }
queue = { kind = "red", limit = "1bdp", min = 10, max = 30, mode = "gentle" }
loss = { kind = "gilbert-elliott", to_bad = 1e-4, to_good = "10%" }
jitter = { kind = "pareto", mean = "1ms", shape = 2 }
reorder = { probability = 0.01, extra = "2ms" }
duplicate = 1e-5
mtu = "9000B"
overhead = "38B"
seed = 3
reverse = { queue = { kind = "codel", limit = "1000 packets" }, loss = { kind = "trace", lost = "0001" }, jitter = "1ms" }
[[flow]]
from = "a"
to = "b"
stack = "ns2"
recovery = "newreno"
bytes = "10MB"
window = "1MiB"
[[flow]]
from = "a"
to = "b"
kind = "engine"
cc = "fixed:100mbit"
ceiling = "1gbit"
codec = true
start = "1s"
stop = "9s"
[[flow]]
from = "a"
to = "b"
kind = "short"
cc = "reno"
bytes = "100kB"
connections = 100
per_second = 10.5
[[flow]]
from = "b"
to = "a"
kind = "cross"
traffic = "bursts"
rate = "10mbit"
line = "1gbit"
packets = 44
[[flow]]
name = "steps"
from = "b"
to = "a"
kind = "cross"
traffic = "cbr"
steps = [["0s", "10mbit"], ["1s", "0mbit"]]
[[flow]]
name = "bursty"
from = "b"
to = "a"
kind = "cross"
traffic = "pareto"
rate = "10mbit"
on = "100ms"
off = "200ms"
"#;
    let scenario = read(text).expect("it is right");
    assert_eq!(scenario.flows.len(), 6);
    assert_eq!(scenario.record, Some(0));
    assert_eq!(scenario.links[0].config.rate.period, Some(Duration::from_secs(8)));
    assert!(matches!(scenario.links[1].config.queue, QueueConfig::CoDel(_)));
    assert!(scenario.nodes[1].host.is_some());
}

#[test]
fn every_example_of_the_guide_can_be_read() {
    let guide = include_str!("../../../../docs/guide/reference/sim.md");
    let examples: Vec<_> = guide.split("```toml\n").skip(1).collect();
    assert!(examples.len() >= 4);
    for example in examples {
        let text = example.split("```").next().unwrap_or_default();
        let file = ScenarioFile::parse("guide", text, &[]).unwrap_or_else(|e| panic!("{e}"));
        file.check().unwrap_or_else(|e| panic!("{e}"));
    }
}

/// Random combinations of keywords of scenarios and extreme numbers.
fn lines() -> impl Strategy<Value = String> {
    let key = prop::sample::select(vec![
        "name", "from", "to", "rate", "delay", "rtt", "queue", "loss", "kind", "cc", "bytes",
        "count", "duration", "stagger", "mtu", "seed", "steps", "reverse", "one_way", "repeat",
    ]);
    let value = prop::sample::select(vec![
        "\"a\"",
        "\"b\"",
        "\"1gbit\"",
        "\"1ms\"",
        "\"1bdp\"",
        "\"1e300bdp\"",
        "0",
        "-1",
        "1e-4",
        "1e999",
        "nan",
        "9223372036854775807",
        "true",
        "[]",
        "[[\"0s\", \"1gbit\"]]",
        "{}",
        "{ kind = \"red\", limit = \"5 packets\" }",
        "\"18446744073709551615B\"",
        "\"é\"",
        "\"36500000h\"",
        "1979-05-27",
        "\"cross\"",
        "100000",
    ]);
    let head =
        prop::sample::select(vec!["[[link]]", "[[flow]]", "[sweep]", "[[node]]", "[node.host]"]);
    let line = prop_oneof![
        6 => (key, value).prop_map(|(key, value)| format!("{key} = {value}")),
        2 => head.prop_map(str::to_owned),
        1 => "[ -~]{0,20}",
    ];
    prop::collection::vec(line, 0..30).prop_map(|lines| lines.join("\n"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn no_text_makes_it_panic(text in prop_oneof![lines(), "\\PC{0,200}"]) {
        crate::fuzzing::scenario(text.as_bytes());
    }

    #[test]
    fn no_change_of_a_good_file_makes_it_panic(
        at in 0..DUMBBELL.len(), len in 0usize..8, new in "[ -~\n]{0,8}",
    ) {
        let end = (at + len).min(DUMBBELL.len());
        let text = format!("{}{new}{}", &DUMBBELL[..at], &DUMBBELL[end..]);
        crate::fuzzing::scenario(text.as_bytes());
    }
}

#[test]
fn a_session_is_a_connection_from_depot_to_depot() {
    let text = r#"
duration = "10s"
link = [
    { from = "a", to = "d", rate = "1gbit", rtt = "20ms", queue = "1bdp" },
    { from = "d", to = "e", rate = "1gbit", rtt = "40ms" },
    { from = "e", to = "b", rate = "1gbit", rtt = "60ms" },
]
flow = [
    { from = "a", to = "b" },
    { name = "copy", from = "a", to = "b", count = 2, via = "d, e", depot = { user = "4MB" } },
]
"#;
    let scenario = read(text).expect("it is right");
    let flows: Vec<_> = scenario.flows.iter().map(|f| (f.name.as_str(), f.from, f.to)).collect();
    assert_eq!(
        flows[..5],
        [
            ("flow1", 0, 3),
            ("copy-1-hop1", 0, 1),
            ("copy-1-hop2", 1, 2),
            ("copy-1", 2, 3),
            ("copy-2-hop1", 0, 1)
        ]
    );
    let depots: Vec<_> = scenario.flows.iter().map(|f| f.from_depot.map(|d| d.of)).collect();
    assert_eq!(depots, [None, None, Some(1), Some(2), None, Some(4), Some(5)]);
    let depot = scenario.flows[2].from_depot.expect("it is one");
    assert_eq!(
        [depot.receive, depot.user, depot.send].map(ByteCount::get),
        [8_000_000, 4_000_000, 8_000_000]
    );
    scenario.check().expect("it can be played");
    for (from, to, says) in [
        ("d, e", "d, x", "no link has a node `x`"),
        ("d, e", "d, d", "leads twice over `d`"),
        ("via = \"d, e\"", "kind = \"engine\", via = \"d\"", "kind \"tcp\""),
        ("user", "huge", "huge"),
    ] {
        let error = read(&text.replace(from, to)).expect_err(says).to_string();
        assert!(error.contains(says), "{error}");
    }
    assert_eq!(read(&text.replace("d, e", "none")).expect("directly").flows.len(), 3);
}

#[test]
fn a_rate_comes_from_a_trace_in_a_file() {
    let text = "duration = \"1s\"\n[[link]]\nfrom = \"a\"\nto = \"b\"\ndelay = \"5ms\"\n\
                queue = \"1bdp\"\nbdp_rtt = \"100ms\"\nrate = { trace = \"cell.txt\" }\n";
    let load = |text: &str, trace: &'static str| {
        let include = move |name: &str| match name {
            "cell.txt" => Ok(trace.to_owned()),
            other => Err(format!("no {other}")),
        };
        ScenarioFile::read("x.toml", text.to_owned(), &[], Box::new(include))?.scenario(0)
    };
    let scenario = load(text, "1\n2\n2\n2\n8\n").expect("it is right");
    let config = &scenario.links[0].config;
    assert_eq!(config.rate.period, Some(Duration::from_millis(8)));
    // 5 packets of 1,500 bytes in 8 ms are 7.5 Mbit/s, and a tenth of a second of that is waiting.
    assert_eq!(config.queue, QueueConfig::DropTail(Limit::Bytes(ByteCount(93_750))));
    assert_eq!(scenario.links[1].config.rate, config.rate, "both directions");

    let error = load(text, "1\n2\nx\n").unwrap_err().to_string();
    assert!(error.contains("x.toml:8:") && error.contains("line 3 of the trace"), "{error}");
    let error = load(&text.replace("cell", "other"), "1\n").unwrap_err().to_string();
    assert!(error.contains("cannot read `other.txt`"), "{error}");
    let both = text.replace("\"cell.txt\" }", "\"cell.txt\", period = \"1s\" }");
    let error = load(&both, "1\n").unwrap_err().to_string();
    assert!(error.contains("link[0].rate.period") || error.contains("rate.period"), "{error}");
    let error = read(text).unwrap_err().to_string();
    assert!(error.contains("cannot name other files"), "{error}");
}

#[test]
fn repeats_start_at_other_times_and_the_first_as_written() {
    let jittered = format!("{DUMBBELL}\n[sweep]\nrepeat = 3\nstart_jitter = \"20ms\"\n");
    let starts = |text: &str, run: u64| {
        let file = ScenarioFile::parse("x.toml", text, &[]).expect("it is right");
        let scenario = file.scenario(run).expect("it is right");
        let starts = scenario.flows.iter().map(|flow| flow.start.as_nanos());
        (scenario.seed, starts.collect::<Vec<_>>())
    };
    let written = (7, vec![0, 1_000_000_000, 0]);
    assert_eq!(starts(&jittered, 0), written);
    let (one, two) = (starts(&jittered, 1), starts(&jittered, 2));
    assert_eq!((one.0, two.0), (8, 9));
    for (later, start) in one.1.iter().chain(&two.1).zip(written.1.iter().cycle()) {
        assert!((1..=20_000_000).contains(&(later - start)), "{later} {start}");
    }
    assert!(one.1 != two.1 && one.1[0] != one.1[2], "{one:?} {two:?}");
    assert_eq!(starts(&jittered, 2), two, "a run is the same whenever it is played");
    // Without jitter, and as before: only the seed changes.
    let plain = jittered.replace("start_jitter = \"20ms\"\n", "");
    assert_eq!(starts(&plain, 2).1, written.1);
    // A jitter beyond the end starts nothing after it, and a session stays one.
    let long = jittered.replace("20ms", "10h");
    assert!(starts(&long, 1).1.iter().all(|start| *start < 60_000_000_000));
}

#[test]
fn a_session_over_depots_is_delayed_as_one() {
    let text = DUMBBELL.replace("count = 2\nstagger = \"1s\"", "via = \"r\"\nstop = \"9s\"");
    let text = format!("{text}\n[sweep]\nrepeat = 2\nstart_jitter = \"20ms\"\n");
    let file = ScenarioFile::parse("x.toml", &text, &[]).expect("it is right");
    let flows = file.scenario(1).expect("it is right").flows;
    assert_eq!(flows[0].start, flows[1].start);
    assert!(flows[0].start > Time::ZERO && flows[0].start != flows[2].start);
    assert_eq!(flows[0].stop, flows[1].stop);
    assert_eq!(flows[0].stop.expect("set").since(flows[0].start), Duration::from_secs(9));
}
