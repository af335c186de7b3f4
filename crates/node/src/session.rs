//! What both ends of a transfer share: who watches it and who stops it.

use packtrain_transfer::{Failure, FailureKind, FileReport, SinkTotals, SourceTotals};

use crate::api::{Notice, StopHandle};

/// Watches one end of a transfer. Calls come from its thread and must not block for long.
pub(crate) trait Observer: Send + Sync {
    /// A file is done.
    fn file(&self, path: &[u8], report: &FileReport);
    /// How far the source is, a few times a second.
    fn source(&self, totals: &SourceTotals);
    /// How far the sink is, a few times a second.
    fn sink(&self, totals: &SinkTotals);
    /// Which transport moves the data now.
    fn transport(&self, name: &str);
    /// Something to say.
    fn notice(&self, notice: &Notice);
}

/// Watches nothing.
pub(crate) struct Unwatched;

impl Observer for Unwatched {
    fn file(&self, _: &[u8], _: &FileReport) {}
    fn source(&self, _: &SourceTotals) {}
    fn sink(&self, _: &SinkTotals) {}
    fn transport(&self, _: &str) {}
    fn notice(&self, _: &Notice) {}
}

/// The wish to end, taken once.
#[derive(Clone, Debug)]
pub(crate) struct Stop {
    handle: StopHandle,
    taken: bool,
}

impl Stop {
    pub(crate) fn new(handle: StopHandle) -> Self {
        Self { handle, taken: false }
    }

    /// The failure to end with, the first time it is asked after somebody wished the end.
    pub(crate) fn take(&mut self) -> Option<Failure> {
        if self.taken {
            return None;
        }
        let failure = self.asked();
        self.taken = failure.is_some();
        failure
    }

    /// The failure to end with, if somebody wished the end.
    pub(crate) fn asked(&self) -> Option<Failure> {
        self.handle.requested().map(|_| Failure::new(FailureKind::Cancelled, "stopped on request"))
    }
}
