//! `demo`: a copy that is interrupted and damaged, on real files, between two processes of this
//! machine.
//!
//! It creates a tree (one file of 1 GiB, 5,000 small ones, a sparse one), starts a receiver as a
//! process of its own, copies, kills the receiver at 40 %, flips a byte of the data on the disk,
//! runs the command that the interrupted copy printed, and compares both trees. It needs no root
//! and only the loopback network, and removes all its files.

mod files;
mod steps;
pub mod to;
pub mod wan;

use std::io::Write;
use std::path::PathBuf;

use packtrain_os::{clock, entropy};
use packtrain_transfer::FailureKind;

use packtrain_service::{RequestError, StopHandle};

/// Runs the demo and prints its steps to standard output.
///
/// # Errors
/// The trees differ at the end, or a step failed.
pub fn run() -> Result<(), RequestError> {
    let begun = clock::now();
    let place = Place::new()?;
    print_line(&format!(
        "packtrain demo: up to 2.3 GiB of disk in {} for a minute (set TMPDIR for another place)",
        place.0.display()
    ));
    files::check_room(&place.0)?;
    let source = place.0.join("source");
    print_line("1. making files: one of 1 GiB, 5,000 small ones, a sparse one of 256 MiB");
    files::make(&source)?;
    let mut steps = steps::Steps::new(&place.0)?;
    print_line("2. copying to a second process (encrypted, over loopback), and killing it at 40 %");
    let resume = steps.interrupted()?;
    print_line(&format!("   the copy prints the command that resumes:\n     {}", resume.join(" ")));
    print_line("3. flipping one byte of what the dead receiver had safe on disk");
    steps.flip()?;
    print_line("4. starting the receiver again, and running that command");
    let done = steps.resumed(&resume)?;
    print_line(&format!(
        "   resumed: {} found safe, {} moved; moved again: {} chunk{}",
        done.resumed,
        done.moved,
        done.again,
        if done.again == 1 { "" } else { "s" }
    ));
    print_line("5. comparing both trees");
    let (here, there) = (files::digest(&source)?, files::digest(&place.0.join("target/source"))?);
    print_line(&format!("   source {here}\n   target {there}"));
    if here != there {
        return Err(RequestError::new(
            FailureKind::Integrity,
            "the trees differ: a bug, report it",
        ));
    }
    if done.again == 0 {
        let text = "the flipped byte was not noticed: a bug, report it";
        return Err(RequestError::new(FailureKind::Integrity, text));
    }
    let took = clock::now().since(begun).as_secs_f64();
    print_line(&format!("equal, after {took:.0} s. Now your own files, with ssh access to HOST:"));
    print_line("  packtrain cp -r DIR HOST:DIR");
    Ok(())
}

fn print_line(text: &str) {
    let mut out = std::io::stdout().lock();
    // A closed standard output does not stop the demo.
    let _ = writeln!(out, "{text}");
    let _ = out.flush();
}

/// The demo's directory; removed on drop.
struct Place(PathBuf);

impl Place {
    fn new() -> Result<Self, RequestError> {
        let dir =
            std::env::temp_dir().join(format!("packtrain-demo-{:08x}", entropy::seed() as u32));
        std::fs::create_dir(&dir).map_err(|e| {
            let text = format!("{}: {e}; set TMPDIR to a directory you can write", dir.display());
            RequestError::new(FailureKind::TargetRefused, text)
        })?;
        Ok(Self(dir))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // A directory that cannot be removed stays in the system's temporary directory, with the
        // demo's name.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs `command` with the demo's own keys, tickets and state below `dir`, and without the user's
/// variables for options.
fn own_environment(command: &mut std::process::Command, dir: &std::path::Path) {
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("PACKTRAIN_") {
            command.env_remove(name);
        }
    }
    command
        .env("XDG_CONFIG_HOME", dir.join("config"))
        .env("XDG_STATE_HOME", dir.join("state"))
        .current_dir(dir);
}

/// An error after the user's request to stop, so that the demo removes its files.
fn check_stop(stop: &StopHandle) -> Result<(), RequestError> {
    if stop.requested().is_none() {
        return Ok(());
    }
    Err(RequestError::new(FailureKind::Cancelled, "stopped; nothing was left behind"))
}

fn failed(what: &str) -> impl Fn(std::io::Error) -> RequestError + '_ {
    move |e| RequestError::new(FailureKind::Fatal, format!("{what}: {e}"))
}
