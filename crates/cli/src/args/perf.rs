//! `packtrain perf`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};
use packtrain_service::{PortRange, TransportChoice};
use packtrain_units::{ByteCount, DataRate, Duration};

use super::common::TicketArg;
use super::{KeepArgs, values};

/// What `perf` takes.
#[derive(Args, Debug)]
pub(crate) struct PerfArgs {
    /// Which end.
    #[command(subcommand)]
    pub(crate) command: PerfCommand,
}

/// The two ends.
#[derive(Debug, Subcommand)]
pub(crate) enum PerfCommand {
    /// Wait for clients.
    Server(PerfServerArgs),
    /// Measure to (or from) a server.
    Client(PerfClientArgs),
}

/// What `perf server` takes.
#[derive(Args, Debug)]
pub(crate) struct PerfServerArgs {
    /// Where to listen, such as 0.0.0.0:7876.
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) listen: String,
    /// Write a one-time ticket here, readable by its owner alone.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) ticket_file: Option<PathBuf>,
    /// How long the ticket is good for.
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = values::duration)]
    pub(crate) ticket_lifetime: Duration,
    /// Whose keys are let in [default: $XDG_CONFIG_HOME/packtrain/authorized_keys].
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) authorized_keys: Option<PathBuf>,
    /// Ports for data, such as 5000-5100.
    #[arg(long, value_name = "A-B", value_parser = values::ports)]
    pub(crate) ports: Option<PortRange>,
    /// udt4: take and send over the stock UDT library's wire, in clear, and nothing else. With all
    /// other transports the client chooses.
    #[arg(long, value_name = "udt4", default_value = "auto", value_parser = values::MEASURED)]
    pub(crate) transport: TransportChoice,
    /// Congestion controller of udt4, when this end sends.
    #[arg(long, value_name = "NAME")]
    pub(crate) cc: Option<String>,
    /// End after this many tests (udt4: connections).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) tests: Option<u64>,
    /// Events as JSON on stdout, one a line.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) keep: KeepArgs,
}

/// What `perf client` takes.
#[derive(Args, Debug)]
pub(crate) struct PerfClientArgs {
    /// The server.
    #[arg(value_name = "HOST:PORT", value_hint = ValueHint::Hostname)]
    pub(crate) server: String,
    /// One-time ticket of the server; @FILE reads it from a file.
    #[arg(long, value_name = "T|@FILE")]
    pub(crate) ticket: Option<TicketArg>,
    /// Trust, and remember, the key of a server never seen before.
    #[arg(long)]
    pub(crate) accept_new_host: bool,
    /// How long to measure.
    #[arg(long, value_name = "N", default_value = "10", value_parser = values::seconds)]
    pub(crate) seconds: Duration,
    /// Move this many bytes instead.
    #[arg(long, value_name = "N", value_parser = values::bytes)]
    pub(crate) bytes: Option<ByteCount>,
    /// The server sends.
    #[arg(long)]
    pub(crate) reverse: bool,
    /// Flows or streams side by side.
    #[arg(long, value_name = "K", default_value = "1", value_parser = values::streams)]
    pub(crate) parallel: u32,
    /// native, udt, fobs, sabul, tcp or udt4 (the stock UDT library's wire, in clear); auto is native.
    #[arg(long, value_name = "NAME", default_value = "auto", value_parser = values::MEASURED)]
    pub(crate) transport: TransportChoice,
    /// Congestion controller of native (native) or of udt and udt4 (udt:grid, udt:paper,
    /// udt:ns2-2003, udt:udt4), or of fobs (fobs:window, fobs:rate; fobs:paper, fobs:blind).
    #[arg(long, value_name = "NAME")]
    pub(crate) cc: Option<String>,
    /// The kernel's congestion control for tcp, at the sending end, such as cubic or bbr.
    #[arg(long, value_name = "NAME")]
    pub(crate) tcp_cc: Option<String>,
    /// Send and receive buffers of tcp, such as 16MiB; auto leaves them to the kernel.
    #[arg(long, value_name = "SIZE", value_parser = values::buffer)]
    pub(crate) tcp_buffer: Option<values::Buffer>,
    /// Send no faster than this, such as 500mbit.
    #[arg(long, value_name = "RATE", visible_alias = "bwlimit", value_parser = values::rate)]
    pub(crate) rate: Option<DataRate>,
    /// Length of a reported interval.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = values::duration)]
    pub(crate) interval: Duration,
    /// Events as JSON on stdout, one a line.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) keep: KeepArgs,
}
