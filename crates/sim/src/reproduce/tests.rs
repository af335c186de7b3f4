use super::*;
use crate::file::Setting;
use crate::outcome::{FlowOutcome, LinkOutcome, Outcome};
use packtrain_units::DataRate;

fn run() -> RunRow {
    let flow = |name: &str, mbps| FlowOutcome {
        name: name.into(),
        goodput: DataRate::from_mbps(mbps),
        ..Default::default()
    };
    let outcome = Outcome {
        flows: vec![flow("one-1", 30), flow("two", 12)],
        links: vec![LinkOutcome { name: "wan'".into(), utilisation: 0.5, ..Default::default() }],
        ..Default::default()
    };
    let settings = vec![Setting { path: "link.wan.rtt".into(), value: "100ms".into() }];
    RunRow::new(&outcome, 0, settings)
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
    ] {
        assert_eq!(expression::value(text, &run()), Ok(value), "{text}");
    }
    for bad in
        ["", "1 +", "(1", "nothing", "two.nothing", "{seed}", "1 / 0", "1 2", "min(1)", "@x.y"]
    {
        assert!(expression::value(bad, &run()).is_err(), "{bad}");
    }
    assert!(expression::value(&"(".repeat(100_000), &run()).is_err());
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
        assert!(!experiment.paper.is_empty(), "{name}");
        for row in &experiment.expected {
            assert!(
                experiment.paper.iter().any(|paper| paper.key == row.key),
                "{name}: {}",
                row.key
            );
        }
    }
}
