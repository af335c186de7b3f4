//! Options that several commands share.

use std::cmp::Ordering;
use std::path::PathBuf;

use clap::{ArgAction, ArgMatches, Args, ValueEnum, ValueHint};
use packtrain_service::{HopTransport, Place, PortRange, SshSettings, TransportChoice};
use packtrain_units::DataRate;

use super::keep::KeepArgs;
use super::settings::precedence;
use super::values::{self, Via, Words};
use crate::exit::Exit;

/// How files are written at the target.
#[derive(Args, Debug)]
pub(crate) struct WriteArgs {
    /// Change nothing; print what would be done.
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,
    /// Attributes to preserve: mode, times and owner, separated by commas; all or none. Without a
    /// list: all. Without the option: mode,times.
    #[arg(
        long,
        value_name = "LIST",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "all",
        action = ArgAction::Set
    )]
    pub(crate) preserve: Option<String>,
    /// Write into the target file itself instead of a temporary file in its directory. An
    /// interrupted copy leaves old and new data mixed in that file.
    #[arg(long)]
    pub(crate) inplace: bool,
}

/// Which transports move the bytes, and how.
#[derive(Args, Debug)]
#[command(next_help_heading = "Transport")]
pub(crate) struct TransportArgs {
    /// auto, native, udt, fobs, sabul, tcp or pipe. auto races native (UDP) and tcp, prefers
    /// native, and falls back when one stalls.
    #[arg(long, value_name = "NAME", default_value = "auto", value_parser = values::TRANSPORTS)]
    pub(crate) transport: TransportChoice,
    /// Congestion controller of a datagram transport: native (of native); udt:grid, udt:paper,
    /// udt:ns2-2003 or udt:udt4 (of udt); fobs:window, fobs:rate, fobs:paper or fobs:blind (of
    /// fobs).
    #[arg(long, value_name = "NAME")]
    pub(crate) cc: Option<String>,
    /// Number of parallel TCP streams, 1 to 64. auto measures while they run and changes the number
    /// [default: auto].
    #[arg(long, value_name = "auto|N", value_parser = values::streams_or_auto)]
    pub(crate) streams: Option<values::Streams>,
    /// Congestion control of TCP in the kernel of the sending end, such as cubic or bbr [default:
    /// the kernel's].
    #[arg(long, value_name = "NAME")]
    pub(crate) tcp_cc: Option<String>,
    /// Size of TCP's send and receive buffers at both ends, such as 16MiB. auto leaves them to the
    /// kernel [default: auto].
    #[arg(long, value_name = "SIZE", value_parser = values::buffer)]
    pub(crate) tcp_buffer: Option<values::Buffer>,
    /// Route over these depots, from first to last: HOST:PORT[,HOST:PORT...], at most 4. auto uses
    /// one of --depots or the direct path, whichever is faster. none uses the direct path.
    #[arg(long, value_name = "auto|DEPOT,...", default_value = "none", value_parser = values::via)]
    pub(crate) via: Via,
    /// Depots that --via auto chooses from, at most 16.
    #[arg(long, value_name = "DEPOT,...", value_delimiter = ',', value_parser = values::place)]
    pub(crate) depots: Vec<Place>,
    /// How each depot is reached, from first to last: tcp, native or udt; one word applies to all.
    /// The connection from the last depot to the other end is always TCP [default: tcp].
    #[arg(long, value_name = "HOW,...", value_parser = values::hop, value_delimiter = ',')]
    pub(crate) hops: Vec<HopTransport>,
    /// Let the depots of --via forward by their tables (`depot --routes`) to further depots, at most
    /// 4 in all.
    #[arg(long)]
    pub(crate) by_destination: bool,
    /// Highest rate of the transfer, over all transports together, such as 500mbit or 60MB/s
    /// [default: no limit].
    #[arg(long, value_name = "RATE", visible_alias = "bwlimit", value_parser = values::limit)]
    pub(crate) rate: Option<DataRate>,
    /// Leave capacity to other traffic: native does not compete with it, and UDP and TCP packets
    /// are marked as lower effort (RFC 8622).
    #[arg(long)]
    pub(crate) background: bool,
}

/// How packtrain is started at the other end over ssh.
#[derive(Args, Debug)]
pub(crate) struct SshArgs {
    /// Command that connects to user@host, such as 'ssh -p 2222'.
    #[arg(short = 'e', long = "ssh", value_name = "COMMAND", default_value = "ssh", value_parser = values::words)]
    ssh: Words,
    /// Command that starts packtrain at the other end, if it is not in the PATH there: a program, or
    /// a command line for the login shell.
    #[arg(long, value_name = "COMMAND", default_value = "packtrain")]
    remote_path: String,
    /// Whether to send this program to the other end, once, if no compatible packtrain is installed
    /// there: auto or never.
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    bootstrap: Bootstrap,
}

impl SshArgs {
    /// The settings of a request.
    pub(crate) fn settings(&self) -> SshSettings {
        SshSettings {
            command: self.ssh.0.clone(),
            remote_path: self.remote_path.clone(),
            bootstrap: self.bootstrap == Bootstrap::Auto,
        }
    }
}

/// How the other end is reached.
#[derive(Args, Debug)]
#[command(next_help_heading = "Other end")]
pub(crate) struct RemoteArgs {
    #[command(flatten)]
    pub(crate) ssh: SshArgs,
    /// TCP and UDP ports that both ends may use for data, such as 5000-5511: 8 UDP ports for each
    /// transfer at a time [default: any].
    #[arg(long, value_name = "A-B", value_parser = values::ports)]
    pub(crate) ports: Option<PortRange>,
    /// Address of the other end for data, if it differs from that of the control connection.
    #[arg(long, value_name = "ADDR")]
    pub(crate) data_addr: Option<String>,
    /// One-time ticket of a server; @FILE reads it from a file.
    #[arg(long, value_name = "T|@FILE")]
    pub(crate) ticket: Option<TicketArg>,
    /// Trust and remember the key of a server that is not known yet.
    #[arg(long)]
    pub(crate) accept_new_host: bool,
    /// How many times in a row to try again after a temporary failure. The count begins anew after
    /// a try that moved data which the next one keeps. The pause starts at 1 s and doubles after
    /// each try, up to 32 s.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = values::count)]
    pub(crate) retries: u32,
}

/// A ticket as given: its text, or `@` and a file name. `Debug` does not show it.
#[derive(Clone)]
pub(crate) struct TicketArg(pub(crate) String);

impl From<String> for TicketArg {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl std::fmt::Debug for TicketArg {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TicketArg(..)")
    }
}

/// Whether to send the program to the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Bootstrap {
    /// If it is not installed there.
    Auto,
    /// Never.
    Never,
}

/// Which files to transfer.
#[derive(Args, Debug)]
#[command(next_help_heading = "Which files")]
pub(crate) struct FilterArgs {
    /// Leave out files that match (patterns as in rsync). The first rule that matches decides.
    #[arg(long, value_name = "PATTERN", allow_hyphen_values = true)]
    pub(crate) exclude: Vec<String>,
    /// Transfer files that match, even if a later rule excludes them.
    #[arg(long, value_name = "PATTERN", allow_hyphen_values = true)]
    pub(crate) include: Vec<String>,
    /// One rule: '+ PATTERN' includes, '- PATTERN' excludes. H and S do so at the source only, P and
    /// R at the target only, for what --delete removes. '. FILE' reads rules from a file, ': FILE'
    /// from the files of this name in the directories of the source.
    #[arg(long, value_name = "RULE", allow_hyphen_values = true)]
    pub(crate) filter: Vec<String>,
    /// Read rules from the files .rsync-filter in the directories of the source, as --filter ':
    /// .rsync-filter' does; twice: leave these files out.
    #[arg(short = 'F', action = ArgAction::Count)]
    pub(crate) rsync_filter: u8,
    /// Leave out files that match a pattern in FILE, one a line; - is standard input.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) exclude_from: Vec<PathBuf>,
    /// Transfer files that match a pattern in FILE, one a line; - is standard input.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) include_from: Vec<PathBuf>,
    /// Transfer only the paths in this file, one a line; - is standard input.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) files_from: Option<PathBuf>,
    /// The names and patterns in the files of --files-from, --exclude-from, --include-from and
    /// --filter '. FILE' end with a zero byte instead of a newline.
    #[arg(long)]
    pub(crate) from0: bool,
}

/// What is printed.
#[derive(Args, Debug)]
#[command(next_help_heading = "Output")]
pub(crate) struct OutputArgs {
    /// Print only errors. Warnings are still in --log-file and --json.
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// Print a line for each file.
    #[arg(short, long, action = ArgAction::Count)]
    pub(crate) verbose: u8,
    /// How to show progress on stderr: auto (a bar if stderr is a terminal), bar, json (one line a
    /// second) or none. Without a value: auto.
    #[arg(
        long,
        value_name = "HOW",
        default_value = "auto",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "auto"
    )]
    pub(crate) progress: ProgressMode,
    /// Print events as JSON lines on stdout. The last line has the result.
    #[arg(long)]
    pub(crate) json: bool,
    /// Print the reasons for choices, such as the transport and the number of streams.
    #[arg(long)]
    pub(crate) explain: bool,
    /// Append the events of the transfer to this file, as JSON lines.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) log_file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) keep: KeepArgs,
}

impl OutputArgs {
    /// Only errors are printed.
    pub(crate) fn silent(keep: &KeepArgs) -> Self {
        Self {
            quiet: true,
            verbose: 0,
            progress: ProgressMode::None,
            json: false,
            explain: false,
            log_file: None,
            keep: keep.clone(),
        }
    }

    /// Resolves `-q` against `-v`: the one from the source of higher precedence applies. Both from
    /// the same source are an error.
    pub(crate) fn resolve_quiet(&mut self, matches: &ArgMatches) -> Result<(), Exit> {
        if !self.quiet || self.verbose == 0 {
            return Ok(());
        }
        match precedence(matches, "quiet").cmp(&precedence(matches, "verbose")) {
            Ordering::Less => self.quiet = false,
            Ordering::Equal => return Err(Exit::usage("-q and -v contradict: leave one out")),
            Ordering::Greater => self.verbose = 0,
        }
        Ok(())
    }
}

/// How progress is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProgressMode {
    /// A bar if stderr is a terminal.
    Auto,
    /// A bar.
    Bar,
    /// JSON lines.
    Json,
    /// No progress.
    None,
}
