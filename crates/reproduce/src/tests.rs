use packtrain_sim::file::Setting;
use packtrain_sim::outcome::{FlowOutcome, LinkOutcome, Outcome, Sample, Wait};
use packtrain_sim::results::RunRow;
use packtrain_units::{ByteCount, DataRate, Duration, Time};

use super::group::RunContext;
use super::*;

fn run() -> (RunRow, Outcome) {
    let flow = |name: &str, mbps| FlowOutcome {
        name: name.into(),
        goodput: DataRate::from_mbps(mbps),
        ..Default::default()
    };
    let outcome = Outcome {
        flows: vec![flow("one-1", 30), flow("two", 12)],
        links: vec![LinkOutcome { name: "wan'".into(), utilisation: 0.5, ..Default::default() }],
        waits: [9, 1, 3, 2].map(wait).to_vec(),
        samples: (1..=4).flat_map(|second| [sample(second, 0), sample(second, 1)]).collect(),
        ..Default::default()
    };
    let settings = vec![Setting { path: "link.wan.rtt".into(), value: "100ms".into() }];
    (RunRow::new(&outcome, 0, settings), outcome)
}

/// After as many seconds as milliseconds.
fn wait(millis: u64) -> Wait {
    let at = Time::ZERO + Duration::from_secs(millis);
    Wait { at, link: 0, wait: Duration::from_millis(millis) }
}

/// The first flow has 1, 2, 3, 4 Mbit/s, the second always 2.
fn sample(second: u64, flow: usize) -> Sample {
    Sample {
        acked: None,
        at: Time::ZERO + Duration::from_secs(second),
        flow,
        cwnd: None,
        in_flight: ByteCount::ZERO,
        pacing_rate: None,
        goodput: DataRate::from_mbps(if flow == 0 { second } else { 2 }),
        rtt: None,
        trend: [0; 2],
    }
}

fn value_of(text: &str) -> Result<f64, String> {
    let (row, outcome) = run();
    expression::value(text, &RunContext { row: &row, outcome: &outcome })
}

#[test]
fn formulas() {
    for (text, value) in [
        ("1 + 2 * 3", 7.0),
        ("(1 + 2) * -3", -9.0),
        ("2 ^ 3 / 4", 2.0),
        ("sqrt(9) - max(1, 2)", 1.0),
        ("1e3 + 1.5e-1", 1000.15),
        ("goodput_bps / 1e6", 30.0),
        ("[one-1].goodput_bps / two.goodput_bps", 2.5),
        ("sum.goodput_bps", 42e6),
        ("goodput_bps * {link.wan.rtt}", 3e6),
        ("@wan'.utilisation", 0.5),
        ("total(*)", 42e6),
        ("sd(*) / 1e6", 9.0),
        ("most(*) - least([one*])", 0.0),
        ("mean([one-1], 2, 4) / 1e6", 3.5),
        ("total(*, 0, 4) / 1e6", 4.5),
        ("jain(*, 1, 2)", 1.0),
        ("wobble(two, 0, 4)", 0.0),
        ("median_wait(wan', 0, 4)", 2.0),
        ("median_wait(wan', 2.5, 10)", 9.0),
    ] {
        assert_eq!(value_of(text), Ok(value), "{text}");
    }
    for bad in
        ["", "1 +", "(1", "nothing", "two.nothing", "{seed}", "1 / 0", "1 2", "min(1)", "@x.y"]
    {
        assert!(value_of(bad).is_err(), "{bad}");
    }
    for bad in ["total()", "total(x)", "total(*, 1)", "total(*, 8, 9)", "sd(*", "jain(*, a, b)"] {
        assert!(value_of(bad).is_err(), "{bad}");
    }
    for bad in [
        "median_wait(wan)",
        "median_wait(x, 0, 4)",
        "median_wait(wan', 10, 20)",
        "median_wait(wan', a, 4)",
    ] {
        assert!(value_of(bad).is_err(), "{bad}");
    }
    assert!(value_of(&"(".repeat(100_000)).is_err());
}

#[test]
fn a_folder_is_read_and_its_mistakes_are_named() {
    let files = |name: &str| match name {
        "experiment.toml" => {
            Ok("title = \"t\"\n[[row]]\nkey = \"k {x}\"\nvalue = \"1\"\n".to_owned())
        }
        "scenario.toml" => {
            Ok("[[link]]\nfrom = \"a\"\nto = \"b\"\nrate = 1\ndelay = \"1ms\"\n".to_owned())
        }
        _ => Err("is missing".to_owned()),
    };
    let error = Experiment::read("new", &files).expect_err("the rate has no unit").to_string();
    assert!(error.starts_with("new/scenario.toml:4:8: link.a-b.rate: "), "{error}");
    let error = find("nothing").expect_err("there is none").to_string();
    assert!(error.starts_with("there is no experiment `nothing`"), "{error}");
}

#[test]
fn every_experiment_can_be_read() {
    for name in names() {
        let experiment = find(name).unwrap_or_else(|error| panic!("{error}"));
        assert!(experiment.not_simulated.is_some() || !experiment.paper.is_empty(), "{name}");
        experiment.runs(Part::KeyCells).unwrap_or_else(|error| panic!("{error}"));
        for row in &experiment.expected {
            assert!(
                experiment.paper.iter().any(|paper| {
                    let rest = row.key.strip_prefix(&paper.key);
                    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(VARIANT))
                }),
                "{name}: {}",
                row.key
            );
        }
    }
}

#[test]
fn numbers_are_made_of_others() {
    let spec = |value: &str| DerivedSpec { key: "k".into(), value: value.into() };
    let known = [("a 1", 6.0), ("b", 1.5e-7)];
    assert_eq!(spec("{a 1} / 2").value(&known), Ok(Some(3.0)));
    assert_eq!(spec("{b} * 2").value(&known), Ok(Some(3e-7)));
    assert_eq!(spec("{c} * 2").value(&known), Ok(None));
    assert!(spec("{b} *").value(&known).is_err());
    assert!(spec("{b} * 2").uses("b") && !spec("{b} * 2").uses("a 1"));
}

/// The numbers in READMEs are those of `expected.csv`. `PACKTRAIN_WRITE_TABLES=1` writes them, where
/// only the choice of what is scored changed.
#[test]
fn the_tables_of_readmes_are_what_is_kept() {
    let folders = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments");
    for name in names() {
        let experiment = find(name).unwrap_or_else(|error| panic!("{error}"));
        let path = folders.join(name).join("README.md");
        let readme = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{name}: {e}"));
        if let Some(new) = spliced(&readme, &table(&kept(&experiment))) {
            if std::env::var_os("PACKTRAIN_WRITE_TABLES").is_some() {
                std::fs::write(&path, new).unwrap_or_else(|e| panic!("{name}: {e}"));
                continue;
            }
            assert!(new == readme, "{name}: run `packtrain sim reproduce` with --out again");
        }
    }
}
