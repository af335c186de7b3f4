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
        cwnd: Some(ByteCount(1_000_000 + (i * (7 + flow as u64 * 3) % 800) * 2_000)),
        in_flight: ByteCount(1_000_000),
        acked: None,
        pacing_rate: None,
        goodput: DataRate::from_mbps(300 + (i * 3 + flow as u64 * 90) % 300),
        rtt: Some(Duration::from_micros(100_000 + (i * 17) % 25_000)),
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
        ("sweep", over_axis(&rows(), &["link.bottleneck.loss"], "Goodput over loss")),
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
fn the_axis_is_chosen_and_no_curve_is_dropped() {
    let mut rows = Vec::new();
    for (i, (rtt, duration)) in [("20ms", "60s"), ("200ms", "600s")].iter().enumerate() {
        for j in 0..7 {
            let setting =
                |path: &str, value: &str| Setting { path: path.into(), value: value.into() };
            let settings = vec![
                setting("flow.one.cc", &format!("cc{j}")),
                setting("link.wan.rtt", rtt),
                setting("duration", duration),
            ];
            rows.push(RunRow::new(&sawtooth(), (i * 7 + j) as u64, settings));
        }
    }
    // Two flows with seven controllers each. The duration changes with the round trip: it is no
    // value that tells curves apart.
    let figure = over_axis(&rows, &["link.wan.rtt", "duration"], "");
    let series = &figure.panels[0].series;
    assert_eq!(series.len(), 14);
    assert!(series.iter().all(|series| series.points.len() == 2), "{series:?}");
    assert_eq!(figure.panels[0].x.label, "link.wan.rtt (s)");
    let looks = |s: &Series| (s.colour, s.style);
    for (i, one) in series.iter().enumerate() {
        assert!(series[..i].iter().all(|other| looks(other) != looks(one)), "{i} looks the same");
        assert!(figure.svg().contains(&one.name), "{}", one.name);
    }
    // The other axis: a bar for each controller.
    let figure = over_axis(&rows, &["flow.one.cc"], "");
    assert_eq!(figure.panels[0].categories.len(), 7);
    assert_eq!(figure.panels[0].series.len(), 4);
    // Repeats alone, without an axis.
    let rows: Vec<_> = (0..3).map(|run| RunRow::new(&sawtooth(), run, Vec::new())).collect();
    let figure = over_axis(&rows, &[], "");
    assert_eq!(figure.panels[0].x.label, "run");
    assert_eq!(figure.panels[0].series[0].points.len(), 3);
}

#[test]
fn curves_have_gaps_where_there_is_no_value() {
    let mut outcome = sawtooth();
    for sample in &mut outcome.samples {
        let gap = (20..30).contains(&(sample.at.as_nanos() / 1_000_000_000));
        sample.cwnd = sample.cwnd.filter(|_| sample.flow == 0 && !gap);
    }
    let figure = curves(&outcome, "");
    assert_eq!(figure.panels[0].series.len(), 1, "the second flow has no window");
    assert_eq!(figure.panels[1].series.len(), 2, "but a goodput");
    let lines = |svg: &str| svg.matches("<polyline").count() + svg.matches("<path").count();
    let whole = {
        let mut outcome = sawtooth();
        outcome.samples.iter_mut().filter(|s| s.flow == 1).for_each(|s| s.cwnd = None);
        lines(&curves(&outcome, "").svg())
    };
    assert_eq!(lines(&figure.svg()), whole + 1, "the line of the first flow is in two parts");
    assert!(!figure.svg().contains("NaN"));
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
