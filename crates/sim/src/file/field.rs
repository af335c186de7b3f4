//! Typed access to values: each reading returns a value or an error with file, line and field.

use std::cell::RefCell;

use packtrain_units::{ByteCount, DataRate, Duration, parse_bytes, parse_duration, parse_rate};

use super::error::{FileError, position, suggestion};
use super::tree::{Kind, Place, Table, Value};

/// Reads a file that a scenario names.
pub(super) type Include = Box<dyn Fn(&str) -> Result<String, String> + Send + Sync>;

/// The sources for error positions, and access to other files.
pub(super) struct Source {
    /// Name of the file.
    pub(super) name: String,
    /// Its text.
    pub(super) text: String,
    /// The `--set` arguments.
    pub(super) sets: Vec<String>,
    /// Reads other files.
    pub(super) include: Include,
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Source").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Source {
    /// An error at a position.
    pub(super) fn error(
        &self,
        place: Place,
        field: impl Into<String>,
        what: impl Into<String>,
    ) -> FileError {
        let (source_name, position) = match place {
            Place::Text(at) => (self.name.clone(), Some(position(&self.text, at))),
            Place::Set(index) => {
                let set = self.sets.get(index).map_or("", String::as_str);
                (format!("--set {set}"), None)
            }
        };
        FileError { source_name, position, field: field.into(), what: what.into() }
    }
}

/// A table being read: records which keys were read, so that others are refused.
pub(super) struct Fields<'a> {
    source: &'a Source,
    table: &'a Table,
    path: String,
    place: Place,
    known: RefCell<Vec<&'static str>>,
}

/// A value being read.
#[derive(Clone)]
pub(super) struct Field<'a> {
    pub(super) source: &'a Source,
    pub(super) value: &'a Value,
    /// Its path from the top of the file.
    pub(super) path: String,
}

type Read<T> = Result<T, FileError>;

impl<'a> Fields<'a> {
    pub(super) fn new(source: &'a Source, table: &'a Table, path: &str, place: Place) -> Self {
        Self { source, table, path: path.to_owned(), place, known: RefCell::default() }
    }

    /// The value of `key`, if present.
    pub(super) fn get(&self, key: &'static str) -> Option<Field<'a>> {
        self.known.borrow_mut().push(key);
        let value = self.table.get(key)?;
        Some(Field { source: self.source, value, path: self.join(key) })
    }

    /// The value of `key`, which is required; `example` is for the error message.
    pub(super) fn need(&self, key: &'static str, example: &str) -> Read<Field<'a>> {
        self.get(key).ok_or_else(|| {
            self.source.error(
                self.place,
                self.join(key),
                format!("is missing: write `{key} = {example}`"),
            )
        })
    }

    /// Applies `read` to the value of `key`, if present.
    pub(super) fn map<T>(
        &self,
        key: &'static str,
        read: impl FnOnce(&Field<'a>) -> Read<T>,
    ) -> Read<Option<T>> {
        self.get(key).map(|field| read(&field)).transpose()
    }

    /// Applies `read` to the value of `key`, or returns the default.
    pub(super) fn or<T>(
        &self,
        key: &'static str,
        default: T,
        read: impl FnOnce(&Field<'a>) -> Read<T>,
    ) -> Read<T> {
        Ok(self.map(key, read)?.unwrap_or(default))
    }

    /// An error about the table as a whole.
    pub(super) fn error(&self, what: impl Into<String>) -> FileError {
        self.source.error(self.place, self.path.clone(), what)
    }

    /// Refuses keys that were not read.
    pub(super) fn done(&self) -> Read<()> {
        let known = self.known.borrow();
        let Some(entry) = self.table.entries.iter().find(|e| !known.contains(&e.key.as_str()))
        else {
            return Ok(());
        };
        let mut known = known.clone();
        known.sort_unstable();
        known.dedup();
        let what = format!("there is no such key: {}", suggestion(&entry.key, &known));
        Err(self.source.error(entry.place, self.join(&entry.key), what))
    }

    fn join(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }
}

impl<'a> Field<'a> {
    /// An error at this value.
    pub(super) fn error(&self, what: impl Into<String>) -> FileError {
        self.source.error(self.value.place, self.path.clone(), what)
    }

    fn wrong(&self, wanted: &str) -> FileError {
        self.error(format!("{} is not {wanted}", self.value.kind.words()))
    }

    pub(super) fn text(&self, wanted: &str) -> Read<&'a str> {
        match &self.value.kind {
            Kind::Text(text) => Ok(text),
            _ => Err(self.wrong(wanted)),
        }
    }

    /// A name: letters, digits, dashes, underscores.
    pub(super) fn name(&self) -> Read<String> {
        let text = self.text("a name: write letters, digits, `-` and `_` in quotes")?;
        let good = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if text.is_empty() || text.len() > 64 || !text.chars().all(good) {
            let what = "is not a name: write 1 to 64 letters, digits, `-` and `_`";
            return Err(self.error(format!("\"{}\" {what}", text.escape_debug())));
        }
        Ok(text.to_owned())
    }

    pub(super) fn bool(&self) -> Read<bool> {
        match self.value.kind {
            Kind::Bool(value) => Ok(value),
            _ => Err(self.wrong("true or false")),
        }
    }

    pub(super) fn integer(&self, min: u64, max: u64) -> Read<u64> {
        let wanted = format!("a whole number from {min} to {max}");
        match self.value.kind {
            Kind::Integer(value, _) => u64::try_from(value)
                .ok()
                .filter(|value| (min..=max).contains(value))
                .ok_or_else(|| self.wrong(&wanted)),
            _ => Err(self.wrong(&wanted)),
        }
    }

    /// A number above `above`, at most `max`.
    pub(super) fn number(&self, above: f64, max: f64) -> Read<f64> {
        let value = match &self.value.kind {
            Kind::Integer(value, _) => *value as f64,
            Kind::Float(value, _) => *value,
            Kind::Text(text) => text.trim().parse().unwrap_or(f64::NAN),
            _ => f64::NAN,
        };
        if value > above && value <= max {
            return Ok(value);
        }
        let end = if max < 1e12 { format!(" and at most {max}") } else { String::new() };
        Err(self.wrong(&format!("a number above {above}{end}")))
    }

    /// A probability: `1e-4`, `"1e-4"`, `"0.01%"`.
    pub(super) fn probability(&self) -> Read<f64> {
        let value = match &self.value.kind {
            Kind::Integer(value, _) => *value as f64,
            Kind::Float(value, _) => *value,
            Kind::Text(text) => {
                let text = text.trim();
                match text.strip_suffix('%') {
                    Some(number) => number.trim().parse::<f64>().map_or(f64::NAN, |v| v / 100.0),
                    None => text.parse().unwrap_or(f64::NAN),
                }
            }
            _ => f64::NAN,
        };
        if (0.0..=1.0).contains(&value) {
            return Ok(value);
        }
        Err(self.wrong("a probability: write a number from 0 to 1, such as 1e-4, or \"0.01%\""))
    }

    /// `"10gbit"`.
    pub(super) fn rate(&self) -> Read<DataRate> {
        let text = self.quantity("a rate", ("100mbit", "mbit", "MB/s"))?;
        parse_rate(text).map_err(|error| self.error(error.to_string()))
    }

    /// A positive rate.
    pub(super) fn some_rate(&self) -> Read<DataRate> {
        let rate = self.rate()?;
        if rate == DataRate::ZERO {
            return Err(self.error("a rate of zero sends nothing: write a rate such as `100mbit`"));
        }
        Ok(rate)
    }

    /// `"250ms"`.
    pub(super) fn duration(&self) -> Read<Duration> {
        let text = self.quantity("a time", ("250ms", "s", "ms"))?;
        let span = parse_duration(text).map_err(|error| self.error(error.to_string()))?;
        if span > MAX_SIMULATED_TIME {
            return Err(self.error("is longer than a year: write less"));
        }
        Ok(span)
    }

    /// A positive time.
    pub(super) fn some_duration(&self) -> Read<Duration> {
        let span = self.duration()?;
        if span.is_zero() {
            return Err(self.error("must be more than zero: write a time such as `250ms`"));
        }
        Ok(span)
    }

    /// `"64KiB"`.
    pub(super) fn bytes(&self) -> Read<ByteCount> {
        let text = self.quantity("a size", ("64KiB", "B", "KiB"))?;
        parse_bytes(text).map_err(|error| self.error(error.to_string()))
    }

    /// A size within bounds.
    pub(super) fn size(&self, min: u64, max: u64) -> Read<ByteCount> {
        let size = self.bytes()?;
        if !(min..=max).contains(&size.get()) {
            let what = format!("{} bytes cannot be: write {min}B to {max}B", size.get());
            return Err(self.error(what));
        }
        Ok(size)
    }

    /// The text of a quantity; the error for a bare number shows both possible units.
    fn quantity(&self, what: &str, (example, first, second): (&str, &str, &str)) -> Read<&'a str> {
        let bare = match &self.value.kind {
            Kind::Integer(_, text) | Kind::Float(_, text) => text,
            Kind::Text(text) => text,
            _ => return Err(self.wrong(&format!("{what}: write \"{example}\""))),
        };
        let text = bare.trim();
        if text.starts_with('-') {
            return Err(
                self.error(format!("`{text}` is below zero: write {what} such as \"{example}\""))
            );
        }
        let number = matches!(self.value.kind, Kind::Integer(..) | Kind::Float(..));
        if number || text.parse::<f64>().is_ok() {
            let text = text.trim_start_matches('+');
            return Err(self.error(format!(
                "`{text}` needs a unit: write \"{text}{first}\" or \"{text}{second}\""
            )));
        }
        Ok(text)
    }

    /// One of several words.
    pub(super) fn choice<T: Copy>(&self, choices: &[(&str, T)]) -> Read<T> {
        let names: Vec<_> = choices.iter().map(|(name, _)| *name).collect();
        let list = names.iter().map(|n| format!("\"{n}\"")).collect::<Vec<_>>().join(", ");
        let text = self.text(&format!("one of {list}"))?;
        if let Some((_, value)) = choices.iter().find(|(name, _)| *name == text) {
            return Ok(*value);
        }
        Err(self.error(format!("there is no `{text}`: {}", suggestion(text, &names))))
    }

    pub(super) fn list(&self, wanted: &str) -> Read<Vec<Field<'a>>> {
        let Kind::List(items) = &self.value.kind else { return Err(self.wrong(wanted)) };
        let item = |(index, value)| Field {
            source: self.source,
            value,
            path: format!("{}[{index}]", self.path),
        };
        Ok(items.iter().enumerate().map(item).collect())
    }

    pub(super) fn table(&self, wanted: &str) -> Read<Fields<'a>> {
        match &self.value.kind {
            Kind::Table(table) => Ok(Fields::new(self.source, table, &self.path, self.value.place)),
            _ => Err(self.wrong(wanted)),
        }
    }

    pub(super) fn is_table(&self) -> bool {
        matches!(self.value.kind, Kind::Table(_))
    }

    pub(super) fn is_list(&self) -> bool {
        matches!(self.value.kind, Kind::List(_))
    }

    pub(super) fn is_text(&self) -> bool {
        matches!(self.value.kind, Kind::Text(_))
    }
}

/// Maximum of a simulated time: sums of a few never reach the end of the clock.
const MAX_SIMULATED_TIME: Duration = Duration::from_secs(366 * 24 * 3_600);
