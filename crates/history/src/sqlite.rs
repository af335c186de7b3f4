//! SQLite: a file that only its user can access.

use std::fs::{DirBuilder, OpenOptions};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::types::ValueRef;
use rusqlite::{Connection, ErrorCode, OpenFlags, ToSql, params_from_iter};

use crate::access::{DATABASE_TIMEOUT, Purpose};
use crate::error::HistoryError;
use crate::value::Value;

/// A connection to a file.
pub(crate) struct Sqlite {
    path: PathBuf,
    connection: Connection,
}

/// Pause between tries of operations for which SQLite has no timeout.
const RETRY_PAUSE: Duration = Duration::from_millis(20);

type Result<T> = std::result::Result<T, HistoryError>;

impl Sqlite {
    /// Opens the file, and creates it if it is opened for writing.
    pub(crate) fn open(path: &Path, purpose: Purpose) -> Result<Self> {
        match purpose {
            Purpose::Read => Self::reading(path),
            Purpose::Write => Self::writing(path),
        }
    }

    fn writing(path: &Path) -> Result<Self> {
        let failed = |e: std::io::Error| other(path, e.to_string());
        if let Some(dir) = path.parent() {
            DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(failed)?;
        }
        // SQLite would create it with the mode of the umask. The log gets the mode of the file.
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600).open(path).map_err(failed)?;
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection =
            Connection::open_with_flags(path, flags).map_err(|e| sqlite_error(path, &e))?;
        let mut db = Self { path: path.to_owned(), connection };
        db.patient()?;
        // Write-ahead logging allows concurrent readers and a writer, but needs memory that all of
        // them share, which machines of a network file system do not have.
        let journal = if on_network(path) { "DELETE" } else { "WAL" };
        db.journal(journal)?;
        db.batch("PRAGMA synchronous = NORMAL;")?;
        Ok(db)
    }

    /// Sets the journal mode. A change needs exclusive access, and while others have the file open
    /// SQLite fails at once, whatever its timeout. Without the retry, two processes that create the
    /// file at the same time would lose a row.
    fn journal(&mut self, mode: &str) -> Result<()> {
        for _ in 0..DATABASE_TIMEOUT.as_millis() / RETRY_PAUSE.as_millis() {
            let changed = self.connection.execute_batch(&format!("PRAGMA journal_mode = {mode};"));
            match changed {
                Err(rusqlite::Error::SqliteFailure(error, _))
                    if error.code == rusqlite::ErrorCode::DatabaseBusy => {}
                changed => return changed.map_err(|e| sqlite_error(&self.path, &e)),
            }
            std::thread::sleep(RETRY_PAUSE);
        }
        self.batch(&format!("PRAGMA journal_mode = {mode};"))
    }

    fn reading(path: &Path) -> Result<Self> {
        if !path.exists() {
            return Err(HistoryError::Absent { place: path.display().to_string() });
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let plain = Connection::open_with_flags(path, flags).and_then(|connection| {
            connection.busy_timeout(DATABASE_TIMEOUT)?;
            // The first query shows whether the file is readable.
            connection.query_row("SELECT count(*) FROM sqlite_master", [], |_| Ok(()))?;
            Ok(connection)
        });
        let connection = match plain {
            Ok(connection) => connection,
            // In a read-only directory the index of the log cannot be created. Then no process can
            // change the file either.
            Err(e) if e.sqlite_error_code() == Some(ErrorCode::CannotOpen) => {
                let flags = flags | OpenFlags::SQLITE_OPEN_URI;
                Connection::open_with_flags(immutable(path), flags)
                    .map_err(|e| sqlite_error(path, &e))?
            }
            Err(e) => return Err(sqlite_error(path, &e)),
        };
        let db = Self { path: path.to_owned(), connection };
        db.patient()?;
        Ok(db)
    }

    fn patient(&self) -> Result<()> {
        self.connection.busy_timeout(DATABASE_TIMEOUT).map_err(|e| sqlite_error(&self.path, &e))
    }

    pub(crate) fn batch(&mut self, sql: &str) -> Result<()> {
        self.connection.execute_batch(sql).map_err(|e| sqlite_error(&self.path, &e))
    }

    pub(crate) fn execute(&mut self, sql: &str, values: &[Value]) -> Result<u64> {
        let touched = self.connection.execute(sql, params_from_iter(values));
        touched.map(|n| n as u64).map_err(|e| sqlite_error(&self.path, &e))
    }

    pub(crate) fn query(&mut self, sql: &str, values: &[Value]) -> Result<Vec<Vec<Value>>> {
        let run = || -> rusqlite::Result<Vec<Vec<Value>>> {
            let mut statement = self.connection.prepare(sql)?;
            let columns = statement.column_count();
            let mut rows = statement.query(params_from_iter(values))?;
            let mut found = Vec::new();
            while let Some(row) = rows.next()? {
                let cells = (0..columns).map(|i| row.get_ref(i).map(value));
                found.push(cells.collect::<rusqlite::Result<_>>()?);
            }
            Ok(found)
        };
        run().map_err(|e| sqlite_error(&self.path, &e))
    }
}

fn value(cell: ValueRef<'_>) -> Value {
    match cell {
        ValueRef::Null | ValueRef::Blob(_) => Value::Null,
        ValueRef::Integer(n) => Value::Int(n),
        ValueRef::Real(x) => Value::Real(x),
        ValueRef::Text(text) => Value::Text(String::from_utf8_lossy(text).into_owned()),
    }
}

impl ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<rusqlite::types::ToSqlOutput<'_>> {
        use rusqlite::types::ToSqlOutput::Borrowed;
        Ok(Borrowed(match self {
            Self::Null => ValueRef::Null,
            Self::Int(n) => ValueRef::Integer(*n),
            Self::Real(x) => ValueRef::Real(*x),
            Self::Text(text) => ValueRef::Text(text.as_bytes()),
        }))
    }
}

/// The file as a URI with the flag that it does not change.
fn immutable(path: &Path) -> String {
    use std::fmt::Write as _;
    let mut uri = String::from("file:");
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'/' | b'.' | b'-' | b'_' => uri.push(char::from(*byte)),
            byte if byte.is_ascii_alphanumeric() => uri.push(char::from(*byte)),
            byte => {
                let _ = write!(uri, "%{byte:02x}");
            }
        }
    }
    uri.push_str("?immutable=1");
    uri
}

/// Types of file systems that other machines may change (statfs(2), linux/magic.h): NFS, SMB (three
/// numbers), AFS (two), Coda, Ceph, Lustre, GPFS, BeeGFS, PanFS, OrangeFS, GFS2, OCFS2, 9P, and
/// FUSE, which may contain any of them.
const NETWORK_FILE_SYSTEMS: &[u32] = &[
    0x6969,
    0x517b,
    0xff53_4d42,
    0xfe53_4d42,
    0x5346_414f,
    0x6b41_4653,
    0x7375_7245,
    0x00c3_6400,
    0x0bd0_0bd0,
    0x4750_4653,
    0x1983_0326,
    0xaad7_aaea,
    0x2003_0528,
    0x0116_1970,
    0x7461_636f,
    0x0102_1997,
    0x6573_5546,
];

/// Whether the file is on a network file system, as far as the kernel reports it.
fn on_network(path: &Path) -> bool {
    rustix::fs::statfs(path).is_ok_and(|found| shared(found.f_type as u32))
}

fn shared(kind: u32) -> bool {
    NETWORK_FILE_SYSTEMS.contains(&kind)
}

fn other(path: &Path, text: String) -> HistoryError {
    HistoryError::Other { place: path.display().to_string(), text }
}

fn sqlite_error(path: &Path, error: &rusqlite::Error) -> HistoryError {
    let place = path.display().to_string();
    let text = match error {
        // Only SQLite's message; the text around it repeats the file name.
        rusqlite::Error::SqliteFailure(code, _) => {
            error_text(code.extended_code).unwrap_or_else(|| error.to_string())
        }
        _ => error.to_string(),
    };
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            HistoryError::Damaged { place, text }
        }
        _ => HistoryError::Other { place, text },
    }
}

fn error_text(code: i32) -> Option<String> {
    // The primary error code determines the message.
    Some(
        match code & 0xff {
            rusqlite::ffi::SQLITE_FULL => "no room is left for it",
            rusqlite::ffi::SQLITE_READONLY => "it cannot be written",
            rusqlite::ffi::SQLITE_BUSY => "another process has been writing it for too long",
            rusqlite::ffi::SQLITE_CORRUPT => "its pages do not fit together",
            rusqlite::ffi::SQLITE_NOTADB => "it is not an SQLite database",
            rusqlite::ffi::SQLITE_CANTOPEN => "it cannot be opened",
            _ => return None,
        }
        .to_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_systems_of_several_machines_are_known() {
        assert!(shared(0x6969) && shared(0xfe53_4d42));
        // ext4, tmpfs, xfs.
        assert!(![0xef53, 0x0102_1994, 0x5846_5342].into_iter().any(shared));
    }

    #[test]
    fn a_log_is_used_on_local_file_systems() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("h%2f?.db");
        let mut db = Sqlite::open(&path, Purpose::Write).expect("opened");
        let mode = db.query("PRAGMA journal_mode", &[]).expect("told");
        let want = if on_network(&path) { "delete" } else { "wal" };
        assert_eq!(mode, [[Value::Text(want.to_owned())]]);
        db.batch("CREATE TABLE t (a BIGINT); INSERT INTO t VALUES (7)").expect("written");
        drop(db);
        // The options for a read-only directory also work in a writable one.
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
        let connection = Connection::open_with_flags(immutable(&path), flags).expect("opened");
        let seven: i64 = connection.query_row("SELECT a FROM t", [], |r| r.get(0)).expect("there");
        assert_eq!(seven, 7);
    }
}
