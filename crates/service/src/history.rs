//! Every transfer leaves a row in the history: who wrote it, what is in it, where it goes.
//!
//! A row begins as a file in the state directory, rewritten while the transfer runs, and moves to
//! the database when it is over. A database that cannot be written costs one warning: the file
//! stays, and the next transfer that finds the database well takes it along. So do rows of
//! processes that were killed.

mod draft;
mod keeper;
mod reporters;
mod series;
mod spool;
pub mod ways;

use packtrain_history::Filter;
pub use packtrain_history::{
    Ended, HistoryError, Kind, Place, PlaceError, Point, Retention, Role, Row, Side, StreamSample,
    TransportBytes, Value, column_names, values,
};
use packtrain_units::Duration;

use crate::HistoryConfig;

pub use draft::{begin, finish_cp, finish_failed, of_evidence};
pub use keeper::{keep, own};
pub use reporters::{Copying, Measuring, Tests};
pub use series::Series;
pub use spool::Spool;
pub use ways::{Alike, DIRECT, ways};

/// Finds rows, the newest first, those of transfers that run at this machine among them.
///
/// # Errors
/// The history cannot be read; that there is none yet is no error.
pub fn find(keep: &HistoryConfig, filter: &Filter) -> Result<Vec<Row>, HistoryError> {
    keeper::find(keep, filter)
}

/// What was measured from one machine to another with how many streams, the newest first. Machines
/// have the names by which the user calls them, this one its own ([`this_machine`]).
pub fn stream_samples(
    keep: &HistoryConfig,
    from: &str,
    to: &str,
    most: usize,
) -> Vec<StreamSample> {
    keeper::stream_samples(keep, from, to, most.try_into().unwrap_or(u32::MAX))
}

/// Samples of earlier transfers from here to a machine, recent enough to go by.
pub fn earlier(keep: &HistoryConfig, to: &str) -> Vec<packtrain_plan::streams::Sample> {
    between(keep, &this_machine(), to)
}

/// The same of transfers from a machine to here.
pub fn earlier_from(keep: &HistoryConfig, from: &str) -> Vec<packtrain_plan::streams::Sample> {
    between(keep, from, &this_machine())
}

fn between(keep: &HistoryConfig, from: &str, to: &str) -> Vec<packtrain_plan::streams::Sample> {
    let since = packtrain_os::clock::wall().saturating_sub(RECENT);
    let found = stream_samples(keep, from, to, EARLIER);
    let recent = found.into_iter().filter(|sample| sample.began >= since);
    recent
        .filter_map(|sample| {
            let streams = std::num::NonZeroU32::new(sample.streams)?;
            Some(packtrain_plan::streams::Sample { streams, throughput: sample.throughput })
        })
        .collect()
}

/// A path of a month ago may have become another.
const RECENT: Duration = Duration::from_secs(30 * 86_400);
/// Samples that are looked at: the newest say most.
const EARLIER: usize = 64;

/// The name of this machine in rows.
pub fn this_machine() -> String {
    draft::here()
}

/// What rows to find.
pub type Wanted = Filter;
