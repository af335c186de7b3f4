//! Programs that packtrain starts.

#[allow(unsafe_code)]
mod sys;

use std::process::Command;

/// A signal that the terminal sends to every process of the foreground group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TerminalSignal {
    /// SIGINT: Ctrl-C.
    Interrupt,
    /// SIGHUP: the terminal is closed.
    HangUp,
}

/// Makes `command` start its program with these signals ignored. The setting survives `exec`.
/// Programs that check it, as OpenSSH does, leave the signals ignored.
pub fn ignore_in_child(command: &mut Command, signals: &'static [TerminalSignal]) {
    sys::ignore_in_child(command, signals);
}
