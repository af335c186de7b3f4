//! Selects the paths of a tree to transfer, with rules in rsync's language: the first rule that
//! matches decides.
//!
//! A rule is `+ PATTERN` (include) or `- PATTERN` (exclude), at both ends or at one of them. A path that no rule matches is
//! included. An excluded directory is not entered, so the paths below it are not tested.
//!
//! - A pattern without a slash and without `**` is matched against the last name of the path; any
//!   other against the path from the transfer's root, and it may match from any directory on.
//! - A leading `/` anchors it at the root of the transfer.
//! - A trailing `/` makes it match directories only.
//! - `*` matches any bytes but a slash, `**` any bytes, `?` one byte but a slash, `[...]` one byte
//!   of a class; `\` quotes the next byte, in a pattern with one of these.
//! - `dir/***` matches `dir` itself and everything in it.
//!
//! The rule `: FILE` names files of rules in the directories of the source: see [`per_directory`].

mod pattern;
pub mod per_directory;

use pattern::Pattern;
use per_directory::DirMerge;

use crate::path::directories_above;

/// Why a filter rule is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    /// It is neither an include nor an exclude rule.
    #[error("filter rule `{0}` is not understood; write `+ PATTERN` or `- PATTERN`, or H, S, P, R")]
    Unknown(String),
    /// It has no pattern.
    #[error("filter rule `{0}` has no pattern")]
    NoPattern(String),
    /// A `[` has no `]`.
    #[error("pattern `{0}` has a `[` without its `]`; write `\\[` for the character itself")]
    OpenClass(String),
    /// It is longer than any path can be.
    #[error("a filter pattern is longer than 4096 bytes")]
    TooLong,
    /// A rule `: FILE` whose file cannot be in each directory.
    #[error("filter rule `{0}` needs the name of a file in each directory, without a slash")]
    FileName(String),
    /// A request has more than [`per_directory::MAX_RULES_OF_FILES`] rules `: FILE`.
    #[error(
        "more than {} filter rules for files in each directory",
        per_directory::MAX_RULES_OF_FILES
    )]
    TooManyFiles,
    /// A rule with a side in a file of a rule with a side.
    #[error("filter rule `{0}` names a side, and the rule that names its file does so too")]
    TwoSides(String),
    /// The files of a tree have too many rules.
    #[error("too many filter rules in the files of the source")]
    TooManyRules,
}

/// An ordered list of rules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filters {
    rules: Vec<Item>,
}

/// One item of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Item {
    Rule(Rule),
    /// The rules in files of this name.
    Files(DirMerge),
}

/// A parsed line.
enum Parsed {
    Rule(Rule),
    Files(DirMerge),
    /// Drops the rules before it.
    Clear,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    include: bool,
    /// The rule applies where the pattern does not match.
    negated: bool,
    sides: Sides,
    text: Vec<u8>,
    pattern: Pattern,
}

/// Where a rule applies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sides {
    /// At the source: it decides what is transferred.
    source: bool,
    /// At the target: it decides what `--delete` keeps.
    target: bool,
}

impl Sides {
    const BOTH: Self = Self { source: true, target: true };
    const SOURCE: Self = Self { source: true, target: false };
    const TARGET: Self = Self { source: false, target: true };
}

impl Filters {
    /// No rules: everything is included.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether there are no rules.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Adds the pattern of `--exclude`. As with rsync, a pattern that begins with `+ ` or `- ` is a
    /// rule of that kind, and `!` alone drops all rules before it.
    ///
    /// # Errors
    /// The pattern is invalid.
    pub fn exclude(&mut self, pattern: &[u8]) -> Result<(), FilterError> {
        self.old_style(false, pattern)
    }

    /// Adds the pattern of `--include`, with the same exceptions as [`Filters::exclude`].
    ///
    /// # Errors
    /// The pattern is invalid.
    pub fn include(&mut self, pattern: &[u8]) -> Result<(), FilterError> {
        self.old_style(true, pattern)
    }

    /// Adds the rule of `--filter`: `+ P`, `- P`, `include P`, `exclude P`, `!` or `clear`; `hide P`
    /// and `show P` (`H`, `S`), which apply at the source only; `protect P` and `risk P` (`P`, `R`),
    /// which apply at the target only, to what `--delete` removes. Modifiers after the sign: `!`
    /// negates the match, `s` and `r` limit the rule to the source or the target. `_` may replace
    /// the space. `: FILE` names files of rules in the directories of the source; its modifiers are
    /// those of [`per_directory`].
    ///
    /// # Errors
    /// The rule is unknown; other files of rules (`merge`) are for the caller to read.
    pub fn rule(&mut self, rule: &[u8]) -> Result<(), FilterError> {
        match parse(rule)? {
            Parsed::Clear => self.rules.clear(),
            Parsed::Rule(rule) => self.rules.push(Item::Rule(rule)),
            Parsed::Files(files) => {
                if self.files().count() == per_directory::MAX_RULES_OF_FILES {
                    return Err(FilterError::TooManyFiles);
                }
                self.rules.push(Item::Files(files));
            }
        }
        Ok(())
    }

    /// Whether a rule applies at one side only. Ends of protocol version 1 do not know such rules.
    pub fn has_sides(&self) -> bool {
        self.rules.iter().any(|item| match item {
            Item::Rule(rule) => rule.sides != Sides::BOTH,
            Item::Files(_) => false,
        })
    }

    /// Whether a rule names files of rules in the directories of the source. Ends before protocol
    /// version 3 do not know such rules.
    pub fn has_files(&self) -> bool {
        self.files().next().is_some()
    }

    /// Whether the rules leave out all files of rules themselves, whatever these say.
    pub fn exclude_own_files(&self) -> bool {
        // A rule that includes may hold for these files in some directories.
        let includes =
            |item: &Item| matches!(item, Item::Rule(rule) if rule.include && rule.sides.source);
        let first = self.rules.iter().position(includes).unwrap_or(self.rules.len());
        let before = Self { rules: self.rules[..first].to_vec() };
        // So may a rule that excludes.
        let dirs = [&b""[..], b"\xff/", b"\xff/\xfe/"];
        let excludes =
            |name: &[u8]| dirs.iter().all(|dir| before.excludes(&[dir, name].concat(), false));
        self.files().all(|files| excludes(files.name()))
    }

    fn files(&self) -> impl Iterator<Item = &DirMerge> {
        self.rules.iter().filter_map(|item| match item {
            Item::Files(files) => Some(files),
            Item::Rule(_) => None,
        })
    }

    /// Adds a file of rules (`--exclude-from`, `--include-from`), one per line; empty lines and
    /// those that begin with `#` or `;` are ignored. With `from0` rules end with NUL and all of
    /// them count.
    ///
    /// # Errors
    /// The first invalid rule.
    pub fn file(&mut self, include: bool, text: &[u8], from0: bool) -> Result<(), FilterError> {
        for line in lines(text, from0) {
            if !from0 && matches!(line.first(), Some(b'#' | b';')) {
                continue;
            }
            self.old_style(include, line)?;
        }
        Ok(())
    }

    /// Whether the source leaves out `path`, relative to the root of the transfer. Assumes that its
    /// directories are included. Of a list with files of rules, only the rules before the first of
    /// these count, because the others may be overridden by the files: use a
    /// [`TreeFilter`](per_directory::TreeFilter) where the files are known.
    pub fn excludes(&self, path: &[u8], is_dir: bool) -> bool {
        !path.is_empty() && self.decision(None, path, is_dir, |sides| sides.source) == Some(false)
    }

    /// Whether the target keeps `path` even if the source does not have it, with the exception of
    /// [`Filters::excludes`]. Assumes that the directories above it are not kept.
    pub fn protects(&self, path: &[u8], is_dir: bool) -> bool {
        !path.is_empty() && self.decision(None, path, is_dir, |sides| sides.target) == Some(false)
    }

    /// Whether the first rule that matches includes the path; `None` if no rule matches.
    fn decision(
        &self,
        found: Option<&per_directory::FoundFiles>,
        path: &[u8],
        is_dir: bool,
        applies: impl Fn(Sides) -> bool,
    ) -> Option<bool> {
        let mut number = 0;
        for item in &self.rules {
            match item {
                Item::Rule(rule) if !applies(rule.sides) => {}
                Item::Rule(rule) => {
                    if rule.pattern.matches(path, is_dir) != rule.negated {
                        return Some(rule.include);
                    }
                }
                Item::Files(files) => {
                    let decision = found?.decision(files, number, path, is_dir, &applies);
                    if decision.is_some() {
                        return decision;
                    }
                    number += 1;
                }
            }
        }
        None
    }

    /// Whether `path` or a directory above it is excluded: for a single path, as when deciding what
    /// may be deleted.
    pub fn excludes_within(&self, path: &[u8], is_dir: bool) -> bool {
        if self.rules.is_empty() {
            return false;
        }
        directories_above(path).any(|dir| self.excludes(dir, true)) || self.excludes(path, is_dir)
    }

    /// The rules as text for [`Filters::rule`], to send to the other end.
    pub fn to_rules(&self) -> Vec<Vec<u8>> {
        let text = |item: &Item| match item {
            Item::Rule(rule) => rule.to_text(),
            Item::Files(files) => files.to_text(),
        };
        self.rules.iter().map(text).collect()
    }

    fn old_style(&mut self, include: bool, pattern: &[u8]) -> Result<(), FilterError> {
        let rule = match pattern {
            b"!" => {
                self.rules.clear();
                return Ok(());
            }
            [b'+', b' ', pattern @ ..] => Rule::new(true, false, Sides::BOTH, pattern),
            [b'-', b' ', pattern @ ..] => Rule::new(false, false, Sides::BOTH, pattern),
            pattern => Rule::new(include, false, Sides::BOTH, pattern),
        };
        self.rules.push(Item::Rule(rule?));
        Ok(())
    }
}

impl Rule {
    fn new(include: bool, negated: bool, sides: Sides, text: &[u8]) -> Result<Self, FilterError> {
        let pattern = Pattern::new(text)?;
        Ok(Self { include, negated, sides, text: text.to_vec(), pattern })
    }

    fn to_text(&self) -> Vec<u8> {
        let mut text = vec![if self.include { b'+' } else { b'-' }];
        text.extend(self.negated.then_some(b'!'));
        text.extend_from_slice(self.sides.modifier());
        text.push(b' ');
        text.extend_from_slice(&self.text);
        text
    }
}

impl Sides {
    /// The modifier that a rule of these sides has.
    fn modifier(self) -> &'static [u8] {
        match (self.source, self.target) {
            (true, false) => b"s",
            (false, true) => b"r",
            _ => b"",
        }
    }
}

/// Parses one rule, in the language of [`Filters::rule`].
fn parse(rule: &[u8]) -> Result<Parsed, FilterError> {
    if matches!(rule, b"!" | b"clear") {
        return Ok(Parsed::Clear);
    }
    if let Some(rest) = rule.strip_prefix(b":").or_else(|| rule.strip_prefix(b"dir-merge")) {
        return DirMerge::parse(rule, rest).map(Parsed::Files);
    }
    const KINDS: [(&[u8], bool, Sides); 12] = [
        (b"include", true, Sides::BOTH),
        (b"exclude", false, Sides::BOTH),
        (b"hide", false, Sides::SOURCE),
        (b"show", true, Sides::SOURCE),
        (b"protect", false, Sides::TARGET),
        (b"risk", true, Sides::TARGET),
        (b"+", true, Sides::BOTH),
        (b"-", false, Sides::BOTH),
        (b"H", false, Sides::SOURCE),
        (b"S", true, Sides::SOURCE),
        (b"P", false, Sides::TARGET),
        (b"R", true, Sides::TARGET),
    ];
    let unknown = || FilterError::Unknown(shown(rule));
    let kind = KINDS.iter().find_map(|(word, include, sides)| {
        rule.strip_prefix(*word).map(|rest| (*include, *sides, rest))
    });
    let (include, mut sides, rest) = kind.ok_or_else(unknown)?;
    let mut rest = rest.strip_prefix(b",").unwrap_or(rest);
    let (mut negated, mut named) = (false, Sides::default());
    while let [modifier @ (b'!' | b's' | b'r'), after @ ..] = rest {
        match modifier {
            b'!' => negated = true,
            b's' => named.source = true,
            _ => named.target = true,
        }
        rest = after;
    }
    if named != Sides::default() {
        sides = named;
    }
    match rest {
        [b' ' | b'_', pattern @ ..] => {
            Rule::new(include, negated, sides, pattern).map(Parsed::Rule)
        }
        [] => Err(FilterError::NoPattern(shown(rule))),
        _ => Err(unknown()),
    }
}

/// A pattern for one name of a path, as in a shell: `*`, `?` and `[...]`. A name that begins with a
/// dot is matched only by a pattern that does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamePattern {
    pattern: Pattern,
    dot: bool,
}

impl NamePattern {
    /// Whether a name has a character that makes it a pattern.
    pub fn is_pattern(name: &[u8]) -> bool {
        name.iter().any(|byte| matches!(byte, b'*' | b'?' | b'['))
    }

    /// The pattern of a name.
    ///
    /// # Errors
    /// The pattern is invalid.
    pub fn new(name: &[u8]) -> Result<Self, FilterError> {
        Ok(Self { pattern: Pattern::new(name)?, dot: name.starts_with(b".") })
    }

    /// Whether it matches this name.
    pub fn matches(&self, name: &[u8]) -> bool {
        (self.dot || !name.starts_with(b".")) && self.pattern.matches(name, false)
    }
}

/// The names in a file of names (`--files-from`), one per line or NUL-terminated. Empty lines are
/// ignored, and so are those that begin with `#` or `;` unless `from0`.
pub fn names(text: &[u8], from0: bool) -> Vec<Vec<u8>> {
    let counts = |line: &&[u8]| from0 || !matches!(line.first(), Some(b'#' | b';'));
    lines(text, from0).filter(counts).map(<[u8]>::to_vec).collect()
}

fn lines(text: &[u8], from0: bool) -> impl Iterator<Item = &[u8]> {
    let ends = move |b: &u8| if from0 { *b == 0 } else { matches!(b, b'\n' | b'\r' | 0) };
    text.split(ends).filter(|line| !line.is_empty())
}

fn shown(bytes: &[u8]) -> String {
    packtrain_units::escape::name(bytes)
}

#[cfg(test)]
#[path = "filter_tests.rs"]
mod tests;
