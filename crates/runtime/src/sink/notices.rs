//! What the sink tells the user at its end.

use packtrain_transfer::message::Message;

use super::Runner;
use super::delete::Gone;
use crate::not_kept::NotKept;
use crate::transports::offer::ControlMessage;

impl Runner<'_> {
    /// Reports leftovers of interrupted transfers beside the files of this one.
    pub(super) fn report_leftovers(&self) {
        let left = self.target.leftovers();
        if left.files == 0 {
            return;
        }
        if self.setup.observer.keeps() {
            self.setup.observer.notice(&left.notice());
        } else {
            let word = ControlMessage::Leftovers(left.files, left.bytes);
            self.setup.control.tx.send(&Message::Channel(word.encode()));
        }
    }

    /// Tells the initiator how many entries were changed: the summary on the wire counts files only.
    pub(super) fn report_changed(&self) {
        if !self.setup.observer.keeps() {
            let word = ControlMessage::Changed(self.sink.changed());
            self.setup.control.tx.send(&Message::Channel(word.encode()));
        }
    }

    /// Reports what the options ask to keep and the target could not keep.
    pub(super) fn report_not_kept(&self) {
        let left = self.target.not_kept();
        if left == NotKept::default() {
            return;
        }
        if self.setup.observer.keeps() {
            left.notices().iter().for_each(|notice| self.setup.observer.notice(notice));
        } else {
            let word = ControlMessage::NotKept(left);
            self.setup.control.tx.send(&Message::Channel(word.encode()));
        }
    }

    /// Tells the initiator why names at the target failed that the source does not know as entries.
    pub(super) fn tell_target_failures(&mut self, results: &Gone) {
        if self.setup.observer.keeps() {
            return;
        }
        let failed = results.iter().filter_map(|(path, result)| {
            let failure = result.as_ref().err()?;
            Some((path.clone(), failure.clone()))
        });
        let fresh = self.target_failures.add(failed.collect());
        if !fresh.is_empty() {
            let word = ControlMessage::TargetFailures(fresh);
            self.setup.control.tx.send(&Message::Channel(word.encode()));
        }
    }
}
