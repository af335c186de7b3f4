//! Between the controller, which collects windows of packets, and whoever judges their losses.

use packtrain_cc::{LossWindow, Signal, Signals};
use packtrain_loss::{Classifier, Evidence, HostDrops, Verdict};
use packtrain_units::Time;
use serde_json::json;

use crate::core::Core;

impl Core {
    /// The next window to be judged.
    pub(crate) fn poll_signature(&mut self) -> Option<LossWindow> {
        let mut window = self.endpoint.controller_mut()?.poll_signature()?;
        if !self.provides.covers(Signals::of(&[Signal::HostDrops])) {
            window.host_drops = None;
        }
        Some(window)
    }

    /// Why the packets of a window were lost.
    pub(crate) fn on_verdict(&mut self, now: Time, window: &LossWindow, verdict: &Verdict) {
        self.stats.loss.add(window.host_drops, verdict);
        if let Some(controller) = self.endpoint.controller_mut() {
            controller.on_verdict(now, window.number, verdict);
        }
        self.log.note(now, "recovery:verdict", || {
            json!({ "window": window.number, "host_drops": window.host_drops, "verdict": verdict })
        });
    }

    /// Judges what waits, here and now: for who has no thread to spare, or virtual time.
    pub(crate) fn judge(&mut self, now: Time, classifier: &mut Classifier<'static>) {
        while let Some(window) = self.poll_signature() {
            let verdict = judge(&window, classifier);
            self.on_verdict(now, &window, &verdict);
        }
    }
}

/// Names the cause of a window's losses.
///
/// The receiver's count of its host's drops is in datagrams, told by the gaps that they left.
pub fn judge(window: &LossWindow, classifier: &mut Classifier<'_>) -> Verdict {
    let drops = window.host_drops.map(HostDrops::datagrams);
    classifier.classify(&Evidence::new(&window.signature).host_drops(drops))
}
