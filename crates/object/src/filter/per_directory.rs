//! Files of rules in the directories of the source (rsync's `dir-merge`).
//!
//! The rule `: FILE` stands for the rules in the files of that name. The rules of a file apply to
//! the names below its directory. Those of a deeper directory come first, and all of them have the
//! place of the rule `: FILE` among the other rules. A pattern with a leading slash is anchored at
//! the directory of its file. Each line is a rule, except empty lines and those that begin with `#`
//! or `;`. A line `!` drops the rules before it, those of directories above included.
//!
//! Modifiers: `-` and `+` make each line a pattern to exclude or include, `n` limits the rules to
//! the names directly in the directory of the file, `w` separates rules by white space (a rule is
//! then `-_PATTERN`), `s` and `r` limit them to the source or the target, and `0` ends each rule
//! with a zero byte.

use std::collections::HashMap;

use crate::path::directories_above;

use super::{FilterError, Filters, Parsed, Rule, Sides, parse, shown};

/// Maximum number of rules `: FILE` in a request.
pub const MAX_RULES_OF_FILES: usize = 16;
/// Maximum size of one file, in bytes.
pub const MAX_FILE_BYTES: usize = 64 << 10;
/// Maximum bytes of the files that apply at the same time or travel to a sink.
pub const MAX_TEXT_BYTES: usize = 2 << 20;
/// Maximum number of rules in these files.
pub const MAX_FILE_RULES: usize = 65_536;
/// Maximum bytes of the paths of the directories that have them.
pub const MAX_DIR_BYTES: usize = 16 << 20;

/// The rule `: FILE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DirMerge {
    name: Vec<u8>,
    /// Each line is a pattern to include or exclude.
    patterns: Option<bool>,
    no_inherit: bool,
    words: bool,
    zero: bool,
    sides: Sides,
}

impl DirMerge {
    /// Parses what follows the sign of `rule`.
    pub(super) fn parse(rule: &[u8], rest: &[u8]) -> Result<Self, FilterError> {
        let mut files = Self {
            name: Vec::new(),
            patterns: None,
            no_inherit: false,
            words: false,
            zero: false,
            sides: Sides::default(),
        };
        let mut rest = rest.strip_prefix(b",").unwrap_or(rest);
        loop {
            match rest {
                [b' ' | b'_', name @ ..] => {
                    files.name = name.to_vec();
                    break;
                }
                [b'-', ..] => files.patterns = Some(false),
                [b'+', ..] => files.patterns = Some(true),
                [b'n', ..] => files.no_inherit = true,
                [b'w', ..] => files.words = true,
                [b'0', ..] => files.zero = true,
                [b's', ..] => files.sides.source = true,
                [b'r', ..] => files.sides.target = true,
                [] => break,
                _ => return Err(FilterError::Unknown(shown(rule))),
            }
            rest = &rest[1..];
        }
        let bad = |name: &[u8]| matches!(name, b"" | b"." | b"..");
        if bad(&files.name)
            || files.name.len() > 255
            || files.name.iter().any(|b| matches!(b, b'/' | 0))
        {
            return Err(FilterError::FileName(shown(rule)));
        }
        Ok(files)
    }

    pub(super) fn name(&self) -> &[u8] {
        &self.name
    }

    pub(super) fn to_text(&self) -> Vec<u8> {
        let mut text = vec![b':'];
        text.extend(self.patterns.map(|include| if include { b'+' } else { b'-' }));
        text.extend(self.no_inherit.then_some(b'n'));
        text.extend(self.words.then_some(b'w'));
        text.extend(self.zero.then_some(b'0'));
        text.extend_from_slice(match self.sides {
            Sides::BOTH => b"sr",
            sides => sides.modifier(),
        });
        text.push(b' ');
        text.extend_from_slice(&self.name);
        text
    }

    /// The rules in a file, and whether those of directories above are dropped.
    fn rules(&self, text: &[u8]) -> Result<FileRules, FilterError> {
        let (mut rules, mut clears) = (Vec::new(), false);
        let mut take = |line: &[u8]| {
            match self.line(line)? {
                Parsed::Rule(rule) => rules.push(rule),
                Parsed::Files(_) => return Err(FilterError::Unknown(shown(line))),
                Parsed::Clear => {
                    rules.clear();
                    clears = true;
                }
            }
            Ok(())
        };
        let is_end = |b: &u8| if self.zero { *b == 0 } else { matches!(b, b'\n' | b'\r' | 0) };
        if self.words {
            let words = text.split(|b| b.is_ascii_whitespace() || is_end(b));
            for word in words.filter(|word| !word.is_empty()) {
                take(word)?;
            }
        } else {
            let lines = text.split(is_end).filter(|line| !line.is_empty());
            for line in lines.filter(|line| !matches!(line[0], b'#' | b';')) {
                take(line)?;
            }
        }
        Ok(FileRules { rules, clears, number: 0, text: text.len() })
    }

    fn line(&self, line: &[u8]) -> Result<Parsed, FilterError> {
        if let Some(include) = self.patterns {
            let sides = if self.sides == Sides::default() { Sides::BOTH } else { self.sides };
            return Rule::new(include, false, sides, line).map(Parsed::Rule);
        }
        let mut parsed = parse(line)?;
        if let Parsed::Rule(rule) = &mut parsed
            && self.sides != Sides::default()
        {
            if rule.sides != Sides::BOTH {
                return Err(FilterError::TwoSides(shown(line)));
            }
            rule.sides = self.sides;
        }
        Ok(parsed)
    }
}

/// The rules of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct FileRules {
    rules: Vec<Rule>,
    /// Those of directories above are dropped.
    clears: bool,
    /// Which of the rules `: FILE` named it.
    number: u32,
    /// Its size in bytes.
    text: usize,
}

/// The files of rules that were found, by their directories.
#[derive(Clone, Debug, Default)]
pub(super) struct FoundFiles {
    by_dir: HashMap<Vec<u8>, Vec<FileRules>>,
    text: usize,
    rules: usize,
    /// Bytes of the paths in `by_dir`.
    dirs: usize,
}

impl FoundFiles {
    /// What the files of the rule `files`, the one with this number, decide about a path.
    pub(super) fn decision(
        &self,
        files: &DirMerge,
        number: u32,
        path: &[u8],
        is_dir: bool,
        applies: &impl Fn(Sides) -> bool,
    ) -> Option<bool> {
        if self.by_dir.is_empty() {
            return None;
        }
        let dirs = directories_above(path).rev().map(|dir| (dir, &path[dir.len() + 1..]));
        let root = (&path[..0], path);
        for (dir, below) in dirs.chain([root]).take(if files.no_inherit { 1 } else { usize::MAX }) {
            let Some(found) = self.by_dir.get(dir) else { continue };
            let Some(file) = found.iter().find(|file| file.number == number) else { continue };
            for rule in file.rules.iter().filter(|rule| applies(rule.sides)) {
                let text = if rule.pattern.is_anchored() { below } else { path };
                if rule.pattern.matches(text, is_dir) != rule.negated {
                    return Some(rule.include);
                }
            }
            if file.clears {
                return None;
            }
        }
        None
    }

    fn remove(&mut self, dir: &[u8]) {
        let Some(files) = self.by_dir.remove(dir) else { return };
        self.dirs -= dir.len();
        for file in files {
            self.text -= file.text;
            self.rules -= file.rules.len();
        }
    }
}

/// Filter rules with the files of rules that were found in a tree.
#[derive(Clone, Debug, Default)]
pub struct TreeFilter {
    filters: Filters,
    found: FoundFiles,
}

impl TreeFilter {
    /// These rules, before any file is found.
    pub fn new(filters: Filters) -> Self {
        Self { filters, found: FoundFiles::default() }
    }

    /// The names of the files to look for in each directory, in the order of their rules.
    pub fn file_names(&self) -> impl Iterator<Item = (u32, &[u8])> {
        (0..).zip(self.filters.files().map(|files| &files.name[..]))
    }

    /// Whether there are files to look for.
    pub fn has_files(&self) -> bool {
        self.filters.has_files()
    }

    /// Adds the content of a file: `number` is that of its rule, and `dir` the path of its directory
    /// relative to the root of the transfer. False if it has no rule.
    ///
    /// # Errors
    /// A rule in it is invalid, there is no rule of this number, the file was added before, or the
    /// files exceed [`MAX_TEXT_BYTES`], [`MAX_FILE_RULES`] or [`MAX_DIR_BYTES`].
    pub fn add_file(&mut self, number: u32, dir: &[u8], text: &[u8]) -> Result<bool, FilterError> {
        let files = usize::try_from(number).ok().and_then(|at| self.filters.files().nth(at));
        let Some(files) = files else { return Err(FilterError::Unknown(format!(": {number}"))) };
        let found = &mut self.found;
        let room = MAX_TEXT_BYTES.saturating_sub(found.text);
        if text.len() > room.min(MAX_FILE_BYTES) {
            return Err(FilterError::TooManyRules);
        }
        let file = FileRules { number, ..files.rules(text)? };
        if file.rules.is_empty() && !file.clears {
            return Ok(false);
        }
        // Each file counts as one more rule, so that the number of files is limited, too.
        if found.rules + found.by_dir.len() + file.rules.len() >= MAX_FILE_RULES {
            return Err(FilterError::TooManyRules);
        }
        if !found.by_dir.contains_key(dir) {
            if found.dirs + dir.len() > MAX_DIR_BYTES {
                return Err(FilterError::TooManyRules);
            }
            found.dirs += dir.len();
        }
        let of_dir = found.by_dir.entry(dir.to_vec()).or_default();
        if of_dir.iter().any(|file| file.number == number) {
            return Err(FilterError::TooManyRules);
        }
        found.text += text.len();
        found.rules += file.rules.len();
        of_dir.push(file);
        Ok(true)
    }

    /// Forgets the files of a directory whose names were all tested.
    pub fn leave(&mut self, dir: &[u8]) {
        self.found.remove(dir);
    }

    /// Forgets all files.
    pub fn clear_files(&mut self) {
        self.found = FoundFiles::default();
    }

    /// As [`Filters::excludes`], with the files found so far.
    pub fn excludes(&self, path: &[u8], is_dir: bool) -> bool {
        let decision =
            || self.filters.decision(Some(&self.found), path, is_dir, |side| side.source);
        !path.is_empty() && decision() == Some(false)
    }

    /// As [`Filters::protects`], with the files found so far.
    pub fn protects(&self, path: &[u8], is_dir: bool) -> bool {
        let decision =
            || self.filters.decision(Some(&self.found), path, is_dir, |side| side.target);
        !path.is_empty() && decision() == Some(false)
    }

    /// Whether `path` or a directory above it is excluded.
    pub fn excludes_within(&self, path: &[u8], is_dir: bool) -> bool {
        if self.filters.rules.is_empty() {
            return false;
        }
        directories_above(path).any(|dir| self.excludes(dir, true)) || self.excludes(path, is_dir)
    }
}

#[cfg(test)]
#[path = "per_directory_tests.rs"]
mod tests;
