//! Stores, finds and removes rows.

use packtrain_units::Duration;

use crate::access::Purpose;
use crate::db::Db;
use crate::error::HistoryError;
use crate::place::Place;
use crate::row::COLUMNS;
use crate::row::{Ended, Row, StreamSample};
use crate::schema;
use crate::value::Value;

/// How many rows are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Maximum rows of one user on one machine.
    pub rows: u32,
    /// Maximum age of a row.
    pub age: Duration,
}

impl Retention {
    /// The number of newest rows that keep all evidence, which is twenty times as large as the rest
    /// of a row.
    pub const WITH_EVIDENCE: u32 = 256;
}

impl Default for Retention {
    fn default() -> Self {
        Self { rows: 10_000, age: Duration::from_secs(365 * 86_400) }
    }
}

/// Which rows to find. `None` matches every row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// The beginning of the id.
    pub id: Option<String>,
    /// The process.
    pub pid: Option<u32>,
    /// Either end, the machine that wrote the row, or the beginning of the peer's address.
    pub host: Option<String>,
    /// The transport that moved most.
    pub transport: Option<String>,
    /// Start of the transfer, at or after this time, since 1970.
    pub since: Option<Duration>,
    /// Start of the transfer, at or before this time, since 1970.
    pub until: Option<Duration>,
    /// Only rows of transfers that did not succeed.
    pub failed: bool,
    /// Only rows that still have all evidence.
    pub evidence: bool,
    /// Only rows of this machine and this user.
    pub writer: Option<(String, String)>,
    /// Maximum number of rows; the newest are returned.
    pub most: Option<u32>,
}

/// How far ahead of this machine's clock a row may have begun, by another clock or an earlier time
/// of this one. A row that is further ahead would be the newest one until that time has come.
const MAX_AHEAD: Duration = Duration::from_secs(86_400);

impl Filter {
    /// Leaves out rows that began long after `now`, for queries of the newest rows.
    pub fn begun_by(self, now: Duration) -> Self {
        Self { until: Some(now + MAX_AHEAD), ..self }
    }

    /// Whether the filter matches a row, apart from `most`.
    pub fn fits(&self, row: &Row) -> bool {
        let is = |wanted: &Option<String>, one: &str| wanted.as_ref().is_none_or(|w| w == one);
        let host = self.host.as_ref().is_none_or(|host| {
            [&row.from_host, &row.to_host, &row.host].contains(&host) || row.peer.starts_with(host)
        });
        let writer = self.writer.as_ref();
        host && is(&self.transport, &row.transport)
            && self.id.as_ref().is_none_or(|id| row.id.starts_with(id.as_str()))
            && self.pid.is_none_or(|pid| row.pid == pid)
            && self.since.is_none_or(|since| row.began >= since)
            && self.until.is_none_or(|until| row.began <= until)
            && (!self.failed || row.ended != Ended::Done)
            && (!self.evidence || row.evidence.as_ref().is_some_and(|text| !text.is_empty()))
            && writer.is_none_or(|(host, login)| *host == row.host && *login == row.login)
    }
}

/// An open history.
pub struct Store {
    db: Db,
}

type Result<T> = std::result::Result<T, HistoryError>;

/// The limit for an unlimited query, since both databases need a number.
const ALL: u32 = u32::MAX >> 1;
/// Maximum number of rows deleted at a time, so that the end of a transfer is not delayed.
const MAX_DELETED: i64 = 1_000;

impl Store {
    /// Opens a place for writing. It is created if it does not exist, and migrated to the current
    /// schema.
    ///
    /// # Errors
    /// The place cannot be reached, created, written or parsed.
    pub fn open(place: &Place) -> Result<Self> {
        Self::at_schema(place, schema::NEWEST)
    }

    fn at_schema(place: &Place, schema: i64) -> Result<Self> {
        let mut db = Db::open(place, Purpose::Write)?;
        schema::migrate(&mut db, schema, &place.to_string())?;
        Ok(Self { db })
    }

    /// Opens a place for reading; an older schema is migrated if the place is writable.
    ///
    /// # Errors
    /// As [`Store::open`]; [`HistoryError::Absent`] if the history does not exist yet.
    pub fn open_read(place: &Place) -> Result<Self> {
        let mut db = Db::open(place, Purpose::Read)?;
        let found = schema::version(&mut db)?;
        if found < schema::NEWEST {
            drop(db);
            return Self::open(place);
        }
        if found > schema::NEWEST {
            let place = place.to_string();
            return Err(HistoryError::Newer { place, found, known: schema::NEWEST });
        }
        Ok(Self { db })
    }

    /// Stores a row, and replaces its older version.
    ///
    /// # Errors
    /// The error of the database.
    pub fn keep(&mut self, row: &Row) -> Result<()> {
        let names: Vec<&str> = COLUMNS.iter().map(|column| column.name).collect();
        let marks: Vec<String> = (1..=names.len()).map(|n| format!("${n}")).collect();
        let again: Vec<String> = names
            .iter()
            .filter(|name| **name != "key")
            .map(|name| format!("{name} = excluded.{name}"))
            .collect();
        let sql = format!(
            "INSERT INTO transfers ({}) VALUES ({}) ON CONFLICT (key) DO UPDATE SET {}",
            names.join(", "),
            marks.join(", "),
            again.join(", ")
        );
        let values: Vec<Value> = COLUMNS.iter().map(|column| (column.get)(row)).collect();
        self.db.execute(&sql, &values).map(|_| ())
    }

    /// Removes the rows of this user and machine that exceed the age or the number; `now` is since
    /// 1970.
    ///
    /// # Errors
    /// The error of the database.
    pub fn prune(&mut self, of: &Row, retention: &Retention, now: Duration) -> Result<()> {
        let whose = || [Value::Text(of.host.clone()), Value::Text(of.login.clone())];
        let oldest = now.saturating_sub(retention.age).as_micros() as i64;
        let mut values = whose().to_vec();
        values.push(Value::Int(oldest));
        self.db.execute(
            "DELETE FROM transfers WHERE host = $1 AND login = $2 AND began_us < $3",
            &values,
        )?;
        let beyond = |most: u32| {
            let mut values = whose().to_vec();
            values.extend([Value::Int(MAX_DELETED), Value::Int(most.into())]);
            values
        };
        let some = "SELECT key FROM transfers WHERE host = $1 AND login = $2";
        let newest = "ORDER BY began_us DESC LIMIT $3 OFFSET $4";
        self.db.execute(
            &format!("DELETE FROM transfers WHERE key IN ({some} {newest})"),
            &beyond(retention.rows),
        )?;
        self.db.execute(
            &format!(
                "UPDATE transfers SET evidence = NULL WHERE key IN \
                 ({some} AND evidence IS NOT NULL {newest})"
            ),
            &beyond(Retention::WITH_EVIDENCE),
        )?;
        Ok(())
    }

    /// Finds rows, the newest first.
    ///
    /// # Errors
    /// The error of the database.
    pub fn find(&mut self, filter: &Filter) -> Result<Vec<Row>> {
        let (mut sql, mut values) = (String::new(), Vec::new());
        let mut and = |condition: &str, value: Value| {
            values.push(value);
            sql.push_str(if values.len() == 1 { " WHERE " } else { " AND " });
            sql.push_str(&condition.replace('?', &format!("${}", values.len())));
        };
        if let Some(id) = &filter.id {
            and("substr(id, 1, length(?)) = ?", Value::Text(id.clone()));
        }
        if let Some(pid) = filter.pid {
            and("pid = ?", Value::Int(pid.into()));
        }
        if let Some(host) = &filter.host {
            and(
                "(from_host = ? OR to_host = ? OR host = ? OR substr(peer, 1, length(?)) = ?)",
                Value::Text(host.clone()),
            );
        }
        if let Some(transport) = &filter.transport {
            and("transport = ?", Value::Text(transport.clone()));
        }
        if let Some(since) = filter.since {
            and("began_us >= ?", Value::Int(since.as_micros() as i64));
        }
        if let Some(until) = filter.until {
            and("began_us <= ?", Value::Int(until.as_micros() as i64));
        }
        if filter.failed {
            and("ended <> ?", Value::Text("done".to_owned()));
        }
        if filter.evidence {
            and("evidence <> ?", Value::Text(String::new()));
        }
        if let Some((host, login)) = &filter.writer {
            and("host = ?", Value::Text(host.clone()));
            and("login = ?", Value::Text(login.clone()));
        }
        let names: Vec<&str> = COLUMNS.iter().map(|column| column.name).collect();
        values.push(Value::Int(filter.most.unwrap_or(ALL).into()));
        let sql = format!(
            "SELECT {} FROM transfers{sql} ORDER BY began_us DESC LIMIT ${}",
            names.join(", "),
            values.len()
        );
        let rows = self.db.query(&sql, &values)?;
        Ok(rows.iter().map(|cells| row(cells)).collect())
    }

    /// The measured throughputs between two machines by number of streams, the newest first, of
    /// transfers that did not begin long after `now`.
    ///
    /// # Errors
    /// The error of the database.
    pub fn stream_samples(
        &mut self,
        from: &str,
        to: &str,
        most: u32,
        now: Duration,
    ) -> Result<Vec<StreamSample>> {
        let sql = "SELECT stream_samples, streams, throughput_bps, began_us FROM transfers \
                   WHERE from_host = $1 AND to_host = $2 AND held_by IS NULL \
                   AND (stream_samples <> '' \
                   OR (streams IS NOT NULL AND transport = 'tcp' AND elapsed_us >= $3 \
                   AND ended IN ('done', 'partial'))) \
                   AND throughput_bps > 0 AND began_us <= $4 ORDER BY began_us DESC LIMIT $5";
        let values = [
            Value::Text(from.to_owned()),
            Value::Text(to.to_owned()),
            Value::Int(MIN_COMPARED_DURATION.as_micros() as i64),
            Value::Int((now + MAX_AHEAD).as_micros() as i64),
            Value::Int(most.into()),
        ];
        let mut samples = Vec::new();
        for cells in self.db.query(sql, &values)? {
            let names = ["stream_samples", "streams", "throughput_bps", "began_us"];
            let found = filled(names.into_iter().zip(&cells));
            if found.stream_samples.is_empty() {
                samples.push(StreamSample {
                    streams: found.streams.unwrap_or(1),
                    throughput: found.throughput,
                    began: found.began,
                });
            } else {
                samples.extend(found.stream_samples.iter().rev().copied());
            }
        }
        samples.truncate(most as usize);
        Ok(samples)
    }
}

/// The rate of a shorter transfer depends more on its start than on the number of streams.
const MIN_COMPARED_DURATION: Duration = Duration::from_secs(2);

fn row(cells: &[Value]) -> Row {
    filled(COLUMNS.iter().map(|column| column.name).zip(cells))
}

fn filled<'a>(cells: impl Iterator<Item = (&'static str, &'a Value)>) -> Row {
    let mut row = Row::default();
    for (name, value) in cells {
        if let Some(column) = COLUMNS.iter().find(|column| column.name == name) {
            (column.set)(&mut row, value);
        }
    }
    row
}

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
