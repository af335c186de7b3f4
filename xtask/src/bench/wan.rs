//! A long, fast path with random loss: UDT on both wire formats, the stock library and the kernel,
//! memory to memory, through the product's emulator.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::Plan;
use super::lab::{Lab, last_json, run_for};
use super::machine::{RAISED, SocketLimits, rmem_max};
use super::raw::number;
use super::report::Report;
use crate::sh;

/// The path: 1 Gbit/s, intercontinental, with a queue of one bandwidth-delay product.
const PATH: &[&str] = &["--rate", "1gbit", "--rtt", "100ms", "--queue", "1bdp"];
const PATH_SHOWN: &str = "1 Gbit/s, 100 ms, drop-tail queue of 1 BDP";
/// The address of the far host.
pub(super) const FAR: &str = "10.77.0.2";
/// Duration of each transfer, in seconds.
const SECONDS: u32 = 12;
/// Timeout of a run.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The loss rate, and the names of the suites with the default socket buffers and with larger ones.
const LOSSES: &[(&str, &str, &str)] = &[
    ("0", "wan, loss 0", "wan, loss 0, buffers raised"),
    ("1e-4", "wan, loss 1e-4", "wan, loss 1e-4, buffers raised"),
    ("1e-3", "wan, loss 1e-3", "wan, loss 1e-3, buffers raised"),
    ("1e-2", "wan, loss 1e-2", "wan, loss 1e-2, buffers raised"),
];

/// A program: its two command lines, and the position of its result. Both ends have `$OUT`.
pub(super) struct Contestant {
    pub(super) name: &'static str,
    pub(super) far: String,
    pub(super) near: String,
    pub(super) read: fn(&str) -> Result<f64>,
    /// The reported cause of losses, if the program classifies them.
    pub(super) reported_cause: fn(&str) -> Option<String>,
}

/// Runs every program once per round and loss rate.
pub(super) fn run(lab: &Lab, plan: &Plan, report: &mut Report) -> Result<()> {
    let mut contestants = contestants(lab)?;
    contestants.retain(|one| plan.wants(one.name));
    block(lab, plan, report, &contestants, false)?;
    if plan.keep_rmem {
        return Ok(());
    }
    let _limits = SocketLimits::set(RAISED)?;
    contestants.retain(|one| one.name.contains("udt") || one.name.contains("UDT"));
    block(lab, plan, report, &contestants, true)
}

fn block(
    lab: &Lab,
    plan: &Plan,
    report: &mut Report,
    contestants: &[Contestant],
    raised: bool,
) -> Result<()> {
    let key = |loss: &(&'static str, &'static str, &'static str)| match raised {
        true => loss.2,
        false => loss.1,
    };
    let why = if raised { ", raised for stock UDT4's sake" } else { "" };
    let losses: Vec<_> = LOSSES.iter().filter(|loss| plan.wants_loss(loss.0)).collect();
    for loss in &losses {
        let title = format!(
            "{PATH_SHOWN}, loss {} each way, {SECONDS} s, rmem_max {}{why}",
            loss.0,
            rmem_max()
        );
        report.suite(key(loss), &title, "Mbit/s", true);
    }
    let mut doubtful = 0;
    for round in 0..plan.runs {
        for loss in &losses {
            for one in contestants {
                let value = measure(lab, one, loss.0, round, &mut doubtful);
                report.add(key(loss), one.name, round, value.map(|bps| bps / 1e6));
            }
        }
    }
    if let Some(first) = losses.first().filter(|_| doubtful > 0) {
        let text = format!("The emulator did not keep up in {doubtful} of these runs.");
        report.remark(key(first), text);
    }
    Ok(())
}

fn contestants(lab: &Lab) -> Result<Vec<Contestant>> {
    let mut all = vec![
        packtrain(lab, "packtrain udt, udt:grid (encrypted)", "udt", "udt:grid", SECONDS),
        packtrain(lab, "packtrain udt4, udt:grid (clear)", "udt4", "udt:grid", SECONDS),
        packtrain(lab, "packtrain udt4, udt:udt4 (clear)", "udt4", "udt:udt4", SECONDS),
    ];
    match lab.udt() {
        Ok(program) => all.push(stock(&program, SECONDS)),
        Err(error) => eprintln!("*** no UDT4: {error:#} ***"),
    }
    all.push(packtrain(lab, "packtrain native (encrypted)", "native", "native", SECONDS));
    all.push(kernel("iperf3 cubic (clear)", "cubic", SECONDS));
    all.push(kernel("iperf3 bbr (clear)", "bbr", SECONDS));
    Ok(all)
}

/// `perf` of the product. The stock wire format has no keys and therefore no ticket.
pub(super) fn packtrain(
    lab: &Lab,
    name: &'static str,
    transport: &str,
    cc: &str,
    seconds: u32,
) -> Contestant {
    let program = quoted(&lab.packtrain);
    let at = format!("{FAR}:7411");
    let (serve, wait, ticket) = match transport {
        "udt4" => ("--transport udt4", "sleep 0.5", ""),
        _ => (
            "--ticket-file \"$OUT.ticket\"",
            "until test -s \"$OUT.ticket\"; do sleep 0.05; done",
            "--ticket \"@$OUT.ticket\"",
        ),
    };
    Contestant {
        name,
        far: format!("{program} perf server --listen {at} {serve}"),
        near: format!(
            "{wait}; {program} perf client {at} {ticket} --transport {transport} --cc {cc} \
             --seconds {seconds} --json > \"$OUT\""
        ),
        read: |text| number(&last_json(text)?, "/goodput_bps"),
        reported_cause: |text| verdict(&last_json(text).ok()?["loss_cause"]),
    }
}

/// The cause, the share of losses counted by the host, and the lost bytes by cause.
fn verdict(causes: &Value) -> Option<String> {
    let cause = causes["cause"].as_str()?;
    let share = causes["host_share"]
        .as_f64()
        .map_or_else(String::new, |share| format!(", the host counted {:.0} %", share * 100.0));
    let megabytes = |name| causes[name].as_f64().unwrap_or_default() / 1e6;
    Some(format!(
        "{cause}{share} ({:.1} MB at the host, {:.1} MB on the path)",
        megabytes("host"),
        megabytes("path")
    ))
}

/// The stock library. The result is the number of bytes received by its server, which it prints at
/// the end.
pub(super) fn stock(program: &Path, seconds: u32) -> Contestant {
    let program = quoted(program);
    Contestant {
        name: "stock UDT4 (clear)",
        far: format!("{program} server 7414 > \"$OUT\""),
        near: format!(
            "sleep 0.5; {program} client {FAR} 7414 {seconds} && \
             until test -s \"$OUT\"; do sleep 0.05; done"
        ),
        read: |text| number(&last_json(text)?, "/goodput_bps"),
        reported_cause: |_| None,
    }
}

/// The kernel's TCP. The system's default controller is set too: iperf3 selects the controller
/// after connecting, and a default of BBR leaves its pacing enabled.
pub(super) fn kernel(name: &'static str, controller: &str, seconds: u32) -> Contestant {
    Contestant {
        name,
        far: "iperf3 -s -1 -p 7412 > /dev/null".to_owned(),
        near: format!(
            "echo {controller} > /proc/sys/net/ipv4/tcp_congestion_control; \
             iperf3 -c {FAR} -p 7412 -C {controller} -J -t {seconds} > \"$OUT\""
        ),
        read: |text| number(&serde_json::from_str(text)?, "/end/sum_received/bits_per_second"),
        reported_cause: |_| None,
    }
}

/// One run, counted in `doubtful` if the emulator reports that it did not keep up.
fn measure(
    lab: &Lab,
    one: &Contestant,
    loss: &str,
    round: usize,
    doubtful: &mut usize,
) -> Result<f64> {
    let out = lab.fresh("wan")?.join("out");
    let seed = (round + 1).to_string();
    let mut emulate = sh::command(&lab.packtrain.to_string_lossy(), ["emulate"]);
    emulate.args(PATH).args(["--loss", loss, "--seed", &seed, "--best-effort", "--json"]);
    emulate.args(["--far", &one.far, "--", "sh", "-c", &one.near]);
    emulate.env("OUT", &out).envs(lab.environment());
    let text = run_for(&mut emulate, TIMEOUT)?;
    let emulation = last_json(&text)?;
    if emulation["command_exit_code"] != 0 {
        bail!("it failed with exit code {}", emulation["command_exit_code"]);
    }
    *doubtful += usize::from(emulation["ok"] == false);
    (one.read)(&std::fs::read_to_string(&out).context("it left no figure")?)
}

/// Quotes a path for a shell.
pub(super) fn quoted(path: &Path) -> String {
    format!("'{}'", path.to_string_lossy().replace('\'', "'\\''"))
}
