//! How the command ends: exit codes and error messages.

use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;
use std::sync::atomic::{AtomicI32, Ordering};

use packtrain_identity::config::ConfigError;
use packtrain_service::{FailureKind, Outcome, RequestError};

use crate::out::terminal::{self, Tone};
use crate::out::{clean, done, json_line};

/// An exit code: 0 done, 2 usage, 3 source missing, ... 128 + n signal n.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Code(pub(crate) u8);

impl Code {
    pub(crate) const DONE: Self = Self(0);

    /// The exit code of a command that signal `number` ended.
    pub(crate) fn signal(number: i32) -> Self {
        Self(u8::try_from(number).map_or(u8::MAX, |number| number.saturating_add(128)))
    }

    /// The exit code of a failure: that of the signal that stopped the command, if one did.
    pub(crate) fn of(error: &RequestError) -> Self {
        match (error.kind, stop_signal()) {
            (FailureKind::Cancelled, Some(signal)) => Self::signal(signal),
            _ => Self(error.exit_code()),
        }
    }

    /// The same code, or that of a failure if a successful command could not write its output.
    pub(crate) fn with_output_lost(self, why: Option<&std::io::Error>) -> Self {
        match why {
            Some(error) if self == Self::DONE => {
                print_failure(&format!("cannot write to standard output: {error}"));
                Self(RequestError::new(FailureKind::Fatal, "").exit_code())
            }
            _ => self,
        }
    }
}

impl From<Code> for ExitCode {
    fn from(code: Code) -> Self {
        Self::from(code.0)
    }
}

/// The last signal that requested a stop; 0 if none did.
static STOP_SIGNAL: AtomicI32 = AtomicI32::new(0);

/// A signal requested a stop.
pub(crate) fn set_stop_signal(signal: i32) {
    STOP_SIGNAL.store(signal, Ordering::Release);
}

fn stop_signal() -> Option<i32> {
    Some(STOP_SIGNAL.load(Ordering::Acquire)).filter(|signal| *signal != 0)
}

/// A command that ends before it started its work.
#[derive(Debug)]
pub(crate) enum Exit {
    /// A message of clap: help, the version, or an error in the command line, with the source of
    /// the value.
    Clap(Box<clap::Error>, Option<String>),
    /// An error.
    Failed(RequestError),
}

impl Exit {
    /// A usage error that clap does not detect.
    pub(crate) fn usage(text: impl Into<String>) -> Self {
        Self::Failed(RequestError::new(FailureKind::Usage, text))
    }

    /// The error; a message of clap becomes a usage error.
    pub(crate) fn into_error(self) -> RequestError {
        match self {
            Self::Clap(error, _) => RequestError::new(FailureKind::Usage, first_line(&error)),
            Self::Failed(error) => error,
        }
    }

    /// Prints it to stderr; help and the version go to stdout.
    pub(crate) fn report(self) -> Code {
        match self {
            Self::Clap(error, origin) => report_clap(&error, origin.as_deref()),
            Self::Failed(error) => {
                print_failure(&error.text);
                Code::of(&error)
            }
        }
    }

    /// The same for a command line that could not be parsed. With `--json` it also prints a last
    /// JSON line.
    pub(crate) fn report_early(self, line: &[OsString]) -> Code {
        let failed = match &self {
            Self::Clap(error, _) if !error.use_stderr() => None,
            Self::Clap(error, _) => Some(RequestError::new(FailureKind::Usage, first_line(error))),
            Self::Failed(error) => Some(error.clone()),
        };
        let asked = line.iter().skip(1).take_while(|word| *word != "--").any(|w| w == "--json");
        let code = self.report();
        let command = line.get(1).and_then(|word| word.to_str());
        match (failed.filter(|_| asked), command) {
            (Some(error), Some("cp" | "verify" | "send" | "claim")) => {
                json_line(&done::cp(&Outcome::from(error), code, None));
            }
            #[cfg(feature = "laboratory")]
            (Some(error), Some("sim")) => crate::out::sim::failed(&error.text, code.0),
            (Some(error), Some("perf")) => json_line(&done::perf(&error.into(), code)),
            _ => {}
        }
        code
    }
}

impl From<RequestError> for Exit {
    fn from(error: RequestError) -> Self {
        Self::Failed(error)
    }
}

impl From<ConfigError> for Exit {
    fn from(error: ConfigError) -> Self {
        Self::usage(error.to_string())
    }
}

/// Prints a message to stderr, after the program's name. The text may contain untrusted names, so
/// line breaks and terminal control sequences are escaped. On a terminal, long messages break at
/// words.
pub(crate) fn print_message(text: &str) {
    print_toned(text, Tone::Plain);
}

/// The same for a warning.
pub(crate) fn print_warning(text: &str) {
    print_toned(text, Tone::Warning);
}

/// The same for a failure.
pub(crate) fn print_failure(text: &str) {
    print_toned(text, Tone::Failure);
}

fn print_toned(text: &str, tone: Tone) {
    let text = without_codes(&clean(text.trim_end()));
    let text = match terminal::width() {
        Some(width) => terminal::wrap(&text, width, "packtrain: ".len()),
        None => text,
    };
    print_stderr(&format!("{}{text}", terminal::prefix(tone)));
}

/// The text without the numbers that the standard library adds to the errors of the system.
fn without_codes(text: &str) -> String {
    let (mut rest, mut out) = (text, String::with_capacity(text.len()));
    while let Some((before, after)) = rest.split_once(" (os error ") {
        let digits = after.bytes().take_while(u8::is_ascii_digit).count();
        match after[digits..].strip_prefix(')') {
            Some(behind) if digits > 0 => {
                out.push_str(before);
                rest = behind;
            }
            _ => {
                out.push_str(before);
                out.push_str(" (os error ");
                rest = after;
            }
        }
    }
    out.push_str(rest);
    out
}

/// Prints one line to stderr. A closed stderr is ignored.
pub(crate) fn print_stderr(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

fn report_clap(error: &clap::Error, origin: Option<&str>) -> Code {
    if !error.use_stderr() {
        let _ = error.print();
        return Code::DONE;
    }
    if error.kind() == clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let _ = error.print();
        return Code(2);
    }
    let text = error.render().to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    // The message has several lines. clap quotes arguments unescaped.
    let lines: Vec<String> = text.trim_end().lines().map(clean).collect();
    print_stderr(&format!("{}{}", terminal::prefix(Tone::Failure), lines.join("\n")));
    if let Some(origin) = origin {
        print_stderr(&format!("(the value comes from {origin})"));
    }
    Code(2)
}

/// The first paragraph of clap's message, on one line.
fn first_line(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let lines = text.lines().take_while(|line| !line.is_empty()).map(str::trim);
    let line = lines.collect::<Vec<_>>().join(" ");
    line.strip_prefix("error: ").unwrap_or(&line).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_errors_are_left_out() {
        for (text, shown) in [
            ("a: No such file (os error 2): check", "a: No such file: check"),
            ("x (os error 2) (os error 13)", "x"),
            ("plain (os error x) y", "plain (os error x) y"),
            (" (os error )", " (os error )"),
            ("", ""),
        ] {
            assert_eq!(without_codes(text), shown);
        }
    }
}
