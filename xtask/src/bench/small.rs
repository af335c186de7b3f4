//! Many small files over the same ssh: the costs of round trips and syncs per file.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::lab::{Lab, run_for};
use super::report::Report;
use super::{Plan, file};
use crate::sh;
use crate::sshd::{HOST, Sshd};

const SUITE: &str = "small";
const SIZE: usize = 4096;
const PER_FOLDER: u32 = 500;
const TIMEOUT: Duration = Duration::from_secs(900);

/// Runs `packtrain cp`, rsync and tar in turn, each into an empty folder.
pub(super) fn run(lab: &Lab, plan: &Plan, report: &mut Report) -> Result<()> {
    let files = plan.small_files;
    let title = format!("{files} files of {SIZE} bytes over ssh on loopback");
    report.suite(SUITE, &title, "s", false);
    let source = lab.fresh("small-source")?;
    make(&source, files)?;
    let state = lab.dir.join("state");
    let config = lab.dir.join("config");
    let environment = [
        ("XDG_STATE_HOME", state.to_string_lossy()),
        ("XDG_CONFIG_HOME", config.to_string_lossy()),
    ];
    let environment: Vec<(&str, &str)> =
        environment.iter().map(|(name, value)| (*name, value.as_ref())).collect();
    let sshd = Sshd::start(&lab.fresh("sshd")?, &environment)?;
    let baseline = lab.of_baseline();
    let (mut peaks, mut baseline_peaks) = ([0, 0], [0, 0]);
    for round in 0..plan.runs {
        let whole = |seconds: Result<f64>| -> Result<f64> {
            let seconds = seconds?;
            let there = count(&lab.dir.join("small-target"))?;
            if there != files {
                bail!("{there} of {files} files arrived");
            }
            Ok(seconds)
        };
        for (name, transport) in
            [("packtrain cp (auto)", "auto"), ("packtrain cp (ssh pipe only)", "pipe")]
        {
            if plan.wants(name) {
                let target = lab.fresh("small-target")?;
                let took = file::copy(lab, &sshd, &source, &target, transport, &mut peaks);
                report.add(SUITE, name, round, whole(took));
            }
            if let Some(baseline) = baseline.as_ref().filter(|_| plan.wants(name)) {
                let target = lab.fresh("small-target")?;
                let took =
                    file::copy(baseline, &sshd, &source, &target, transport, &mut baseline_peaks);
                report.add(SUITE, &format!("baseline: {name}"), round, whole(took));
            }
        }
        if plan.wants("rsync -a") {
            lab.fresh("small-target")?;
            report.add(SUITE, "rsync -a", round, whole(rsync(lab, &sshd, &source)));
        }
        if plan.wants("tar into ssh tar") {
            lab.fresh("small-target")?;
            report.add(SUITE, "tar into ssh tar", round, whole(tar(lab, &sshd, &source)));
        }
    }
    report.remark(
        SUITE,
        format!(
            "packtrain cp ends when all is durable; rsync and tar do not sync. \
             Peak resident memory of packtrain: caller {} MiB, other end {} MiB.",
            peaks[0] >> 10,
            peaks[1] >> 10
        ),
    );
    lab.fresh("small-target")?;
    lab.fresh("small-source").map(drop)
}

fn rsync(lab: &Lab, sshd: &Sshd, source: &Path) -> Result<f64> {
    let mut command = sh::command("rsync", ["-a", "-e", &sshd.ssh()]);
    command.arg(source).arg(format!("{HOST}:{}/", lab.dir.join("small-target").display()));
    timed(&mut command)
}

fn tar(lab: &Lab, sshd: &Sshd, source: &Path) -> Result<f64> {
    let line = format!(
        "tar -C '{}' -cf - . | {} {HOST} \"tar -C '{}' -xf -\"",
        source.display(),
        sshd.ssh(),
        lab.dir.join("small-target").display()
    );
    timed(&mut sh::command("bash", ["-o", "pipefail", "-c", &line]))
}

fn timed(command: &mut std::process::Command) -> Result<f64> {
    let start = Instant::now();
    run_for(command, TIMEOUT)?;
    Ok(start.elapsed().as_secs_f64())
}

fn make(dir: &Path, files: u32) -> Result<()> {
    for index in 0..files {
        let folder = dir.join(format!("d{:04}", index / PER_FOLDER));
        if index % PER_FOLDER == 0 {
            fs::create_dir(&folder)?;
        }
        let seed = u64::from(index).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
        fs::write(folder.join(format!("f{index:06}")), seed.repeat(SIZE / 8))?;
    }
    // Writes of the preparation must not run during the first measurement.
    sh::run(&mut sh::command("sync", [] as [&str; 0]))
}

fn count(dir: &Path) -> Result<u32> {
    let mut files = 0;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            files += count(&entry.path())?;
        } else {
            files += 1;
        }
    }
    Ok(files)
}
