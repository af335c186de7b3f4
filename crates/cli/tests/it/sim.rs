//! `packtrain sim`.

use serde_json::Value;

use crate::common::{Home, code, done, stderr, stdout};

const SCENARIO: &str = r#"
name = "small"
title = "CUBIC and noise over 100 Mbit/s"
duration = "5s"
seed = 3

[[link]]
name = "wan"
from = "a"
to = "b"
rate = "100mbit"
rtt = "40ms"
queue = "1bdp"
loss = 1e-4

[[flow]]
name = "one"
from = "a"
to = "b"
cc = "cubic"

[[flow]]
name = "noise"
from = "a"
to = "b"
kind = "cross"
traffic = "poisson"
rate = "10mbit"
"#;

const SWEEP: &str = "\n[sweep]\nrepeat = 2\n\"link.wan.loss\" = [1e-4, 1e-3, 1e-2]\n";

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect("each line is JSON")).collect()
}

#[test]
fn the_last_line_has_hash_and_flows() {
    let home = Home::new();
    home.file("s.toml", SCENARIO.as_bytes());
    let run = |words: &[&str]| {
        let output = home.run(&[&["sim", "run", "s.toml", "--json"], words].concat());
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        done(&output)
    };
    let first = run(&[]);
    assert_eq!(first["seed"], 3);
    assert!(first["trace_hash"].as_str().is_some_and(|hash| !hash.is_empty()));
    let flow = &first["flows"][0];
    assert_eq!(flow["name"], "one");
    assert!(flow["goodput_bps"].as_u64().is_some_and(|bps| bps > 10_000_000), "{flow}");
    assert!(flow["retransmitted_bytes"].is_u64(), "{flow}");
    for name in ["queueing_delay_mean_ms", "queueing_delay_p99_ms"] {
        assert!(flow[name].is_f64(), "{name}: {flow}");
    }
    assert_eq!(run(&[])["trace_hash"], first["trace_hash"], "the same again");
    assert_eq!(run(&["--set", "train=1"])["trace_hash"], first["trace_hash"], "by packets");
    assert_ne!(run(&["--seed", "4"])["trace_hash"], first["trace_hash"], "another seed");
}

#[test]
fn a_run_for_people_with_plot_and_columns() {
    let home = Home::new();
    home.file("s.toml", SCENARIO.as_bytes());
    let words = ["sim", "run", "s.toml", "--plot", "p.svg", "--columns", "c.csv"];
    let output = home.run(&[&words[..], &["--curves", "k.csv"]].concat());
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert!(stdout(&output).starts_with("CUBIC and noise over 100 Mbit/s"), "{}", stdout(&output));
    let read = |name: &str| std::fs::read_to_string(home.path(name)).expect(name);
    assert!(read("p.svg").contains("congestion window"));
    assert_eq!(read("c.csv").lines().count(), 3);
    assert!(read("k.csv").lines().count() > 300);
    let output = home.run(&["sim", "run", "s.toml", "--plot", "p.pdf"]);
    assert_eq!(code(&output), 2);
    assert!(stderr(&output).contains("ends in .svg or .png"), "{}", stderr(&output));
}

#[test]
fn a_sweep_tells_every_run_in_order_whatever_the_threads() {
    let home = Home::new();
    home.file("s.toml", format!("{SCENARIO}{SWEEP}").as_bytes());
    let run = |words: &[&str]| {
        let output = home.run(&[&["sim", "run", "s.toml", "--json"], words].concat());
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        stdout(&output)
    };
    let all = run(&["--jobs", "3", "--plot", "p.png", "--columns", "c.csv"]);
    assert_eq!(all, run(&["--jobs", "1"]));
    let (repeats, rows): (Vec<_>, Vec<_>) =
        lines(&all).into_iter().partition(|row| row["event"] == "repeats");
    assert_eq!(rows.len(), 7);
    assert_eq!(rows[6]["event"], "done");
    assert_eq!(rows[6]["runs"], 6);
    assert_eq!(rows[6]["flows"].as_array().map(Vec::len), Some(12));
    // Two seeds of each of three values: the median is half-way.
    assert_eq!(repeats.len(), 3);
    assert_eq!((&repeats[2]["first_run"], &repeats[2]["runs"]), (&4.into(), &2.into()));
    let goodput = |run: usize| rows[run]["flows"][0]["goodput_bps"].as_f64().expect("a number");
    let median = repeats[2]["flows"][0]["goodput_bps"]["median"].as_f64().expect("a number");
    assert!((median - f64::midpoint(goodput(4), goodput(5))).abs() < 1.0, "{median}");
    assert_eq!((&rows[1]["seed"], &rows[2]["seed"]), (&4.into(), &3.into()));
    assert_eq!(rows[5]["settings"][0]["value"], "1e-2");
    assert_eq!(std::fs::read(home.path("p.png")).expect("written")[..4], *b"\x89PNG");
    let columns = std::fs::read_to_string(home.path("c.csv")).expect("written");
    assert!(columns.starts_with("run,seed,link.wan.loss,flow,cc,goodput_bps,"), "{columns}");
    assert_eq!(columns.lines().count(), 13);
    // The parts of a job array together are the whole sweep.
    let mut parts = Vec::new();
    for task in ["0", "1", "2", "3"] {
        parts.extend(lines(&run(&["--task", task, "--tasks", "4"])));
    }
    parts.retain(|row| row["event"] == "run");
    assert_eq!(parts, rows[..6]);
    let output = home.run(&["sim", "run", "s.toml", "--task", "6"]);
    assert_eq!(code(&output), 2);
    assert!(stderr(&output).contains("write 0 to 5"), "{}", stderr(&output));
}

#[test]
fn an_array_for_slurm_of_any_size() {
    let home = Home::new();
    let big = "\n[sweep]\nrepeat = 1000000\n\"link.wan.loss\" = [1e-4, 1e-3, 1e-2]\n";
    home.file("it's.toml", format!("{SCENARIO}{big}").as_bytes());
    let words = ["sim", "run", "it's.toml", "--sbatch", "--set", "duration=1s"];
    let output = home.run(&words);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let script = stdout(&output);
    for part in [
        "#!/bin/bash\n",
        "#SBATCH --array=0-999\n",
        "3000000 runs, at most 3000 for each of 1000 tasks",
        "--task \"$SLURM_ARRAY_TASK_ID\" --tasks 1000",
        "--set duration=1s",
    ] {
        assert!(script.contains(part), "{part}: {script}");
    }
    // The script is valid shell, and its first task works.
    let small = home.run(&["sim", "run", "it's.toml", "--sbatch", "--set", "sweep.repeat=1"]);
    home.file("job.sh", &small.stdout);
    let mut shell = std::process::Command::new("bash");
    let ran =
        shell.arg(home.path("job.sh")).current_dir(home.path("")).env("SLURM_ARRAY_TASK_ID", "2");
    let ran = ran.output().expect("bash is there");
    assert!(ran.status.success(), "{}", stderr(&ran));
    let rows = std::fs::read_to_string(home.path("it-s-results/000000002.jsonl")).expect("written");
    assert_eq!(lines(&rows)[0]["run"], 2, "{rows}");
}

#[test]
fn mistakes_name_file_line_and_field() {
    let home = Home::new();
    for (from, to, says) in [
        ("rate = \"100mbit\"", "rate = 100", "s.toml:11:8: link.wan.rate: `100` needs a unit"),
        (
            "queue = \"1bdp\"",
            "queue = \"0 packets\"",
            "s.toml:13:9: link.wan.queue: holds no packet",
        ),
        ("loss = 1e-4", "los = 1e-4", "s.toml:14:1: link.wan.los: there is no such key"),
        ("to = \"b\"\ncc", "to = \"c\"\ncc", "s.toml:19:6: flow.one.to: no link has a node `c`"),
        ("cc = \"cubic\"", "cc = \"cubik\"", "did you mean `cubic`?"),
    ] {
        home.file("s.toml", SCENARIO.replacen(from, to, 1).as_bytes());
        let output = home.run(&["sim", "run", "s.toml"]);
        assert_eq!(code(&output), 2, "{to}");
        assert!(stderr(&output).contains(says), "{to}: {}", stderr(&output));
    }
    let output = home.run(&["sim", "run", "nowhere.toml", "--json"]);
    assert_eq!(code(&output), 2);
    assert_eq!(done(&output)["ok"], false);
    let output = home.run(&["sim", "reproduce", "nothing"]);
    assert_eq!(code(&output), 2);
    assert!(stderr(&output).contains("there is no experiment `nothing`"), "{}", stderr(&output));
}

#[test]
fn experiments_are_known_everywhere() {
    let home = Home::new();
    let output = home.run(&["sim", "list", "--json"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert!(lines(&stdout(&output)).iter().any(|row| row["name"] == "mathis"));
}

#[test]
fn an_experiment_that_differs_is_told_by_the_exit_code() {
    let home = Home::new();
    home.file("e/scenario.toml", SCENARIO.as_bytes());
    let head = "title = \"t\"\n[[row]]\nkey = \"rate\"\nvalue = \"one.goodput_bps / 1e6\"\n";
    home.file("e/experiment.toml", head.as_bytes());
    for (tolerance, ok, exit) in [("100", true, 0), ("1e-9", false, 13)] {
        let paper = format!("key,value,tolerance,source\nrate,50,{tolerance},nobody\n");
        home.file("e/paper.csv", paper.as_bytes());
        let output = home.run(&["sim", "reproduce", "e", "--json", "--out", "e"]);
        assert_eq!(code(&output), exit, "{}", stderr(&output));
        let last = lines(&stdout(&output)).pop().expect("a line");
        assert_eq!((&last["event"], &last["ok"]), (&"reproduced".into(), &ok.into()));
        let row = &last["rows"][0];
        assert_eq!((&row["key"], &row["paper"]), (&"rate".into(), &50.0.into()));
        assert!(row["ours"].is_f64() && row["tolerance"].is_f64(), "{row}");
    }
    assert!(home.path("e/plot.svg").is_file() && home.path("e/expected.csv").is_file());
}

#[test]
fn a_number_that_is_not_the_expected_one_is_listed_and_exits_nonzero() {
    let home = Home::new();
    home.file("e/scenario.toml", SCENARIO.as_bytes());
    let head = "title = \"t\"\n[[row]]\nkey = \"rate\"\nvalue = \"one.goodput_bps / 1e6\"\n";
    home.file("e/experiment.toml", head.as_bytes());
    home.file("e/paper.csv", b"key,value,tolerance,source\nrate,50,100,nobody\n");
    assert_eq!(code(&home.run(&["sim", "reproduce", "e", "--out", "e"])), 0);
    let check = ["sim", "reproduce", "e", "--check", "--json"];
    let output = home.run(&check);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let last = lines(&stdout(&output)).pop().expect("a line");
    assert_eq!((&last["event"], &last["compared"]), (&"checked".into(), &1.into()));
    home.file("e/expected.csv", b"key,ours,seed\nrate,1.5,1\n");
    let output = home.run(&check);
    assert_eq!(code(&output), 13, "{}", stderr(&output));
    let last = lines(&stdout(&output)).pop().expect("a line");
    assert_eq!((&last["ok"], &last["changed"][0]["key"]), (&false.into(), &"rate".into()));
    assert_eq!(last["changed"][0]["expected"], 1.5);
    assert_eq!(code(&home.run(&["sim", "reproduce", "e", "--seeds", "3", "--out", "e"])), 0);
    let spread = std::fs::read_to_string(home.path("e/spread.csv")).expect("it was written");
    let row: Vec<&str> = spread.lines().nth(1).unwrap_or_default().split(',').collect();
    assert_eq!((row[0], row[1]), ("rate", "3"), "{spread}");
    let number = |at: usize| row[at].parse::<f64>().expect("a number");
    assert!(0.0 < number(3) && number(3) <= number(2) && number(2) <= number(4), "{spread}");
    // A folder that is not simulated says why.
    home.file("n/experiment.toml", b"title = \"t\"\nnot_simulated = \"it was measured\"\n");
    let output = home.run(&["sim", "reproduce", "n"]);
    assert_eq!(code(&output), 2);
    assert!(stderr(&output).contains("not simulated: it was measured"), "{}", stderr(&output));
}

#[test]
fn signatures_are_made_from_a_seed_and_classified() {
    let home = Home::new();
    let make = |out: &str, jobs: &str| {
        let words = ["sim", "signatures", "--families", "net-self,cpu-joined", "--per-family", "2"];
        let more = ["--packets", "6104", "--seed", "7", "--jobs", jobs, "--out", out];
        home.run(&[&words[..], &more[..]].concat())
    };
    let output = make("one.jsonl", "1");
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert_eq!(code(&make("two.jsonl", "2")), 0);
    let read = |name| std::fs::read_to_string(home.path(name)).expect("it was written");
    assert_eq!(read("one.jsonl"), read("two.jsonl"));
    let records = lines(&read("one.jsonl"));
    let causes: Vec<_> = records.iter().map(|record| record["cause"].clone()).collect();
    assert_eq!(causes, ["network", "network", "cpu", "cpu"]);
    assert_eq!(code(&make("one.jsonl.gz", "1")), 0);
    let output = home.run(&["loss", "classify", "one.jsonl.gz", "--json"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let verdicts = lines(&stdout(&output));
    assert_eq!(verdicts.iter().filter(|line| line.get("paper").is_some()).count(), 4);

    let output = home.run(&["sim", "signatures", "--families", "net-self,nothing"]);
    assert_eq!(code(&output), 2);
    assert!(stderr(&output).contains("no model is called `nothing`"), "{}", stderr(&output));
    let output = home.run(&["sim", "signatures", "--list"]);
    assert!(stdout(&output).contains("hybrid-bursts"), "{}", stdout(&output));
}
