//! Colours of messages, on a terminal and on a pipe.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};

use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::common::{Home, stderr};

/// What decides on colours; the test starts without any of it.
const VARIABLES: [&str; 5] = ["NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "TERM", "CI"];

/// A command that fails with one message.
fn failing(home: &Home, settings: &[(&str, &str)]) -> Command {
    let mut command = home.command();
    command.args(["cp", "missing", "there"]);
    for name in VARIABLES {
        command.env_remove(name);
    }
    command.envs(settings.iter().copied());
    command
}

/// Its stderr on a terminal.
fn on_terminal(home: &Home, settings: &[(&str, &str)]) -> String {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
    grantpt(&master).expect("ours");
    unlockpt(&master).expect("ours");
    let name = ptsname(&master, Vec::new()).expect("a name");
    let open = OFlags::RDWR | OFlags::NOCTTY;
    let terminal: OwnedFd = rustix::fs::open(name, open, Mode::empty()).expect("ours");
    let mut command = failing(home, settings);
    command.stdout(Stdio::null()).stderr(terminal);
    let mut child = command.spawn().expect("it starts");
    // Keeps the last other end of the terminal; without it reading would not end.
    drop(command);
    let mut text = Vec::new();
    // The kernel reports the end as an error.
    let _ = File::from(master).read_to_end(&mut text);
    child.wait().expect("it ends");
    String::from_utf8_lossy(&text).into_owned()
}

fn on_pipe(home: &Home, settings: &[(&str, &str)]) -> String {
    stderr(&failing(home, settings).output().expect("it starts"))
}

const COLOURED: &str = "\x1b[1;31mpacktrain:\x1b[0m ";

#[test]
fn colours_follow_the_terminal_and_the_variables() {
    let home = Home::new();
    let xterm = ("TERM", "xterm-256color");
    for (settings, coloured) in [
        (&[xterm][..], true),
        (&[("TERM", "dumb")], false),
        (&[xterm, ("NO_COLOR", "1")], false),
        (&[xterm, ("NO_COLOR", "")], true),
        (&[xterm, ("CLICOLOR", "0")], false),
        (&[xterm, ("CLICOLOR", "1")], true),
        (&[("TERM", "dumb"), ("CLICOLOR_FORCE", "1")], true),
    ] {
        let text = on_terminal(&home, settings);
        assert!(text.contains("packtrain:"), "{settings:?}: {text:?}");
        assert_eq!(text.contains(COLOURED), coloured, "{settings:?}: {text:?}");
        assert_eq!(text.contains('\x1b'), coloured, "{settings:?}: {text:?}");
    }
}

#[test]
fn a_pipe_has_colours_only_by_force() {
    let home = Home::new();
    let xterm = ("TERM", "xterm-256color");
    for (settings, coloured) in [
        (&[xterm][..], false),
        (&[xterm, ("CLICOLOR", "1")], false),
        (&[xterm, ("CLICOLOR_FORCE", "1")], true),
        (&[xterm, ("CLICOLOR_FORCE", "")], false),
    ] {
        let text = on_pipe(&home, settings);
        assert_eq!(text.contains(COLOURED), coloured, "{settings:?}: {text:?}");
        assert_eq!(text.contains('\x1b'), coloured, "{settings:?}: {text:?}");
    }
}
