//! `cp --via auto`: no choice of a path loses data, whatever happens to the depot.

use std::fs;

use crate::depots::{depot, passed_on};
use crate::emulate::allowed;
use crate::rig::{Ended, Rig, free_port, listens, send};
use crate::server::{serve, ticket};
use crate::tree::{self, MIB, assert_same};

fn last(ended: &Ended) -> serde_json::Value {
    let text = String::from_utf8_lossy(&ended.stdout);
    let lines = text.lines().filter_map(|line| serde_json::from_str(line).ok());
    let mut done = lines.filter(|line: &serde_json::Value| line["event"] == "done");
    done.next_back().unwrap_or_else(|| panic!("no last line: {text} {}", ended.stderr))
}

#[test]
fn a_short_transfer_is_direct_and_a_depot_that_is_not_there_is_no_matter() {
    let rig = Rig::local();
    fs::create_dir(rig.path("src")).expect("a folder");
    tree::odd(&rig.path("src/odd"));
    tree::file(&rig.path("src/big"), 8 * MIB + 17, 1);
    let (_server, port) = serve(&rig, &[]);
    let (there, place) = depot(&rig, &[]);
    let [nobody, nobody_either] = [0; 2].map(|_| format!("127.0.0.1:{}", free_port()));
    let mut cp = rig.cp();
    cp.args(["--ticket", &ticket(&rig), "--json", "--via", "auto", "--transport", "tcp"]);
    cp.args(["--depots", &format!("{nobody},{place}")]);
    cp.arg(tree_of(&rig)).arg(format!("pt://127.0.0.1:{port}/dst"));
    let ended = rig.ok(&mut cp);
    assert_same(&rig.path("src"), &rig.path("root/dst"));
    let ways = &last(&ended)["streams"]["ways"];
    assert_eq!(ways[0]["way"], "direct", "{ways}");
    assert_eq!(ways.as_array().map(Vec::len), Some(3), "{ways}");
    assert!(ways[0]["bytes"].as_u64() >= Some(8 * MIB), "{ways}");
    assert!(passed_on(there).0 < MIB, "it went by the depot");
    // In the other direction the server chooses the path, and this end asks the depots.
    let mut get = rig.cp();
    get.args(["--ticket", &ticket(&rig), "--json", "--via", "auto", "--transport", "tcp"]);
    get.args(["--depots", &format!("{nobody},{nobody_either}")]);
    let back = rig.ok(get.arg(format!("pt://127.0.0.1:{port}/dst/")).arg(rig.path("back")));
    assert_same(&rig.path("src"), &rig.path("back"));
    let streams = &last(&back)["streams"];
    assert_eq!(streams["ways"][2]["way"], format!("via {nobody_either}"), "{streams}");
    assert!(streams["ways"][0]["bytes"].as_u64() >= Some(8 * MIB), "{streams}");
    assert!(streams["way_reasons"].to_string().contains("refused"), "{streams}");
}

fn tree_of(rig: &Rig) -> std::ffi::OsString {
    crate::rig::contents(&rig.path("src"))
}

const TOPOLOGY: &str = r#"
[[link]]
name = "west"
from = "near"
to = "mid"
rate = "100mbit"
rtt = "10ms"
[[link]]
name = "east"
from = "mid"
to = "far"
rate = "100mbit"
rtt = "10ms"
"#;

/// A stand-in for ssh, which starts the remote end on its host.
const SSH: &str = r#"#!/bin/sh
if [ "$1" = -G ]; then echo hostname $PACKTRAIN_HOST_FAR; exit; fi
shift
exec nsenter -t $(cat DIR/far) -n -- sh -c "XDG_STATE_HOME=DIR/fs $*"
"#;

/// The target of the copy, and how the remote end is reached.
#[derive(Clone, Copy, Default)]
struct Copied {
    fetch: bool,
    ssh: bool,
    /// Whether TCP halves its window at a loss, and has two streams.
    reno: bool,
}

impl Copied {
    /// The options of `cp` for the remote end, and both locations.
    fn words(self, dir: &str, program: &str) -> String {
        let (place, reach) = if self.ssh {
            let reach = format!("-e 'sh {dir}/ssh' --remote-path {program}");
            (format!("far:{dir}/served/big"), reach)
        } else {
            let place = "pt://$PACKTRAIN_HOST_FAR:7876/big";
            (place.to_owned(), "--accept-new-host".to_owned())
        };
        let near = format!("{dir}/big");
        let [from, to] = if self.fetch { [place, near] } else { [near, place] };
        format!("{reach} {from} {to}")
    }

    /// Writes twelve rows of earlier transfers over each of `$routes` (by default over each of
    /// `$depots`), nine times as fast as the direct path.
    fn rows(self, dir: &str) -> String {
        let there = if self.ssh { "far" } else { "$PACKTRAIN_HOST_FAR" };
        let (role, ends) = if self.fetch {
            ("sink", format!("{there} $(uname -n)"))
        } else {
            ("source", format!("$(uname -n) {there}"))
        };
        format!(
            r#"
            rows={dir}/ns/packtrain/transfers
            mkdir -p $rows
            for depot in ${{routes:-$depots}}; do for n in 1 2 3 4 5 6 7 8 9 a b c; do
                n=$n-$depot
                printf '{{"key":"k%s","id":"%s","began":%s,"ended":"done","side":"caller","role":"{role}","from_host":"%s","to_host":"%s","transport":"tcp","streams":4,"tcp_info":"{{\\"ways\\":[{{\\"way\\":\\"direct\\",\\"rate\\":10000000}},{{\\"way\\":\\"via %s\\",\\"rate\\":90000000}}]}}"}}' \
                    $n $n $(date +%s)000000000 {ends} $depot > $rows/$n.json
            done; done
            "#
        )
    }

    /// Runs a copy between hosts of `topology`, with four streams and the depots of `$depots`,
    /// which `script` sets. `starts` run on hosts before it, `after` runs once it runs. Returns the
    /// last JSON line; `None` if this machine has no namespaces.
    fn run(
        self,
        topology: &str,
        script: &str,
        after: &str,
        starts: &[(&str, String)],
    ) -> Option<(Rig, serde_json::Value)> {
        let rig = Rig::local();
        if !allowed(&rig) {
            return None;
        }
        let program = env!("CARGO_BIN_EXE_packtrain");
        let dir = rig.path("").display().to_string();
        fs::create_dir(rig.path("served")).expect("a folder");
        fs::write(rig.path("topology.toml"), topology).expect("a file");
        fs::write(rig.path("ssh"), SSH.replace("DIR", &dir)).expect("a file");
        let [from, to] = if self.fetch { ["served/big", "big"] } else { ["big", "served/big"] };
        tree::file(&rig.path(from), 40 * MIB + 3, 1);
        rig.own_key("keys");
        let far = format!(
            "echo $$ > {dir}/far; XDG_CONFIG_HOME={dir}/fc XDG_STATE_HOME={dir}/fs exec {program} \
             serve --root {dir}/served --listen 0.0.0.0:7876 --authorized-keys {dir}/keys"
        );
        let (rows, words) = (self.rows(&dir), self.words(&dir, program));
        let streams = if self.reno { "2 --tcp-cc reno" } else { "4" };
        let near = format!(
            r#"
            {script}
            {rows}
            sleep 1.5
            XDG_STATE_HOME={dir}/ns {program} cp --json --transport tcp --streams {streams} --via auto \
                --depots $(echo $depots | tr ' ' ,) {words} > {dir}/out &
            copy=$!
            {after}
            wait $copy
            "#
        )
        .replace("DIR", &dir);
        let mut run = rig.packtrain();
        run.args(["emulate", "--best-effort", "--topology"]).arg(rig.path("topology.toml"));
        run.args(["--on", "near", "--start", &format!("far={far}")]);
        for (n, (host, depot)) in starts.iter().enumerate() {
            let depot = format!(
                "XDG_CONFIG_HOME={dir}/c{n} XDG_STATE_HOME={dir}/s{n}; export XDG_CONFIG_HOME \
                 XDG_STATE_HOME; {}",
                depot.replace("DIR", &dir).replace(
                    "DEPOT",
                    &format!("{program} depot --allow 10.77.0.0/24 --authorized-keys {dir}/keys")
                )
            );
            run.args(["--start", &format!("{host}={depot}")]);
        }
        let ended = rig.ok(run.args(["--", "sh", "-c", &near]));
        let same = fs::read(rig.path(to)).ok() == fs::read(rig.path(from)).ok();
        assert!(same, "{}", ended.stderr);
        let out = fs::read(rig.path("out")).expect("what cp told");
        let streams = last(&Ended { stdout: out, ..ended })["streams"].clone();
        Some((rig, streams))
    }
}

/// The history makes this transfer use a depot at once. The depot then gets `signal`.
fn the_depot_meets(signal: &str, copied: Copied) {
    let mid = "echo $$ > DIR/pid; exec DEPOT --listen 0.0.0.0:7879".to_owned();
    let after = format!("sleep 2; kill -{signal} $(cat DIR/pid)");
    let script = "depots=$PACKTRAIN_HOST_MID:7879";
    let Some((_rig, streams)) = copied.run(TOPOLOGY, script, &after, &[("mid", mid)]) else {
        return;
    };
    let bytes = |n: usize| streams["ways"][n]["bytes"].as_u64();
    // On a slow machine the remote end of ssh may start only after the depot got its signal.
    assert!(bytes(0) > Some(MIB) && (copied.ssh || bytes(1) > Some(MIB)), "{streams}");
    let reasons = streams["way_reasons"].to_string();
    let left = ["going on: direct", "direct again"].iter().any(|text| reasons.contains(text));
    assert!(reasons.contains("taken") && left, "{reasons}");
}

/// The history prefers four depots: one is at its limit, one refuses this user's key for its bytes,
/// one does not answer, one is now a hundred times slower than the direct path.
#[test]
fn depots_that_refuse_are_silent_or_creep_cost_next_to_nothing() {
    const SLOW: &str =
        "\n[[link]]\nfrom = \"mid\"\nto = \"slow\"\nrate = \"1mbit\"\nrtt = \"1ms\"\n";
    let depot = |what: &str| what.to_owned();
    let starts = [
        ("mid", depot("exec DEPOT --listen 0.0.0.0:7881 --full-load 0.000001")),
        ("mid", depot("exec DEPOT --listen 0.0.0.0:7882 --key-sessions 1")),
        ("mid", depot("DEPOT --listen 0.0.0.0:7883 & sleep 1; kill -STOP $!; wait $!")),
        ("slow", depot("exec DEPOT --listen 0.0.0.0:7884")),
    ];
    let script = "mid=$PACKTRAIN_HOST_MID
        depots=\"$mid:7881 $mid:7882 $PACKTRAIN_HOST_SLOW:7884 $mid:7883\"";
    let topology = format!("{TOPOLOGY}{SLOW}");
    let Some((_rig, streams)) = Copied::default().run(&topology, script, "", &starts) else {
        return;
    };
    let ways = &streams["ways"];
    assert!(ways[0]["bytes"].as_u64() > Some(36 * MIB), "{streams}");
    assert!(streams["moved_twice_bytes"].as_u64() < Some(6 * MIB), "{streams}");
    let reasons = streams["way_reasons"].to_string();
    for (port, what) in
        [(7881, "refuses"), (7882, "refuses"), (7884, "direct again"), (7883, "taken")]
    {
        let told = |reason: &serde_json::Value| {
            let text = reason.as_str().unwrap_or_default();
            text.contains(&port.to_string()) && text.contains(what)
        };
        let any = streams["way_reasons"].as_array().is_some_and(|all| all.iter().any(told));
        assert!(any, "{port}: {reasons}");
    }
}

/// Three hops of 10 ms, and `depots` at the two hosts between them.
const ROW: &str = r#"
[[link]]
from = "near"
to = "west"
rate = "100mbit"
rtt = "10ms"
[[link]]
from = "west"
to = "east"
rate = "100mbit"
rtt = "10ms"
[[link]]
from = "east"
to = "far"
rate = "100mbit"
rtt = "10ms"
"#;

/// Two depots in a row, which earlier transfers used together. The second of them is killed.
fn the_chain_breaks(copied: Copied) {
    let west = "exec DEPOT --listen 0.0.0.0:7879".to_owned();
    let east = "echo $$ > DIR/pid; exec DEPOT --listen 0.0.0.0:7879".to_owned();
    let script = "depots=\"$PACKTRAIN_HOST_WEST:7879 $PACKTRAIN_HOST_EAST:7879\"
        routes=$PACKTRAIN_HOST_WEST:7879,$PACKTRAIN_HOST_EAST:7879";
    let after = "sleep 2; kill -KILL $(cat DIR/pid)";
    let Some((_rig, streams)) = copied.run(ROW, script, after, &[("west", west), ("east", east)])
    else {
        return;
    };
    let ways = streams["ways"].as_array().expect("ways");
    let chain = ways.iter().find(|way| way["way"].as_str().is_some_and(|way| way.contains(',')));
    let chain = chain.unwrap_or_else(|| panic!("no chain: {streams}"));
    // The direct streams stay at first, and may take most of the link.
    assert!(chain["bytes"].as_u64() > Some(0), "{streams}");
    assert!(ways[0]["bytes"].as_u64() > Some(MIB), "{streams}");
    let reasons = streams["way_reasons"].to_string();
    let left = ["going on: direct", "direct again"].iter().any(|text| reasons.contains(text));
    assert!(reasons.contains("taken") && left, "{reasons}");
}

#[test]
fn a_chain_of_depots_is_taken_and_left_when_its_last_depot_is_killed() {
    the_chain_breaks(Copied::default());
}

#[test]
fn a_fetch_takes_a_chain_of_depots_and_leaves_it() {
    the_chain_breaks(Copied { fetch: true, ..Copied::default() });
}

/// Depots that measured the hop between them are tried as a chain on a path that loses packets,
/// without any earlier transfer.
#[test]
#[ignore = "takes half a minute; `cargo xtask test` runs it"]
fn a_chain_that_the_depots_measured_is_tried() {
    let topology = ROW.replace("rtt = \"10ms\"", "rtt = \"20ms\"\nloss = 0.002");
    // What the depots measured of each other, as an earlier run of theirs kept it.
    let depot = |host: &str, to: &str| {
        let kept = format!(
            r#"mkdir -p $XDG_STATE_HOME/packtrain; printf '[{{"to":"%s:7879","samples":[{{"at":%s000000000,"rate":90000000,"streams":1,"lost_ppm":0,"min_rtt":20000000,"probed":true}}]}}]' $PACKTRAIN_HOST_{to} $(date +%s) > $XDG_STATE_HOME/packtrain/depot-7879.json; "#
        );
        (host.to_owned(), format!("{kept}exec DEPOT --tcp-cc reno --listen 0.0.0.0:7879"))
    };
    let starts = [depot("west", "EAST"), depot("east", "WEST")];
    let starts: Vec<(&str, String)> =
        starts.iter().map(|(host, start)| (host.as_str(), start.clone())).collect();
    let script = "depots=\"$PACKTRAIN_HOST_WEST:7879 $PACKTRAIN_HOST_EAST:7879\" routes=-";
    let copied = Copied { reno: true, ..Copied::default() };
    let Some((_rig, streams)) = copied.run(&topology, script, "", &starts) else { return };
    let reasons = streams["way_reasons"].to_string();
    assert!(reasons.contains("a path over several depots"), "{reasons}");
    let ways = streams["ways"].as_array().expect("ways");
    let chain = ways.iter().find(|way| way["way"].as_str().is_some_and(|way| way.contains(',')));
    let moved = chain.and_then(|way| way["bytes"].as_u64());
    assert!(moved > Some(MIB), "{streams}");
}

#[test]
fn a_depot_killed_in_the_middle_is_left_for_the_direct_way() {
    the_depot_meets("KILL", Copied::default());
}

#[test]
fn a_fetch_leaves_a_depot_that_is_killed_in_the_middle() {
    the_depot_meets("KILL", Copied { fetch: true, ..Copied::default() });
}

#[test]
fn a_fetch_leaves_a_depot_that_freezes_in_the_middle() {
    the_depot_meets("STOP", Copied { fetch: true, ..Copied::default() });
}

#[test]
fn over_ssh_both_ways_a_depot_that_is_killed_in_the_middle_is_left() {
    for fetch in [false, true] {
        the_depot_meets("KILL", Copied { fetch, ssh: true, reno: false });
    }
}

#[test]
fn a_depot_frozen_in_the_middle_is_left_for_the_direct_way() {
    the_depot_meets("STOP", Copied::default());
}

/// Two idle depots probe each other in turn, and report the results.
#[test]
#[ignore = "takes a minute and a half; `cargo xtask test` runs it"]
fn depots_of_a_clique_measure_each_other() {
    let rig = Rig::local();
    let [one, two] = [0; 2].map(|_| format!("127.0.0.1:{}", free_port()));
    let keys = rig.own_key("depot-keys");
    let own = fs::read_to_string(&keys).expect("a key");
    fs::write(&keys, format!("clique {own}")).expect("a file");
    let start = |name: &str, peer: &str| {
        let mut depot = rig.packtrain();
        depot.args(["depot", "--listen", name, "--name", name, "--peer", peer]);
        depot.args(["--allow", "127.0.0.1", "--probe-budget", "9MiB", "--authorized-keys"]);
        rig.start(depot.arg(&keys))
    };
    let mut depots = [start(&one, &two), start(&two, &one)];
    let ask = |from: &str, to: &str| {
        let mut ask = rig.packtrain();
        rig.run(ask.args(["forecast", "--json", "--depot", from, to]))
    };
    let found = (0..180).find_map(|_| {
        std::thread::sleep(std::time::Duration::from_millis(1000));
        assert!(depots.iter_mut().all(|depot| !depot.ended()), "a depot ended");
        let told = [ask(&one, &two), ask(&two, &one)];
        told.into_iter().find(|told| told.code == 0)
    });
    let found = found.expect("a probe within three minutes");
    let text = String::from_utf8_lossy(&found.stdout).into_owned();
    let line: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!((&line["event"], &line["sensor"]), (&"hop".into(), &"probed".into()), "{text}");
    assert!(line["throughput_mbps"].as_f64() > Some(1.0), "{text}");
    let stranger = ask(&one, "192.0.2.77");
    assert_eq!(stranger.code, 3, "{}", stranger.stderr);
}

/// The measurements of a depot, exported as a perfSONAR series and read again, are the same.
#[test]
fn what_a_depot_measured_goes_out_and_comes_back() {
    let rig = Rig::local();
    let keys = rig.own_key("depot-keys");
    let port = free_port();
    // Kept by an earlier run of the depot.
    let sample = |n: u64, mbps: u64| {
        serde_json::json!({
            "at": (1_795_000_000 + n * 3600) * 1_000_000_000, "rate": mbps * 1_000_000, "streams": 2,
            "lost_ppm": 3, "min_rtt": 20_000_000, "probed": n == 4,
        })
    };
    let rates = [900, 940, 910, 300, 920];
    let samples: Vec<_> = (0..).zip(rates).map(|(n, rate)| sample(n, rate)).collect();
    let kept = serde_json::json!([
        {"to": "far.example:1", "samples": samples},
        {"to": "other.example:1", "samples": [sample(0, 5)]},
    ]);
    let state = rig.path("state/packtrain");
    fs::create_dir_all(&state).expect("a folder");
    fs::write(state.join(format!("depot-{port}.json")), kept.to_string()).expect("a file");
    let place = format!("127.0.0.1:{port}");
    let mut depot = rig.packtrain();
    depot.args(["depot", "--listen", &place, "--allow", "127.0.0.1", "--authorized-keys"]);
    let depot = rig.start(depot.arg(&keys)).when_up(|_| listens(&place));
    let forecast = |words: &[&str]| {
        let ended = rig.ok(rig.packtrain().arg("forecast").args(words));
        serde_json::from_slice::<serde_json::Value>(&ended.stdout).expect("JSON")
    };
    let out = forecast(&["--depot", &place, "far.example", "--export"]);
    let points = (0..).zip(rates).map(|(n, rate): (u64, u64)| {
        serde_json::json!({"ts": 1_795_000_000 + n * 3600, "val": rate * 1_000_000})
    });
    assert_eq!(out, points.collect::<serde_json::Value>());
    fs::write(rig.path("series.json"), out.to_string()).expect("a file");
    let series = rig.path("series.json");
    let series = series.to_str().expect("a name");
    let back = forecast(&["a", "b", "--perfsonar", series, "--export", "--history", "none"]);
    assert_eq!(back, out);
    // Measurements of one path from both sources: the same measurement appears twice.
    let own = ["--depot", &place, "far.example", "--json"];
    let since = forecast(&[&own[..], &["--since", "2026-11-18"]].concat());
    assert_eq!((&since["event"], &since["from"]), (&"forecast".into(), &place.as_str().into()));
    let all = forecast(&[&own[..], &["--perfsonar", series]].concat());
    assert_eq!(all["measurements"], 10, "{all}");
    let nothing =
        rig.run(rig.packtrain().args(["forecast", "--depot", &place, "x.example", "--export"]));
    assert_eq!(nothing.code, 3, "{}", nothing.stderr);
    send("TERM", depot.pid());
}
