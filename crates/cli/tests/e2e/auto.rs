//! `cp --via auto`: nothing is lost by a choice, whichever way it goes and whatever becomes of the
//! depot.

use std::fs;

use crate::depots::{depot, passed_on};
use crate::emulate::allowed;
use crate::rig::{Ended, Rig, free_port, send};
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
    let nobody = format!("127.0.0.1:{}", free_port());
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
    // What is fetched comes directly, and that is said.
    let mut get = rig.cp();
    get.args(["--ticket", &ticket(&rig), "--via", "auto", "--depots", &place]);
    let back = rig.ok(get.arg(format!("pt://127.0.0.1:{port}/dst/")).arg(rig.path("back")));
    assert!(back.stderr.contains("fetched directly"), "{}", back.stderr);
    assert_same(&rig.path("src"), &rig.path("back"));
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

/// A transfer that history sends over a depot at once, which then meets `signal`.
fn the_depot_meets(signal: &str) {
    let rig = Rig::local();
    if !allowed(&rig) {
        return;
    }
    let program = env!("CARGO_BIN_EXE_packtrain");
    let dir = rig.path("");
    let dir = dir.display();
    fs::create_dir(rig.path("served")).expect("a folder");
    fs::write(rig.path("topology.toml"), TOPOLOGY).expect("a file");
    tree::file(&rig.path("big"), 40 * MIB + 3, 1);
    let shown = rig.ok(rig.packtrain().args(["key", "show"]));
    fs::write(rig.path("keys"), shown.stdout).expect("a file");
    let far = format!(
        "XDG_CONFIG_HOME={dir}/fc XDG_STATE_HOME={dir}/fs exec {program} serve --root {dir}/served \
         --listen 0.0.0.0:7876 --authorized-keys {dir}/keys"
    );
    let mid = format!(
        "echo $$ > {dir}/pid; XDG_CONFIG_HOME={dir}/mc XDG_STATE_HOME={dir}/ms exec {program} depot \
         --listen 0.0.0.0:7879 --allow 10.77.0.0/24 --authorized-keys {dir}/keys"
    );
    // Rows as twelve earlier transfers have left them.
    let near = format!(
        r#"
        rows={dir}/ns/packtrain/transfers
        mkdir -p $rows
        depot=$PACKTRAIN_HOST_MID:7879
        for n in 1 2 3 4 5 6 7 8 9 a b c; do
            printf '{{"key":"k%s","id":"%s","began":%s,"ended":"done","side":"caller","role":"source","from_host":"%s","to_host":"%s","transport":"tcp","streams":4,"tcp_info":"{{\\"ways\\":[{{\\"way\\":\\"direct\\",\\"rate\\":10000000}},{{\\"way\\":\\"via %s\\",\\"rate\\":90000000}}]}}"}}' \
                $n $n $(date +%s)000000000 $(uname -n) $PACKTRAIN_HOST_FAR $depot > $rows/$n.json
        done
        sleep 1
        XDG_STATE_HOME={dir}/ns {program} cp --json --transport tcp --accept-new-host --streams 4 \
            --via auto --depots $depot {dir}/big pt://$PACKTRAIN_HOST_FAR:7876/big > {dir}/out &
        sleep 2
        kill -{signal} $(cat {dir}/pid)
        wait $!
        code=$?
        kill -CONT $(cat {dir}/pid)
        exit $code
        "#
    );
    let mut run = rig.packtrain();
    run.args(["emulate", "--best-effort", "--topology"]).arg(rig.path("topology.toml"));
    run.args(["--on", "near", "--start", &format!("far={far}")]);
    run.args(["--start", &format!("mid={mid}"), "--", "sh", "-c", &near]);
    let ended = rig.ok(&mut run);
    let same = fs::read(rig.path("served/big")).ok() == fs::read(rig.path("big")).ok();
    assert!(same, "{}", ended.stderr);
    let out = fs::read(rig.path("out")).expect("what cp told");
    let done = last(&Ended { stdout: out, ..ended });
    let streams = &done["streams"];
    let bytes = |n: usize| streams["ways"][n]["bytes"].as_u64();
    assert!(bytes(0) > Some(MIB) && bytes(1) > Some(MIB), "{streams}");
    let reasons = streams["way_reasons"].to_string();
    assert!(reasons.contains("taken") && reasons.contains("going on: direct"), "{reasons}");
}

#[test]
fn a_depot_killed_in_the_middle_is_left_for_the_direct_way() {
    the_depot_meets("KILL");
}

#[test]
fn a_depot_frozen_in_the_middle_is_left_for_the_direct_way() {
    the_depot_meets("STOP");
}

/// Two depots that relay nothing probe each other in turns, and say what they found.
#[test]
#[ignore = "takes a minute and a half; `cargo xtask test` runs it"]
fn depots_of_a_clique_measure_each_other() {
    let rig = Rig::local();
    let [one, two] = [0; 2].map(|_| format!("127.0.0.1:{}", free_port()));
    let keys = rig.path("depot-keys");
    let shown = rig.ok(rig.packtrain().args(["key", "show"]));
    fs::write(&keys, shown.stdout).expect("a file");
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

/// What a depot measured goes out as a perfSONAR series and comes back the same.
#[test]
fn what_a_depot_measured_goes_out_and_comes_back() {
    let rig = Rig::local();
    let keys = rig.path("depot-keys");
    let shown = rig.ok(rig.packtrain().args(["key", "show"]));
    fs::write(&keys, shown.stdout).expect("a file");
    let port = free_port();
    // What an earlier run of the depot kept.
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
    let mut depot = rig.start(depot.arg(&keys));
    for _ in 0..400 {
        assert!(!depot.ended(), "the depot ended: {}", depot.stderr());
        if std::net::TcpStream::connect(&place).is_ok() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(25));
    }
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
    // Both as measurements of one path: the same ones twice.
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
