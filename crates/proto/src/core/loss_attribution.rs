//! Connects the controller, which collects windows of packets, with the classifier of their losses.

use packtrain_cc::{LossWindow, Signal, Signals};
use packtrain_loss::{Classifier, Evidence, HostDrops, Verdict};
use packtrain_units::Time;
use serde_json::json;

use crate::core::Core;

impl Core {
    /// The next window to classify.
    pub(crate) fn poll_signature(&mut self) -> Option<LossWindow> {
        let mut window = self.endpoint.controller_mut()?.poll_signature()?;
        if !self.provides.covers(Signals::of(&[Signal::HostDrops])) {
            window.host_drops = None;
        }
        Some(window)
    }

    /// Takes the cause of the losses in a window.
    pub(crate) fn on_verdict(&mut self, now: Time, window: &LossWindow, verdict: &Verdict) {
        self.stats.loss.add(window.host_drops, verdict);
        if let Some(controller) = self.endpoint.controller_mut() {
            controller.on_verdict(now, window.number, verdict);
        }
        self.log.note(now, "recovery:verdict", || {
            json!({ "window": window.number, "host_drops": window.host_drops, "verdict": verdict })
        });
    }

    /// Classifies the waiting windows at once: for callers without a spare thread, and for virtual
    /// time.
    pub(crate) fn judge(&mut self, now: Time, classifier: &mut Classifier<'static>) {
        while let Some(window) = self.poll_signature() {
            let verdict = judge(&window, classifier);
            self.on_verdict(now, &window, &verdict);
        }
    }
}

/// Classifies the losses of a window.
///
/// The receiver counts its host's drops in datagrams, derived from gaps in the packet numbers.
pub fn judge(window: &LossWindow, classifier: &mut Classifier<'_>) -> Verdict {
    let drops = window.host_drops.map(HostDrops::datagrams);
    classifier.classify(&Evidence::new(&window.signature).host_drops(drops))
}
