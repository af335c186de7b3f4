//! The ended sessions and warnings that wait for the server's reporter.
//!
//! A reporter may be slow: a terminal that is stopped, a full pipe, a disk. Connections without a key
//! cost their sender almost nothing, so only so many of them wait, and the others are counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_channel::{Receiver, Sender, bounded};
use packtrain_service::{Notice, NoticeLevel};

use super::Served;

/// Maximum queued sessions. An admitted client that ends waits for room: it keeps its place, so
/// there are as few of these as clients.
const MAX_QUEUED: usize = 2 * MAX_QUEUED_REFUSED;
/// Refused connections are dropped while this many sessions are queued.
const MAX_QUEUED_REFUSED: usize = 4096;

/// Queues ended sessions for the thread that reports them.
#[derive(Clone)]
pub(crate) struct Reports {
    queue: Sender<Report>,
    dropped: Arc<AtomicU64>,
}

/// The other end of the queue.
pub(crate) struct QueuedReports {
    queue: Receiver<Report>,
    dropped: Arc<AtomicU64>,
}

enum Report {
    Served(Box<Served>),
    /// For the owner of the server.
    Warning(String),
    /// Ends the reports, even if remaining clients still hold a sender.
    End,
}

impl Reports {
    pub(crate) fn new() -> (Self, QueuedReports) {
        let (queue, queued) = bounded(MAX_QUEUED);
        let dropped = Arc::<AtomicU64>::default();
        let reports = Self { queue, dropped: Arc::clone(&dropped) };
        (reports, QueuedReports { queue: queued, dropped })
    }

    /// Queues an ended session.
    pub(crate) fn add(&self, served: Served) {
        let (_, _, result, row) = &served;
        let refused = row.is_none() && result.is_err();
        if !refused || self.has_room() {
            // Without a receiver the server has ended.
            let _ = self.queue.send(Report::Served(Box::new(served)));
        }
    }

    /// Queues a warning that a client may have caused.
    pub(crate) fn warn(&self, text: String) {
        if self.has_room() {
            let _ = self.queue.send(Report::Warning(text));
        }
    }

    /// Ends the reports after those that are queued.
    pub(crate) fn end(&self) {
        let _ = self.queue.send(Report::End);
    }

    /// Whether there is room for what a client without a key causes. Counts what is dropped.
    fn has_room(&self) -> bool {
        let room = self.queue.len() < MAX_QUEUED_REFUSED;
        self.dropped.fetch_add(u64::from(!room), Ordering::Relaxed);
        room
    }
}

impl QueuedReports {
    /// Reports sessions until [`Reports::end`].
    pub(crate) fn deliver(self, mut report: impl FnMut(Served), notice: impl Fn(&Notice)) {
        let Self { queue, dropped } = self;
        let warn = |text: String| notice(&Notice::new(NoticeLevel::Warning, text));
        for queued in queue {
            match queued {
                Report::Served(served) => report(*served),
                Report::Warning(text) => warn(text),
                Report::End => return,
            }
            let dropped = dropped.swap(0, Ordering::Relaxed);
            if dropped > 0 {
                warn(format!(
                    "{dropped} refused connections are not reported: they came faster than reports \
                     are written"
                ));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use packtrain_service::history::{Kind, Side, begin};
    use packtrain_transfer::{Failure, FailureKind};
    use packtrain_units::Duration;

    use super::*;

    fn refused(n: usize) -> Served {
        let failure = Failure::new(FailureKind::NotAuthorised, "no key");
        (n.to_string(), Duration::ZERO, Err(failure), None)
    }

    #[test]
    fn connections_without_a_key_do_not_accumulate_while_nobody_reads_the_reports() {
        let (reports, queued) = Reports::new();
        for n in 0..10_000 {
            reports.add(refused(n));
        }
        assert_eq!(queued.queue.len(), MAX_QUEUED_REFUSED);
        // A client that was admitted is reported, also when its transfer failed.
        let (peer, took, result, _) = refused(10_000);
        reports.add((peer, took, result, Some(begin(Kind::Cp, Side::Called))));
        reports.warn("one more".to_owned());
        reports.end();
        let (seen, said) = (RefCell::new(Vec::new()), RefCell::new(Vec::new()));
        queued.deliver(
            |served| seen.borrow_mut().push(served.0),
            |notice| said.borrow_mut().push(notice.text.clone()),
        );
        let seen = seen.into_inner();
        assert_eq!((seen.len(), seen.last().map(String::as_str)), (4097, Some("10000")));
        let said = said.into_inner();
        assert!(said.len() == 1 && said[0].starts_with("5905 refused connections"), "{said:?}");
    }
}
