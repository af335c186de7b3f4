//! The README and the guide as the tests read them.

use std::fs;
use std::path::{Path, PathBuf};

/// The top of the source tree.
#[must_use]
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// All pages of the guide, relative to [`root`] and sorted.
///
/// # Panics
/// If a folder of the guide cannot be read.
#[must_use]
pub fn guide() -> Vec<PathBuf> {
    let (mut pages, mut folders) = (Vec::new(), vec![PathBuf::from("docs/guide")]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root().join(&folder)).expect("the guide").flatten() {
            let path = folder.join(entry.file_name());
            if entry.path().is_dir() { folders.push(path) } else { pages.push(path) }
        }
    }
    pages.sort();
    pages
}

/// The text of a page.
///
/// # Panics
/// If it cannot be read.
#[must_use]
pub fn text(page: &Path) -> String {
    fs::read_to_string(root().join(page)).unwrap_or_else(|e| panic!("{}: {e}", page.display()))
}

/// A block of shell, or of what a screen shows, in a page.
#[derive(Debug)]
pub struct Block {
    /// The number of its first line in the page.
    pub line: usize,
    /// Its lines.
    pub text: String,
}

/// The blocks of shell in a page.
///
/// # Panics
/// If the page cannot be read.
#[must_use]
pub fn shell_blocks(page: &Path) -> Vec<Block> {
    blocks(page, "sh")
}

/// The blocks in a page that show what a screen shows.
///
/// # Panics
/// If the page cannot be read.
#[must_use]
pub fn screen_blocks(page: &Path) -> Vec<Block> {
    blocks(page, "text")
}

fn blocks(page: &Path, wanted: &str) -> Vec<Block> {
    let mut all: Vec<Block> = Vec::new();
    let mut language = None;
    for (number, line) in text(page).lines().enumerate() {
        if let Some(name) = line.trim_start().strip_prefix("```") {
            language = if language.is_some() { None } else { Some(name.to_owned()) };
            if language.as_deref() == Some(wanted) {
                all.push(Block { line: number + 2, text: String::new() });
            }
        } else if let (true, Some(block)) = (language.as_deref() == Some(wanted), all.last_mut()) {
            block.text.push_str(line);
            block.text.push('\n');
        }
    }
    all
}
