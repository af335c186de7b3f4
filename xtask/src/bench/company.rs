//! `native` beside one flow of the kernel on the same bottleneck, and, as the reference, a second
//! flow of the kernel in its place. What `native` gets and what it leaves are given as multiples of
//! what the second flow gets and leaves.

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::Plan;
use super::emulation::{self, Ended};
use super::grid::parse;
use super::lab::Lab;
use super::noise::{Attempt, Idle, Noise, Watch, counted};
use super::report::{Report, Suite, median};
use super::wan::{FAR, quoted};
use crate::sh;

/// What the keys of all suites start with.
const KEY: &str = "company, ";
/// The rate of the bottleneck, in Mbit/s.
const RATE: u32 = 100;
/// How much later the second flow begins, and how long both then share the path, in seconds.
const AHEAD: u32 = 5;
const SHARED: u32 = 40;
/// The last seconds of the shared time, which are measured.
const MEASURED: u32 = 30;
/// What a run takes, in seconds.
const RUN: u32 = AHEAD + SHARED + 3;
/// `native` must get and leave this share of what another flow of the same kind gets and leaves.
const REACH: f64 = 0.7;
const TIMEOUT: Duration = Duration::from_secs(RUN as u64 + 30);

/// The kinds of the other flow.
const KINDS: [&str; 2] = ["cubic", "bbr"];
/// Queues, as multiples of the bandwidth-delay product.
const QUEUES: [f64; 3] = [0.3, 1.0, 4.0];
/// Round-trip times in ms, and that of the short form.
const RTTS: [u32; 3] = [40, 10, 100];
const SHORT_RTT: u32 = 40;

/// Which flows share the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pair {
    /// Two flows of the kernel.
    Reference,
    /// `native` begins first.
    First,
    /// `native` begins second.
    Second,
}

const PAIRS: [Pair; 3] = [Pair::Reference, Pair::First, Pair::Second];

/// A path and the kind of the other flow.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Case {
    kind: &'static str,
    rtt: u32,
    queue: f64,
}

/// Goodput of the flow that began first and of the other one, in bit/s.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Shares {
    first: f64,
    second: f64,
}

/// One run.
struct Run {
    case: Case,
    pair: Pair,
    round: usize,
    attempt: usize,
    outcome: Result<Shares>,
    noise: Option<Noise>,
}

impl Attempt for Run {
    fn round(&self) -> usize {
        self.round
    }

    fn noise(&self) -> Option<&Noise> {
        self.noise.as_ref()
    }
}

/// A case with `native` in one of its places, judged.
struct Verdict<'a> {
    case: &'a Case,
    pair: Pair,
    /// What `native` gets and leaves ([`ratios`]); none if a run is missing.
    both: Option<(f64, f64)>,
}

impl Verdict<'_> {
    fn passed(&self) -> bool {
        self.both.is_some_and(|(gets, leaves)| gets >= REACH && leaves >= REACH)
    }
}

/// Runs the suite in the form that the plan names.
pub(super) fn run(lab: &Lab, plan: &Plan, report: &mut Report) -> Result<()> {
    // The short form runs the three queues at the same time, each in an emulator of its own.
    let (rtts, rounds, together): (&[u32], usize, usize) = match plan.form.as_str() {
        "short" => (&[SHORT_RTT], 1, QUEUES.len()),
        "full" => (&RTTS, 3, 1),
        other => bail!("--form short or --form full, not {other}"),
    };
    let rounds = plan.grid_rounds.unwrap_or(rounds);
    let wanted: Vec<Case> =
        cases(rtts).into_iter().filter(|case| plan.wants_case(&case.name())).collect();
    let minutes = rounds * wanted.chunks(together).count() * PAIRS.len() * RUN as usize / 60;
    eprintln!("{} cases, {rounds} rounds, about {minutes} minutes", wanted.len());
    let (mut runs, mut idle) = (Vec::new(), Vec::new());
    for round in plan.first..plan.first + rounds {
        idle.push(Idle::measure());
        for group in wanted.chunks(together) {
            for pair in PAIRS {
                runs.extend(turn(lab, group, pair, round, 0));
                let doubtful =
                    runs.iter().rev().take(group.len()).any(|run| !run.doubts().is_empty());
                // Several at once in the short form would take too long to repeat.
                if doubtful && together == 1 && plan.repeat {
                    runs.extend(turn(lab, group, pair, round, 1));
                }
            }
        }
        publish(&wanted, &runs, &idle, report);
        report.save(&sh::root().join("bench/results"))?;
    }
    Ok(())
}

fn cases(rtts: &[u32]) -> Vec<Case> {
    let mut cases = Vec::new();
    for &rtt in rtts {
        for kind in KINDS {
            cases.extend(QUEUES.map(|queue| Case { kind, rtt, queue }));
        }
    }
    cases
}

impl Case {
    fn name(&self) -> String {
        format!("beside {}, {} ms, queue {} BDP", self.kind, self.rtt, self.queue)
    }

    fn topology(&self) -> String {
        format!(
            "[[link]]\nname = \"wan\"\nfrom = \"near\"\nto = \"far\"\nrate = \"{RATE}mbit\"\n\
             rtt = \"{0}ms\"\nbdp_rtt = \"{0}ms\"\nqueue = \"{1}bdp\"\n",
            self.rtt, self.queue
        )
    }
}

/// Runs the cases of a group at the same time.
fn turn(lab: &Lab, group: &[Case], pair: Pair, round: usize, attempt: usize) -> Vec<Run> {
    let watch = Watch::start();
    let mut runs: Vec<Run> = std::thread::scope(|scope| {
        let started: Vec<_> = group
            .iter()
            .enumerate()
            .map(|(at, case)| scope.spawn(move || measure(lab, at, *case, pair, round, attempt)))
            .collect();
        started.into_iter().filter_map(|run| run.join().ok()).collect()
    });
    // A run takes those beside it for other programs: the processor time is that of the group.
    let all = watch.stop();
    for run in &mut runs {
        if let Some(noise) = &mut run.noise {
            noise.others = all.others;
        }
        show(run);
    }
    runs
}

fn measure(lab: &Lab, at: usize, case: Case, pair: Pair, round: usize, attempt: usize) -> Run {
    let (far, near) = commands(lab, case.kind, pair);
    let started: Vec<_> = far.into_iter().map(|command| ("far", command)).collect();
    let commands = emulation::Commands {
        topology: &case.topology(),
        seed: round,
        started: &started,
        near: &near,
        variables: &[],
        timeout: TIMEOUT,
    };
    let (outcome, noise) = match emulation::run(lab, &format!("company-{at}"), &commands) {
        Ok(ended) => (shares(&ended, pair), Some(ended.noise)),
        Err(failed) => (Err(failed.error), failed.noise),
    };
    Run { case, pair, round, attempt, outcome, noise }
}

/// The commands of the two hosts. Both flows begin at `near`; their reports are `$OUT.1` and
/// `$OUT.2`.
fn commands(lab: &Lab, kind: &str, pair: Pair) -> (Vec<String>, String) {
    let program = quoted(&lab.packtrain);
    let mut far = Vec::new();
    let mut flow = |number: u32, native: bool, seconds: u32| {
        let port = 7420 + number;
        if native {
            far.push(format!(
                "{program} perf server --listen {FAR}:{port} --ticket-file \"$OUT.ticket\""
            ));
            format!(
                "{program} perf client {FAR}:{port} --ticket \"@$OUT.ticket\" --transport native \
                 --seconds {seconds} --json > \"$OUT.{number}\""
            )
        } else {
            far.push(format!("iperf3 -s -1 -p {port} > /dev/null"));
            format!("iperf3 -c {FAR} -p {port} -C {kind} -J -t {seconds} > \"$OUT.{number}\"")
        }
    };
    let first = flow(1, pair == Pair::First, AHEAD + SHARED);
    let second = flow(2, pair == Pair::Second, SHARED);
    let ticket = match pair {
        Pair::Reference => "",
        _ => "until test -s \"$OUT.ticket\"; do sleep 0.05; done; ",
    };
    let near = format!(
        "echo {kind} > /proc/sys/net/ipv4/tcp_congestion_control; sleep 0.5; {ticket}\
         {first} & first=$!; sleep {AHEAD}; {second}; code=$?; wait $first && exit $code"
    );
    (far, near)
}

fn shares(ended: &Ended, pair: Pair) -> Result<Shares> {
    let text = |number: u32| {
        std::fs::read_to_string(format!("{}.{number}", ended.out.display()))
            .with_context(|| format!("flow {number} left no report"))
    };
    let between = |number: u32, native: bool, from: u32| {
        let (from, to) = (f64::from(from), f64::from(from + MEASURED));
        match native {
            true => parse::perf_between(&text(number)?, from, to),
            false => parse::iperf_between(&text(number)?, from, to),
        }
    };
    let skipped = SHARED - MEASURED;
    Ok(Shares {
        first: between(1, pair == Pair::First, AHEAD + skipped)?,
        second: between(2, pair == Pair::Second, skipped)?,
    })
}

/// What `native` gets and leaves, as multiples of what the second flow of the kernel gets and
/// leaves in the same place.
fn ratios(pair: Pair, run: Shares, reference: Shares) -> Option<(f64, f64)> {
    match pair {
        Pair::Reference => None,
        Pair::First => Some((run.first / reference.first, run.second / reference.second)),
        Pair::Second => Some((run.second / reference.second, run.first / reference.first)),
    }
}

/// The runs of a pair that count.
fn of_pair<'a>(runs: &'a [Run], case: &Case, pair: Pair) -> Vec<&'a Run> {
    counted(runs.iter().filter(|run| run.case == *case && run.pair == pair))
}

/// Medians of the runs that count.
fn shares_of(runs: &[Run], case: &Case, pair: Pair) -> Option<Shares> {
    let counted = of_pair(runs, case, pair);
    let of = |value: fn(&Shares) -> f64| {
        let values: Vec<f64> =
            counted.iter().filter_map(|run| Some(value(run.outcome.as_ref().ok()?))).collect();
        median(&values)
    };
    Some(Shares { first: of(|shares| shares.first)?, second: of(|shares| shares.second)? })
}

fn publish(cases: &[Case], runs: &[Run], idle: &[Idle], report: &mut Report) {
    let mut judged = Vec::new();
    for case in cases {
        let reference = shares_of(runs, case, Pair::Reference);
        for pair in [Pair::First, Pair::Second] {
            let shares = shares_of(runs, case, pair);
            let both = shares.zip(reference).and_then(|(run, other)| ratios(pair, run, other));
            judged.push(Verdict { case, pair, both });
        }
    }
    report.replace(KEY, cases.iter().map(|case| suite(case, runs)).collect());
    report.headline("company", headline(&judged, runs, idle));
    report.attach("company", json(&judged, runs, idle));
}

fn place(pair: Pair) -> &'static str {
    match pair {
        Pair::Reference => "two flows of the kernel",
        Pair::First => "native first",
        Pair::Second => "native second",
    }
}

fn suite(case: &Case, runs: &[Run]) -> Suite {
    let title = format!(
        "Company: {}, {RATE} Mbit/s; the last {MEASURED} of {SHARED} s, the second flow {AHEAD} s \
         later",
        case.name()
    );
    let mut suite = Suite::new(&format!("{KEY}{}", case.name()), &title, "Mbit/s", true);
    for pair in PAIRS {
        let names = match pair {
            Pair::Reference => [format!("{} first", case.kind), format!("{} second", case.kind)],
            Pair::First => ["native first".into(), format!("{} beside native", case.kind)],
            Pair::Second => [format!("{} before native", case.kind), "native second".into()],
        };
        let of = |value: fn(&Shares) -> f64| -> (Vec<f64>, Vec<String>) {
            let these = of_pair(runs, case, pair).into_iter();
            let (good, bad): (Vec<_>, Vec<_>) = these.partition(|run| run.outcome.is_ok());
            let values = good.iter().filter_map(|run| run.outcome.as_ref().ok()).map(value);
            let failures = bad.iter().filter_map(|run| run.outcome.as_ref().err());
            (values.map(|bps| bps / 1e6).collect(), failures.map(|e| format!("{e:#}")).collect())
        };
        let [first, second] = names;
        let (values, failures) = of(|shares| shares.first);
        suite.row(first, values, failures);
        let (values, failures) = of(|shares| shares.second);
        suite.row(second, values, failures);
    }
    for run in runs.iter().filter(|run| run.case == *case && !run.doubts().is_empty()) {
        suite.say(format!(
            "Doubtful: {}, round {}: {}.",
            place(run.pair),
            run.round + 1,
            run.doubts().join(", ")
        ));
    }
    suite
}

fn headline(judged: &[Verdict<'_>], runs: &[Run], idle: &[Idle]) -> String {
    let misses: Vec<&Verdict<'_>> = judged.iter().filter(|verdict| !verdict.passed()).collect();
    let mut text = format!(
        "## Company: cases that miss {REACH} of what another flow of the kernel gets or leaves\n\n"
    );
    if misses.is_empty() {
        let _ = writeln!(text, "None of {}.\n", judged.len());
    } else {
        let _ = writeln!(
            text,
            "{} of {}:\n\n| case | native begins | gets | leaves |\n|---|---|---|---|",
            misses.len(),
            judged.len()
        );
    }
    for Verdict { case, pair, both } in misses {
        let (gets, leaves) = match both {
            Some((gets, leaves)) => (format!("{gets:.2}"), format!("{leaves:.2}")),
            None => ("not measured".to_owned(), String::new()),
        };
        let order = if *pair == Pair::First { "first" } else { "second" };
        let _ = writeln!(text, "| {} | {order} | {gets} | {leaves} |", case.name());
    }
    let doubtful = runs.iter().filter(|run| !run.doubts().is_empty()).count();
    let _ =
        writeln!(text, "\n{doubtful} of {} runs are doubtful. The machine, idle:\n", runs.len());
    for (index, idle) in idle.iter().enumerate() {
        let _ = writeln!(text, "- round {}: {}", index + 1, idle.text());
    }
    text
}

fn json(judged: &[Verdict<'_>], runs: &[Run], idle: &[Idle]) -> Value {
    let path = |case: &Case| json!({"beside": case.kind, "rate_mbps": RATE, "rtt_ms": case.rtt, "queue_bdp": case.queue});
    let cases: Vec<Value> = judged
        .iter()
        .map(|verdict| {
            let mut value = path(verdict.case);
            let order = if verdict.pair == Pair::First { "first" } else { "second" };
            value["native"] = json!(order);
            value["gets"] = json!(verdict.both.map(|both| both.0));
            value["leaves"] = json!(verdict.both.map(|both| both.1));
            value["passed"] = json!(verdict.passed());
            value
        })
        .collect();
    let runs: Vec<Value> = runs
        .iter()
        .map(|run| {
            let mut value = path(&run.case);
            let shares = run.outcome.as_ref().ok();
            value["flows"] = json!(place(run.pair));
            value["round"] = json!(run.round);
            value["attempt"] = json!(run.attempt);
            value["first_mbps"] = json!(shares.map(|shares| shares.first / 1e6));
            value["second_mbps"] = json!(shares.map(|shares| shares.second / 1e6));
            value["failure"] = json!(run.outcome.as_ref().err().map(|error| format!("{error:#}")));
            value["noise"] = json!(run.noise.as_ref().map(Noise::json));
            value
        })
        .collect();
    let idle: Vec<Value> = idle.iter().map(Idle::json).collect();
    json!({"cases": cases, "runs": runs, "idle": idle})
}

fn show(run: &Run) {
    let value = match &run.outcome {
        Ok(shares) => {
            format!("{:.1} and {:.1} Mbit/s", shares.first / 1e6, shares.second / 1e6)
        }
        Err(error) => format!("FAILED: {error:#}"),
    };
    let doubts = run.doubts();
    let doubts = if doubts.is_empty() {
        String::new()
    } else {
        format!(" (doubtful: {})", doubts.join(", "))
    };
    eprintln!("round {}: {}, {}: {value}{doubts}", run.round + 1, run.case.name(), place(run.pair));
}

#[cfg(test)]
mod tests {
    use super::*;

    const CASE: Case = Case { kind: "cubic", rtt: 40, queue: 1.0 };

    fn run(pair: Pair, round: usize, attempt: usize, shares: (f64, f64), others: f64) -> Run {
        Run {
            case: CASE,
            pair,
            round,
            attempt,
            outcome: Ok(Shares { first: shares.0, second: shares.1 }),
            noise: Some(Noise { others, ..Noise::default() }),
        }
    }

    #[test]
    fn the_short_form_takes_less_than_five_minutes() {
        let groups = cases(&[SHORT_RTT]).chunks(QUEUES.len()).count();
        assert!(groups * PAIRS.len() * RUN as usize + 5 < 300);
        let group = cases(&[SHORT_RTT]);
        assert!(group[..3].iter().all(|case| case.kind == group[0].kind), "one kind at a time");
        assert_eq!(cases(&RTTS).len(), 18);
    }

    #[test]
    fn native_is_held_against_the_flow_in_its_place() {
        let reference = Shares { first: 50e6, second: 40e6 };
        let run = Shares { first: 25e6, second: 60e6 };
        assert_eq!(ratios(Pair::First, run, reference), Some((0.5, 1.5)));
        assert_eq!(ratios(Pair::Second, run, reference), Some((1.5, 0.5)));
        let passed = |both| Verdict { case: &CASE, pair: Pair::First, both }.passed();
        assert!(passed(Some((0.7, 0.7))));
        assert!(!passed(Some((0.69, 2.0))) && !passed(Some((2.0, 0.69))) && !passed(None));
    }

    #[test]
    fn medians_take_the_repetition_of_a_doubtful_run() {
        let runs = [
            run(Pair::First, 0, 0, (1.0, 9.0), 1.0),
            run(Pair::First, 0, 1, (5.0, 5.0), 0.0),
            run(Pair::First, 1, 0, (6.0, 4.0), 0.0),
            run(Pair::First, 2, 0, (7.0, 3.0), 0.0),
            run(Pair::Second, 0, 0, (2.0, 2.0), 0.0),
        ];
        let shares = shares_of(&runs, &CASE, Pair::First).unwrap();
        assert_eq!(shares, Shares { first: 6.0, second: 4.0 });
        assert!(shares_of(&runs, &CASE, Pair::Reference).is_none());
    }

    #[test]
    fn a_failed_run_is_no_share() {
        let mut failed = run(Pair::First, 0, 0, (1.0, 1.0), 0.0);
        failed.outcome = Err(anyhow::anyhow!("no route"));
        assert!(shares_of(&[failed], &CASE, Pair::First).is_none());
    }
}
