//! `perf`: measurements from memory to memory over any transport.

use std::net::SocketAddr;
use std::path::PathBuf;

use packtrain_transfer::Failure;
use packtrain_units::{ByteCount, DataRate, Duration};

use super::error::{RequestError, exit_code};
use super::report::{LossCause, Notice};
use super::request::{PortRange, TransportChoice};
use super::stop::StopHandle;
use crate::HistoryConfig;
use packtrain_identity::tickets::Ticket;

/// `perf server`.
#[derive(Clone, Debug)]
pub struct PerfServerRequest {
    /// The address to listen at, `ADDR:PORT`.
    pub listen: String,
    /// The file for a one-time ticket.
    pub ticket_file: Option<PathBuf>,
    /// How long the ticket is valid.
    pub ticket_lifetime: Duration,
    /// The file of the admitted keys; the user's own file if `None`.
    pub authorized_keys: Option<PathBuf>,
    /// Ports for data; any if `None`.
    pub ports: Option<PortRange>,
    /// `Udt4` starts a separate kind of server. Otherwise the client chooses.
    pub transport: TransportChoice,
    /// The congestion controller of `udt4` when this end sends; the stock library's if `None`.
    pub cc: Option<String>,
    /// End after this many tests; never if `None`.
    pub tests: Option<u64>,
    /// Where the row of a test is stored.
    pub history: HistoryConfig,
    /// Requests an orderly end.
    pub stop: StopHandle,
}

/// `perf client`.
#[derive(Clone, Debug)]
pub struct PerfClientRequest {
    /// The server, `HOST:PORT`.
    pub server: String,
    /// A ticket of the server.
    pub ticket: Option<Ticket>,
    /// Trust and remember the key of an unknown server.
    pub accept_new_host: bool,
    /// How long to send.
    pub duration: Duration,
    /// End after this many bytes instead.
    pub bytes: Option<ByteCount>,
    /// The server sends.
    pub reverse: bool,
    /// Number of parallel flows (native) or streams (TCP); at least 1.
    pub parallel: u32,
    /// The transport; `Auto` is `Native`.
    pub transport: TransportChoice,
    /// The congestion controller of datagram transports.
    pub cc: Option<String>,
    /// The kernel's congestion control for TCP; the default of the sending system if `None`.
    pub tcp_cc: Option<String>,
    /// Size of TCP's send and receive buffers; `None` leaves them to the kernel.
    pub tcp_buffer: Option<ByteCount>,
    /// Limit of the sending rate.
    pub rate: Option<DataRate>,
    /// Length of a reported interval.
    pub interval: Duration,
    /// Where the row of a test is stored.
    pub history: HistoryConfig,
    /// Requests an orderly end.
    pub stop: StopHandle,
}

/// Receives the events of a test.
pub trait PerfReporter: Send + Sync {
    /// The server listens at this address; `fingerprint` is that of its host key, if it has one.
    fn listening(&self, address: SocketAddr, fingerprint: Option<&str>);
    /// An interval has ended (client), or an interval of a client's test (server).
    fn interval(&self, interval: &PerfInterval);
    /// A test has ended (server: the test of this client).
    fn finished(&self, peer: &str, outcome: &PerfOutcome);
    /// A message for the user.
    fn notice(&self, notice: &Notice);
}

/// The figures of one interval.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PerfInterval {
    /// Its start, since the start of the test.
    pub from: Duration,
    /// Its end, since the start of the test.
    pub to: Duration,
    /// Useful bytes received in the interval.
    pub bytes: ByteCount,
    /// Payload bytes retransmitted in the interval.
    pub retransmitted: ByteCount,
    /// Smoothed round-trip time, if measured.
    pub rtt: Option<Duration>,
    /// Congestion window, if there is one.
    pub cwnd: Option<ByteCount>,
    /// Capacity of the path, if the flow's feedback measures it.
    pub capacity: Option<DataRate>,
    /// Arrival rate of packets, if the flow's feedback measures it.
    pub arrival_rate: Option<DataRate>,
}

/// The outcome of a test.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PerfOutcome {
    /// The transport used.
    pub transport: String,
    /// Useful bytes received.
    pub bytes: ByteCount,
    /// From the first byte to the last report.
    pub elapsed: Duration,
    /// Payload bytes retransmitted.
    pub retransmitted: ByteCount,
    /// Minimum round-trip time, if measured.
    pub rtt: Option<Duration>,
    /// The causes of the losses.
    pub loss_cause: LossCause,
    /// Processor use of the sending end, if known.
    pub cpu_sender: Option<CpuUse>,
    /// Processor use of the receiving end, if known.
    pub cpu_receiver: Option<CpuUse>,
    /// What limited the rate below that of the path, if anything did: `rate` for `--rate`, `policy`
    /// for this end's limits, `peer-policy` for the other end's.
    pub held_by: Option<String>,
    /// The failure that ended the test early, if any.
    pub failure: Option<Failure>,
}

/// Processor time of one process over a test.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuUse {
    /// In user mode.
    pub user: Duration,
    /// In the kernel.
    pub system: Duration,
}

impl CpuUse {
    /// The processor time of this process so far.
    pub fn now() -> Self {
        let ticks = |text: &str, n: usize| -> u64 {
            let rest = text.rsplit_once(')').map_or("", |(_, rest)| rest);
            rest.split_whitespace().nth(n).and_then(|w| w.parse().ok()).unwrap_or(0)
        };
        let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
        // Clock ticks are hundredths of a second on every Linux since 2.6 (proc(5)).
        let span = |t: u64| Duration::from_millis(t * 10);
        Self { user: span(ticks(&text, 11)), system: span(ticks(&text, 12)) }
    }

    /// The processor time of this process since `begin` was taken.
    pub fn since(begin: Self) -> Self {
        let now = Self::now();
        Self { user: now.user - begin.user, system: now.system - begin.system }
    }
}

impl PerfInterval {
    /// Useful bits per second.
    pub fn goodput(&self) -> DataRate {
        rate(self.bytes, self.to - self.from)
    }
}

impl PerfOutcome {
    /// Useful bits per second; zero if nothing moved.
    pub fn goodput(&self) -> DataRate {
        rate(self.bytes, self.elapsed)
    }

    /// The exit code of the command.
    pub fn exit_code(&self) -> u8 {
        self.failure.as_ref().map_or(0, |failure| exit_code(failure.kind))
    }
}

impl From<RequestError> for PerfOutcome {
    /// The outcome of a test that failed before its start.
    fn from(error: RequestError) -> Self {
        Self {
            transport: "none".to_owned(),
            failure: Some(Failure::new(error.kind, error.text)),
            ..Self::default()
        }
    }
}

fn rate(bytes: ByteCount, span: Duration) -> DataRate {
    if bytes == ByteCount::ZERO { DataRate::ZERO } else { DataRate::from_bytes_over(bytes, span) }
}
