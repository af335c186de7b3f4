//! The step between `fork` and `exec`, and the look at standard output before `main`, for which the
//! standard library has no safe method.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use super::TerminalSignal;

/// Whether descriptor 1 was closed when the program started.
static STDOUT_CLOSED: AtomicBool = AtomicBool::new(false);

/// Runs before `main`, because the standard library opens /dev/null there for what is closed.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK_AT_STDOUT: extern "C" fn() = look_at_stdout;

extern "C" fn look_at_stdout() {
    // SAFETY: fcntl(2) with F_GETFD takes any number and changes nothing.
    let closed = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) } == -1;
    STDOUT_CLOSED.store(closed, Ordering::Relaxed);
}

pub(super) fn stdout_was_closed() -> bool {
    STDOUT_CLOSED.load(Ordering::Relaxed)
}

pub(super) fn ignore_in_child(command: &mut Command, signals: &'static [TerminalSignal]) {
    let ignore = move || {
        for signal in signals {
            let number = match signal {
                TerminalSignal::Interrupt => libc::SIGINT,
                TerminalSignal::HangUp => libc::SIGHUP,
            };
            // SAFETY: signal(2) is async-signal-safe; the numbers are valid and SIG_IGN is not a
            // function of this program.
            if unsafe { libc::signal(number, libc::SIG_IGN) } == libc::SIG_ERR {
                return Err(std::io::Error::last_os_error());
            }
        }
        Ok(())
    };
    // SAFETY: between fork and exec the closure calls signal(2) alone: it takes no lock and
    // allocates nothing.
    unsafe { command.pre_exec(ignore) };
}

pub(super) fn start_without_terminal(command: &mut Command) {
    let leave = || {
        // SAFETY: setsid(2) is async-signal-safe and takes no arguments.
        if unsafe { libc::setsid() } == -1 { Err(std::io::Error::last_os_error()) } else { Ok(()) }
    };
    // SAFETY: between fork and exec the closure calls setsid(2) alone: it takes no lock and allocates
    // nothing.
    unsafe { command.pre_exec(leave) };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ignored(command: &mut Command) -> u64 {
        let shown = command.output().unwrap();
        let text = String::from_utf8(shown.stdout).unwrap();
        let mask = text.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
        // The C library uses the two signals above these.
        u64::from_str_radix(mask.trim(), 16).unwrap() & 0x7fff_ffff
    }

    #[test]
    fn a_program_without_a_terminal_leads_its_session() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo $$; cut -d' ' -f5,6,7 /proc/$$/stat"]);
        start_without_terminal(&mut command);
        let text = String::from_utf8(command.output().unwrap().stdout).unwrap();
        let (id, rest) = text.trim().split_once('\n').unwrap();
        assert_eq!(rest, format!("{id} {id} 0"), "group, session, and no terminal");
    }

    #[test]
    fn the_started_program_ignores_them_and_this_one_does_not() {
        let bit = |number: i32| 1 << (number - 1);
        let wanted = bit(libc::SIGINT) | bit(libc::SIGHUP);
        let mut command = Command::new("cat");
        command.arg("/proc/self/status");
        let before = ignored(&mut command);
        ignore_in_child(&mut command, &[TerminalSignal::Interrupt, TerminalSignal::HangUp]);
        assert_eq!(ignored(&mut command), before | wanted);
        let mut plain = Command::new("cat");
        assert_eq!(ignored(plain.arg("/proc/self/status")), before);
    }
}
