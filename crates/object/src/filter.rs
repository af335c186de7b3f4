//! Selects the paths of a tree to transfer, with rules in rsync's language: the first rule that
//! matches decides.
//!
//! A rule is `+ PATTERN` (include) or `- PATTERN` (exclude). A path that no rule matches is
//! included. An excluded directory is not entered, so the paths below it are not tested.
//!
//! - A pattern without a slash and without `**` is matched against the last name of the path; any
//!   other against the path from the transfer's root, and it may match from any directory on.
//! - A leading `/` anchors it at the root of the transfer.
//! - A trailing `/` makes it match directories only.
//! - `*` matches any bytes but a slash, `**` any bytes, `?` one byte but a slash, `[...]` one byte
//!   of a class; `\` quotes the next byte, in a pattern with one of these.
//! - `dir/***` matches `dir` itself and everything in it.

mod pattern;

use pattern::Pattern;

/// Why a filter rule is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    /// It is neither an include nor an exclude rule.
    #[error("filter rule `{0}` is not understood; write `+ PATTERN` or `- PATTERN`")]
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
}

/// An ordered list of rules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filters {
    rules: Vec<Rule>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    include: bool,
    /// The rule applies where the pattern does not match.
    negated: bool,
    text: Vec<u8>,
    pattern: Pattern,
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

    /// Adds the rule of `--filter`: `+ P`, `- P`, `include P`, `exclude P`, `!` or `clear`. A `!`
    /// after the sign (`-! P`) negates the match. `_` may replace the space.
    ///
    /// # Errors
    /// The rule is unknown; rsync's `merge`, `hide`, `protect` and the like are not supported.
    pub fn rule(&mut self, rule: &[u8]) -> Result<(), FilterError> {
        if matches!(rule, b"!" | b"clear") {
            self.rules.clear();
            return Ok(());
        }
        let (include, rest) = if let Some(rest) = rule.strip_prefix(b"+") {
            (true, rest)
        } else if let Some(rest) = rule.strip_prefix(b"-") {
            (false, rest)
        } else if let Some(rest) = rule.strip_prefix(b"include") {
            (true, rest)
        } else if let Some(rest) = rule.strip_prefix(b"exclude") {
            (false, rest)
        } else {
            return Err(FilterError::Unknown(shown(rule)));
        };
        let rest = rest.strip_prefix(b",").unwrap_or(rest);
        let (negated, rest) = match rest.strip_prefix(b"!") {
            Some(rest) => (true, rest),
            None => (false, rest),
        };
        match rest {
            [b' ' | b'_', pattern @ ..] => self.push(include, negated, pattern),
            [] => Err(FilterError::NoPattern(shown(rule))),
            _ => Err(FilterError::Unknown(shown(rule))),
        }
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

    /// Whether `path`, relative to the root of the transfer, is excluded. Assumes that its
    /// directories are included.
    pub fn excludes(&self, path: &[u8], is_dir: bool) -> bool {
        if path.is_empty() {
            return false;
        }
        let rule =
            self.rules.iter().find(|rule| rule.pattern.matches(path, is_dir) != rule.negated);
        rule.is_some_and(|rule| !rule.include)
    }

    /// Whether `path` or a directory above it is excluded: for a single path, as when deciding what
    /// may be deleted.
    pub fn excludes_within(&self, path: &[u8], is_dir: bool) -> bool {
        if self.rules.is_empty() {
            return false;
        }
        let parents =
            path.iter().enumerate().filter(|(_, b)| **b == b'/').map(|(at, _)| &path[..at]);
        parents.into_iter().any(|dir| self.excludes(dir, true)) || self.excludes(path, is_dir)
    }

    /// The rules as text for [`Filters::rule`], to send to the other end.
    pub fn to_rules(&self) -> Vec<Vec<u8>> {
        let sign = |rule: &Rule| match (rule.include, rule.negated) {
            (true, false) => &b"+ "[..],
            (true, true) => b"+! ",
            (false, false) => b"- ",
            (false, true) => b"-! ",
        };
        self.rules.iter().map(|rule| [sign(rule), &rule.text].concat()).collect()
    }

    fn old_style(&mut self, include: bool, pattern: &[u8]) -> Result<(), FilterError> {
        match pattern {
            b"!" => {
                self.rules.clear();
                Ok(())
            }
            [b'+', b' ', pattern @ ..] => self.push(true, false, pattern),
            [b'-', b' ', pattern @ ..] => self.push(false, false, pattern),
            pattern => self.push(include, false, pattern),
        }
    }

    fn push(&mut self, include: bool, negated: bool, text: &[u8]) -> Result<(), FilterError> {
        let pattern = Pattern::new(text)?;
        self.rules.push(Rule { include, negated, text: text.to_vec(), pattern });
        Ok(())
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
