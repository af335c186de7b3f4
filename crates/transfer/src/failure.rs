//! Failures in the form that is sent to the peer and that determines the exit code.

use serde::{Deserialize, Serialize};

use crate::limits::{MAX_FAILED, MAX_TEXT};

/// One failure, of an entry or of the whole transfer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{text}")]
pub struct Failure {
    /// The kind of failure.
    pub kind: FailureKind,
    /// What happened and what to do about it, for the user.
    pub text: String,
}

/// Kinds of failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum FailureKind {
    /// A wrong command line, or an option that this build does not have.
    Usage,
    /// The source does not exist.
    SourceMissing,
    /// The source existed and was removed during the transfer.
    Vanished,
    /// The source changed while it was read.
    Changed,
    /// The source cannot be read.
    Unreadable,
    /// The destination does not exist.
    TargetMissing,
    /// The target cannot be written: permission, read-only, name too long, is a directory.
    TargetRefused,
    /// No free blocks or inodes, or the quota is exceeded.
    TargetFull,
    /// The peer or the network is unavailable; a retry may succeed.
    Temporary,
    /// The key, ticket or root does not permit it.
    NotAuthorised,
    /// Digests differ.
    Integrity,
    /// The peer violated the protocol, or there is no common version.
    Protocol,
    /// Cancelled on request.
    Cancelled,
    /// Any other failure that ends the transfer.
    Fatal,
}

impl Failure {
    /// A failure of `kind` described by `text`.
    pub fn new(kind: FailureKind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into() }
    }
}

impl Failure {
    /// Truncates the text to [`MAX_TEXT`] bytes, the limit for text from a peer.
    #[must_use]
    pub fn bounded(mut self) -> Self {
        self.bound_text();
        self
    }

    pub(crate) fn bound_text(&mut self) {
        self.text.truncate(self.text.floor_char_boundary(MAX_TEXT));
        // A truncated string keeps its memory.
        self.text.shrink_to_fit();
    }
}

/// The failure of a copy that is complete, but whose source was to remove files and has not said
/// which: without an error, the caller would rely on their removal. `early` is why the source ended.
pub fn removal_unknown(early: Option<Failure>) -> Failure {
    // The user who stops it sees that, and the status of his signal.
    let stopped = early.filter(|failure| failure.kind == FailureKind::Cancelled);
    let text = "everything is copied, but the source ended before it said which files it removed; \
                the same command moves those that are left";
    stopped.unwrap_or_else(|| Failure::new(FailureKind::Fatal, text))
}

/// The failure of a peer that violated the protocol.
pub fn protocol(text: &str) -> Failure {
    Failure::new(FailureKind::Protocol, format!("the other end broke the protocol: {text}"))
}

/// Failures of single entries: all are counted, the first [`MAX_FAILED`] are kept.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    kept: Vec<(Vec<u8>, Failure)>,
    count: u64,
    vanished: u64,
}

impl Failures {
    /// Adds one failure.
    pub(crate) fn add(&mut self, path: Vec<u8>, failure: Failure) {
        self.count = self.count.saturating_add(1);
        let vanished = u64::from(failure.kind == FailureKind::Vanished);
        self.vanished = self.vanished.saturating_add(vanished);
        if self.kept.len() < MAX_FAILED {
            self.kept.push((path, failure));
        }
    }

    /// Adds failures reported by the peer: the counts of all, and those that it listed.
    pub(crate) fn add_reported(
        &mut self,
        listed: Vec<(Vec<u8>, Failure)>,
        count: u64,
        vanished: u64,
    ) {
        self.count = self.count.saturating_add(count);
        self.vanished = self.vanished.saturating_add(vanished.min(count));
        let room = MAX_FAILED.saturating_sub(self.kept.len());
        let listed = listed.into_iter().take(room);
        self.kept.extend(listed.map(|(path, failure)| (path, failure.bounded())));
    }

    /// Number of failures.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Number of entries that vanished at the source.
    pub(crate) fn vanished(&self) -> u64 {
        self.vanished
    }

    /// Takes the failures that were kept.
    pub(crate) fn take(&mut self) -> Vec<(Vec<u8>, Failure)> {
        std::mem::take(&mut self.kept)
    }
}
