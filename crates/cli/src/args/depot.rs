//! `packtrain depot`.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use packtrain_service::address_policy::AllowRule;
use packtrain_service::{Place, PortRange};
use packtrain_units::{ByteCount, DataRate, Duration};

use super::values::{self, Buffer};

/// Arguments of `depot`.
#[derive(Args, Debug)]
#[command(
    after_help = "A depot sees only encrypted bytes. It connects only to the destinations of \
                       --allow. Private, loopback and link-local addresses need a rule of their own."
)]
pub(crate) struct DepotArgs {
    /// Address to listen at, such as 0.0.0.0:7879; an IPv6 address needs brackets.
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) listen: String,
    /// A destination of sessions, a server or a next depot: NET[:PORT[-PORT]] or
    /// NAME[:PORT[-PORT]], such as `192.0.2.0/24:7876` or `[2001:db8::]/32:5000-5100`; may be
    /// repeated.
    #[arg(long, value_name = "RULE", value_parser = values::allow, value_delimiter = ',')]
    pub(crate) allow: Vec<AllowRule>,
    /// Forward sessions by their destination: a file with a line for each, `DESTINATION NEXT`, such
    /// as `192.0.2.7 depot2.example:7879`. `packtrain route --tables` writes it. It applies to
    /// sessions that ask for it (`cp --by-destination`), and both must be in the rules of --allow.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) routes: Option<PathBuf>,
    /// File of the client keys that may use this depot [default:
    /// $XDG_CONFIG_HOME/packtrain/authorized_keys].
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) authorized_keys: Option<PathBuf>,
    /// Maximum concurrent sessions. Each stream of a transfer is one session.
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub(crate) sessions: u32,
    /// Maximum concurrent sessions of one key.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub(crate) key_sessions: u32,
    /// Maximum bytes that one key may send and receive in an hour, such as 1TiB. The depot checks
    /// it when a session starts [default: no limit].
    #[arg(long, value_name = "SIZE", value_parser = values::size)]
    pub(crate) key_bytes: Option<ByteCount>,
    /// Memory for the bytes that this process relays, in fair shares.
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = values::size)]
    pub(crate) pool: ByteCount,
    /// Approximate limit of the kernel's memory for the socket buffers of all sessions, in fair
    /// shares [default: a quarter of the amount above which the kernel is short of memory for TCP,
    /// the second number of net.ipv4.tcp_mem].
    #[arg(long, value_name = "SIZE", value_parser = values::size, conflicts_with = "tcp_buffer")]
    pub(crate) socket_memory: Option<ByteCount>,
    /// Refuse new sessions while the depot relays this rate, such as 8gbit [default: no limit].
    #[arg(long, value_name = "RATE", value_parser = values::rate)]
    pub(crate) full_rate: Option<DataRate>,
    /// Refuse new sessions at this load per core over one minute, such as 2 [default: no limit].
    #[arg(long, value_name = "LOAD", value_parser = values::load)]
    pub(crate) full_load: Option<f64>,
    /// Maximum number of depots on a route.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=8))]
    pub(crate) hop_limit: u8,
    /// End a session in which no byte moves for this long.
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = values::duration)]
    pub(crate) idle: Duration,
    /// How long running sessions may continue after the depot is asked to stop.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = values::duration)]
    pub(crate) drain: Duration,
    /// Congestion control of TCP in the kernel towards both sides, such as cubic or bbr [default:
    /// the kernel's].
    #[arg(long, value_name = "NAME")]
    pub(crate) tcp_cc: Option<String>,
    /// Size of TCP's send and receive buffers on both sides, such as 8MiB. auto leaves them to the
    /// kernel [default: auto].
    #[arg(long, value_name = "SIZE", value_parser = values::buffer)]
    pub(crate) tcp_buffer: Option<Buffer>,
    /// UDP ports for hops by datagrams, such as 5000-5100 [default: any].
    #[arg(long, value_name = "A-B", value_parser = values::ports)]
    pub(crate) ports: Option<PortRange>,
    /// Maximum concurrent flows of datagrams; each has a thread. Further hops use TCP.
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u32).range(0..=4096))]
    pub(crate) flows: u32,
    /// Relay bytes through memory instead of inside the kernel (splice).
    #[arg(long)]
    pub(crate) copy: bool,
    /// Serve counters in the format of Prometheus at this address of this machine, such as
    /// 127.0.0.1:9797.
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) metrics: Option<String>,
    #[command(flatten)]
    pub(crate) spool: SpoolArgs,
    /// How often --json prints the counters.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = values::duration)]
    pub(crate) interval: Duration,
    /// Another depot of the clique; the depots probe the paths between them in turn. May be
    /// repeated, at most 63.
    #[arg(long, value_name = "DEPOT", value_delimiter = ',', value_parser = values::place, requires = "name")]
    pub(crate) peer: Vec<Place>,
    /// The name of this depot at the other depots of the clique, such as d1.example.org:7879.
    #[arg(long, value_name = "DEPOT", value_parser = values::place, requires = "peer")]
    pub(crate) name: Option<Place>,
    /// Maximum bytes that probes send and receive in an hour.
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = values::size)]
    pub(crate) probe_budget: ByteCount,
    /// Print events as JSON lines on stdout.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Options of sessions that the depot keeps for later receivers.
#[derive(Args, Debug)]
#[command(next_help_heading = "Sessions that are kept")]
pub(crate) struct SpoolArgs {
    /// Keep sessions of `send` in this directory until `claim` fetches them. Each depot needs a
    /// directory of its own.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) spool: Option<PathBuf>,
    /// Maximum bytes of all kept sessions.
    #[arg(long, value_name = "SIZE", default_value = "100GiB", value_parser = values::size)]
    pub(crate) spool_quota: ByteCount,
    /// Maximum bytes of the kept sessions of one key [default: --spool-quota].
    #[arg(long, value_name = "SIZE", value_parser = values::size)]
    pub(crate) spool_key_quota: Option<ByteCount>,
    /// Longest time that a session is kept.
    #[arg(long, value_name = "TIME", default_value = "7d", value_parser = values::duration)]
    pub(crate) spool_ttl: Duration,
    /// Free space that the depot leaves on the disk.
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = values::size)]
    pub(crate) spool_free: ByteCount,
}
