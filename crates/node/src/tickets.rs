//! One-time tickets: a way in without keys exchanged before.
//!
//! A ticket is a 128-bit token and the fingerprint of the server's host key, so that its bearer
//! needs no prior trust either. The first client that shows it binds it to its own key; until it
//! expires that client, and no other, may show it again to resume. The server keeps a digest of
//! each token and what it opens, never the token, in a file: a restarted server honours the
//! tickets of the one before.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::pubkey::{Fingerprint, PublicKey};
use crate::statefile;

/// What a ticket's text begins with.
const PREFIX: &str = "pt1-";
/// Bytes of the check sum that finds a mistyped or cut ticket.
const CHECK: usize = 4;

/// A ticket. Its `Debug` form does not show the token.
#[derive(Clone, PartialEq, Eq)]
pub struct Ticket {
    token: [u8; 16],
    host: Fingerprint,
}

/// Why a text is not a ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TicketTextError {
    /// It does not look like one.
    #[error("not a ticket: it begins with `pt1-`; write @FILE to read it from a file")]
    Shape,
    /// A letter is wrong or missing.
    #[error("a damaged ticket: copy it again, whole")]
    Check,
}

/// Why a ticket does not open a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TicketRefused {
    /// The server never gave it out, or not for this, or forgot it.
    #[error("the ticket is not known here, or it has expired: ask for a new one")]
    Unknown,
    /// Another client was first.
    #[error("the ticket was used by another client: ask for a new one")]
    OtherClient,
}

impl Ticket {
    /// A ticket with this random token for the server with this host key.
    pub const fn new(token: [u8; 16], host: Fingerprint) -> Self {
        Self { token, host }
    }

    /// The fingerprint of the host key that the server must show.
    pub const fn host(&self) -> Fingerprint {
        self.host
    }

    /// The secret that the client shows, over an encrypted connection to that host only.
    pub const fn token(&self) -> [u8; 16] {
        self.token
    }

    /// The text a user passes on. Deliberately not `Display`: it is a secret.
    pub fn to_text(&self) -> String {
        let mut bytes = [self.token.as_slice(), &self.host.0].concat();
        bytes.extend(check_sum(&bytes));
        format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes))
    }

    /// Writes the ticket and a newline to `path`, readable by its owner alone.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        statefile::replace(path, format!("{}\n", self.to_text()).as_bytes())
    }
}

impl FromStr for Ticket {
    type Err = TicketTextError;

    fn from_str(text: &str) -> Result<Self, TicketTextError> {
        let base64 = text.trim().strip_prefix(PREFIX).ok_or(TicketTextError::Shape)?;
        let bytes = URL_SAFE_NO_PAD.decode(base64).map_err(|_| TicketTextError::Check)?;
        let (body, sum) = bytes.split_last_chunk::<CHECK>().ok_or(TicketTextError::Check)?;
        let (token, host) = body.split_first_chunk::<16>().ok_or(TicketTextError::Check)?;
        let host: [u8; 32] = host.try_into().map_err(|_| TicketTextError::Check)?;
        if *sum != check_sum(body) {
            return Err(TicketTextError::Check);
        }
        Ok(Self::new(*token, Fingerprint(host)))
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ticket(for {})", self.host)
    }
}

fn check_sum(bytes: &[u8]) -> [u8; CHECK] {
    let digest = blake3::derive_key("packtrain ticket check sum v1", bytes);
    [digest[0], digest[1], digest[2], digest[3]]
}

/// The tickets that servers of this user gave out.
#[derive(Clone, Debug)]
pub struct TicketBook {
    path: PathBuf,
}

impl TicketBook {
    /// The book kept at `path`, which need not exist.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Gives out a ticket with this random `token`. `scope` says what it opens, such as
    /// `serve /srv/data`: it opens nothing else.
    pub fn issue(
        &self,
        token: [u8; 16],
        scope: &str,
        now: SystemTime,
        lifetime: Duration,
    ) -> io::Result<()> {
        let now = seconds(now);
        let line = Line {
            id: identify(&token, scope),
            expires: now.saturating_add(lifetime.as_secs()),
            client: None,
        };
        statefile::update(&self.path, |old| {
            (Some(render(parse(old, now).into_iter().chain([line]))), ())
        })
    }

    /// Lets the client with key `client` in if it shows a good `token` for `scope`, and binds
    /// the ticket to it if it is the first.
    pub fn redeem(
        &self,
        token: &[u8; 16],
        scope: &str,
        client: &PublicKey,
        now: SystemTime,
    ) -> io::Result<Result<(), TicketRefused>> {
        let (id, now) = (identify(token, scope), seconds(now));
        statefile::update(&self.path, |old| {
            let mut lines = parse(old, now);
            match lines.iter_mut().find(|line| line.id == id) {
                None => (None, Err(TicketRefused::Unknown)),
                Some(line) => match line.client {
                    Some(bound) if bound == *client => (None, Ok(())),
                    Some(_) => (None, Err(TicketRefused::OtherClient)),
                    None => {
                        line.client = Some(*client);
                        (Some(render(lines)), Ok(()))
                    }
                },
            }
        })
    }
}

struct Line {
    id: blake3::Hash,
    expires: u64,
    client: Option<PublicKey>,
}

/// Lines that can be read and have not expired.
fn parse(text: &str, now: u64) -> Vec<Line> {
    let line = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let id = blake3::Hash::from_hex(words.next()?).ok()?;
        let expires: u64 = words.next()?.parse().ok()?;
        let client = match words.next() {
            Some("unused") => None,
            Some(algorithm) => Some(PublicKey::from_words(algorithm, words.next()?).ok()?),
            None => return None,
        };
        (expires > now).then_some(Line { id, expires, client })
    };
    text.lines().filter_map(line).collect()
}

fn render(lines: impl IntoIterator<Item = Line>) -> String {
    let line = |line: Line| {
        let client = line.client.map_or_else(|| "unused".to_owned(), |key| key.to_string());
        format!("{} {} {client}\n", line.id, line.expires)
    };
    lines.into_iter().map(line).collect()
}

/// What is kept of a file of tickets, none of which has expired.
#[cfg(feature = "fuzzing")]
pub(crate) fn rewrite(text: &str) -> String {
    render(parse(text, 0))
}

/// Comparing digests of a secret leaks nothing of use by its timing (and `blake3::Hash`
/// compares in constant time anyway).
fn identify(token: &[u8; 16], scope: &str) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new_derive_key("packtrain ticket v1");
    hasher.update(token);
    hasher.update(scope.as_bytes());
    hasher.finalize()
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const A: PublicKey = PublicKey([1; 32]);
    const B: PublicKey = PublicKey([2; 32]);
    const TOKEN: [u8; 16] = [7; 16];

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn the_first_client_keeps_the_ticket_until_it_expires() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let book = TicketBook::new(dir.path().join("tickets"));
        let redeem = |scope, key, now| {
            book.redeem(&TOKEN, scope, key, at(now)).expect("the directory can be written")
        };
        assert_eq!(redeem("x", &A, 100), Err(TicketRefused::Unknown));
        book.issue(TOKEN, "x", at(100), Duration::from_secs(60)).expect("writable");
        book.issue([8; 16], "x", at(100), Duration::from_secs(9)).expect("writable");
        assert_eq!(redeem("y", &A, 101), Err(TicketRefused::Unknown), "another scope");
        assert_eq!(redeem("x", &A, 101), Ok(()));
        assert_eq!(redeem("x", &B, 102), Err(TicketRefused::OtherClient));
        let again = TicketBook::new(dir.path().join("tickets"));
        assert_eq!(again.redeem(&TOKEN, "x", &A, at(159)).expect("fine"), Ok(()), "restarted");
        assert_eq!(redeem("x", &A, 160), Err(TicketRefused::Unknown), "expired");
        let text = std::fs::read_to_string(dir.path().join("tickets")).expect("there");
        assert!(!text.contains(&URL_SAFE_NO_PAD.encode(TOKEN)), "no token is kept: {text}");
    }

    #[test]
    fn a_ticket_file_is_its_owners_alone() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("ticket");
        std::fs::write(&path, "an older, open file").expect("fine");
        let ticket = Ticket::new(TOKEN, A.fingerprint());
        ticket.write(&path).expect("writable");
        let mode = std::fs::metadata(&path).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let text = std::fs::read_to_string(&path).expect("readable");
        assert_eq!(text.parse(), Ok(ticket));
    }

    #[test]
    fn a_ticket_does_not_show_itself() {
        let shown = format!("{:?}", Ticket::new(TOKEN, A.fingerprint()));
        assert!(shown.starts_with("Ticket(for BLAKE3:"), "{shown}");
        assert!(!shown.contains("7, 7"), "{shown}");
    }

    proptest! {
        #[test]
        fn tickets_read_back_and_damage_is_seen(token: [u8; 16], host: [u8; 32], at in 4usize..70, to in "[A-Za-z0-9_-]") {
            let ticket = Ticket::new(token, Fingerprint(host));
            let text = ticket.to_text();
            prop_assert_eq!(text.parse(), Ok(ticket));
            let at = at.min(text.len() - 1);
            let mut damaged = text.clone();
            damaged.replace_range(at..=at, &to);
            prop_assume!(damaged != text);
            prop_assert_eq!(damaged.parse::<Ticket>(), Err(TicketTextError::Check));
            prop_assert!(text[..at].parse::<Ticket>().is_err());
        }

        #[test]
        fn any_text_and_any_book_is_read(text in "(pt1-)?[ -~\n]{0,120}") {
            let _ = text.parse::<Ticket>();
            let _ = parse(&text, 0);
        }
    }
}
