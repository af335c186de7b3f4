//! `packtrain perf`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};
use packtrain_service::{PortRange, TransportChoice};
use packtrain_units::{ByteCount, DataRate, Duration};

use super::common::TicketArg;
use super::{KeepArgs, values};

/// Arguments of `perf`.
#[derive(Args, Debug)]
pub(crate) struct PerfArgs {
    /// The end.
    #[command(subcommand)]
    pub(crate) command: PerfCommand,
}

/// The two ends.
#[derive(Debug, Subcommand)]
pub(crate) enum PerfCommand {
    /// Wait for clients.
    Server(PerfServerArgs),
    /// Measure the path to or from a server.
    Client(PerfClientArgs),
}

/// Arguments of `perf server`.
#[derive(Args, Debug)]
pub(crate) struct PerfServerArgs {
    /// Address to listen at, such as 0.0.0.0:7876.
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) listen: String,
    /// Write a one-time ticket to this file, which only its owner can read.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) ticket_file: Option<PathBuf>,
    /// How long the ticket is valid.
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = values::duration)]
    pub(crate) ticket_lifetime: Duration,
    /// File of the client keys that are admitted [default:
    /// $XDG_CONFIG_HOME/packtrain/authorized_keys].
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) authorized_keys: Option<PathBuf>,
    /// TCP and UDP ports for data, such as 5000-5511: 8 UDP ports for each transfer at a time
    /// [default: any].
    #[arg(long, value_name = "A-B", value_parser = values::ports)]
    pub(crate) ports: Option<PortRange>,
    /// udt4: serve only the wire of the stock UDT library, unencrypted. Otherwise the client
    /// chooses the transport.
    #[arg(long, value_name = "udt4", default_value = "auto", value_parser = values::MEASURED)]
    pub(crate) transport: TransportChoice,
    /// Congestion controller of udt4 when the server sends.
    #[arg(long, value_name = "NAME")]
    pub(crate) cc: Option<String>,
    /// Exit after this many tests (udt4: connections) [default: no limit].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) tests: Option<u64>,
    /// Print events as JSON lines on stdout.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) keep: KeepArgs,
}

/// Arguments of `perf client`.
#[derive(Args, Debug)]
pub(crate) struct PerfClientArgs {
    /// The server.
    #[arg(value_name = "HOST:PORT", value_hint = ValueHint::Hostname)]
    pub(crate) server: String,
    /// One-time ticket of the server; @FILE reads it from a file.
    #[arg(long, value_name = "T|@FILE")]
    pub(crate) ticket: Option<TicketArg>,
    /// Trust and remember the key of a server that is not known yet.
    #[arg(long)]
    pub(crate) accept_new_host: bool,
    /// Duration of the measurement in seconds.
    #[arg(long, value_name = "N", default_value = "10", value_parser = values::seconds)]
    pub(crate) seconds: Duration,
    /// Move this many bytes instead of measuring for a time.
    #[arg(long, value_name = "N", value_parser = values::bytes)]
    pub(crate) bytes: Option<ByteCount>,
    /// Let the server send.
    #[arg(long)]
    pub(crate) reverse: bool,
    /// Number of parallel flows or streams.
    #[arg(long, value_name = "K", default_value = "1", value_parser = values::streams)]
    pub(crate) parallel: u32,
    /// native, udt, fobs, sabul, tcp or udt4 (the wire of the stock UDT library, unencrypted). auto
    /// is native.
    #[arg(long, value_name = "NAME", default_value = "auto", value_parser = values::MEASURED)]
    pub(crate) transport: TransportChoice,
    /// Congestion controller: native (of native); udt:grid, udt:paper, udt:ns2-2003 or udt:udt4 (of
    /// udt and udt4); fobs:window, fobs:rate, fobs:paper or fobs:blind (of fobs).
    #[arg(long, value_name = "NAME")]
    pub(crate) cc: Option<String>,
    /// Congestion control of TCP in the kernel of the sending end, such as cubic or bbr [default:
    /// the kernel's].
    #[arg(long, value_name = "NAME")]
    pub(crate) tcp_cc: Option<String>,
    /// Size of TCP's send and receive buffers, such as 16MiB. auto leaves them to the kernel
    /// [default: auto].
    #[arg(long, value_name = "SIZE", value_parser = values::buffer)]
    pub(crate) tcp_buffer: Option<values::Buffer>,
    /// Highest rate of all flows together, such as 500mbit [default: no limit].
    #[arg(long, value_name = "RATE", visible_alias = "bwlimit", value_parser = values::limit)]
    pub(crate) rate: Option<DataRate>,
    /// Length of a reported interval.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = values::duration)]
    pub(crate) interval: Duration,
    /// Print events as JSON lines on stdout.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) keep: KeepArgs,
}
