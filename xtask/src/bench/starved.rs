//! The goodput with a receiver that lacks processor time, or on a path with competing traffic.
//! Measured through the product's emulator. The receiver and its competitors share one core; the
//! emulator and the sender share another.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::Plan;
use super::lab::{Lab, last_json, run_for};
use super::raw::number;
use super::report::Report;
use super::rivals::{Phase, Rivals, VERB};
use super::wan::{Contestant, FAR, kernel, packtrain, quoted, stock};
use crate::sh;

/// Duration of each transfer to the starved receiver, in seconds.
const SECONDS: u32 = 16;
/// Duration of each transfer on a shared path, and the head start of the competing flow, in
/// seconds.
const SHARED: u32 = 16;
const AHEAD: u32 = 4;
/// Timeout of a run.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Ticks per second in which the kernel counts processor time.
const TICKS: f64 = 100.0;

/// A path, the competitors for the receiver's core, and the names of its suites: goodput, and
/// goodput relative to that for which the receiver has processor time.
struct Case {
    rtt: &'static str,
    rivals: fn(round: usize) -> Rivals,
    shown: &'static str,
    key: &'static str,
    share: Option<&'static str>,
}

const CASES: &[Case] = &[
    Case {
        rtt: "65ms",
        rivals: |_| Rivals::None,
        shown: "no rivals",
        key: "starved, 65 ms, alone",
        share: None,
    },
    Case {
        rtt: "65ms",
        rivals: |round| Rivals::generator(round, f64::from(SECONDS)),
        shown: "the paper's process generator",
        key: "starved, 65 ms, generator",
        share: Some("starved, 65 ms, generator, share"),
    },
    Case {
        rtt: "65ms",
        rivals: |_| Rivals::Always,
        shown: "seven busy processes all the time",
        key: "starved, 65 ms, always",
        share: Some("starved, 65 ms, always, share"),
    },
    Case {
        rtt: "65ms",
        rivals: |_| Rivals::Before,
        shown: "seven busy processes that go before (nice -5)",
        key: "starved, 65 ms, before",
        share: Some("starved, 65 ms, before, share"),
    },
    Case {
        rtt: "20ms",
        rivals: |_| Rivals::None,
        shown: "no rivals",
        key: "starved, 20 ms, alone",
        share: None,
    },
    Case {
        rtt: "20ms",
        rivals: |_| Rivals::Always,
        shown: "seven busy processes all the time",
        key: "starved, 20 ms, always",
        share: Some("starved, 20 ms, always, share"),
    },
];

/// Measures every program with a starved receiver, first without competitors.
pub(super) fn run(lab: &Lab, plan: &Plan, report: &mut Report) -> Result<()> {
    let contestants = contestants(lab, plan, SECONDS);
    let wanted = |case: &&Case| plan.wants_case(case.key) || case.share.is_none();
    let cases: Vec<_> = CASES.iter().filter(wanted).collect();
    let cases: Vec<_> = cases
        .iter()
        .filter(|case| cases.iter().any(|other| other.rtt == case.rtt && other.share.is_some()))
        .collect();
    for case in &cases {
        let title = format!(
            "A receiver on one core with {}: 1 Gbit/s, {}, {SECONDS} s",
            case.shown, case.rtt
        );
        report.suite(case.key, &title, "Mbit/s", true);
        if let Some(share) = case.share {
            let title = format!("The same, of what the receiver has processor time for ({share})");
            report.suite(share, &title, "%", true);
        }
    }
    let mut late = Lateness::default();
    for round in plan.rounds() {
        for one in &contestants {
            let mut alone: Option<(&str, Run)> = None;
            for case in &cases {
                let rivals = (case.rivals)(round);
                let path = ["--rate", "1gbit", "--rtt", case.rtt];
                let far = starved_far(one, rivals)?;
                let run = measure(lab, &path, round, &far, &starved_near(one), one, &mut late);
                let bps = run.as_ref().map(|run| run.bps).map_err(|e| anyhow::anyhow!("{e:#}"));
                report.add(case.key, one.name, round, bps.map(|bps| bps / 1e6));
                let Ok(run) = run else { continue };
                remark_cause(report, case.key, one, round, &run);
                match (case.share, &alone) {
                    (None, _) => alone = Some((case.rtt, run)),
                    (Some(key), Some((rtt, alone))) if *rtt == case.rtt => {
                        let seconds = f64::from(SECONDS);
                        let may = run.deserves(alone, &rivals.phases(seconds), seconds);
                        report.add(key, one.name, round, Ok(100.0 * run.bps / may));
                    }
                    _ => {}
                }
            }
        }
    }
    if let Some(case) = cases.first() {
        report.remark(case.key, late.summary());
    }
    Ok(())
}

/// Measures every program on a path with a TCP flow of the kernel that started earlier.
pub(super) fn congested(lab: &Lab, plan: &Plan, report: &mut Report) -> Result<()> {
    let contestants = contestants(lab, plan, SHARED);
    let mut late = Lateness::default();
    let suites = [
        ("cubic", "congested by cubic", "congested by cubic, what cubic keeps"),
        ("bbr", "congested by bbr", "congested by bbr, what bbr keeps"),
    ];
    let suites: Vec<_> = suites.into_iter().filter(|suite| plan.wants_case(suite.1)).collect();
    for (cc, own, theirs) in &suites {
        let title = format!(
            "200 Mbit/s, 40 ms, queue of 1 BDP, shared for {SHARED} s with kernel {cc}, which \
             began {AHEAD} s earlier"
        );
        report.suite(own, &title, "Mbit/s", true);
        report.suite(theirs, &format!("The same: what {cc} had meanwhile"), "Mbit/s", true);
    }
    for round in plan.rounds() {
        for (cc, own, theirs) in &suites {
            for one in &contestants {
                let path = ["--rate", "200mbit", "--rtt", "40ms"];
                let far = format!("iperf3 -s -1 -p 7415 > /dev/null & {}", one.far);
                let near = format!(
                    "sleep 0.5; echo {cc} > /proc/sys/net/ipv4/tcp_congestion_control; \
                     iperf3 -c {FAR} -p 7415 -C {cc} -J -t {} > \"$OUT.rival\" & rival=$!; \
                     sleep {AHEAD}.5; ({}); code=$?; wait $rival; exit $code",
                    SHARED + AHEAD + 1,
                    one.near
                );
                let run = measure(lab, &path, round, &far, &near, one, &mut late);
                let other = run.as_ref().map(|run| run.rival).unwrap_or_default();
                if let Ok(run) = &run {
                    remark_cause(report, own, one, round, run);
                }
                report.add(own, one.name, round, run.map(|run| run.bps / 1e6));
                if let Some(other) = other {
                    report.add(theirs, one.name, round, Ok(other / 1e6));
                }
            }
        }
    }
    if let Some((_, own, _)) = suites.first() {
        report.remark(own, late.summary());
    }
    Ok(())
}

fn contestants(lab: &Lab, plan: &Plan, seconds: u32) -> Vec<Contestant> {
    let mut all = vec![
        packtrain(lab, "packtrain native", "native", "native", seconds),
        packtrain(lab, "packtrain native wire, cubic", "native", "cubic", seconds),
        packtrain(lab, "packtrain fobs", "fobs", "fobs", seconds),
        packtrain(lab, "packtrain udt, udt:grid", "udt", "udt:grid", seconds),
        packtrain(lab, "packtrain sabul", "sabul", "sabul", seconds),
    ];
    match lab.udt() {
        Ok(program) => all.push(stock(&program, seconds)),
        Err(error) => eprintln!("*** no UDT4: {error:#} ***"),
    }
    all.push(kernel("iperf3 cubic", "cubic", seconds));
    all.push(kernel("iperf3 bbr", "bbr", seconds));
    all.retain(|one| plan.wants(one.name));
    all
}

/// The command of the receiver and its competitors on the second core. The shell stays, because it
/// has the processor time of an ended receiver.
fn starved_far(one: &Contestant, rivals: Rivals) -> Result<String> {
    let own = quoted(&std::env::current_exe().context("finding this program")?);
    Ok(format!(
        "taskset -cp 1 $$ > /dev/null; {own} bench {VERB} {} {} \"$OUT.go\" & \
         echo $$ > \"$OUT.shell\"; {} & echo $! > \"$OUT.pid\"; wait $!; sleep 60",
        rivals.word(),
        SECONDS + 2,
        one.far
    ))
}

fn starved_near(one: &Contestant) -> String {
    format!(
        "sleep 0.3; : > \"$OUT.go\"; ({}); code=$?; \
         for of in shell pid; do cat /proc/$(cat \"$OUT.$of\")/stat >> \"$OUT.cpu\"; done \
         2> /dev/null; exit $code",
        one.near
    )
}

/// Adds the reported cause of losses.
fn remark_cause(report: &mut Report, key: &str, one: &Contestant, round: usize, run: &Run) {
    if let Some(reported_cause) = &run.reported_cause {
        let text = format!(
            "{}, round {}, reported the cause of losses: {reported_cause}.",
            one.name,
            round + 1
        );
        report.remark(key, text);
    }
}

/// The result of one run.
struct Run {
    bps: f64,
    /// Processor seconds of the receiver.
    cpu: Option<f64>,
    /// The other flow's goodput meanwhile, in bits per second.
    rival: Option<f64>,
    /// The reported cause of losses.
    reported_cause: Option<String>,
}

impl Run {
    /// The goodput for which the receiver has processor time among competitors. Its fair share of
    /// the core at each time (by the scheduler's weights) is multiplied by the goodput per
    /// processor time, alone or in this run, whichever is larger, and limited to the goodput alone.
    /// Under load more datagrams arrive per call, and each costs less.
    fn deserves(&self, alone: &Self, phases: &[Phase], seconds: f64) -> f64 {
        let bits_per_cpu = self.bits_per_cpu(seconds).max(alone.bits_per_cpu(seconds));
        alone.with_rivals(bits_per_cpu, phases, seconds)
    }

    fn bits_per_cpu(&self, seconds: f64) -> f64 {
        match self.cpu {
            Some(cpu) if cpu > 0.0 => self.bps * seconds / cpu,
            _ => f64::INFINITY,
        }
    }

    fn with_rivals(&self, bits_per_cpu: f64, phases: &[Phase], seconds: f64) -> f64 {
        let (mut bits, mut busy) = (0.0, 0.0);
        for phase in phases {
            let span = phase.to.min(seconds) - phase.from;
            let fair = bits_per_cpu * phase.share();
            bits += span * fair.min(self.bps);
            busy += span;
        }
        (bits + (seconds - busy) * self.bps) / seconds
    }
}

/// The emulator's lateness over all runs.
#[derive(Default)]
struct Lateness {
    runs: usize,
    doubtful: usize,
    worst_p99: f64,
}

impl Lateness {
    fn summary(&self) -> String {
        let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let load = load.split(' ').take(3).collect::<Vec<_>>().join(" ");
        format!(
            "The emulator did not keep up in {} of {} runs; its worst 99th percentile of lateness \
             was {:.1} ms. Load of the machine at the end (1, 5, 15 min): {load}.",
            self.doubtful,
            self.runs,
            self.worst_p99 * 1e3
        )
    }
}

fn measure(
    lab: &Lab,
    path: &[&str],
    round: usize,
    far: &str,
    near: &str,
    one: &Contestant,
    late: &mut Lateness,
) -> Result<Run> {
    let out = lab.fresh("starved")?.join("out");
    let seed = (round + 1).to_string();
    let mut emulate = sh::command("taskset", ["-c", "0", &lab.packtrain.to_string_lossy()]);
    emulate.arg("emulate").args(path).args(["--seed", &seed, "--best-effort", "--json"]);
    emulate.args(["--far", far, "--", "sh", "-c", near]);
    emulate.env("OUT", &out).envs(lab.environment());
    let text = run_for(&mut emulate, TIMEOUT)?;
    let emulation = last_json(&text)?;
    late.add(&emulation);
    if emulation["command_exit_code"] != 0 {
        bail!("it failed with exit code {}", emulation["command_exit_code"]);
    }
    let text = std::fs::read_to_string(&out).context("it wrote no result")?;
    let (bps, reported_cause) = ((one.read)(&text)?, (one.reported_cause)(&text));
    Ok(Run {
        bps,
        reported_cause,
        cpu: cpu_seconds(&out.with_extension("cpu")),
        rival: rival(&out),
    })
}

impl Lateness {
    fn add(&mut self, emulation: &Value) {
        self.runs += 1;
        self.doubtful += usize::from(emulation["ok"] == false);
        let p99 = number(emulation, "/delay_error/p99_seconds").unwrap_or_default();
        self.worst_p99 = self.worst_p99.max(p99);
    }
}

/// The processor time of a shell's ended children, or of the program itself (proc(5), fields 14 to
/// 17).
fn cpu_seconds(file: &Path) -> Option<f64> {
    let text = std::fs::read_to_string(file).ok()?;
    let ticks = |line: &str, from: usize| -> Option<f64> {
        // The name may contain spaces; it ends with the last parenthesis, before the third field.
        let fields: Vec<&str> = line.rsplit_once(')')?.1.split_whitespace().collect();
        let value = |i: usize| fields.get(i - 3)?.parse::<f64>().ok();
        Some(value(from)? + value(from + 1)?)
    };
    let mut lines = text.lines();
    let ended = ticks(lines.next()?, 16)?;
    let own = lines.next().and_then(|line| ticks(line, 14)).unwrap_or_default();
    Some((ended + own) / TICKS)
}

/// The other flow's goodput during the measured one, from its reports of each second.
fn rival(out: &Path) -> Option<f64> {
    let text = std::fs::read_to_string(out.with_extension("rival")).ok()?;
    let value: Value = serde_json::from_str(&text).ok()?;
    let seconds: Vec<f64> = value["intervals"]
        .as_array()?
        .iter()
        .skip(AHEAD as usize)
        .take(SHARED as usize)
        .filter_map(|one| one.pointer("/sum/bits_per_second")?.as_f64())
        .collect();
    (!seconds.is_empty()).then(|| seconds.iter().sum::<f64>() / seconds.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_even_share_of_the_core_buys_what_it_bought_alone() {
        // 800 Mbit/s for half the core.
        let run = |bps, cpu| Run { bps, cpu: Some(cpu), rival: None, reported_cause: None };
        let (alone, dear) = (run(8e8, 5.0), run(1e8, 5.0));
        assert_eq!(dear.deserves(&alone, &[], 10.0), 8e8);
        let phase = |count| Phase { from: 0.0, to: 5.0, count, weight: 1.0 };
        let with = |count| dear.deserves(&alone, &[phase(count)], 10.0);
        assert_eq!(with(1), 8e8, "half a core is what it needs");
        assert_eq!(with(7), 5e8, "an eighth buys 200 Mbit/s, for half the time");
        let cheap = run(4e8, 1.0).deserves(&alone, &[phase(7)], 10.0);
        assert_eq!(cheap, 6.5e8, "under load it bought 500");
    }

    #[test]
    fn a_name_with_spaces_and_brackets_is_read_over() {
        let dir = std::env::temp_dir().join(format!("starved-{}", std::process::id()));
        let shell = "7 (s h) x) S 1 2 3 4 5 6 7 8 9 10 100 200 30 40 0";
        let own = "8 (perf) R 1 2 3 4 5 6 7 8 9 10 50 25 9 9 0";
        std::fs::write(&dir, format!("{shell}\n{own}\n")).unwrap();
        assert_eq!(cpu_seconds(&dir), Some((30.0 + 40.0 + 50.0 + 25.0) / TICKS));
        std::fs::remove_file(&dir).unwrap();
    }
}
