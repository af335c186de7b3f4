//! Errors in a scenario file, with position and correction.

/// An error in a scenario.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.sentence())]
pub struct FileError {
    /// The file, or the argument that changed a value of it.
    pub source_name: String,
    /// Line and column, from one; none for a missing value.
    pub position: Option<(usize, usize)>,
    /// The field, such as `link.bottleneck.rate`; empty if the text is not valid TOML.
    pub field: String,
    /// The error and its correction.
    pub what: String,
}

impl FileError {
    fn sentence(&self) -> String {
        let mut text = self.source_name.clone();
        if let Some((line, column)) = self.position {
            text.push_str(&format!(":{line}:{column}"));
        }
        if !self.field.is_empty() {
            text.push_str(&format!(": {}", self.field));
        }
        format!("{text}: {}", self.what)
    }
}

/// Line and column of a byte of a text, from one; columns count characters.
pub(super) fn position(text: &str, at: usize) -> (usize, usize) {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    let before = &text[..at];
    let start = before.rfind('\n').map_or(0, |newline| newline + 1);
    (before.matches('\n').count() + 1, before[start..].chars().count() + 1)
}

/// The name most similar to `word`, if one is similar.
pub(super) fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let (distance, name) = known.iter().map(|name| (distance(word, name), *name)).min()?;
    (distance <= 1 + word.chars().count() / 3).then_some(name)
}

/// "did you mean `x`?", or the list of valid names.
pub(super) fn suggestion(word: &str, known: &[&str]) -> String {
    if let Some(name) = nearest(word, known) {
        return format!("did you mean `{name}`?");
    }
    if known.is_empty() {
        return "there is none here".to_owned();
    }
    const SHOWN: usize = 24;
    let more = if known.len() > SHOWN { " ..." } else { "" };
    let list: Vec<_> = known.iter().take(SHOWN).map(|name| format!("`{name}`")).collect();
    format!("known here: {}{more}", list.join(", "))
}

/// The edit distance (Levenshtein 1966).
fn distance(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.chars().take(64).collect();
    let b: Vec<char> = b.chars().take(64).collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}
