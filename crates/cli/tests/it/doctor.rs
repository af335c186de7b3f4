//! `doctor`, with a program in place of ssh that runs the command on this machine.

use std::os::unix::fs::PermissionsExt as _;

use serde_json::Value;

use crate::common::{Home, code, done, stderr, stdout};

/// A home with `./ssh`, which runs its last argument in a shell.
fn home() -> Home {
    let home = Home::new();
    let script = b"#!/bin/sh\nwhile [ $# -gt 1 ]; do shift; done\nexec sh -c \"$1\"\n";
    let path = home.file("ssh", script);
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).expect("ours");
    home
}

fn states(machine: &Value) -> Vec<(&str, &str)> {
    let checks = machine["checks"].as_array().expect("a list");
    let text = |value: &'_ Value| value.as_str().map(str::to_owned).unwrap_or_default();
    checks
        .iter()
        .map(|check| {
            assert!(!text(&check["says"]).is_empty(), "{check}");
            let remedy = check["remedy"].is_string();
            assert_eq!(check["state"] == "ok", !remedy, "{check}");
            (check["what"].as_str().expect("text"), check["state"].as_str().expect("text"))
        })
        .collect()
}

#[test]
fn both_ends_and_the_path_are_checked() {
    let home = home();
    let program = env!("CARGO_BIN_EXE_packtrain");
    let line = ["doctor", "localhost", "-e", "./ssh", "--remote-path", program, "--json"];
    let output = home.run(&line);
    let last = done(&output);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let machines = last["machines"].as_array().expect("a list");
    assert_eq!(machines.len(), 2);
    for what in ["program", "UDP", "UDP buffers", "clock", "disk", "key files"] {
        for machine in machines {
            assert!(states(machine).iter().any(|(name, _)| *name == what), "{what}: {machine}");
        }
    }
    let there = states(&machines[1]);
    for what in ["versions", "clocks", "UDP path"] {
        assert!(there.contains(&(what, "ok")), "{what}: {there:?}");
    }
}

/// Also where the only port that is open is named, and where it is taken.
#[test]
fn udp_is_tried_at_the_ports_and_the_address_of_copies() {
    let home = home();
    let program = env!("CARGO_BIN_EXE_packtrain");
    let taken =
        std::net::UdpSocket::bind("[::]:0").or_else(|_| std::net::UdpSocket::bind("0.0.0.0:0"));
    let taken = taken.expect("this machine has UDP");
    let port = taken.local_addr().expect("it is bound").port();
    let ports = format!("{port}-{port}");
    let line = ["doctor", "no.such.invalid", "-e", "./ssh", "--remote-path", program, "--json"];
    let check = |rest: &[&str]| {
        let output = home.run(&[&line[..], rest].concat());
        let machines = &done(&output)["machines"];
        let checks = machines[1]["checks"].as_array().expect("a list").clone();
        let path = checks.into_iter().find(|check| check["what"] == "UDP path");
        path.unwrap_or_else(|| panic!("{}", stderr(&output)))
    };
    let path = check(&["--ports", &ports, "--data-addr", "127.0.0.1"]);
    assert_eq!(path["state"], "fault", "{path}");
    drop(taken);
    let path = check(&["--ports", &ports, "--data-addr", "127.0.0.1"]);
    let says = format!("datagrams to UDP port {port} of 127.0.0.1 come back");
    assert_eq!((&path["state"], &path["says"]), (&"ok".into(), &says.into()));
}

#[test]
fn a_key_that_others_read_is_a_fault_and_named_with_its_remedy() {
    let home = home();
    let key = home.config("").with_file_name("key");
    std::fs::write(&key, "secret").expect("ours");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).expect("ours");
    let output = home.run(&["doctor"]);
    assert_eq!(code(&output), 7, "{}", stderr(&output));
    let text = stdout(&output);
    assert!(text.contains(&format!("-> chmod go= {}", key.display())), "{text}");
    assert!(text.ends_with("to be changed first (FAULT)\n"), "{text}");
}

#[test]
fn the_program_is_sent_to_a_machine_without_it_and_stays_there() {
    let home = home();
    // The search finds nothing: neither in the PATH, nor where users install programs.
    let line = ["doctor", "localhost", "-e", "./ssh", "--remote-path", "not-installed", "--json"];
    let output = home.run(&line);
    let last = done(&output);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert!(stderr(&output).contains("sent it once"), "{}", stderr(&output));
    let machines = last["machines"].as_array().expect("a list");
    assert!(states(&machines[1]).contains(&("versions", "ok")), "{last}");
    let output = home.run(&line);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert_eq!(stderr(&output), "", "nothing is sent the second time");
}

#[test]
fn a_machine_on_which_no_program_starts_is_unreachable() {
    let home = home();
    let line = ["doctor", "h", "-e", "./ssh", "--remote-path", "not-installed"];
    let output = home.run(&[&line[..], &["--bootstrap", "never"]].concat());
    assert_eq!(code(&output), 7, "{}", stderr(&output));
    assert!(stderr(&output).contains("packtrain is not installed at h"), "{}", stderr(&output));
    let path =
        home.file("denied", b"#!/bin/sh\necho 'h: Permission denied (publickey).' >&2\nexit 255\n");
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).expect("ours");
    let output = home.run(&["doctor", "h", "-e", "./denied", "--json"]);
    assert_eq!(code(&output), 12, "{}", stderr(&output));
    let last = done(&output);
    assert_eq!(
        (last["ok"].as_bool(), last["machines"].as_array().map(Vec::len)),
        (Some(false), Some(1))
    );
    assert!(last["error"].as_str().is_some_and(|text| text.contains("does not accept")), "{last}");
    assert_eq!(code(&home.run(&["doctor", "pt://h"])), 2);
}

#[test]
fn a_signal_is_its_exit_code_whatever_was_stopped() {
    for words in [
        &["doctor", "host", "--json"][..],
        &["diagnose", "u@host"],
        &["verify", "host:d", "--manifest-out", "list", "--json"],
    ] {
        let home = Home::new();
        let path = home.file("ssh", b"#!/bin/sh\n: > begun\nexec sleep 60\n");
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).expect("ours");
        let mut command = home.command();
        command.args(words).args(["-e", "./ssh"]);
        command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
        let mut child = command.spawn().expect("it starts");
        while !home.path("begun").exists() {
            assert!(child.try_wait().expect("ours").is_none(), "{words:?}: it ended");
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        let id = child.id().to_string();
        let killed = std::process::Command::new("kill").args(["-TERM", &id]).status();
        assert!(killed.expect("kill").success());
        assert_eq!(child.wait().expect("it ends").code(), Some(143), "{words:?}");
    }
}
