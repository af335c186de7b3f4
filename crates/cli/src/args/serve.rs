//! `packtrain serve`.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use packtrain_service::PortRange;
use packtrain_service::address_policy::AllowRule;
use packtrain_units::{DataRate, Duration};

use super::{KeepArgs, values};

/// Arguments of `serve`.
#[derive(Args, Debug)]
#[command(
    override_usage = "packtrain serve --listen ADDR:PORT --root DIR [OPTIONS]\n       packtrain serve --udt4 ADDR:PORT --root DIR [OPTIONS]\n       packtrain serve --stdio"
)]
pub(crate) struct ServeArgs {
    /// Address to listen at, such as 0.0.0.0:7876; an IPv6 address needs brackets.
    #[arg(long, value_name = "ADDR:PORT", required_unless_present_any = ["stdio", "udt4"])]
    pub(crate) listen: Option<String>,
    /// Let any client of the stock UDT library read below the root, unencrypted, at this address.
    #[arg(
        long,
        value_name = "ADDR:PORT",
        conflicts_with_all = ["listen", "authorized_keys", "ticket_file", "ports", "stdio"]
    )]
    pub(crate) udt4: Option<String>,
    /// Congestion controller of --udt4.
    #[arg(long, value_name = "NAME", requires = "udt4")]
    pub(crate) cc: Option<String>,
    /// The directory that clients see as /.
    #[arg(long, value_name = "DIR", required_unless_present = "stdio", value_hint = ValueHint::DirPath)]
    pub(crate) root: Option<PathBuf>,
    /// File of the client keys that are admitted [default:
    /// $XDG_CONFIG_HOME/packtrain/authorized_keys].
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) authorized_keys: Option<PathBuf>,
    /// Write a one-time ticket to this file, which only its owner can read.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) ticket_file: Option<PathBuf>,
    /// How long the ticket is valid.
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = values::duration)]
    pub(crate) ticket_lifetime: Duration,
    /// TCP and UDP ports for data, such as 5000-5511: 8 UDP ports for each transfer at a time
    /// [default: any].
    #[arg(long, value_name = "A-B", value_parser = values::ports)]
    pub(crate) ports: Option<PortRange>,
    /// Maximum concurrent clients. The server refuses more with a temporary failure, so that they
    /// try again.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) max_clients: u32,
    /// Maximum concurrent clients of one key [default: half of --max-clients].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) max_clients_per_key: Option<u32>,
    /// How long running transfers may continue after the server is asked to stop.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = values::duration)]
    pub(crate) drain: Duration,
    /// A further address that the server may connect to for a copy between two servers:
    /// NET[:PORT[-PORT]], such as `192.0.2.0/24`; may be repeated [default: only the client's
    /// address].
    #[arg(long, value_name = "RULE", value_parser = values::addresses, value_delimiter = ',')]
    pub(crate) dial_to: Vec<AllowRule>,
    /// Refuse all writes.
    #[arg(long)]
    pub(crate) read_only: bool,
    /// Let clients set owner and group, and with them set-user-id and set-group-id bits.
    #[arg(long, conflicts_with_all = ["stdio", "udt4", "read_only"])]
    pub(crate) allow_owner: bool,
    /// Highest rate of each transfer, in either direction [default: no limit].
    #[arg(long, value_name = "RATE", value_parser = values::rate)]
    pub(crate) rate: Option<DataRate>,
    /// Serve one client over standard input and output. ssh starts packtrain so at the other end.
    #[arg(long, conflicts_with_all = ["listen", "root", "ticket_file", "authorized_keys"])]
    pub(crate) stdio: bool,
    /// Print events as JSON lines on stdout.
    #[arg(long, conflicts_with = "stdio")]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) keep: KeepArgs,
}
