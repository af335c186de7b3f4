//! A connection to either database, for statements that both support.
//!
//! Parameters are `$1` to `$n`, and their first occurrences in a statement are in this order,
//! because SQLite numbers parameters by first occurrence.

use crate::access::Purpose;
use crate::error::HistoryError;
use crate::place::Place;
use crate::postgres::Postgres;
use crate::sqlite::Sqlite;
use crate::value::Value;

/// A connection.
pub(crate) enum Db {
    Sqlite(Sqlite),
    Postgres(Box<Postgres>),
}

type Result<T> = std::result::Result<T, HistoryError>;

impl Db {
    /// Connects.
    pub(crate) fn open(place: &Place, purpose: Purpose) -> Result<Self> {
        match place {
            Place::File(path) => Sqlite::open(path, purpose).map(Self::Sqlite),
            Place::Server(server) => {
                Postgres::connect(server).map(|server| Self::Postgres(Box::new(server)))
            }
        }
    }

    /// Executes a statement; returns the number of affected rows.
    pub(crate) fn execute(&mut self, sql: &str, values: &[Value]) -> Result<u64> {
        match self {
            Self::Sqlite(db) => db.execute(sql, values),
            Self::Postgres(db) => db.execute(sql, values),
        }
    }

    /// Queries rows.
    pub(crate) fn query(&mut self, sql: &str, values: &[Value]) -> Result<Vec<Vec<Value>>> {
        match self {
            Self::Sqlite(db) => db.query(sql, values),
            Self::Postgres(db) => db.query(sql, values),
        }
    }

    /// Runs `work` in a transaction.
    pub(crate) fn atomically<T>(&mut self, work: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        // In SQLite the write lock is taken first, so that no transaction fails in the middle.
        self.batch(match self {
            Self::Sqlite(_) => "BEGIN IMMEDIATE",
            Self::Postgres(_) => "BEGIN",
        })?;
        let done = work(self).and_then(|done| self.batch("COMMIT").map(|()| done));
        if done.is_err() {
            // The connection may be closed; the first error is returned.
            let _ = self.batch("ROLLBACK");
        }
        done
    }

    /// Executes statements without values.
    pub(crate) fn batch(&mut self, sql: &str) -> Result<()> {
        match self {
            Self::Sqlite(db) => db.batch(sql),
            Self::Postgres(db) => db.batch(sql),
        }
    }

    /// Blocks concurrent migrations until the end of the transaction. In SQLite `BEGIN IMMEDIATE`
    /// does that.
    pub(crate) fn lock_schema(&mut self) -> Result<()> {
        match self {
            Self::Sqlite(_) => Ok(()),
            // A lock number that no other program uses: "packtrai" in ASCII.
            Self::Postgres(db) => db.batch("SELECT pg_advisory_xact_lock(8097856238637670761)"),
        }
    }

    /// Whether a table of this name exists.
    pub(crate) fn has_table(&mut self, name: &str) -> Result<bool> {
        let sql = match self {
            Self::Sqlite(_) => "SELECT name FROM sqlite_master WHERE type = 'table' AND name = $1",
            Self::Postgres(_) => {
                "SELECT table_name::text FROM information_schema.tables \
                 WHERE table_schema = current_schema() AND table_name = $1"
            }
        };
        Ok(!self.query(sql, &[Value::Text(name.to_owned())])?.is_empty())
    }
}
