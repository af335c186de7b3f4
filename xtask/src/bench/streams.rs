//! How many TCP streams: `--streams auto` beside every fixed number, over the product's own
//! emulator, in one copy of one GiB each. What counts is the whole command, sampling included.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::Plan;
use super::file::make;
use super::lab::{Lab, last_json, run_for};
use super::raw::number;
use super::report::Report;
use super::wan::{FAR, quoted};
use crate::sh;

const MIB: u64 = 1024;
/// Fixed numbers beside which `auto` is measured.
const FIXED: &[u32] = &[1, 2, 4, 8, 12, 16, 24, 32, 48, 64];
/// What `auto` is that may use what an `auto` before it measured.
const AGAIN: &str = "+history";
/// The path needs 9 s at least: who needs so long is cut off, since it is not the best.
const PATIENCE: Duration = Duration::from_secs(16);

/// A path, with the key of its suite.
struct Case {
    key: &'static str,
    path: &'static [&'static str],
    shown: &'static str,
    cc: &'static str,
}

const CASES: &[Case] = &[
    Case {
        key: "streams, loss 1e-4, cubic",
        path: &["--rate", "1gbit", "--rtt", "100ms", "--loss", "1e-4"],
        shown: "1 Gbit/s, 100 ms, queue of 1 BDP, loss 1e-4 each way, cubic",
        cc: "cubic",
    },
    Case {
        key: "streams, loss 0, cubic",
        path: &["--rate", "1gbit", "--rtt", "100ms"],
        shown: "1 Gbit/s, 100 ms, queue of 1 BDP, no loss, cubic",
        cc: "cubic",
    },
    Case {
        key: "streams, loss 0, small buffers",
        path: &["--rate", "1gbit", "--rtt", "100ms", "--buffers", "system"],
        shown: "1 Gbit/s, 100 ms, queue of 1 BDP, no loss, cubic, this system's own TCP buffers",
        cc: "cubic",
    },
    Case {
        key: "streams, loss 1e-4, bbr",
        path: &["--rate", "1gbit", "--rtt", "100ms", "--loss", "1e-4"],
        shown: "1 Gbit/s, 100 ms, queue of 1 BDP, loss 1e-4 each way, bbr",
        cc: "bbr",
    },
];

/// Two copies beside each other move this much each.
const BESIDE_MIB: u64 = 512;
/// And their numbers of streams.
const BESIDE: &[(&str, &str)] = &[("auto", "auto"), ("4", "4"), ("24", "24"), ("auto", "24")];
const BESIDE_CASES: &[Case] = &[
    Case {
        key: "streams beside, loss 0",
        path: &["--rate", "1gbit", "--rtt", "100ms"],
        shown: "1 Gbit/s, 100 ms, queue of 1 BDP, no loss, cubic",
        cc: "cubic",
    },
    Case {
        key: "streams beside, loss 1e-4",
        path: &["--rate", "1gbit", "--rtt", "100ms", "--loss", "1e-4"],
        shown: "1 Gbit/s, 100 ms, queue of 1 BDP, loss 1e-4 each way, cubic",
        cc: "cubic",
    },
];

/// `auto` and each number in turn, round by round; then copies beside each other.
pub(super) fn run(lab: &Lab, plan: &Plan, report: &mut Report) -> Result<()> {
    let place = Place::new(lab)?;
    let mut runs = Runs { lab, place: &place, doubtful: 0 };
    alone(&mut runs, plan, report)?;
    beside(&mut runs, plan, report)
}

fn alone(runs: &mut Runs<'_>, plan: &Plan, report: &mut Report) -> Result<()> {
    let cases: Vec<_> = CASES.iter().filter(|case| plan.wants_case(case.key)).collect();
    let Some(first) = cases.first() else { return Ok(()) };
    make(&runs.place.0.join("big"), MIB)?;
    let mut counts: Vec<(&Case, Vec<u64>)> = cases.iter().map(|case| (*case, vec![])).collect();
    for case in &cases {
        let title = format!(
            "One GiB by TCP streams, memory to memory, the whole command: {}, tcp_wmem {}, \
             tcp_rmem {}",
            case.shown,
            sysctl("tcp_wmem"),
            sysctl("tcp_rmem")
        );
        report.suite(case.key, &title, "s", false);
    }
    for round in 0..plan.runs {
        for (case, chosen) in &mut counts {
            let auto = ["auto".to_owned(), format!("auto{AGAIN}")].into_iter();
            let all = auto.chain(FIXED.iter().map(u32::to_string));
            for words in all.filter(|words| plan.wants_count(words)) {
                if words.ends_with(AGAIN) {
                    runs.remember(case)?;
                }
                let run = runs.copies(case, &[&words], round);
                if let (Ok(run), "auto") = (&run, words.as_str()) {
                    chosen.push(run[0].most);
                }
                let name = format!("--streams {words}");
                report.add(case.key, &name, round, run.map(|run| run[0].seconds));
            }
        }
    }
    for (case, chosen) in &counts {
        let list: Vec<String> = chosen.iter().map(u64::to_string).collect();
        report.remark(case.key, format!("auto had at most {} streams.", list.join(", ")));
    }
    runs.remark(first, report);
    Ok(())
}

/// Two copies at once: what the slower takes, and how the path is shared.
fn beside(runs: &mut Runs<'_>, plan: &Plan, report: &mut Report) -> Result<()> {
    let cases: Vec<_> = BESIDE_CASES.iter().filter(|case| plan.wants_case(case.key)).collect();
    let Some(first) = cases.first() else { return Ok(()) };
    make(&runs.place.0.join("big"), BESIDE_MIB)?;
    for case in &cases {
        let title = format!(
            "Two copies of {BESIDE_MIB} MiB by TCP streams beside each other, the slower one: {}",
            case.shown
        );
        report.suite(case.key, &title, "s", false);
    }
    for round in 0..plan.runs {
        for case in &cases {
            for (one, other) in BESIDE {
                let name = format!("{one} beside {other}");
                if !plan.wants_count(one) || !plan.wants(&name) {
                    continue;
                }
                let run = runs.copies(case, &[one, other], round);
                if let Ok(run) = &run {
                    let told = |run: &Run| format!("{:.1} s ({} streams)", run.seconds, run.most);
                    let text = format!("{name}: {} and {}.", told(&run[0]), told(&run[1]));
                    report.remark(case.key, text);
                }
                let slower = run.map(|run| run[0].seconds.max(run[1].seconds));
                report.add(case.key, &name, round, slower);
            }
        }
    }
    runs.remark(first, report);
    Ok(())
}

/// What one copy took, and how many streams it had at most.
struct Run {
    seconds: f64,
    most: u64,
}

/// What runs are made of.
struct Runs<'a> {
    lab: &'a Lab,
    place: &'a Place,
    /// In how many of them the emulator did not keep up.
    doubtful: usize,
}

impl Runs<'_> {
    fn remark(&mut self, case: &Case, report: &mut Report) {
        if std::mem::take(&mut self.doubtful) > 0 {
            let text = "The emulator did not keep up in some of these runs.";
            report.remark(case.key, text.to_owned());
        }
    }

    /// One copy by `auto`, that leaves its row in an empty history.
    fn remember(&mut self, case: &Case) -> Result<()> {
        let [_, (_, state)] = self.lab.environment();
        let _ = fs::remove_file(state.join("packtrain/history.db"));
        self.copies(case, &[&format!("auto{AGAIN}")], 99).map(drop)
    }

    /// A copy for each of these numbers of streams, all at once, over one path.
    fn copies(&mut self, case: &Case, streams: &[&str], round: usize) -> Result<Vec<Run>> {
        let out = self.lab.fresh("streams")?.join("out");
        let target = self.place.0.join("target");
        let _ = fs::remove_dir_all(&target);
        fs::create_dir_all(&target)?;
        let program = quoted(&self.lab.packtrain);
        let far = format!(
            "{program} serve --listen {FAR}:7416 --root {} --authorized-keys \"$OUT.keys\"",
            quoted(&target)
        );
        let copy = |(index, streams): (usize, &&str)| {
            // What the round before measured is not for this one, unless that is the question.
            let (history, streams) = match streams.strip_suffix(AGAIN) {
                Some(streams) => ("", streams),
                None => ("--history none", *streams),
            };
            format!(
                "timeout {} {program} cp --json --progress none --accept-new-host --transport tcp \
                 --streams {streams} --tcp-cc {} {history} {} pt://{FAR}:7416/{index} \
                 > \"$OUT.{index}\" & ",
                PATIENCE.as_secs(),
                case.cc,
                quoted(&self.place.0.join("big")),
            )
        };
        let copies: String = streams.iter().enumerate().map(copy).collect();
        let near = format!("sleep 0.5; {copies} wait");
        let key = format!("{program} key show > \"$OUT.keys\"");
        let mut show = sh::command("sh", ["-c", &key]);
        sh::capture(show.env("OUT", &out).envs(self.lab.environment()))?;
        let seed = (round + 1).to_string();
        let mut emulate = sh::command(&self.lab.packtrain.to_string_lossy(), ["emulate"]);
        emulate.args(case.path).args(["--seed", &seed, "--best-effort", "--json"]);
        emulate.args(["--far", &far, "--", "sh", "-c", &near]);
        emulate.env("OUT", &out).envs(self.lab.environment());
        let emulation = last_json(&run_for(&mut emulate, PATIENCE * 2)?)?;
        self.doubtful += usize::from(emulation["ok"] == false);
        let read = |index: usize| {
            let text = fs::read_to_string(format!("{}.{index}", out.display()))?;
            let done = last_json(&text).context("slower than it may be, or it failed")?;
            let most = done.pointer("/streams/most").and_then(Value::as_u64).unwrap_or_default();
            let seconds = number(&done, "/seconds")?;
            if done["ok"] != true {
                bail!("slower than {} s, or it failed", PATIENCE.as_secs());
            }
            Ok(Run { seconds, most })
        };
        (0..streams.len()).map(read).collect()
    }
}

/// A folder in memory where there is one: what counts is the path, not a disk.
struct Place(PathBuf);

impl Place {
    fn new(lab: &Lab) -> Result<Self> {
        let memory = Path::new("/dev/shm");
        let name = format!("packtrain-bench-{}", std::process::id());
        let place = if memory.is_dir() { memory.join(name) } else { lab.fresh("streams-files")? };
        fs::create_dir_all(&place)?;
        Ok(Self(place))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn sysctl(name: &str) -> String {
    let text = fs::read_to_string(format!("/proc/sys/net/ipv4/{name}")).unwrap_or_default();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
