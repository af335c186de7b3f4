//! The row of a transfer.

use packtrain_units::{ByteCount, DataRate, Duration};
use serde::{Deserialize, Serialize};

/// One transfer as seen by one of its ends. All fields except the names may be missing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Row {
    /// Unique, also in a database that several machines share.
    pub key: String,
    /// The short id for users: eight hexadecimal digits.
    pub id: String,
    /// Start of the transfer, since 1970.
    pub began: Duration,
    /// The kind of transfer.
    pub kind: Kind,
    /// The end that wrote the row.
    pub side: Side,
    /// The role of that end.
    pub role: Role,
    /// How it ended.
    pub ended: Ended,
    /// The machine that wrote the row.
    pub host: String,
    /// The user of the process.
    pub login: String,
    /// The process id.
    pub pid: u32,
    /// The version of the program.
    pub version: String,
    /// The sending machine, as the user named it; this machine has its own name.
    pub from_host: String,
    /// The receiving machine.
    pub to_host: String,
    /// The source, as the user wrote it.
    pub source: String,
    /// The target, as the user wrote it.
    pub target: String,
    /// Address and key of the other end, if it was the caller.
    pub peer: String,
    /// The transport that moved most, or `none`.
    pub transport: String,
    /// The bytes of each transport.
    pub transports: Vec<TransportBytes>,
    /// The requested or active congestion controller.
    pub controller: String,
    /// Number of parallel streams or flows, if known.
    pub streams: Option<u32>,
    /// Bytes of the whole object.
    pub bytes: ByteCount,
    /// Moved bytes of it.
    pub bytes_moved: ByteCount,
    /// Files that moved.
    pub files: u64,
    /// Files that failed.
    pub failed_files: u64,
    /// Time from the start of the command until all data is durable.
    pub elapsed: Duration,
    /// Useful bytes over the whole time.
    pub throughput: DataRate,
    /// Throughput over time.
    pub series: Vec<Point>,
    /// Retransmitted payload.
    pub retransmitted: ByteCount,
    /// Minimum round-trip time.
    pub rtt: Option<Duration>,
    /// Final smoothed round-trip time.
    pub srtt: Option<Duration>,
    /// Datagrams with payload sent.
    pub packets_sent: Option<u64>,
    /// Lost datagrams of these.
    pub packets_lost: Option<u64>,
    /// Datagrams of these that the receiving host dropped.
    pub host_drops: Option<u64>,
    /// The cause of the losses.
    pub loss_cause: Option<String>,
    /// Probability that the receiving host caused the losses, 0 to 1.
    pub p_cpu: Option<f64>,
    /// What limited the transfer, as one sentence.
    pub verdict: Option<String>,
    /// The kernel's congestion control of TCP streams.
    pub tcp_cc: Option<String>,
    /// `TCP_INFO` of the streams together, as JSON.
    pub tcp_info: Option<String>,
    /// Measured throughputs by number of streams.
    pub stream_samples: Vec<StreamSample>,
    /// What limited the rate below that of the path: `rate` (`--rate`), `policy`, or `peer-policy`.
    /// Such a row is not used as a measurement of its path.
    pub held_by: Option<String>,
    /// Load average of the last minute before the end.
    pub load: Option<f64>,
    /// Share of the sending machine's processors that was busy, 0 to 1.
    pub source_busy: Option<f64>,
    /// Share of the receiving machine's processors that was busy, 0 to 1.
    pub target_busy: Option<f64>,
    /// The exit code of the command.
    pub exit_code: Option<u32>,
    /// The kind of failure that ended it.
    pub error_kind: Option<String>,
    /// The message of the failure.
    pub error: Option<String>,
    /// The measurements of both ends for `diagnose`, as JSON. Only the newest rows have it.
    pub evidence: Option<String>,
}

/// An interval and its rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Point {
    /// Its end, since the start of the transfer.
    pub at: Duration,
    /// The rate in the interval.
    pub rate: DataRate,
}

/// The bytes of one transport.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransportBytes {
    /// Its name.
    pub transport: String,
    /// Payload that it moved.
    pub bytes: ByteCount,
}

/// The joint throughput of a number of streams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamSample {
    /// Number of streams.
    pub streams: u32,
    /// Their joint rate.
    pub throughput: DataRate,
    /// Start of the measurement, since 1970.
    #[serde(default)]
    pub began: Duration,
}

/// Defines an enum that is stored in a column as a word.
macro_rules! word_enum {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "lowercase")]
        pub enum $name { $($(#[$vdoc])* $variant,)* }

        impl $name {
            /// All variants.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The word in rows and output.
            pub const fn word(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }

            /// Parses a word.
            pub(crate) fn from_word(word: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|each| each.word() == word)
            }
        }
    };
}

word_enum! {
    /// The kind of a transfer.
    Kind {
        /// A copy of files.
        #[default]
        Cp = "cp",
        /// A comparison of files.
        Verify = "verify",
        /// A measurement from memory to memory.
        Perf = "perf",
    }
}

word_enum! {
    /// The end that wrote a row.
    Side {
        /// The end that the user started.
        #[default]
        Caller = "caller",
        /// A server, or the end that ssh started.
        Called = "called",
    }
}

word_enum! {
    /// The role of an end.
    Role {
        /// It sent.
        #[default]
        Source = "source",
        /// It received.
        Sink = "sink",
        /// It sent and received: both ends were on one machine.
        Both = "both",
        /// It connected two other machines.
        Relay = "relay",
    }
}

word_enum! {
    /// How a transfer ended.
    Ended {
        /// Successfully.
        #[default]
        Done = "done",
        /// Some files failed; the others are complete.
        Partial = "partial",
        /// With a failure.
        Failed = "failed",
        /// The user stopped it.
        Cancelled = "cancelled",
        /// Its process vanished without a report.
        Killed = "killed",
        /// It is still running.
        Running = "running",
    }
}
