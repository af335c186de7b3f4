//! `packtrain serve`.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use packtrain_service::PortRange;
use packtrain_service::address_policy::AllowRule;
use packtrain_units::{DataRate, Duration};

use super::{KeepArgs, values};

/// What `serve` takes.
#[derive(Args, Debug)]
#[command(
    override_usage = "packtrain serve --listen ADDR:PORT --root DIR [OPTIONS]\n       packtrain serve --udt4 ADDR:PORT --root DIR [OPTIONS]\n       packtrain serve --stdio"
)]
pub(crate) struct ServeArgs {
    /// Where to listen, such as 0.0.0.0:7876; with brackets around an IPv6 address.
    #[arg(long, value_name = "ADDR:PORT", required_unless_present_any = ["stdio", "udt4"])]
    pub(crate) listen: Option<String>,
    /// Let anybody read below the root with the stock UDT library's file client, in clear.
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
    /// Whose keys are let in [default: $XDG_CONFIG_HOME/packtrain/authorized_keys].
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) authorized_keys: Option<PathBuf>,
    /// Write a one-time ticket here, readable by its owner alone.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) ticket_file: Option<PathBuf>,
    /// How long the ticket is good for.
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = values::duration)]
    pub(crate) ticket_lifetime: Duration,
    /// Ports for data, such as 5000-5100.
    #[arg(long, value_name = "A-B", value_parser = values::ports)]
    pub(crate) ports: Option<PortRange>,
    /// Clients at a time; more are told to try again.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) max_clients: u32,
    /// Clients of one key at a time [default: half of --max-clients].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) max_clients_per_key: Option<u32>,
    /// How long transfers under way have to end when the server is asked to stop.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = values::duration)]
    pub(crate) drain: Duration,
    /// Connect to these addresses too, where a client copies to or from another server, once for
    /// each: NET[:PORT[-PORT]], such as `192.0.2.0/24` [default: to nobody but the client].
    #[arg(long, value_name = "RULE", value_parser = values::addresses, value_delimiter = ',')]
    pub(crate) dial_to: Vec<AllowRule>,
    /// Nobody writes.
    #[arg(long)]
    pub(crate) read_only: bool,
    /// Let clients set owner and group, and with them set-user-id and set-group-id bits.
    #[arg(long, conflicts_with_all = ["stdio", "udt4", "read_only"])]
    pub(crate) allow_owner: bool,
    /// Limit each transfer to this rate, in either direction.
    #[arg(long, value_name = "RATE", value_parser = values::rate)]
    pub(crate) rate: Option<DataRate>,
    /// Speak over standard input and output: what ssh starts at the other end.
    #[arg(long, conflicts_with_all = ["listen", "root", "ticket_file", "authorized_keys"])]
    pub(crate) stdio: bool,
    /// Events as JSON on stdout, one a line.
    #[arg(long, conflicts_with = "stdio")]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) keep: KeepArgs,
}
