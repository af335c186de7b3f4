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

/// Raises this process's limit of open files to what the system allows it. Servers call this, since
/// each connection takes descriptors.
pub fn raise_open_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    // If that fails, fewer sessions are possible: further connections wait for `accept`.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// Whether this program was started without a standard output (`>&-`). What it writes there is lost,
/// and no write fails: the standard library opens /dev/null in its place.
pub fn stdout_was_closed() -> bool {
    sys::stdout_was_closed()
}

/// The standard output, or an error if this program was started without one.
pub fn stdout() -> std::io::Result<std::io::Stdout> {
    if stdout_was_closed() {
        return Err(rustix::io::Errno::BADF.into());
    }
    Ok(std::io::stdout())
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

#[cfg(test)]
mod tests {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    #[test]
    fn a_lowered_limit_of_open_files_is_raised() {
        let before = getrlimit(Resource::Nofile);
        let low = before.maximum.map_or(512, |most| most.min(512));
        setrlimit(Resource::Nofile, Rlimit { current: Some(low), ..before }).expect("lower");
        super::raise_open_files();
        let after = getrlimit(Resource::Nofile);
        assert_eq!(after.current, before.maximum, "the limit was {low}");
    }
}
