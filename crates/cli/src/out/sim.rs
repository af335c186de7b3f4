//! The output of `sim`.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use packtrain_reproduce::signatures::Family;
use packtrain_reproduce::{Basis, Checked, Experiment, Reproduced};
use packtrain_sim::bench::Bench;
use packtrain_sim::file::ScenarioFile;
use packtrain_sim::repeats::RepeatsRow;
use packtrain_sim::results::{FlowRow, RunRow};
use packtrain_units::DataRate;
use serde::Serialize;

use crate::exit::print_message;

use super::object::Object;
use super::{clean, json_line, line};
use crate::args::SimReproduceArgs;
use crate::exit::print_stderr;

#[derive(Serialize)]
struct Done<'a> {
    #[serde(flatten)]
    row: &'a RunRow,
    ok: bool,
}

/// A progress bar if stderr is a terminal.
pub(crate) fn bar(length: u64, name: &str) -> ProgressBar {
    let bar =
        ProgressBar::with_draw_target(Some(length.max(1)), ProgressDrawTarget::stderr_with_hz(5));
    if let Ok(style) = ProgressStyle::with_template("{prefix} {bar:40} {percent} %  {eta} left") {
        bar.set_style(style);
    }
    bar.set_prefix(clean(name));
    bar
}

/// Prints one JSON object.
pub(crate) fn row(row: &impl Serialize) {
    json_line(row);
}

/// Prints the last line of a single run.
pub(crate) fn done(row: &RunRow) {
    json_line(&Done { row, ok: true });
}

/// Prints the last line of a sweep.
pub(crate) fn sweep_done(runs: usize, trace_hash: &str, flows: &[FlowRow]) {
    let event = Object::event("done").with("ok", true).with("runs", runs);
    json_line(&event.with("trace_hash", trace_hash).with("flows", flows));
}

/// Prints the last line of a failed command.
pub(crate) fn failed(error: &str, exit_code: u8) {
    json_line(&Object::done(false, exit_code).with("error", error));
}

/// Prints a run as text.
pub(crate) fn table(title: &str, run: &RunRow) {
    line(&format!(
        "{}  ({} s, seed {}, trace {})\n",
        clean(title),
        run.seconds,
        run.seed,
        run.trace_hash
    ));
    let width = run.flows.iter().map(|flow| flow.name.chars().count()).max().unwrap_or(4).max(4);
    line(&format!(
        "{:<width$}  {:<12} {:>14} {:>14} {:>7} {:>10} {:>10} {:>9}",
        "flow", "cc", "goodput", "sent again", "losses", "queue mean", "queue p99", "rtt"
    ));
    for flow in &run.flows {
        line(&format!("{:<width$}  {}", flow.name, flow_cells(flow)));
    }
    let width = run.links.iter().map(|link| link.name.chars().count()).max().unwrap_or(4).max(4);
    line(&format!("\n{:<width$}  {:>8} {:>12} {:>10}", "link", "used", "packets", "dropped"));
    for link in &run.links {
        let dropped = link.dropped;
        let dropped = dropped.overflow + dropped.early + dropped.random + dropped.other;
        let (name, used) = (&link.name, link.utilisation * 100.0);
        line(&format!("{name:<width$}  {used:>6.1} % {:>12} {dropped:>10}", link.offered_packets));
    }
}

fn flow_cells(flow: &FlowRow) -> String {
    let mut text = format!(
        "{:<12} {:>14} {:>14} {:>7} {:>7.2} ms {:>7.2} ms {:>6.1} ms",
        flow.cc,
        DataRate::from_bps(flow.goodput_bps).to_string(),
        packtrain_units::ByteCount(flow.retransmitted_bytes).to_string(),
        flow.loss_events,
        flow.queueing_delay_mean_ms,
        flow.queueing_delay_p99_ms,
        flow.rtt_mean_ms,
    );
    if let Some(seconds) = flow.completed_seconds {
        text.push_str(&format!("  done in {seconds:.3} s"));
    }
    if let (Some(count), Some(mean)) = (flow.connections_completed, flow.connection_mean_ms) {
        text.push_str(&format!("  {count} done, {mean:.1} ms each"));
    }
    text
}

/// Prints the axes of a sweep.
pub(crate) fn sweep_heading(file: &ScenarioFile) {
    let axes: Vec<_> = file.axes().map(clean).collect();
    let over =
        if axes.is_empty() { String::new() } else { format!(" over {}", axes.join(" and ")) };
    line(&format!("{} runs{over}", file.runs()));
}

/// Prints a run of a sweep as text.
pub(crate) fn sweep_row(run: &RunRow) {
    let settings: Vec<_> = run.settings.iter().map(|s| clean(&s.value)).collect();
    for flow in &run.flows {
        let what = format!("{:>5}  {}", run.run, settings.join("  "));
        line(&format!("{what:<40} {:<10} {}", flow.name, flow_cells(flow)));
    }
}

/// Prints the medians of the repeats of a combination as text.
pub(crate) fn repeats(row: &RepeatsRow) {
    let settings: Vec<_> = row.settings.iter().map(|s| clean(&s.value)).collect();
    let rate = |bps: f64| DataRate::from_bps(bps as u64).to_string();
    for flow in &row.flows {
        let what = format!("{:>6} of {}  {}", "median", row.runs, settings.join("  "));
        let Some(goodput) = flow.numbers.get("goodput_bps") else { continue };
        let (median, min, max) = (rate(goodput.median), rate(goodput.min), rate(goodput.max));
        line(&format!(
            "{what:<40} {:<10} {:<12} {median:>14}  from {min} to {max}",
            flow.name, flow.cc
        ));
    }
}

/// Says that repeats are no repeats.
pub(crate) fn equal_repeats() {
    print_message(
        "all repeats of a combination are the same run, because nothing in it is random: \
         `start_jitter = \"10ms\"` in [sweep] makes flows start at other times",
    );
}

/// Prints an experiment of the list.
pub(crate) fn listed(experiment: &Experiment, runs: u64, json: bool) {
    let (name, title, quick) = (&experiment.name, &experiment.title, experiment.quick);
    if experiment.not_simulated.is_some() {
        if json {
            let event = Object::event("experiment").with("name", name).with("title", title);
            json_line(&event.with("simulated", false));
        } else {
            line(&format!("{name:<20} {:>10}  {:<6} {title}", "measured", ""));
        }
    } else if json {
        let event = Object::event("experiment").with("name", name).with("title", title);
        json_line(&event.with("quick", quick).with("runs", runs));
    } else {
        let time = if quick { "quick" } else { "long" };
        line(&format!("{name:<20} {runs:>5} runs  {time:<6} {title}"));
    }
}

/// Prints why an experiment is not played.
pub(crate) fn not_simulated(name: &str, reason: &str, json: bool) {
    if json {
        json_line(&Object::event("skipped").with("name", name).with("reason", reason));
    } else {
        line(&format!("{name}: not simulated: {reason}"));
    }
}

/// Prints the result of a check.
pub(crate) fn checked(result: &Checked, json: bool) {
    if json {
        json_line(result);
        return;
    }
    let (name, runs, compared) = (&result.name, result.runs, result.compared);
    let verdict = if result.ok { "as in expected.csv" } else { "NOT as in expected.csv" };
    line(&format!("{name}: {compared} numbers of {runs} runs: {verdict}"));
    let show = |number: Option<f64>| number.map_or_else(|| "none".to_owned(), |n| n.to_string());
    for changed in &result.changed {
        let (expected, ours) = (show(changed.expected), show(changed.ours));
        line(&format!("  {}: expected {expected}, is {ours}", clean(&changed.key)));
    }
}

/// Prints the spread over several seeds, lines of CSV.
pub(crate) fn spread(text: &str) {
    line(text.trim_end());
}

/// Prints the result of an experiment.
pub(crate) fn reproduced(result: &Reproduced, args: &SimReproduceArgs) {
    if args.json {
        json_line(result);
        return;
    }
    let width = result.rows.iter().map(|row| row.key.chars().count()).max().unwrap_or(3).max(3);
    line(&format!(
        "{}\n{:<width$}  {:>12} {:>12} {:>12}",
        result.name, "key", "paper", "ours", "tolerance"
    ));
    for row in &result.rows {
        let ours = row.ours.map_or_else(|| "none".to_owned(), |ours| format!("{ours:.4}"));
        let mark = match (row.ok(), row.is_scored()) {
            (true, true) => "",
            (false, true) => "  <- outside",
            (true, false) => "  (not scored)",
            (false, false) => "  <- outside (not scored)",
        };
        let variant = row.variant.as_ref().map_or_else(String::new, |name| format!("  {name}"));
        let (key, sign, tolerance) = (&row.key, row.bound.sign(), row.tolerance);
        let paper = format!("{sign}{:.4}", row.paper);
        line(&format!("{key:<width$}  {paper:>12} {ours:>12} {tolerance:>12.4}{variant}{mark}"));
    }
    for basis in Basis::ALL {
        let (good, all) = result.score(basis);
        let what = if basis == Basis::Paper { "" } else { ", not scored: " };
        let name = if basis == Basis::Paper { "" } else { basis.name() };
        if all > 0 {
            line(&format!("{good} of {all} within tolerance{what}{name}"));
        }
    }
    line("");
}

/// Prints a case of the benchmark.
pub(crate) fn benched(title: &str, bench: &Bench, json: bool) {
    if json {
        json_line(bench);
        return;
    }
    line(&format!(
        "{:<14} {:>8.2} M packets/s {:>8.2} virtual s/s  ({} s in {:.2} s)  {title}",
        bench.name,
        bench.packets_per_second / 1e6,
        bench.virtual_seconds_per_second,
        bench.virtual_seconds,
        bench.seconds,
    ));
}

/// Prints the last line of the benchmark.
pub(crate) fn bench_done(cases: &[Bench]) {
    json_line(&Object::event("done").with("ok", true).with("cases", cases));
}

/// Prints a loss model.
pub(crate) fn family(family: &Family) {
    let split = if family.trains { "trained" } else { "unseen" };
    line(&format!("{:15} {:8} {split:8} {}", family.name, family.cause, family.about));
}

/// Prints the number of generated signatures.
pub(crate) fn generated(made: u64, missing: u64, packets: u32) {
    let mut text = format!("{made} windows of {packets} packets");
    if missing > 0 {
        text += &format!("; {missing} were not generated: no draw had the required losses");
    }
    print_stderr(&text);
}
