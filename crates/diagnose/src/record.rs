//! Records of transfers: how they are found in the history.

use packtrain_history::{Filter, Kind, Row};
use packtrain_os::clock;
use packtrain_transfer::FailureKind;

use packtrain_service::evidence::Record;
use packtrain_service::{HistoryConfig, RequestError, history};

/// The requested transfer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Which {
    /// The copy that started last; the last comparison if there is no copy.
    Last,
    /// The one with this id, or with an id that begins so.
    Id(String),
    /// The one of this process, running or finished.
    Pid(u32),
}

/// Finds the record of a transfer of this user on this machine.
///
/// # Errors
/// There is none, or the history cannot be read.
pub fn find(which: &Which, keep: &HistoryConfig) -> Result<Record, RequestError> {
    let wanted = match which {
        Which::Last => Filter::default().begun_by(clock::wall()),
        Which::Id(id) => Filter { id: Some(id.clone()), ..Filter::default() },
        Which::Pid(pid) => Filter { pid: Some(*pid), ..Filter::default() },
    };
    let most = match which {
        Which::Last => Some(history::Retention::WITH_EVIDENCE),
        Which::Id(_) | Which::Pid(_) => Some(1),
    };
    let filter = Filter { evidence: true, most, ..wanted };
    let writer = history::own().writer;
    let rows = history::find(keep, &Filter { writer, ..filter })
        .map_err(|e| RequestError::new(FailureKind::SourceMissing, e.to_string()))?;
    let copy = rows.iter().filter(|row| row.kind != Kind::Verify).find_map(record_of);
    copy.or_else(|| rows.iter().find_map(record_of)).ok_or_else(|| {
        let what = match which {
            Which::Last => "no transfer is remembered".to_owned(),
            Which::Id(id) => format!("no transfer is remembered by the id {id}"),
            Which::Pid(pid) => format!("no transfer is remembered of process {pid}"),
        };
        let text = format!(
            "{what} with what its ends measured: name one of this user's latest {} copies, see \
             `packtrain history`",
            history::Retention::WITH_EVIDENCE
        );
        RequestError::new(FailureKind::SourceMissing, text)
    })
}

fn record_of(row: &Row) -> Option<Record> {
    let record: Record = serde_json::from_str(row.evidence.as_ref()?).ok()?;
    Some(record).filter(|record| !record.id.is_empty())
}

#[cfg(test)]
mod tests {
    /// Found by the fuzz target `reported_evidence`: sums that overflowed.
    #[test]
    fn foreign_numbers_of_any_size_are_judged() {
        use crate::judge;
        use packtrain_service::evidence::{Evidence, PathPart, TcpPart, Waits};
        const MAX: u64 = u64::MAX;
        let waits = Waits { work: MAX, bytes: MAX, window: MAX, pace: MAX, room: MAX, word: MAX };
        let path = PathPart {
            waits,
            mover: waits,
            mtu: packtrain_units::ByteCount(MAX),
            mtu_begun: packtrain_units::ByteCount(MAX),
            mtu_falls: MAX,
            tcp: Some(TcpPart { streams: MAX, ..TcpPart::default() }),
            ..PathPart::default()
        };
        let end = packtrain_service::evidence::End::default();
        let evidence = Evidence {
            elapsed: packtrain_units::Duration::from_secs(60),
            source: Some(end.clone()),
            sink: Some(end),
            path: Some(path),
            ..Evidence::default()
        };
        assert!(!judge(&evidence).findings.is_empty());
    }
}
