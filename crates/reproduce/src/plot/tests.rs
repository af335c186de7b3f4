use packtrain_sim::file::Setting;
use packtrain_sim::outcome::{FlowOutcome, Outcome, Sample};
use packtrain_sim::results::RunRow;
use packtrain_units::{ByteCount, DataRate, Duration, Time};

use super::*;
use crate::{Bound, Found, Row};

fn sawtooth() -> Outcome {
    let flow = |name: &str, cc: &str| FlowOutcome {
        name: name.into(),
        cc: cc.into(),
        goodput: DataRate::from_mbps(400),
        ..Default::default()
    };
    let sample = |i: u64, flow: usize| Sample {
        at: Time::ZERO + Duration::from_millis(i * 20),
        flow,
        cwnd: ByteCount(1_000_000 + (i * (7 + flow as u64 * 3) % 800) * 2_000),
        in_flight: ByteCount(1_000_000),
        acked: None,
        pacing_rate: None,
        goodput: DataRate::from_mbps(300 + (i * 3 + flow as u64 * 90) % 300),
        rtt: Duration::from_micros(100_000 + (i * 17) % 25_000),
        trend: [0; 2],
    };
    Outcome {
        scenario: "dumbbell".into(),
        seed: 7,
        flows: vec![flow("one", "reno"), flow("two", "cubic")],
        samples: (0..3_000).flat_map(|i| [sample(i, 0), sample(i, 1)]).collect(),
        ..Default::default()
    }
}

fn rows() -> Vec<RunRow> {
    let mut rows = Vec::new();
    for (i, loss) in ["1e-4", "1e-3", "1e-2", "0.1"].iter().enumerate() {
        for seed in 0..3 {
            let mut outcome = sawtooth();
            outcome.flows[0].goodput = DataRate::from_mbps(900 / (i as u64 * 5 + 1) + seed * 20);
            outcome.flows[1].goodput = DataRate::from_mbps(950 / (i as u64 * 3 + 1) + seed * 9);
            let setting =
                Setting { path: "link.bottleneck.loss".into(), value: (*loss).to_owned() };
            rows.push(RunRow::new(&outcome, i as u64 * 3 + seed, vec![setting]));
        }
    }
    rows
}

/// The figures by name; `PACKTRAIN_PLOTS=DIR` writes them there for inspection.
fn figures() -> Vec<(&'static str, Figure)> {
    let row = |key: String, paper, ours, tolerance| Row {
        key,
        paper,
        ours: Some(ours),
        variant: None,
        basis: crate::Basis::Paper,
        tolerance,
        bound: Bound::About,
        found: vec![Found { variant: None, ours }],
    };
    let compared: Vec<_> = (1..13)
        .map(|i| row(format!("p{i}"), 100.0 / f64::from(i), 97.0 / f64::from(i), 4.0))
        .collect();
    let many: Vec<_> = (0..36)
        .map(|i| row(format!("random 1e-{i} 100ms"), 1.3, 1.3 - 0.01 * f64::from(i), 0.2))
        .collect();
    vec![
        ("curves", curves(&sawtooth(), "Two flows share 1 Gbit/s, 100 ms")),
        ("sweep", over_axis(&rows(), "Goodput over loss")),
        ("comparison", comparison("A law, and what we find", "Mbit/s", &compared)),
        ("many", comparison("Many keys", "C", &many)),
        ("nothing", curves(&Outcome::default(), "")),
        ("empty", Figure::default()),
    ]
}

#[test]
fn both_kinds_are_written() {
    for (name, figure) in figures() {
        let svg = figure.svg();
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"), "{name}");
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{name}");
        let png = figure.png().expect("it fits");
        assert_eq!(&png[..4], b"\x89PNG", "{name}");
        if let Some(dir) = std::env::var_os("PACKTRAIN_PLOTS") {
            let path = Path::new(&dir).join(name);
            std::fs::write(path.with_extension("png"), &png).expect("writable");
            std::fs::write(path.with_extension("svg"), &svg).expect("writable");
        }
    }
}

#[test]
fn titles_cannot_break_the_picture() {
    let figure = Figure { title: "a < b & \"c\"\u{1b}[2J".repeat(40), ..Figure::default() };
    let svg = figure.svg();
    assert!(svg.contains("a &lt; b &amp; &quot;c&quot;"), "{svg}");
    assert!(!svg.contains('\u{1b}'));
    figure.png().expect("it fits");
}

#[test]
fn the_name_says_which() {
    assert!(check_name(Path::new("a.SVG")).is_ok());
    assert!(check_name(Path::new("a.pdf")).is_err());
    assert!(check_name(Path::new("svg")).is_err());
}
