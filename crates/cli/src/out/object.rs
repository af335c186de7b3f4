//! JSON objects of the output, built field by field.

use serde::{Serialize, Serializer};
use serde_json::value::{RawValue, to_raw_value};

/// A JSON object whose fields are in the order in which they were added.
#[derive(Default)]
pub(crate) struct Object(Vec<(String, Box<RawValue>)>);

impl Object {
    /// An object whose first field is its kind, `event`.
    pub(crate) fn event(kind: &str) -> Self {
        Self::default().with("event", kind)
    }

    /// The last event of a command.
    pub(crate) fn done(ok: bool, exit_code: u8) -> Self {
        Self::event("done").with("ok", ok).with("exit_code", exit_code)
    }

    /// Adds a field.
    pub(crate) fn with(mut self, name: &str, value: impl Serialize) -> Self {
        // Only maps with keys other than text have no JSON, and no output has them.
        if let Ok(value) = to_raw_value(&value) {
            self.0.push((name.to_owned(), value));
        }
        self
    }

    /// Adds a field if it has a value.
    pub(crate) fn with_some(self, name: &str, value: Option<impl Serialize>) -> Self {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }
}

impl Serialize for Object {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}
