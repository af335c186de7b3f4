//! Decides what an entry needs, from the state of its target.

use packtrain_object::{CHUNK, Entry, EntryId, EntryKind, PATH_TAKEN};

use super::Sink;
use super::entries::Stage;
use crate::action::{FileReport, Found, FoundKind, SinkAction, TargetState};
use crate::failure::{Failure, FailureKind};
use crate::message::Options;

const SPECIAL: &str = "there is a device, socket or named pipe, which is not replaced";

/// What to do with an entry.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Decision {
    /// Nothing, except perhaps its metadata.
    Keep {
        /// Whether to set mode, time or owner.
        settle: bool,
    },
    /// Make a directory, a link or an empty file.
    Make,
    /// Compare the digests of the whole file first.
    Compare,
    /// Move its bytes.
    Move,
    /// Nothing, because this run changes nothing; report what would change.
    ReportOnly(FileReport),
    /// Nothing, because an option leaves it alone: it need not match the source.
    Skip,
    /// It cannot be copied.
    Fail(Failure),
}

/// Decides about an entry. `stream`: its content comes from a stream.
pub(super) fn decide(
    options: &Options,
    entry: &Entry,
    stream: bool,
    found: Option<&Found>,
) -> Decision {
    if is_skipped(options, entry, found) {
        return Decision::Skip;
    }
    let decision = match &entry.kind {
        EntryKind::Directory => match found {
            Some(found) if found.kind == FoundKind::Directory => Decision::Keep { settle: false },
            Some(found) if found.kind == FoundKind::Other => refused(SPECIAL),
            _ => Decision::Make,
        },
        EntryKind::Symlink { .. } => match found {
            Some(found) if found.kind == FoundKind::Symlink && found.same_link => {
                Decision::Keep { settle: needs_settling(options, entry, found) }
            }
            Some(found) if found.kind == FoundKind::Directory && !found.makes_way => refused(
                "there is a directory with something in it where a symbolic link belongs; \
                 --delete removes it",
            ),
            Some(found) if found.kind == FoundKind::Other => refused(SPECIAL),
            _ => Decision::Make,
        },
        EntryKind::Stream => decide_file(options, entry, true, found),
        EntryKind::File { .. } => decide_file(options, entry, stream, found),
    };
    let decision = if options.removes_source() { afresh(entry, decision) } else { decision };
    for_dry_run(options, entry, found, decision)
}

/// With `remove_source_files`, files and links are written anew even if they look the same: only what
/// this transfer verified may be removed at the source. And if source and target are one file, by
/// whatever path, it becomes another file, which the source then does not remove.
fn afresh(entry: &Entry, decision: Decision) -> Decision {
    match (&entry.kind, decision) {
        (EntryKind::Directory, decision) => decision,
        (EntryKind::File { size: 1.. }, Decision::Keep { .. } | Decision::Compare) => {
            Decision::Move
        }
        (_, Decision::Keep { .. } | Decision::Compare) => Decision::Make,
        (_, decision) => decision,
    }
}

/// Whether an option leaves the entry alone.
fn is_skipped(options: &Options, entry: &Entry, found: Option<&Found>) -> bool {
    let extra = &options.extra;
    let both_directories = entry.kind == EntryKind::Directory
        && found.is_some_and(|found| found.kind == FoundKind::Directory);
    extra.existing_only && found.is_none() && !entry.path.is_root()
        || extra.ignore_existing && found.is_some() && !both_directories
        || extra.skips_size(entry)
}

fn decide_file(options: &Options, entry: &Entry, stream: bool, found: Option<&Found>) -> Decision {
    let size = entry.size();
    let moved = if size == Some(0) { Decision::Make } else { Decision::Move };
    let found = match found {
        None => return moved,
        Some(found) => match found.kind {
            FoundKind::File => found,
            FoundKind::Symlink => return moved,
            FoundKind::Directory if found.makes_way => return moved,
            FoundKind::Directory => {
                return refused(
                    "there is a directory with something in it where a file belongs; \
                     --delete removes it",
                );
            }
            FoundKind::Other => return refused(SPECIAL),
        },
    };
    if stream {
        return moved;
    }
    if is_newer(options, entry, found) {
        // It need not match, so its source is not removed.
        let leave = options.removes_source();
        return if leave { Decision::Skip } else { Decision::Keep { settle: false } };
    }
    if size != Some(found.size) {
        return moved;
    }
    if size == Some(0) && (options.checksum || options.verify) {
        return Decision::Keep { settle: needs_settling(options, entry, found) };
    }
    if options.checksum || options.verify {
        return match may_be_unfinished(options, entry, found) {
            true => moved,
            false => Decision::Compare,
        };
    }
    if found.mtime == entry.mtime || options.extra.size_only {
        return Decision::Keep { settle: needs_settling(options, entry, found) };
    }
    moved
}

/// Whether `update` leaves the target alone.
fn is_newer(options: &Options, entry: &Entry, found: &Found) -> bool {
    let is_later = match options.whole_seconds {
        true => found.mtime.secs > entry.mtime.secs,
        false => found.mtime > entry.mtime,
    };
    options.update && !options.verify && entry.is_file() && is_later
}

/// Whether an earlier run may have begun to write the file in place and not ended: it then has a new
/// time. What it wrote may be right in the page cache and lost on the disk ([`Sink::hash_old`]), so its
/// digest says nothing.
fn may_be_unfinished(options: &Options, entry: &Entry, found: &Found) -> bool {
    options.inplace && !options.verify && found.mtime != entry.mtime
}

/// In a run that changes nothing: replaces changes with a report.
fn for_dry_run(
    options: &Options,
    entry: &Entry,
    found: Option<&Found>,
    decision: Decision,
) -> Decision {
    if !options.dry_run && !options.verify {
        return decision;
    }
    let changed = match (options.verify, found) {
        (false, _) => FileReport::Moved,
        (true, None) => FileReport::Missing,
        (true, Some(_)) => FileReport::Differs,
    };
    match decision {
        Decision::Make | Decision::Move => Decision::ReportOnly(changed),
        Decision::Fail(_) if options.verify => Decision::ReportOnly(changed),
        Decision::Keep { .. } | Decision::Compare
            if options.verify && found.is_some_and(|found| !found.same_attributes) =>
        {
            Decision::ReportOnly(changed)
        }
        Decision::Keep { settle } => {
            // Directories are settled at the end of a real run, so no decision asks for it.
            let asks = settle || entry.kind == EntryKind::Directory;
            let differs = || found.is_some_and(|found| metadata_differs(options, entry, found));
            let settle = asks && !options.verify && options.extra.report_metadata && differs();
            Decision::Keep { settle }
        }
        other => other,
    }
}

/// Whether metadata of an entry with the right content must be set.
pub(super) fn needs_settling(options: &Options, entry: &Entry, found: &Found) -> bool {
    metadata_differs(options, entry, found) || options.preserve_owner
}

/// Whether the mode, the time or the attributes that are kept differ. The time of a directory changes with every run.
fn metadata_differs(options: &Options, entry: &Entry, found: &Found) -> bool {
    let has_mode = !matches!(entry.kind, EntryKind::Symlink { .. });
    let has_time = options.preserve_times && entry.kind != EntryKind::Directory;
    let mode = options.mode_of(entry).filter(|_| options.preserve_mode && has_mode);
    mode.is_some_and(|mode| found.mode != mode)
        || (has_time && found.mtime != entry.mtime)
        || !found.same_attributes
}

fn refused(text: &str) -> Decision {
    Decision::Fail(Failure::new(FailureKind::TargetRefused, text))
}

impl Sink {
    pub(super) fn take_examined(&mut self, first: EntryId, states: &[TargetState]) {
        let Some(count) = self.intake.examined(first) else { return };
        let nothing = TargetState { target: None, temporary: None };
        for at in 0..count {
            let state = states.get(at as usize).unwrap_or(&nothing);
            self.take_state(EntryId(first.0 + at), state);
        }
    }

    fn take_state(&mut self, id: EntryId, state: &TargetState) {
        // The entry may have failed since it was announced.
        let Some(item) = self.entries.get_mut(id) else { return };
        item.temporary = state.temporary;
        let found = state.target.as_ref();
        item.old = found.filter(|found| found.kind == FoundKind::File).map(|found| found.size);
        let decision = match item.is_repeated {
            true => refused(PATH_TAKEN),
            false => decide(&self.options, &item.entry, item.stream, found),
        };
        if self.joins_group(id, &decision, found) {
            return;
        }
        let Some(item) = self.entries.get(id) else { return };
        if matches!(decision, Decision::Keep { .. })
            && found.is_some_and(|found| metadata_differs(&self.options, &item.entry, found))
        {
            self.tally.summary.changed += 1;
        }
        match decision {
            Decision::Compare => {
                let needs = if self.options.dry_run { metadata_differs } else { needs_settling };
                let settle = found.is_some_and(|f| needs(&self.options, &item.entry, f));
                self.compare(id, settle);
            }
            decision => {
                self.decided(id);
                self.apply_decision(id, decision);
            }
        }
    }

    /// Waits for another name of the same file, if there is one that counts. Returns whether it does.
    fn joins_group(&mut self, id: EntryId, decision: &Decision, found: Option<&Found>) -> bool {
        let Some(item) = self.entries.get(id) else { return false };
        let group = item.group;
        let is_newer = found.is_some_and(|found| {
            found.kind == FoundKind::File && is_newer(&self.options, &item.entry, found)
        });
        let is_different = self.options.verify && matches!(decision, Decision::ReportOnly(_));
        if is_newer || is_different || matches!(decision, Decision::Skip | Decision::Fail(_)) {
            self.leave_group(id, group);
            return false;
        }
        let joins = self.is_further_name(id);
        if joins {
            self.await_anchor(id, decision.clone());
        }
        joins
    }

    /// Applies the decision about an entry.
    pub(super) fn apply_decision(&mut self, id: EntryId, decision: Decision) {
        match decision {
            Decision::Keep { settle } => self.keep(id, settle),
            Decision::Make => self.make(id),
            Decision::Move => self.begin_move(id),
            Decision::ReportOnly(report) => self.report_only(id, report),
            Decision::Skip => self.skip(id),
            Decision::Fail(failure) => self.fail_decided(id, failure),
            Decision::Compare => {}
        }
    }

    /// The entry already matches the source.
    pub(super) fn keep(&mut self, id: EntryId, settle: bool) {
        let Some(item) = self.entries.get(id) else { return };
        if item.entry.kind != EntryKind::Directory {
            self.tally.summary.unchanged += 1;
        }
        if item.entry.is_file() {
            self.tally.found_file();
        }
        self.tally.found(item.size());
        self.tally.summary.bytes += item.size();
        if let Some(range) = &item.range {
            self.tally.verified_range(self.now, range.clone());
        }
        let report = match settle && self.options.dry_run {
            true => FileReport::Metadata,
            false => FileReport::Unchanged,
        };
        if settle && !self.options.dry_run {
            self.directories.settle(id, item.entry.clone(), &mut self.out);
            self.durability.touch(self.now);
        }
        self.report(id, report);
        self.done(id);
    }

    /// An option leaves the entry alone. The source counts its bytes as present.
    fn skip(&mut self, id: EntryId) {
        let group = self.entries.get(id).and_then(|item| item.group);
        self.leave_group(id, group);
        let Some(item) = self.entries.remove(id) else { return };
        if self.options.removes_source() && item.entry.kind != EntryKind::Directory {
            self.durability.leave(self.now, id);
        }
        self.tally.found(item.size());
        if let Some(range) = item.range {
            self.tally.verified_range(self.now, range);
        }
    }

    pub(super) fn make(&mut self, id: EntryId) {
        let Some(item) = self.entries.get_mut(id) else { return };
        item.stage = Stage::Making;
        let entry = item.entry.clone();
        self.out.push_back(match entry.kind {
            EntryKind::Directory => SinkAction::MakeDirectory(id, entry),
            EntryKind::Symlink { .. } => SinkAction::MakeSymlink(id, entry),
            EntryKind::File { .. } | EntryKind::Stream => SinkAction::MakeEmpty(id, entry),
        });
    }

    /// Reports an entry that would change, in a run that changes nothing.
    pub(super) fn report_only(&mut self, id: EntryId, report: FileReport) {
        let Some(item) = self.entries.get(id) else { return };
        if let Some(range) = &item.range {
            self.tally.verified_range(self.now, range.clone());
        }
        if self.options.verify {
            let text = match report {
                FileReport::Missing => "missing at the target",
                _ => "differs at the target",
            };
            self.report(id, report);
            self.drop_entry(id, Failure::new(FailureKind::Integrity, text), true);
            return;
        }
        self.tally.summary.files_moved += u64::from(item.entry.size().is_some());
        self.tally.planned(item.size());
        let group = item.group;
        self.report(id, report);
        self.entries.remove(id);
        self.changes_in_group(id, group);
    }

    fn begin_move(&mut self, id: EntryId) {
        let Some(item) = self.entries.get_mut(id) else { return };
        item.stage = Stage::Moving;
        // The chunk of a small file is planned when all its files are decided.
        if item.is_small() {
            if item.is_late {
                self.need_late(id);
            }
            return;
        }
        let Some(range) = item.range.clone() else { return };
        if !item.stream && item.size() > CHUNK.get() {
            self.resume(id);
        }
        self.planner.add_file(&range);
        self.complete_if_all(id);
    }
}

#[cfg(test)]
#[path = "examine_tests.rs"]
mod tests;
