//! `cp` and `verify`: the request and what came of it.

use std::path::PathBuf;

pub use packtrain_session::{HopTransport, Place, PlaceError};
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
    /// What to read, at least one; all of them at the same place.
    pub sources: Vec<Location>,
    /// What to write.
    pub dest: Location,
    /// What both ends agree on. `rate_bps` here is the ceiling, policy included.
    pub options: Options,
    /// Which transport moves the bytes.
    pub transport: TransportChoice,
    /// The congestion controller of datagram transports; the transport's own if none.
    pub cc: Option<String>,
    /// TCP streams in parallel; chosen while they run if none.
    pub streams: Option<u32>,
    /// The kernel's congestion control for TCP; the sending system's default if none.
    pub tcp_cc: Option<String>,
    /// TCP's send and receive buffers, instead of the kernel's autotuning.
    pub tcp_buffer: Option<ByteCount>,
    /// Depots to go over, first to last; none for the direct way.
    pub via: Vec<Place>,
    /// Depots of which the best is chosen while bytes move, or none of them; empty for no choice.
    pub depots: Vec<Place>,
    /// How each depot is reached; by TCP where nothing is said.
    pub hops: Vec<HopTransport>,
    /// Give way to other traffic.
    pub background: bool,
    /// How the remote end is started.
    pub ssh: SshSettings,
    /// UDP and TCP ports the listening end may use; any if none.
    pub ports: Option<PortRange>,
    /// Address (or name) the data goes to, instead of the one the control connection has.
    pub data_addr: Option<String>,
    /// How long the called end keeps an unfinished transfer waiting for its caller to return.
    pub linger: Duration,
    /// A ticket that opens the server.
    pub ticket: Option<Ticket>,
    /// Trust, and remember, the key of a server that was never seen.
    pub accept_new_host: bool,
    /// How often to begin again after a temporary failure.
    pub retries: u32,
    /// Tell the reporter why things were chosen as they were.
    pub explain: bool,
    /// Where the events of the transfer are appended as JSON lines; the command does that.
    pub log_file: Option<PathBuf>,
    /// Where the transfer's row goes.
    pub history: HistoryConfig,
    /// Asks for an orderly end.
    pub stop: StopHandle,
}

/// How the remote end of an ssh location is started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SshSettings {
    /// The program and its first arguments, `ssh` by default.
    pub command: Vec<String>,
    /// The command to run there, `packtrain` by default; passed to the remote shell as it is.
    pub remote_path: String,
    /// Put this very program there for the time of the transfer if it is not installed.
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

/// Which transport is to be used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum TransportChoice {
    /// Race those there are, keep the best, fall back.
    #[default]
    Auto,
    /// Native datagrams only.
    Native,
    /// Native datagrams under UDT's feedback and control, only.
    Udt,
    /// Native datagrams under FOBS's feedback and control, only.
    Fobs,
    /// Native datagrams under SABUL's feedback and control, with a TCP connection beside them for
    /// the feedback, only.
    Sabul,
    /// TCP with TLS only.
    Tcp,
    /// The control connection only.
    Pipe,
    /// The stock UDT library's wire, in clear: a place of its own in `cp`, a transport in `perf`.
    Udt4,
}

impl TransportChoice {
    /// Its name on the command line.
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

    /// Whether the transport `one` is part of this choice. Those under another feedback are only
    /// used by their names.
    pub fn includes(self, one: Self) -> bool {
        let auto = matches!(one, Self::Native | Self::Tcp | Self::Pipe);
        self == one || (self == Self::Auto && auto)
    }

    /// Whether a list of transports has one of this choice; no list has all.
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

/// What came of a `cp` or `verify` that got as far as a transfer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Names the transfer to `diagnose`; empty if none was recorded.
    pub id: String,
    /// The sink's counts.
    pub summary: Summary,
    /// From the start of the command to durable.
    pub elapsed: Duration,
    /// The transport that moved most, as [`TransportChoice::name`] spells it, or `local`, or
    /// `none` if nothing moved.
    pub transport: String,
    /// What each transport moved, most first.
    pub shares: Vec<TransportShare>,
    /// Payload bytes sent more than once.
    pub retransmitted: ByteCount,
    /// What the losses were put down to.
    pub loss_cause: LossCause,
    /// One sentence on what bounded the transfer, if known.
    pub verdict: Option<String>,
    /// What held the rate below what the path may carry, if something did: `rate` for `--rate`,
    /// `policy` for this end's limits, `peer-policy` for the other end's.
    pub held_by: Option<String>,
    /// The smallest round trip seen, if one was measured.
    pub rtt: Option<Duration>,
    /// What the TCP streams did, if there were any.
    pub streams: Option<StreamsReport>,
    /// Files that differ or are missing (`verify`).
    pub differing: u64,
    /// A journal was left: the same command goes on from there.
    pub resumable: bool,
    /// What ended the transfer early, if anything did.
    pub failure: Option<Failure>,
    /// Entries that failed, the first hundred, with their paths.
    pub failed: Vec<(Vec<u8>, Failure)>,
}

/// What one transport did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransportShare {
    /// Its name.
    pub name: String,
    /// Payload it moved.
    pub bytes: ByteCount,
}

impl Outcome {
    /// Useful bits a second, zero if nothing moved.
    pub fn goodput(&self) -> DataRate {
        if self.summary.bytes_moved == 0 {
            return DataRate::ZERO;
        }
        DataRate::from_bytes_over(ByteCount(self.summary.bytes_moved), self.elapsed)
    }

    /// The exit code of design: the failure's own; 13 if `verify` found differences; 24 if all
    /// that failed had vanished; 23 if anything else failed; 0.
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
    /// The outcome of a transfer that failed before it began.
    fn from(error: RequestError) -> Self {
        Self {
            transport: "none".to_owned(),
            resumable: error.resumable,
            failure: Some(Failure::new(error.kind, error.text)),
            ..Self::default()
        }
    }
}
