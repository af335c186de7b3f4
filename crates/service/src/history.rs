//! The history: one row per transfer.
//!
//! A row starts as a file in the state directory, which is rewritten while the transfer runs. At
//! the end of the transfer it moves to the database. If the database cannot be written, one warning
//! is printed and the file stays. The next transfer that can write the database stores it, and also
//! the rows of killed processes.

mod draft;
mod keeper;
pub mod paths;
mod reporters;
mod series;
mod spool;

use packtrain_history::Filter;
pub use packtrain_history::{
    Ended, HistoryError, Kind, Place, PlaceError, Point, Retention, Role, Row, Side, StreamSample,
    TransportBytes, Value, column_names, values,
};
use packtrain_units::Duration;

use crate::HistoryConfig;

pub use draft::{begin, finish_cp, finish_failed, of_evidence};
pub use keeper::{keep, own};
pub use paths::{DIRECT, PathFilter, path_forecasts};
pub use reporters::{CopyRecorder, PerfClientRecorder, PerfServerRecorder};
pub use series::Series;
pub use spool::Spool;

/// Finds rows, the newest first, with those of running transfers on this machine.
///
/// # Errors
/// The history cannot be read. A history that does not exist yet is empty.
pub fn find(keep: &HistoryConfig, filter: &Filter) -> Result<Vec<Row>, HistoryError> {
    keeper::find(keep, filter)
}

/// The measured rates between two machines by number of streams, the newest first. Machines have
/// the names that the user gave them; this machine has [`this_machine`].
pub fn stream_samples(
    keep: &HistoryConfig,
    from: &str,
    to: &str,
    most: usize,
) -> Vec<StreamSample> {
    keeper::stream_samples(keep, from, to, most.try_into().unwrap_or(u32::MAX))
}

/// Recent samples of transfers from this machine to `to`.
pub fn samples_to(keep: &HistoryConfig, to: &str) -> Vec<packtrain_plan::streams::Sample> {
    between(keep, &this_machine(), to)
}

/// Recent samples of transfers from `from` to this machine.
pub fn samples_from(keep: &HistoryConfig, from: &str) -> Vec<packtrain_plan::streams::Sample> {
    between(keep, from, &this_machine())
}

fn between(keep: &HistoryConfig, from: &str, to: &str) -> Vec<packtrain_plan::streams::Sample> {
    let since = packtrain_os::clock::wall().saturating_sub(RECENT);
    let found = stream_samples(keep, from, to, MAX_EARLIER_SAMPLES);
    let recent = found.into_iter().filter(|sample| sample.began >= since);
    recent
        .filter_map(|sample| {
            let streams = std::num::NonZeroU32::new(sample.streams)?;
            Some(packtrain_plan::streams::Sample { streams, throughput: sample.throughput })
        })
        .collect()
}

/// Maximum age of a sample: the path may have changed since.
const RECENT: Duration = Duration::from_secs(30 * 86_400);
/// Maximum number of samples; the newest are used.
const MAX_EARLIER_SAMPLES: usize = 64;

/// The name of this machine in rows.
pub fn this_machine() -> String {
    draft::here()
}

/// Which rows to find.
pub type Wanted = Filter;
