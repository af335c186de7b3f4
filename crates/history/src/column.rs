//! Columns: their types, and the conversion from and to a row.

use packtrain_units::{ByteCount, DataRate, Duration};

use crate::value::Value;

/// One column.
pub(crate) struct Column<R> {
    /// Its name, with the unit.
    pub(crate) name: &'static str,
    /// The version of the schema that has added it.
    pub(crate) since: i64,
    /// Its SQL type, which both databases support.
    sql: &'static str,
    nullable: bool,
    pub(crate) get: fn(&R) -> Value,
    pub(crate) set: fn(&mut R, &Value),
}

impl<R> Column<R> {
    /// One column of the list of [`columns`].
    pub(crate) const fn of<T: Field>(
        name: &'static str,
        since: i64,
        get: fn(&R) -> Value,
        set: fn(&mut R, &Value),
    ) -> Self {
        Self { name, since, sql: T::SQL, nullable: T::NULLABLE, get, set }
    }

    /// Its definition in `CREATE TABLE` and `ADD COLUMN`. Rows that are older than the column get
    /// the empty value of its type.
    pub(crate) fn definition(&self) -> String {
        let constraint = match self.since {
            _ if self.name == "key" => " PRIMARY KEY NOT NULL",
            _ if self.nullable => "",
            1 => " NOT NULL",
            _ if self.sql == TEXT => " NOT NULL DEFAULT ''",
            _ => " NOT NULL DEFAULT 0",
        };
        format!("{} {}{constraint}", self.name, self.sql)
    }
}

/// A type that can be stored in a column.
pub(crate) trait Field {
    const SQL: &'static str;
    const NULLABLE: bool = false;
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
    const NULLABLE: bool = true;
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

/// Defines the row and its columns from one list. Columns without `since` are those of schema 1.
macro_rules! columns {
    (
        $(#[$doc:meta])* $row:ident
        $($(#[$field_doc:meta])* $field:ident: $type:ty = $name:literal $(since $since:literal)?,)*
    ) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        #[serde(default)]
        pub struct $row { $($(#[$field_doc])* pub $field: $type,)* }

        /// Every column, in the order of exports.
        pub(crate) const COLUMNS: &[Column<$row>] = &[$(Column::of::<$type>(
            $name,
            [$($since,)? 1][0],
            |row| crate::column::Field::value(&row.$field),
            |row, value| row.$field = crate::column::Field::of(value),
        ),)*];
    };
}
pub(crate) use columns;
