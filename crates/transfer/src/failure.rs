//! Why something failed, in a form that crosses the wire and becomes an exit code.

use serde::{Deserialize, Serialize};

use crate::limits::{MAX_FAILED, MAX_TEXT};

/// One failure, of an entry or of the whole transfer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{text}")]
pub struct Failure {
    /// What kind of failure.
    pub kind: FailureKind,
    /// For people: what happened and what to do about it.
    pub text: String,
}

/// Kinds of failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum FailureKind {
    /// A wrong command line or an option this build does not have.
    Usage,
    /// The source is not there.
    SourceMissing,
    /// The source was there and is gone.
    Vanished,
    /// The source changed while it was read.
    Changed,
    /// The source cannot be read.
    Unreadable,
    /// The place to write to is not there.
    TargetMissing,
    /// The target cannot be written: permission, read-only, name too long, is a directory.
    TargetRefused,
    /// No room for blocks or inodes, or over quota.
    TargetFull,
    /// The peer or the network is away; trying again may help.
    Temporary,
    /// Key, ticket or root do not allow it.
    NotAuthorised,
    /// Digests do not fit.
    Integrity,
    /// The peer broke the protocol, or versions do not meet.
    Protocol,
    /// Stopped on request.
    Cancelled,
    /// Anything else that ends the transfer.
    Fatal,
}

impl Failure {
    /// A failure of `kind` described by `text`.
    pub fn new(kind: FailureKind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into() }
    }
}

impl Failure {
    /// The same with no more text than is kept of what a peer says.
    pub(crate) fn bounded(mut self) -> Self {
        self.text.truncate(self.text.floor_char_boundary(MAX_TEXT));
        self
    }
}

/// The failure of a peer that broke the protocol.
pub(crate) fn protocol(text: &str) -> Failure {
    Failure::new(FailureKind::Protocol, format!("the other end broke the protocol: {text}"))
}

/// Failures of single entries: all counted, the first [`MAX_FAILED`] kept.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    kept: Vec<(Vec<u8>, Failure)>,
    count: u64,
    vanished: u64,
}

impl Failures {
    /// Notes one.
    pub(crate) fn note(&mut self, path: Vec<u8>, failure: Failure) {
        self.count = self.count.saturating_add(1);
        let vanished = u64::from(failure.kind == FailureKind::Vanished);
        self.vanished = self.vanished.saturating_add(vanished);
        if self.kept.len() < MAX_FAILED {
            self.kept.push((path, failure));
        }
    }

    /// Notes what the peer counted and told only in part.
    pub(crate) fn note_told(&mut self, told: Vec<(Vec<u8>, Failure)>, count: u64, vanished: u64) {
        self.count = self.count.saturating_add(count);
        self.vanished = self.vanished.saturating_add(vanished.min(count));
        let room = MAX_FAILED.saturating_sub(self.kept.len());
        let told = told.into_iter().take(room);
        self.kept.extend(told.map(|(path, failure)| (path, failure.bounded())));
    }

    /// How many there were.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// How many of them had vanished at the source.
    pub(crate) fn vanished(&self) -> u64 {
        self.vanished
    }

    /// Those kept.
    pub(crate) fn take(&mut self) -> Vec<(Vec<u8>, Failure)> {
        std::mem::take(&mut self.kept)
    }
}
