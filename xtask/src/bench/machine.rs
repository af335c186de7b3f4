//! The description of the machine, and the socket buffer limit during a measurement.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::sh;

const RMEM: &str = "/proc/sys/net/core/rmem_max";
const WMEM: &str = "/proc/sys/net/core/wmem_max";
/// The kernel's default, the usual limit of a user's machine.
pub(super) const DEFAULT: u64 = 212_992;
/// The size that stock UDT4 requests, and needs above a gigabit per second.
pub(super) const RAISED: u64 = 64 << 20;

/// Name and value of each property that affects a measurement.
pub(super) fn describe(dir: &Path) -> Result<Vec<(String, String)>> {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let cpuinfo = read("/proc/cpuinfo");
    let cpu = cpuinfo
        .lines()
        .find_map(|line| line.strip_prefix("model name"))
        .and_then(|rest| rest.split(':').nth(1))
        .unwrap_or("unknown");
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let memory = read("/proc/meminfo");
    let memory = memory.lines().next().unwrap_or_default().replace("MemTotal:", "");
    let disk = sh::capture(&mut sh::command(
        "df",
        ["--output=source,fstype", "--", &dir.to_string_lossy()],
    ))
    .unwrap_or_default();
    let version = |program: &str, args: &[&str]| {
        sh::capture(&mut sh::command(program, args))
            .ok()
            .and_then(|text| text.lines().next().map(str::to_owned))
            .unwrap_or_else(|| "missing".to_owned())
    };
    let commit = sh::capture(
        sh::command("git", ["describe", "--always", "--dirty"]).current_dir(sh::root()),
    );
    let facts = [
        ("date", version("date", &["-u", "+%Y-%m-%d %H:%M UTC"])),
        ("commit", commit.unwrap_or_else(|_| "not committed".into()).trim().to_owned()),
        ("kernel", version("uname", &["-sr"])),
        ("cpu", cpu.trim().to_owned()),
        ("cores", cores.to_string()),
        ("memory", memory.trim().to_owned()),
        ("disk", disk.lines().nth(1).unwrap_or_default().trim().to_owned()),
        ("default congestion control", read("/proc/sys/net/ipv4/tcp_congestion_control")),
        ("congestion controls", read("/proc/sys/net/ipv4/tcp_available_congestion_control")),
        ("rmem_max found", read(RMEM)),
        ("rustc", version("rustc", &["--version"])),
        ("iperf3", version("iperf3", &["--version"])),
        ("rsync", version("rsync", &["--version"])),
    ];
    Ok(facts.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).to_vec())
}

/// The current limit.
pub(super) fn rmem_max() -> String {
    fs::read_to_string(RMEM).unwrap_or_default().trim().to_owned()
}

/// Changes the limits of socket buffers and restores them on drop.
pub(super) struct SocketLimits {
    found: [String; 2],
}

impl SocketLimits {
    /// Sets the limits, and prints the change and the command that restores them if the bench is
    /// killed.
    pub(super) fn set(bytes: u64) -> Result<Self> {
        let limits = Self::set_quietly(bytes)?;
        eprintln!(
            "net.core.rmem_max and wmem_max: {bytes} for now; if this is killed: \
             sysctl -w net.core.rmem_max={} net.core.wmem_max={}",
            limits.found[0], limits.found[1]
        );
        Ok(limits)
    }

    /// Sets the limits.
    pub(super) fn set_quietly(bytes: u64) -> Result<Self> {
        let read =
            |path: &str| Ok::<_, std::io::Error>(fs::read_to_string(path)?.trim().to_owned());
        let found = [read(RMEM)?, read(WMEM)?];
        for path in [RMEM, WMEM] {
            fs::write(path, bytes.to_string())
                .with_context(|| format!("setting {path} (root, or --keep-rmem)"))?;
        }
        Ok(Self { found })
    }
}

impl Drop for SocketLimits {
    fn drop(&mut self) {
        for (path, value) in [RMEM, WMEM].iter().zip(&self.found) {
            if let Err(error) = fs::write(path, value) {
                eprintln!("*** {path} could not be set back to {value}: {error} ***");
            }
        }
    }
}
