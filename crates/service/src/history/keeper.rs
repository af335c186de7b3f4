//! Stores rows in the database. An error never affects the transfer.

use parking_lot::Mutex;
use std::path::{Path, PathBuf};

use packtrain_history::{Ended, Filter, HistoryError, Place, Row, Store, StreamSample};
use packtrain_os::clock;
use packtrain_units::{Duration, Time};

use super::draft::{here, login};
use super::spool::Spool;
use crate::{HistoryConfig, HistoryPlace};

/// Pause after a failure of the database, so that a failing server gets few requests.
const RETRY_PAUSE: Duration = Duration::from_secs(30);

/// Time of the last failure of the database, and whether it was reported.
#[derive(Default)]
struct DatabaseFailure {
    at: Option<Time>,
    told: bool,
}

static DATABASE_FAILURE: Mutex<DatabaseFailure> =
    Mutex::new(DatabaseFailure { at: None, told: false });

/// Stores the row of a finished transfer. Returns a warning the first time it fails; the row then
/// stays in its file.
pub fn keep(keep: &HistoryConfig, row: &Row) -> Option<String> {
    let (spool, place) = (Spool::in_state(), keep.place());
    // Without a database only `diagnose` uses the files, and only rows with evidence.
    if let Some(spool) = spool.as_ref().filter(|_| place.is_some() || row.evidence.is_some()) {
        // The write may fail on a full disk; the database may still accept the row.
        let _ = spool.write(row);
    }
    let place = place?;
    let mut failure_state = DATABASE_FAILURE.lock();
    let now = clock::now();
    if failure_state.at.is_some_and(|at| now.since(at) < RETRY_PAUSE) {
        return None;
    }
    match store(keep, &place, row, spool.as_ref()) {
        Ok(said) => {
            *failure_state = DatabaseFailure::default();
            said
        }
        Err(error) => {
            failure_state.at = Some(now);
            if let Some(spool) = &spool {
                spool.prune();
            }
            let told = std::mem::replace(&mut failure_state.told, true);
            let waits = if spool.is_some_and(|spool| spool.has(row)) {
                "the row waits for the next one that can"
            } else {
                "its row is lost"
            };
            (!told).then(|| format!("this transfer is not in the history, {waits}: {error}"))
        }
    }
}

/// Stores a row and the waiting rows. Returns a message if it replaced a damaged database.
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
        // The file at the default place is packtrain's own, so it may be renamed.
        (Err(HistoryError::Damaged { text, .. }), Place::File(path))
            if keep.place == HistoryPlace::State =>
        {
            let aside = rename_damaged(path)?;
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

/// Renames a database, and removes its log files.
fn rename_damaged(path: &Path) -> Result<PathBuf, HistoryError> {
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
    // SQLite must not apply a log of the old file to the new one.
    for end in ["-wal", "-shm", "-journal"] {
        let _ = std::fs::remove_file(with(end));
    }
    Ok(aside)
}

/// Filter for rows that this user wrote on this machine.
pub fn own() -> Filter {
    Filter { writer: Some((here(), login())), ..Filter::default() }
}

/// Finds rows; see [`super::find`].
pub(super) fn find(keep: &HistoryConfig, filter: &Filter) -> Result<Vec<Row>, HistoryError> {
    let place = keep.place();
    let mut rows = match place.as_ref().map(Store::open_read) {
        Some(Ok(mut store)) => store.find(filter)?,
        None | Some(Err(HistoryError::Absent { .. })) => Vec::new(),
        Some(Err(error)) => return Err(error),
    };
    let files = Spool::in_state().map(|spool| spool.all()).unwrap_or_default();
    for row in files.into_iter().filter(|row| filter.fits(row)) {
        match rows.iter_mut().find(|other| other.key == row.key) {
            // The row is in the database, and its file was not removed yet, or the other way round.
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
        let mut store = Store::open_read(&place)?;
        store.stream_samples(from, to, most, clock::wall())
    });
    // The caller works without samples too.
    found.and_then(Result::ok).unwrap_or_default()
}
