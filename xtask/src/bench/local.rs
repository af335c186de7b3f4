//! One file from one place of this machine to another: the product beside coreutils and rsync.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::lab::{Lab, run_for};
use super::report::Report;
use super::{Plan, file};
use crate::sh;

const MEMORY: &str = "local, memory";
const DISK: &str = "local, disk";
/// Where files are in memory.
const SHM: &str = "/dev/shm";
const LONGEST: Duration = Duration::from_secs(900);

/// The suite in memory, then on the disk of the lab.
pub(super) fn run(lab: &Lab, plan: &Plan, report: &mut Report) -> Result<()> {
    let name = format!("packtrain-bench-{}", std::process::id());
    let memory = Folder(Path::new(SHM).join(name));
    fs::create_dir(&memory.0).with_context(|| format!("making {}", memory.0.display()))?;
    in_folder(lab, plan, report, (MEMORY, "in /dev/shm", &memory.0))?;
    drop(memory);
    let disk = Folder(lab.fresh("local")?);
    in_folder(lab, plan, report, (DISK, "on the disk", &disk.0))
}

/// A folder that is removed when it goes out of sight.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn in_folder(
    lab: &Lab,
    plan: &Plan,
    report: &mut Report,
    (suite, place, folder): (&'static str, &str, &Path),
) -> Result<()> {
    // Source and target are in memory together.
    let mib = plan.file_mib / 2;
    report.suite(suite, &format!("One file of {mib} MiB {place} copied beside it"), "s", false);
    let (source, target) = (folder.join("source"), folder.join("target"));
    file::make(&source, mib)?;
    let environment = lab.environment();
    let packtrain = |program: &Path| {
        let mut command = sh::command(&program.to_string_lossy(), ["cp", "-q"]);
        command.arg(&source).arg(&target).envs(environment.clone());
        command
    };
    let shell = |line: &str| {
        let mut command = sh::command("sh", ["-c", line]);
        command.arg(&source).arg(&target);
        command
    };
    for round in 0..plan.runs {
        let mut measure = |name: &str, mut command: Command| {
            if plan.wants(name) {
                report.add(suite, name, round, timed(&mut command, &target, mib));
            }
        };
        measure("packtrain cp (verifies and syncs)", packtrain(&lab.packtrain));
        if let Some(baseline) = lab.of_baseline() {
            measure("baseline: packtrain cp", packtrain(&baseline.packtrain));
        }
        measure("coreutils cp", shell("exec cp \"$0\" \"$1\""));
        measure("coreutils cp, sync", shell("cp \"$0\" \"$1\" && sync \"$1\""));
        let both = "cp \"$0\" \"$1\" && sync \"$1\" && cmp \"$0\" \"$1\"";
        measure("coreutils cp, sync, cmp", shell(both));
        measure("rsync -a", shell("exec rsync -a \"$0\" \"$1\""));
    }
    report.remark(suite, "The source is in the page cache; the target does not exist.".to_owned());
    Ok(())
}

/// Seconds to make `target` of `mib` MiB.
fn timed(command: &mut Command, target: &Path, mib: u64) -> Result<f64> {
    if target.exists() {
        fs::remove_file(target)?;
    }
    // What an earlier program left to be written is not part of this one's time.
    sh::run(&mut sh::command("sync", [] as [&str; 0]))?;
    let start = Instant::now();
    run_for(command, LONGEST)?;
    let seconds = start.elapsed().as_secs_f64();
    let size = fs::metadata(target)?.len();
    if size != mib << 20 {
        bail!("{size} bytes arrived");
    }
    Ok(seconds)
}
