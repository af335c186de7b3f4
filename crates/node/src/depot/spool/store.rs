//! One session's records on a disk. What is told to be safe is: first the records are synced, then
//! a mark that counts them, then it is told.

use std::io;
use std::sync::{Mutex, MutexGuard};

use packtrain_proto::session::SessionId;
use packtrain_proto::session::spool::{MARK_SLOT, Mark, RECORD, last_record, newest};
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
    /// Whether the last one is among them.
    pub(super) all: bool,
    /// Records that are safe.
    pub(super) safe: u64,
    /// Whether the last one is among them.
    pub(super) all_safe: bool,
    /// Nobody wants it any more.
    pub(super) over: bool,
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
    /// What is on the disk, new or left by a depot before. Also says what is wrong, if something
    /// is: then there is less than was told to be safe.
    pub(super) fn open(session: SessionId, disk: D) -> io::Result<(Self, Option<String>)> {
        let marks = disk.read_marks()?;
        let len = disk.records_len()?;
        let found = newest(session, &marks);
        let mut damage = None;
        if found.is_none() {
            if len > 0 {
                damage = Some("no mark of it is whole".to_owned());
            }
            // There is a mark before there is a record, so that a missing one means something.
            disk.write_mark(0, &Mark::default().write(session))?;
            disk.sync_mark()?;
        }
        let mut mark = found.unwrap_or_default();
        if !mark.over && len < mark.bytes.get() {
            damage = Some(format!("{} of records are missing", mark.bytes.get() - len));
            let whole = len / RECORD as u64;
            let bytes = ByteCount(whole * RECORD as u64);
            mark = Mark { records: whole, bytes, all: false, ..mark };
        }
        // What is behind the mark was told to nobody, and nobody knows whether it is whole.
        if len > mark.bytes.get() {
            disk.cut_records(mark.bytes.get())?;
        }
        let state = State {
            records: mark.records,
            bytes: mark.bytes.get(),
            all: mark.all,
            over: mark.over,
        };
        let records = Self {
            disk,
            session,
            progress: watch::Sender::new(Progress::default()),
            state: Mutex::new(state),
            mark: Mutex::new(mark),
        };
        records.tell(&records.state(), &mark);
        Ok((records, damage))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder panics")
    }

    fn tell(&self, state: &State, mark: &Mark) {
        self.progress.send_replace(Progress {
            written: state.records,
            all: state.all,
            safe: mark.records.min(state.records),
            all_safe: mark.all && state.all,
            over: state.over,
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
        ByteCount(self.state().bytes)
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
        });
        Ok(Appended::New)
    }

    /// Makes safe what is written by now, and then tells.
    pub(super) fn sync(&self) -> io::Result<Progress> {
        let mut mark = self.mark.lock().expect("no holder panics");
        let next = {
            let state = self.state();
            let bytes = ByteCount(state.bytes);
            Mark {
                count: mark.count + 1,
                records: state.records,
                bytes,
                all: state.all,
                over: state.over,
            }
        };
        if (Mark { count: mark.count, ..next }) != *mark {
            self.disk.sync_records()?;
            let at = next.count % 2 * MARK_SLOT;
            self.disk.write_mark(at, &next.write(self.session))?;
            self.disk.sync_mark()?;
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

    /// Leaves only what is before record `number`: it is damaged. Comes again if its sender does.
    pub(super) fn cut(&self, number: u64) -> io::Result<()> {
        {
            let mut state = self.state();
            if number >= state.records {
                return Ok(());
            }
            (state.records, state.bytes, state.all) = (number, number * RECORD as u64, false);
            self.disk.cut_records(state.bytes)?;
        }
        self.sync().map(|_| ())
    }

    /// Nobody wants it any more: its records go, the knowledge that it was here stays.
    pub(super) fn end(&self) -> io::Result<()> {
        *self.state() = State { over: true, ..State::default() };
        self.sync()?;
        self.disk.cut_records(0)
    }
}

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
