//! Causes between the ends.

use super::case::{Case, alone, has};
use crate::rig::Rig;

/// A table of firewall rules with one rule.
fn firewall(rule: &str) -> String {
    format!(
        "nft add table inet t; nft add chain inet t in '{{ type filter hook input priority 0; \
         }}'; nft add rule inet t in {rule};"
    )
}

#[test]
#[ignore = "namespaces and a quiet machine; `cargo xtask nightly` runs it"]
fn a_full_path() {
    let _alone = alone();
    if let Some(said) = Case::new("--rate 50mbit --rtt 40ms", "", 20).is("path-rate") {
        // The transfer has no problem, so the last line has no verdict.
        assert!(said.before.contains("\"verdict\":null"), "{}", said.before);
    }
}

#[test]
#[ignore = "namespaces and a quiet machine; `cargo xtask nightly` runs it"]
fn a_rate_asked_for() {
    let _alone = alone();
    let case = Case::new("--rate 200mbit --rtt 20ms", "--rate 20mbit", 10);
    if let Some(said) = case.is("rate-asked") {
        assert!(said.before.contains("\"verdict\":null"), "{}", said.before);
    }
}

#[test]
#[ignore = "namespaces and a quiet machine; `cargo xtask nightly` runs it"]
fn others_fill_the_path() {
    let _alone = alone();
    let mut case = Case::new("--rate 50mbit --rtt 40ms --queue 1bdp", "", 12);
    let program = env!("CARGO_BIN_EXE_packtrain");
    let ticket = case.rig.path("other").display().to_string();
    case.far =
        format!("{program} perf server --listen 10.77.0.2:7877 --ticket-file {ticket} >&2 & ");
    case.near = format!(
        "while [ ! -s {ticket} ]; do sleep 0.05; done; {program} perf client 10.77.0.2:7877 \
         --ticket @{ticket} --cc fixed:40mbit --seconds 20 >/dev/null & sleep 2; "
    );
    case.is("congestion");
}

#[test]
#[ignore = "namespaces and a quiet machine; `cargo xtask nightly` runs it"]
fn a_link_with_errors_and_tcp() {
    let _alone = alone();
    let mut case = Case::new("--rate 100mbit --rtt 60ms --loss 1e-2", "--transport tcp", 12);
    // A congestion control that reacts to losses.
    case.near = "echo reno >/proc/sys/net/ipv4/tcp_congestion_control;".to_owned();
    case.is("link-errors");
}

#[test]
#[ignore = "namespaces and a quiet machine; `cargo xtask nightly` runs it"]
fn a_link_with_errors_and_udt() {
    let _alone = alone();
    Case::new("--rate 100mbit --rtt 60ms --loss 1e-2", "--transport udt", 12).is("link-errors");
}

#[test]
#[ignore = "namespaces and a quiet machine; `cargo xtask nightly` runs it"]
fn udp_is_blocked() {
    let _alone = alone();
    if !has("nft") {
        return;
    }
    let mut blocked = Case::new("--rate 50mbit --rtt 20ms", "", 20);
    blocked.far = firewall("meta l4proto udp drop");
    if let Some(said) = blocked.is("udp-blocked") {
        let line = "\"verdict\":\"UDP does not get through";
        assert!(said.before.contains(line), "{}", said.before);
    }
}

#[test]
#[ignore = "namespaces and a quiet machine; `cargo xtask nightly` runs it"]
fn udp_is_policed() {
    let _alone = alone();
    if !has("nft") {
        return;
    }
    let mut policed = Case::new("--rate 200mbit --rtt 20ms", "--transport native", 20);
    policed.far =
        firewall("meta l4proto udp limit rate over 2500 kbytes/second burst 64 kbytes drop");
    policed.is("udp-policed");
}

/// The hosts use an MTU of 1500 bytes. The middle link silently drops packets above 1300 bytes.
#[test]
#[ignore = "namespaces and a quiet machine; `cargo xtask nightly` runs it"]
fn large_packets_vanish() {
    let _alone = alone();
    if !has("ip") {
        return;
    }
    let mut case = Case::new("--rate 50mbit --rtt 20ms --mtu 1300", "--transport native", 16);
    let mtu = "ip link set dev wan0 mtu 1500;";
    (case.far, case.near) = (mtu.to_owned(), mtu.to_owned());
    case.is("mtu-black-hole");
}

/// The same path with hosts that use the right MTU: there is no black hole.
#[test]
#[ignore = "namespaces and a quiet machine; `cargo xtask nightly` runs it"]
fn a_small_mtu_that_is_known() {
    let _alone = alone();
    Case::new("--rate 50mbit --rtt 20ms --mtu 1300", "--transport native", 16).is("path-rate");
}

#[test]
#[ignore = "namespaces and a quiet machine; `cargo xtask nightly` runs it"]
fn a_window_too_small_for_the_path() {
    let _alone = alone();
    let mut case = Case::new("--rate 200mbit --rtt 100ms --buffers system", "--transport tcp", 6);
    case.far = "echo 4096 65536 131072 >/proc/sys/net/ipv4/tcp_rmem;".to_owned();
    case.is("window");
}

#[test]
#[ignore = "ssh and a quiet machine; `cargo xtask nightly` runs it"]
fn the_pipe_through_ssh() {
    let _alone = alone();
    let Some(rig) = Rig::ssh() else { return };
    std::fs::write(rig.path("a"), vec![9; 300 << 20]).expect("a file");
    let copy = rig.ok(rig
        .cp()
        .args(["--json", "--transport", "pipe"])
        .arg(rig.path("a"))
        .arg(rig.far("b")));
    let said = rig.ok(rig.packtrain().args(["diagnose", "last", "--json"]));
    let before = format!("{}\n{}", String::from_utf8_lossy(&copy.stdout), copy.stderr);
    let json = serde_json::from_slice(&said.stdout).expect("JSON");
    let said = super::case::Diagnosis { json, before };
    said.check("ssh-pipe");
    assert!(said.before.contains("pipe through ssh"), "{}", said.before);
}
