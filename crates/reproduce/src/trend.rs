//! The errors of UDT's delay trend detection: the receiver's decisions against the actual queue
//! (type 1 and type 2 errors of Gu and Grossman, section IV.D).

use packtrain_sim::outcome::Wait;

use super::group::RunContext;

/// Samples of a test (N3).
const SAMPLES: usize = 16;
/// A queue that grew in at least this many of the 15 steps between samples counts as growing.
const GROWING: usize = 13;

/// The kind of error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trend {
    /// Of the tests while the queue was growing, the share without a detected increase.
    Missed,
    /// Of the tests while it was not growing, the share with a detected increase.
    FalseAlarms,
    /// The number of tests while the queue was growing.
    Growing,
}

impl Trend {
    pub(super) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "missed" => Self::Missed,
            "false_alarms" => Self::FalseAlarms,
            "growing" => Self::Growing,
            _ => return None,
        })
    }

    /// Over the tests of a flow through the queue of a link, `delay` seconds before the receiver. A
    /// queue that grew by less than `min_growth` seconds in a test is undecided. The scenario must
    /// sample every 10 ms, the interval of the receiver's tests.
    pub(super) fn of(
        self,
        context: &RunContext<'_>,
        flow: &str,
        link: &str,
        (delay, min_growth): (f64, f64),
    ) -> Result<f64, String> {
        let of_flow = context.row.flows.iter().position(|known| known.name == flow);
        let of_flow = of_flow.ok_or_else(|| format!("no flow `{flow}`"))?;
        let of_link = context.row.links.iter().position(|known| known.name == link);
        let of_link = of_link.ok_or_else(|| format!("no link `{link}`"))?;
        let tests: Vec<_> =
            context.outcome.samples.iter().filter(|sample| sample.flow == of_flow).collect();
        let waits: Vec<Wait> =
            context.outcome.waits.iter().filter(|wait| wait.link == of_link).copied().collect();
        let (mut growing, mut missed, mut still, mut alarms) = (0u64, 0u64, 0u64, 0u64);
        let mut at = 0;
        for pair in tests.windows(2) {
            if pair[1].trend[0] == pair[0].trend[0] {
                continue;
            }
            let rose = pair[1].trend[1] > pair[0].trend[1];
            let now = pair[1].at.as_nanos() as f64 / 1e9;
            // The packet that arrived last was at the queue this much earlier, and waited there.
            while waits.get(at + 1).is_some_and(|wait| arrives(wait, delay) <= now) {
                at += 1;
            }
            let Some(window) = (at + 1).checked_sub(SAMPLES).and_then(|a| waits.get(a..=at)) else {
                continue;
            };
            let ups = window.windows(2).filter(|pair| pair[1].wait > pair[0].wait).count();
            let grown = window[SAMPLES - 1].wait.as_secs_f64() - window[0].wait.as_secs_f64();
            if ups >= GROWING && grown >= min_growth {
                growing += 1;
                missed += u64::from(!rose);
            }
            if window[SAMPLES - 1].wait <= window[0].wait {
                still += 1;
                alarms += u64::from(rose);
            }
        }
        Ok(match self {
            Self::Growing => growing as f64,
            Self::Missed => missed as f64 / growing.max(1) as f64,
            Self::FalseAlarms => alarms as f64 / still.max(1) as f64,
        })
    }
}

fn arrives(wait: &Wait, delay: f64) -> f64 {
    (wait.at + wait.wait).as_nanos() as f64 / 1e9 + delay
}
