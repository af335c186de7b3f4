//! How many streams a transfer has: as many as were asked for, or as many as turn out to be best.

use packtrain_plan::streams::Sample;
use packtrain_units::Time;

use super::MAX_STREAMS;
use super::group::Reading;
use super::stream_count_tuner::StreamCountTuner;
use packtrain_service::StreamsReport;

/// The number of streams, for every transport that opens streams.
#[derive(Debug)]
pub enum StreamCount {
    /// As many as were asked for.
    Fixed(u32),
    /// As many as turn out to be best.
    Tuned(Box<StreamCountTuner>),
}

impl StreamCount {
    /// `asked` streams, or the best number if none was asked for; `max` at most. `earlier` is what
    /// is known of the path.
    pub fn new(asked: Option<u32>, max: u32, earlier: impl FnOnce() -> Vec<Sample>) -> Self {
        match asked {
            Some(count) => Self::Fixed(count.min(max)),
            None => Self::Tuned(Box::new(StreamCountTuner::new(max.min(MAX_STREAMS), earlier()))),
        }
    }

    /// Whether the number is found while the transfer runs.
    pub fn is_tuned(&self) -> bool {
        matches!(self, Self::Tuned(_))
    }

    /// How many there are to be now.
    pub fn target(&self) -> u32 {
        match self {
            Self::Fixed(count) => *count,
            Self::Tuned(tuner) => tuner.target(),
        }
    }

    /// What the kernel says of the streams; `busy` if they are what the transfer waits for.
    pub fn sample(&mut self, now: Time, readings: &[Reading], busy: bool) {
        if let Self::Tuned(tuner) = self {
            tuner.look(now, readings, busy);
        }
    }

    /// Writes into the report why there were as many as there were.
    pub fn explain(&self, report: &mut StreamsReport) {
        match self {
            Self::Fixed(count) => report.asked = Some(*count),
            Self::Tuned(tuner) => report.reasons = tuner.reasons(),
        }
    }
}
