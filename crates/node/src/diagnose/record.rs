//! Records of transfers: found in the history, and as they go between the ends.

use packtrain_history::{Filter, Row};
use packtrain_transfer::FailureKind;

use super::evidence::{Part, Record};
use crate::api::NodeError;
use crate::history::{self, Keep};

/// Which transfer is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Which {
    /// The one that began last.
    Last,
    /// By its id, or the beginning of it.
    Id(String),
    /// By the process that runs it, or ran it.
    Pid(u32),
}

/// Finds a transfer's record among this user's at this machine.
///
/// # Errors
/// There is none, or the history cannot be read.
pub fn find(which: &Which, keep: &Keep) -> Result<Record, NodeError> {
    let wanted = match which {
        Which::Last => Filter::default(),
        Which::Id(id) => Filter { id: Some(id.clone()), ..Filter::default() },
        Which::Pid(pid) => Filter { pid: Some(*pid), ..Filter::default() },
    };
    let filter = Filter { evidence: true, most: Some(1), ..wanted };
    let writer = history::own().writer;
    let rows = history::find(keep, &Filter { writer, ..filter })
        .map_err(|e| NodeError::new(FailureKind::SourceMissing, e.to_string()))?;
    rows.iter().find_map(record_of).ok_or_else(|| {
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
        NodeError::new(FailureKind::SourceMissing, text)
    })
}

fn record_of(row: &Row) -> Option<Record> {
    let record: Record = serde_json::from_str(row.evidence.as_ref()?).ok()?;
    Some(record).filter(|record| !record.id.is_empty())
}

/// The longest part that is taken from the other end.
const LONGEST_PART: usize = 64 << 10;

/// A part as it goes to the other end.
pub(crate) fn encode(part: &Part) -> Vec<u8> {
    serde_json::to_vec(part).unwrap_or_default()
}

/// Reads the other end's part; none if it is too long or unintelligible.
pub(crate) fn decode(bytes: &[u8]) -> Option<Part> {
    if bytes.len() > LONGEST_PART {
        return None;
    }
    serde_json::from_slice::<Part>(bytes).ok().map(Part::bound)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_parts_are_bounded() {
        let mut part = Part { path: Some(Default::default()), ..Part::default() };
        let path = part.path.as_mut().expect("there");
        path.controller = "ä\u{1b}".repeat(500);
        path.samples = vec![Default::default(); 300];
        let heard = decode(&encode(&part)).expect("a part");
        let path = heard.path.expect("there");
        assert!(path.controller.chars().all(|c| c == 'ä') && path.samples.len() == 160);
        assert_eq!(decode(&vec![b' '; LONGEST_PART + 1]), None);
        assert_eq!(decode(b"{}"), Some(Part::default()));
        assert_eq!(decode(b"[]x"), None);
    }

    /// The fuzz target `reported_json` found sums that overflowed.
    #[test]
    fn foreign_numbers_of_any_size_are_judged() {
        use crate::diagnose::{Evidence, PathPart, TcpPart, Waits, judge};
        const MOST: u64 = u64::MAX;
        let waits =
            Waits { work: MOST, bytes: MOST, window: MOST, pace: MOST, room: MOST, word: MOST };
        let path = PathPart {
            waits,
            mover: waits,
            mtu: packtrain_units::ByteCount(MOST),
            mtu_begun: packtrain_units::ByteCount(MOST),
            mtu_falls: MOST,
            tcp: Some(TcpPart { streams: MOST, ..TcpPart::default() }),
            ..PathPart::default()
        };
        let end = crate::diagnose::End::default();
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
