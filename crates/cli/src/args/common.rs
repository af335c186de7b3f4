//! Options that several commands share.

use std::cmp::Ordering;
use std::path::PathBuf;

use clap::{ArgAction, ArgMatches, Args, ValueEnum, ValueHint};
use packtrain_service::{HopTransport, Place, PortRange, TransportChoice};
use packtrain_units::{DataRate, Duration};

use super::keep::KeepArgs;
use super::settings::nearness;
use super::values::{self, Via, Words};
use crate::exit::Exit;

/// How files come about at the target.
#[derive(Args, Debug)]
pub(crate) struct WriteArgs {
    /// Change nothing, say what would be done.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// What to keep of: mode, times, owner; all or none. Without the option: mode,times.
    #[arg(
        long,
        value_name = "LIST",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "all",
        action = ArgAction::Set
    )]
    pub(crate) preserve: Option<String>,
    /// Write into the target file itself, not into a temporary beside it.
    #[arg(long)]
    pub(crate) inplace: bool,
}

/// How the bytes move.
#[derive(Args, Debug)]
#[command(next_help_heading = "Transport")]
pub(crate) struct TransportArgs {
    /// auto (race, keep the best, fall back), native, udt, fobs, sabul, tcp or pipe.
    #[arg(long, value_name = "NAME", default_value = "auto", value_parser = values::TRANSPORTS)]
    pub(crate) transport: TransportChoice,
    /// Congestion controller of native (native), udt (udt:grid, udt:paper, udt:ns2-2003, udt:udt4)
    /// or fobs (fobs:window, fobs:rate; fobs:paper, fobs:blind).
    #[arg(long, value_name = "NAME")]
    pub(crate) cc: Option<String>,
    /// TCP streams in parallel: auto (measure while they run, and choose) or a number.
    #[arg(long, value_name = "auto|N", value_parser = values::streams_or_auto)]
    pub(crate) streams: Option<values::Streams>,
    /// The kernel's congestion control for TCP, at the sending end, such as cubic or bbr.
    #[arg(long, value_name = "NAME")]
    pub(crate) tcp_cc: Option<String>,
    /// TCP's send and receive buffers, such as 16MiB; auto leaves them to the kernel.
    #[arg(long, value_name = "SIZE", value_parser = values::buffer)]
    pub(crate) tcp_buffer: Option<values::Buffer>,
    /// Depots to go over, first to last: HOST:PORT[,HOST:PORT...]; auto for the best of
    /// --depots or none of them, as it turns out; none for the direct way.
    #[arg(long, value_name = "auto|DEPOT,...", default_value = "none", value_parser = values::via)]
    pub(crate) via: Via,
    /// Depots that --via auto chooses from, at most 16.
    #[arg(long, value_name = "DEPOT,...", value_delimiter = ',', value_parser = values::place)]
    pub(crate) depots: Vec<Place>,
    /// How each depot is reached, first to last: tcp, native or udt; one word for all of them. From
    /// the last depot to the other end it is always TCP [default: tcp].
    #[arg(long, value_name = "HOW,...", value_parser = values::hop, value_delimiter = ',')]
    pub(crate) hops: Vec<HopTransport>,
    /// Send no faster than this, such as 500mbit or 60MB/s.
    #[arg(long, value_name = "RATE", visible_alias = "bwlimit", value_parser = values::rate)]
    pub(crate) rate: Option<DataRate>,
    /// Give way to other traffic.
    #[arg(long)]
    pub(crate) background: bool,
}

/// How the other end is reached.
#[derive(Args, Debug)]
#[command(next_help_heading = "Other end")]
pub(crate) struct RemoteArgs {
    /// Command to reach user@host:path with, such as 'ssh -p 2222'.
    #[arg(short = 'e', long = "ssh", value_name = "COMMAND", default_value = "ssh", value_parser = values::words)]
    pub(crate) ssh: Words,
    /// Command to start there, if packtrain is not in its PATH.
    #[arg(long, value_name = "COMMAND", default_value = "packtrain")]
    pub(crate) remote_path: String,
    /// Put this program there for the time of the transfer if it is not installed: auto or never.
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    pub(crate) bootstrap: Bootstrap,
    /// Ports that the listening end may use, such as 5000-5100.
    #[arg(long, value_name = "A-B", value_parser = values::ports)]
    pub(crate) ports: Option<PortRange>,
    /// Address of the other end for data, if not the one of the control connection.
    #[arg(long, value_name = "ADDR")]
    pub(crate) data_addr: Option<String>,
    /// How long the other end waits for this one to come back (not in this version).
    #[arg(
        long,
        hide = true,
        value_name = "TIME",
        default_value = "10m",
        value_parser = values::duration
    )]
    pub(crate) linger: Duration,
    /// One-time ticket of a server; @FILE reads it from a file.
    #[arg(long, value_name = "T|@FILE")]
    pub(crate) ticket: Option<TicketArg>,
    /// Trust, and remember, the key of a server never seen before.
    #[arg(long)]
    pub(crate) accept_new_host: bool,
    /// How often to begin again after a temporary failure.
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub(crate) retries: u32,
}

/// A ticket as it was given: its text, or `@` and a file's name. Not shown by `Debug`.
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

/// Whether to put the program at the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Bootstrap {
    /// If it is not there.
    Auto,
    /// Never.
    Never,
}

/// Which files.
#[derive(Args, Debug)]
#[command(next_help_heading = "Which files")]
pub(crate) struct FilterArgs {
    /// Leave out what matches; the first rule that matches counts, in the order given.
    #[arg(long, value_name = "PATTERN", allow_hyphen_values = true)]
    pub(crate) exclude: Vec<String>,
    /// Take what matches.
    #[arg(long, value_name = "PATTERN", allow_hyphen_values = true)]
    pub(crate) include: Vec<String>,
    /// A rule: '+ PATTERN' or '- PATTERN'.
    #[arg(long, value_name = "RULE", allow_hyphen_values = true)]
    pub(crate) filter: Vec<String>,
    /// Only the paths named in this file, one a line; - is standard input.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) files_from: Option<PathBuf>,
    /// The names in that file end with a zero byte.
    #[arg(long, requires = "files_from")]
    pub(crate) from0: bool,
}

/// What is told.
#[derive(Args, Debug)]
#[command(next_help_heading = "Output")]
pub(crate) struct OutputArgs {
    /// Only errors.
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// A line for each file.
    #[arg(short, long, action = ArgAction::Count)]
    pub(crate) verbose: u8,
    /// Progress on stderr: auto (a bar on a terminal), bar, json (a line a second) or none.
    #[arg(long, value_name = "HOW", default_value = "auto")]
    pub(crate) progress: ProgressMode,
    /// Events as JSON on stdout, one a line, the last one with what came of it.
    #[arg(long)]
    pub(crate) json: bool,
    /// Say why things are chosen as they are.
    #[arg(long)]
    pub(crate) explain: bool,
    /// Append the transfer's events here, as JSON lines.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) log_file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) keep: KeepArgs,
}

impl OutputArgs {
    /// Nothing is told but warnings.
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

    /// `-q` against `-v`: the nearer to the user counts; side by side they are a mistake.
    pub(crate) fn settle(&mut self, matches: &ArgMatches) -> Result<(), Exit> {
        if !self.quiet || self.verbose == 0 {
            return Ok(());
        }
        match nearness(matches, "quiet").cmp(&nearness(matches, "verbose")) {
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
    /// Nothing.
    None,
}
