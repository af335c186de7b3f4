//! `packtrain depot`.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use packtrain_service::address_policy::AllowRule;
use packtrain_service::{Place, PortRange};
use packtrain_units::{ByteCount, DataRate, Duration};

use super::values::{self, Buffer};

/// What `depot` takes.
#[derive(Args, Debug)]
#[command(after_help = "A depot sees sealed bytes only, and goes nowhere but where --allow says: \
                        private, loopback and link-local addresses too must be named there.")]
pub(crate) struct DepotArgs {
    /// Where to listen, such as 0.0.0.0:7879; with brackets around an IPv6 address.
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) listen: String,
    /// Where sessions may go, once for each: NET[:PORT[-PORT]] or NAME[:PORT[-PORT]], such as
    /// `192.0.2.0/24:7876` or `[2001:db8::]/32:5000-5100`; servers and next depots alike.
    #[arg(long, value_name = "RULE", value_parser = values::allow, value_delimiter = ',')]
    pub(crate) allow: Vec<AllowRule>,
    /// Whose sessions are relayed [default: $XDG_CONFIG_HOME/packtrain/authorized_keys].
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) authorized_keys: Option<PathBuf>,
    /// Sessions at a time; each stream of a transfer is one.
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub(crate) sessions: u32,
    /// Sessions of one key at a time.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub(crate) key_sessions: u32,
    /// Bytes that one key may send and get in an hour, such as 1TiB.
    #[arg(long, value_name = "SIZE", value_parser = values::size)]
    pub(crate) key_bytes: Option<ByteCount>,
    /// Bytes on their way through this process, in fair shares.
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = values::size)]
    pub(crate) pool: ByteCount,
    /// About as many bytes as the kernel may hold for sessions beside, when these are many, in fair
    /// shares [default: a quarter of what the kernel gives to TCP before it throws bytes away].
    #[arg(long, value_name = "SIZE", value_parser = values::size, conflicts_with = "tcp_buffer")]
    pub(crate) socket_memory: Option<ByteCount>,
    /// Take on nothing new while this much is relayed, such as 8gbit.
    #[arg(long, value_name = "RATE", value_parser = values::rate)]
    pub(crate) full_rate: Option<DataRate>,
    /// Take on nothing new at this load per core, such as 2.
    #[arg(long, value_name = "LOAD", value_parser = values::load)]
    pub(crate) full_load: Option<f64>,
    /// The most depots on a route.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=8))]
    pub(crate) hop_limit: u8,
    /// A session in which nothing moves for this long is over.
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = values::duration)]
    pub(crate) idle: Duration,
    /// How long sessions under way have when the depot is asked to end.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = values::duration)]
    pub(crate) drain: Duration,
    /// The kernel's congestion control towards both sides, such as cubic or bbr.
    #[arg(long, value_name = "NAME")]
    pub(crate) tcp_cc: Option<String>,
    /// TCP's send and receive buffers on both sides, such as 8MiB; auto leaves them to the kernel.
    #[arg(long, value_name = "SIZE", value_parser = values::buffer)]
    pub(crate) tcp_buffer: Option<Buffer>,
    /// UDP ports for hops by datagrams, such as 5000-5100 [default: any].
    #[arg(long, value_name = "A-B", value_parser = values::ports)]
    pub(crate) ports: Option<PortRange>,
    /// Flows of datagrams at a time, each with a thread; further ones go by TCP.
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u32).range(0..=4096))]
    pub(crate) flows: u32,
    /// Pass bytes on through memory, not within the kernel.
    #[arg(long)]
    pub(crate) copy: bool,
    /// Tell figures in Prometheus' format here, on this machine only, such as 127.0.0.1:9797.
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) metrics: Option<String>,
    #[command(flatten)]
    pub(crate) spool: SpoolArgs,
    /// How often figures are told with --json.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = values::duration)]
    pub(crate) interval: Duration,
    /// Another depot of the clique that probes the paths between them in turns, once for each.
    #[arg(long, value_name = "DEPOT", value_delimiter = ',', value_parser = values::place, requires = "name")]
    pub(crate) peer: Vec<Place>,
    /// What the others of the clique call this depot, such as d1.example.org:7879.
    #[arg(long, value_name = "DEPOT", value_parser = values::place, requires = "peer")]
    pub(crate) name: Option<Place>,
    /// The most bytes that probes move in an hour, sent and taken.
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = values::size)]
    pub(crate) probe_budget: ByteCount,
    /// Events as JSON on stdout, one a line.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Sessions that are kept for those who come later.
#[derive(Args, Debug)]
#[command(next_help_heading = "Sessions that are kept")]
pub(crate) struct SpoolArgs {
    /// Keep sessions here whose receivers come later (`send`, `claim`); one depot for each directory.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) spool: Option<PathBuf>,
    /// The most bytes of all sessions.
    #[arg(long, value_name = "SIZE", default_value = "100GiB", value_parser = values::size)]
    pub(crate) spool_quota: ByteCount,
    /// The most bytes of one key's sessions [default: --spool-quota].
    #[arg(long, value_name = "SIZE", value_parser = values::size)]
    pub(crate) spool_key_quota: Option<ByteCount>,
    /// The longest time that a session is kept.
    #[arg(long, value_name = "TIME", default_value = "7d", value_parser = values::duration)]
    pub(crate) spool_ttl: Duration,
    /// Bytes of the disk that are left free.
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = values::size)]
    pub(crate) spool_free: ByteCount,
}
