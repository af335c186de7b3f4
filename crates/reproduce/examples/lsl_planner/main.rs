//! The planner's experiments: `experiments/lsl-142-hosts`, `lsl-ten-sites`, `lsl-planner`.
//!
//!     lsl_planner topologies|hosts|sites [--out experiments/lsl-...]
//!     lsl_planner packets
//!
//! Each writes `expected.csv`, `plot.svg` and the table in the folder's README.md.
#![allow(clippy::print_stdout)]

#[path = "../../tests/lsl/mod.rs"]
mod lsl;
mod report;

use std::path::PathBuf;

use lsl::papers::Rule;
use lsl::{packets, papers, study, world};
use report::Report;

type Failure = Box<dyn std::error::Error>;

/// Seeds of networks that no parameter was tuned on.
const HELD_OUT: std::ops::RangeInclusive<u64> = 101..=106;
/// Number of cases of each size.
const CASES: usize = 150;

fn main() -> Result<(), Failure> {
    let mut words = std::env::args().skip(1);
    let what = words.next().unwrap_or_default();
    let out = match (words.next().as_deref(), words.next()) {
        (Some("--out"), Some(path)) => Some(PathBuf::from(path)),
        _ => None,
    };
    let report = match what.as_str() {
        "topologies" => topologies(HELD_OUT),
        "tune" => topologies(1..=3),
        "hosts" => hosts(),
        "sites" => sites(),
        "packets" => {
            checked();
            return Ok(());
        }
        other => {
            return Err(format!("say topologies, hosts, sites or packets, not {other:?}").into());
        }
    };
    println!("{}", report.table);
    match out {
        Some(out) => report.write(&out),
        None => Ok(()),
    }
}

/// Compares the fluid model with packets.
fn checked() {
    for kind in [world::PLANETLAB, world::LOSSY] {
        let mut ratios = packets::ratios(kind, 7, 30);
        ratios.sort_by(f64::total_cmp);
        let at = |part: f64| ratios[((ratios.len() - 1) as f64 * part).round() as usize];
        println!(
            "{}: time in packets by time in the fluid: least {:.2}, 10 % {:.2}, median {:.2}, 90 % \
             {:.2}, most {:.2}",
            kind.name,
            at(0.0),
            at(0.1),
            at(0.5),
            at(0.9),
            at(1.0)
        );
    }
}

/// Random networks of four kinds.
fn topologies(seeds: std::ops::RangeInclusive<u64>) -> Report {
    let mut report = Report::new(
        "A rule beside one who knows all paths",
        "| network | rule | over depots | of the oracle's throughput | of direct's | slower than 0.95 of direct |",
    );
    for kind in [world::LOSSY, world::CORE, world::NOISY, world::CLEAN] {
        let mut sums = [study::Score::default(); 3];
        for seed in seeds.clone() {
            for (sum, score) in sums.iter_mut().zip(study::compare(kind, seed, 240)) {
                sum.and(&score);
            }
        }
        for (name, s) in ["direct", "paper", "ours"].iter().zip(sums) {
            let percent = |of: f64| format!("{:.1} %", 100.0 * s.share(of));
            report.row(&[
                kind.name.to_owned(),
                (*name).to_owned(),
                percent(s.depots),
                percent(s.of_oracle),
                percent(s.of_direct),
                percent(s.slower),
            ]);
            let key = |what: &str| format!("{} {name} {what}", kind.name);
            report.number(key("over depots"), s.share(s.depots));
            report.number(key("of oracle"), s.share(s.of_oracle));
            report.number(key("of direct"), s.share(s.of_direct));
            report.number(key("slower"), s.share(s.slower));
            report.number(key("slower as it came"), s.share(s.unlucky));
            report.at(name, 100.0 * s.share(s.slower), 100.0 * s.share(s.of_oracle));
        }
    }
    report.axes("slower than 0.95 of direct (%)", "of the oracle's throughput (%)")
}

/// Experiment 1.
fn hosts() -> Report {
    let mut report = Report::new(
        "142 hosts: how often a depot is faster",
        "| | 1 MB | 2 MB | 4 MB | 8 MB | 16 MB | 32 MB | 64 MB |",
    );
    let paper = |what: &str, numbers: [&str; 7]| {
        let mut cells = vec![what.to_owned()];
        cells.extend(numbers.map(str::to_owned));
        cells
    };
    report
        .row(&paper("paper: percentile of speed-up 1", ["39", "43", "48", "43", "48", "46", "49"]));
    for (rule, name) in [(Rule::Paper, "its rule"), (Rule::Ours, "ours")] {
        let (sizes, [over, slower, of_oracle]) = papers::hosts(world::PLANETLAB, 142, rule, CASES);
        let line = |what: &str, value: &dyn Fn(&papers::Speedups) -> String| -> Vec<String> {
            std::iter::once(format!("{name}: {what}")).chain(sizes.iter().map(value)).collect()
        };
        report.row(&line("percentile of speed-up 1", &|s| format!("{:.0}", s.not_above(1.0))));
        report
            .row(&line("slower than 0.95 of direct, %", &|s| format!("{:.1}", s.not_above(0.95))));
        report.row(&line("mean speed-up", &|s| format!("{:.3}", s.mean())));
        report.row(&line("median", &|s| format!("{:.3}", s.quantile(0.5))));
        for (n, speedups) in sizes.iter().enumerate() {
            let key = |what: &str| format!("{name} {} MB {what}", 1 << n);
            report.number(key("percentile of 1"), speedups.not_above(1.0));
            report.number(key("slower"), speedups.not_above(0.95));
            report.number(key("mean"), speedups.mean());
            report.at(name, f64::from(1 << n), speedups.not_above(1.0));
        }
        report.number(format!("{name} paths over depots"), over);
        report.number(format!("{name} slower of all transfers"), slower);
        report.number(format!("{name} of oracle"), of_oracle);
        report.note(&format!(
            "{name}: {:.1} % of all paths over depots at 16 MB; of all transfers {:.1} % slower than 0.95 of \
             direct, {:.1} % of the oracle's throughput.",
            100.0 * over, 100.0 * slower, 100.0 * of_oracle
        ));
    }
    let theirs = [39.0, 43.0, 48.0, 43.0, 48.0, 46.0, 49.0];
    for (n, percentile) in theirs.into_iter().enumerate() {
        report.at("paper", f64::from(1 << n), percentile);
    }
    report.axes("MB", "transfers not faster than direct (%)")
}

/// Experiment 2.
fn sites() -> Report {
    let mut report = Report::new(
        "Ten sites, depots in the core: speed-up",
        "| | least | quarter | median | three quarters | most | slower than 0.95 of direct |",
    );
    for (rule, name) in [(Rule::Paper, "its rule"), (Rule::Ours, "ours")] {
        for (size, speedups) in
            ["16 MB", "128 MB"].iter().zip(papers::sites(world::TEN_SITES, 10, rule))
        {
            let quantile = |part: f64| format!("{:.2}", speedups.quantile(part));
            report.row(&[
                format!("{name}, {size}"),
                quantile(0.0),
                quantile(0.25),
                quantile(0.5),
                quantile(0.75),
                quantile(1.0),
                format!("{:.1} %", speedups.not_above(0.95)),
            ]);
            for part in [0.0, 0.25, 0.5, 0.75, 1.0] {
                report.number(format!("{name} {size} {part}"), speedups.quantile(part));
                report.at(&format!("{name}, {size}"), 100.0 * part, speedups.quantile(part));
            }
            report.number(format!("{name} {size} slower"), speedups.not_above(0.95));
        }
    }
    report.axes("percentile", "speed-up")
}
