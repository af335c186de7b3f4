//! What the services of packtrain share: requests and outcomes, reports, limits, locations, the
//! history, and the measurements of both ends.
//!
//! Every entry point takes a request and a reporter, and blocks until the work is done. A request
//! contains a [`StopHandle`], through which a signal handler requests an orderly end. `Err` is a
//! failure before a transfer existed; later failures are in the outcome.

pub mod address_policy;
pub mod ceilings;
pub mod cipher;
pub mod evidence;
pub mod executor;
pub mod history;
mod history_config;
pub mod host;
pub mod location;
pub mod paths;
pub mod unauthenticated;
pub mod weburl;

mod error;
mod perf;
mod report;
mod request;
mod served;
mod stop;
mod streams;

pub use error::{EXIT_NOTHING_MOVED, RequestError, exit_code, failure_word};
pub use packtrain_transfer::message::{Backup, ExtraOptions, ModeChange, Options, Resume, Summary};
pub use packtrain_transfer::{Failure, FailureKind, FileReport, Versions};
pub use perf::{
    CpuUse, PerfClientRequest, PerfInterval, PerfOutcome, PerfReporter, PerfServerRequest,
};
pub use report::{LossCause, Notice, NoticeLevel, ProgressSnapshot, Reporter};
pub use request::{
    CpRequest, HopTransport, Host, Outcome, Place, PlaceError, PortRange, SshSettings,
    TransportChoice, TransportShare,
};
pub use served::{Direction, ServeReporter, ServedTransfer};
pub use stop::{STOPPED, StopHandle};
pub use streams::{PathReport, StreamEnd, StreamReport, StreamsMoment, StreamsReport};

pub use crate::location::{Location, LocationError};
pub use history_config::{HistoryConfig, HistoryPlace};
pub use packtrain_identity::keys::{KeyError, KeyInfo};
