//! The other end over ssh. It uses the system's ssh program, so that its configuration, agent and
//! jump hosts work. Output of the login shell before the marker is skipped.

pub(crate) mod bootstrap;
pub mod child;
mod image;
mod program;
mod refusal;

use std::io::{self, Write};
use std::net::IpAddr;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdin, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::RecvTimeoutError;
use packtrain_transfer::{Failure, FailureKind};
use parking_lot::Mutex;
use rustix::process::Signal;

use bootstrap::Service;
#[cfg(feature = "fuzzing")]
pub(crate) use bootstrap::described_system;
use child::{Running, Target};
use packtrain_runtime::control::{Control, ControlSender, over_streams};
use packtrain_service::executor::spawn;
use packtrain_service::{Reporter, SshSettings, StopHandle, host};
pub(crate) use refusal::is_refused;

/// Timeout for the end of the other end after this end's last message.
const FINISH_TIMEOUT: Duration = Duration::from_secs(2);
/// Timeout for the removal of a file after a request to stop.
const REMOVE_TIMEOUT: Duration = Duration::from_secs(3);
/// How often a request to stop is checked meanwhile.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A running ssh with the other end.
pub(crate) struct Remote {
    child: Arc<Mutex<Child>>,
    pub(crate) control: Control,
    /// The addresses of the host, as far as its name resolves.
    pub(crate) addresses: Vec<IpAddr>,
    /// Whether the program there was sent for this session and is removed at its end.
    removed_at_end: bool,
}

/// Starts the other end at `host`, in one ssh session. `reporter` is told if a program is sent there.
pub(crate) fn start(
    settings: &SshSettings,
    user: Option<&str>,
    host: &str,
    reporter: &dyn Reporter,
    stop: &StopHandle,
) -> Result<Remote, Failure> {
    let target = Target::new(user, host)?;
    // Meanwhile: ssh reads its configuration again, and names may take long.
    let resolving = {
        let (settings, target, host) = (settings.clone(), target.clone(), host.to_owned());
        std::thread::spawn(move || resolve(&settings, &target, &host))
    };
    let started = bootstrap::start(settings, &target, Service::Transfer, reporter, stop)?;
    let control = over_streams("ssh", started.output, Stdin(started.input));
    // A resolver that fails leaves the data without an address: it goes over the connection.
    let addresses = resolving.join().unwrap_or_default();
    let child = started.running.release();
    Ok(Remote { child, control, addresses, removed_at_end: started.removed_at_end })
}

/// ssh's standard input; a vectored write is one system call.
struct Stdin(ChildStdin);

impl Write for Stdin {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn write_vectored(&mut self, slices: &[io::IoSlice<'_>]) -> io::Result<usize> {
        self.0.write_vectored(slices)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Why the other end did not start. `printed` is appended; `needs_sh`: the login shell had to find `sh`,
/// and nothing shows that it did.
fn explain(target: &Target, status: ExitStatus, printed: &str, needs_sh: bool) -> Failure {
    match (status.code(), status.signal()) {
        (Some(255), _) => Failure::new(
            FailureKind::Temporary,
            format!("ssh could not reach {target}; its own message is above"),
        ),
        (Some(127), _) if needs_sh => Failure::new(
            FailureKind::Fatal,
            format!(
                "the login shell of {target} finds no `sh`: does one of its startup files set \
                 PATH?{printed}"
            ),
        ),
        (Some(126 | 127), _) => Failure::new(
            FailureKind::Fatal,
            format!(
                "packtrain is not installed at {target}: install it there, name it with \
                 --remote-path, or allow --bootstrap auto"
            ),
        ),
        (_, Some(signal)) => {
            Failure::new(FailureKind::Temporary, format!("ssh was ended by signal {signal}"))
        }
        // The login shell ran something else (`nologin`, a menu), and will again.
        (Some(code @ 0..128), _) => Failure::new(
            FailureKind::Fatal,
            format!(
                "the remote end at {target} did not start (exit {code}): does its login shell run \
                 commands?{printed}"
            ),
        ),
        (code, _) => Failure::new(
            FailureKind::Temporary,
            format!(
                "the remote end at {target} did not start (exit {}){printed}",
                code.unwrap_or(-1)
            ),
        ),
    }
}

/// Reads a path until its end, including newlines, and removes that file.
const REMOVE: &str = "p=$(cat; echo .) && p=${p%.} && rm -f -- \"$p\"";

/// Removes a file of this program on a host; failures are ignored. `path` is that of a location.
/// It also runs after a request to stop, so that no file remains, but then not for long: the host
/// may not answer.
pub(crate) fn remove(
    settings: &SshSettings,
    (user, host): (Option<&str>, &str),
    path: &[u8],
    stop: &StopHandle,
) {
    let Ok(target) = Target::new(user, host) else { return };
    // The path is not passed to a shell as an argument. A leading `~/` is the home directory, in
    // which ssh starts.
    let path = path.strip_prefix(b"~/").unwrap_or(path);
    let words = child::posix(REMOVE);
    let end = StopHandle::new();
    let Ok((running, mut input, output)) = Running::start(settings, &target, &words, &end) else {
        return;
    };
    let (done, is_done) = crossbeam_channel::bounded::<()>(0);
    let stop = stop.clone();
    spawn("ssh-remove", move || {
        let mut waited = Duration::ZERO;
        while waited < REMOVE_TIMEOUT {
            // The other side is dropped when the program has ended.
            if is_done.recv_timeout(POLL_INTERVAL) != Err(RecvTimeoutError::Timeout) {
                return;
            }
            if stop.requested().is_some() {
                waited += POLL_INTERVAL;
            }
        }
        end.request(Signal::TERM.as_raw());
    });
    let _ = input.write_all(path);
    drop(input);
    let _ = io::copy(&mut { output }, &mut io::sink());
    let _ = running.wait();
    drop(done);
}

/// Resolves the host: ssh's configuration has the real name of an alias.
pub(crate) fn resolve(settings: &SshSettings, target: &Target, host: &str) -> Vec<IpAddr> {
    let mut name = host.to_owned();
    if let Ok(mut command) = child::command(settings, &["-G"], target) {
        let shown = command.stdin(Stdio::null()).stderr(Stdio::null()).output();
        if let Ok(shown) = shown {
            let text = String::from_utf8_lossy(&shown.stdout).into_owned();
            if let Some(real) = text.lines().find_map(|line| line.strip_prefix("hostname ")) {
                real.trim().clone_into(&mut name);
            }
        }
    }
    host::lookup(&name)
}

/// The ssh process, after its connection was handed over.
pub(crate) struct Waiter {
    child: Arc<Mutex<Child>>,
    tx: ControlSender,
    removed_at_end: bool,
}

impl Remote {
    pub(crate) fn split(self) -> (Control, Waiter) {
        let tx = self.control.tx.clone();
        (self.control, Waiter { child: self.child, tx, removed_at_end: self.removed_at_end })
    }
}

impl Waiter {
    /// Lets the other end finish, then ends ssh. When all is `done`, this goes on behind the
    /// caller's back: ssh has the last messages, and ends by itself a round trip later, even after
    /// this process. A program that was sent there is waited for, until it is removed.
    pub(crate) fn finish(self, done: bool) {
        self.tx.close();
        let child = self.child;
        let end = move || {
            if !child::ends_within(&child, FINISH_TIMEOUT) {
                child::terminate(&child);
            }
        };
        if !done || self.removed_at_end {
            return end();
        }
        self.tx.wait_closed(FINISH_TIMEOUT);
        spawn("ssh-end", end);
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn the_named_file_is_removed_and_no_other() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["a", "a\n", "a\n\n", "-rf", "$(b)", "b"] {
            std::fs::write(dir.path().join(name), "").unwrap();
        }
        for name in ["a\n", "-rf", "$(b)", "not there"] {
            let mut child = Command::new("sh")
                .args(["-c", &child::posix(REMOVE)])
                .current_dir(dir.path())
                .stdin(Stdio::piped())
                .spawn()
                .unwrap();
            child.stdin.take().unwrap().write_all(name.as_bytes()).unwrap();
            assert!(child.wait().unwrap().success(), "{name:?}");
        }
        let left = std::fs::read_dir(dir.path()).unwrap();
        let mut left: Vec<_> = left.map(|item| item.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["a", "a\n\n", "b"]);
    }
}
