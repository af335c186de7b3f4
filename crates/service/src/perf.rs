//! `perf`: memory to memory over any transport.

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
    /// Where to listen, `ADDR:PORT`.
    pub listen: String,
    /// Where to write a one-time ticket.
    pub ticket_file: Option<PathBuf>,
    /// How long the ticket opens the server.
    pub ticket_lifetime: Duration,
    /// Whose keys may use it; the user's own file if none.
    pub authorized_keys: Option<PathBuf>,
    /// Ports for data; any if none.
    pub ports: Option<PortRange>,
    /// `Udt4` is a server of its own; with all others the client chooses.
    pub transport: TransportChoice,
    /// The congestion controller of `udt4` when this end sends; the stock library's if none.
    pub cc: Option<String>,
    /// End after this many tests; never if none.
    pub tests: Option<u64>,
    /// Where the test's row goes.
    pub history: HistoryConfig,
    /// Asks for an orderly end.
    pub stop: StopHandle,
}

/// `perf client`.
#[derive(Clone, Debug)]
pub struct PerfClientRequest {
    /// The server, `HOST:PORT`.
    pub server: String,
    /// A ticket that opens the server.
    pub ticket: Option<Ticket>,
    /// Trust, and remember, the key of a server that was never seen.
    pub accept_new_host: bool,
    /// How long to send.
    pub duration: Duration,
    /// End after this many bytes instead.
    pub bytes: Option<ByteCount>,
    /// The server sends.
    pub reverse: bool,
    /// Flows (native) or streams (TCP) side by side; at least 1.
    pub parallel: u32,
    /// Over what; `Auto` is `Native`.
    pub transport: TransportChoice,
    /// The congestion controller of datagram transports.
    pub cc: Option<String>,
    /// The kernel's congestion control for TCP; the sending system's default if none.
    pub tcp_cc: Option<String>,
    /// TCP's send and receive buffers, instead of the kernel's autotuning.
    pub tcp_buffer: Option<ByteCount>,
    /// Ceiling of the sending rate.
    pub rate: Option<DataRate>,
    /// Length of a reported interval.
    pub interval: Duration,
    /// Where the test's row goes.
    pub history: HistoryConfig,
    /// Asks for an orderly end.
    pub stop: StopHandle,
}

/// Hears how a test goes.
pub trait PerfReporter: Send + Sync {
    /// The server listens there; `fingerprint` is that of its host key, if it has one.
    fn listening(&self, address: SocketAddr, fingerprint: Option<&str>);
    /// An interval is over (client), or a client's test is under way (server).
    fn interval(&self, interval: &PerfInterval);
    /// A test is over (server: of this client).
    fn finished(&self, peer: &str, outcome: &PerfOutcome);
    /// Something to say.
    fn notice(&self, notice: &Notice);
}

/// One line of a test.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PerfInterval {
    /// Its begin, since the test's begin.
    pub from: Duration,
    /// Its end, since the test's begin.
    pub to: Duration,
    /// Useful bytes received in it.
    pub bytes: ByteCount,
    /// Payload bytes sent again in it.
    pub retransmitted: ByteCount,
    /// Smoothed round trip, if measured.
    pub rtt: Option<Duration>,
    /// Congestion window, if there is one.
    pub cwnd: Option<ByteCount>,
    /// Capacity of the path, where the flow's feedback measures it.
    pub capacity: Option<DataRate>,
    /// Rate at which packets arrive, where the flow's feedback measures it.
    pub arrival_rate: Option<DataRate>,
}

/// What came of a test.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PerfOutcome {
    /// The transport used.
    pub transport: String,
    /// Useful bytes received.
    pub bytes: ByteCount,
    /// From the first byte to the last report.
    pub elapsed: Duration,
    /// Payload bytes sent again.
    pub retransmitted: ByteCount,
    /// Smallest round trip, if measured.
    pub rtt: Option<Duration>,
    /// What the losses were put down to.
    pub loss_cause: LossCause,
    /// Processor use of the sending end, if known.
    pub cpu_sender: Option<CpuUse>,
    /// Processor use of the receiving end, if known.
    pub cpu_receiver: Option<CpuUse>,
    /// What held the rate below what the path may carry, if something did: `rate` for `--rate`,
    /// `policy` for this end's limits, `peer-policy` for the other end's.
    pub held_by: Option<String>,
    /// What ended it early, if anything did.
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
    /// What this process has used so far.
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

    /// What this process has used since it had used `begin`.
    pub fn since(begin: Self) -> Self {
        let now = Self::now();
        Self { user: now.user - begin.user, system: now.system - begin.system }
    }
}

impl PerfInterval {
    /// Useful bits a second.
    pub fn goodput(&self) -> DataRate {
        rate(self.bytes, self.to - self.from)
    }
}

impl PerfOutcome {
    /// Useful bits a second, zero if nothing moved.
    pub fn goodput(&self) -> DataRate {
        rate(self.bytes, self.elapsed)
    }

    /// The exit code of design.
    pub fn exit_code(&self) -> u8 {
        self.failure.as_ref().map_or(0, |failure| exit_code(failure.kind))
    }
}

impl From<RequestError> for PerfOutcome {
    /// The outcome of a test that failed before it began.
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
