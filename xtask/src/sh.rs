//! Runs other programs and finds the repository.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// The top of the repository.
pub(crate) fn root() -> PathBuf {
    let here = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    here.parent().map(PathBuf::from).unwrap_or(here)
}

/// Cargo's target directory.
pub(crate) fn target_dir() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// The cargo that runs this program.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}

/// Cargo's metadata of the crates of the workspace, without dependencies.
pub(crate) fn metadata() -> Result<serde_json::Value> {
    let text = capture(cargo().args(["metadata", "--format-version=1", "--no-deps"]))?;
    serde_json::from_str(&text).context("cargo metadata")
}

/// A program with arguments.
pub(crate) fn command<I, A>(program: &str, args: I) -> Command
where
    I: IntoIterator<Item = A>,
    A: AsRef<std::ffi::OsStr>,
{
    let mut command = Command::new(program);
    command.args(args);
    command
}

/// Prints and runs a program, and fails if it fails.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    eprintln!("$ {}", shown(command));
    run_quiet(command)
}

/// Runs a program without printing it, and fails if it fails.
pub(crate) fn run_quiet(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("running {}", shown(command)))?;
    if !status.success() {
        bail!("`{}` ended with {status}", shown(command));
    }
    Ok(())
}

/// Runs a program quietly and returns its stdout; its stderr is part of the error.
pub(crate) fn capture(command: &mut Command) -> Result<String> {
    let out = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("running {}", shown(command)))?;
    if !out.status.success() {
        bail!(
            "`{}` ended with {}\n{}",
            shown(command),
            out.status,
            String::from_utf8_lossy(&out.stderr)
        );
    }
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}

/// Whether a program runs with success. Its output is discarded.
pub(crate) fn works(program: &str, args: &[&str]) -> bool {
    command(program, args)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// The path of a program; directories of system programs are searched too.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin", "/usr/local/sbin"].map(PathBuf::from))
        .map(|dir| dir.join(program))
        .find(|file| file.is_file())
}

/// Whether this process is root.
pub(crate) fn is_root() -> bool {
    capture(&mut command("id", ["-u"])).is_ok_and(|id| id.trim() == "0")
}

/// Every tracked or untracked, not ignored file of the repository, relative to its top.
pub(crate) fn files() -> Result<Vec<PathBuf>> {
    let mut git = command("git", ["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
    let list = capture(git.current_dir(root()))?;
    let mut files: Vec<PathBuf> =
        list.split('\0').filter(|name| !name.is_empty()).map(PathBuf::from).collect();
    files.retain(|file| root().join(file).is_file());
    files.sort();
    files.dedup();
    Ok(files)
}

fn shown(command: &Command) -> String {
    let mut text = command.get_program().to_string_lossy().into_owned();
    for arg in command.get_args() {
        text.push(' ');
        text.push_str(&arg.to_string_lossy());
    }
    text
}
