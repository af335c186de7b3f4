//! What a running transfer tells.

use std::collections::BTreeMap;

use packtrain_proto::LossTally;
use packtrain_transfer::FileReport;
use packtrain_units::{ByteCount, DataRate, Duration};
use serde::{Deserialize, Serialize};

/// Hears how a transfer goes. Calls come from several threads and must not block for long.
pub trait Reporter: Send + Sync {
    /// A few times a second.
    fn progress(&self, snapshot: &ProgressSnapshot);
    /// A file is done; only when the options ask for `report_files`, `dry_run` or `verify`.
    fn file(&self, path: &[u8], report: &FileReport);
    /// Something to say.
    fn notice(&self, notice: &Notice);
    /// This depot changed bytes, which were caught; it was also said.
    fn corrupted(&self, _depot: &str) {}
}

/// How far a transfer is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProgressSnapshot {
    /// Bytes of the object that are right at the target so far, moved or found.
    pub bytes_done: ByteCount,
    /// Bytes of the whole object; none while the walk still runs.
    pub bytes_total: Option<ByteCount>,
    /// Files complete under their names.
    pub files_done: u64,
    /// Files there are; none while the walk still runs.
    pub files_total: Option<u64>,
    /// Goodput of late.
    pub rate: DataRate,
    /// How long it will take at this rate, if that can be said.
    pub eta: Option<Duration>,
    /// A few words on what bounds the rate, if known.
    pub verdict: Option<String>,
    /// The transport that moves most of late.
    pub transport: String,
}

/// One thing to say to the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// How much it matters.
    pub level: NoticeLevel,
    /// One sentence, without a full stop or the program's name.
    pub text: String,
}

/// How much a notice matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NoticeLevel {
    /// Why something was chosen; only with `explain`.
    Explain,
    /// Said unless quiet: a fallback, a new host key.
    Info,
    /// Said always.
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
    /// What the classifier found for most of the losses: `network`, `cpu` (of the receiving
    /// host), `hybrid`, `link` or `inconclusive`. None if no window with losses was judged.
    pub cause: Option<String>,
    /// The probability that the receiving host alone lost a packet, in the mean of those lost.
    pub p_cpu: Option<f64>,
    /// The share of the judged losses that the receiving host counted itself, 0 to 1.
    pub host_share: Option<f64>,
    /// Lost bytes by who was seen to lose them: `host`, `receiver` (no room), `path`.
    pub bytes: BTreeMap<String, ByteCount>,
}

impl LossCause {
    /// What a flow's classifier found.
    pub fn judged(loss: &LossTally) -> Self {
        Self {
            cause: loss.cause().map(|cause| cause.name().to_owned()),
            p_cpu: loss.p_cpu(),
            host_share: loss.host_share(),
            bytes: BTreeMap::new(),
        }
    }
}
