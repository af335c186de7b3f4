//! Interoperability of this crate's sockets with those of the stock library: both directions, every
//! role, over an emulated path. The results are the table in `docs/udt4.md`; the test fails if the
//! table differs from the results (`PACKTRAIN_BLESS=1` writes it).
//!
//! This program also contains the programs inside the emulation: an agent on the remote host that
//! starts commands, the runs on the local host, and this crate's end of each connection. The stock
//! library's end is `stock.cpp`, which the test builds. If the machine does not support the test,
//! it is reported as skipped, or fails with `PACKTRAIN_TEST_STRICT=1` or `CI=true`.
//!
//! For rare failures: with `PACKTRAIN_INTEROP_ONLY` only connections whose names contain that text
//! run, each `PACKTRAIN_INTEROP_TIMES` times, with `PACKTRAIN_INTEROP_LOSS` percent of loss instead
//! of 1 and a delay of `PACKTRAIN_INTEROP_DELAY` ms each way instead of 5. The table is ignored
//! then. With `PACKTRAIN_INTEROP_RECORD`, a path prefix, the packets of each path are recorded.
#![allow(clippy::print_stdout, reason = "it has no harness to print for it")]

mod agent;
mod cells;
mod ours;
mod table;

use std::path::{Path, PathBuf};
use std::process::Command;

use packtrain_emu::{EmuError, Plan, Report, Topology, child, supervise};
use packtrain_link::{LinkConfig, LossConfig, ReorderConfig};
use packtrain_units::{ByteCount, DataRate, Duration};

use cells::{Cell, Hunt, Road};
use ours::UNTOLD;

/// Queue of a path that loses nothing: more packets than all connections abreast have in flight.
const AMPLE_QUEUE: u64 = 100_000;
/// Queue of the lossy path, which may overflow.
const SHORT_QUEUE: u64 = 800;

fn main() {
    let role = std::env::args().nth(1).unwrap_or_default();
    let rest: Vec<String> = std::env::args().skip(2).collect();
    match role.as_str() {
        "emulation" => emulation(),
        "agent" => agent::listen(),
        "near" => agent::near(&rest[0], Path::new(&rest[1])),
        "ours" => ours::run(&rest),
        // Test runners pass this option.
        "--list" => {}
        _ => tests(),
    }
}

fn tests() {
    let skip = |why: &str| packtrain_testkit::skip_test("interop", why);
    let dir = tempfile::tempdir().expect("a folder");
    if let Err(why) = build(dir.path()) {
        return skip(&why);
    }
    let mut results = Vec::new();
    let roads = Road::ALL.into_iter().filter(|road| !Cell::chosen(*road).is_empty());
    for road in roads {
        match travel(road, dir.path()) {
            Ok(found) => results.extend(found),
            Err(error @ EmuError::Forbidden(_)) => return skip(&error.to_string()),
            Err(error) => panic!("{}: {error}", road.name()),
        }
    }
    for (cell, result) in &results {
        if let Err(why) = result {
            println!("{}: {why}", cell.name());
        }
    }
    if Hunt::wanted().is_none() {
        table::check(&results);
    }
    let failed = results.iter().filter(|(_, result)| result.is_err()).count();
    assert_eq!(failed, 0, "of {} connections that many failed, see above", results.len());
    println!("test {} connections with the stock library ... ok", results.len());
}

/// Builds the stock library's program.
fn build(dir: &Path) -> Result<(), String> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/interop/stock.cpp");
    let mut command = Command::new("g++");
    command.args(["-O2", "-Wall", "-o"]).arg(dir.join("stock")).arg(source);
    let output = command.args(["-ludt", "-lpthread"]).output();
    let output = output.map_err(|e| format!("no g++ for the stock library's end: {e}"))?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(text.contains("udt.h") || text.contains("-ludt"), "stock.cpp does not build:\n{text}");
    Err("the stock library is not here (Debian's libudt-dev)".to_owned())
}

/// A connection, and the reason if it failed.
pub(crate) type Tried = (Cell, Result<(), String>);

/// Runs all connections of one kind of path.
fn travel(road: Road, dir: &Path) -> Result<Vec<Tried>, EmuError> {
    let mut command = Command::new(me());
    command.arg("emulation");
    let ended = supervise(command, &format!("{} {}", road.name(), dir.display()))?;
    assert_eq!(ended.code, 0, "the near host of {}", road.name());
    let lost = lost_packets(&ended.report);
    if lost > 0 {
        println!("{}: the path lost {lost} packets", road.name());
    }
    let results = dir.join(format!("{}.results", road.name()));
    let text = std::fs::read_to_string(results).expect("results");
    let cells = Cell::chosen(road);
    assert_eq!(text.lines().count(), cells.len(), "each connection has a line");
    // The stock library sends its close message once. If the path lost it, all data has arrived,
    // and this end cannot find out what happened: each lost packet excuses one such connection.
    let mut excuses = lost;
    let verdict = |line: &str| match line {
        "pass" => Ok(()),
        UNTOLD if excuses > 0 => {
            excuses -= 1;
            Ok(())
        }
        UNTOLD => Err("the end was not told, and the path lost no packet".to_owned()),
        _ => Err(line.to_owned()),
    };
    Ok(cells.into_iter().zip(text.lines().map(verdict)).collect())
}

/// Packets that the links dropped, and those that the emulator could not take from a device or
/// write to one.
fn lost_packets(report: &Report) -> u64 {
    let by_links = report.links.iter().flat_map(|link| link.dropped.values()).sum::<u64>();
    let by_hosts = report.hosts.iter().map(|host| host.device_drops + host.write_failures);
    by_links + by_hosts.sum::<u64>()
}

pub(crate) fn me() -> PathBuf {
    std::env::current_exe().expect("this program")
}

/// The process that emulates.
fn emulation() {
    let child = child().expect("a channel").expect("an emulation");
    let (name, dir) = child.payload().split_once(' ').expect("a path's name and a folder");
    let road = Road::named(name).expect("a path of this name");
    let program = me().display().to_string();
    let plan = Plan {
        topology: Topology::pair(link(road, 1), link(road, 2)),
        per_packet: false,
        device: None,
        tick: None,
        buffers: None,
        record: record(road),
        command: ["/bin/sh", "-c", &format!("exec {program} near {name} {dir}")]
            .map(Into::into)
            .to_vec(),
        on: "near".to_owned(),
        others: vec![("far".to_owned(), format!("cd {dir}; exec {program} agent"))],
    };
    child.run(&plan);
}

/// The path prefix of the record of a path, if one is wanted.
fn record(road: Road) -> Option<PathBuf> {
    let mut prefix = std::env::var_os("PACKTRAIN_INTEROP_RECORD")?;
    prefix.push(road.name());
    Some(prefix.into())
}

fn link(road: Road, seed: u64) -> LinkConfig {
    let queue = if road == Road::Lossy { SHORT_QUEUE } else { AMPLE_QUEUE };
    let mut link = LinkConfig::new(DataRate::from_mbps(300), Hunt::delay(), queue);
    link.mtu = ByteCount(1_500);
    link.seed = seed;
    match road {
        Road::Clean => {}
        Road::Lossy => link.loss = LossConfig::Independent(Hunt::loss() / 100.0),
        Road::Reordering => {
            let extra = Duration::from_millis(2);
            link.reorder = Some(ReorderConfig { probability: 0.02, extra });
        }
    }
    link
}
