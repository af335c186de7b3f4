//! What the models of the number of streams say.

use std::num::NonZeroU32;

use packtrain_plan::streams::{Options, Prediction, Sample, predict};

use super::{INITIAL_STREAMS, StreamCountTuner};

impl StreamCountTuner {
    /// The number to begin with. It is predicted when it is first needed, because the prediction takes
    /// time, and other transports are preferred to streams.
    pub(super) fn first(&mut self) -> u32 {
        if let Some(first) = self.first {
            return first;
        }
        let known = predict(&self.earlier, options(self.most)).ok();
        if let Some(known) = &known {
            self.reasons.push(format!(
                "earlier transfers over this path: {} streams are best ({} expected)",
                known.streams, known.throughput
            ));
        }
        let first = known.map_or(INITIAL_STREAMS, |known| known.streams.get()).min(self.most);
        self.target = first;
        *self.first.insert(first)
    }

    /// The prediction of the models from all samples.
    pub(super) fn predicted(&self) -> Option<Prediction> {
        let own = self.samples.iter().filter_map(|(n, rate)| {
            let streams = NonZeroU32::new(*n)?;
            Some(Sample { streams, throughput: *rate })
        });
        let all: Vec<Sample> = self.earlier.iter().copied().chain(own).collect();
        predict(&all, options(self.most)).ok()
    }
}

fn options(most: u32) -> Options {
    let max_streams = NonZeroU32::new(most).unwrap_or(NonZeroU32::MIN);
    Options { max_streams }
}
