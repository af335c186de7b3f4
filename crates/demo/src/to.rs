//! `demo --to`: sends random data for five seconds through an ssh pipe and for five seconds with
//! `packtrain cp`, on the user's own path to another machine. It removes all its files.

use std::ffi::OsStr;
use std::io::{ErrorKind, Read, Write};
use std::process::Command;

use packtrain_os::{clock, entropy};
use packtrain_transfer::FailureKind;
use packtrain_units::{ByteCount, DataRate, Duration, Rng};

use super::{check_stop, failed, print_line};
use packtrain_client::ssh::child::{Running, Target, command, posix};
use packtrain_service::{Location, RequestError, SshSettings, StopHandle};

/// Duration of each of the two.
const SEND_TIME: Duration = Duration::from_secs(5);
/// Maximum bytes of each, for a fast path or a large disk.
const MAX_BYTES: u64 = 8 << 30;
/// Bytes sent before the measurement starts, because pipes and sockets buffer as much.
const PRIMING_BYTES: u64 = 8 << 20;
const BLOCK_BYTES: usize = 1 << 20;

/// The request of `demo --to`.
#[derive(Clone, Debug)]
pub struct ToRequest {
    /// `user@host`.
    pub host: String,
    /// The ssh command and its options; the first is the program.
    pub ssh: Vec<String>,
    /// The command that starts packtrain there.
    pub remote_path: String,
    /// Requests an orderly end.
    pub stop: StopHandle,
}

/// The result of one of the two.
struct Ran {
    bytes: u64,
    took: Duration,
    out: String,
}

impl Ran {
    fn rate(&self) -> DataRate {
        DataRate::from_bytes_over(ByteCount(self.bytes), self.took)
    }
}

/// Runs the comparison and prints it to standard output.
///
/// # Errors
/// The host cannot be reached, or has too little space.
pub fn run(request: &ToRequest) -> Result<(), RequestError> {
    let place = Place::new(request)?;
    let most = place.room()?.min(MAX_BYTES);
    if most < PRIMING_BYTES * 4 {
        let text = format!(
            "{} has {} free in {}: the demo needs 64 MiB",
            request.host,
            ByteCount(most * 2),
            place.dir
        );
        return Err(RequestError::new(FailureKind::TargetFull, text));
    }
    let to = &request.host;
    print_line(&format!(
        "packtrain demo --to {to}: five seconds by ssh pipe, five by packtrain, each to the disk there"
    ));
    let file = format!("{}/pipe", place.dir);
    let script = format!("cat > {file} && {{ sync {file} 2>/dev/null || sync; }} && rm {file}");
    let mut pipe = command(&place.settings, &[], &place.target)?;
    pipe.arg(posix(&script));
    let pipe = feed(pipe, most, "the ssh pipe", &request.stop)?;
    print_line(&format!("  ssh pipe   {:>7.0} Mbit/s", mbits(&pipe)));
    let program = std::env::current_exe().map_err(failed("this program"))?;
    let mut copy = Command::new(program);
    copy.args(["cp", "--json", "--retries", "0"]);
    copy.args(["--remote-path", &request.remote_path, "-e", &quoted(&request.ssh)]);
    copy.arg("-").arg(format!("{to}:{}/packtrain", place.dir));
    let copy = feed(copy, most, "packtrain cp", &request.stop)?;
    print_line(&format!("  packtrain  {:>7.0} Mbit/s", mbits(&copy)));
    print_line(&verdict(&pipe, &copy));
    Ok(())
}

/// The words as one command, which `cp -e` splits again.
fn quoted(words: &[String]) -> String {
    let one = |word: &String| format!("'{}'", word.replace('\'', r"'\''"));
    words.iter().map(one).collect::<Vec<_>>().join(" ")
}

fn mbits(ran: &Ran) -> f64 {
    ran.rate().as_bps() as f64 / 1e6
}

fn verdict(pipe: &Ran, copy: &Ran) -> String {
    let done: serde_json::Value =
        copy.out.lines().last().and_then(|l| serde_json::from_str(l).ok()).unwrap_or_default();
    let transport = done["transport"].as_str().unwrap_or("unknown");
    let rtt = done["rtt_ms"].as_f64().map_or_else(String::new, |ms| format!(", {ms:.1} ms away"));
    let again = ByteCount(done["retransmitted_bytes"].as_u64().unwrap_or(0));
    let ratio = mbits(copy) / mbits(pipe).max(1e-3);
    let why = done["verdict"].as_str().map_or_else(String::new, |v| format!("; {v}"));
    format!(
        "packtrain moved {ratio:.2} times as fast as the ssh pipe (transport {transport}{rtt}, {again} sent \
         again{why}); the files of the demo were removed on both sides"
    )
}

/// The ssh location of `user@host`; anything else is refused.
fn target(host: &str) -> Result<Target, RequestError> {
    match Location::parse(OsStr::new(&format!("{host}:"))) {
        Ok(Location::Ssh { user, host, path }) if path == b"." => {
            Ok(Target::new(user.as_deref(), &host)?)
        }
        _ => {
            let text = format!("`{host}` is not a host: write --to host or --to user@host");
            Err(RequestError::new(FailureKind::Usage, text))
        }
    }
}

/// A directory of the demo on the remote machine; removed on drop.
struct Place<'a> {
    request: &'a ToRequest,
    settings: SshSettings,
    target: Target,
    dir: String,
}

impl<'a> Place<'a> {
    fn new(request: &'a ToRequest) -> Result<Self, RequestError> {
        let settings = SshSettings {
            command: request.ssh.clone(),
            remote_path: request.remote_path.clone(),
            bootstrap: true,
        };
        let target = target(&request.host)?;
        let mut place = Self { request, settings, target, dir: String::new() };
        let make = "mktemp -d \"${TMPDIR:-/tmp}/packtrain-to-XXXXXXXX\"";
        let made = place.ask(make, &request.stop)?;
        let dir = made.lines().last().unwrap_or_default().trim().to_owned();
        let plain = |c: char| c.is_ascii_alphanumeric() || "/-_.".contains(c);
        if !dir.starts_with('/') || !dir.chars().all(plain) {
            let text = format!("{} gave no directory to write to but `{made}`", request.host);
            return Err(RequestError::new(FailureKind::TargetRefused, text));
        }
        place.dir = dir;
        Ok(place)
    }

    /// Half of its free space.
    fn room(&self) -> Result<u64, RequestError> {
        let said = self.ask(&format!("df -Pk {}", self.dir), &self.request.stop)?;
        let free = said.lines().last().and_then(|l| l.split_whitespace().nth(3));
        let kib: u64 = free.and_then(|word| word.parse().ok()).unwrap_or(0);
        Ok(kib.saturating_mul(1024) / 2)
    }

    /// The output of a command on the remote machine.
    fn ask(&self, script: &str, stop: &StopHandle) -> Result<String, RequestError> {
        let (running, input, mut output) =
            Running::start(&self.settings, &self.target, &posix(script), stop)?;
        drop(input);
        let mut said = Vec::new();
        output.read_to_end(&mut said).map_err(failed("ssh"))?;
        let status = running.wait()?;
        if status.success() {
            return Ok(String::from_utf8_lossy(&said).into_owned());
        }
        let text = format!("{}: `{script}` failed ({status}): see above", self.target);
        Err(RequestError::new(FailureKind::Temporary, text))
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        // Also runs after a request to stop.
        let gone = |place: &Self| place.ask(&format!("rm -rf {}", place.dir), &StopHandle::new());
        if !self.dir.is_empty() && gone(self).is_err() {
            print_line(&format!("{} could not be removed from {}", self.dir, self.target));
        }
    }
}

/// Writes random data to `command` for the time span, or until `most` bytes. Returns the result,
/// measured after the first bytes, which pipes alone could buffer.
fn feed(
    command: Command,
    most: u64,
    what: &'static str,
    stop: &StopHandle,
) -> Result<Ran, RequestError> {
    let (running, input, mut output) = Running::spawn(command, stop).map_err(failed(what))?;
    let mut input = Some(input);
    let mut rng = Rng::new(entropy::seed());
    let mut block = vec![0; BLOCK_BYTES];
    for word in block.chunks_mut(8) {
        let bytes = rng.next_u64().to_le_bytes();
        word.copy_from_slice(&bytes[..word.len()]);
    }
    let (mut sent, mut start) = (0_u64, clock::now());
    while let Some(pipe) = &mut input {
        if stop.requested().is_some() {
            break;
        }
        if sent <= PRIMING_BYTES {
            start = clock::now();
        }
        if clock::now().since(start) >= SEND_TIME || sent + BLOCK_BYTES as u64 > most {
            break;
        }
        // Each block is different, so that nothing on the path can compress or deduplicate them.
        block[..8].copy_from_slice(&rng.next_u64().to_le_bytes());
        match pipe.write_all(&block) {
            Ok(()) => sent += BLOCK_BYTES as u64,
            Err(e) if e.kind() == ErrorKind::BrokenPipe => break,
            Err(e) => return Err(failed(what)(e)),
        }
    }
    drop(input.take());
    let mut out = Vec::new();
    output.read_to_end(&mut out).map_err(failed(what))?;
    let status = running.wait();
    check_stop(stop)?;
    let took = clock::now().since(start);
    let (out, status) = (String::from_utf8_lossy(&out).into_owned(), status?);
    if !status.success() {
        let text = format!("{what} to the host failed ({status}): see above");
        return Err(RequestError::new(FailureKind::Temporary, text));
    }
    Ok(Ran { bytes: sent.saturating_sub(PRIMING_BYTES), took, out })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_host_is_taken() {
        for bad in ["-oProxyCommand=x", "a@-oProxyCommand=x", "-l@b", "", "h:dir", "a b", "pt://h"]
        {
            assert_eq!(target(bad).err().unwrap().kind, FailureKind::Usage, "{bad}");
        }
        for (good, told) in [("h", "h"), ("a@h", "a@h"), ("a@[::1]", "a@::1")] {
            assert_eq!(target(good).unwrap().to_string(), told);
        }
    }
}
