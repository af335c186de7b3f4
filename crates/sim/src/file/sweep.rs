//! `[sweep]`: axes of values; every combination runs with a number of seeds.

use packtrain_units::Duration;

use super::error::{FileError, suggestion};
use super::field::{Field, Source};
use super::link;
use super::tree::{Kind, Table, Value};

/// The axes of a sweep.
#[derive(Clone, Debug, Default)]
pub(super) struct Sweep {
    pub(super) axes: Vec<Axis>,
    /// Runs of each combination, each with its own seed.
    pub(super) repeat: u64,
    /// Flows of all runs of a combination but its first start up to this much later.
    pub(super) start_jitter: Duration,
    /// Total runs.
    pub(super) runs: u64,
}

/// Values for one path, or for several at once.
#[derive(Clone, Debug)]
pub(super) struct Axis {
    /// As written.
    name: String,
    pub(super) paths: Vec<String>,
    pub(super) values: Vec<Value>,
}

impl Sweep {
    /// Reads the optional table.
    pub(super) fn read(source: &Source, value: Option<&Value>) -> Result<Self, FileError> {
        let mut sweep = Self { axes: Vec::new(), repeat: 1, start_jitter: Duration::ZERO, runs: 1 };
        let Some(value) = value else { return Ok(sweep) };
        let field = Field { source, value, path: "sweep".to_owned() };
        let Kind::Table(table) = &value.kind else {
            return Err(field.error("is not a table: write [sweep]"));
        };
        for entry in &table.entries {
            let path = format!("sweep.{}", entry.key);
            let field = Field { source, value: &entry.value, path };
            if entry.key == "repeat" {
                sweep.repeat = field.integer(1, 1_000_000_000)?;
            } else if entry.key == "start_jitter" {
                sweep.start_jitter = field.duration()?;
            } else {
                sweep.axis(&entry.key, &field)?;
            }
        }
        sweep.runs = sweep
            .axes
            .iter()
            .try_fold(sweep.repeat, |runs, axis| runs.checked_mul(axis.values.len() as u64))
            .filter(|runs| *runs <= 1 << 50)
            .ok_or_else(|| field.error("has more than 2^50 runs: take some values out"))?;
        Ok(sweep)
    }

    /// Takes a list as an axis; nested tables are parts of its path.
    fn axis(&mut self, name: &str, field: &Field<'_>) -> Result<(), FileError> {
        match &field.value.kind {
            Kind::Table(table) => {
                for entry in &table.entries {
                    let name = format!("{name}.{}", entry.key);
                    let path = format!("sweep.{name}");
                    self.axis(&name, &Field { source: field.source, value: &entry.value, path })?;
                }
                Ok(())
            }
            Kind::List(values) if !values.is_empty() => {
                let paths = name.split(',').map(|path| path.trim().to_owned()).collect();
                self.axes.push(Axis { name: name.to_owned(), paths, values: values.clone() });
                Ok(())
            }
            _ => Err(field.error("is not a list of values: write [1e-4, 1e-3] or the like")),
        }
    }

    /// The indices into each axis's values, and the repetition, of a run: the last axis
    /// changes fastest, and repetitions faster still.
    pub(super) fn indices(&self, run: u64) -> (Vec<usize>, u64) {
        let repetition = run % self.repeat;
        let mut rest = run / self.repeat;
        let mut indices = vec![0; self.axes.len()];
        for (index, axis) in indices.iter_mut().zip(&self.axes).rev() {
            let count = axis.values.len() as u64;
            *index = (rest % count) as usize;
            rest /= count;
        }
        (indices, repetition)
    }
}

impl Axis {
    /// Applies the values of a run.
    pub(super) fn apply(
        &self,
        source: &Source,
        top: &mut Table,
        value: &Value,
    ) -> Result<(), FileError> {
        if let Kind::List(items) = &value.kind
            && self.paths.len() > 1
            && items.len() != self.paths.len()
        {
            let what = format!("has {} values for {} paths", items.len(), self.paths.len());
            return Err(source.error(value.place, format!("sweep.{}", self.name), what));
        }
        for (index, path) in self.paths.iter().enumerate() {
            set(source, top, path, self.part(value, index).clone())?;
        }
        Ok(())
    }

    /// The part of a value for path `index`: all of it, if there is one path or one value.
    pub(super) fn part<'v>(&self, value: &'v Value, index: usize) -> &'v Value {
        match &value.kind {
            Kind::List(items) if self.paths.len() > 1 => items.get(index).unwrap_or(value),
            _ => value,
        }
    }
}

/// Changes the value at a path such as `link.bottleneck.loss`.
pub(super) fn set(
    source: &Source,
    top: &mut Table,
    path: &str,
    value: Value,
) -> Result<(), FileError> {
    let place = value.place;
    let wrong = |what: String| source.error(place, path, what);
    let mut parts: Vec<&str> = path.split('.').map(str::trim).collect();
    let Some(last) = parts.pop().filter(|last| !last.is_empty()) else {
        return Err(wrong("is no path: write for example link.bottleneck.loss".to_owned()));
    };
    let mut table = top;
    let mut parts = parts.into_iter();
    while let Some(part) = parts.next() {
        let mut kind = &mut table.entry(part, place).kind;
        if let Kind::List(items) = kind {
            let Some(name) = parts.next() else {
                return Err(wrong(format!("which {part}? write {part}.NAME.{last}")));
            };
            let found = element(items, part, name).map_err(|known| {
                let known: Vec<_> = known.iter().map(String::as_str).collect();
                wrong(format!("there is no {part} `{name}`: {}", suggestion(name, &known)))
            })?;
            kind = &mut found.kind;
        }
        let Kind::Table(inner) = kind else {
            return Err(wrong(format!("`{part}` is a value and has no `{last}` in it")));
        };
        table = inner;
    }
    match table.get_mut(last) {
        Some(old) => *old = value,
        None => *table.entry(last, place) = value,
    }
    Ok(())
}

/// The element of this name, or the existing names.
fn element<'v>(items: &'v mut [Value], of: &str, name: &str) -> Result<&'v mut Value, Vec<String>> {
    let name_of = |(index, item)| named(item, of, index);
    let names: Vec<String> = items.iter().enumerate().map(name_of).collect();
    match names.iter().position(|known| known == name) {
        Some(at) => Ok(&mut items[at]),
        None => Err(names),
    }
}

/// The name of a link, flow or node in the tree, or its default name.
pub(super) fn named(value: &Value, of: &str, index: usize) -> String {
    let Kind::Table(table) = &value.kind else { return String::new() };
    let text = |key| match table.get(key).map(|value| &value.kind) {
        Some(Kind::Text(text)) => Some(text.as_str()),
        _ => None,
    };
    match (text("name"), text("from"), text("to")) {
        (Some(name), ..) => name.to_owned(),
        (None, Some(from), Some(to)) if of == "link" => link::name(None, from, to),
        _ => format!("{of}{}", index + 1),
    }
}
