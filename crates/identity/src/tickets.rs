//! One-time tickets: access without an earlier exchange of keys.
//!
//! A ticket is a 128-bit token and the fingerprint of the server's host key, so that its holder can
//! authenticate the server. The first client that presents it binds it to the client's key. Until
//! it expires only that client can present it again, to resume. The server stores in a file a
//! digest of each token, the server it belongs to and its rights, but never the token. A restarted
//! server accepts the tickets of the previous process. The text of a ticket is short because all of
//! that is in the file.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::pubkey::{Fingerprint, PublicKey};
use crate::statefile;

/// The prefix of a ticket's text.
const PREFIX: &str = "pt1-";
/// Length of the checksum that detects a mistyped or truncated ticket, in bytes.
const CHECKSUM_LEN: usize = 4;

/// Expired records are kept, and refused, until this number of newer ones exists.
const MAX_EXPIRED: usize = 1_000;

/// A ticket. `Debug` does not show the token.
#[derive(Clone, PartialEq, Eq)]
pub struct Ticket {
    token: [u8; 16],
    host: Fingerprint,
}

/// Why a text is not a ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TicketTextError {
    /// It does not have the form of a ticket.
    #[error("not a ticket: it begins with `pt1-`; write @FILE to read it from a file")]
    Shape,
    /// A character is wrong or missing.
    #[error("a damaged ticket: copy it again, whole")]
    Check,
}

/// Why a server refuses a ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TicketRefused {
    /// No server of this user issued it, or its record was removed.
    #[error("the ticket is not known here: ask for a new one")]
    Unknown,
    /// It has expired.
    #[error("the ticket has expired: ask for a new one")]
    Expired,
    /// Another server of this user issued it.
    #[error(
        "the ticket is for another server: it opens the one that gave it out, at the same address \
         and with the same root"
    )]
    OtherServer,
    /// It is bound to another client.
    #[error("the ticket was used by another client: ask for a new one")]
    OtherClient,
}

impl Ticket {
    /// A ticket with this random token for the server with this host key.
    pub const fn new(token: [u8; 16], host: Fingerprint) -> Self {
        Self { token, host }
    }

    /// The fingerprint of the host key that the server must present.
    pub const fn host(&self) -> Fingerprint {
        self.host
    }

    /// The secret that the client presents, only over an encrypted connection to that host.
    pub const fn token(&self) -> [u8; 16] {
        self.token
    }

    /// The text for users. It is not `Display`, because it is a secret.
    pub fn to_text(&self) -> String {
        let mut bytes = [self.token.as_slice(), &self.host.0].concat();
        bytes.extend(check_sum(&bytes));
        format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes))
    }

    /// Writes the ticket and a newline to `path`, which only its owner can read.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        statefile::replace(path, format!("{}\n", self.to_text()).as_bytes())
    }
}

impl FromStr for Ticket {
    type Err = TicketTextError;

    fn from_str(text: &str) -> Result<Self, TicketTextError> {
        let base64 = text.trim().strip_prefix(PREFIX).ok_or(TicketTextError::Shape)?;
        let bytes = URL_SAFE_NO_PAD.decode(base64).map_err(|_| TicketTextError::Check)?;
        let (body, sum) = bytes.split_last_chunk::<CHECKSUM_LEN>().ok_or(TicketTextError::Check)?;
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

fn check_sum(bytes: &[u8]) -> [u8; CHECKSUM_LEN] {
    let digest = blake3::derive_key("packtrain ticket check sum v1", bytes);
    [digest[0], digest[1], digest[2], digest[3]]
}

/// The server that a ticket belongs to; other servers refuse it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ServerInstance(blake3::Hash);

impl ServerInstance {
    /// The server of this kind (`serve`, `perf`) with this host key, which listens at `address` and
    /// serves `root`. A server that is restarted with the same values is the same server.
    pub fn new(kind: &str, host: Fingerprint, address: SocketAddr, root: Option<&Path>) -> Self {
        let address = address.to_string();
        let root = root.map_or(&[][..], |root| root.as_os_str().as_bytes());
        let mut hasher = blake3::Hasher::new_derive_key("packtrain server instance v1");
        for part in [kind.as_bytes(), &host.0, address.as_bytes(), root] {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        Self(hasher.finalize())
    }
}

impl fmt::Debug for ServerInstance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ServerInstance({})", self.0)
    }
}

/// The tickets that servers of this user issued.
///
/// One ticket per line, in the order of issue: digest of the token, digest of the server, expiry
/// (seconds since 1970), rights (words separated by commas, `-` for none), and the client's key or
/// `unused`.
#[derive(Clone, Debug)]
pub struct TicketBook {
    path: PathBuf,
}

impl TicketBook {
    /// The file at `path`, which need not exist.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Issues a ticket with this random `token` for `server`. It grants only these `rights`, which
    /// are words of letters and dashes.
    pub fn issue(
        &self,
        token: [u8; 16],
        server: ServerInstance,
        rights: &[&str],
        now: SystemTime,
        lifetime: Duration,
    ) -> io::Result<()> {
        let now = seconds(now);
        let record = Record {
            id: identify(&token),
            server: server.0,
            expires: now.saturating_add(lifetime.as_secs()),
            rights: rights.iter().map(|&word| word.to_owned()).collect(),
            client: None,
        };
        statefile::update(&self.path, |old| {
            let mut records = parse(old);
            records.push(record);
            prune(&mut records, now);
            (Some(render(&records)), ())
        })
    }

    /// Admits the client with the key `client` at `server` if its `token` is valid, and binds the
    /// ticket to the first client. Returns the rights of the ticket.
    pub fn redeem(
        &self,
        token: &[u8; 16],
        server: ServerInstance,
        client: &PublicKey,
        now: SystemTime,
    ) -> io::Result<Result<Vec<String>, TicketRefused>> {
        let (id, now) = (identify(token), seconds(now));
        statefile::update(&self.path, |old| {
            let mut records = parse(old);
            let Some(record) = records.iter_mut().find(|record| record.id == id) else {
                return (None, Err(TicketRefused::Unknown));
            };
            if record.server != server.0 {
                return (None, Err(TicketRefused::OtherServer));
            }
            if record.expires <= now {
                return (None, Err(TicketRefused::Expired));
            }
            let rights = record.rights.clone();
            match record.client {
                Some(bound) if bound == *client => (None, Ok(rights)),
                Some(_) => (None, Err(TicketRefused::OtherClient)),
                None => {
                    record.client = Some(*client);
                    (Some(render(&records)), Ok(rights))
                }
            }
        })
    }
}

struct Record {
    id: blake3::Hash,
    server: blake3::Hash,
    expires: u64,
    rights: Vec<String>,
    client: Option<PublicKey>,
}

/// The valid lines.
fn parse(text: &str) -> Vec<Record> {
    let record = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let id = blake3::Hash::from_hex(words.next()?).ok()?;
        let server = blake3::Hash::from_hex(words.next()?).ok()?;
        let expires: u64 = words.next()?.parse().ok()?;
        let rights = words.next()?.split(',').filter(|word| *word != "-");
        let rights = rights.map(str::to_owned).collect();
        let client = match words.next() {
            Some("unused") => None,
            Some(algorithm) => Some(PublicKey::from_words(algorithm, words.next()?).ok()?),
            None => return None,
        };
        Some(Record { id, server, expires, rights, client })
    };
    text.lines().filter_map(record).collect()
}

fn render(records: &[Record]) -> String {
    let line = |record: &Record| {
        let client = record.client.map_or_else(|| "unused".to_owned(), |key| key.to_string());
        let rights = match record.rights.join(",") {
            none if none.is_empty() => "-".to_owned(),
            rights => rights,
        };
        let Record { id, server, expires, .. } = record;
        format!("{id} {server} {expires} {rights} {client}\n")
    };
    records.iter().map(line).collect()
}

/// Removes expired records that have [`MAX_EXPIRED`] newer ones. Expiry alone removes none: after
/// a temporary jump of the clock a valid ticket must still exist.
fn prune(records: &mut Vec<Record>, now: u64) {
    let count = records.len();
    let mut newer = (0..count).rev();
    records.retain(|record| {
        let newer = newer.next().unwrap_or(0);
        record.expires > now || newer < MAX_EXPIRED
    });
}

/// Parses a file of tickets and writes it again.
#[cfg(feature = "fuzzing")]
pub(crate) fn rewrite(text: &str) -> String {
    render(&parse(text))
}

/// The timing of a comparison of digests reveals nothing useful about the secret. `blake3::Hash`
/// also compares in constant time.
fn identify(token: &[u8; 16]) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new_derive_key("packtrain ticket v2");
    hasher.update(token);
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

    fn server(address: &str, root: &str) -> ServerInstance {
        let address = address.parse().expect("an address");
        ServerInstance::new("serve", A.fingerprint(), address, Some(Path::new(root)))
    }

    fn book() -> (tempfile::TempDir, TicketBook) {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let book = TicketBook::new(dir.path().join("tickets"));
        (dir, book)
    }

    #[test]
    fn the_first_client_keeps_the_ticket_until_it_expires() {
        let (dir, book) = book();
        let here = server("[::]:7876", "/srv");
        let redeem = |key, now| {
            let rights = book.redeem(&TOKEN, here, key, at(now)).expect("it can be written");
            rights.map(|rights| rights.join("+"))
        };
        let ok = || Ok("transfer+write".to_owned());
        assert_eq!(redeem(&A, 100), Err(TicketRefused::Unknown));
        let rights = ["transfer", "write"];
        book.issue(TOKEN, here, &rights, at(100), Duration::from_secs(60)).expect("writable");
        book.issue([8; 16], here, &[], at(100), Duration::from_secs(9)).expect("writable");
        assert_eq!(redeem(&A, 101), ok());
        assert_eq!(redeem(&B, 102), Err(TicketRefused::OtherClient));
        let again = TicketBook::new(dir.path().join("tickets"));
        let restarted = again.redeem(&TOKEN, server("[::]:7876", "/srv"), &A, at(159));
        assert_eq!(restarted.expect("fine").map(|rights| rights.join("+")), ok());
        assert_eq!(redeem(&A, 160), Err(TicketRefused::Expired));
        let none = book.redeem(&[8; 16], here, &A, at(101)).expect("fine");
        assert_eq!(none, Ok(Vec::new()), "no rights");
        let text = std::fs::read_to_string(dir.path().join("tickets")).expect("there");
        assert!(!text.contains(&URL_SAFE_NO_PAD.encode(TOKEN)), "no token is kept: {text}");
    }

    #[test]
    fn a_ticket_opens_the_server_that_gave_it_out_and_no_other() {
        let (_dir, book) = book();
        let here = server("127.0.0.1:7876", "/srv");
        book.issue(TOKEN, here, &["transfer"], at(100), Duration::from_secs(60)).expect("fine");
        let other_key = ServerInstance::new(
            "serve",
            B.fingerprint(),
            "127.0.0.1:7876".parse().expect("an address"),
            Some(Path::new("/srv")),
        );
        let measures = ServerInstance::new(
            "perf",
            A.fingerprint(),
            "127.0.0.1:7876".parse().expect("an address"),
            None,
        );
        for other in [
            server("127.0.0.1:7877", "/srv"),
            server("127.0.0.2:7876", "/srv"),
            server("127.0.0.1:7876", "/srv/data"),
            other_key,
            measures,
        ] {
            let refused = book.redeem(&TOKEN, other, &A, at(101)).expect("fine");
            assert_eq!(refused, Err(TicketRefused::OtherServer));
        }
        let taken = book.redeem(&TOKEN, here, &B, at(101)).expect("fine");
        assert!(taken.is_ok(), "those who were refused have not used it: {taken:?}");
    }

    #[test]
    fn a_clock_that_jumps_ahead_and_back_costs_no_ticket() {
        let (_dir, book) = book();
        let here = server("[::]:7876", "/srv");
        let day = Duration::from_secs(86_400);
        let year_2100 = at(4_102_444_800);
        book.issue(TOKEN, here, &["transfer"], at(100), day).expect("fine");
        let redeem = |now| book.redeem(&TOKEN, here, &A, now).expect("fine");
        assert_eq!(redeem(year_2100), Err(TicketRefused::Expired));
        // This rewrites the file while the clock is wrong.
        book.issue([8; 16], here, &["transfer"], year_2100, day).expect("fine");
        assert!(redeem(at(200)).is_ok());
    }

    #[test]
    fn expired_tickets_go_once_there_are_enough_newer_ones_and_good_ones_never() {
        let record = |n: usize, expires| Record {
            id: identify(&[n as u8; 16]),
            server: server("[::]:1", "/").0,
            expires,
            rights: Vec::new(),
            client: None,
        };
        let mut records: Vec<Record> = (0..MAX_EXPIRED + 9).map(|n| record(n, 50)).collect();
        records[2].expires = 1_000;
        prune(&mut records, 100);
        assert_eq!(records.len(), MAX_EXPIRED + 1);
        assert_eq!(records[0].expires, 1_000);
        prune(&mut records, 100);
        assert_eq!(records.len(), MAX_EXPIRED + 1);
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
        fn any_text_and_any_book_is_read(text in "(pt1-)?[ -~\n]{0,120}|([0-9a-f]{64} ){2}[0-9]{1,21} [a-z,-]{1,9} (unused|[ -~]{0,90})") {
            let _ = text.parse::<Ticket>();
            let _ = parse(&text);
        }
    }
}
