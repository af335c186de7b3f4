//! Puts rows where they belong, and never harms a transfer.

use parking_lot::Mutex;
use std::path::{Path, PathBuf};

use packtrain_history::{Ended, Filter, HistoryError, Place, Row, Store, StreamSample};
use packtrain_os::clock;
use packtrain_units::{Duration, Time};

use super::draft::{here, login};
use super::spool::Spool;
use crate::{HistoryConfig, HistoryPlace};

/// After a failure the database is left alone for so long: a server has other things to do.
const PAUSE: Duration = Duration::from_secs(30);

/// When the database failed last, and whether that was told.
#[derive(Default)]
struct Trouble {
    at: Option<Time>,
    told: bool,
}

static TROUBLE: Mutex<Trouble> = Mutex::new(Trouble { at: None, told: false });

/// Keeps the row of a transfer that is over. What could not be done is said once; the row waits
/// as a file then.
pub fn keep(keep: &HistoryConfig, row: &Row) -> Option<String> {
    let (spool, place) = (Spool::in_state(), keep.place());
    // Without a database only `diagnose` has a use for files, of rows with evidence.
    if let Some(spool) = spool.as_ref().filter(|_| place.is_some() || row.evidence.is_some()) {
        // Without room for it the database may still have some.
        let _ = spool.write(row);
    }
    let place = place?;
    let mut trouble = TROUBLE.lock();
    let now = clock::now();
    if trouble.at.is_some_and(|at| now.since(at) < PAUSE) {
        return None;
    }
    match store(keep, &place, row, spool.as_ref()) {
        Ok(said) => {
            *trouble = Trouble::default();
            said
        }
        Err(error) => {
            trouble.at = Some(now);
            if let Some(spool) = &spool {
                spool.prune();
            }
            let told = std::mem::replace(&mut trouble.told, true);
            let waits = if spool.is_some_and(|spool| spool.has(row)) {
                "the row waits for the next one that can"
            } else {
                "its row is lost"
            };
            (!told).then(|| format!("this transfer is not in the history, {waits}: {error}"))
        }
    }
}

/// Keeps a row and what waited; gives what is to be told although it went well.
fn store(
    keep: &HistoryConfig,
    place: &Place,
    row: &Row,
    spool: Option<&Spool>,
) -> Result<Option<String>, HistoryError> {
    let kept = Store::open(place).and_then(|mut store| {
        store.keep(row)?;
        Ok(store)
    });
    let (mut store, said) = match (kept, place) {
        (Ok(store), _) => (store, None),
        // What lies at the usual place was made by us: it may be put aside.
        (Err(HistoryError::Damaged { text, .. }), Place::File(path))
            if keep.place == HistoryPlace::State =>
        {
            let aside = put_aside(path)?;
            let mut store = Store::open(place)?;
            store.keep(row)?;
            let aside = aside.display();
            (
                store,
                Some(format!(
                    "the history was damaged ({text}): it is now {aside}, a new one began"
                )),
            )
        }
        (Err(error), _) => return Err(error),
    };
    if let Some(spool) = spool {
        spool.remove(row);
        for waiting in spool.waiting() {
            store.keep(&waiting)?;
            spool.remove(&waiting);
        }
    }
    store.prune(row, &keep.retention, clock::wall())?;
    Ok(said)
}

/// Renames a database and what belongs to it.
fn put_aside(path: &Path) -> Result<PathBuf, HistoryError> {
    let with = |end: &str| {
        let mut name = path.as_os_str().to_owned();
        name.push(end);
        PathBuf::from(name)
    };
    let aside = with(&format!(".damaged-{}", clock::wall().as_millis() / 1_000));
    std::fs::rename(path, &aside).map_err(|e| HistoryError::Other {
        place: path.display().to_string(),
        text: format!("it is damaged and cannot be renamed: {e}"),
    })?;
    // A log of the old file must not be played into the new one.
    for end in ["-wal", "-shm", "-journal"] {
        let _ = std::fs::remove_file(with(end));
    }
    Ok(aside)
}

/// Only rows that this user wrote at this machine.
pub fn own() -> Filter {
    Filter { writer: Some((here(), login())), ..Filter::default() }
}

/// Finds rows; see [`super::find`].
pub(super) fn find(keep: &HistoryConfig, filter: &Filter) -> Result<Vec<Row>, HistoryError> {
    let place = keep.place();
    let mut rows = match place.as_ref().map(Store::look) {
        Some(Ok(mut store)) => store.find(filter)?,
        None | Some(Err(HistoryError::Absent { .. })) => Vec::new(),
        Some(Err(error)) => return Err(error),
    };
    let files = Spool::in_state().map(|spool| spool.all()).unwrap_or_default();
    for row in files.into_iter().filter(|row| filter.fits(row)) {
        match rows.iter_mut().find(|other| other.key == row.key) {
            // It was moved to the database and its file not yet removed, or the other way round.
            Some(other) if other.ended == Ended::Running || other.ended == Ended::Killed => {
                *other = row;
            }
            Some(_) => {}
            None => rows.push(row),
        }
    }
    rows.sort_by_key(|row| std::cmp::Reverse(row.began));
    rows.truncate(filter.most.map_or(usize::MAX, |most| most as usize));
    Ok(rows)
}

/// Samples of streams; see [`super::stream_samples`].
pub(super) fn stream_samples(
    keep: &HistoryConfig,
    from: &str,
    to: &str,
    most: u32,
) -> Vec<StreamSample> {
    let found = keep.place().map(|place| {
        let mut store = Store::look(&place)?;
        store.stream_samples(from, to, most)
    });
    // Whoever asks can do without.
    found.and_then(Result::ok).unwrap_or_default()
}
