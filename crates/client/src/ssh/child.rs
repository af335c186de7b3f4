//! Starts and ends the ssh program.

use std::io;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use packtrain_os::process::{TerminalSignal, ignore_in_child};
use packtrain_transfer::{Failure, FailureKind};
use parking_lot::Mutex;

use super::refusal::Messages;
use packtrain_runtime::session::Stop;
use packtrain_service::executor::spawn;
use packtrain_service::{SshSettings, StopHandle};

/// How often a request to stop and the end of the program are checked.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// How long ssh may restore the terminal after SIGTERM.
const TERMINATE_TIMEOUT: Duration = Duration::from_secs(1);

/// The user's settings of a host may be for a terminal, and for forwardings that only one connection can
/// have. As with scp, neither is possible, also not by options of the user's command.
const NOT_INTERACTIVE: [&str; 2] = ["-T", "-oClearAllForwardings=yes"];

/// The destination of ssh: `host` or `user@host`, checked.
#[derive(Clone)]
pub struct Target(String);

impl Target {
    /// Refuses names that ssh would parse as an option.
    pub fn new(user: Option<&str>, host: &str) -> Result<Self, Failure> {
        for name in [user.unwrap_or("root"), host] {
            if name.is_empty() || name.starts_with('-') || name.contains('\0') {
                let text = format!("`{name}` is not a host or user name");
                return Err(Failure::new(FailureKind::Usage, text));
            }
        }
        Ok(Self(user.map_or_else(|| host.to_owned(), |user| format!("{user}@{host}"))))
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// The ssh program with its options, the options `more` after the user's own, and the target.
pub fn command(settings: &SshSettings, more: &[&str], target: &Target) -> Result<Command, Failure> {
    let (program, rest) = settings.command.split_first().ok_or_else(|| {
        Failure::new(FailureKind::Usage, "the command for -e is empty: write for example -e ssh")
    })?;
    let mut command = Command::new(program);
    command.args(rest).args(more);
    // Other programs (plink, dbclient) do not support these; their target is checked too.
    if Path::new(program).file_name().is_some_and(|name| name == "ssh") {
        command.args(NOT_INTERACTIVE).arg("--");
    }
    command.arg(&target.0);
    // The terminal sends Ctrl-C to ssh too. The connection must survive it, so that both ends can
    // finish in order. ssh stays in the foreground group, because it may ask for a password.
    ignore_in_child(&mut command, &[TerminalSignal::Interrupt, TerminalSignal::HangUp]);
    Ok(command)
}

/// Formats a script of plain words and double quotes for any login shell: sh, csh and fish agree on
/// words in single quotes without backslash, exclamation mark and newline.
pub fn posix(script: &str) -> String {
    debug_assert!(!script.contains(['\'', '\\', '!', '\n']), "{script}");
    format!("exec sh -c '{script}'")
}

/// A running ssh program.
pub struct Running {
    child: Arc<Mutex<Child>>,
    /// Set when a request to stop must no longer end the program.
    released: Arc<AtomicBool>,
    stop: Stop,
    messages: Messages,
    /// The destination, for messages.
    target: String,
}

impl Running {
    /// Runs `words` at the target. Until it is released, a request to stop ends the program.
    pub fn start(
        settings: &SshSettings,
        target: &Target,
        words: &str,
        stop: &StopHandle,
    ) -> Result<(Self, ChildStdin, ChildStdout), Failure> {
        let mut command = command(settings, &[], target)?;
        command.arg(words);
        let started = Self::spawn(command, stop).map_err(|e| no_ssh(settings, &e));
        started.map(|(mut running, input, output)| {
            running.target = target.to_string();
            (running, input, output)
        })
    }

    /// The same for any program.
    pub fn spawn(
        mut command: Command,
        stop: &StopHandle,
    ) -> io::Result<(Self, ChildStdin, ChildStdout)> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(io::Error::other("it was started without its pipes"));
        };
        let messages = Messages::default();
        if let Some(errors) = child.stderr.take() {
            messages.follow(errors);
        }
        let child = Arc::new(Mutex::new(child));
        let released = Arc::<AtomicBool>::default();
        {
            let (child, released, stop) = (Arc::clone(&child), Arc::clone(&released), stop.clone());
            spawn("ssh-stop", move || {
                while !released.load(Ordering::Relaxed) {
                    if stop.requested().is_some() {
                        return terminate(&child);
                    }
                    std::thread::sleep(POLL_INTERVAL);
                }
            });
        }
        let (stop, target) = (Stop::new(stop.clone()), String::new());
        Ok((Self { child, released, stop, messages, target }, input, output))
    }

    /// Waits for its end; fails if the user requested to stop meanwhile, and if ssh said what
    /// another try cannot mend.
    pub fn wait(self) -> Result<ExitStatus, Failure> {
        loop {
            let ended = self.child.lock().try_wait();
            match (ended, self.stop.asked()) {
                (Ok(Some(_)), Some(wish)) => return Err(wish),
                (Ok(Some(status)), None) => {
                    let refusal = self.messages.refusal(status, &self.target);
                    return refusal.map_or(Ok(status), Err);
                }
                (Ok(None), _) => std::thread::sleep(POLL_INTERVAL),
                (Err(e), _) => {
                    return Err(Failure::new(FailureKind::Fatal, format!("ssh is lost: {e}")));
                }
            }
        }
    }

    /// From now on the transfer itself handles a request to stop.
    pub(crate) fn release(self) -> Arc<Mutex<Child>> {
        Arc::clone(&self.child)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.released.store(true, Ordering::Relaxed);
    }
}

pub(crate) fn no_ssh(settings: &SshSettings, error: &io::Error) -> Failure {
    let program = settings.command.first().map_or("ssh", String::as_str);
    let text = format!("cannot run {program}: {error}; install it or name another with -e");
    Failure::new(FailureKind::Fatal, text)
}

/// Whether it ends by itself within `limit`.
pub(crate) fn ends_within(child: &Mutex<Child>, limit: Duration) -> bool {
    let mut waited = Duration::ZERO;
    while !matches!(child.lock().try_wait(), Ok(Some(_)) | Err(_)) {
        if waited >= limit {
            return false;
        }
        std::thread::sleep(POLL_INTERVAL);
        waited += POLL_INTERVAL;
    }
    true
}

/// Ends it with SIGTERM, after which ssh restores the terminal's echo if it asked for a password.
pub(crate) fn terminate(child: &Mutex<Child>) {
    {
        // The process was not waited for, so its id is still valid.
        let mut child = child.lock();
        let running = matches!(child.try_wait(), Ok(None));
        let pid = rustix::process::Pid::from_raw(child.id().cast_signed());
        if let (true, Some(pid)) = (running, pid) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
    }
    if !ends_within(child, TERMINATE_TIMEOUT) {
        let _ = child.lock().kill();
        ends_within(child, TERMINATE_TIMEOUT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_ssh_would_take_for_options_are_refused() {
        for (user, host) in [
            (None, "-oProxyCommand=x"),
            (Some("-oProxyCommand=x"), "host"),
            (Some("user"), "-x"),
            (None, ""),
            (Some(""), "host"),
        ] {
            let refused = Target::new(user, host).err().unwrap();
            assert_eq!(refused.kind, FailureKind::Usage, "{user:?} {host}");
        }
        assert_eq!(Target::new(Some("a"), "b-c").unwrap().to_string(), "a@b-c");
    }

    #[test]
    fn options_end_before_the_host() {
        let words = |program: &[&str]| {
            let command = program.iter().map(|&word| word.to_owned()).collect();
            let settings = SshSettings { command, ..SshSettings::default() };
            let target = Target::new(None, "host").unwrap();
            let command = command_words(&settings, &target);
            command.join(" ")
        };
        let added = "-G -T -oClearAllForwardings=yes -- host";
        assert_eq!(words(&["ssh"]), format!("ssh {added}"));
        assert_eq!(words(&["/usr/bin/ssh", "-p", "2222"]), format!("/usr/bin/ssh -p 2222 {added}"));
        assert_eq!(words(&["plink"]), "plink -G host");
    }

    fn command_words(settings: &SshSettings, target: &Target) -> Vec<String> {
        let command = command(settings, &["-G"], target).unwrap();
        let all = [command.get_program()].into_iter().chain(command.get_args());
        all.map(|word| word.to_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn a_wish_ends_a_program_that_says_nothing() {
        let settings = SshSettings {
            command: ["sh", "-c", "sleep 600"].map(str::to_owned).to_vec(),
            ..SshSettings::default()
        };
        let stop = StopHandle::new();
        let target = Target::new(None, "host").unwrap();
        let (running, _input, _output) = Running::start(&settings, &target, "true", &stop).unwrap();
        stop.request(2);
        assert_eq!(running.wait().unwrap_err().kind, FailureKind::Cancelled);
    }
}
