//! Reports of files to the other end, gathered to messages.

use packtrain_transfer::FileReport;
use packtrain_transfer::message::{MAX_FRAME, Message};

use crate::transports::offer::ControlMessage;

/// Maximum reports of files in one message.
const MAX_REPORTS: usize = 500;
/// The reports are sent when their paths and texts have more bytes than this, so that no message
/// exceeds the limit of a frame. One path of 4096 bytes with its failure is far below this.
const MAX_BYTES: usize = MAX_FRAME / 4;

/// Reports that wait to be sent.
#[derive(Default)]
pub(super) struct Reports {
    waiting: Vec<(Vec<u8>, FileReport)>,
    /// Bytes of their paths and texts.
    bytes: usize,
}

impl Reports {
    /// Adds a report. Returns a message if there are enough for one.
    pub(super) fn push(&mut self, path: Vec<u8>, report: FileReport) -> Option<Message> {
        let text = match &report {
            FileReport::Failed(failure) => failure.text.len(),
            _ => 0,
        };
        self.bytes += path.len() + text;
        self.waiting.push((path, report));
        let is_full = self.waiting.len() >= MAX_REPORTS || self.bytes >= MAX_BYTES;
        is_full.then(|| self.take()).flatten()
    }

    /// A message of all reports that wait, if there are any.
    pub(super) fn take(&mut self) -> Option<Message> {
        let Self { waiting, .. } = std::mem::take(self);
        (!waiting.is_empty()).then(|| Message::Channel(ControlMessage::Reports(waiting).encode()))
    }
}

#[cfg(test)]
mod tests {
    use packtrain_transfer::message::{Decoder, encode};
    use packtrain_transfer::{Failure, FailureKind};

    use super::*;

    #[test]
    fn reports_of_the_longest_paths_fit_their_frames() {
        let failure = Failure::new(FailureKind::Unreadable, "t".repeat(4096));
        let mut reports = Reports::default();
        let mut messages = Vec::new();
        for n in 0..1200 {
            let report = match n % 3 {
                0 => FileReport::Failed(failure.clone()),
                _ => FileReport::Moved,
            };
            messages.extend(reports.push(vec![b'p'; 4096], report));
        }
        messages.extend(reports.take());
        assert!(reports.take().is_none());
        let mut read = 0;
        for message in messages {
            let mut decoder = Decoder::new();
            let mut frame = Vec::new();
            encode(&message, &mut frame);
            decoder.feed(&frame);
            // What the other end does with it.
            let Ok(Some(Message::Channel(bytes))) = decoder.next() else {
                panic!("a frame of {} bytes is refused", frame.len());
            };
            let Some(ControlMessage::Reports(list)) = ControlMessage::decode(&bytes) else {
                panic!("a message of {} bytes is refused", bytes.len());
            };
            read += list.len();
        }
        assert_eq!(read, 1200, "every report arrives once");
    }

    #[test]
    fn many_short_reports_make_one_message() {
        let mut reports = Reports::default();
        let full = (0..MAX_REPORTS).filter_map(|_| reports.push(b"f".to_vec(), FileReport::Moved));
        assert_eq!(full.count(), 1);
    }
}
