//! One large file: `cp`, `perf` and plain writes to the disk, and the memory of both ends.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::Plan;
use super::lab::{Lab, run_for};
use super::netns::Pair;
use super::raw;
use super::report::Report;
use crate::sh;
use crate::sshd::{HOST, Sshd};

const SUITE: &str = "file";
const BLOCK: usize = 1 << 20;

/// `cp` over ssh on loopback, the disk, and `perf` in turn.
pub(super) fn run(lab: &Lab, plan: &Plan, report: &mut Report) -> Result<()> {
    let mib = plan.file_mib;
    let title = format!("One file of {mib} MiB, local disk to local disk over loopback");
    report.suite(SUITE, &title, "Gbit/s", true);
    let source = lab.fresh("file-source")?.join("big");
    make(&source, mib)?;
    let environment: Vec<(&str, String)> = lab
        .environment()
        .iter()
        .map(|(name, path)| (*name, path.to_string_lossy().into_owned()))
        .collect();
    let environment: Vec<(&str, &str)> =
        environment.iter().map(|(name, path)| (*name, path.as_str())).collect();
    let sshd = Sshd::start(&lab.fresh("sshd")?, &environment)?;
    let pair = Pair::new()?;
    let baseline = lab.of_baseline();
    let (mut peaks, mut baseline_peaks) = ([0u64; 2], [0u64; 2]);
    for round in 0..plan.runs {
        report.add(SUITE, "packtrain cp (over ssh, auto)", round, {
            let target = lab.fresh("file-target")?;
            copy(lab, &sshd, &source, &target, "auto", &mut peaks)
                .and_then(|seconds| whole(&target, mib, seconds))
        });
        if let Some(baseline) = &baseline {
            let target = lab.fresh("file-target")?;
            let copied = copy(baseline, &sshd, &source, &target, "auto", &mut baseline_peaks)
                .and_then(|seconds| whole(&target, mib, seconds));
            report.add(SUITE, "baseline: packtrain cp (over ssh, auto)", round, copied);
        }
        report.add(SUITE, "packtrain perf native (memory)", round, {
            raw::packtrain(lab, &pair, "native", None, plan.seconds).map(|bps| bps / 1e9)
        });
        report.add(SUITE, "the disk: write and fdatasync", round, {
            let target = lab.fresh("file-target")?.join("plain");
            write_plain(&source, &target).map(|s| gbps(mib, s))
        });
        report.add(SUITE, "rsync over ssh", round, {
            let target = lab.fresh("file-target")?;
            rsync(&sshd, &source, &target).and_then(|seconds| whole(&target, mib, seconds))
        });
    }
    report.remark(
        SUITE,
        format!(
            "Peak resident memory of packtrain cp: caller {} MiB, other end {} MiB.",
            peaks[0] >> 10,
            peaks[1] >> 10
        ),
    );
    report.remark(
        SUITE,
        "packtrain cp ends when the data is synced to disk; rsync does not sync.".to_owned(),
    );
    lab.fresh("file-target")?;
    lab.fresh("file-source").map(drop)
}

/// The rate, if the file arrived with its full length.
fn whole(target: &Path, mib: u64, seconds: f64) -> Result<f64> {
    let size = fs::metadata(target.join("big"))?.len();
    if size != mib << 20 {
        bail!("{size} bytes arrived");
    }
    Ok(gbps(mib, seconds))
}

/// Copies with the product and returns the duration in seconds. `peaks` are in KiB.
pub(super) fn copy(
    lab: &Lab,
    sshd: &Sshd,
    source: &Path,
    target: &Path,
    transport: &str,
    peaks: &mut [u64; 2],
) -> Result<f64> {
    let mut command = sh::command(&lab.packtrain.to_string_lossy(), ["cp", "-r", "-q"]);
    command.args(["--transport", transport, "-e", &sshd.ssh(), "--remote-path"]);
    command.arg(&lab.packtrain).arg(source);
    command.arg(format!("{HOST}:{}/", target.display())).envs(lab.environment());
    let stop = Arc::new(AtomicBool::new(false));
    let watch = watch(lab.packtrain.clone(), Arc::clone(&stop));
    let start = Instant::now();
    let done = run_for(&mut command, Duration::from_secs(900));
    let seconds = start.elapsed().as_secs_f64();
    stop.store(true, Ordering::Relaxed);
    if let Ok(seen) = watch.join() {
        peaks[0] = peaks[0].max(seen[0]);
        peaks[1] = peaks[1].max(seen[1]);
    }
    done.map(|_| seconds)
}

/// How often the memory of the processes is read, and how often new processes are looked for. The
/// others are not watched, so looking at all processes may take no time that counts.
const WATCH_EVERY: Duration = Duration::from_millis(20);
const LOOK_EVERY: u32 = 15;

/// Watches every process that runs `program`: memory peaks of this process's children and of the
/// others.
fn watch(program: PathBuf, stop: Arc<AtomicBool>) -> std::thread::JoinHandle<[u64; 2]> {
    std::thread::spawn(move || {
        let me = std::process::id().to_string();
        let (mut peaks, mut found) = ([0, 0], Vec::new());
        for turn in 1.. {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            std::thread::sleep(WATCH_EVERY);
            if turn % LOOK_EVERY == 0 {
                let all = fs::read_dir("/proc").into_iter().flatten().flatten();
                let runs =
                    |dir: &PathBuf| fs::read_link(dir.join("exe")).is_ok_and(|exe| exe == program);
                found = all.map(|entry| entry.path()).filter(runs).collect();
            }
            for dir in &found {
                let status = fs::read_to_string(dir.join("status")).unwrap_or_default();
                let field = |name: &str| {
                    status
                        .lines()
                        .find_map(|line| line.strip_prefix(name)?.split_whitespace().next())
                };
                let peak = field("VmHWM:").and_then(|kib| kib.parse().ok()).unwrap_or(0u64);
                let which = usize::from(field("PPid:") != Some(me.as_str()));
                peaks[which] = peaks[which].max(peak);
            }
        }
        peaks
    })
}

fn rsync(sshd: &Sshd, source: &Path, target: &Path) -> Result<f64> {
    let mut command = sh::command("rsync", ["-a", "-e", &sshd.ssh()]);
    command.arg(source).arg(format!("{HOST}:{}/", target.display()));
    let start = Instant::now();
    run_for(&mut command, Duration::from_secs(900))?;
    Ok(start.elapsed().as_secs_f64())
}

/// Writes the same bytes directly, and syncs them.
fn write_plain(source: &Path, target: &Path) -> Result<f64> {
    let mut from = File::open(source)?;
    let mut to = File::create(target)?;
    let mut block = vec![0; BLOCK];
    let start = Instant::now();
    loop {
        let got = std::io::Read::read(&mut from, &mut block)?;
        if got == 0 {
            break;
        }
        to.write_all(&block[..got])?;
    }
    to.sync_data()?;
    Ok(start.elapsed().as_secs_f64())
}

/// Writes a file that cannot be compressed and has no holes.
pub(super) fn make(path: &Path, mib: u64) -> Result<()> {
    let mut out = BufWriter::with_capacity(BLOCK, File::create(path)?);
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut block = vec![0u8; BLOCK];
    for _ in 0..mib {
        for word in block.chunks_exact_mut(8) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            word.copy_from_slice(&state.to_le_bytes());
        }
        out.write_all(&block)?;
    }
    out.into_inner().map_err(std::io::IntoInnerError::into_error)?.sync_data()?;
    Ok(())
}

#[allow(clippy::cast_precision_loss)]
fn gbps(mib: u64, seconds: f64) -> f64 {
    (mib << 20) as f64 * 8.0 / seconds / 1e9
}
