//! Installs this program in a temporary directory at the other end, for the time of one transfer.
//!
//! It uses one ssh session. The login shell there, of any kind, only starts a POSIX shell that
//! reads [`SCRIPT`] from its standard input. The script prints the system it runs on. This end
//! answers with the sizes and the program. The script checks that the program arrived completely
//! and runs there, starts it on the same connection, and removes it at the end. After any failure
//! the script removes what it created before it reports the failure.

use std::io::{self, Write};
use std::process::ChildStdout;

use flate2::Compression;
use flate2::write::GzEncoder;
use packtrain_transfer::{Failure, FailureKind};
use packtrain_units::ByteCount;

use super::child::{Running, Target, posix};
use super::image;
use packtrain_runtime::marker;
use packtrain_service::{SshSettings, StopHandle};

/// The command for the login shell: starts a shell that reads the script.
const LOADER: &str = "read -r s && eval \"$s\"";

/// Prefix of the script's first output.
const READY: &str = "PACKTRAIN-BOOTSTRAP-1 ";
/// Prefix of the script's output if the installation failed.
const FAILED: &str = "PACKTRAIN-BOOTSTRAP-FAILED ";
/// Maximum length of the reason in that output.
const MAX_REASON: usize = 300;

/// Sent as one line. `NAME` is replaced by the program that was not found.
///
/// The shell handles signals only after it has cleaned up. `head` reads exactly the announced
/// number of bytes, and nothing more is sent before the program has printed its marker. The
/// programs that the shell starts have the default signal handlers.
const SCRIPT: &[&str] = &[
    "set -f",
    "umask 077",
    "d=",
    "c() { [ -z \"$d\" ] || rm -rf \"$d\"; d=; }",
    "f() { c; echo; echo PACKTRAIN-BOOTSTRAP-FAILED $1; exit 72; }",
    "trap : 1 2 13 15",
    "z=plain",
    "if command -v gzip >/dev/null 2>&1; then z=gzip; fi",
    "p=absent",
    "if command -v NAME >/dev/null 2>&1; then p=present; fi",
    "echo",
    "echo \"PACKTRAIN-BOOTSTRAP-1 $(uname -sm) $z $p\"",
    // The number of sent bytes, the size of the program, and the compression.
    "read -r n m z && [ \"$m\" -gt 0 ] || exit 72",
    "t=${TMPDIR:-/tmp}",
    "LC_ALL=C; export LC_ALL",
    "d=$(mktemp -d \"$t/packtrain.XXXXXXXX\" 2>&1) || { e=$d; d=; f \"$e\"; }",
    "b=$d/packtrain",
    "if [ \"$z\" = gzip ]; then e=$( { head -c \"$n\" | gzip -dc >\"$b\"; } 2>&1 ); \
     else e=$( { head -c \"$n\" >\"$b\"; } 2>&1 ); fi || f \"$e\"",
    "[ \"$(wc -c <\"$b\")\" -eq \"$m\" ] || f 'the program did not arrive whole'",
    "e=$( { chmod 700 \"$b\" && \"$b\" --version; } 2>&1 </dev/null ) || f \"$e\"",
    "\"$b\" serve --stdio",
    "s=$?",
    "c",
    "exit $s",
];

/// The other end's description of its system.
#[derive(Debug, PartialEq, Eq)]
struct Ready {
    system: String,
    gzip: bool,
    present: bool,
}

impl Ready {
    fn parse(line: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(line).ok()?.strip_prefix(READY)?;
        let words: Vec<&str> = text.split_whitespace().collect();
        let [name, machine, gzip, present] = words[..] else { return None };
        Some(Self {
            system: format!("{name} {machine}"),
            gzip: gzip == "gzip",
            present: present == "present",
        })
    }
}

/// The system that a line of the other end describes, if it is such a line.
#[cfg(feature = "fuzzing")]
pub(crate) fn described_system(line: &[u8]) -> Option<String> {
    Ready::parse(line).map(|ready| ready.system)
}

/// The result, if the connection works.
pub(super) enum Bootstrapped {
    /// The program runs there and has printed its marker.
    Runs(Running, std::process::ChildStdin, ChildStdout),
    /// The requested program is installed there after all.
    Present,
}

/// Starts this program at the target. Unless it is `certain` that the program is not installed,
/// that is checked first.
pub(super) fn start(
    settings: &SshSettings,
    target: &Target,
    certain: bool,
    stop: &StopHandle,
) -> Result<Bootstrapped, Failure> {
    let (running, mut input, mut output) = Running::start(settings, target, &posix(LOADER), stop)?;
    // If the other end closes early, its output shows that.
    let _ = writeln!(input, "{}", script(&settings.remote_path)).and_then(|()| input.flush());
    let ready = match marker::find(&mut output, Ready::parse) {
        Ok(Some(ready)) => ready,
        Ok(None) | Err(_) => {
            // The pipes are closed, so that a writing remote end is not blocked.
            drop((input, output));
            let status = running.wait()?;
            return Err(match status.code() {
                Some(255) => super::explain(target, status),
                _ => not_installed(target, "no POSIX shell answers there"),
            });
        }
    };
    if ready.present && !certain {
        drop((input, output));
        running.wait()?;
        return Ok(Bootstrapped::Present);
    }
    let own = rustix::system::uname();
    let here = format!("{} {}", own.sysname().to_string_lossy(), own.machine().to_string_lossy());
    if here != ready.system {
        let text = format!("this one ({here}) does not run there ({})", shown(&ready.system));
        return Err(not_installed(target, &text));
    }
    let program = program()
        .map_err(|e| Failure::new(FailureKind::Fatal, format!("this program's own file: {e}")))?;
    let size = program.len();
    let packed = if ready.gzip { pack(&program) } else { None };
    let (bytes, how) = packed.as_ref().map_or((&program, "plain"), |packed| (packed, "gzip"));
    let _ = writeln!(input, "{} {size} {how}", bytes.len())
        .and_then(|()| input.write_all(bytes))
        .and_then(|()| input.flush());
    enum Said {
        Marker,
        Failed(String),
    }
    let said = marker::find(&mut output, |line| {
        if line == marker::LINE {
            return Some(Said::Marker);
        }
        let why = line.strip_prefix(FAILED.trim_end().as_bytes())?;
        Some(Said::Failed(shown(&String::from_utf8_lossy(why))))
    });
    match said {
        Ok(Some(Said::Marker)) => Ok(Bootstrapped::Runs(running, input, output)),
        Ok(Some(Said::Failed(why))) => {
            // The pipes are closed, so that a writing remote end is not blocked.
            drop((input, output));
            running.wait()?;
            Err(refused(target, &why, size as u64))
        }
        Ok(None) | Err(_) => {
            drop((input, output));
            Err(super::explain(target, running.wait()?))
        }
    }
}

/// The script as one line.
fn script(name: &str) -> String {
    SCRIPT.join("; ").replace("NAME", &simple(name))
}

/// The program's name for `command -v`, if it is a plain name.
fn simple(name: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+~".contains(c);
    if name.starts_with('-') || !name.chars().all(plain) {
        return "sh".to_owned();
    }
    name.to_owned()
}

/// This program without the parts that the kernel does not load.
fn program() -> io::Result<Vec<u8>> {
    let mut program = std::fs::read("/proc/self/exe")?;
    image::without_sections(&mut program);
    Ok(program)
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

fn refused(target: &Target, why: &str, size: u64) -> Failure {
    let full = ["No space left", "uota exceeded", "File too large", "too many links"];
    if full.iter().any(|words| why.contains(words)) {
        let text = format!(
            "no space on {target} for a temporary copy of packtrain ({}, in $TMPDIR or /tmp there): \
             make room, or install packtrain there; nothing was left behind ({why})",
            ByteCount(size)
        );
        return Failure::new(FailureKind::TargetFull, text);
    }
    not_installed(target, &format!("a temporary copy does not run there ({why})"))
}

fn not_installed(target: &Target, why: &str) -> Failure {
    let text = format!(
        "packtrain is not installed at {target}, and {why}: install it there, or name it with \
         --remote-path"
    );
    Failure::new(FailureKind::Fatal, text)
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn the_script_is_a_line_and_means_what_it_says() {
        let script = script("packtrain");
        assert!(!script.contains('\n'));
        let checked = Command::new("sh").args(["-n", "-c", &script]).status().unwrap();
        assert!(checked.success());
    }

    #[test]
    fn only_names_are_looked_for() {
        assert_eq!(simple("~/bin/packtrain"), "~/bin/packtrain");
        for other in ["sudo packtrain", "$(reboot)", "a;b", "-v", "a'b"] {
            assert_eq!(simple(other), "sh", "{other}");
        }
    }

    #[test]
    fn a_shell_says_what_it_is() {
        for (name, present) in [("sh", true), ("packtrain-nowhere", false)] {
            let mut child = Command::new("sh")
                .args(["-c", &posix(LOADER)])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            writeln!(child.stdin.take().unwrap(), "{}", script(name)).unwrap();
            let mut said = Vec::new();
            child.stdout.take().unwrap().read_to_end(&mut said).unwrap();
            child.wait().unwrap();
            let ready = said.split(|byte| *byte == b'\n').find_map(Ready::parse).unwrap();
            assert_eq!(ready.present, present);
            assert!(ready.system.contains(' '), "{ready:?}");
        }
    }

    #[test]
    fn what_the_other_end_says_is_kept_in_bounds() {
        let target = Target::new(None, "host").unwrap();
        let why =
            shown(&format!("gzip: stdout: No space left on device\u{1b}[2J{}", "x".repeat(999)));
        assert!(why.len() <= MAX_REASON && !why.contains('\u{1b}'));
        let full = refused(&target, &why, 9 << 20);
        assert_eq!(full.kind, FailureKind::TargetFull);
        assert!(full.text.starts_with("no space on host"), "{}", full.text);
        let other = refused(&target, "Permission denied", 1);
        assert_eq!(other.kind, FailureKind::Fatal);
        assert!(Ready::parse(b"PACKTRAIN-BOOTSTRAP-1 Linux").is_none());
    }
}
