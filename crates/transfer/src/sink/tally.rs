//! Counts, and the messages that report them to the source.

use std::ops::Range;

use packtrain_units::{ByteCount, Offset, RangeSet, Time};

use super::{Sink, SinkTotals};
use crate::failure::Failures;
use crate::limits::{MAX_RANGES, PROGRESS_EVERY, VERIFIED_DELAY};
use crate::message::{Message, Progress, Summary};

/// Counts, and ranges that are not reported yet.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) summary: Summary,
    pub(super) failures: Failures,
    progress: Progress,
    sent_progress: Progress,
    known: ByteCount,
    files_known: u64,
    files_present: u64,
    present: u64,
    present_sent: u64,
    needed: u64,
    holes: u64,
    /// Bytes that a real run would move.
    planned: u64,
    /// Verified or not needed, and not reported yet.
    verified: RangeSet,
    verified_at: Option<Time>,
    progress_at: Option<Time>,
}

impl Tally {
    /// Number of ranges that are not reported yet.
    pub(super) fn held(&self) -> usize {
        self.verified.iter().count()
    }

    pub(super) fn add_known(&mut self, bytes: ByteCount) {
        self.known += bytes;
    }

    /// A file was announced.
    pub(super) fn add_file(&mut self) {
        self.files_known += 1;
    }

    /// A file was found here that needs no work.
    pub(super) fn found_file(&mut self) {
        self.files_present += 1;
    }

    /// Bytes were found here that need no work.
    pub(super) fn found(&mut self, bytes: u64) {
        self.present += bytes;
        self.progress.durable += bytes;
    }

    /// Bytes that an earlier run verified match their digests.
    pub(super) fn resumed(&mut self, bytes: u64) {
        self.present += bytes;
        self.summary.bytes_resumed += bytes;
    }

    /// Bytes that were requested were taken from an old version.
    pub(super) fn same(&mut self, bytes: u64) {
        self.needed = self.needed.saturating_sub(bytes);
        self.present += bytes;
        self.summary.bytes_same += bytes;
    }

    pub(super) fn needed(&mut self, bytes: u64) {
        self.needed += bytes;
    }

    /// Bytes were moved and verified.
    pub(super) fn moved(&mut self, bytes: u64) {
        self.progress.verified += bytes;
    }

    /// A dry run found bytes that a real run would move.
    pub(super) fn planned(&mut self, bytes: u64) {
        self.planned += bytes;
    }

    pub(super) fn hole(&mut self, bytes: u64) {
        self.holes += bytes;
    }

    pub(super) fn durable(&mut self, bytes: u64) {
        self.progress.durable += bytes;
    }

    pub(super) fn file_moved(&mut self) {
        self.summary.files_moved += 1;
        self.progress.files += 1;
    }

    /// A chunk is moved again.
    pub(super) fn again(&mut self) {
        self.summary.chunks_again += 1;
        self.progress.again += 1;
    }

    /// The source may release these bytes.
    pub(super) fn verified_range(&mut self, now: Time, range: Range<Offset>) {
        self.verified.insert(range);
        self.verified_at.get_or_insert(now + VERIFIED_DELAY);
        self.progress_at.get_or_insert(now + PROGRESS_EVERY);
    }

    /// Progress that users wait for: reports it with the next call.
    pub(super) fn report_progress_now(&mut self, now: Time) {
        self.progress_at = Some(now);
    }

    /// Bytes found present since the last call.
    pub(super) fn take_present(&mut self) -> u64 {
        let fresh = self.present - self.present_sent;
        self.present_sent = self.present;
        fresh
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        [self.verified_at, self.progress_at].into_iter().flatten().min()
    }

    pub(super) fn summary(&self) -> Summary {
        Summary {
            bytes_moved: self.progress.verified.saturating_sub(self.holes) + self.planned,
            bytes_durable: self.progress.moved_durable(self.present),
            failed: self.failures.count(),
            vanished: self.failures.vanished(),
            ..self.summary
        }
    }

    pub(super) fn totals(&self) -> SinkTotals {
        SinkTotals {
            entries: 0,
            manifest_done: false,
            known: self.known,
            stream_open: false,
            present: ByteCount(self.present),
            needed: ByteCount(self.needed),
            verified: ByteCount(self.progress.verified),
            durable: ByteCount(self.progress.durable),
            files: self.progress.files,
            files_known: self.files_known,
            files_present: self.files_present,
        }
    }
}

impl Sink {
    /// Sends the reports that are due.
    pub(super) fn send_due_reports(&mut self) {
        let due = |at: Option<Time>| at.is_some_and(|at| at <= self.now);
        let (verified, progress) = (due(self.tally.verified_at), due(self.tally.progress_at));
        if verified {
            // The source continues its walk when it receives this, so it waits while the disk is
            // behind.
            if self.durability.is_behind() {
                self.tally.verified_at = Some(self.now + VERIFIED_DELAY);
            } else {
                self.send_verified();
            }
        }
        if progress {
            self.send_progress();
        }
    }

    /// Sends all reports that are not sent yet.
    pub(super) fn send_all_reports(&mut self) {
        self.send_present();
        self.send_verified();
        self.send_progress();
    }

    pub(super) fn send_verified(&mut self) {
        self.tally.verified_at = None;
        let ranges: Vec<_> = std::mem::take(&mut self.tally.verified).iter().collect();
        for ranges in ranges.chunks(MAX_RANGES) {
            self.send(Message::Verified(ranges.to_vec()));
        }
    }

    fn send_progress(&mut self) {
        self.tally.progress_at = None;
        if self.tally.progress != self.tally.sent_progress {
            self.tally.sent_progress = self.tally.progress;
            self.send(Message::Progress(self.tally.progress));
        }
    }
}
