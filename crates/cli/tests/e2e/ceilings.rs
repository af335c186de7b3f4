//! Ceilings of a site's policy and of `--rate`, at both ends and in both directions.
//!
//! The test measures the rate as bytes over a time from before the command to after it. A slow
//! machine can only move fewer bytes.

use std::ffi::OsString;
use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::rig::{Ended, Rig, Running, free_port, is_root, listens, skipped};
use crate::server::{serve, ticket};
use crate::tree::{self, MIB};

/// 20 Mbit/s, in bytes per second.
const RATE: f64 = 20e6 / 8.0;
/// Bytes that may pass at once: the bursts of both ends and a piece of each stream.
const BURST: f64 = 0.25 * RATE + (4 * (256 << 10)) as f64;

/// Bind-mounts a policy over this site's in a mount namespace, and runs the following command.
const UNDER: &str = r#"
    set -e
    policy=$1; keep=$2; shift 2
    mkdir -p "$keep"
    for name in passwd group hosts nsswitch.conf resolv.conf; do
        if [ -e /etc/$name ]; then cp -L /etc/$name "$keep"; fi
    done
    mount -t tmpfs tmpfs /etc
    cp -R "$keep/." /etc
    mkdir /etc/packtrain
    cp "$policy" /etc/packtrain/policy.toml
    chmod 644 /etc/packtrain/policy.toml
    exec "$@"
"#;

/// The arguments that run a command under a policy.
fn words(rig: &Rig, name: &str, policy: &str) -> Vec<OsString> {
    let file = rig.path(&format!("{name}.toml"));
    fs::write(&file, policy).expect("written");
    let mut words: Vec<OsString> = vec!["unshare".into()];
    if !is_root() {
        words.extend(["--user".into(), "--map-root-user".into()]);
    }
    words.extend(["--mount".into(), "sh".into(), "-c".into(), UNDER.into(), "sh".into()]);
    words.extend([file.into(), rig.path(&format!("{name}.etc")).into()]);
    words
}

/// `packtrain` under a policy, with its own state directory.
fn under(rig: &Rig, name: &str, policy: &str) -> Command {
    let words = words(rig, name, policy);
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).arg(env!("CARGO_BIN_EXE_packtrain"));
    command.stdin(std::process::Stdio::null());
    command.env("XDG_STATE_HOME", rig.path("state")).env("XDG_CONFIG_HOME", rig.path("config"));
    command
}

/// Whether this machine allows that mount.
fn can(rig: &Rig) -> bool {
    let words = words(rig, "probe", "");
    let ended = rig.run(Command::new(&words[0]).args(&words[1..]).arg("true"));
    if ended.code != 0 {
        skipped(&format!("no mount namespaces: {}", ended.stderr));
    }
    ended.code == 0
}

/// A listening command under a policy, and its port.
fn listening(rig: &Rig, policy: &str, args: &[&str]) -> (Running, u16) {
    fs::create_dir_all(rig.path("root")).expect("a folder");
    let port = free_port();
    let mut command = under(rig, "server", policy);
    command.env("XDG_STATE_HOME", rig.path("far-state"));
    command.env("XDG_CONFIG_HOME", rig.path("far-config"));
    command.args(args).args(["--listen", &format!("127.0.0.1:{port}")]);
    command.arg("--ticket-file").arg(rig.path("ticket"));
    if args[0] == "serve" {
        command.arg("--root").arg(rig.path("root"));
    }
    let written = || fs::metadata(rig.path("ticket")).is_ok_and(|found| found.len() > 0);
    let running = rig.start(&mut command);
    (running.when_up(|_| written() && listens(("127.0.0.1", port))), port)
}

/// Runs a command that must succeed, and returns an upper limit of its duration.
fn timed(rig: &Rig, command: &mut Command) -> (Ended, f64) {
    let begun = Instant::now();
    let ended = rig.ok(command);
    (ended, begun.elapsed().as_secs_f64())
}

/// Asserts that no more bytes moved in that time than the rate allows.
fn check(what: &str, bytes: f64, seconds: f64) {
    let most = RATE * seconds + BURST;
    assert!(bytes <= most, "{what}: {bytes} bytes in {seconds} s, at most {most}");
}

fn last(ended: &Ended) -> Value {
    let text = String::from_utf8_lossy(&ended.stdout).into_owned();
    serde_json::from_str(text.lines().last().unwrap_or_default()).expect("a line of JSON")
}

const LIMITED: &str = "max-rate = '20mbit'\nmax-streams = 2\n";

#[test]
#[ignore = "needs namespaces; `cargo xtask test` runs it"]
fn a_server_takes_and_gives_no_more_than_its_policy_allows() {
    let rig = Rig::local();
    if !can(&rig) {
        return;
    }
    tree::file(&rig.path("f"), 12 * MIB, 1);
    let (_server, port) = listening(&rig, LIMITED, &["serve"]);
    let place = format!("pt://127.0.0.1:{port}/f");
    for (transport, more) in
        [("native", &[][..]), ("tcp", &["--streams", "8"]), ("tcp", &[]), ("pipe", &[])]
    {
        for there in [true, false] {
            let mut cp = rig.cp();
            cp.args(["--ticket", &ticket(&rig), "--json", "--transport", transport]).args(more);
            if there {
                let _ = fs::remove_file(rig.path("root/f"));
                cp.arg(rig.path("f")).arg(&place);
            } else {
                let _ = fs::remove_file(rig.path("back"));
                cp.arg(&place).arg(rig.path("back"));
            }
            let what = format!("{transport} {more:?} {there}");
            let (ended, seconds) = timed(&rig, &mut cp);
            check(&what, (12 * MIB) as f64, seconds);
            let said = format!("{}{}", String::from_utf8_lossy(&ended.stdout), ended.stderr);
            assert!(said.contains("limited by the server's policy: at most 20.0 Mbit/s"), "{said}");
            let streams = last(&ended)["streams"]["most"].as_u64().unwrap_or(0);
            assert!(streams <= 2, "{what}: {streams} streams");
            assert_eq!(last(&ended)["transport"], transport, "{what}");
        }
    }
}

#[test]
#[ignore = "needs namespaces; `cargo xtask test` runs it"]
fn perf_obeys_the_policy_of_either_end() {
    let rig = Rig::local();
    if !can(&rig) {
        return;
    }
    let client = |rig: &Rig, policy: &str, port: u16, more: &[&str]| {
        let mut perf = under(rig, "client", policy);
        perf.args(["perf", "client", &format!("127.0.0.1:{port}"), "--json", "--seconds", "2"]);
        perf.args(["--ticket", &ticket(rig), "--parallel", "8"]).args(more);
        perf
    };
    for (far, near) in [(LIMITED, ""), ("", LIMITED)] {
        let (_server, port) = listening(&rig, far, &["perf", "server"]);
        for more in [
            &["--transport", "native"][..],
            &["--transport", "tcp"],
            &["--transport", "native", "--reverse"],
            &["--transport", "tcp", "--reverse"],
        ] {
            let (ended, seconds) = timed(&rig, &mut client(&rig, near, port, more));
            let bytes = last(&ended)["bytes"].as_f64().expect("bytes");
            assert!(bytes > 0.0, "{more:?}");
            check(&format!("{more:?}"), bytes, seconds);
        }
        drop(_server);
        fs::remove_file(rig.path("ticket")).expect("there");
    }
    let (_server, port) = listening(&rig, "transports = ['tcp']", &["perf", "server"]);
    let ended = rig.run(&mut client(&rig, "", port, &["--transport", "native"]));
    assert_eq!(ended.code, 12, "{}", ended.stderr);
    assert!(ended.stderr.contains("policy"), "{}", ended.stderr);
}

#[test]
fn perf_keeps_its_rate_over_all_flows() {
    let rig = Rig::local();
    let port = free_port();
    let mut server = rig.packtrain();
    server.env("XDG_STATE_HOME", rig.path("far-state"));
    server.env("XDG_CONFIG_HOME", rig.path("far-config"));
    server.args(["perf", "server", "--listen", &format!("127.0.0.1:{port}"), "--ticket-file"]);
    let mut running = rig.start(server.arg(rig.path("ticket")));
    while fs::metadata(rig.path("ticket")).map_or(0, |found| found.len()) == 0 {
        assert!(!running.ended(), "{}", running.stderr());
        std::thread::sleep(Duration::from_millis(25));
    }
    for transport in ["native", "tcp"] {
        for more in [&["--reverse"][..], &[]] {
            let mut perf = rig.packtrain();
            perf.args(["perf", "client", &format!("127.0.0.1:{port}"), "--json", "--seconds", "1"]);
            perf.args(["--ticket", &ticket(&rig), "--rate", "20mbit", "--parallel", "4"]);
            let (ended, seconds) = timed(&rig, perf.args(["--transport", transport]).args(more));
            let bytes = last(&ended)["bytes"].as_f64().expect("bytes");
            assert!(bytes > 0.0);
            check(&format!("{transport} {more:?}"), bytes, seconds);
        }
    }
}

#[test]
#[ignore = "needs namespaces; `cargo xtask test` runs it"]
fn a_transport_that_the_server_does_not_allow_is_refused_at_once() {
    let rig = Rig::local();
    if !can(&rig) {
        return;
    }
    tree::file(&rig.path("f"), MIB, 1);
    let (_server, port) = listening(&rig, "transports = ['tcp']", &["serve"]);
    let place = format!("pt://127.0.0.1:{port}/f");
    for transport in ["native", "pipe", "udt"] {
        let mut cp = rig.cp();
        cp.args(["--ticket", &ticket(&rig), "--retries", "5", "--transport", transport]);
        let ended = rig.run(cp.arg(rig.path("f")).arg(&place));
        assert_eq!(ended.code, 12, "{}", ended.stderr);
        let want = format!("the server's policy does not allow --transport {transport}");
        assert!(ended.stderr.contains(&want), "{}", ended.stderr);
        assert!(!ended.stderr.contains("trying again"), "{}", ended.stderr);
    }
    // `auto` uses the transports that the policy permits.
    let mut cp = rig.cp();
    cp.args(["--ticket", &ticket(&rig), "--json"]).arg(rig.path("f")).arg(&place);
    assert_eq!(last(&rig.ok(&mut cp))["transport"], "tcp");
}

#[test]
#[ignore = "needs namespaces; `cargo xtask test` runs it"]
fn a_client_has_no_more_streams_than_its_own_policy_allows() {
    let rig = Rig::local();
    if !can(&rig) {
        return;
    }
    tree::file(&rig.path("f"), 64 * MIB, 1);
    let (_server, port) = serve(&rig, &[]);
    let place = format!("pt://127.0.0.1:{port}/f");
    for there in [true, false] {
        let mut cp = under(&rig, "client", "max-streams = 2");
        cp.args(["cp", "--ticket", &ticket(&rig), "--json", "--transport", "tcp"]);
        cp.args(["--streams", "auto", "--progress", "none"]);
        if there {
            cp.arg(rig.path("f")).arg(&place);
        } else {
            cp.arg(&place).arg(rig.path("back"));
        }
        let ended = rig.ok(&mut cp);
        let most = last(&ended)["streams"]["most"].as_u64().expect("streams");
        assert!((1..=2).contains(&most), "{most} streams");
    }
}

#[test]
#[ignore = "needs namespaces; `cargo xtask test` runs it"]
fn a_policy_that_means_nothing_is_2_and_says_what_may_be_written() {
    let rig = Rig::local();
    if !can(&rig) {
        return;
    }
    tree::file(&rig.path("f"), 1000, 1);
    for (policy, want) in [
        ("transports = ['foo']", "native, udt, fobs, sabul, tcp, pipe, udt4"),
        ("transports = []", "native, udt, fobs, sabul, tcp, pipe, udt4"),
        ("max-streams = 0", "write 1 or more"),
        ("max-rate = '0mbit'", "max-rate is zero"),
    ] {
        let mut cp = under(&rig, "bad", policy);
        let ended = rig.run(cp.arg("cp").arg(rig.path("f")).arg(rig.path("g")));
        assert_eq!(ended.code, 2, "{policy}: {}", ended.stderr);
        assert!(ended.stderr.contains(want), "{policy}: {}", ended.stderr);
        assert!(ended.stderr.contains("policy.toml"), "{policy}: {}", ended.stderr);
    }
}

#[test]
fn what_a_rate_held_is_marked_in_the_history_and_left_out_of_forecasts() {
    let rig = Rig::local();
    tree::file(&rig.path("f"), 6 * MIB, 1);
    let (_server, port) = serve(&rig, &[]);
    let rows = || {
        let ended = rig.ok(rig.packtrain().args(["history", "--json"]));
        let text = String::from_utf8_lossy(&ended.stdout).into_owned();
        let rows: Vec<Value> =
            text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        rows
    };
    let copy = |name: &str, transport: &str, rate: &str| {
        let mut cp = rig.cp();
        cp.args(["--ticket", &ticket(&rig), "--transport", transport, "--rate", rate]);
        rig.ok(cp.arg(rig.path("f")).arg(format!("pt://127.0.0.1:{port}/{name}")));
    };
    let forecast = || {
        let from = rows()[0]["from_host"].as_str().expect("a name").to_owned();
        let mut forecast = rig.packtrain();
        forecast.args(["forecast", &from, "127.0.0.1", "--at-least", "1MiB", "--json"]);
        rig.run(&mut forecast)
    };
    for transport in ["tcp", "native", "pipe"] {
        copy(&format!("held-{transport}"), transport, "20mbit");
        assert_eq!(rows()[0]["held_by"], "rate", "{transport}");
    }
    // The server's history has the row too: 127.0.0.1 to this machine.
    let mut far = rig.packtrain();
    far.env("XDG_STATE_HOME", rig.path("far-state")).args(["history", "--json"]);
    let text = String::from_utf8_lossy(&rig.ok(&mut far).stdout).into_owned();
    assert!(text.lines().count() >= 2, "{text}");
    assert!(text.lines().all(|line| line.contains(r#""held_by":"rate""#)), "{text}");
    let nothing = forecast();
    assert_ne!(nothing.code, 0, "held transfers are no measurement: {:?}", nothing.stdout);
    // A ceiling above the actual rate changes nothing.
    copy("free", "tcp", "900gbit");
    assert!(rows()[0]["held_by"].is_null(), "{}", rows()[0]);
    let one = forecast();
    assert_eq!(one.code, 0, "{}", one.stderr);
}
