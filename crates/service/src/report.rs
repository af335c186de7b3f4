//! Reports of a running transfer.

use std::collections::BTreeMap;

use packtrain_proto::LossTally;
use packtrain_transfer::FileReport;
use packtrain_units::{ByteCount, DataRate, Duration};
use serde::{Deserialize, Serialize};

/// Receives the events of a transfer. Calls come from several threads and must not block for long.
pub trait Reporter: Send + Sync {
    /// Called a few times per second.
    fn progress(&self, snapshot: &ProgressSnapshot);
    /// A file is done. Called only with the options `report_files`, `dry_run` or `verify`.
    fn file(&self, path: &[u8], report: &FileReport);
    /// A message for the user.
    fn notice(&self, notice: &Notice);
    /// Packtrain itself is being sent to `host`, where it is not installed: so many bytes of so many.
    fn sending_program(&self, _host: &str, _sent: ByteCount, _of: ByteCount) {}
    /// This depot corrupted bytes, which were detected. A notice reports it too.
    fn corrupted(&self, _depot: &str) {}
    /// The transfer was interrupted, and is tried again. A notice reports it too.
    fn interrupted(&self) {}
}

/// The progress of a transfer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProgressSnapshot {
    /// Bytes of the object that are correct at the target so far, moved or found there.
    pub bytes_done: ByteCount,
    /// Of those, bytes that were found at the target.
    pub bytes_present: ByteCount,
    /// Bytes of the whole object; `None` while the walk runs.
    pub bytes_total: Option<ByteCount>,
    /// Files that are complete under their names, as far as this end knows of them.
    pub files_done: u64,
    /// Number of files; `None` while the walk runs, or if this end does not learn which of them are
    /// complete.
    pub files_total: Option<u64>,
    /// Recent goodput.
    pub rate: DataRate,
    /// Estimated remaining time at this rate, if known.
    pub eta: Option<Duration>,
    /// What limits the rate, in a few words, if known.
    pub verdict: Option<String>,
    /// The transport that recently moved most.
    pub transport: String,
}

/// A message for the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Its importance.
    pub level: NoticeLevel,
    /// One sentence, without a full stop or the program's name.
    pub text: String,
}

/// The importance of a notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NoticeLevel {
    /// The reason for a choice; printed only with `explain`.
    Explain,
    /// Printed unless quiet: a fallback, a new host key.
    Info,
    /// Always printed.
    Warning,
}

impl Notice {
    /// A notice of `level`.
    pub fn new(level: NoticeLevel, text: impl Into<String>) -> Self {
        Self { level, text: text.into() }
    }
}

/// Why packets were lost.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LossCause {
    /// The classifier's cause of most losses: `network`, `cpu` (of the receiving host), `hybrid`,
    /// `link` or `inconclusive`. `None` if no window with losses was classified.
    pub cause: Option<String>,
    /// Mean probability, over the lost packets, that the receiving host alone lost them.
    pub p_cpu: Option<f64>,
    /// Share of the classified losses that the receiving host counted itself, 0 to 1.
    pub host_share: Option<f64>,
    /// Lost bytes by place: `host`, `receiver` (no buffer), `path`.
    pub bytes: BTreeMap<String, ByteCount>,
}

impl LossCause {
    /// From the verdicts of a flow's classifier.
    pub fn judged(loss: &LossTally) -> Self {
        Self {
            cause: loss.cause().map(|cause| cause.name().to_owned()),
            p_cpu: loss.p_cpu(),
            host_share: loss.host_share(),
            bytes: BTreeMap::new(),
        }
    }
}
