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

mod pattern;

use pattern::Pattern;

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
    /// the space.
    ///
    /// # Errors
    /// The rule is unknown; files of rules (`merge`, `dir-merge`) are for the caller to read.
    pub fn rule(&mut self, rule: &[u8]) -> Result<(), FilterError> {
        if matches!(rule, b"!" | b"clear") {
            self.rules.clear();
            return Ok(());
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
            [b' ' | b'_', pattern @ ..] => self.push(include, negated, sides, pattern),
            [] => Err(FilterError::NoPattern(shown(rule))),
            _ => Err(unknown()),
        }
    }

    /// Whether a rule applies at one side only. Ends of protocol version 1 do not know such rules.
    pub fn has_sides(&self) -> bool {
        self.rules.iter().any(|rule| rule.sides != Sides::BOTH)
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
    /// directories are included.
    pub fn excludes(&self, path: &[u8], is_dir: bool) -> bool {
        self.first_excludes(path, is_dir, |sides| sides.source)
    }

    /// Whether the target keeps `path` even if the source does not have it. Assumes that the
    /// directories above it are not kept.
    pub fn protects(&self, path: &[u8], is_dir: bool) -> bool {
        self.first_excludes(path, is_dir, |sides| sides.target)
    }

    fn first_excludes(&self, path: &[u8], is_dir: bool, applies: impl Fn(Sides) -> bool) -> bool {
        if path.is_empty() {
            return false;
        }
        let mut rules = self.rules.iter().filter(|rule| applies(rule.sides));
        let rule = rules.find(|rule| rule.pattern.matches(path, is_dir) != rule.negated);
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
        let sign = |rule: &Rule| {
            let mut sign = vec![if rule.include { b'+' } else { b'-' }];
            sign.extend(rule.negated.then_some(b'!'));
            if rule.sides != Sides::BOTH {
                sign.push(if rule.sides.source { b's' } else { b'r' });
            }
            sign.push(b' ');
            sign
        };
        self.rules.iter().map(|rule| [&sign(rule)[..], &rule.text].concat()).collect()
    }

    fn old_style(&mut self, include: bool, pattern: &[u8]) -> Result<(), FilterError> {
        match pattern {
            b"!" => {
                self.rules.clear();
                Ok(())
            }
            [b'+', b' ', pattern @ ..] => self.push(true, false, Sides::BOTH, pattern),
            [b'-', b' ', pattern @ ..] => self.push(false, false, Sides::BOTH, pattern),
            pattern => self.push(include, false, Sides::BOTH, pattern),
        }
    }

    fn push(
        &mut self,
        include: bool,
        negated: bool,
        sides: Sides,
        text: &[u8],
    ) -> Result<(), FilterError> {
        let pattern = Pattern::new(text)?;
        self.rules.push(Rule { include, negated, sides, text: text.to_vec(), pattern });
        Ok(())
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
