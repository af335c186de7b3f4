//! The tables and their migrations, which follow from the list of columns.

use crate::column::Column;
use crate::db::Db;
use crate::error::HistoryError;
use crate::row::COLUMNS;
use crate::value::Value;

/// Statements of a version beside its new columns, by version. A published one never changes.
const STATEMENTS: &[(i64, &str)] = &[
    (1, "CREATE INDEX transfers_began ON transfers (host, login, began_us);"),
    (1, "CREATE INDEX transfers_id ON transfers (id);"),
    (2, "CREATE INDEX transfers_pair ON transfers (from_host, to_host, began_us);"),
];

/// The newest schema that this version supports.
pub(crate) const NEWEST: i64 = {
    let (mut newest, mut n) = (1, 0);
    while n < COLUMNS.len() {
        if COLUMNS[n].since > newest {
            newest = COLUMNS[n].since;
        }
        n += 1;
    }
    newest
};

/// The migration to schema `version` from the one before; version 1 creates the table.
fn migration(version: i64) -> String {
    let columns = COLUMNS.iter().filter(|column| column.since == version).map(Column::definition);
    let mut sql = if version == 1 {
        format!("CREATE TABLE transfers ({});", columns.collect::<Vec<_>>().join(", "))
    } else {
        columns.map(|column| format!("ALTER TABLE transfers ADD COLUMN {column};")).collect()
    };
    sql.extend(STATEMENTS.iter().filter(|(of, _)| *of == version).map(|(_, statement)| *statement));
    sql
}

/// The schema version of the database; 0 if it has no tables.
pub(crate) fn version(db: &mut Db) -> Result<i64, HistoryError> {
    if !db.has_table("packtrain_schema")? {
        return Ok(0);
    }
    let rows = db.query("SELECT version FROM packtrain_schema", &[])?;
    Ok(rows.first().and_then(|row| row.first()?.int()).unwrap_or(0))
}

/// Migrates the tables to schema `to`; does nothing if they have it already.
pub(crate) fn migrate(db: &mut Db, to: i64, place: &str) -> Result<(), HistoryError> {
    let found = version(db)?;
    if found == to {
        return Ok(());
    }
    if found > to {
        return Err(HistoryError::Newer { place: place.to_owned(), found, known: to });
    }
    db.atomically(|db| {
        db.lock_schema()?;
        // Another process may have migrated already.
        let mut at = version(db)?;
        if at == 0 {
            db.batch(
                "CREATE TABLE packtrain_schema (version BIGINT NOT NULL);
                 INSERT INTO packtrain_schema (version) VALUES (0);",
            )?;
        }
        while at < to {
            at += 1;
            db.batch(&migration(at))?;
            db.execute("UPDATE packtrain_schema SET version = $1", &[Value::Int(at)])?;
        }
        Ok(())
    })
}
