//! Numbers of TCP streams: `--streams auto` and fixed numbers, over the product's emulator, in
//! copies of one GiB. The measured time is that of the whole command, sampling included.

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
/// The fixed numbers compared with `auto`.
const FIXED: &[u32] = &[1, 2, 4, 8, 12, 16, 24, 32, 48, 64];
/// Suffix for an `auto` that may use the history of an earlier `auto`.
const HISTORY_SUFFIX: &str = "+history";
/// Timeout of a copy. The path needs at least 9 s, and a copy that takes this long is not the best.
const TIMEOUT: Duration = Duration::from_secs(16);

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

/// Size of each of two concurrent copies.
const BESIDE_MIB: u64 = 512;
/// The numbers of streams of two concurrent copies.
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

/// Measures `auto` and each number in turn, round by round; then concurrent copies.
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
            let auto = ["auto".to_owned(), format!("auto{HISTORY_SUFFIX}")].into_iter();
            let all = auto.chain(FIXED.iter().map(u32::to_string));
            for words in all.filter(|words| plan.wants_count(words)) {
                if words.ends_with(HISTORY_SUFFIX) {
                    runs.remember(case)?;
                }
                let run = runs.copies(case, &[&words], round);
                if let (Ok(run), "auto") = (&run, words.as_str()) {
                    chosen.push(run[0].max_streams);
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

/// Two concurrent copies: the duration of the slower, and the shares of the path.
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
                    let shown =
                        |run: &Run| format!("{:.1} s ({} streams)", run.seconds, run.max_streams);
                    let text = format!("{name}: {} and {}.", shown(&run[0]), shown(&run[1]));
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

/// Duration of one copy, and its maximum number of streams.
struct Run {
    seconds: f64,
    max_streams: u64,
}

/// The parameters of runs.
struct Runs<'a> {
    lab: &'a Lab,
    place: &'a Place,
    /// Number of runs in which the emulator did not keep up.
    doubtful: usize,
}

impl Runs<'_> {
    fn remark(&mut self, case: &Case, report: &mut Report) {
        if std::mem::take(&mut self.doubtful) > 0 {
            let text = "The emulator did not keep up in some of these runs.";
            report.remark(case.key, text.to_owned());
        }
    }

    /// One copy with `auto`, which writes its row to an empty history.
    fn remember(&mut self, case: &Case) -> Result<()> {
        let [_, (_, state)] = self.lab.environment();
        let _ = fs::remove_file(state.join("packtrain/history.db"));
        self.copies(case, &[&format!("auto{HISTORY_SUFFIX}")], 99).map(drop)
    }

    /// Concurrent copies over one path, one for each of these numbers of streams.
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
            // A round does not use the history of the one before, except with the suffix.
            let (history, streams) = match streams.strip_suffix(HISTORY_SUFFIX) {
                Some(streams) => ("", streams),
                None => ("--history none", *streams),
            };
            format!(
                "timeout {} {program} cp --json --progress none --accept-new-host --transport tcp \
                 --streams {streams} --tcp-cc {} {history} {} pt://{FAR}:7416/{index} \
                 > \"$OUT.{index}\" & ",
                TIMEOUT.as_secs(),
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
        let emulation = last_json(&run_for(&mut emulate, TIMEOUT * 2)?)?;
        self.doubtful += usize::from(emulation["ok"] == false);
        let read = |index: usize| {
            let text = fs::read_to_string(format!("{}.{index}", out.display()))?;
            let done = last_json(&text).context("slower than it may be, or it failed")?;
            let max_streams =
                done.pointer("/streams/most").and_then(Value::as_u64).unwrap_or_default();
            let seconds = number(&done, "/seconds")?;
            if done["ok"] != true {
                bail!("slower than {} s, or it failed", TIMEOUT.as_secs());
            }
            Ok(Run { seconds, max_streams })
        };
        (0..streams.len()).map(read).collect()
    }
}

/// A folder in memory if possible: the path is measured, not a disk.
pub(super) struct Place(pub(super) PathBuf);

impl Place {
    pub(super) fn new(lab: &Lab) -> Result<Self> {
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
