//! How the command ends: exit codes, and the sentence that goes with a failure.

use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;

use packtrain_identity::config::ConfigError;
use packtrain_service::{FailureKind, Outcome, RequestError};

use crate::out::{clean, done};

/// An exit code of design: 0 done, 2 usage, 3 source missing, ... 128 + n signal n.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Code(pub(crate) u8);

impl Code {
    pub(crate) const DONE: Self = Self(0);

    /// The code of an end by a signal.
    pub(crate) fn signal(number: i32) -> Self {
        Self(u8::try_from(number).map_or(u8::MAX, |number| number.saturating_add(128)))
    }

    /// The same, unless all was well but what was said on stdout did not get there.
    pub(crate) fn with_output_lost(self, why: Option<&std::io::Error>) -> Self {
        match why {
            Some(error) if self == Self::DONE => {
                complain(&format!("cannot write to standard output: {error}"));
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

/// A command that ends before it did anything.
#[derive(Debug)]
pub(crate) enum Exit {
    /// What clap has to say: help, the version, or a wrong command line.
    Clap(Box<clap::Error>, Option<String>),
    /// A failure, for people.
    Failed(RequestError),
}

impl Exit {
    /// A wrong use of the command that clap does not see.
    pub(crate) fn usage(text: impl Into<String>) -> Self {
        Self::Failed(RequestError::new(FailureKind::Usage, text))
    }

    /// The failure that it is.
    pub(crate) fn into_error(self) -> RequestError {
        match self {
            Self::Clap(error, _) => RequestError::new(FailureKind::Usage, first_line(&error)),
            Self::Failed(error) => error,
        }
    }

    /// Says it on stderr (help and the version: on stdout).
    pub(crate) fn report(self) -> Code {
        match self {
            Self::Clap(error, origin) => report_clap(&error, origin.as_deref()),
            Self::Failed(error) => {
                complain(&error.text);
                Code(error.exit_code())
            }
        }
    }

    /// The same for a command line that was not understood; a program that asked for `--json`
    /// gets its last line all the same.
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
                done::print(&done::Cp::new(&Outcome::from(error), code, None));
            }
            (Some(error), Some("sim")) => crate::out::sim::failed(&error.text, code.0),
            (Some(error), Some("perf")) => done::print(&done::Perf::new(&error.into(), code)),
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

/// One line on stderr, after the program's name. The text may hold names and words of others: it
/// stays one line, and a terminal finds nothing in it to obey.
pub(crate) fn complain(text: &str) {
    say(&format!("packtrain: {}", clean(text.trim_end())));
}

/// One line on stderr. Where nobody listens, nobody is told: that is no reason to stop.
pub(crate) fn say(text: &str) {
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
    // Several lines of clap's; it shows what was typed as it is.
    let lines: Vec<String> = text.trim_end().lines().map(clean).collect();
    say(&format!("packtrain: {}", lines.join("\n")));
    if let Some(origin) = origin {
        say(&format!("(the value comes from {origin})"));
    }
    Code(2)
}

/// The first paragraph of what clap says, on one line.
fn first_line(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let lines = text.lines().take_while(|line| !line.is_empty()).map(str::trim);
    let line = lines.collect::<Vec<_>>().join(" ");
    line.strip_prefix("error: ").unwrap_or(&line).to_owned()
}
