//! What the sink tells the user at its end.

use packtrain_transfer::message::Message;

use super::{Runner, unlinked_notice};
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

    /// Reports the names that could not become hard links.
    pub(super) fn report_unlinked(&self) {
        let names = self.target.unlinked.count();
        if names == 0 {
            return;
        }
        if self.setup.observer.keeps() {
            self.setup.observer.notice(&unlinked_notice(names));
        } else {
            let word = ControlMessage::Unlinked(names);
            self.setup.control.tx.send(&Message::Channel(word.encode()));
        }
    }
}
