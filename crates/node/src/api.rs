//! What the command asks of this crate and what it hears back: plain types, no behaviour.
//!
//! Every entry point (`cp::run`, `serve::run`, `perf::client`, ...) takes one request and a
//! reporter, blocks until the work is over, and makes its own runtime. A request carries a
//! [`StopHandle`], through which a signal handler asks for an orderly end.
//!
//! The entry points the command calls, with these types:
//!
//! ```text
//! cp::run(CpRequest, &dyn Reporter) -> Result<Outcome, NodeError>
//! serve::run(ServeRequest, &dyn ServeReporter) -> Result<(), NodeError>
//! serve::stdio(StopHandle) -> Result<(), NodeError>              what ssh starts at the far end
//! udt4::serve(Udt4ServeRequest, &dyn ServeReporter) -> Result<(), NodeError>   in clear, reading only
//! perf::server(PerfServerRequest, &dyn PerfReporter) -> Result<(), NodeError>
//! perf::client(PerfClientRequest, &dyn PerfReporter) -> Result<PerfOutcome, NodeError>
//! keys::show() -> Result<KeyInfo, NodeError>                      makes the key at first use
//! depot::run(DepotRequest, &dyn DepotReporter) -> Result<(), NodeError>
//! demo::run() -> Result<(), NodeError>
//! clean::run(CleanRequest, &mut dyn FnMut(&Leftover)) -> Result<CleanSummary, NodeError>
//! ```
//!
//! `Err` is for what failed before a transfer existed; afterwards the failure is in the outcome.

mod clean;
mod cp;
mod depot;
mod error;
mod perf;
mod report;
mod serve;
mod stop;
mod streams;

pub use crate::ways::MOST_DEPOTS;
pub use clean::{CleanRequest, CleanSummary, Leftover, LeftoverFate, LeftoverKind};
pub use cp::{
    CpRequest, HopTransport, Outcome, Place, PlaceError, PortRange, Routes, SshSettings,
    TransportChoice, TransportShare,
};
pub use depot::{
    AllowError, AllowRule, DepotClique, DepotKept, DepotLimits, DepotReporter, DepotRequest,
    DepotSession, DepotSpool, DepotStats, SpoolStats,
};
pub use error::{EXIT_NOTHING_MOVED, NodeError, exit_code, failure_word};
pub use packtrain_transfer::message::{Options, Resume, Summary};
pub use packtrain_transfer::{Failure, FailureKind, FileReport};
pub use perf::{
    CpuUse, PerfClientRequest, PerfInterval, PerfOutcome, PerfReporter, PerfServerRequest,
};
pub use report::{LossCause, Notice, NoticeLevel, ProgressSnapshot, Reporter};
pub use serve::{
    ClientLimits, Direction, KeyInfo, ServeReporter, ServeRequest, ServedTransfer, Udt4ServeRequest,
};
pub use stop::StopHandle;
pub use streams::{StreamEnd, StreamReport, StreamsMoment, StreamsReport, WayReport};

pub use crate::location::{Location, LocationError};
