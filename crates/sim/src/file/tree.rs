//! A TOML document as values with their positions.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::{FileError, position};

/// The position of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// At this byte of the file.
    Text(usize),
    /// In this `--set` argument.
    Set(usize),
}

/// A value and its position.
#[derive(Clone, Debug)]
pub(super) struct Value {
    pub(super) kind: Kind,
    pub(super) place: Place,
}

/// The type of a value. Numbers keep their text, for messages.
#[derive(Clone, Debug)]
pub(super) enum Kind {
    Text(String),
    Integer(i64, String),
    Float(f64, String),
    Bool(bool),
    Date(String),
    List(Vec<Value>),
    Table(Table),
}

/// Keys and values, by name.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    pub(super) entries: Vec<Entry>,
}

/// A key with its value.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) place: Place,
    pub(super) value: Value,
}

impl Table {
    pub(super) fn get(&self, key: &str) -> Option<&Value> {
        self.entries.iter().find(|entry| entry.key == key).map(|entry| &entry.value)
    }

    pub(super) fn get_mut(&mut self, key: &str) -> Option<&mut Value> {
        self.entries.iter_mut().find(|entry| entry.key == key).map(|entry| &mut entry.value)
    }

    pub(super) fn remove(&mut self, key: &str) -> Option<Value> {
        let at = self.entries.iter().position(|entry| entry.key == key)?;
        Some(self.entries.remove(at).value)
    }

    /// The value at `key`; inserts an empty table if there is none.
    pub(super) fn entry(&mut self, key: &str, place: Place) -> &mut Value {
        let at = self.entries.iter().position(|entry| entry.key == key).unwrap_or_else(|| {
            let value = Value { kind: Kind::Table(Self::default()), place };
            self.entries.push(Entry { key: key.to_owned(), place, value });
            self.entries.len() - 1
        });
        &mut self.entries[at].value
    }
}

impl Kind {
    /// A description of the value.
    pub(super) fn words(&self) -> String {
        match self {
            Self::Text(text) => format!("the text \"{}\"", shortened(text)),
            Self::Integer(_, text) | Self::Float(_, text) => format!("the number {text}"),
            Self::Bool(value) => format!("{value}"),
            Self::Date(text) => format!("the date {text}"),
            Self::List(_) => "a list".to_owned(),
            Self::Table(_) => "a table".to_owned(),
        }
    }

    /// The value as a cell of a results table: one word where possible.
    pub(super) fn shown(&self) -> String {
        match self {
            Self::Text(text) | Self::Integer(_, text) | Self::Float(_, text) => text.clone(),
            Self::Date(text) => text.clone(),
            Self::Bool(value) => value.to_string(),
            Self::List(items) => {
                let items: Vec<_> = items.iter().map(|item| item.kind.shown()).collect();
                format!("[{}]", items.join(" "))
            }
            Self::Table(table) => {
                let pair = |entry: &Entry| format!("{}={}", entry.key, entry.value.kind.shown());
                let pairs: Vec<_> = table.entries.iter().map(pair).collect();
                format!("{{{}}}", pairs.join(" "))
            }
        }
    }
}

/// The start of a long text.
fn shortened(text: &str) -> String {
    match text.char_indices().nth(60) {
        Some((at, _)) => format!("{}...", &text[..at]),
        None => text.to_owned(),
    }
}

/// Reads a file.
pub(super) fn parse(name: &str, text: &str) -> Result<Table, FileError> {
    let wrong = |error: toml::de::Error| FileError {
        source_name: name.to_owned(),
        position: Some(position(text, error.span().map_or(0, |span| span.start))),
        field: String::new(),
        what: error.message().trim().replace('\n', " "),
    };
    let document = DeTable::parse(text).map_err(wrong)?;
    table(document.get_ref(), &|span: usize| Place::Text(span)).map_err(|(at, what)| FileError {
        source_name: name.to_owned(),
        position: Some(position(text, at)),
        field: String::new(),
        what,
    })
}

/// Parses a value after `--set path=`: TOML, or a bare word as text.
pub(super) fn argument(text: &str, place: Place) -> Value {
    let parsed = DeValue::parse(text).ok();
    let read = parsed.and_then(|value| one(&value, &|_| place).ok());
    read.unwrap_or_else(|| Value { kind: Kind::Text(text.to_owned()), place })
}

type Wrong = (usize, String);

fn table(from: &DeTable<'_>, place: &dyn Fn(usize) -> Place) -> Result<Table, Wrong> {
    let mut entries = Vec::with_capacity(from.len());
    for (key, value) in from {
        entries.push(Entry {
            key: key.get_ref().to_string(),
            place: place(key.span().start),
            value: one(value, place)?,
        });
    }
    Ok(Table { entries })
}

fn one(from: &Spanned<DeValue<'_>>, place: &dyn Fn(usize) -> Place) -> Result<Value, Wrong> {
    let at = from.span().start;
    let kind = match from.get_ref() {
        DeValue::String(text) => Kind::Text(text.to_string()),
        DeValue::Integer(number) => {
            let digits = number.as_str();
            match i64::from_str_radix(digits, number.radix()) {
                Ok(value) => Kind::Integer(value, shortened(digits)),
                Err(_) => return Err((at, format!("{} is too large", shortened(digits)))),
            }
        }
        DeValue::Float(number) => {
            let digits = number.as_str();
            match digits.parse::<f64>() {
                Ok(value) => Kind::Float(value, shortened(digits)),
                Err(_) => return Err((at, format!("{} is no number", shortened(digits)))),
            }
        }
        DeValue::Boolean(value) => Kind::Bool(*value),
        DeValue::Datetime(date) => Kind::Date(date.to_string()),
        DeValue::Array(items) => {
            let items: Result<_, _> = items.iter().map(|item| one(item, place)).collect();
            Kind::List(items?)
        }
        DeValue::Table(inner) => Kind::Table(table(inner, place)?),
    };
    Ok(Value { kind, place: place(at) })
}
