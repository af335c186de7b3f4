//! `demo --to`: five seconds of `packtrain cp` and five of a plain ssh pipe, on the user's own
//! path to a machine of his, with noise that is made as it is sent. Nothing stays behind.

use std::io::{ErrorKind, Write};
use std::process::{Command, Output, Stdio};

use packtrain_io::{clock, entropy};
use packtrain_transfer::FailureKind;
use packtrain_units::{ByteCount, DataRate, Duration, Rng};

use super::{failed, go_on, say};
use crate::api::{NodeError, StopHandle};

/// How long each of the two sends.
const SPAN: Duration = Duration::from_secs(5);
/// Neither sends more, however fast the path and however large the disk.
const MOST: u64 = 8 << 30;
/// Written before the watch starts: pipes and sockets hold as much without moving it.
const PRIMING: u64 = 8 << 20;
const BLOCK: usize = 1 << 20;

/// What is measured.
#[derive(Clone, Debug)]
pub struct ToRequest {
    /// `user@host`.
    pub host: String,
    /// The ssh command and its options; the first is the program.
    pub ssh: Vec<String>,
    /// The command to start there.
    pub remote_path: String,
    /// Asks for an orderly end.
    pub stop: StopHandle,
}

/// What one of the two did.
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

/// Runs it; prints to standard output.
///
/// # Errors
/// No way to the host, no room there.
pub fn run(request: &ToRequest) -> Result<(), NodeError> {
    let place = Place::new(request)?;
    let most = place.room()?.min(MOST);
    if most < PRIMING * 4 {
        let text = format!(
            "{} has {} free in {}: the demo needs 64 MiB",
            request.host,
            ByteCount(most * 2),
            place.dir
        );
        return Err(NodeError::new(FailureKind::TargetFull, text));
    }
    let to = &request.host;
    say(&format!(
        "packtrain demo --to {to}: five seconds by ssh pipe, five by packtrain, each to the disk there"
    ));
    let mut pipe = place.ssh();
    let file = format!("{}/pipe", place.dir);
    pipe.arg(format!("cat > {file} && {{ sync {file} 2>/dev/null || sync; }} && rm {file}"));
    let pipe = feed(pipe, most, "the ssh pipe", &request.stop)?;
    say(&format!("  ssh pipe   {:>7.0} Mbit/s", mbits(&pipe)));
    let program = std::env::current_exe().map_err(failed("this program"))?;
    let mut copy = Command::new(program);
    copy.args(["cp", "--json", "--retries", "0"]);
    copy.args(["--remote-path", &request.remote_path, "-e", &quoted(&request.ssh)]);
    copy.arg("-").arg(format!("{to}:{}/packtrain", place.dir));
    let copy = feed(copy, most, "packtrain cp", &request.stop)?;
    say(&format!("  packtrain  {:>7.0} Mbit/s", mbits(&copy)));
    say(&verdict(&pipe, &copy));
    Ok(())
}

/// The words as one command that `cp -e` takes apart again.
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
         again{why}); nothing was left on either side"
    )
}

/// A directory of the demo's own at the far end; removed when dropped.
struct Place<'a> {
    request: &'a ToRequest,
    dir: String,
}

impl<'a> Place<'a> {
    fn new(request: &'a ToRequest) -> Result<Self, NodeError> {
        let mut place = Self { request, dir: String::new() };
        let made = place.ask("mktemp -d \"${TMPDIR:-/tmp}/packtrain-to-XXXXXXXX\"")?;
        let dir = made.lines().last().unwrap_or_default().trim().to_owned();
        let plain = |c: char| c.is_ascii_alphanumeric() || "/-_.".contains(c);
        if !dir.starts_with('/') || !dir.chars().all(plain) {
            let text = format!("{} gave no directory to write to but `{made}`", request.host);
            return Err(NodeError::new(FailureKind::TargetRefused, text));
        }
        place.dir = dir;
        Ok(place)
    }

    /// Half of what is free there.
    fn room(&self) -> Result<u64, NodeError> {
        let said = self.ask(&format!("df -Pk {}", self.dir))?;
        let free = said.lines().last().and_then(|l| l.split_whitespace().nth(3));
        let kib: u64 = free.and_then(|word| word.parse().ok()).unwrap_or(0);
        Ok(kib.saturating_mul(1024) / 2)
    }

    fn ssh(&self) -> Command {
        let (program, args) = self
            .request
            .ssh
            .split_first()
            .map_or(("ssh", [].as_slice()), |(program, args)| (program.as_str(), args));
        let mut command = Command::new(program);
        command.args(args).arg(&self.request.host);
        command
    }

    fn ask(&self, what: &str) -> Result<String, NodeError> {
        let Output { status, stdout, stderr } =
            self.ssh().arg(what).stdin(Stdio::null()).output().map_err(failed("ssh"))?;
        if status.success() {
            return Ok(String::from_utf8_lossy(&stdout).into_owned());
        }
        let said = String::from_utf8_lossy(&stderr);
        let said = said.lines().last().unwrap_or("ssh failed").to_owned();
        Err(NodeError::new(FailureKind::Temporary, format!("{}: {said}", self.request.host)))
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if !self.dir.is_empty() && self.ask(&format!("rm -rf {}", self.dir)).is_err() {
            say(&format!("{} could not be removed from {}", self.dir, self.request.host));
        }
    }
}

/// Feeds noise to `command` for the span, or until `most`; what it did from the first bytes that
/// pipes alone could not hold.
fn feed(
    mut command: Command,
    most: u64,
    what: &'static str,
    stop: &StopHandle,
) -> Result<Ran, NodeError> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    let mut child = command.spawn().map_err(failed(what))?;
    let mut input = child.stdin.take();
    let mut rng = Rng::new(entropy::seed());
    let mut block = vec![0; BLOCK];
    for word in block.chunks_mut(8) {
        let bytes = rng.next_u64().to_le_bytes();
        word.copy_from_slice(&bytes[..word.len()]);
    }
    let (mut sent, mut start) = (0_u64, clock::now());
    while let Some(pipe) = &mut input {
        if let Err(stopped) = go_on(stop) {
            let _ = child.kill();
            let _ = child.wait();
            return Err(stopped);
        }
        if sent <= PRIMING {
            start = clock::now();
        }
        if clock::now().since(start) >= SPAN || sent + BLOCK as u64 > most {
            break;
        }
        // No two blocks are alike, so that nothing on the way can fold them.
        block[..8].copy_from_slice(&rng.next_u64().to_le_bytes());
        match pipe.write_all(&block) {
            Ok(()) => sent += BLOCK as u64,
            Err(e) if e.kind() == ErrorKind::BrokenPipe => break,
            Err(e) => return Err(failed(what)(e)),
        }
    }
    drop(input.take());
    let output = child.wait_with_output().map_err(failed(what))?;
    go_on(stop)?;
    let took = clock::now().since(start);
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        let text = format!("{what} to the host failed ({}): see above", output.status);
        return Err(NodeError::new(FailureKind::Temporary, text));
    }
    Ok(Ran { bytes: sent.saturating_sub(PRIMING), took, out })
}
