//! The number of streams of a transfer: as requested, or tuned.

use packtrain_plan::streams::Sample;
use packtrain_units::Time;

use super::MAX_STREAMS;
use super::group::Reading;
use super::stream_count_tuner::StreamCountTuner;
use packtrain_service::StreamsReport;

/// The number of streams, for every transport that opens streams.
#[derive(Debug)]
pub enum StreamCount {
    /// The requested number.
    Fixed(u32),
    /// Tuned during the transfer.
    Tuned(Box<StreamCountTuner>),
}

impl StreamCount {
    /// `asked` streams, or a tuned number if none was requested; at most `max`. `earlier` returns
    /// samples of earlier transfers over the path.
    pub fn new(asked: Option<u32>, max: u32, earlier: impl FnOnce() -> Vec<Sample>) -> Self {
        match asked {
            Some(count) => Self::Fixed(count.min(max)),
            None => Self::Tuned(Box::new(StreamCountTuner::new(max.min(MAX_STREAMS), earlier()))),
        }
    }

    /// Whether the number is tuned during the transfer.
    pub fn is_tuned(&self) -> bool {
        matches!(self, Self::Tuned(_))
    }

    /// The target number of streams.
    pub fn target(&mut self) -> u32 {
        match self {
            Self::Fixed(count) => *count,
            Self::Tuned(tuner) => tuner.target(),
        }
    }

    /// Passes TCP statistics to the tuner; `busy`: the streams are the bottleneck of the transfer.
    pub fn sample(&mut self, now: Time, readings: &[Reading], busy: bool) {
        if let Self::Tuned(tuner) = self {
            tuner.look(now, readings, busy);
        }
    }

    /// Adds the reasons for the number to the report.
    pub fn explain(&self, report: &mut StreamsReport) {
        match self {
            Self::Fixed(count) => report.asked = Some(*count),
            Self::Tuned(tuner) => report.reasons = tuner.reasons(),
        }
    }
}
