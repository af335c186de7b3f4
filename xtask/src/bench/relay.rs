//! The forwarding rate of a TCP relay: three hosts in a row, with sender, relay and receiver on the
//! same processors. The same program feeds every relay.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use super::Plan;
use super::lab::{Background, Lab, last_json, run_for};
use super::netns::Chain;
use super::raw::number;
use super::report::Report;
use crate::sh;

const RELAY_PORT: u16 = 7879;
const SINK_PORT: u16 = 9000;
/// The numbers of concurrent sessions.
const SESSIONS: &[(u32, &str)] =
    &[(1, "relay, 1"), (4, "relay, 4"), (16, "relay, 16"), (200, "relay, 200")];

/// A relay and its command.
struct Relay {
    name: &'static str,
    /// Maximum sessions that are measured.
    max_sessions: u32,
    /// Whether sessions start with a header.
    header: bool,
    start: Box<dyn Fn(&Chain) -> Command>,
}

/// Runs every relay once per round, for each number of sessions.
pub(super) fn run(lab: &Lab, plan: &Plan, report: &mut Report) -> Result<()> {
    let generator = generator()?;
    let dir = lab.fresh("relay")?;
    let chain = Chain::new()?;
    let key = sh::capture(
        sh::command(&lab.packtrain.to_string_lossy(), ["key", "show"]).envs(lab.environment()),
    )?;
    fs::write(dir.join("keys"), key)?;
    let relays = relays(lab, &dir)?;
    let relays: Vec<&Relay> = relays.iter().filter(|relay| plan.wants(relay.name)).collect();
    let _sink = Background::start(
        chain.receiver(&generator).args(["take", &format!("0.0.0.0:{SINK_PORT}")]),
    )?;
    for (n, suite) in SESSIONS {
        let title = format!(
            "{n} TCP {} over a relay, three namespaces in a row joined by veth, MTU 1500, bbr, until the last byte is taken",
            if *n == 1 { "session" } else { "sessions" }
        );
        report.suite(suite, &title, "Gbit/s", true);
    }
    let mut remarks = Vec::new();
    for round in plan.rounds() {
        for (n, suite) in SESSIONS.iter().filter(|(n, _)| plan.wants_count(&n.to_string())) {
            for relay in relays.iter().filter(|relay| *n <= relay.max_sessions) {
                let run = one(lab, &chain, &generator, relay, *n, plan.seconds);
                if let Ok(run) = &run {
                    remarks.push((*suite, format!("{}: {}.", relay.name, run.summary)));
                }
                report.add(suite, relay.name, round, run.map(|run| run.goodput / 1e9));
            }
        }
    }
    for (suite, text) in remarks {
        report.remark(suite, text);
    }
    Ok(())
}

/// The program that sends and receives, built on first use.
fn generator() -> Result<String> {
    let mut build = sh::cargo();
    build.args(["build", "--release", "--locked", "-p", "packtrain-depot", "--example", "session"]);
    sh::run(&mut build)?;
    let path = sh::target_dir().join("release/examples/session");
    Ok(path.canonicalize()?.to_string_lossy().into_owned())
}

fn relays(lab: &Lab, dir: &Path) -> Result<Vec<Relay>> {
    let depot = |name, more: &'static [&'static str]| {
        let (program, keys) = (lab.packtrain.to_string_lossy().into_owned(), dir.join("keys"));
        let environment = lab.environment();
        let start = move |chain: &Chain| {
            let mut depot = chain.relay(&program);
            depot.args(["depot", "--listen", &format!("0.0.0.0:{RELAY_PORT}")]);
            depot.args(["--allow", Chain::RECEIVERS, "--key-sessions", "256"]);
            depot.arg("--authorized-keys").arg(&keys).args(more).envs(environment.clone());
            depot
        };
        Relay { name, max_sessions: u32::MAX, header: true, start: Box::new(start) }
    };
    let mut relays =
        vec![depot("packtrain depot", &[]), depot("packtrain depot --copy", &["--copy"])];
    for (name, option) in [("haproxy, splice", "  option splice-auto\n"), ("haproxy", "")] {
        let file = dir.join(format!("{}.cfg", name.replace(", ", "-")));
        fs::write(&file, haproxy(option))?;
        relays.push(peer(name, u32::MAX, move |chain| {
            let mut command = chain.relay("haproxy");
            command.args(["-db", "-q", "-f"]).arg(&file);
            command
        }));
    }
    relays.push(peer("socat", 16, |chain| {
        let mut command = chain.relay("socat");
        command.args(["-b", "262144", &format!("TCP-LISTEN:{RELAY_PORT},fork,reuseaddr")]);
        command.arg(format!("TCP:{}:{SINK_PORT}", Chain::RECEIVER));
        command
    }));
    Ok(relays)
}

fn peer(
    name: &'static str,
    max_sessions: u32,
    start: impl Fn(&Chain) -> Command + 'static,
) -> Relay {
    Relay { name, max_sessions, header: false, start: Box::new(start) }
}

fn haproxy(option: &str) -> String {
    format!(
        "global\n  maxconn 1000\n  nbthread 2\ndefaults\n  mode tcp\n{option}  timeout connect 5s\n  \
         timeout client 60s\n  timeout server 60s\nlisten relay\n  bind :{RELAY_PORT}\n  server sink \
         {}:{SINK_PORT}\n",
        Chain::RECEIVER
    )
}

struct Run {
    goodput: f64,
    summary: String,
}

fn one(
    lab: &Lab,
    chain: &Chain,
    generator: &str,
    relay: &Relay,
    n: u32,
    seconds: u32,
) -> Result<Run> {
    let running = Background::start(&mut (relay.start)(chain))?;
    std::thread::sleep(Duration::from_secs(1));
    let key: PathBuf = lab.dir.join("config/packtrain/key");
    let key = if relay.header { key.to_string_lossy().into_owned() } else { "-".to_owned() };
    let mut give = chain.sender(generator);
    give.args(["give", &key, &format!("{}:{RELAY_PORT}", Chain::RELAY)]);
    give.args([&format!("{}:{SINK_PORT}", Chain::RECEIVER), &seconds.to_string()]);
    give.arg(n.to_string());
    let (busy, _) = running.used()?;
    let result = last_json(&run_for(&mut give, Duration::from_secs(u64::from(seconds) + 60))?)?;
    let (after, peak) = running.used()?;
    let seconds_taken = number(&result, "/seconds")?;
    let each = result.pointer("/each").context("no shares in the output")?;
    let summary = format!(
        "{:.2} processors, {:.0} MiB at most, shares from {:.2} to {:.2} of the median",
        (after - busy).as_secs_f64() / seconds_taken,
        peak as f64 / f64::from(1 << 20),
        number(each, "/0")? / number(each, "/1")?,
        number(each, "/2")? / number(each, "/1")?,
    );
    Ok(Run { goodput: number(&result, "/goodput_bps")?, summary })
}
