//! `cp` and `verify`: the request and the outcome.

use std::path::PathBuf;

pub use packtrain_session::{HopTransport, Host, Place, PlaceError};
use packtrain_transfer::Failure;
use packtrain_transfer::message::{Options, Summary};
use packtrain_units::{ByteCount, DataRate, Duration};

use super::error::{RequestError, exit_code};
use super::report::LossCause;
use super::stop::StopHandle;
use super::streams::StreamsReport;
use crate::HistoryConfig;
use crate::location::Location;
use packtrain_identity::tickets::Ticket;

/// One `cp` or `verify`. `verify` is a `cp` whose options have `verify` set.
#[derive(Clone, Debug)]
pub struct CpRequest {
    /// The sources, at least one, all at the same end.
    pub sources: Vec<Location>,
    /// The destination.
    pub dest: Location,
    /// The options that both ends use. `rate_bps` is the rate limit with the policy applied.
    pub options: Options,
    /// The transport.
    pub transport: TransportChoice,
    /// The congestion controller of datagram transports; the transport's default if `None`.
    pub cc: Option<String>,
    /// Number of parallel TCP streams; chosen while they run if `None`.
    pub streams: Option<u32>,
    /// The kernel's congestion control for TCP; the default of the sending system if `None`.
    pub tcp_cc: Option<String>,
    /// Size of TCP's send and receive buffers; `None` leaves them to the kernel.
    pub tcp_buffer: Option<ByteCount>,
    /// The depots of the path, from first to last; empty for the direct path.
    pub via: Vec<Place>,
    /// Depots of which the fastest, or the direct path, is chosen during the transfer; empty
    /// without a choice.
    pub depots: Vec<Place>,
    /// How each depot is reached; empty means TCP.
    pub hops: Vec<HopTransport>,
    /// Whether the depots of `via` may forward by their tables to further depots.
    pub by_destination: bool,
    /// Leave capacity to other traffic.
    pub background: bool,
    /// How the remote end is started over ssh.
    pub ssh: SshSettings,
    /// UDP and TCP ports that the listening end may use; any if `None`.
    pub ports: Option<PortRange>,
    /// Address or name of the remote end for data, if it differs from that of the control
    /// connection.
    pub data_addr: Option<String>,
    /// The ticket that the server accepts.
    pub ticket: Option<Ticket>,
    /// Trust and remember the key of an unknown server.
    pub accept_new_host: bool,
    /// How many times to try again after a temporary failure.
    pub retries: u32,
    /// Report the reasons for choices.
    pub explain: bool,
    /// The file to which the command appends events as JSON lines.
    pub log_file: Option<PathBuf>,
    /// Where the row of the transfer is stored.
    pub history: HistoryConfig,
    /// Requests an orderly end.
    pub stop: StopHandle,
}

/// How the remote end of an ssh location is started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SshSettings {
    /// The program and its first arguments, `ssh` by default.
    pub command: Vec<String>,
    /// The command to run there, `packtrain` by default; it is passed to the remote shell
    /// unchanged.
    pub remote_path: String,
    /// Send this program for the time of the transfer if it is not installed there.
    pub bootstrap: bool,
}

impl Default for SshSettings {
    fn default() -> Self {
        Self {
            command: vec!["ssh".to_owned()],
            remote_path: "packtrain".to_owned(),
            bootstrap: true,
        }
    }
}

/// Which transports may be used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum TransportChoice {
    /// Race the available transports, keep the best, fall back.
    #[default]
    Auto,
    /// Only native datagrams.
    Native,
    /// Only native datagrams with UDT's feedback and control.
    Udt,
    /// Only native datagrams with FOBS's feedback and control.
    Fobs,
    /// Only native datagrams with SABUL's feedback and control. The feedback uses a TCP connection.
    Sabul,
    /// Only TCP with TLS.
    Tcp,
    /// Only the control connection.
    Pipe,
    /// The wire of the stock UDT library, unencrypted: a location in `cp`, a transport in `perf`.
    Udt4,
}

impl TransportChoice {
    /// The name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Native => "native",
            Self::Udt => "udt",
            Self::Fobs => "fobs",
            Self::Sabul => "sabul",
            Self::Tcp => "tcp",
            Self::Pipe => "pipe",
            Self::Udt4 => "udt4",
        }
    }

    /// Whether this choice contains the transport `one`. Transports with another feedback are used
    /// only by name.
    pub fn includes(self, one: Self) -> bool {
        let auto = matches!(one, Self::Native | Self::Tcp | Self::Pipe);
        self == one || (self == Self::Auto && auto)
    }

    /// Whether a list of transports has one of this choice; `None` lists all.
    pub fn fits(self, listed: Option<&Vec<String>>) -> bool {
        const ALL: [TransportChoice; 6] = [
            TransportChoice::Native,
            TransportChoice::Tcp,
            TransportChoice::Pipe,
            TransportChoice::Udt,
            TransportChoice::Fobs,
            TransportChoice::Sabul,
        ];
        let listed = |one: &Self| listed.is_none_or(|names| names.iter().any(|n| n == one.name()));
        ALL.into_iter().filter(|one| self.includes(*one)).any(|one| listed(&one))
    }
}

/// Ports from the first to the last, both included; first <= last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortRange {
    /// The lowest port.
    pub first: u16,
    /// The highest port.
    pub last: u16,
}

/// The outcome of a `cp` or `verify` that started a transfer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// The id for `diagnose`; empty if no row was written.
    pub id: String,
    /// The sink's counts.
    pub summary: Summary,
    /// Time from the start of the command until all data is durable.
    pub elapsed: Duration,
    /// The transport that moved most, with the name of [`TransportChoice::name`]; `local`, or
    /// `none` if nothing moved.
    pub transport: String,
    /// The bytes of each transport, most first.
    pub shares: Vec<TransportShare>,
    /// Payload bytes sent more than once.
    pub retransmitted: ByteCount,
    /// The causes of the losses.
    pub loss_cause: LossCause,
    /// What limited the transfer, as one sentence, if known.
    pub verdict: Option<String>,
    /// What limited the rate below that of the path, if anything did: `rate` for `--rate`, `policy`
    /// for this end's limits, `peer-policy` for the other end's.
    pub held_by: Option<String>,
    /// Minimum round-trip time, if measured.
    pub rtt: Option<Duration>,
    /// Statistics of the TCP streams, if there were any.
    pub streams: Option<StreamsReport>,
    /// Files that differ or are missing (`verify`).
    pub differing: u64,
    /// Files at the target that the source does not have (`verify`).
    pub extra: u64,
    /// Nothing was changed: the counts are what a real run would do.
    pub dry_run: bool,
    /// Unchanged files whose mode or time a real run would set (`dry_run`).
    pub metadata: u64,
    /// A journal remains, so the same command resumes.
    pub resumable: bool,
    /// The failure that ended the transfer early, if any.
    pub failure: Option<Failure>,
    /// Failed entries with their paths; at most the first hundred.
    pub failed: Vec<(Vec<u8>, Failure)>,
}

/// The bytes that one transport moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransportShare {
    /// Its name.
    pub name: String,
    /// Payload it moved.
    pub bytes: ByteCount,
}

impl Outcome {
    /// Useful bits per second; zero if nothing moved, and for a dry run.
    pub fn goodput(&self) -> DataRate {
        if self.summary.bytes_moved == 0 || self.dry_run {
            return DataRate::ZERO;
        }
        DataRate::from_bytes_over(ByteCount(self.summary.bytes_moved), self.elapsed)
    }

    /// The exit code: that of the failure; 13 if `verify` found differences; 24 if all failed
    /// entries had vanished; 23 if another entry failed; 0.
    pub fn exit_code(&self) -> u8 {
        let summary = &self.summary;
        match &self.failure {
            Some(failure) => exit_code(failure.kind),
            None if self.differing > 0 => 13,
            None if summary.failed > summary.vanished => 23,
            None if summary.failed > 0 => 24,
            None => 0,
        }
    }
}

impl From<RequestError> for Outcome {
    /// The outcome of a transfer that failed before its start.
    fn from(error: RequestError) -> Self {
        Self {
            transport: "none".to_owned(),
            resumable: error.resumable,
            failure: Some(Failure::new(error.kind, error.text)),
            ..Self::default()
        }
    }
}
