//! A compiled pattern. Matching takes time proportional to pattern length times path length,
//! because a pattern may come from a peer.

use super::{FilterError, shown};

const MAX_PATTERN_BYTES: usize = 4096;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pattern {
    tokens: Vec<Token>,
    /// Matches only at the start of the path.
    anchored: bool,
    /// Matches only the last name.
    name_only: bool,
    dir_only: bool,
    /// Begins with `**`, which also matches the root's own slash: `**/x` matches a top-level `x`.
    leading_double: bool,
    /// Ends with `/***`: matches the directory itself too.
    dir_and_contents: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Byte(u8),
    /// `?`
    One,
    /// `*`
    Star,
    /// `**`
    DoubleStar,
    /// `[...]`, one bit for each byte value.
    Class(Box<ByteSet>),
}

impl Pattern {
    pub(super) fn new(text: &[u8]) -> Result<Self, FilterError> {
        if text.len() > MAX_PATTERN_BYTES {
            return Err(FilterError::TooLong);
        }
        let (body, dir_only) = match text.strip_suffix(b"/") {
            Some(body) => (body, true),
            None => (text, false),
        };
        if body.is_empty() {
            return Err(FilterError::NoPattern(shown(text)));
        }
        let slash = body.contains(&b'/');
        let double = body.windows(2).any(|two| two == b"**");
        let (tokens, anchored) = match body.strip_prefix(b"/") {
            Some(body) => (tokens(body)?, true),
            None => (tokens(body)?, false),
        };
        Ok(Self {
            anchored,
            name_only: !slash && !double,
            dir_only,
            leading_double: body.starts_with(b"**"),
            dir_and_contents: body.ends_with(b"/***"),
            tokens,
        })
    }

    /// Whether it begins with a slash: it matches from the directory of its rules only.
    pub(super) fn is_anchored(&self) -> bool {
        self.anchored
    }

    pub(super) fn matches(&self, path: &[u8], is_dir: bool) -> bool {
        if self.dir_only && !is_dir {
            return false;
        }
        let text = match path.iter().rposition(|&b| b == b'/') {
            Some(slash) if self.name_only => &path[slash + 1..],
            _ => path,
        };
        let before = self.leading_double.then_some(b'/');
        let after = (self.dir_and_contents && is_dir).then_some(b'/');
        let bytes = before.into_iter().chain(text.iter().copied()).chain(after);
        self.run(bytes)
    }

    /// Simulates all alternatives at once: `live[i]` is set when the tokens before `i` match the
    /// bytes so far.
    fn run(&self, text: impl Iterator<Item = u8>) -> bool {
        let any_start = !self.anchored && !self.name_only && !self.leading_double;
        let mut live = vec![false; self.tokens.len() + 1];
        live[0] = true;
        self.skip_stars(&mut live);
        for byte in text {
            let mut seen = false;
            // From the back, so that each step reads the state before this byte.
            for at in (0..=self.tokens.len()).rev() {
                let stays = match self.tokens.get(at) {
                    Some(Token::Star) => live[at] && byte != b'/',
                    Some(Token::DoubleStar) => live[at],
                    _ => false,
                };
                let comes = at > 0 && live[at - 1] && self.tokens[at - 1].takes(byte);
                live[at] = stays || comes;
                seen |= live[at];
            }
            // A match may begin after each slash.
            if any_start && byte == b'/' {
                live[0] = true;
                seen = true;
            }
            if !seen && !any_start {
                return false;
            }
            self.skip_stars(&mut live);
        }
        live[self.tokens.len()]
    }

    /// Stars also match the empty string.
    fn skip_stars(&self, live: &mut [bool]) {
        for (at, token) in self.tokens.iter().enumerate() {
            if live[at] && matches!(token, Token::Star | Token::DoubleStar) {
                live[at + 1] = true;
            }
        }
    }
}

impl Token {
    fn takes(&self, byte: u8) -> bool {
        match self {
            Self::Byte(b) => *b == byte,
            Self::One => byte != b'/',
            Self::Class(set) => set.has(byte),
            // A star that matched a byte stays active.
            Self::Star | Self::DoubleStar => false,
        }
    }
}

/// A set of byte values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct ByteSet([u64; 4]);

impl ByteSet {
    fn has(&self, byte: u8) -> bool {
        self.0[usize::from(byte >> 6)] >> (byte & 63) & 1 == 1
    }

    fn add(&mut self, byte: u8) {
        self.0[usize::from(byte >> 6)] |= 1 << (byte & 63);
    }

    fn remove(&mut self, byte: u8) {
        self.0[usize::from(byte >> 6)] &= !(1 << (byte & 63));
    }

    fn negate(&mut self) {
        self.0.iter_mut().for_each(|word| *word = !*word);
    }
}

fn tokens(body: &[u8]) -> Result<Vec<Token>, FilterError> {
    // Without a wildcard every byte is literal, including the backslash.
    if !body.iter().any(|b| matches!(b, b'*' | b'?' | b'[')) {
        return Ok(body.iter().copied().map(Token::Byte).collect());
    }
    let mut out = Vec::new();
    let mut at = 0;
    while let Some(&byte) = body.get(at) {
        at += 1;
        match byte {
            b'*' => {
                let run = body[at - 1..].iter().take_while(|b| **b == b'*').count();
                at += run - 1;
                out.push(if run > 1 { Token::DoubleStar } else { Token::Star });
            }
            b'?' => out.push(Token::One),
            b'[' => {
                let open = || FilterError::OpenClass(shown(body));
                let (set, end) = class(body, at).ok_or_else(open)?;
                out.push(Token::Class(set));
                at = end;
            }
            b'\\' => {
                out.push(Token::Byte(body.get(at).copied().unwrap_or(b'\\')));
                at += 1;
            }
            byte => out.push(Token::Byte(byte)),
        }
    }
    Ok(out)
}

/// Parses a class whose `[` is before `at`; returns where it ends.
fn class(body: &[u8], mut at: usize) -> Option<(Box<ByteSet>, usize)> {
    let mut set = Box::<ByteSet>::default();
    let negated = matches!(body.get(at)?, b'!' | b'^');
    at += usize::from(negated);
    let first = at;
    loop {
        match *body.get(at)? {
            b']' if at > first => break,
            b'[' if body.get(at + 1) == Some(&b':') => {
                let len = body[at + 2..].windows(2).position(|two| two == b":]")?;
                let holds = named_class(&body[at + 2..at + 2 + len])?;
                (0..=255u8).filter(holds).for_each(|b| set.add(b));
                at += len + 4;
            }
            _ => {
                let (low, next) = class_byte(body, at)?;
                at = next;
                let mut high = low;
                if body.get(at) == Some(&b'-') && body.get(at + 1).is_some_and(|b| *b != b']') {
                    (high, at) = class_byte(body, at + 1)?;
                }
                (low..=high).for_each(|b| set.add(b));
            }
        }
    }
    if negated {
        set.negate();
    }
    set.remove(b'/');
    Some((set, at + 1))
}

fn class_byte(body: &[u8], at: usize) -> Option<(u8, usize)> {
    match *body.get(at)? {
        b'\\' => Some((*body.get(at + 1)?, at + 2)),
        byte => Some((byte, at + 1)),
    }
}

/// POSIX names of classes, for ASCII.
fn named_class(name: &[u8]) -> Option<fn(&u8) -> bool> {
    Some(match name {
        b"alnum" => u8::is_ascii_alphanumeric,
        b"alpha" => u8::is_ascii_alphabetic,
        b"blank" => |b| matches!(b, b' ' | b'\t'),
        b"cntrl" => u8::is_ascii_control,
        b"digit" => u8::is_ascii_digit,
        b"graph" => u8::is_ascii_graphic,
        b"lower" => u8::is_ascii_lowercase,
        b"print" => |b| b.is_ascii_graphic() || *b == b' ',
        b"punct" => u8::is_ascii_punctuation,
        b"space" => |b| b.is_ascii_whitespace() || *b == 0x0b,
        b"upper" => u8::is_ascii_uppercase,
        b"xdigit" => u8::is_ascii_hexdigit,
        _ => return None,
    })
}
