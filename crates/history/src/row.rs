//! What is kept of one transfer.

use packtrain_units::{ByteCount, DataRate, Duration};
use serde::{Deserialize, Serialize};

/// One transfer as one of its ends saw it. Everything but its names may be missing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Row {
    /// Unlike that of any other row, in databases that many machines share too.
    pub key: String,
    /// What people call it: eight hexadecimal digits.
    pub id: String,
    /// When it began, since 1970.
    pub began: Duration,
    /// What it was.
    pub kind: Kind,
    /// Which end wrote the row.
    pub side: Side,
    /// What that end did.
    pub role: Role,
    /// How it ended.
    pub ended: Ended,
    /// The machine that wrote the row.
    pub host: String,
    /// The user it ran for.
    pub login: String,
    /// The process.
    pub pid: u32,
    /// The version of the program.
    pub version: String,
    /// The machine that bytes came from, as the user named it; this one by its own name.
    pub from_host: String,
    /// The machine that they went to.
    pub to_host: String,
    /// Where the bytes came from, as the user wrote it.
    pub source: String,
    /// Where they went.
    pub target: String,
    /// The other end's address and key, where it called.
    pub peer: String,
    /// The transport that moved most, or `none`.
    pub transport: String,
    /// What each transport moved.
    pub transports: Vec<TransportBytes>,
    /// The controller that was asked for or is in force.
    pub controller: String,
    /// Streams or flows side by side; none where nobody counts.
    pub streams: Option<u32>,
    /// Bytes of the whole object.
    pub bytes: ByteCount,
    /// Of these, moved.
    pub bytes_moved: ByteCount,
    /// Files that moved.
    pub files: u64,
    /// Files that failed.
    pub failed_files: u64,
    /// From the start of the command to durable.
    pub elapsed: Duration,
    /// Useful bytes over the whole time.
    pub throughput: DataRate,
    /// Throughput over time.
    pub series: Vec<Point>,
    /// Payload sent again.
    pub retransmitted: ByteCount,
    /// Least round trip.
    pub rtt: Option<Duration>,
    /// Smoothed round trip at the end.
    pub srtt: Option<Duration>,
    /// Datagrams with payload sent.
    pub packets_sent: Option<u64>,
    /// Of these, lost.
    pub packets_lost: Option<u64>,
    /// Of these, dropped by the receiving host.
    pub host_drops: Option<u64>,
    /// What the losses were put down to.
    pub loss_cause: Option<String>,
    /// Probability that the receiving host did it, 0 to 1.
    pub p_cpu: Option<f64>,
    /// One sentence on what bounded it.
    pub verdict: Option<String>,
    /// The kernel's congestion control of TCP streams.
    pub tcp_cc: Option<String>,
    /// `TCP_INFO` of the streams together, as JSON.
    pub tcp_info: Option<String>,
    /// What was measured with how many streams.
    pub stream_samples: Vec<StreamSample>,
    /// What held the rate below what the path may carry: `rate` (`--rate`), `policy`, or
    /// `peer-policy`. Such a row says nothing of its path.
    pub held_by: Option<String>,
    /// Processes that wanted a processor in the minute before the end, in the mean.
    pub load: Option<f64>,
    /// Share of the sending machine's processors that was busy, 0 to 1.
    pub source_busy: Option<f64>,
    /// Share of the receiving machine's.
    pub target_busy: Option<f64>,
    /// The exit code that the command ended with.
    pub exit_code: Option<u32>,
    /// What kind of failure ended it.
    pub error_kind: Option<String>,
    /// The failure for people.
    pub error: Option<String>,
    /// All that both ends measured, as `diagnose` keeps it, as JSON. Only the newest rows have it.
    pub evidence: Option<String>,
}

/// A stretch of time and what moved in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Point {
    /// Its end, since the begin of the transfer.
    pub at: Duration,
    /// The rate in it.
    pub rate: DataRate,
}

/// What one transport moved.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransportBytes {
    /// Its name.
    pub transport: String,
    /// Payload that it moved.
    pub bytes: ByteCount,
}

/// A throughput that so many streams had together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamSample {
    /// How many.
    pub streams: u32,
    /// What they moved in a second.
    pub throughput: DataRate,
    /// When, since 1970.
    #[serde(default)]
    pub began: Duration,
}

/// Enums that stand in a column as a word.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "lowercase")]
        pub enum $name { $($(#[$vdoc])* $variant,)* }

        impl $name {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// Its word, in rows and for people.
            pub const fn word(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }

            /// What a word means.
            pub fn from_word(word: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|each| each.word() == word)
            }
        }
    };
}

words! {
    /// What a transfer was.
    Kind {
        /// Files were copied.
        #[default]
        Cp = "cp",
        /// Files were compared.
        Verify = "verify",
        /// Bytes went from memory to memory.
        Perf = "perf",
    }
}

words! {
    /// Which end a row tells of.
    Side {
        /// The one that was started by the user.
        #[default]
        Caller = "caller",
        /// A server, or what ssh started.
        Called = "called",
    }
}

words! {
    /// What an end did.
    Role {
        /// It sent.
        #[default]
        Source = "source",
        /// It received.
        Sink = "sink",
        /// Both ends were here.
        Both = "both",
        /// It brought two other machines together.
        Relay = "relay",
    }
}

words! {
    /// How a transfer ended.
    Ended {
        /// Well.
        #[default]
        Done = "done",
        /// Some files failed, the others are there.
        Partial = "partial",
        /// With a failure.
        Failed = "failed",
        /// Somebody wished the end.
        Cancelled = "cancelled",
        /// Its process vanished without a word.
        Killed = "killed",
        /// Not yet.
        Running = "running",
    }
}
