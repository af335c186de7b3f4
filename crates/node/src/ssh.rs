//! The other end over ssh: the system's own program, so that its configuration, agent and jump
//! hosts work, and whatever a login shell prints first is skipped.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::net::{IpAddr, ToSocketAddrs};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};

use packtrain_transfer::{Failure, FailureKind};

use crate::api::SshSettings;
use crate::control::{Control, ControlSender, over_streams};

/// What the called end says first on its standard output.
pub(crate) const MARKER: &[u8] = b"\nPACKTRAIN-STDIO-1\n";
/// Noise beyond this is no login shell's greeting.
const MOST_NOISE: usize = 1 << 20;

/// A running ssh with the other end behind it.
pub(crate) struct Remote {
    child: Child,
    pub(crate) control: Control,
    /// Where the host is, as far as names tell.
    pub(crate) addresses: Vec<IpAddr>,
}

/// Starts the other end at `host`.
pub(crate) fn start(
    settings: &SshSettings,
    user: Option<&str>,
    host: &str,
) -> Result<Remote, Failure> {
    let target = match user {
        Some(user) => format!("{user}@{host}"),
        None => host.to_owned(),
    };
    let plain = format!("{} serve --stdio", settings.remote_path);
    let first = attempt(settings, &target, &plain)?;
    let (child, control) = match first {
        Ok(running) => running,
        Err(status) if status.code() == Some(127) && settings.bootstrap => {
            let command = bootstrap(settings, &target)?;
            attempt(settings, &target, &command)?.map_err(|status| explain(&target, status))?
        }
        Err(status) => return Err(explain(&target, status)),
    };
    Ok(Remote { child, control, addresses: resolve(settings, &target, host) })
}

type Running = (Child, Control);

/// Runs `command` at the target; the inner error is how it ended before it said the marker.
fn attempt(
    settings: &SshSettings,
    target: &str,
    command: &str,
) -> Result<Result<Running, ExitStatus>, Failure> {
    let mut child = spawn(settings, target, command)?;
    let (Some(input), Some(mut output)) = (child.stdin.take(), child.stdout.take()) else {
        return Err(Failure::new(FailureKind::Fatal, "ssh was started without its pipes"));
    };
    match skip_noise(&mut output) {
        Ok(true) => {
            let control = over_streams("ssh", output, Stdin(input));
            Ok(Ok((child, control)))
        }
        Ok(false) | Err(_) => {
            drop(input);
            let status = child.wait().map_err(|e| no_ssh(settings, &e))?;
            Ok(Err(status))
        }
    }
}

/// ssh's standard input; a vectored write goes out as one.
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

fn spawn(settings: &SshSettings, target: &str, command: &str) -> Result<Child, Failure> {
    let (program, rest) = settings.command.split_first().ok_or_else(|| {
        Failure::new(FailureKind::Usage, "the command for -e is empty: write for example -e ssh")
    })?;
    let mut args: Vec<OsString> = rest.iter().map(OsString::from).collect();
    args.extend([OsString::from(target), OsString::from(command)]);
    Command::new(program)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|e| no_ssh(settings, &e))
}

fn no_ssh(settings: &SshSettings, error: &io::Error) -> Failure {
    let program = settings.command.first().map_or("ssh", String::as_str);
    let text = format!("cannot run {program}: {error}; install it or name another with -e");
    Failure::new(FailureKind::Fatal, text)
}

/// Reads up to and including the marker, one byte at a time so that nothing after it is taken;
/// false if the output ended first.
fn skip_noise(output: &mut impl Read) -> io::Result<bool> {
    // A line feed may be the very first byte, or what ended the noise.
    let marker = &MARKER[1..];
    let mut line = Vec::new();
    let mut byte = [0];
    for _ in 0..MOST_NOISE {
        match output.read(&mut byte) {
            Ok(0) => return Ok(false),
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(e),
        }
        line.push(byte[0]);
        if byte[0] == b'\n' {
            if line == marker {
                return Ok(true);
            }
            line.clear();
        }
    }
    Ok(false)
}

fn explain(target: &str, status: ExitStatus) -> Failure {
    match (status.code(), status.signal()) {
        (Some(255), _) => Failure::new(
            FailureKind::Temporary,
            format!("ssh could not reach {target}; its own message is above"),
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
        (code, _) => Failure::new(
            FailureKind::Temporary,
            format!("the far end at {target} did not start (exit {})", code.unwrap_or(-1)),
        ),
    }
}

/// Puts this very program into a temporary directory at the target, to be removed when it ends;
/// the command that runs it.
fn bootstrap(settings: &SshSettings, target: &str) -> Result<String, Failure> {
    let failed = |text: String| Failure::new(FailureKind::Fatal, text);
    let here = Command::new("uname").arg("-sm").output().map_err(|e| failed(e.to_string()))?;
    let there = run(settings, target, "uname -sm", &mut io::empty())?;
    let (here, there) = (here.stdout.trim_ascii().to_vec(), last_line(&there));
    if here != there {
        return Err(failed(format!(
            "packtrain is not installed at {target}, and this one ({}) does not run there ({}): \
             install it there",
            String::from_utf8_lossy(&here),
            String::from_utf8_lossy(&there)
        )));
    }
    let mut program = std::fs::File::open("/proc/self/exe").map_err(|e| failed(e.to_string()))?;
    let script = "umask 077; d=$(mktemp -d \"${TMPDIR:-/tmp}/packtrain.XXXXXXXX\") && \
                  cat > \"$d/packtrain\" && chmod 700 \"$d/packtrain\" && printf '\\n%s\\n' \"$d\"";
    let printed = run(settings, target, script, &mut program)?;
    let dir = String::from_utf8_lossy(&last_line(&printed)).into_owned();
    let plain = dir.starts_with('/')
        && dir.chars().all(|c| c.is_ascii_alphanumeric() || "/._-+".contains(c));
    if !plain {
        return Err(failed(format!("{target}: no place for a temporary copy of packtrain")));
    }
    Ok(format!("{dir}/packtrain serve --stdio; s=$?; rm -rf {dir}; exit $s"))
}

/// Removes a file of ours at a host; what cannot be removed stays. `path` is as a place has it.
pub(crate) fn remove(settings: &SshSettings, user: Option<&str>, host: &str, path: &[u8]) {
    let target = user.map_or_else(|| host.to_owned(), |user| format!("{user}@{host}"));
    let Ok(path) = std::str::from_utf8(path) else { return };
    // A name between quotes means itself; `~/` before it is the home that ssh begins in.
    let path = path.strip_prefix("~/").unwrap_or(path).replace('\'', "'\\''");
    let _ = run(settings, &target, &format!("rm -f -- '{path}'"), &mut io::empty());
}

fn last_line(bytes: &[u8]) -> Vec<u8> {
    let mut lines = bytes.trim_ascii().rsplit(|b| *b == b'\n');
    lines.next().unwrap_or_default().trim_ascii().to_vec()
}

fn run(
    settings: &SshSettings,
    target: &str,
    command: &str,
    input: &mut impl Read,
) -> Result<Vec<u8>, Failure> {
    let mut child = spawn(settings, target, command)?;
    if let Some(mut pipe) = child.stdin.take() {
        // An end that closes early shows in its exit status.
        let _ = io::copy(input, &mut pipe);
    }
    let done = child.wait_with_output().map_err(|e| no_ssh(settings, &e))?;
    if done.status.success() { Ok(done.stdout) } else { Err(explain(target, done.status)) }
}

/// Where the host is: ssh knows the real name behind an alias.
fn resolve(settings: &SshSettings, target: &str, host: &str) -> Vec<IpAddr> {
    let mut name = host.to_owned();
    if let Some((program, rest)) = settings.command.split_first() {
        let shown = Command::new(program)
            .args(rest)
            .args(["-G", target])
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .output();
        if let Ok(shown) = shown {
            let text = String::from_utf8_lossy(&shown.stdout).into_owned();
            if let Some(real) = text.lines().find_map(|line| line.strip_prefix("hostname ")) {
                real.trim().clone_into(&mut name);
            }
        }
    }
    lookup(&name)
}

/// The addresses of a name, none if it has none.
pub(crate) fn lookup(name: &str) -> Vec<IpAddr> {
    let mut found: Vec<IpAddr> = Vec::new();
    for address in (name, 0).to_socket_addrs().into_iter().flatten() {
        if !found.contains(&address.ip()) {
            found.push(address.ip());
        }
    }
    found
}

/// ssh itself, once the connection is somebody else's.
pub(crate) struct Waiter {
    child: Child,
    tx: ControlSender,
}

impl Remote {
    pub(crate) fn split(self) -> (Control, Waiter) {
        let tx = self.control.tx.clone();
        (self.control, Waiter { child: self.child, tx })
    }
}

impl Waiter {
    /// Lets the other end finish, then ends ssh.
    pub(crate) fn finish(mut self) {
        self.tx.close();
        for _ in 0..100 {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_before_the_marker_is_skipped_and_nothing_after_it_taken() {
        for noise in ["", "Welcome!\n", "no line end", "PACKTRAIN\n\n"] {
            let mut bytes = noise.as_bytes().to_vec();
            bytes.extend_from_slice(MARKER);
            bytes.extend_from_slice(b"rest");
            let mut input = &bytes[..];
            assert!(skip_noise(&mut input).unwrap(), "{noise:?}");
            assert_eq!(input, b"rest");
        }
        assert!(!skip_noise(&mut &b"only noise\n"[..]).unwrap());
    }
}
