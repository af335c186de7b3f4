//! Crashes at any step of a write: every record that was reported as durable exists afterwards.

use std::collections::VecDeque;
use std::sync::Arc;

use packtrain_session::spool::RECORD_MIN;
use proptest::prelude::*;

use super::*;

const SESSION: SessionId = SessionId([3; 16]);

/// A file whose unsynced changes may be lost, in part and in any order.
#[derive(Clone, Debug, Default)]
struct File {
    /// The content that survives any crash.
    safe: Vec<u8>,
    /// The content that is read.
    seen: Vec<u8>,
    /// The changes since the last sync.
    doing: Vec<Doing>,
}

#[derive(Clone, Debug)]
enum Doing {
    Write(u64, Vec<u8>),
    Cut(u64),
}

fn apply(file: &mut Vec<u8>, doing: &Doing, torn: Option<usize>) {
    match doing {
        Doing::Cut(len) => file.resize(*len as usize, 0),
        Doing::Write(at, bytes) => {
            let (at, end) = (*at as usize, *at as usize + bytes.len());
            if file.len() < end {
                file.resize(end, 0);
            }
            let len = torn.unwrap_or(bytes.len()).min(bytes.len());
            file[at..at + len].copy_from_slice(&bytes[..len]);
        }
    }
}

impl File {
    fn now(&self) -> Vec<u8> {
        self.seen.clone()
    }

    fn becomes(&mut self, bytes: Vec<u8>) {
        *self = Self { safe: bytes.clone(), seen: bytes, doing: Vec::new() };
    }

    fn run(&mut self, doing: Doing) {
        apply(&mut self.seen, &doing, None);
        self.doing.push(doing);
    }

    /// Makes the changes durable. A failing sync loses them, but they stay readable, and the next
    /// sync succeeds, as on Linux.
    fn sync(&mut self, fails: bool) -> io::Result<()> {
        for doing in std::mem::take(&mut self.doing) {
            match doing {
                // Bytes that were not written to the disk are zeros after a crash.
                Doing::Write(at, bytes) if fails => {
                    let lost = Doing::Write(at, vec![0; bytes.len()]);
                    apply(&mut self.safe, &lost, None);
                }
                doing => apply(&mut self.safe, &doing, None),
            }
        }
        if fails { Err(io::ErrorKind::Other.into()) } else { Ok(()) }
    }

    /// The content after a crash: each change since the last sync is applied, torn or lost.
    fn crash(&mut self, chance: &mut impl FnMut() -> u8) {
        for doing in std::mem::take(&mut self.doing) {
            match chance() % 3 {
                0 => {}
                1 => apply(&mut self.safe, &doing, None),
                _ => apply(&mut self.safe, &doing, Some(usize::from(chance()) * 700)),
            }
        }
        self.seen.clone_from(&self.safe);
    }
}

/// Two files, and the number of steps until the crash.
#[derive(Debug, Default)]
struct Virtual {
    records: File,
    marks: File,
    left: u32,
    /// Which syncs of records fail.
    fails: VecDeque<bool>,
}

type Shared = Arc<Mutex<Virtual>>;

struct Machine(Shared);

impl Machine {
    fn step<T>(&self, work: impl FnOnce(&mut Virtual) -> T) -> io::Result<T> {
        let mut both = self.0.lock();
        both.left = both.left.checked_sub(1).ok_or(io::ErrorKind::BrokenPipe)?;
        Ok(work(&mut both))
    }
}

impl Disk for Machine {
    fn write_records(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.step(|both| both.records.run(Doing::Write(at, bytes.to_vec())))
    }

    fn read_records(&self, at: u64, room: &mut [u8]) -> io::Result<()> {
        let both = self.0.lock();
        let bytes = both.records.seen.get(at as usize..at as usize + room.len());
        room.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn records_len(&self) -> io::Result<u64> {
        Ok(self.0.lock().records.seen.len() as u64)
    }

    fn cut_records(&self, len: u64) -> io::Result<()> {
        self.step(|both| both.records.run(Doing::Cut(len)))
    }

    fn sync_records(&self) -> io::Result<()> {
        self.step(|both| {
            let fails = both.fails.pop_front().unwrap_or_default();
            both.records.sync(fails)
        })?
    }

    fn write_mark(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.step(|both| both.marks.run(Doing::Write(at, bytes.to_vec())))
    }

    fn read_marks(&self) -> io::Result<Vec<u8>> {
        Ok(self.0.lock().marks.now())
    }

    fn sync_mark(&self) -> io::Result<()> {
        self.step(|both| both.marks.sync(false))?
    }
}

fn record(number: u64, last: bool) -> Vec<u8> {
    let len = if last { RECORD_MIN + 9 } else { RECORD };
    vec![number as u8 + 1; len]
}

/// One run of a depot, until a crash or until everything is durable. Updates the number of reported
/// records.
fn live(shared: &Shared, total: u64, every: u64, told: &mut u64) -> io::Result<()> {
    let (records, damage) = Records::open(SESSION, Machine(Arc::clone(shared)))?;
    assert_eq!(damage, None, "a crash is no damage");
    let found = records.progress();
    assert!(found.safe >= *told, "{} of {told} records are left", found.safe);
    assert_eq!(found.safe, found.written);
    for number in 0..found.written {
        let (last, bytes) = records.read(number)?.expect("it is there");
        assert_eq!(last, number + 1 == total);
        assert!(bytes == record(number, last), "record {number} is another");
    }
    *told = found.safe;
    while !records.progress().all_safe {
        let number = records.progress().written;
        let last = number + 1 == total;
        assert_eq!(records.append(number, last, &record(number, last))?, Appended::New);
        if last || number % every == 0 {
            match records.sync() {
                Ok(progress) => {
                    assert_eq!(progress.safe, number + 1);
                    *told = progress.safe;
                }
                // The depot continues from the durable records.
                Err(e) if e.kind() == io::ErrorKind::Other => {
                    let progress = records.progress();
                    assert_eq!((progress.written, progress.safe), (*told, *told));
                    assert_eq!(records.sync().map(|progress| progress.safe).ok(), Some(*told));
                }
                Err(e) => return Err(e),
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn what_was_told_to_be_safe_survives_any_crash(
        total in 1u64..8,
        every in 1u64..4,
        lives in prop::collection::vec(0u32..18, 0..6),
        fails in prop::collection::vec(any::<bool>(), 0..12),
        chances in prop::collection::vec(any::<u8>(), 64),
    ) {
        let shared = Shared::default();
        shared.lock().fails = fails.into();
        let mut told = 0;
        let mut chances = chances.into_iter().cycle();
        let mut chance = || chances.next().unwrap_or(0);
        for left in lives {
            shared.lock().left = left;
            let _ = live(&shared, total, every, &mut told);
            let mut both = shared.lock();
            both.records.crash(&mut chance);
            both.marks.crash(&mut chance);
        }
        shared.lock().left = u32::MAX;
        live(&shared, total, every, &mut told).expect("nothing fails");
        prop_assert_eq!(told, total);
    }

    /// Damaged records are cut off before everything is reported; later reports survive a crash.
    #[test]
    fn what_comes_again_after_a_cut_survives_any_crash(
        steps in prop::collection::vec((0u8..4, 0u64..6), 1..24),
        left in 0u32..60,
        chances in prop::collection::vec(any::<u8>(), 64),
    ) {
        let shared = Shared::default();
        shared.lock().left = left;
        let mut told = 0;
        let work = |told: &mut u64| -> io::Result<()> {
            let (records, _) = Records::open(SESSION, Machine(Arc::clone(&shared)))?;
            for (what, number) in steps {
                match what {
                    0 => *told = records.sync()?.safe,
                    1 => {
                        // The cut may be half done.
                        *told = number.min(*told);
                        assert!(records.cut(number)?, "not all was told");
                        *told = records.progress().safe;
                    }
                    _ => {
                        let next = records.progress().written;
                        records.append(next, false, &record(next, false))?;
                    }
                }
                assert!(records.progress().safe >= *told);
            }
            Ok(())
        };
        let _ = work(&mut told);
        let mut chances = chances.into_iter().cycle();
        let mut chance = || chances.next().unwrap_or(0);
        {
            let mut both = shared.lock();
            both.records.crash(&mut chance);
            both.marks.crash(&mut chance);
            both.left = u32::MAX;
        }
        live(&shared, 26, 5, &mut told).expect("nothing fails");
    }

    /// For any change to the files: no panic, and never more records than there are.
    #[test]
    fn files_that_were_meddled_with_are_noticed(
        marks in prop::collection::vec(any::<u8>(), 0..5000),
        at in 0usize..5000,
        len in 0usize..3 * RECORD,
        keep: bool,
    ) {
        let shared = Shared::default();
        shared.lock().left = u32::MAX;
        live(&shared, 4, 1, &mut 0).expect("nothing fails");
        {
            let mut both = shared.lock();
            let mut records = both.records.now();
            records.truncate(len);
            both.records.becomes(records);
            let mut changed = both.marks.now();
            if !keep {
                changed = marks;
            } else if let Some(byte) = changed.get_mut(at) {
                *byte ^= 1;
            }
            both.marks.becomes(changed);
        }
        let (records, damage) = match Records::open(SESSION, Machine(Arc::clone(&shared))) {
            Ok(opened) => opened,
            Err(e) => {
                // The files are not changed.
                prop_assert!(e.kind() == io::ErrorKind::InvalidData && len > 0 && !keep);
                prop_assert_eq!(shared.lock().records.now().len(), len);
                return Ok(());
            }
        };
        let found = records.progress();
        prop_assert!(found.written as usize <= len / RECORD);
        prop_assert!(damage.is_some() || !keep || len == 0);
        for number in 0..found.written {
            prop_assert!(records.read(number).expect("readable").is_some());
        }
    }
}

#[test]
fn what_is_over_takes_nothing_and_stays_over() {
    let shared = Shared::default();
    shared.lock().left = u32::MAX;
    live(&shared, 2, 1, &mut 0).expect("nothing fails");
    let (records, _) = Records::open(SESSION, Machine(Arc::clone(&shared))).expect("it opens");
    assert_eq!(records.append(5, false, &record(5, false)).ok(), Some(Appended::Gap));
    records.end().expect("nothing fails");
    assert_eq!(records.append(0, false, &record(0, false)).ok(), Some(Appended::Known));
    assert_eq!(records.read(0).expect("nothing fails"), None);
    let (again, damage) = Records::open(SESSION, Machine(shared)).expect("it opens");
    assert!(again.progress().over && damage.is_none() && again.bytes() == ByteCount::ZERO);
}

#[test]
fn a_damaged_record_is_cut_off_while_it_can_come_again() {
    let shared = Shared::default();
    shared.lock().left = u32::MAX;
    let (records, _) = Records::open(SESSION, Machine(Arc::clone(&shared))).expect("it opens");
    for number in 0..4 {
        records.append(number, false, &record(number, false)).expect("nothing fails");
    }
    records.sync().expect("nothing fails");
    assert_eq!(records.cut(2).ok(), Some(true));
    let progress = records.progress();
    assert_eq!((progress.written, progress.safe, progress.all_safe), (2, 2, false));
    drop(records);
    live(&shared, 5, 1, &mut 2).expect("nothing fails");
    // Everything was reported as durable, so the sender has ended.
    let (records, _) = Records::open(SESSION, Machine(Arc::clone(&shared))).expect("it opens");
    assert_eq!(records.cut(2).ok(), Some(false));
    assert_eq!((records.progress().written, records.progress().all_safe), (5, true));
    assert!(records.read(4).expect("nothing fails").is_some());
}

#[test]
fn what_cannot_be_ended_stays() {
    let shared = Shared::default();
    shared.lock().left = u32::MAX;
    live(&shared, 3, 1, &mut 0).expect("nothing fails");
    let (records, _) = Records::open(SESSION, Machine(Arc::clone(&shared))).expect("it opens");
    shared.lock().left = 0;
    assert!(records.end().is_err());
    assert!(!records.progress().over && records.read(2).expect("readable").is_some());
    shared.lock().left = u32::MAX;
    assert!(records.end().is_ok() && records.progress().over);
    assert_eq!((records.progress().written, records.bytes()), (0, ByteCount::ZERO));
}

#[test]
fn only_what_has_nothing_is_forsaken() {
    let shared = Shared::default();
    shared.lock().left = u32::MAX;
    let (records, _) = Records::open(SESSION, Machine(Arc::clone(&shared))).expect("it opens");
    assert!(records.abandon() && records.progress().over && !records.abandon());
    let (records, _) = Records::open(SESSION, Machine(shared)).expect("it opens");
    records.append(0, false, &record(0, false)).expect("nothing fails");
    assert!(!records.abandon() && !records.progress().over);
}
