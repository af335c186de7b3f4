//! Messages from the sink.

use std::ops::Range;

use packtrain_object::{EntryId, SPACE_END};
use packtrain_units::{ByteCount, Offset, Time};

use super::Source;
use crate::action::{Outcome, SourceAction};
use crate::failure::{Failure, FailureKind, protocol};
use crate::limits::MAX_RANGES;
use crate::message::{Message, Summary, unexpected};

/// Entries whose root digests were requested, one bit each. Each request costs the read of a whole
/// file, so each entry is answered once.
#[derive(Debug, Default)]
pub(super) struct AskedRoots(Vec<u64>);

impl AskedRoots {
    /// Marks an entry; false if it was marked before.
    fn mark(&mut self, id: EntryId) -> bool {
        let (at, bit) = ((id.0 / u64::BITS) as usize, 1 << (id.0 % u64::BITS));
        if self.0.len() <= at {
            self.0.resize(at + 1, 0);
        }
        let fresh = self.0[at] & bit == 0;
        self.0[at] |= bit;
        fresh
    }
}

impl Source {
    pub(super) fn take_message(&mut self, now: Time, message: Message) -> Result<(), Failure> {
        let answers = matches!(
            message,
            Message::Need { .. }
                | Message::NeedChanged { .. }
                | Message::AskRoot(_)
                | Message::Verified(_)
                | Message::Progress(_)
                | Message::SinkFailed { .. }
                | Message::Stored { .. }
        );
        // Before the first segment there is nothing that these messages can refer to.
        if answers && !self.segments.was_sent(EntryId(0)) {
            return Err(unexpected(&message));
        }
        match message {
            Message::Need { segment, ranges, present, again } => {
                self.take_need(now, segment, &ranges, present, again)
            }
            Message::NeedChanged { start, digest } => self.take_need_changed(start, digest),
            Message::AskRoot(entries) => self.take_ask_root(entries),
            Message::Verified(ranges) => self.take_verified(&ranges),
            Message::Progress(progress) => {
                self.progress = progress;
                self.totals.durable = ByteCount(progress.durable);
                self.totals.files = progress.files;
                Ok(())
            }
            Message::SinkFailed { entry, failure } => {
                if !self.segments.was_sent(entry) {
                    return Err(protocol("failure of an entry that was not sent"));
                }
                self.drop_entry(entry, failure.bounded());
                Ok(())
            }
            Message::Stored { entries, left } => self.take_stored(&entries, &left),
            Message::Finished(summary) => self.take_finished(summary),
            Message::Refused(failure) | Message::Cancel(failure) => {
                self.finish(Some(failure.bounded()));
                Ok(())
            }
            Message::Bye => {
                let text = "the receiving end left before it was done";
                self.finish(Some(Failure::new(FailureKind::Temporary, text)));
                Ok(())
            }
            other => Err(unexpected(&other)),
        }
    }

    fn take_need(
        &mut self,
        _now: Time,
        segment: Option<EntryId>,
        ranges: &[Range<Offset>],
        present: u64,
        again: bool,
    ) -> Result<(), Failure> {
        if ranges.len() > MAX_RANGES {
            return Err(protocol("more needed ranges than fit in one message"));
        }
        if let Some(first) = segment {
            let count = self.segments.answered(first)?;
            self.held.answered(first, count);
        }
        self.totals.present += ByteCount(present);
        let mut before = Offset::ZERO;
        for range in ranges {
            if range.start < before || range.start >= range.end || range.end > SPACE_END {
                return Err(protocol("needed ranges that are out of order"));
            }
            before = range.end;
            self.need(range, again)?;
        }
        Ok(())
    }

    fn need(&mut self, range: &Range<Offset>, again: bool) -> Result<(), Failure> {
        // The sink may request more of a stream before it knows where the stream ended.
        let end = if self.held.had_stream() { range.end.min(self.layout.end()) } else { range.end };
        if range.start >= end {
            return Ok(());
        }
        let first = self.layout.piece_at(range.start);
        let last = self.layout.piece_at(Offset(end.0 - 1));
        if first.is_none_or(|piece| piece.range.start != range.start)
            || last
                .is_none_or(|piece| piece.range.end != end || !self.segments.was_sent(piece.entry))
        {
            return Err(protocol("needed ranges that are not those of pieces"));
        }
        // Skips entries that failed here: the sink may not have received `SourceFailed` yet.
        let live: Vec<_> = self.held.live(range.start..end).collect();
        for part in live {
            let fresh = if again {
                self.totals.needed += part.end.since(part.start);
                self.out.push_back(SourceAction::Reread(part.clone()));
                self.needs.want_again(&part, self.assigner.under_way(&part))
            } else {
                self.needs.want(&part)
            };
            for range in fresh {
                if !again {
                    self.totals.needed += range.end.since(range.start);
                }
                self.assigner.add(range);
            }
        }
        Ok(())
    }

    fn take_verified(&mut self, ranges: &[Range<Offset>]) -> Result<(), Failure> {
        if ranges.len() > MAX_RANGES {
            return Err(protocol("more verified ranges than fit in one message"));
        }
        for range in ranges {
            if range.start >= range.end || range.end > SPACE_END {
                return Err(protocol("verified ranges that make no sense"));
            }
            if !self.segments.is_laid_out(range, &self.layout) {
                return Err(protocol("verified ranges beyond the object"));
            }
            let wanted = self.needs.verified(range);
            self.totals.verified += wanted;
            // What was verified before costs nothing, however often a sink repeats it.
            if wanted == ByteCount::ZERO && self.held.live(range.clone()).next().is_none() {
                continue;
            }
            self.assigner.forget_waiting(range);
            self.held.verified(range, &self.layout);
            self.out.push_back(SourceAction::Forget(range.clone()));
        }
        Ok(())
    }

    fn take_ask_root(&mut self, entries: Vec<EntryId>) -> Result<(), Failure> {
        if !self.options.checksum && !self.options.verify {
            return Err(protocol("a digest was asked for in a transfer that compares none"));
        }
        for entry in entries {
            if !self.segments.was_sent(entry) {
                return Err(protocol("a digest of an entry that was not sent was asked for"));
            }
            if !self.asked.mark(entry) {
                return Err(protocol("the digest of an entry was asked for twice"));
            }
            if self.held.get(entry).is_some() {
                self.out.push_back(SourceAction::HashFile(entry));
            } else {
                self.send(Message::Root { entry, digest: None });
            }
        }
        Ok(())
    }

    fn take_finished(&mut self, summary: Summary) -> Result<(), Failure> {
        if !self.totals.walk_done {
            return Err(protocol("the sink finished before the walk"));
        }
        if !self.removal.wait(summary)? {
            self.complete(summary);
        }
        Ok(())
    }

    /// The sink has finished, and nothing is being removed any more.
    pub(super) fn complete(&mut self, mut summary: Summary) {
        // The sink does not know of files that were not removed.
        let kept = self.removal.kept();
        let failed = self.failures.count().saturating_sub(kept);
        summary.failed = summary.failed.max(failed).saturating_add(kept);
        summary.removed = self.removal.removed();
        if self.options.removes_source() {
            let message = self.removal.message();
            self.send(message);
        }
        summary.bytes_same = self.compared.same();
        self.send(Message::Bye);
        let failed = self.failures.take();
        self.finish_as(Outcome { summary, failure: None, failed });
    }
}
