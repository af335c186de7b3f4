//! Pinned host keys of servers, as in ssh.
//!
//! One key per line: `[host]:port packtrain-ed25519 BASE64 comment`. A line that begins with
//! `@revoked` has a key that is never trusted again, for that host or, with `*`, for all. Empty
//! lines, lines with `#` and malformed lines are kept and ignored.

use std::io;
use std::path::{Path, PathBuf};

use crate::pubkey::PublicKey;
use crate::statefile;

/// A `known_hosts` file.
#[derive(Clone, Debug)]
pub struct KnownHosts {
    path: PathBuf,
}

/// What the file contains about a server's key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Known {
    /// It is the key of this server.
    Yes,
    /// The file has no key of this server.
    New,
    /// The server has another key, on this line (counted from 1).
    Changed {
        /// The line of the other key.
        line: usize,
        /// The other key.
        key: PublicKey,
    },
    /// The key is revoked, on this line.
    Revoked {
        /// The line of the revocation.
        line: usize,
    },
}

impl KnownHosts {
    /// The file at `path`, which need not exist.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Looks up `key`, which the server at `host` and `port` presented.
    pub fn check(&self, host: &str, port: u16, key: &PublicKey) -> io::Result<Known> {
        let text = statefile::read(&self.path)?.unwrap_or_default();
        Ok(check(&text, &name(host, port), key))
    }

    /// Adds `key` for a server that is [`Known::New`]. Returns the new state, which is not `Yes` if
    /// another process added another key first.
    pub fn remember(&self, host: &str, port: u16, key: &PublicKey) -> io::Result<Known> {
        let name = name(host, port);
        statefile::update(&self.path, |old| match check(old, &name, key) {
            Known::New => {
                let newline = if old.is_empty() || old.ends_with('\n') { "" } else { "\n" };
                (Some(format!("{old}{newline}{name} {key}\n")), Known::Yes)
            }
            other => (None, other),
        })
    }

    /// Removes every key of a server that is not revoked; returns their number.
    pub fn forget(&self, host: &str, port: u16) -> io::Result<usize> {
        let name = name(host, port);
        statefile::update(&self.path, |old| {
            let stays = |line: &&str| !matches!(Line::parse(line), Some(entry) if !entry.revoked && entry.name == name);
            let kept: Vec<&str> = old.lines().filter(stays).collect();
            let gone = old.lines().count() - kept.len();
            let new = kept.iter().map(|line| format!("{line}\n")).collect();
            ((gone > 0).then_some(new), gone)
        })
    }
}

struct Line<'a> {
    revoked: bool,
    name: &'a str,
    key: PublicKey,
}

impl<'a> Line<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let mut words = line.split_ascii_whitespace();
        let mut name = words.next().filter(|word| !word.starts_with('#'))?;
        let revoked = name == "@revoked";
        if revoked {
            name = words.next()?;
        }
        let key = PublicKey::from_words(words.next()?, words.next()?).ok()?;
        Some(Self { revoked, name, key })
    }
}

/// A revocation takes precedence over a match, and a match over another key of the same host, in
/// any order of lines.
pub(crate) fn check(text: &str, name: &str, key: &PublicKey) -> Known {
    let mut known = Known::New;
    for (index, line) in text.lines().enumerate() {
        let Some(entry) = Line::parse(line) else { continue };
        let here = entry.name == name;
        if entry.revoked {
            if entry.key == *key && (here || entry.name == "*") {
                return Known::Revoked { line: index + 1 };
            }
        } else if here && entry.key == *key {
            known = Known::Yes;
        } else if here && known == Known::New {
            known = Known::Changed { line: index + 1, key: entry.key };
        }
    }
    known
}

fn name(host: &str, port: u16) -> String {
    format!("[{}]:{port}", host.trim_end_matches('.').to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const A: PublicKey = PublicKey([1; 32]);
    const B: PublicKey = PublicKey([2; 32]);

    fn file() -> (tempfile::TempDir, KnownHosts) {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let hosts = KnownHosts::new(dir.path().join("known_hosts"));
        (dir, hosts)
    }

    #[test]
    fn a_key_is_new_then_known_then_changed() {
        let (_dir, hosts) = file();
        assert_eq!(hosts.check("h", 1, &A).expect("fine"), Known::New);
        assert_eq!(hosts.remember("H.", 1, &A).expect("fine"), Known::Yes);
        assert_eq!(hosts.check("h", 1, &A).expect("fine"), Known::Yes);
        assert_eq!(hosts.check("h", 2, &A).expect("fine"), Known::New);
        let changed = Known::Changed { line: 1, key: A };
        assert_eq!(hosts.check("h", 1, &B).expect("fine"), changed);
        assert_eq!(hosts.remember("h", 1, &B).expect("fine"), changed);
        assert_eq!(hosts.forget("h", 1).expect("fine"), 1);
        assert_eq!(hosts.remember("h", 1, &B).expect("fine"), Known::Yes);
    }

    #[test]
    fn revocation_wins_and_comments_stay() {
        let (_dir, hosts) = file();
        let text = format!("# mine\ngarbage\n[h]:1 {A} old\n[h]:1 {B}\n@revoked * {A} lost");
        std::fs::write(hosts.path(), &text).expect("fine");
        assert_eq!(hosts.check("h", 1, &A).expect("fine"), Known::Revoked { line: 5 });
        assert_eq!(hosts.check("h", 1, &B).expect("fine"), Known::Yes);
        assert_eq!(hosts.check("i", 1, &A).expect("fine"), Known::Revoked { line: 5 });
        assert_eq!(hosts.remember("i", 1, &B).expect("fine"), Known::Yes);
        let now = std::fs::read_to_string(hosts.path()).expect("fine");
        assert_eq!(now, format!("{text}\n[i]:1 {B}\n"));
        assert_eq!(hosts.forget("h", 1).expect("fine"), 2);
        let now = std::fs::read_to_string(hosts.path()).expect("fine");
        assert_eq!(now, format!("# mine\ngarbage\n@revoked * {A} lost\n[i]:1 {B}\n"));
    }

    proptest! {
        #[test]
        fn any_file_is_read(text in "(@revoked |\\[h\\]:1 |packtrain-ed25519 |[ -~]{0,12}|\n){0,20}") {
            let _ = check(&text, "[h]:1", &A);
        }

        #[test]
        fn a_line_counts_wherever_it_stands(before in "([ -~]{0,30}\n){0,5}", after in "([ -~]{0,30}\n){0,5}") {
            let text = format!("{before}[h]:1 {A}\n{after}");
            prop_assert_eq!(check(&text, "[h]:1", &A), Known::Yes);
        }
    }
}
