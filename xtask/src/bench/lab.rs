//! The bench's folder, the measured programs and helpers to run them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::sh;

/// The paths of the bench.
pub(super) struct Lab {
    /// Folder for data and configuration; each suite clears its own.
    pub(super) dir: PathBuf,
    /// The product.
    pub(super) packtrain: PathBuf,
    /// An earlier build for comparison, if one was given.
    baseline: Option<PathBuf>,
}

impl Lab {
    /// Creates `dir`, and uses the product built at `binary` and perhaps an earlier build.
    pub(super) fn new(dir: &Path, binary: &Path, baseline: Option<&Path>) -> Result<Self> {
        fs::create_dir_all(dir).with_context(|| format!("making {}", dir.display()))?;
        let dir = dir.canonicalize()?;
        let find = |file: &Path| file.canonicalize().with_context(|| format!("{}", file.display()));
        let baseline = baseline.map(find).transpose()?;
        Ok(Self { dir, packtrain: find(binary)?, baseline })
    }

    /// The same lab with the baseline as the product, if there is one.
    pub(super) fn of_baseline(&self) -> Option<Self> {
        let packtrain = self.baseline.clone()?;
        Some(Self { dir: self.dir.clone(), packtrain, baseline: None })
    }

    /// An empty folder in the lab.
    pub(super) fn fresh(&self, name: &str) -> Result<PathBuf> {
        let dir = self.dir.join(name);
        if dir.exists() {
            fs::remove_dir_all(&dir).with_context(|| format!("emptying {}", dir.display()))?;
        }
        fs::create_dir_all(&dir)?;
        Ok(dir)
    }

    /// The product's environment, with configuration and history in the lab only.
    pub(super) fn environment(&self) -> [(&'static str, PathBuf); 2] {
        [("XDG_CONFIG_HOME", self.dir.join("config")), ("XDG_STATE_HOME", self.dir.join("state"))]
    }

    /// The quinn program, built on first use.
    pub(super) fn quinn(&self) -> Result<PathBuf> {
        let target = self.dir.join("peers");
        let mut build = sh::cargo();
        build.current_dir(sh::root().join("bench/peers/quinn-bulk"));
        build.args(["build", "--release", "--locked", "--quiet"]).env("CARGO_TARGET_DIR", &target);
        sh::run(&mut build)?;
        Ok(target.join("release/quinn-bulk"))
    }

    /// The UDT4 program, built on first use; its library is installed if missing.
    pub(super) fn udt(&self) -> Result<PathBuf> {
        let program = self.dir.join("udt-bulk");
        let source = sh::root().join("bench/peers/udt-bulk/udt-bulk.cpp");
        let build = || {
            let mut gcc = sh::command("g++", ["-O2", "-o"]);
            sh::capture(gcc.arg(&program).arg(&source).arg("-ludt")).map(drop)
        };
        if build().is_err() {
            crate::needs::install(&["libudt-dev"])?;
            build()?;
        }
        Ok(program)
    }
}

/// A background program that is killed on drop.
pub(super) struct Background(Child);

impl Background {
    /// Starts it and keeps its output for [`Background::output`].
    pub(super) fn start(command: &mut Command) -> Result<Self> {
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("starting {command:?}"))?;
        Ok(Self(child))
    }

    /// Processor time of the program and its descendants, and the largest memory peak of one of
    /// them, in bytes.
    pub(super) fn used(&self) -> Result<(Duration, u64)> {
        let mut all = (Duration::ZERO, 0);
        let mut next = vec![self.0.id()];
        while let Some(id) = next.pop() {
            let at = |name: &str| fs::read_to_string(format!("/proc/{id}/{name}"));
            // A process that has ended meanwhile is counted in its parent.
            let (Ok(stat), Ok(status)) = (at("stat"), at("status")) else { continue };
            let fields = stat.rsplit(')').next().unwrap_or_default();
            // User and system time, its own and that of ended children, in hundredths of a second.
            let ticks: u64 = fields
                .split_whitespace()
                .skip(11)
                .take(4)
                .filter_map(|n| n.parse::<u64>().ok())
                .sum();
            all.0 += Duration::from_millis(10 * ticks);
            let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
            let peak = peak.and_then(|text| text.split_whitespace().next()?.parse::<u64>().ok());
            all.1 = all.1.max(peak.unwrap_or(0) << 10);
            let children = at(&format!("task/{id}/children")).unwrap_or_default();
            next.extend(children.split_whitespace().filter_map(|id| id.parse::<u32>().ok()));
        }
        Ok(all)
    }

    /// Waits for its end and returns its stdout.
    pub(super) fn output(mut self, timeout: Duration) -> Result<String> {
        wait(&mut self.0, timeout)?;
        let mut text = String::new();
        if let Some(mut out) = self.0.stdout.take() {
            std::io::Read::read_to_string(&mut out, &mut text)?;
        }
        Ok(text)
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs a program to its end, at most `timeout`, and returns its stdout.
pub(super) fn run_for(command: &mut Command, timeout: Duration) -> Result<String> {
    let out = std::env::temp_dir().join(format!("packtrain-bench-{}.out", std::process::id()));
    let mut child = command
        .stdin(Stdio::null())
        .stdout(fs::File::create(&out)?)
        .stderr(Stdio::inherit())
        .spawn()
        .with_context(|| format!("starting {command:?}"))?;
    let waited = wait(&mut child, timeout);
    let text = fs::read_to_string(&out);
    let _ = fs::remove_file(&out);
    let ok = waited?;
    let text = text?;
    if !ok {
        bail!("{command:?} failed: {}", text.lines().last().unwrap_or_default());
    }
    Ok(text)
}

pub(super) fn wait(child: &mut Child, timeout: Duration) -> Result<bool> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status.success());
        }
        if start.elapsed() > timeout {
            let _ = child.kill();
            let _ = child.wait();
            bail!("cut off: no end after {} s", timeout.as_secs());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Waits until a file exists and is not empty.
pub(super) fn wait_for_file(file: &Path) -> Result<()> {
    for _ in 0..200 {
        if fs::metadata(file).is_ok_and(|found| found.len() > 0) {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    bail!("{} did not appear", file.display())
}

/// The last line of a text of JSON lines.
pub(super) fn last_json(text: &str) -> Result<Value> {
    let line = text.lines().rfind(|line| line.starts_with('{')).context("no JSON line")?;
    serde_json::from_str(line).with_context(|| format!("not JSON: {line}"))
}
