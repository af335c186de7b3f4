//! Errors of requests and their exit codes.

use packtrain_transfer::{Failure, FailureKind};

use packtrain_identity::config::ConfigError;
use packtrain_identity::keys::KeyError;

/// Exit code of `--error-on-no-transfer` if no file had to be moved.
pub const EXIT_NOTHING_MOVED: u8 = 9;

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct RequestError {
    /// The kind of failure; it determines the exit code.
    pub kind: FailureKind,
    /// The message: what happened, and after a colon what to do about it.
    pub text: String,
    /// A journal remains, so the same command resumes.
    pub resumable: bool,
}

impl RequestError {
    /// A failure that left nothing to resume.
    pub fn new(kind: FailureKind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into(), resumable: false }
    }

    /// The exit code of the command.
    pub const fn exit_code(&self) -> u8 {
        exit_code(self.kind)
    }
}

impl From<ConfigError> for RequestError {
    fn from(error: ConfigError) -> Self {
        Self::new(FailureKind::Usage, error.to_string())
    }
}

impl From<KeyError> for RequestError {
    fn from(error: KeyError) -> Self {
        let kind = match error {
            KeyError::NoDirectory(_) => FailureKind::Usage,
            KeyError::File(_) => FailureKind::Fatal,
        };
        Self::new(kind, error.to_string())
    }
}

impl From<Failure> for RequestError {
    fn from(failure: Failure) -> Self {
        Self::new(failure.kind, failure.text)
    }
}

/// The exit code of a failure that ended a command. For `Cancelled` the code of a signal (128 + n)
/// takes precedence, see [`super::StopHandle`].
pub const fn exit_code(kind: FailureKind) -> u8 {
    match kind {
        FailureKind::Usage => 2,
        FailureKind::SourceMissing => 3,
        FailureKind::TargetMissing => 4,
        FailureKind::Temporary => 5,
        FailureKind::TargetRefused
        | FailureKind::TargetFull
        | FailureKind::Protocol
        | FailureKind::Fatal => 7,
        FailureKind::NotAuthorised => 12,
        FailureKind::Integrity => 13,
        FailureKind::Changed | FailureKind::Unreadable => 23,
        FailureKind::Vanished => 24,
        FailureKind::Cancelled => 130,
    }
}

/// The name of a kind of failure in JSON.
pub const fn failure_word(kind: FailureKind) -> &'static str {
    match kind {
        FailureKind::Usage => "usage",
        FailureKind::SourceMissing => "source_missing",
        FailureKind::Vanished => "vanished",
        FailureKind::Changed => "changed",
        FailureKind::Unreadable => "unreadable",
        FailureKind::TargetMissing => "target_missing",
        FailureKind::TargetRefused => "target_refused",
        FailureKind::TargetFull => "target_full",
        FailureKind::Temporary => "temporary",
        FailureKind::NotAuthorised => "not_authorised",
        FailureKind::Integrity => "integrity",
        FailureKind::Protocol => "protocol",
        FailureKind::Cancelled => "cancelled",
        FailureKind::Fatal => "fatal",
    }
}
