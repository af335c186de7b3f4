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
use packtrain_units::{DataRate, Duration};

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

/// What earlier transfers measured of a path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Earlier {
    /// Throughputs of TCP by number of streams.
    pub samples: Vec<packtrain_plan::streams::Sample>,
    /// The path as a flow of datagrams saw it.
    pub path: Option<EarlierPath>,
}

/// A path as a flow of datagrams saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EarlierPath {
    /// The rate that it delivered for a second or more.
    pub rate: DataRate,
    /// The minimum round trip.
    pub rtt: Duration,
}

/// What recent transfers from this machine to `to` measured.
pub fn earlier_to(keep: &HistoryConfig, to: &str) -> Earlier {
    Earlier { samples: samples_to(keep, to), path: path_to(keep, to) }
}

/// The path to `to` by the newest transfers of the last day.
fn path_to(keep: &HistoryConfig, to: &str) -> Option<EarlierPath> {
    let now = packtrain_os::clock::wall();
    let wanted = Filter {
        host: Some(to.to_owned()),
        transport: Some("native".to_owned()),
        since: Some(now.saturating_sub(PATH_RECENT)),
        most: Some(MAX_EARLIER_PATHS),
        ..own()
    };
    let here = this_machine();
    let rows = find(keep, &wanted.begun_by(now)).unwrap_or_default();
    let to_there =
        rows.iter().filter(|row| row.from_host == here && row.to_host == to && row.measures_path());
    earlier_path(to_there)
}

/// The fastest of these transfers, at the round trip that it saw.
fn earlier_path<'a>(rows: impl Iterator<Item = &'a Row>) -> Option<EarlierPath> {
    let seen = rows.filter_map(|row| {
        let rtt = row.rtt.filter(|rtt| *rtt > Duration::ZERO)?;
        Some(EarlierPath { rate: lasting_rate(&row.series)?, rtt })
    });
    seen.max_by_key(|path| path.rate)
}

/// The rate that the faster quarter of the time reached or exceeded, if that is a second at least.
fn lasting_rate(series: &[Point]) -> Option<DataRate> {
    let mut before = Duration::ZERO;
    let mut spans: Vec<(DataRate, Duration)> = Vec::new();
    for point in series {
        spans.push((point.rate, point.at.saturating_sub(before)));
        before = point.at;
    }
    spans.sort_unstable_by_key(|(rate, _)| std::cmp::Reverse(*rate));
    let wanted = (before / 4).max(LASTING);
    let mut lasted = Duration::ZERO;
    let reached = spans.iter().find(|(_, span)| {
        lasted += *span;
        lasted >= wanted
    });
    reached.map(|(rate, _)| *rate).filter(|rate| *rate > DataRate::ZERO)
}

/// Maximum age of a transfer that shows a path, and maximum number of them: more than a day later
/// there may be another link or another load.
const PATH_RECENT: Duration = Duration::from_secs(86_400);
const MAX_EARLIER_PATHS: u32 = 8;
/// A rate that lasted less says nothing.
const LASTING: Duration = Duration::from_secs(1);

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

#[cfg(test)]
mod tests {
    use super::*;

    fn series(rates: &[(u64, u64)]) -> Vec<Point> {
        let mut at = Duration::ZERO;
        let points = rates.iter().map(|(ms, mbps)| {
            at += Duration::from_millis(*ms);
            Point { at, rate: DataRate::from_mbps(*mbps) }
        });
        points.collect()
    }

    #[test]
    fn a_rate_counts_if_it_lasted() {
        let rate =
            |rates: &[(u64, u64)]| lasting_rate(&series(rates)).map(|r| r.as_bps() / 1_000_000);
        assert_eq!(rate(&[(500, 100), (500, 900), (500, 900), (500, 800)]), Some(900));
        assert_eq!(rate(&[(500, 100), (250, 900), (1_000, 800), (500, 0)]), Some(800), "a burst");
        assert_eq!(rate(&[(2_000, 900), (8_000, 100)]), Some(100), "a fifth of the time");
        assert_eq!(rate(&[(500, 900)]), None);
        assert_eq!(rate(&[(5_000, 0)]), None);
        assert_eq!(rate(&[]), None);
    }

    #[test]
    fn the_fastest_transfer_shows_the_path() {
        let row = |mbps, ms: Option<u64>| Row {
            series: series(&[(4_000, mbps)]),
            rtt: ms.map(Duration::from_millis),
            ..Row::default()
        };
        let rows = [row(300, Some(90)), row(700, Some(100)), row(900, None), row(800, Some(0))];
        let (rate, rtt) = (DataRate::from_mbps(700), Duration::from_millis(100));
        assert_eq!(earlier_path(rows.iter()), Some(EarlierPath { rate, rtt }));
        assert_eq!(earlier_path([].iter()), None);
    }
}
