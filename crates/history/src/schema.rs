//! The tables, and how older ones become today's.

use crate::db::Db;
use crate::error::HistoryError;
use crate::value::Value;

/// The steps from nothing to today's tables. A step that was published never changes.
pub(crate) const STEPS: &[&str] = &[
    // 1: a row a transfer.
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
    // 2: what was measured with how many streams, and the way to find it by the two ends.
    "ALTER TABLE transfers ADD COLUMN stream_samples TEXT NOT NULL DEFAULT '';
    CREATE INDEX transfers_pair ON transfers (from_host, to_host, began_us);",
    // 3: what held a transfer below what its path may carry.
    "ALTER TABLE transfers ADD COLUMN held_by TEXT;",
];

/// The newest schema known here.
pub(crate) const NEWEST: i64 = STEPS.len() as i64;

/// The schema that is there: 0 if none is.
pub(crate) fn version(db: &mut Db) -> Result<i64, HistoryError> {
    if !db.has_table("packtrain_schema")? {
        return Ok(0);
    }
    let rows = db.query("SELECT version FROM packtrain_schema", &[])?;
    Ok(rows.first().and_then(|row| row.first()?.int()).unwrap_or(0))
}

/// Brings the tables to schema `to`; does nothing to those that are there already.
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
        // Another process may have been faster.
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
