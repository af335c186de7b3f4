//! The clients that may use a server: `authorized_keys`.
//!
//! One key per line, with options before it as in ssh:
//!
//! ```text
//! root="/srv/data/alice",read-only packtrain-ed25519 BASE64 alice@laptop
//! ```
//!
//! A malformed line admits no key and is reported. A line with an unknown option is malformed,
//! since the option may be a restriction.

use std::path::{Path, PathBuf};

use crate::pubkey::PublicKey;
use crate::trusted_file;

/// What a key may do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grant {
    /// The directory that it sees instead of the server's root. A relative one is below that root.
    /// An absolute one is used as it is, since the owner of the file wrote it.
    pub root: Option<PathBuf>,
    /// The key may not write.
    pub read_only: bool,
    /// The key is of a depot of this depot's clique. It says nothing at a server.
    pub clique: bool,
    /// The comment after the key, for messages.
    pub comment: String,
}

/// The keys of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuthorizedKeys {
    grants: Vec<(PublicKey, Grant)>,
    /// Malformed lines: their numbers, counted from 1, and the errors.
    pub refused: Vec<(usize, LineError)>,
}

/// Why a line is malformed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    /// There is no key on it.
    #[error("no key: expected `packtrain-ed25519 BASE64`, after options if any")]
    NoKey,
    /// An unknown option.
    #[error("unknown option `{0}`: the options are root=\"DIR\", read-only and clique")]
    UnknownOption(String),
    /// An option without its value, or with an invalid one.
    #[error("option `{0}` is not complete: write root=\"DIR\", read-only or clique")]
    BadOption(String),
    /// An option that occurs twice.
    #[error("option `{0}` is there twice")]
    Twice(String),
}

/// Why a whole file is not used.
pub use crate::trusted_file::TrustError as AuthorizedError;

impl AuthorizedKeys {
    /// Reads the file at `path`; a missing file has no keys.
    ///
    /// # Errors
    /// The file cannot be read, or users other than this one and root can change it.
    pub fn load(path: &Path) -> Result<Self, AuthorizedError> {
        let text = trusted_file::read(path)?;
        Ok(text.map_or_else(Self::default, |text| Self::parse(&text)))
    }

    /// Parses the text of a file.
    pub fn parse(text: &str) -> Self {
        let mut keys = Self::default();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            match parse_line(line) {
                Ok(pair) => keys.grants.push(pair),
                Err(error) => keys.refused.push((index + 1, error)),
            }
        }
        keys
    }

    /// The rights of `key`; the first line with the key applies.
    pub fn grant(&self, key: &PublicKey) -> Option<&Grant> {
        self.grants.iter().find(|(known, _)| known == key).map(|(_, grant)| grant)
    }

    /// Whether a key has the option `clique`.
    pub fn has_clique(&self) -> bool {
        self.grants.iter().any(|(_, grant)| grant.clique)
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.grants.len()
    }

    /// Whether there is no key.
    pub fn is_empty(&self) -> bool {
        self.grants.is_empty()
    }
}

fn parse_line(line: &str) -> Result<(PublicKey, Grant), LineError> {
    let (grant, rest) = match line.parse::<PublicKey>() {
        Ok(_) => (Grant::default(), line),
        Err(_) => parse_options(line)?,
    };
    let key = rest.parse().map_err(|_| LineError::NoKey)?;
    let comment = rest.split_ascii_whitespace().skip(2).collect::<Vec<_>>().join(" ");
    Ok((key, Grant { comment, ..grant }))
}

/// Parses `name,name="value",...` up to the first blank outside quotes; also returns the rest.
fn parse_options(line: &str) -> Result<(Grant, &str), LineError> {
    let mut grant = Grant::default();
    let mut rest = line;
    loop {
        let end = rest.find(|c: char| "=, \t".contains(c)).ok_or(LineError::NoKey)?;
        let (name, after) = rest.split_at(end);
        let (value, after) = match after.strip_prefix('=') {
            Some(quoted) => {
                let (value, after) =
                    unquote(quoted).ok_or_else(|| LineError::BadOption(name.to_owned()))?;
                (Some(value), after)
            }
            None => (None, after),
        };
        apply(&mut grant, name, value)?;
        match after.strip_prefix(',') {
            Some(more) => rest = more,
            None if after.starts_with([' ', '\t']) => return Ok((grant, after.trim_start())),
            None => return Err(LineError::NoKey),
        }
    }
}

fn apply(grant: &mut Grant, name: &str, value: Option<String>) -> Result<(), LineError> {
    match (name, value) {
        ("root", Some(_)) if grant.root.is_some() => Err(LineError::Twice(name.to_owned())),
        ("root", Some(value)) if !value.is_empty() => {
            grant.root = Some(PathBuf::from(value));
            Ok(())
        }
        ("read-only", None) if grant.read_only => Err(LineError::Twice(name.to_owned())),
        ("read-only", None) => {
            grant.read_only = true;
            Ok(())
        }
        ("clique", None) if grant.clique => Err(LineError::Twice(name.to_owned())),
        ("clique", None) => {
            grant.clique = true;
            Ok(())
        }
        ("root" | "read-only" | "clique", _) => Err(LineError::BadOption(name.to_owned())),
        _ => Err(LineError::UnknownOption(name.to_owned())),
    }
}

/// Parses `"value"`, with `\"` for a quote and `\\` for a backslash; also returns the rest.
fn unquote(text: &str) -> Option<(String, &str)> {
    let inner = text.strip_prefix('"')?;
    let mut value = String::new();
    let mut letters = inner.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return Some((value, &inner[at + 1..])),
            '\\' => match letters.next()?.1 {
                escaped @ ('"' | '\\') => value.push(escaped),
                other => value.extend(['\\', other]),
            },
            other => value.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use proptest::prelude::*;

    use super::*;

    const A: PublicKey = PublicKey([1; 32]);

    fn one(line: &str) -> Result<Grant, LineError> {
        parse_line(line).map(|(key, grant)| {
            assert_eq!(key, A);
            grant
        })
    }

    #[test]
    fn lines_with_and_without_options() {
        let plain = Grant { comment: "me at home".into(), ..Grant::default() };
        assert_eq!(one(&format!("{A} me at  home")), Ok(plain));
        let both = Grant {
            root: Some("/srv/a \"b\", c\\d".into()),
            read_only: true,
            clique: true,
            comment: String::new(),
        };
        let line = format!(r#"read-only,clique,root="/srv/a \"b\", c\\d"   {A}"#);
        assert_eq!(one(&line), Ok(both));
    }

    #[test]
    fn what_cannot_be_read_lets_nobody_in() {
        for (line, want) in [
            (String::from("nonsense"), LineError::NoKey),
            (format!("read-only,no-pty {A}"), LineError::UnknownOption("no-pty".into())),
            (format!("root=/srv {A}"), LineError::BadOption("root".into())),
            (format!("root=\"\" {A}"), LineError::BadOption("root".into())),
            (format!("root=\"/srv {A}"), LineError::BadOption("root".into())),
            (format!("root {A}"), LineError::BadOption("root".into())),
            (format!("read-only=\"yes\" {A}"), LineError::BadOption("read-only".into())),
            (format!("read-only,read-only {A}"), LineError::Twice("read-only".into())),
            (format!("clique=\"d1\" {A}"), LineError::BadOption("clique".into())),
            (format!("clique,clique {A}"), LineError::Twice("clique".into())),
            (format!("root=\"/a\",root=\"/b\" {A}"), LineError::Twice("root".into())),
            (format!("root=\"/a\"{A}"), LineError::NoKey),
            (String::from("read-only packtrain-ed25519 AAAA"), LineError::NoKey),
        ] {
            assert_eq!(one(&line), Err(want), "{line}");
        }
        let keys = AuthorizedKeys::parse(&format!("# all\n\nroot={A}\n{A}\nread-only {A}\n"));
        assert_eq!((keys.len(), keys.refused.len(), keys.refused[0].0), (2, 1, 3));
        assert!(!keys.has_clique());
        assert!(!keys.grant(&A).expect("the second line has it").read_only);
        assert_eq!(keys.grant(&PublicKey([2; 32])), None);
    }

    #[test]
    fn a_file_that_others_write_is_not_used() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("authorized_keys");
        assert!(AuthorizedKeys::load(&path).expect("no file, no keys").is_empty());
        std::fs::write(&path, A.to_string()).expect("fine");
        let mode = |mode| std::fs::set_permissions(&path, PermissionsExt::from_mode(mode));
        mode(0o644).expect("fine");
        assert_eq!(AuthorizedKeys::load(&path).expect("fine").len(), 1);
        mode(0o664).expect("fine");
        let error = AuthorizedKeys::load(&path).expect_err("the group may write it");
        assert!(error.to_string().contains("chmod go-w"), "{error}");
    }

    proptest! {
        #[test]
        fn any_file_is_read(text in "(root=|read-only|\"|\\\\|,| |[ -~é]{0,9}|packtrain-ed25519 |\n){0,20}") {
            let _ = AuthorizedKeys::parse(&text);
        }

        #[test]
        fn a_root_reads_back(root in "[ -~é]{1,30}") {
            let quoted = root.replace('\\', "\\\\").replace('"', "\\\"");
            let grant = one(&format!("root=\"{quoted}\",read-only {A}")).expect("a good line");
            prop_assert_eq!(grant.root, Some(PathBuf::from(root)));
            prop_assert!(grant.read_only);
        }
    }
}
