//! One run over a topology of `packtrain emulate`, with what the machine did meanwhile.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::lab::{Lab, last_json, wait};
use super::noise::{Noise, Watch};
use crate::sh;

/// The commands of a run. Both ends have the variable `$OUT`, the path of a file in an empty
/// folder.
pub(super) struct Commands<'a> {
    /// A scenario file with the host `near` and others.
    pub(super) topology: &'a str,
    /// The number of the round. Everything random on the path comes from it.
    pub(super) seed: usize,
    /// Shell commands to start on other hosts.
    pub(super) started: &'a [(&'a str, String)],
    /// The command on `near`, whose end is the end of the run.
    pub(super) near: &'a str,
    /// Further variables of both ends.
    pub(super) variables: &'a [(&'a str, String)],
    pub(super) timeout: Duration,
}

/// A run that has ended.
pub(super) struct Ended {
    /// The value of `$OUT`.
    pub(super) out: PathBuf,
    pub(super) noise: Noise,
    /// The emulator's counters of the two directions.
    pub(super) links: Value,
}

impl Ended {
    /// What the programs wrote to `$OUT`.
    pub(super) fn text(&self) -> Result<String> {
        fs::read_to_string(&self.out).context("the program wrote no result")
    }
}

/// Runs the commands in the folder `place`, which is emptied first.
///
/// # Errors
/// A command fails or takes longer than the timeout. The noise of the run is returned with the
/// error where it is known.
pub(super) fn run(
    lab: &Lab,
    place: &str,
    commands: &Commands<'_>,
) -> std::result::Result<Ended, Failed> {
    let dir = lab.fresh(place)?;
    let file = dir.join("path.toml");
    let topology = format!("seed = {}\n\n{}", commands.seed + 1, commands.topology);
    fs::write(&file, topology).map_err(anyhow::Error::from)?;
    let watch = Watch::start();
    let emulated = emulate(lab, &dir, &file, commands);
    let mut noise = watch.stop();
    let emulation = match emulated {
        Ok(emulation) => emulation,
        Err(error) => return Err(Failed { error, noise: Some(noise) }),
    };
    noise.add_emulator(&emulation);
    if emulation["command_exit_code"] != 0 {
        let error = anyhow::anyhow!(
            "it failed with exit code {}{}",
            emulation["command_exit_code"],
            last_words(&dir)
        );
        return Err(Failed { error, noise: Some(noise) });
    }
    Ok(Ended { out: dir.join("out"), noise, links: links(&emulation) })
}

/// A run that has failed.
pub(super) struct Failed {
    pub(super) error: anyhow::Error,
    pub(super) noise: Option<Noise>,
}

impl<E: Into<anyhow::Error>> From<E> for Failed {
    fn from(error: E) -> Self {
        Self { error: error.into(), noise: None }
    }
}

fn emulate(lab: &Lab, dir: &Path, topology: &Path, commands: &Commands<'_>) -> Result<Value> {
    let text = dir.join("emulate.out");
    let mut emulate = sh::command(&lab.packtrain.to_string_lossy(), ["emulate", "--topology"]);
    emulate.arg(topology).args(["--best-effort", "--json", "--on", "near"]);
    for (host, command) in commands.started {
        emulate.args(["--start", &format!("{host}={command}")]);
    }
    emulate.args(["--", "sh", "-c", commands.near]);
    emulate.env("OUT", dir.join("out")).envs(lab.environment());
    emulate.envs(commands.variables.iter().map(|(name, value)| (name, value)));
    // The last line of a failed program is its message, not the end of its stack.
    emulate.env("RUST_BACKTRACE", "0");
    emulate.stdin(Stdio::null()).stdout(File::create(&text)?);
    emulate.stderr(File::create(dir.join("emulate.err"))?);
    let mut child = emulate.spawn().context("starting packtrain emulate")?;
    wait(&mut child, commands.timeout)?;
    let text = fs::read_to_string(&text)?;
    let report = last_json(&text).with_context(|| format!("no report{}", last_words(dir)))?;
    if let Some(error) = report["error"].as_str() {
        bail!("packtrain emulate: {error}");
    }
    Ok(report)
}

/// The last line of stderr that is not the emulator's own summary.
fn last_words(dir: &Path) -> String {
    let text = fs::read_to_string(dir.join("emulate.err")).unwrap_or_default();
    message(&text).map_or_else(String::new, |line| format!(": {line}"))
}

fn message(text: &str) -> Option<&str> {
    let own = ["packtrain: wan", "packtrain: emulator"];
    let lines = text.lines().rev().map(str::trim);
    lines.into_iter().find(|line| !line.is_empty() && !own.iter().any(|own| line.starts_with(own)))
}

/// The counters of each direction that a reader of the results needs.
fn links(emulation: &Value) -> Value {
    let links = emulation["links"].as_array().into_iter().flatten();
    let kept = links.map(|link| {
        json!({
            "name": link["name"], "offered": link["offered"], "delivered": link["delivered"],
            "dropped": link["dropped"], "throughput_bps": link["throughput_bps"],
            "longest_queue_seconds": link["longest_queue_seconds"],
        })
    });
    Value::Array(kept.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_of_a_program_is_found_before_the_summary() {
        let text = "Error: lost\n\n  too many gaps\npacktrain: wan: 74 Mbit/s\n\
                    packtrain: wan': 2 Mbit/s\npacktrain: emulator: deliveries 35us late\n";
        assert_eq!(message(text), Some("too many gaps"));
        assert_eq!(message("packtrain: wan: 74 Mbit/s\n"), None);
    }

    #[test]
    fn counters_of_both_directions_are_kept() {
        let report = json!({"links": [{"name": "wan", "offered": 3, "delivered": 2, "other": 1},
                                      {"name": "wan'", "offered": 1}]});
        let links = links(&report);
        assert_eq!(links[0]["delivered"], 2);
        assert_eq!(links[1]["name"], "wan'");
        assert!(links[0].get("other").is_none());
    }
}
