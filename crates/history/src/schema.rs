//! The tables and their migrations.

use crate::db::Db;
use crate::error::HistoryError;
use crate::value::Value;

/// The migrations from an empty database to the current tables. A published migration never
/// changes.
pub(crate) const STEPS: &[&str] = &[
    // 1: one row per transfer.
    "CREATE TABLE transfers (
        key TEXT PRIMARY KEY NOT NULL,
        id TEXT NOT NULL,
        began_us BIGINT NOT NULL,
        kind TEXT NOT NULL,
        side TEXT NOT NULL,
        role TEXT NOT NULL,
        ended TEXT NOT NULL,
        host TEXT NOT NULL,
        login TEXT NOT NULL,
        pid BIGINT NOT NULL,
        version TEXT NOT NULL,
        from_host TEXT NOT NULL,
        to_host TEXT NOT NULL,
        source TEXT NOT NULL,
        target TEXT NOT NULL,
        peer TEXT NOT NULL,
        transport TEXT NOT NULL,
        transports TEXT NOT NULL,
        controller TEXT NOT NULL,
        streams BIGINT,
        bytes BIGINT NOT NULL,
        bytes_moved BIGINT NOT NULL,
        files BIGINT NOT NULL,
        failed_files BIGINT NOT NULL,
        elapsed_us BIGINT NOT NULL,
        throughput_bps BIGINT NOT NULL,
        series TEXT NOT NULL,
        retransmitted_bytes BIGINT NOT NULL,
        rtt_us BIGINT,
        srtt_us BIGINT,
        packets_sent BIGINT,
        packets_lost BIGINT,
        host_drops BIGINT,
        loss_cause TEXT,
        p_cpu DOUBLE PRECISION,
        verdict TEXT,
        tcp_cc TEXT,
        tcp_info TEXT,
        load_1m DOUBLE PRECISION,
        source_busy DOUBLE PRECISION,
        target_busy DOUBLE PRECISION,
        exit_code BIGINT,
        error_kind TEXT,
        error TEXT,
        evidence TEXT
    );
    CREATE INDEX transfers_began ON transfers (host, login, began_us);
    CREATE INDEX transfers_id ON transfers (id);",
    // 2: measured throughputs by number of streams, and an index by the two ends.
    "ALTER TABLE transfers ADD COLUMN stream_samples TEXT NOT NULL DEFAULT '';
    CREATE INDEX transfers_pair ON transfers (from_host, to_host, began_us);",
    // 3: what limited a transfer below the rate of its path.
    "ALTER TABLE transfers ADD COLUMN held_by TEXT;",
];

/// The newest schema that this version supports.
pub(crate) const NEWEST: i64 = STEPS.len() as i64;

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
            db.batch(STEPS[at as usize])?;
            at += 1;
            db.execute("UPDATE packtrain_schema SET version = $1", &[Value::Int(at)])?;
        }
        Ok(())
    })
}
