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

/// Makes `command` start its program in a session of its own, without a terminal. Neither the program
/// nor what it starts can then ask anything at the terminal, and its process id is that of the group.
pub fn start_without_terminal(command: &mut Command) {
    sys::start_without_terminal(command);
}
