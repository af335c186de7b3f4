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

/// `auto` and each number in turn, round by round.
pub(super) fn run(lab: &Lab, plan: &Plan, report: &mut Report) -> Result<()> {
    let place = Place::new(lab)?;
    let source = place.0.join("big");
    make(&source, MIB)?;
    let cases: Vec<_> = CASES.iter().filter(|case| plan.wants_case(case.key)).collect();
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
    let mut doubtful = 0;
    for round in 0..plan.runs {
        for (case, chosen) in &mut counts {
            let names = FIXED.iter().map(|n| (n.to_string(), format!("--streams {n}")));
            let auto = ("auto".to_owned(), "--streams auto".to_owned());
            for (words, name) in std::iter::once(auto).chain(names) {
                if !plan.wants(&name) {
                    continue;
                }
                let run = copy(lab, &place, case, &words, round, &mut doubtful);
                if let (Ok(run), "auto") = (&run, words.as_str()) {
                    chosen.push(run.most);
                }
                report.add(case.key, &name, round, run.map(|run| run.seconds));
            }
        }
    }
    for (case, chosen) in &counts {
        let list: Vec<String> = chosen.iter().map(u64::to_string).collect();
        report.remark(case.key, format!("auto had at most {} streams.", list.join(", ")));
    }
    if let Some(case) = cases.first().filter(|_| doubtful > 0) {
        let text = format!("The emulator did not keep up in {doubtful} of these runs.");
        report.remark(case.key, text);
    }
    Ok(())
}

/// What one copy took, and how many streams it had at most.
struct Run {
    seconds: f64,
    most: u64,
}

fn copy(
    lab: &Lab,
    place: &Place,
    case: &Case,
    streams: &str,
    round: usize,
    doubtful: &mut usize,
) -> Result<Run> {
    let out = lab.fresh("streams")?.join("out");
    let target = place.0.join("target");
    let _ = fs::remove_dir_all(&target);
    fs::create_dir_all(&target)?;
    let program = quoted(&lab.packtrain);
    let far = format!(
        "{program} serve --listen {FAR}:7416 --root {} --ticket-file \"$OUT.ticket\"",
        quoted(&target)
    );
    let near = format!(
        "until test -s \"$OUT.ticket\"; do sleep 0.05; done; \
         timeout {} {program} cp --json --progress none --transport tcp --streams {streams} \
         --tcp-cc {} --ticket \"@$OUT.ticket\" {} pt://{FAR}:7416/ > \"$OUT\"",
        PATIENCE.as_secs(),
        case.cc,
        quoted(&place.0.join("big")),
    );
    let seed = (round + 1).to_string();
    let mut emulate = sh::command(&lab.packtrain.to_string_lossy(), ["emulate"]);
    emulate.args(case.path).args(["--seed", &seed, "--best-effort", "--json"]);
    emulate.args(["--far", &far, "--", "sh", "-c", &near]);
    emulate.env("OUT", &out).envs(lab.environment());
    let emulation = last_json(&run_for(&mut emulate, PATIENCE * 2)?)?;
    match emulation["command_exit_code"].as_u64() {
        Some(0) => {}
        Some(124 | 143) => bail!("slower than {} s", PATIENCE.as_secs()),
        code => bail!("it failed with exit code {code:?}"),
    }
    *doubtful += usize::from(emulation["ok"] == false);
    let done: Value = last_json(&fs::read_to_string(&out).context("it left no figure")?)?;
    let most = done.pointer("/streams/most").and_then(Value::as_u64).unwrap_or_default();
    Ok(Run { seconds: number(&done, "/seconds")?, most })
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
