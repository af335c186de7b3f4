//! Table 1: measured windows drive a virtual sender, with and without a classifier.

use std::fmt::Write as _;

use packtrain_loss::{Classifier, Model};
use packtrain_reproduce::direct::{Outcome, Physical, Virtual, run};
use packtrain_units::{ByteCount, DataRate, Duration, Rng};

use crate::judge::{Judged, Method, judge};
use crate::{Args, Failure, figure, records};

/// The paper's Table 1: long-term loss rate, throughput with and without the classifier.
const PAPER: [(f64, f64, f64); 3] =
    [(0.00035, 8_883.0, 74.0), (0.00045, 9_490.0, 35.0), (0.00056, 9_397.0, 41.5)];
/// Packet sizes: that of RFC 3649, and one that would explain the paper's numbers.
const SIZES: [u64; 2] = [1_500, 8_192];

/// A measured window as input of the simulation.
struct Window {
    packets: u64,
    lost: u64,
    judged: Option<Judged>,
}

pub(crate) fn table1(args: &Args, model: &Model) -> Result<String, Failure> {
    let mut text = String::from(
        "| transfer | long-term loss | windows, with loss, in range | classifier | P(CPU given CPU), > 95 % | 50 to 95 % | 50 to 50 | network | \
         Mbit/s, 1500 B | gain | Mbit/s, 8 KiB | gain |\n|---|---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    let mut csv = String::from(
        "transfer,classifier,loss_rate,windows,events,in_range,over_95,over_50,undecided,network,mbps_1500,mbps_8192\n",
    );
    let (mut rows, mut sets, mut notes) = (Vec::new(), Vec::new(), String::new());
    for (i, (set, path)) in args.files.iter().enumerate() {
        // `low@0.00035:real-cpu-generator` selects a long-term loss rate and a family.
        let (set, family) = set.split_once(':').unwrap_or((set, ""));
        let (set, target) = match set.split_once('@') {
            Some((set, target)) => (set, Some(target.parse()?)),
            None => (set, None),
        };
        let measured = measured(set, family, path, model)?;
        let drawn = drawn(&measured, target, args.windows, 1 + i as u64);
        let label = format!("{set}: {:.5}", drawn_loss(&drawn));
        let plain = outcomes(&drawn, |_| None);
        for (name, found) in judges(&drawn, &plain) {
            let gain = |at: usize| rate(&found[at]) / rate(&plain[at]);
            let one = found[0];
            let share = |n: u64| format!("{:.2}", 100.0 * n as f64 / one.in_range.max(1) as f64);
            let qualifies = name != "none";
            let cells = [one.acted, one.leaned, one.undecided, one.network]
                .map(|n| if qualifies { share(n) } else { "-".to_owned() });
            let _ = writeln!(
                text,
                "| {set} | {:.5} | {}, {}, {} | {name} | {} | {:.1} | {:.0} | {:.1} | {:.0} |",
                one.loss_rate,
                one.windows,
                one.events,
                one.in_range,
                cells.join(" | "),
                rate(&found[0]),
                gain(0),
                rate(&found[1]),
                gain(1),
            );
            let _ = writeln!(
                csv,
                "{set},{},{:.6},{},{},{},{},{},{},{},{:.2},{:.2}",
                name.replace(',', ""),
                one.loss_rate,
                one.windows,
                one.events,
                one.in_range,
                one.acted,
                one.leaned,
                one.undecided,
                one.network,
                rate(&found[0]),
                rate(&found[1]),
            );
            rows.push((label.clone(), name, rate(&found[1])));
        }
        if let Some((_, with, without)) = PAPER.get(i) {
            rows.push((label.clone(), "the paper's, with".to_owned(), *with));
            rows.push((label.clone(), "the paper's, without".to_owned(), *without));
        }
        let events = measured.iter().filter(|w| w.lost > 0).count();
        let _ = writeln!(notes, "{set}: {events} measured windows with losses drive it.");
        sets.push(label);
    }
    std::fs::write(args.out.join("expected.csv"), csv)?;
    figure::table1(&rows, &sets).write(&args.out.join(&args.plot))?;
    Ok(format!("{text}\n{notes}"))
}

fn measured(
    set: &str,
    family: &str,
    path: &std::path::Path,
    model: &Model,
) -> Result<Vec<Window>, Failure> {
    let mut classifier = Classifier::new(model);
    let of = |window: packtrain_loss::Labelled| {
        let lost = window.signature.lost() as u64;
        let judged = (lost > 0).then(|| judge(&mut classifier, set, &window));
        Window { packets: window.signature.len() as u64, lost, judged }
    };
    // Files of the data set contain only windows with losses; any window without a loss serves.
    let packets = packtrain_loss::paper::WINDOW as u64;
    let free = Window { packets, lost: 0, judged: None };
    let qualifies = |window: &_| qualifies(window, family);
    let with = records(path)?.into_iter().filter(qualifies).map(of);
    Ok(with.chain(std::iter::once(free)).collect())
}

/// Whether a window has the paper's length and loss rate, and losses at the host.
fn qualifies(window: &packtrain_loss::Labelled, family: &str) -> bool {
    let paper = window.signature.len() == packtrain_loss::paper::WINDOW;
    let family = family.is_empty() || window.family == family;
    paper
        && family
        && window.signature.loss_rate() <= 0.05
        && window.cause == packtrain_loss::Cause::Cpu
}

/// `count` windows, drawn from the measured ones; those with losses as often as the long-term loss
/// rate `target` requires.
fn drawn(measured: &[Window], target: Option<f64>, count: usize, seed: u64) -> Vec<&Window> {
    let mut rng = Rng::new(seed);
    let mut any = |of: &[&'_ Window]| rng.below(of.len() as u64) as usize;
    let (with, without): (Vec<&Window>, Vec<&Window>) = measured.iter().partition(|w| w.lost > 0);
    let all: Vec<&Window> = measured.iter().collect();
    let Some(target) = target.filter(|_| !with.is_empty() && !without.is_empty()) else {
        return (0..count).map(|_| all[any(&all)]).collect();
    };
    let share = target / drawn_loss(&with);
    let mut chance = Rng::new(seed ^ 1);
    (0..count)
        .map(|_| {
            let from = if chance.chance(share) { &with } else { &without };
            from[any(from)]
        })
        .collect()
}

fn drawn_loss(windows: &[&Window]) -> f64 {
    let (lost, all) = windows.iter().fold((0, 0), |(l, n), w| (l + w.lost, n + w.packets));
    lost as f64 / all as f64
}

/// The outcome without a classifier, with each classifier, and with an oracle.
fn judges(windows: &[&Window], plain: &[Outcome; 2]) -> Vec<(String, [Outcome; 2])> {
    let mut all = vec![("none".to_owned(), *plain)];
    for method in Method::ALL {
        let p = |w: &Window| {
            w.judged.as_ref().and_then(|j| j.classes.get(&method)).map(|classes| classes.1)
        };
        all.push((method.name().to_owned(), outcomes(windows, p)));
    }
    let right = |w: &Window| w.judged.as_ref().map(|j| if j.elsewhere { 0.0 } else { 1.0 });
    all.push(("the truth".to_owned(), outcomes(windows, right)));
    all
}

fn outcomes(windows: &[&Window], p_cpu: impl Fn(&Window) -> Option<f64>) -> [Outcome; 2] {
    SIZES.map(|size| {
        let config = Virtual {
            link: DataRate::from_mbps(10_000),
            rtt: Duration::from_millis(100),
            packet: ByteCount(size),
        };
        let physical = windows.iter().map(|window| Physical {
            packets: window.packets,
            lost: window.lost,
            p_cpu: p_cpu(window),
        });
        run(&config, physical)
    })
}

fn rate(outcome: &Outcome) -> f64 {
    outcome.throughput.as_bps() as f64 / 1e6
}
