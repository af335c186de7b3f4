//! A connection with either database, for statements that both understand.
//!
//! Parameters are written `$1` to `$n`, and `$1` stands first in a statement, `$2` second and so
//! on: SQLite numbers names in the order in which they appear.

use crate::access::Use;
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
    pub(crate) fn open(place: &Place, purpose: Use) -> Result<Self> {
        match place {
            Place::File(path) => Sqlite::open(path, purpose).map(Self::Sqlite),
            Place::Server(server) => {
                Postgres::connect(server).map(|server| Self::Postgres(Box::new(server)))
            }
        }
    }

    /// Does something; gives the number of rows it touched.
    pub(crate) fn execute(&mut self, sql: &str, values: &[Value]) -> Result<u64> {
        match self {
            Self::Sqlite(db) => db.execute(sql, values),
            Self::Postgres(db) => db.execute(sql, values),
        }
    }

    /// Asks for rows.
    pub(crate) fn query(&mut self, sql: &str, values: &[Value]) -> Result<Vec<Vec<Value>>> {
        match self {
            Self::Sqlite(db) => db.query(sql, values),
            Self::Postgres(db) => db.query(sql, values),
        }
    }

    /// Runs statements as a whole: all of them or none.
    pub(crate) fn atomically<T>(&mut self, work: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        // SQLite: the right to write comes first, so that nobody has to give up half way.
        self.batch(match self {
            Self::Sqlite(_) => "BEGIN IMMEDIATE",
            Self::Postgres(_) => "BEGIN",
        })?;
        let done = work(self).and_then(|done| self.batch("COMMIT").map(|()| done));
        if done.is_err() {
            // The connection may be gone; the error that counts is the first one.
            let _ = self.batch("ROLLBACK");
        }
        done
    }

    /// Statements without values.
    pub(crate) fn batch(&mut self, sql: &str) -> Result<()> {
        match self {
            Self::Sqlite(db) => db.batch(sql),
            Self::Postgres(db) => db.batch(sql),
        }
    }

    /// Lets nobody else migrate until the transaction is over. `BEGIN IMMEDIATE` does that in
    /// SQLite.
    pub(crate) fn lock_schema(&mut self) -> Result<()> {
        match self {
            Self::Sqlite(_) => Ok(()),
            // The number means nothing to anybody else: "packtrai" in ASCII.
            Self::Postgres(db) => db.batch("SELECT pg_advisory_xact_lock(8097856238637670761)"),
        }
    }

    /// Whether there is a table of this name.
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
