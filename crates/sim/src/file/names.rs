//! Names of nodes.

use std::collections::HashMap;

use super::error::{FileError, suggestion};
use super::field::Field;

/// The nodes, in the order in which they were first named.
#[derive(Debug, Default)]
pub(super) struct Names {
    list: Vec<String>,
    index: HashMap<String, usize>,
}

impl Names {
    /// The node named by `field`; a new name adds a node.
    pub(super) fn named(&mut self, field: &Field<'_>) -> Result<usize, FileError> {
        let name = field.name()?;
        Ok(*self.index.entry(name).or_insert_with_key(|name| {
            self.list.push(name.clone());
            self.list.len() - 1
        }))
    }

    /// The node named by `field`, which must exist.
    pub(super) fn known(&self, field: &Field<'_>) -> Result<usize, FileError> {
        let name = field.text("the name of a node")?;
        self.index.get(name).copied().ok_or_else(|| {
            let known: Vec<_> = self.list.iter().map(String::as_str).collect();
            let what = format!("no link has a node `{name}`: {}", suggestion(name, &known));
            field.error(what)
        })
    }

    pub(super) fn list(&self) -> &[String] {
        &self.list
    }
}
