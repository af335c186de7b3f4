//! Signatures with known causes, for training and testing of models.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{Cause, Delay, HostDrops, Signature, SignatureError};

/// Maximum datagrams that Linux coalesces into one buffer.
const MAX_JOINED_DATAGRAMS: u64 = 64;

/// One labelled signature; as JSON, one line of a data set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Record", into = "Record")]
pub struct Labelled {
    /// Its generator, such as `net-self`: training and test data are split by family.
    pub family: String,
    /// The true cause.
    pub cause: Cause,
    /// Seed of the draw it comes from.
    pub seed: u64,
    /// Its index within the draw.
    pub window: u64,
    /// Which packets arrived.
    pub signature: Signature,
    /// True number of losses by place.
    pub lost: Lost,
    /// Datagrams that the receiving host counted as its own drops (SO_RXQ_OVFL), if it counts.
    pub host_drops: Option<u64>,
    /// One-way delay around the losses, if it was recorded.
    pub delay: Option<Delay>,
    /// Whether it is for training or for testing.
    pub split: Split,
    /// All other fields of the record.
    pub more: BTreeMap<String, serde_json::Value>,
}

/// Lost packets by place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lost {
    /// In queues of the path.
    #[serde(default)]
    pub network: u64,
    /// At the receiving host.
    #[serde(default)]
    pub host: u64,
    /// By errors of the link.
    #[serde(default)]
    pub link: u64,
}

/// The permitted use of a labelled signature.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Split {
    /// Fitting of models.
    #[default]
    Train,
    /// Testing only; never fitting.
    Test,
}

/// Why a record is invalid.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum LabelledError {
    /// Its runs are not a valid signature.
    #[error(transparent)]
    Signature(#[from] SignatureError),
    /// The runs and the number of packets differ.
    #[error("runs of {runs} packets together for a window of {packets}")]
    Packets {
        /// Sum of the runs.
        runs: usize,
        /// The number in the record.
        packets: usize,
    },
    /// The losses by cause and those of the signature differ.
    #[error("{by_cause} losses by cause, {signature} in the signature")]
    Lost {
        /// Sum of the causes.
        by_cause: u64,
        /// Of the signature.
        signature: u64,
    },
    /// The label is not a cause.
    #[error("`inconclusive` is a verdict, not a cause")]
    NoCause,
}

/// The line in a file.
#[derive(Serialize, Deserialize)]
struct Record {
    family: String,
    cause: Cause,
    #[serde(default)]
    seed: u64,
    #[serde(default)]
    window: u64,
    #[serde(default)]
    split: Split,
    packets: usize,
    runs: Vec<usize>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    lost: Option<Lost>,
    #[serde(default)]
    host_drops: Option<u64>,
    #[serde(default)]
    delay: Option<Delay>,
    #[serde(flatten)]
    more: BTreeMap<String, serde_json::Value>,
}

impl TryFrom<Record> for Labelled {
    type Error = LabelledError;

    fn try_from(record: Record) -> Result<Self, LabelledError> {
        if record.cause == Cause::Inconclusive {
            return Err(LabelledError::NoCause);
        }
        let signature = Signature::from_runs(record.runs)?;
        if signature.len() != record.packets {
            let runs = signature.len();
            return Err(LabelledError::Packets { runs, packets: record.packets });
        }
        let all = signature.lost() as u64;
        let lost = record.lost.unwrap_or_else(|| Lost::all_of(record.cause, all));
        let by_cause = lost.network.saturating_add(lost.host).saturating_add(lost.link);
        if by_cause != all {
            return Err(LabelledError::Lost { by_cause, signature: all });
        }
        Ok(Self {
            family: record.family,
            cause: record.cause,
            seed: record.seed,
            window: record.window,
            signature,
            lost,
            host_drops: record.host_drops,
            delay: record.delay,
            split: record.split,
            more: record.more,
        })
    }
}

impl From<Labelled> for Record {
    fn from(labelled: Labelled) -> Self {
        Self {
            family: labelled.family,
            cause: labelled.cause,
            seed: labelled.seed,
            window: labelled.window,
            split: labelled.split,
            packets: labelled.signature.len(),
            runs: labelled.signature.runs(),
            lost: Some(labelled.lost),
            host_drops: labelled.host_drops,
            delay: labelled.delay,
            more: labelled.more,
        }
    }
}

impl Labelled {
    /// The host's counter as evidence. If the record says `joins`, one count may stand for as many
    /// datagrams as fit a receive buffer.
    pub fn counted(&self) -> Option<HostDrops> {
        let of = |key| self.more.get("meta").and_then(|meta| meta.get(key));
        let joins = of("joins").and_then(serde_json::Value::as_bool) == Some(true);
        let most = if joins { MAX_JOINED_DATAGRAMS } else { 1 };
        self.host_drops.map(|counted| HostDrops::buffers(counted, most))
    }
}

impl Lost {
    /// All losses from one cause; those of a hybrid are divided equally because the shares are
    /// unknown.
    fn all_of(cause: Cause, lost: u64) -> Self {
        match cause {
            Cause::Cpu => Self { host: lost, ..Self::default() },
            Cause::Link => Self { link: lost, ..Self::default() },
            Cause::Hybrid => Self { host: lost / 2, network: lost - lost / 2, link: 0 },
            Cause::Network | Cause::Inconclusive => Self { network: lost, ..Self::default() },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = r#"{"family":"net-self","cause":"network","seed":7,"window":2,"split":"test",
        "packets":10,"runs":[3,1,5,1],"lost":{"network":2},"host_drops":0,
        "delay":{"read":{"before":12.5,"after":3,"typical":1,"most":20}},"rate_bps":1000}"#;

    #[test]
    fn a_line_goes_in_and_out_unchanged() {
        let labelled: Labelled = serde_json::from_str(LINE).expect("a record");
        assert_eq!(labelled.signature.to_string(), "1110111110");
        assert_eq!((labelled.cause, labelled.split), (Cause::Network, Split::Test));
        let read = labelled.delay.expect("a delay").read.expect("by the reader's clock");
        assert_eq!(read.before.as_nanos(), 12_500);
        assert_eq!(labelled.more["rate_bps"], 1000);
        let again = serde_json::to_string(&labelled).expect("writes");
        assert_eq!(serde_json::from_str::<Labelled>(&again).expect("reads"), labelled);
    }

    #[test]
    fn lines_that_contradict_themselves_are_refused() {
        for (from, to) in [
            ("\"packets\":10", "\"packets\":11"),
            ("{\"network\":2}", "{\"network\":1}"),
            ("\"cause\":\"network\"", "\"cause\":\"inconclusive\""),
            ("[3,1,5,1]", "[3,18446744073709551615,5,1]"),
        ] {
            let line = LINE.replace(from, to);
            assert_ne!(line, LINE);
            assert!(serde_json::from_str::<Labelled>(&line).is_err(), "{line}");
        }
    }
}
