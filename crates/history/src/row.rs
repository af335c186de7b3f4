//! The row of a transfer.

use packtrain_units::{ByteCount, DataRate, Duration};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::column::{Column, columns, like};
use crate::value::Value;

columns! {
    /// One transfer as seen by one of its ends. All fields except the names may be missing.
    ///
    /// The list defines the fields and the columns of the database and of exports, in this order.
    /// The migrations follow from it: a new column says `since` the next version of the schema. What
    /// the list says of a published column, except its comment, never changes.
    Row
    /// The short id for users: eight hexadecimal digits.
    id: String = "id",
    /// Start of the transfer, since 1970.
    began: Duration = "began_us",
    /// The kind of transfer.
    kind: Kind = "kind",
    /// The end that wrote the row.
    side: Side = "side",
    /// The role of that end.
    role: Role = "role",
    /// How it ended.
    ended: Ended = "ended",
    /// The machine that wrote the row.
    host: String = "host",
    /// The user of the process.
    login: String = "login",
    /// The process id.
    pid: u32 = "pid",
    /// The version of the program.
    version: String = "version",
    /// The sending machine, as the user named it; this machine has its own name.
    from_host: String = "from_host",
    /// The receiving machine.
    to_host: String = "to_host",
    /// The source, as the user wrote it.
    source: String = "source",
    /// The target, as the user wrote it.
    target: String = "target",
    /// Address and key of the other end, if it was the caller.
    peer: String = "peer",
    /// The transport that moved most, or `none`.
    transport: String = "transport",
    /// The bytes of each transport.
    transports: Vec<TransportBytes> = "transports",
    /// The requested or active congestion controller.
    controller: String = "controller",
    /// Number of parallel streams or flows, if known.
    streams: Option<u32> = "streams",
    /// Bytes of the whole object.
    bytes: ByteCount = "bytes",
    /// Moved bytes of it.
    bytes_moved: ByteCount = "bytes_moved",
    /// Files that moved.
    files: u64 = "files",
    /// Files that failed.
    failed_files: u64 = "failed_files",
    /// Time from the start of the command until all data is durable.
    elapsed: Duration = "elapsed_us",
    /// Useful bytes over the whole time.
    throughput: DataRate = "throughput_bps",
    /// Throughput over time.
    series: Vec<Point> = "series",
    /// Retransmitted payload.
    retransmitted: ByteCount = "retransmitted_bytes",
    /// Minimum round-trip time.
    rtt: Option<Duration> = "rtt_us",
    /// Final smoothed round-trip time.
    srtt: Option<Duration> = "srtt_us",
    /// Datagrams with payload sent.
    packets_sent: Option<u64> = "packets_sent",
    /// Lost datagrams of these.
    packets_lost: Option<u64> = "packets_lost",
    /// Datagrams of these that the receiving host dropped.
    host_drops: Option<u64> = "host_drops",
    /// The cause of the losses.
    loss_cause: Option<String> = "loss_cause",
    /// Probability that the receiving host caused the losses, 0 to 1.
    p_cpu: Option<f64> = "p_cpu",
    /// What limited the transfer, as one sentence.
    verdict: Option<String> = "verdict",
    /// The kernel's congestion control of TCP streams.
    tcp_cc: Option<String> = "tcp_cc",
    /// `TCP_INFO` of the streams together, as JSON.
    tcp_info: Option<String> = "tcp_info",
    /// Measured throughputs by number of streams.
    stream_samples: Vec<StreamSample> = "stream_samples" since 2,
    /// What limited the rate below that of the path: `rate` (`--rate`), `policy`, or `peer-policy`.
    /// Such a row is not used as a measurement of its path.
    held_by: Option<String> = "held_by" since 3,
    /// Load average of the last minute before the end.
    load: Option<f64> = "load_1m",
    /// Share of the sending machine's processors that was busy, 0 to 1.
    source_busy: Option<f64> = "source_busy",
    /// Share of the receiving machine's processors that was busy, 0 to 1.
    target_busy: Option<f64> = "target_busy",
    /// The exit code of the command.
    exit_code: Option<u32> = "exit_code",
    /// The kind of failure that ended it.
    error_kind: Option<String> = "error_kind",
    /// The message of the failure.
    error: Option<String> = "error",
    /// Unique, also in a database that several machines share.
    key: String = "key",
    /// The measurements of both ends for `diagnose`, as JSON. Only the newest rows have it.
    evidence: Option<String> = "evidence",
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

impl Row {
    /// Whether its throughput measures the path: no limit held it, and the transfer came to its
    /// end. The time of one that failed includes the silence before that was noticed.
    pub fn measures_path(&self) -> bool {
        self.held_by.is_none() && matches!(self.ended, Ended::Done | Ended::Partial)
    }
}

like! {
    Kind as String: |k| k.word().to_owned(), |w| Self::from_word(&w).unwrap_or_default();
    Side as String: |s| s.word().to_owned(), |w| Self::from_word(&w).unwrap_or_default();
    Role as String: |r| r.word().to_owned(), |w| Self::from_word(&w).unwrap_or_default();
    Ended as String: |e| e.word().to_owned(), |w| Self::from_word(&w).unwrap_or_default();
    Vec<Point> as String: |list| json(list), |text| read_json(&text);
    Vec<TransportBytes> as String: |list| json(list), |text| read_json(&text);
    Vec<StreamSample> as String: |list| json(list), |text| read_json(&text);
}

fn json<T: Serialize>(list: &Vec<T>) -> String {
    if list.is_empty() { String::new() } else { serde_json::to_string(list).unwrap_or_default() }
}

fn read_json<T: DeserializeOwned>(text: &str) -> Vec<T> {
    serde_json::from_str(text).unwrap_or_default()
}

/// The columns of an export: all except those that only `diagnose` reads.
fn exported() -> impl Iterator<Item = &'static Column<Row>> {
    COLUMNS.iter().filter(|column| column.name != "evidence")
}

/// The column names of an export, in order.
pub fn column_names() -> impl Iterator<Item = &'static str> {
    exported().map(|column| column.name)
}

/// The values of a row, in the order of [`column_names`].
pub fn values(row: &Row) -> impl Iterator<Item = (&'static str, Value)> {
    exported().map(|column| (column.name, (column.get)(row)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_row_survives_its_columns(
            text in ".{0,20}",
            n in 0..=i64::MAX as u64,
            few in any::<Option<u32>>(),
            real in any::<Option<f32>>(),
            points in proptest::collection::vec((0..1u64 << 50, any::<u32>()), 0..5),
        ) {
            let points: Vec<Point> = points
                .into_iter()
                .map(|(at, rate)| Point {
                    at: Duration::from_nanos(at),
                    rate: DataRate::from_bps(rate.into()),
                })
                .collect();
            let row = Row {
                key: text.replace('\0', "-"),
                // Columns have a resolution of microseconds.
                began: Duration::from_micros(n / 1_000),
                bytes: ByteCount(n),
                streams: few,
                p_cpu: real.map(f64::from).filter(|p| p.is_finite()),
                ended: Ended::ALL[n as usize % Ended::ALL.len()],
                series: points,
                ..Row::default()
            };
            let mut back = Row::default();
            for column in COLUMNS {
                (column.set)(&mut back, &(column.get)(&row));
            }
            prop_assert_eq!(back, row);
        }
    }
}
