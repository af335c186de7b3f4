//! The records of one session on a disk. The order is: sync the records, write and sync a mark that
//! counts them, then report them as durable.

use parking_lot::{Mutex, MutexGuard};
use std::io;

use packtrain_session::SessionId;
use packtrain_session::spool::{MARK_SLOT, Mark, RECORD, last_record, newest};
use packtrain_units::ByteCount;
use tokio::sync::watch;

/// The two files of a session.
pub(super) trait Disk: Send + Sync {
    /// Writes records.
    fn write_records(&self, at: u64, bytes: &[u8]) -> io::Result<()>;
    /// Reads records; fills `room` or fails.
    fn read_records(&self, at: u64, room: &mut [u8]) -> io::Result<()>;
    /// Length of the records.
    fn records_len(&self) -> io::Result<u64>;
    /// Truncates the records.
    fn cut_records(&self, len: u64) -> io::Result<()>;
    /// Makes the written records durable.
    fn sync_records(&self) -> io::Result<()>;
    /// Writes a mark.
    fn write_mark(&self, at: u64, bytes: &[u8]) -> io::Result<()>;
    /// Both marks.
    fn read_marks(&self) -> io::Result<Vec<u8>>;
    /// Makes the mark durable.
    fn sync_mark(&self) -> io::Result<()>;
    /// Closes the files of a session that has ended. Its records are read and written no more.
    fn close(&self) {}
}

/// The state of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Progress {
    /// Number of readable records.
    pub(super) written: u64,
    /// Their bytes.
    pub(super) bytes: ByteCount,
    /// Whether the last record is readable.
    pub(super) all: bool,
    /// Number of durable records.
    pub(super) safe: u64,
    /// Whether the last record is durable.
    pub(super) all_safe: bool,
    /// The session has ended.
    pub(super) over: bool,
    /// It has ended because it was empty and another replaced it.
    pub(super) abandoned: bool,
}

/// The result of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Appended {
    /// The record was written.
    New,
    /// The record existed already.
    Known,
    /// An earlier record is missing.
    Gap,
}

#[derive(Debug, Default)]
struct State {
    records: u64,
    bytes: u64,
    all: bool,
    over: bool,
    abandoned: bool,
}

/// The records of one session.
pub(super) struct Records<D> {
    disk: D,
    session: SessionId,
    state: Mutex<State>,
    /// The mark on the disk; the holder of the lock syncs.
    mark: Mutex<Mark>,
    progress: watch::Sender<Progress>,
}

impl<D: Disk> Records<D> {
    /// Opens new records, or those of an earlier run. Also returns a description of the damage if
    /// fewer records exist than were reported as durable.
    ///
    /// # Errors
    /// I/O errors, and records without a valid mark, because the number of whole records is unknown
    /// then.
    pub(super) fn open(session: SessionId, disk: D) -> io::Result<(Self, Option<String>)> {
        let marks = disk.read_marks()?;
        let len = disk.records_len()?;
        let mut damage = None;
        let mut mark = match newest(session, &marks) {
            Some(mark) => mark,
            // A mark is written before the first record, so a missing mark is an error.
            None if len > 0 => {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "no mark of it is whole"));
            }
            None => {
                put(&disk, session, &Mark::default())?;
                Mark::default()
            }
        };
        if !mark.over && len < mark.bytes.get() {
            damage = Some(format!("{} of records are missing", mark.bytes.get() - len));
            let records = len / RECORD as u64;
            let bytes = ByteCount(records * RECORD as u64);
            mark = Mark { count: mark.count + 1, records, bytes, all: false, over: false };
            // Written before new records, which the higher mark would count.
            put(&disk, session, &mark)?;
        }
        // Records after the mark were never reported as durable, and may be incomplete.
        if len > mark.bytes.get() {
            disk.cut_records(mark.bytes.get())?;
        }
        let records = Self {
            disk,
            session,
            progress: watch::Sender::new(Progress::default()),
            state: Mutex::new(State::of(&mark)),
            mark: Mutex::new(mark),
        };
        records.report(&records.state(), &mark);
        if mark.over {
            records.disk.close();
        }
        Ok((records, damage))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    fn marked(&self) -> MutexGuard<'_, Mark> {
        self.mark.lock()
    }

    /// Publishes the progress. The caller holds the lock of the state, so that the published and
    /// the readable records agree.
    fn report(&self, state: &State, mark: &Mark) {
        self.progress.send_replace(Progress {
            written: state.records,
            bytes: ByteCount(state.bytes),
            all: state.all,
            safe: mark.records.min(state.records),
            all_safe: mark.all && state.all,
            over: state.over,
            abandoned: state.abandoned,
        });
    }

    /// The current progress.
    pub(super) fn progress(&self) -> Progress {
        *self.progress.borrow()
    }

    /// Subscribes to the progress.
    pub(super) fn watch(&self) -> watch::Receiver<Progress> {
        self.progress.subscribe()
    }

    /// The bytes of the records.
    pub(super) fn bytes(&self) -> ByteCount {
        self.progress().bytes
    }

    /// Writes the next record, which the caller has verified.
    pub(super) fn append(&self, number: u64, last: bool, record: &[u8]) -> io::Result<Appended> {
        let mut state = self.state();
        if number < state.records || state.over {
            return Ok(Appended::Known);
        }
        if number > state.records || state.all {
            return Ok(Appended::Gap);
        }
        self.disk.write_records(state.bytes, record)?;
        state.records += 1;
        state.bytes += record.len() as u64;
        state.all = last;
        self.progress.send_modify(|progress| {
            (progress.written, progress.all) = (state.records, state.all);
            progress.bytes = ByteCount(state.bytes);
        });
        Ok(Appended::New)
    }

    /// Makes all written records durable, then publishes the progress.
    ///
    /// # Errors
    /// I/O errors. If the records could not be synced, those after the mark are removed: the kernel
    /// reports such an error once, and then treats the same pages as clean.
    pub(super) fn sync(&self) -> io::Result<Progress> {
        let mut mark = self.marked();
        let next = {
            let state = self.state();
            let bytes = ByteCount(state.bytes);
            let (records, all, over) = (state.records, state.all, state.over);
            Mark { count: mark.count + 1, records, bytes, all, over }
        };
        if (Mark { count: mark.count, ..next }) != *mark {
            if let Err(e) = self.disk.sync_records() {
                let mut state = self.state();
                *state = State::of(&mark);
                // A failed truncation is repeated when the spool is opened.
                let _ = self.disk.cut_records(state.bytes);
                self.report(&state, &mark);
                return Err(e);
            }
            put(&self.disk, self.session, &next)?;
            *mark = next;
        }
        self.report(&self.state(), &mark);
        Ok(self.progress())
    }

    /// Record `number` and whether it is the last; `None` if it is not here.
    pub(super) fn read(&self, number: u64) -> io::Result<Option<(bool, Vec<u8>)>> {
        let (last, len) = {
            let state = self.state();
            if number >= state.records || state.over {
                return Ok(None);
            }
            let last = state.all && number + 1 == state.records;
            let len = match last_record(ByteCount(state.bytes)) {
                Some((_, len)) if last => len,
                _ => RECORD,
            };
            (last, len)
        };
        let mut record = vec![0; len];
        self.disk.read_records(number * RECORD as u64, &mut record)?;
        Ok(Some((last, record)))
    }

    /// Removes record `number`, which is damaged, and all later ones, so that they are sent again.
    /// Returns false, and removes nothing, if everything was reported as durable, because no sender
    /// is left then.
    pub(super) fn cut(&self, number: u64) -> io::Result<bool> {
        let mut mark = self.marked();
        if mark.all || mark.over {
            return Ok(false);
        }
        let bytes = ByteCount(number.saturating_mul(RECORD as u64));
        if number < mark.records {
            let lower = Mark { count: mark.count + 1, records: number, bytes, ..*mark };
            // Written before new records, which the higher mark would count.
            put(&self.disk, self.session, &lower)?;
            *mark = lower;
        }
        let mut state = self.state();
        let mut cut = Ok(());
        if number < state.records && !state.over {
            *state = State { records: number, bytes: bytes.get(), ..State::default() };
            cut = self.disk.cut_records(state.bytes);
        }
        self.report(&state, &mark);
        cut.map(|()| true)
    }

    /// Ends the session: its records are removed, and the session stays known. On an error nothing
    /// has changed.
    pub(super) fn end(&self) -> io::Result<()> {
        let mut mark = self.marked();
        if !mark.over {
            let over = Mark { count: mark.count + 1, over: true, ..Mark::default() };
            put(&self.disk, self.session, &over)?;
            *mark = over;
        }
        let mut state = self.state();
        *state = State::of(&mark);
        self.report(&state, &mark);
        drop(state);
        self.disk.cut_records(0)?;
        self.disk.close();
        Ok(())
    }

    /// Abandons the session if it is empty; returns whether it was. The disk is not changed.
    pub(super) fn abandon(&self) -> bool {
        let mark = self.marked();
        let mut state = self.state();
        let empty = state.records == 0 && !state.over;
        if empty {
            (state.over, state.abandoned) = (true, true);
            self.report(&state, &mark);
        }
        empty
    }
}

impl State {
    fn of(mark: &Mark) -> Self {
        let Mark { records, bytes, all, over, .. } = *mark;
        Self { records, bytes: bytes.get(), all, over, abandoned: false }
    }
}

/// Writes a mark durably.
fn put(disk: &impl Disk, session: SessionId, mark: &Mark) -> io::Result<()> {
    disk.write_mark(mark.count % 2 * MARK_SLOT, &mark.write(session))?;
    disk.sync_mark()
}

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
