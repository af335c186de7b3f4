//! Memory-to-memory transfers between two namespaces: the throughput of the transports alone.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use super::Plan;
use super::lab::{Background, Lab, last_json, run_for, wait_for_file};
use super::machine::{RAISED, SocketLimits};
use super::netns::Pair;
use super::report::Report;

const SUITE: &str = "raw";
const RAISED_SUITE: &str = "raw, buffers raised";

/// A program and the measurement of its goodput in bit/s.
type Contestant<'a> = (&'a str, Box<dyn Fn() -> Result<f64> + 'a>);

/// Runs every program once per round.
pub(super) fn run(lab: &Lab, plan: &Plan, report: &mut Report) -> Result<()> {
    report.suite(
        SUITE,
        "Memory to memory, two namespaces joined by veth, MTU 1500, one flow",
        "Gbit/s",
        true,
    );
    let pair = &Pair::new()?;
    let seconds = plan.seconds;
    let baseline = lab.of_baseline();
    let mut contestants: Vec<Contestant<'_>> = vec![
        (
            "packtrain native (encrypted)",
            Box::new(|| packtrain(lab, pair, "native", None, seconds)),
        ),
        (
            "packtrain udt, udt:grid (encrypted)",
            Box::new(|| packtrain(lab, pair, "udt", Some("udt:grid"), seconds)),
        ),
        (
            "packtrain udt4, udt:grid (clear)",
            Box::new(|| packtrain(lab, pair, "udt4", Some("udt:grid"), seconds)),
        ),
        (
            "packtrain udt4, udt:udt4 (clear)",
            Box::new(|| packtrain(lab, pair, "udt4", Some("udt:udt4"), seconds)),
        ),
        ("packtrain tcp (TLS 1.3)", Box::new(|| packtrain(lab, pair, "tcp", None, seconds))),
        ("iperf3 bbr (clear)", Box::new(|| iperf(pair, "bbr", seconds))),
        ("iperf3 cubic (clear)", Box::new(|| iperf(pair, "cubic", seconds))),
    ];
    if let Some(baseline) = &baseline {
        let native = Box::new(move || packtrain(baseline, pair, "native", None, seconds));
        contestants.insert(1, ("baseline: packtrain native (encrypted)", native));
        let tcp = Box::new(move || packtrain(baseline, pair, "tcp", None, seconds));
        contestants.push(("baseline: packtrain tcp (TLS 1.3)", tcp));
    }
    match lab.quinn() {
        Ok(program) => contestants
            .push(("quinn cubic (encrypted)", Box::new(move || quinn(&program, pair, seconds)))),
        Err(error) => eprintln!("*** no quinn: {error:#} ***"),
    }
    match lab.udt() {
        Ok(program) => {
            contestants.push(("stock UDT4 (clear)", Box::new(move || udt(&program, pair, seconds))))
        }
        Err(error) => eprintln!("*** no UDT4: {error:#} ***"),
    }
    contestants.retain(|(name, _)| plan.wants(name));
    for round in 0..plan.runs {
        for (name, measure) in &contestants {
            report.add(SUITE, name, round, measure().map(|bps| bps / 1e9));
        }
    }
    if plan.keep_rmem {
        return Ok(());
    }
    // Stock UDT4 sends one datagram per call and loses packets with small buffers. Comparisons with
    // it usually raise the limit, so both limits are shown.
    let _limits = SocketLimits::set(RAISED)?;
    report.suite(
        RAISED_SUITE,
        &format!("The same with rmem_max and wmem_max raised to {RAISED} for stock UDT4's sake"),
        "Gbit/s",
        true,
    );
    contestants.retain(|(name, _)| name.contains("udt") || name.contains("UDT"));
    for round in 0..plan.runs {
        for (name, measure) in &contestants {
            report.add(RAISED_SUITE, name, round, measure().map(|bps| bps / 1e9));
        }
    }
    Ok(())
}

/// One `perf` of the product over `transport`, with the controller `cc` or the default.
pub(super) fn packtrain(
    lab: &Lab,
    pair: &Pair,
    transport: &str,
    cc: Option<&str>,
    seconds: u32,
) -> Result<f64> {
    let at = format!("{}:7411", Pair::SERVER);
    let ticket = lab.fresh("perf")?.join("ticket");
    let program = lab.packtrain.to_string_lossy();
    let mut server = pair.server(&program);
    server.args(["perf", "server", "--listen", &at]);
    let mut client = pair.client(&program);
    client.args(["perf", "client", &at, "--transport", transport, "--json"]);
    client.args(["--seconds", &seconds.to_string()]);
    client.args(cc.iter().flat_map(|cc| ["--cc", cc]));
    // The stock wire has no keys.
    let has_keys = transport != "udt4";
    if has_keys {
        server.arg("--ticket-file").arg(&ticket);
        client.args(["--ticket", &format!("@{}", ticket.display())]);
    } else {
        server.args(["--transport", transport]);
    }
    let _server = Background::start(server.envs(lab.environment()))?;
    if has_keys {
        wait_for_file(&ticket)?
    } else {
        settle()
    }
    let text = run_for(client.envs(lab.environment()), timeout(seconds))?;
    number(&last_json(&text)?, "/goodput_bps")
}

fn iperf(pair: &Pair, controller: &str, seconds: u32) -> Result<f64> {
    let mut server = pair.server("iperf3");
    let _server = Background::start(server.args(["-s", "-1", "-p", "7412"]))?;
    settle();
    let mut client = pair.client("iperf3");
    client.args(["-c", Pair::SERVER, "-p", "7412", "-C", controller, "-J", "-t"]);
    let text = run_for(client.arg(seconds.to_string()), timeout(seconds))?;
    number(&serde_json::from_str(&text)?, "/end/sum_received/bits_per_second")
}

fn quinn(program: &Path, pair: &Pair, seconds: u32) -> Result<f64> {
    let program = program.to_string_lossy();
    let at = format!("{}:7413", Pair::SERVER);
    let _server = Background::start(pair.server(&program).args(["server", &at]))?;
    settle();
    let mut client = pair.client(&program);
    let text = run_for(client.args(["client", &at]).arg(seconds.to_string()), timeout(seconds))?;
    number(&last_json(&text)?, "/goodput_bps")
}

fn udt(program: &Path, pair: &Pair, seconds: u32) -> Result<f64> {
    let program = program.to_string_lossy();
    let server = Background::start(pair.server(&program).args(["server", "7414"]))?;
    settle();
    let mut client = pair.client(&program);
    client.args(["client", Pair::SERVER, "7414"]).arg(seconds.to_string());
    run_for(&mut client, timeout(seconds))?;
    number(&last_json(&server.output(Duration::from_secs(20))?)?, "/goodput_bps")
}

/// The waiting time for a server that does not report when it is ready.
fn settle() {
    std::thread::sleep(Duration::from_millis(500));
}

fn timeout(seconds: u32) -> Duration {
    Duration::from_secs(u64::from(seconds) + 40)
}

pub(super) fn number(value: &Value, at: &str) -> Result<f64> {
    value.pointer(at).and_then(Value::as_f64).with_context(|| format!("no {at} in the output"))
}
