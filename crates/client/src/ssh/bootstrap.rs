//! Starts packtrain at the other end, and sends it there if no compatible one is found.
//!
//! All of it uses one ssh session. The login shell there, of any kind, runs `find.sh` in a POSIX
//! shell. That script starts an installed packtrain, or prints the system it runs on and waits. This
//! end then sends `install.sh`, which starts the program from the cache of that account, or asks for
//! it, checks what arrived, puts it into the cache and starts it on the same connection. After any
//! failure it removes what it created before it reports the failure.

use std::io::{self, Write};
use std::process::{ChildStdin, ChildStdout};
use std::time::Duration;

use crossbeam_channel::RecvTimeoutError;
use flate2::Compression;
use flate2::write::GzEncoder;
use packtrain_runtime::marker;
use packtrain_service::{Notice, NoticeLevel, PortRange, Reporter, SshSettings, StopHandle};
use packtrain_transfer::{Failure, FailureKind, Versions};
use packtrain_units::ByteCount;

use super::child::{Running, Target, posix};
use super::explain;
use super::program::{self, Program};

/// What the program there does with its standard input and output.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Service {
    /// It is the other end of a transfer.
    Transfer,
    /// It checks its machine, and returns datagrams at a port of this range.
    Doctor(Option<PortRange>),
}

impl Service {
    fn arguments(self) -> String {
        match self {
            Self::Transfer => "serve --stdio".to_owned(),
            Self::Doctor(None) => "doctor --stdio".to_owned(),
            Self::Doctor(Some(PortRange { first, last })) => {
                format!("doctor --stdio --ports {first}-{last}")
            }
        }
    }
}

/// Passed to the login shell.
const FIND: &str = include_str!("find.sh");
/// Sent as one line to a shell that found no packtrain.
const INSTALL: &str = include_str!("install.sh");

/// Prefix of the output of `find.sh`, if it found nothing that it could start.
const READY: &str = "PACKTRAIN-BOOTSTRAP-2 ";
/// Prefix of the line that asks for the program.
const SEND: &str = "PACKTRAIN-BOOTSTRAP-SEND ";
/// Prefix of the output if the installation failed.
const FAILED: &str = "PACKTRAIN-BOOTSTRAP-FAILED ";
/// Maximum length of a reason in that output.
const MAX_REASON: usize = 300;
/// How long the other end may be silent before the user is told.
const SILENCE: Duration = Duration::from_secs(10);
/// Bytes sent between two reports of progress.
const STEP: usize = 64 << 10;

/// The other end's description of itself.
#[derive(Debug, PartialEq, Eq)]
struct Ready {
    system: String,
    gzip: bool,
    /// There is a packtrain, which does not run or speaks another protocol.
    unusable: bool,
}

impl Ready {
    fn parse(line: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(line).ok()?.strip_prefix(READY)?;
        let words: Vec<&str> = text.split_whitespace().collect();
        let [name, machine, gzip, found] = words[..] else { return None };
        Some(Self {
            system: format!("{name} {machine}"),
            gzip: gzip == "gzip",
            unusable: found == "unusable",
        })
    }
}

/// The system that a line of the other end describes, if it is such a line.
#[cfg(feature = "fuzzing")]
pub(crate) fn described_system(line: &[u8]) -> Option<String> {
    Ready::parse(line).map(|ready| ready.system)
}

/// A packtrain that runs at the other end and has printed its marker.
pub(crate) struct Started {
    pub(crate) running: Running,
    pub(crate) input: ChildStdin,
    pub(crate) output: ChildStdout,
    /// It was sent for this session, and is removed at its end.
    pub(crate) removed_at_end: bool,
}

/// A line of the other end that this end waits for.
enum Said {
    /// The program's marker.
    Marker,
    Ready(Ready),
    /// Asks for the program: whether it will stay, and why not.
    Send(bool, String),
    Failed(String),
}

impl Said {
    fn parse(line: &[u8]) -> Option<Self> {
        if line == marker::LINE {
            return Some(Self::Marker);
        }
        if let Some(ready) = Ready::parse(line) {
            return Some(Self::Ready(ready));
        }
        let after = |prefix: &str| {
            let rest = line.strip_prefix(prefix.trim_end().as_bytes())?;
            Some(shown(&String::from_utf8_lossy(rest)))
        };
        if let Some(text) = after(SEND) {
            let (how, why) = text.split_once(' ').unwrap_or((&text, ""));
            return Some(Self::Send(how == "cache", why.trim_end_matches([';', ' ']).to_owned()));
        }
        after(FAILED).map(Self::Failed)
    }
}

/// Starts packtrain at the target.
///
/// # Errors
/// ssh does not reach it, or no packtrain runs there: why, and what to do.
pub(crate) fn start(
    settings: &SshSettings,
    target: &Target,
    service: Service,
    reporter: &dyn Reporter,
    stop: &StopHandle,
) -> Result<Started, Failure> {
    let words = words(settings, service)?;
    let (running, input, mut output) = Running::start(settings, target, &words, stop)?;
    let mut foreign = Foreign::default();
    let said = while_told(target, reporter, || foreign.find(&mut output));
    match said {
        Ok(Some(Said::Marker)) => Ok(Started { running, input, output, removed_at_end: false }),
        Ok(Some(Said::Ready(ready))) if settings.bootstrap => {
            Install { target, service, reporter, running, input, output }.run(&ready)
        }
        _ => {
            // The pipes are closed, so that a writing remote end is not blocked.
            drop((input, output));
            Err(explain(target, running.wait()?, &foreign.told(), settings.bootstrap))
        }
    }
}

/// Lines that something else than packtrain printed.
#[derive(Default)]
struct Foreign(String);

impl Foreign {
    fn find(&mut self, output: &mut ChildStdout) -> io::Result<Option<Said>> {
        marker::find(output, |line| {
            let said = Said::parse(line);
            if said.is_none() && self.0.len() < MAX_REASON {
                let line = shown(&String::from_utf8_lossy(line));
                let gap = if self.0.is_empty() || line.is_empty() { "" } else { " " };
                self.0 = format!("{}{gap}{line}", self.0);
            }
            said
        })
    }

    /// As a part of a message; empty if there are none.
    fn told(&self) -> String {
        let text: String = self.0.chars().take(MAX_REASON).collect();
        if text.is_empty() { text } else { format!("; it printed: {text}") }
    }
}

/// Waits for what the other end says, and tells the user if that takes long: ssh may ask him, and a
/// login shell may wait for something of its own.
fn while_told<T>(target: &Target, reporter: &dyn Reporter, wait: impl FnOnce() -> T) -> T {
    let (done, is_done) = crossbeam_channel::bounded::<()>(0);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            if is_done.recv_timeout(SILENCE) == Err(RecvTimeoutError::Timeout) {
                let text = format!(
                    "{target} has not answered for {} s: ssh may not be connected yet, or a login \
                     script there waits; `ssh {target} true` shows where",
                    SILENCE.as_secs()
                );
                reporter.notice(&Notice::new(NoticeLevel::Warning, text));
            }
        });
        let result = wait();
        drop(done);
        result
    })
}

/// The installation over a connection whose other end is ready.
struct Install<'a> {
    target: &'a Target,
    service: Service,
    reporter: &'a dyn Reporter,
    running: Running,
    input: ChildStdin,
    output: ChildStdout,
}

impl Install<'_> {
    fn run(mut self, ready: &Ready) -> Result<Started, Failure> {
        let target = self.target;
        if ready.unusable {
            let text = format!(
                "the packtrain that is installed at {target} does not run, or is too old or too new"
            );
            self.reporter.notice(&Notice::new(NoticeLevel::Warning, text));
        }
        let program = match program::for_system(&ready.system) {
            Ok(program) => program,
            Err(why) => return Err(not_installed(target, &shown(&why))),
        };
        // If the other end closes early, its output shows that.
        let script = install(self.service);
        let begin = format!("{script}\n{} {}\n", program.digest, program.bytes.len());
        let _ = self.input.write_all(begin.as_bytes()).and_then(|()| self.input.flush());
        let find = || marker::find(&mut self.output, Said::parse);
        let said = while_told(target, self.reporter, find);
        let (stays, why) = match said {
            // It is in the cache from an earlier run.
            Ok(Some(Said::Marker)) => return Ok(self.started(false)),
            Ok(Some(Said::Send(stays, why))) => (stays, why),
            said => return Err(self.failure(said, &program)),
        };
        let sent = self.send(&program, ready.gzip);
        match marker::find(&mut self.output, Said::parse) {
            Ok(Some(Said::Marker)) => {}
            said => return Err(self.failure(said, &program)),
        }
        let what = match ready.unusable {
            true => format!("this packtrain is not yet at {target}: sent it"),
            false => format!("packtrain is not installed at {target}: sent it"),
        };
        let text = if stays {
            format!(
                "{what} once ({sent}, checked there) to ~/.cache/packtrain; the next copy finds it \
                 there"
            )
        } else {
            format!(
                "{what} for this copy only ({sent}, checked there), because the cache there cannot \
                 hold it ({why})"
            )
        };
        self.reporter.notice(&Notice::new(NoticeLevel::Info, text));
        Ok(self.started(!stays))
    }

    fn started(self, removed_at_end: bool) -> Started {
        let Self { running, input, output, .. } = self;
        Started { running, input, output, removed_at_end }
    }

    /// Sends the program; gives the number of bytes. An error of the connection shows later, in
    /// the output of the other end.
    fn send(&mut self, program: &Program, gzip: bool) -> ByteCount {
        let packed = if gzip { pack(&program.bytes) } else { None };
        let (bytes, how) = packed.as_ref().map_or((&program.bytes, "plain"), |p| (p, "gzip"));
        let total = ByteCount(bytes.len() as u64);
        let mut sent = ByteCount::ZERO;
        let mut done = writeln!(self.input, "{} {how}", bytes.len());
        for part in bytes.chunks(STEP) {
            if done.is_err() {
                break;
            }
            self.reporter.sending_program(&self.target.to_string(), sent, total);
            done = self.input.write_all(part);
            sent = ByteCount(sent.get() + part.len() as u64);
        }
        let _ = self.input.flush();
        self.reporter.sending_program(&self.target.to_string(), sent, total);
        total
    }

    fn failure(self, said: io::Result<Option<Said>>, program: &Program) -> Failure {
        let Self { target, running, input, output, .. } = self;
        drop((input, output));
        let ended = running.wait();
        match (said, ended) {
            (_, Err(failure)) => failure,
            (Ok(Some(Said::Failed(why))), Ok(_)) => {
                refused(target, &why, ByteCount(program.bytes.len() as u64))
            }
            (_, Ok(status)) => explain(target, status, "", false),
        }
    }
}

/// The command for the login shell.
fn words(settings: &SshSettings, service: Service) -> Result<String, Failure> {
    let command = settings.remote_path.as_str();
    let usage = |text: &str| Err(Failure::new(FailureKind::Usage, text));
    if command.starts_with('-') {
        return usage(
            "the command for --remote-path begins with `-`: ssh would take it for an option",
        );
    }
    if command.trim().is_empty() || command.contains(['\n', '\0']) {
        return usage("the command for --remote-path must be one line that is not empty");
    }
    if is_word(command) {
        return Ok(posix(&find(command, service, settings.bootstrap)));
    }
    // A command line is for the login shell, which may know more than `sh`, such as `module`.
    let own = format!("{command} {}", service.arguments());
    if !settings.bootstrap {
        return Ok(own);
    }
    Ok(format!("{own} || {}", posix(&find("packtrain", service, true))))
}

/// Whether this is the name or path of a program, which needs no quotes in any shell.
fn is_word(name: &str) -> bool {
    name.chars().all(|c| c.is_ascii_alphanumeric() || "/._-+~".contains(c))
}

/// `find.sh` for the program `name`.
fn find(name: &str, service: Service, bootstrap: bool) -> String {
    // Where users and cargo install programs, whether or not it is in the PATH.
    let more = " \"$HOME/.local/bin/packtrain\" \"$HOME/.cargo/bin/packtrain\"";
    let candidates = format!("{name}{}", if name == "packtrain" { more } else { "" });
    let script = if bootstrap { FIND.to_owned() } else { FIND.replace("read -r s", "exit 127") };
    line(&script)
        .replace("LOWEST", &Versions::OWN.lowest.to_string())
        .replace("HIGHEST", &Versions::OWN.highest.to_string())
        .replace("ARGUMENTS", &service.arguments())
        // Last: these are the user's words.
        .replace("CANDIDATES", &candidates)
}

/// `install.sh` as one line.
fn install(service: Service) -> String {
    line(INSTALL).replace("ARGUMENTS", &service.arguments())
}

/// A script without its comments as one line.
fn line(script: &str) -> String {
    let mut text = String::new();
    for line in script.lines().map(str::trim).filter(|line| !line.starts_with('#')) {
        if !text.is_empty() {
            text.push_str(if text.ends_with('{') { " " } else { "; " });
        }
        text.push_str(line);
    }
    text
}

fn pack(program: &[u8]) -> Option<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(program).ok()?;
    encoder.finish().ok()
}

/// Untrusted text, shortened and escaped for a message.
fn shown(text: &str) -> String {
    let words: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    words.trim().chars().take(MAX_REASON).collect()
}

fn refused(target: &Target, why: &str, size: ByteCount) -> Failure {
    let has = |words: &[&str]| words.iter().any(|words| why.contains(words));
    if has(&["No space left", "uota exceeded", "File too large", "too many links"]) {
        let text = format!(
            "no space on {target} for packtrain itself ({size}): make room in ~/.cache there, or in \
             $TMPDIR or /tmp, or install packtrain there; nothing was left behind ({why})"
        );
        return Failure::new(FailureKind::TargetFull, text);
    }
    if has(&["noexec"]) {
        let text = format!(
            "programs may not run where packtrain can be put at {target} ({why}): set XDG_CACHE_HOME \
             there to a directory from which they may, or install packtrain there and name it with \
             --remote-path; nothing was left behind"
        );
        return Failure::new(FailureKind::Fatal, text);
    }
    if has(&["GLIBC", "not found", "No such file", "xec format"]) {
        let text = format!(
            "this program does not run at {target} ({why}): build the one that runs on every Linux \
             with `cargo xtask dist`, or install packtrain there; nothing was left behind"
        );
        return Failure::new(FailureKind::Fatal, text);
    }
    not_installed(target, &format!("it cannot be put there ({why}); nothing was left behind"))
}

fn not_installed(target: &Target, why: &str) -> Failure {
    let text = format!(
        "packtrain is not installed at {target}, and {why}: install it there, or name it with \
         --remote-path"
    );
    Failure::new(FailureKind::Fatal, text)
}

#[cfg(test)]
#[path = "bootstrap_tests.rs"]
mod tests;
