//! Columns: their types, and the conversion from and to a row.

use packtrain_units::{ByteCount, DataRate, Duration};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::row::{COLUMNS, Ended, Kind, Point, Role, Row, Side, StreamSample, TransportBytes};
use crate::value::Value;

/// One column.
pub(crate) struct Column {
    /// Its name, with the unit.
    pub(crate) name: &'static str,
    /// Its SQL type, which both databases support.
    #[cfg_attr(not(test), allow(dead_code, reason = "tests compare it with the schema"))]
    pub(crate) sql: fn() -> &'static str,
    pub(crate) get: fn(&Row) -> Value,
    pub(crate) set: fn(&mut Row, &Value),
}

/// A type that can be stored in a column.
pub(crate) trait Field {
    const SQL: &'static str;
    fn value(&self) -> Value;
    fn of(value: &Value) -> Self;
}

const TEXT: &str = "TEXT";
const INT: &str = "BIGINT";
const REAL: &str = "DOUBLE PRECISION";

impl Field for String {
    const SQL: &'static str = TEXT;
    fn value(&self) -> Value {
        // PostgreSQL's text cannot contain a zero byte.
        Value::Text(self.replace('\0', "\u{fffd}"))
    }
    fn of(value: &Value) -> Self {
        value.text().unwrap_or_default().to_owned()
    }
}

impl Field for u64 {
    const SQL: &'static str = INT;
    fn value(&self) -> Value {
        Value::Int(i64::try_from(*self).unwrap_or(i64::MAX))
    }
    fn of(value: &Value) -> Self {
        value.int().and_then(|n| n.try_into().ok()).unwrap_or(0)
    }
}

impl Field for f64 {
    const SQL: &'static str = REAL;
    fn value(&self) -> Value {
        if self.is_finite() { Value::Real(*self) } else { Value::Null }
    }
    fn of(value: &Value) -> Self {
        value.real().unwrap_or(0.0)
    }
}

impl<T: Field> Field for Option<T> {
    const SQL: &'static str = T::SQL;
    fn value(&self) -> Value {
        self.as_ref().map_or(Value::Null, Field::value)
    }
    fn of(value: &Value) -> Self {
        (*value != Value::Null).then(|| T::of(value))
    }
}

/// Implements `Field` for types that are stored like another type.
macro_rules! like {
    ($($of:ty as $like:ty: $to:expr, $from:expr;)*) => {$(
        impl Field for $of {
            const SQL: &'static str = <$like>::SQL;
            fn value(&self) -> Value {
                let to: fn(&Self) -> $like = $to;
                to(self).value()
            }
            fn of(value: &Value) -> Self {
                let from: fn($like) -> Self = $from;
                from(<$like>::of(value))
            }
        }
    )*};
}

like! {
    u32 as u64: |n| u64::from(*n), |n| n.try_into().unwrap_or(Self::MAX);
    Duration as u64: |d| d.as_micros(), Self::from_micros;
    ByteCount as u64: |b| b.get(), ByteCount;
    DataRate as u64: |r| r.as_bps(), Self::from_bps;
    Kind as String: |k| k.word().to_owned(), |w| Self::from_word(&w).unwrap_or_default();
    Side as String: |s| s.word().to_owned(), |w| Self::from_word(&w).unwrap_or_default();
    Role as String: |r| r.word().to_owned(), |w| Self::from_word(&w).unwrap_or_default();
    Ended as String: |e| e.word().to_owned(), |w| Self::from_word(&w).unwrap_or_default();
    Vec<Point> as String: |list| json(list), |text| read_json(&text);
    Vec<TransportBytes> as String: |list| json(list), |text| read_json(&text);
    Vec<StreamSample> as String: |list| json(list), |text| read_json(&text);
}

fn json<T: Serialize>(list: &Vec<T>) -> String {
    if list.is_empty() { String::new() } else { serde_json::to_string(list).unwrap_or_default() }
}

fn read_json<T: DeserializeOwned>(text: &str) -> Vec<T> {
    serde_json::from_str(text).unwrap_or_default()
}

pub(crate) fn sql_of<T: Field>(_: fn(&Row) -> &T) -> &'static str {
    T::SQL
}

/// Defines the row and its columns from one list.
macro_rules! columns {
    (
        $(#[$doc:meta])* $row:ident
        $($(#[$field_doc:meta])* $field:ident: $type:ty = $name:literal,)*
    ) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        #[serde(default)]
        pub struct $row { $($(#[$field_doc])* pub $field: $type,)* }

        /// Every column, in the order of exports.
        pub(crate) const COLUMNS: &[Column] = &[$(Column {
            name: $name,
            sql: || sql_of(|row| &row.$field),
            get: |row| crate::column::Field::value(&row.$field),
            set: |row, value| row.$field = crate::column::Field::of(value),
        },)*];
    };
}
pub(crate) use columns;

/// The columns of an export: all except those that only `diagnose` reads.
fn exported() -> impl Iterator<Item = &'static Column> {
    COLUMNS.iter().filter(|column| column.name != "evidence")
}

/// The column names of an export, in order.
pub fn column_names() -> impl Iterator<Item = &'static str> {
    exported().map(|column| column.name)
}

/// The values of a row, in the order of [`column_names`].
pub fn values(row: &Row) -> impl Iterator<Item = (&'static str, Value)> {
    exported().map(|column| (column.name, (column.get)(row)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_row_survives_its_columns(
            text in ".{0,20}",
            n in 0..=i64::MAX as u64,
            few in any::<Option<u32>>(),
            real in any::<Option<f32>>(),
            points in proptest::collection::vec((0..1u64 << 50, any::<u32>()), 0..5),
        ) {
            let points: Vec<Point> = points
                .into_iter()
                .map(|(at, rate)| Point {
                    at: Duration::from_nanos(at),
                    rate: DataRate::from_bps(rate.into()),
                })
                .collect();
            let row = Row {
                key: text.replace('\0', "-"),
                // Columns have a resolution of microseconds.
                began: Duration::from_micros(n / 1_000),
                bytes: ByteCount(n),
                streams: few,
                p_cpu: real.map(f64::from).filter(|p| p.is_finite()),
                ended: Ended::ALL[n as usize % Ended::ALL.len()],
                series: points,
                ..Row::default()
            };
            let mut back = Row::default();
            for column in COLUMNS {
                (column.set)(&mut back, &(column.get)(&row));
            }
            prop_assert_eq!(back, row);
        }
    }
}
