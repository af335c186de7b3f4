//! `demo`: what scp cannot, on real files, between two processes of this machine.
//!
//! It makes a tree (one file of 1 GiB, 5,000 small ones, a sparse one), starts a receiver as a
//! process of its own, copies, kills the receiver at 40 %, flips a byte of what is on disk, runs
//! the very command that the interrupted copy printed, and compares both trees. No root, no
//! network but loopback, nothing left behind.

mod files;
mod steps;
pub mod to;
pub mod wan;

use std::io::Write;
use std::path::PathBuf;

use packtrain_os::{clock, entropy};
use packtrain_transfer::FailureKind;

use packtrain_service::{RequestError, StopHandle};

/// Runs the demo; prints what it does to standard output.
///
/// # Errors
/// Anything that differs at the end, or kept it from getting there.
pub fn run() -> Result<(), RequestError> {
    let begun = clock::now();
    let place = Place::new()?;
    say(&format!(
        "packtrain demo: up to 2.3 GiB of disk in {} for a minute (set TMPDIR for another place)",
        place.0.display()
    ));
    files::check_room(&place.0)?;
    let source = place.0.join("source");
    say("1. making files: one of 1 GiB, 5,000 small ones, a sparse one of 256 MiB");
    files::make(&source)?;
    let mut steps = steps::Steps::new(&place.0)?;
    say("2. copying to a second process (encrypted, over loopback), and killing it at 40 %");
    let resume = steps.interrupted()?;
    say(&format!("   the copy says how to go on:\n     {}", resume.join(" ")));
    say("3. flipping one byte of what the dead receiver had safe on disk");
    steps.flip()?;
    say("4. starting the receiver again, and running that command");
    let done = steps.resumed(&resume)?;
    say(&format!(
        "   resumed: {} found safe, {} moved; moved again: {} chunk{}",
        done.resumed,
        done.moved,
        done.again,
        if done.again == 1 { "" } else { "s" }
    ));
    say("5. comparing both trees");
    let (here, there) = (files::digest(&source)?, files::digest(&place.0.join("target/source"))?);
    say(&format!("   source {here}\n   target {there}"));
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
    say(&format!("equal, after {took:.0} s. Now your own files, with ssh access to HOST:"));
    say("  packtrain cp -r DIR HOST:DIR");
    Ok(())
}

fn say(text: &str) {
    let mut out = std::io::stdout().lock();
    // A reader who has gone away does not change what is done.
    let _ = writeln!(out, "{text}");
    let _ = out.flush();
}

/// The demo's directory; gone when it is dropped.
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
        // What cannot be removed is in the system's temporary directory and named after us.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Makes `command` run with places of the demo's own: keys, tickets and state lie below `dir`, and
/// the user's variables for options do not count.
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

/// An error once the user has asked for the end, so that everything the demo made is put away.
fn go_on(stop: &StopHandle) -> Result<(), RequestError> {
    if stop.requested().is_none() {
        return Ok(());
    }
    Err(RequestError::new(FailureKind::Cancelled, "stopped; nothing was left behind"))
}

fn failed(what: &str) -> impl Fn(std::io::Error) -> RequestError + '_ {
    move |e| RequestError::new(FailureKind::Fatal, format!("{what}: {e}"))
}
