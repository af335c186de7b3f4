//! One session's records on a disk. What is told to be safe is: first the records are synced, then
//! a mark that counts them, then it is told.

use parking_lot::{Mutex, MutexGuard};
use std::io;

use packtrain_session::SessionId;
use packtrain_session::spool::{MARK_SLOT, Mark, RECORD, last_record, newest};
use packtrain_units::ByteCount;
use tokio::sync::watch;

/// Two files, as this module uses them.
pub(super) trait Disk: Send + Sync {
    /// Writes records.
    fn write_records(&self, at: u64, bytes: &[u8]) -> io::Result<()>;
    /// Reads records; the whole of `room` or an error.
    fn read_records(&self, at: u64, room: &mut [u8]) -> io::Result<()>;
    /// How long the records are.
    fn records_len(&self) -> io::Result<u64>;
    /// Leaves so much of the records.
    fn cut_records(&self, len: u64) -> io::Result<()>;
    /// What was written of records survives whatever comes.
    fn sync_records(&self) -> io::Result<()>;
    /// Writes a mark.
    fn write_mark(&self, at: u64, bytes: &[u8]) -> io::Result<()>;
    /// Both marks.
    fn read_marks(&self) -> io::Result<Vec<u8>>;
    /// The mark survives whatever comes.
    fn sync_mark(&self) -> io::Result<()>;
}

/// How far a session is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Progress {
    /// Records that can be read.
    pub(super) written: u64,
    /// The bytes that they have.
    pub(super) bytes: ByteCount,
    /// Whether the last one is among them.
    pub(super) all: bool,
    /// Records that are safe.
    pub(super) safe: u64,
    /// Whether the last one is among them.
    pub(super) all_safe: bool,
    /// Nobody wants it any more.
    pub(super) over: bool,
    /// It is over because it had nothing and another takes its place.
    pub(super) forsaken: bool,
}

/// What came of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Appended {
    /// It is written.
    New,
    /// It was here.
    Known,
    /// One before it is missing.
    Gap,
}

#[derive(Debug, Default)]
struct State {
    records: u64,
    bytes: u64,
    all: bool,
    over: bool,
    forsaken: bool,
}

/// The records of one session.
pub(super) struct Records<D> {
    disk: D,
    session: SessionId,
    state: Mutex<State>,
    /// The mark that is written; its holder syncs.
    mark: Mutex<Mark>,
    progress: watch::Sender<Progress>,
}

impl<D: Disk> Records<D> {
    /// What is on the disk, new or left by a depot before. Also says what is wrong, if there is less
    /// than was told to be safe.
    ///
    /// # Errors
    /// What the disk says; records without a mark, of which nobody knows how many are whole.
    pub(super) fn open(session: SessionId, disk: D) -> io::Result<(Self, Option<String>)> {
        let marks = disk.read_marks()?;
        let len = disk.records_len()?;
        let mut damage = None;
        let mut mark = match newest(session, &marks) {
            Some(mark) => mark,
            // There is a mark before there is a record, so a missing one means something.
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
            // Before there are new records that the higher one would count.
            put(&disk, session, &mark)?;
        }
        // What is behind the mark was told to nobody, and nobody knows whether it is whole.
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
        records.tell(&records.state(), &mark);
        Ok((records, damage))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    fn marked(&self) -> MutexGuard<'_, Mark> {
        self.mark.lock()
    }

    /// Tells how far it is. Whoever calls holds the state, so that what is told and what can be read
    /// are the same.
    fn tell(&self, state: &State, mark: &Mark) {
        self.progress.send_replace(Progress {
            written: state.records,
            bytes: ByteCount(state.bytes),
            all: state.all,
            safe: mark.records.min(state.records),
            all_safe: mark.all && state.all,
            over: state.over,
            forsaken: state.forsaken,
        });
    }

    /// How far it is.
    pub(super) fn progress(&self) -> Progress {
        *self.progress.borrow()
    }

    /// Hears how far it is.
    pub(super) fn watch(&self) -> watch::Receiver<Progress> {
        self.progress.subscribe()
    }

    /// The bytes there are.
    pub(super) fn bytes(&self) -> ByteCount {
        self.progress().bytes
    }

    /// Writes the next record. Whoever calls has verified it.
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

    /// Makes safe what is written by now, and then tells.
    ///
    /// # Errors
    /// What the disk says. If it did not take records, those behind the mark are gone: a system tells
    /// such a failure once and then takes the same pages for written.
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
                // What cannot be cut off now is when the spool is opened.
                let _ = self.disk.cut_records(state.bytes);
                self.tell(&state, &mark);
                return Err(e);
            }
            put(&self.disk, self.session, &next)?;
            *mark = next;
        }
        self.tell(&self.state(), &mark);
        Ok(self.progress())
    }

    /// Record `number` and whether it is the last; none if it is not here.
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

    /// Leaves only what is before record `number`, which is damaged, so that it comes again. False if
    /// everything was told to be safe: then nobody is there who could send it, and all stays.
    pub(super) fn cut(&self, number: u64) -> io::Result<bool> {
        let mut mark = self.marked();
        if mark.all || mark.over {
            return Ok(false);
        }
        let bytes = ByteCount(number.saturating_mul(RECORD as u64));
        if number < mark.records {
            let lower = Mark { count: mark.count + 1, records: number, bytes, ..*mark };
            // Before there are new records that the higher one would count.
            put(&self.disk, self.session, &lower)?;
            *mark = lower;
        }
        let mut state = self.state();
        let mut cut = Ok(());
        if number < state.records && !state.over {
            *state = State { records: number, bytes: bytes.get(), ..State::default() };
            cut = self.disk.cut_records(state.bytes);
        }
        self.tell(&state, &mark);
        cut.map(|()| true)
    }

    /// Nobody wants it any more: its records go, the knowledge that it was here stays. If that fails,
    /// nothing has changed.
    pub(super) fn end(&self) -> io::Result<()> {
        let mut mark = self.marked();
        if !mark.over {
            let over = Mark { count: mark.count + 1, over: true, ..Mark::default() };
            put(&self.disk, self.session, &over)?;
            *mark = over;
        }
        let mut state = self.state();
        *state = State::of(&mark);
        self.tell(&state, &mark);
        drop(state);
        self.disk.cut_records(0)
    }

    /// Takes nothing more, if nothing has come yet; says whether that is so. The disk is not told.
    pub(super) fn forsake(&self) -> bool {
        let mark = self.marked();
        let mut state = self.state();
        let empty = state.records == 0 && !state.over;
        if empty {
            (state.over, state.forsaken) = (true, true);
            self.tell(&state, &mark);
        }
        empty
    }
}

impl State {
    fn of(mark: &Mark) -> Self {
        let Mark { records, bytes, all, over, .. } = *mark;
        Self { records, bytes: bytes.get(), all, over, forsaken: false }
    }
}

/// Writes a mark so that it survives whatever comes.
fn put(disk: &impl Disk, session: SessionId, mark: &Mark) -> io::Result<()> {
    disk.write_mark(mark.count % 2 * MARK_SLOT, &mark.write(session))?;
    disk.sync_mark()
}

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
