//! Columns: their types, and the conversion from and to a row.

use packtrain_units::{ByteCount, DataRate, Duration};

use crate::value::Value;

/// One column.
pub(crate) struct Column<R> {
    /// Its name, with the unit.
    pub(crate) name: &'static str,
    /// Its SQL type, which both databases support.
    #[cfg_attr(not(test), allow(dead_code, reason = "tests compare it with the schema"))]
    pub(crate) sql: fn() -> &'static str,
    pub(crate) get: fn(&R) -> Value,
    pub(crate) set: fn(&mut R, &Value),
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
        impl $crate::column::Field for $of {
            const SQL: &'static str = <$like as $crate::column::Field>::SQL;
            fn value(&self) -> $crate::value::Value {
                let to: fn(&Self) -> $like = $to;
                $crate::column::Field::value(&to(self))
            }
            fn of(value: &$crate::value::Value) -> Self {
                let from: fn($like) -> Self = $from;
                from(<$like as $crate::column::Field>::of(value))
            }
        }
    )*};
}

pub(crate) use like;

like! {
    u32 as u64: |n| u64::from(*n), |n| n.try_into().unwrap_or(Self::MAX);
    Duration as u64: |d| d.as_micros(), Self::from_micros;
    ByteCount as u64: |b| b.get(), ByteCount;
    DataRate as u64: |r| r.as_bps(), Self::from_bps;
}

pub(crate) fn sql_of<R, T: Field>(_: fn(&R) -> &T) -> &'static str {
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
        pub(crate) const COLUMNS: &[Column<$row>] = &[$(Column {
            name: $name,
            sql: || sql_of(|row: &$row| &row.$field),
            get: |row| crate::column::Field::value(&row.$field),
            set: |row, value| row.$field = crate::column::Field::of(value),
        },)*];
    };
}
pub(crate) use columns;
