//! Locations: `path`, `user@host:path`, `pt://host:port/path`, `udt4://host:port/name`,
//! `https://host/path`, `s3://bucket/key`, `-`.
//!
//! As in scp and rsync, a colon before any slash makes a name remote, so `./a:b` is the local file
//! `a:b`. IPv6 addresses have brackets: `[::1]:path`. A path is bytes and is taken literally:
//! nothing is percent-decoded, except in web addresses, which follow RFC 3986.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;

use crate::weburl::{WebUrl, redact};

/// The default port of a server.
pub const DEFAULT_PORT: u16 = 7876;

/// The default port of the stock UDT library's file server.
pub(crate) const DEFAULT_UDT4_PORT: u16 = 9000;

/// One source or destination.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum Location {
    /// A path on this machine.
    Local(Vec<u8>),
    /// A path reached by starting the other end over ssh.
    Ssh {
        /// The user to log in as; `None` leaves the choice to ssh.
        user: Option<String>,
        /// The host as passed to ssh, without brackets.
        host: String,
        /// The path there. It is relative to the home directory unless it begins with a slash.
        path: Vec<u8>,
    },
    /// A path below the root of a server.
    Server {
        /// The host, without brackets.
        host: String,
        /// Its port.
        port: u16,
        /// The path without the slash after the port; may be empty.
        path: Vec<u8>,
    },
    /// A file on a server of the stock UDT library's file transfer, unencrypted.
    Udt4 {
        /// The host, without brackets.
        host: String,
        /// Its port.
        port: u16,
        /// The name of the file on that server; never empty.
        path: Vec<u8>,
    },
    /// A file on a web server.
    Http {
        /// The address. Its `Display` omits secrets.
        url: WebUrl,
        /// Its host, without brackets.
        host: String,
    },
    /// An object in an S3 store, or all objects below a prefix.
    S3 {
        /// The bucket's name.
        bucket: String,
        /// The key or the prefix; may be empty.
        key: String,
    },
    /// Standard input as a source, standard output as a destination.
    Stdio,
}

/// Why a location is malformed. All are usage errors.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LocationError {
    /// The text is empty.
    #[error("an empty name is not a location: write `.` for the current directory")]
    Empty,
    /// An unknown scheme.
    #[error(
        "{0}:// is not known: use a path, user@host:path, pt://host:port/path, https:// or s3://"
    )]
    UnknownScheme(String),
    /// A known scheme with a wrong spelling. The text after it is not shown, because it may be a
    /// secret.
    #[error("`{0}:` is not followed by `//`, or not in small letters: write https://host/path")]
    BadScheme(String),
    /// `host::module`.
    #[error("`{0}` is an rsync server's spelling, which is not spoken: use user@host:path")]
    RsyncDaemon(String),
    /// A host or user name with invalid characters, or one that ssh would parse as an option.
    #[error("`{0}` is not a host or user name: write ./{0} if a local path is meant")]
    BadName(String),
    /// An invalid port.
    #[error("`{0}` is not a port: write a number from 1 to 65535 after the host")]
    BadPort(String),
    /// An unpaired bracket.
    #[error("`{0}`: write an IPv6 address as [2001:db8::1]")]
    BadBrackets(String),
    /// `pt://user@host`.
    #[error(
        "before `@{0}` stands a user name, but a server knows users by their keys: leave it out"
    )]
    ServerUser(String),
    /// `udt4://host:port/` without a file name.
    #[error("`{0}` names no file: write udt4://host:port/name")]
    NoName(String),
    /// An invalid web address.
    #[error("`{0}` is not a web address: {1}")]
    BadUrl(String, String),
    /// A user name or password in an address.
    #[error(
        "an address with a name or a password in it would be visible to every user of this machine"
    )]
    UrlSecret,
    /// `s3://` without a bucket, or with a key that is not UTF-8.
    #[error("`{0}` is not a location in an S3 store: write s3://bucket/key")]
    BadBucket(String),
    /// A path with a zero byte.
    #[error("a path cannot hold a zero byte: check how it was put together")]
    ZeroByte,
}

impl Location {
    /// Parses an argument of `cp`.
    pub fn parse(text: &OsStr) -> Result<Self, LocationError> {
        let bytes = text.as_bytes();
        if bytes.is_empty() {
            return Err(LocationError::Empty);
        }
        if bytes.contains(&0) {
            return Err(LocationError::ZeroByte);
        }
        if bytes == b"-" {
            return Ok(Self::Stdio);
        }
        if let Some((scheme, rest)) = split_scheme(bytes) {
            return match scheme {
                "pt" => {
                    let (host, port, path) = authority_and_path(rest)?;
                    Ok(Self::Server { host, port: port.unwrap_or(DEFAULT_PORT), path })
                }
                "udt4" => {
                    let (host, port, path) = authority_and_path(rest)?;
                    if path.is_empty() {
                        return Err(LocationError::NoName(lossy(bytes)));
                    }
                    Ok(Self::Udt4 { host, port: port.unwrap_or(DEFAULT_UDT4_PORT), path })
                }
                "http" | "https" => web(bytes),
                "s3" => bucket_and_key(rest, bytes),
                other => Err(LocationError::UnknownScheme(other.into())),
            };
        }
        // If an address were parsed as an ssh host, its secrets would be stored.
        if let Some(at) = bytes.iter().position(|b| *b == b':')
            && let Ok(scheme) = std::str::from_utf8(&bytes[..at])
            && SCHEMES.contains(&scheme.to_ascii_lowercase().as_str())
            && (bytes[at + 1..].starts_with(b"/") || bytes[at + 1..].contains(&b'?'))
        {
            return Err(LocationError::BadScheme(scheme.to_owned()));
        }
        ssh_or_local(bytes)
    }

    /// Whether the location is on another machine.
    pub const fn is_remote(&self) -> bool {
        !matches!(self, Self::Local(_) | Self::Stdio)
    }

    /// The host, if the location is on another machine.
    pub fn host(&self) -> Option<&str> {
        match self {
            Self::Ssh { host, .. }
            | Self::Server { host, .. }
            | Self::Udt4 { host, .. }
            | Self::Http { host, .. } => Some(host),
            Self::S3 { bucket, .. } => Some(bucket),
            Self::Local(_) | Self::Stdio => None,
        }
    }

    /// Whether two locations are reached through the same end: both on this machine, or on the same
    /// host with the same login.
    pub fn same_end(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Ssh { user: a, host: b, .. }, Self::Ssh { user: c, host: d, .. }) => {
                a == c && b == d
            }
            (Self::Server { host: a, port: b, .. }, Self::Server { host: c, port: d, .. })
            | (Self::Udt4 { host: a, port: b, .. }, Self::Udt4 { host: c, port: d, .. }) => {
                a == c && b == d
            }
            (Self::Http { .. }, Self::Http { .. }) => true,
            (Self::S3 { bucket: a, .. }, Self::S3 { bucket: b, .. }) => a == b,
            (one, two) => !one.is_remote() && !two.is_remote(),
        }
    }

    /// The path as its end spells it; of a web address the path without the query; `-` for standard
    /// input and output.
    pub fn path(&self) -> &[u8] {
        match self {
            Self::Local(path)
            | Self::Ssh { path, .. }
            | Self::Server { path, .. }
            | Self::Udt4 { path, .. } => path,
            Self::Http { url, .. } => url.path().as_bytes(),
            Self::S3 { key, .. } => key.as_bytes(),
            Self::Stdio => b"-",
        }
    }
}

/// The schemes of locations.
const SCHEMES: [&str; 5] = ["http", "https", "s3", "pt", "udt4"];

/// Splits `scheme://rest`. The scheme consists of lower-case letters, digits, `+`, `-` and `.` (RFC
/// 3986 section 3.1, which also allows upper case).
fn split_scheme(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let at = bytes.windows(3).position(|w| w == b"://")?;
    let scheme = std::str::from_utf8(&bytes[..at]).ok()?;
    let mut letters = scheme.bytes();
    let good = letters.next().is_some_and(|c| c.is_ascii_lowercase())
        && letters.all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || b"+-.".contains(&c));
    good.then(|| (scheme, &bytes[at + 3..]))
}

/// Parses a web address.
fn web(bytes: &[u8]) -> Result<Location, LocationError> {
    let text = lossy(bytes);
    let bad = |why: String| LocationError::BadUrl(redact(&text), why);
    let url = WebUrl::parse(&text).map_err(|e| bad(e.to_string()))?;
    if url.has_login() {
        return Err(LocationError::UrlSecret);
    }
    let host = url.host().to_owned();
    if host.is_empty() {
        return Err(bad("no host".to_owned()));
    }
    Ok(Location::Http { url, host })
}

/// Parses `BUCKET[/KEY]`.
fn bucket_and_key(rest: &[u8], whole: &[u8]) -> Result<Location, LocationError> {
    let bad = || LocationError::BadBucket(redact(&lossy(whole)));
    let rest = std::str::from_utf8(rest).map_err(|_| bad())?;
    let (bucket, key) = rest.split_once('/').unwrap_or((rest, ""));
    let usual = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    if bucket.is_empty() || !bucket.chars().all(usual) || bucket.starts_with('.') {
        return Err(bad());
    }
    Ok(Location::S3 { bucket: bucket.to_owned(), key: key.to_owned() })
}

/// Parses `HOST[:PORT][/PATH]`.
fn authority_and_path(rest: &[u8]) -> Result<(String, Option<u16>, Vec<u8>), LocationError> {
    let slash = rest.iter().position(|&c| c == b'/').unwrap_or(rest.len());
    let authority = lossy(&rest[..slash]);
    let path = rest.get(slash + 1..).unwrap_or_default().to_vec();
    if authority.contains('@') {
        let host = authority.rsplit_once('@').map_or("", |(_, host)| host);
        return Err(LocationError::ServerUser(host.to_owned()));
    }
    let (host, port) = host_and_port(&authority)?;
    Ok((host, port, path))
}

/// Parses `HOST`, `HOST:PORT`, `[ADDRESS]` or `[ADDRESS]:PORT`.
pub fn host_and_port(text: &str) -> Result<(String, Option<u16>), LocationError> {
    let (host, port) = match text.strip_prefix('[') {
        Some(inner) => {
            let (host, after) =
                inner.split_once(']').ok_or_else(|| LocationError::BadBrackets(text.to_owned()))?;
            let port = match after.strip_prefix(':') {
                Some(port) => Some(port),
                None if after.is_empty() => None,
                None => return Err(LocationError::BadBrackets(text.to_owned())),
            };
            (check_address(host)?, port)
        }
        None => match text.split_once(':') {
            Some((_, port)) if port.contains(':') => {
                return Err(LocationError::BadBrackets(text.to_owned()));
            }
            Some((host, port)) => (check_name(host)?, Some(port)),
            None => (check_name(text)?, None),
        },
    };
    let port = port.map(parse_port).transpose()?;
    Ok((host, port))
}

fn parse_port(text: &str) -> Result<u16, LocationError> {
    let digits = !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit());
    text.parse::<u16>()
        .ok()
        .filter(|&port| digits && port > 0)
        .ok_or_else(|| LocationError::BadPort(text.to_owned()))
}

fn ssh_or_local(bytes: &[u8]) -> Result<Location, LocationError> {
    let slash = bytes.iter().position(|&c| c == b'/').unwrap_or(bytes.len());
    let Some(colon) = separating_colon(&bytes[..slash])? else {
        return Ok(Location::Local(bytes.to_vec()));
    };
    let (name, path) = (lossy(&bytes[..colon]), &bytes[colon + 1..]);
    if path.first() == Some(&b':') {
        return Err(LocationError::RsyncDaemon(lossy(bytes)));
    }
    let (user, host) = match name.rsplit_once('@') {
        Some((user, host)) => (Some(check_name(user)?), host),
        None => (None, name.as_str()),
    };
    let host = match host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        Some(address) => check_address(address)?,
        None => check_name(host)?,
    };
    let path = if path.is_empty() { b".".to_vec() } else { path.to_vec() };
    Ok(Location::Ssh { user, host, path })
}

/// The colon after the host. `head` is the text before the first slash.
fn separating_colon(head: &[u8]) -> Result<Option<usize>, LocationError> {
    // A user name ends before the first colon, and brackets contain no user name.
    let named = head.split(|&c| c == b':' || c == b'[').next().unwrap_or_default();
    let host = named.iter().rposition(|&c| c == b'@').map_or(0, |at| at + 1);
    if head.get(host) == Some(&b'[') {
        if let Some(close) = head.iter().skip(host).position(|&c| c == b']') {
            let close = host + close;
            return Ok((head.get(close + 1) == Some(&b':')).then_some(close + 1));
        }
        if head.contains(&b':') {
            return Err(LocationError::BadBrackets(lossy(head)));
        }
    }
    Ok(head.iter().position(|&c| c == b':'))
}

/// Checks a host or user name. Names are passed to the command line of ssh and to the resolver, so
/// they have no leading `-` and only the characters of such names.
fn check_name(name: &str) -> Result<String, LocationError> {
    let usual = |c: char| c.is_alphanumeric() || "-._~+%@\\".contains(c);
    if name.is_empty() || name.starts_with('-') || !name.chars().all(usual) {
        return Err(LocationError::BadName(name.to_owned()));
    }
    Ok(name.to_owned())
}

/// Checks the text in brackets: an IPv6 address with an optional zone, or a name.
fn check_address(text: &str) -> Result<String, LocationError> {
    let (address, zone) = text.split_once('%').map_or((text, None), |(a, z)| (a, Some(z)));
    if address.parse::<std::net::Ipv6Addr>().is_ok() {
        zone.map(check_name).transpose()?;
        return Ok(text.to_owned());
    }
    check_name(text).map_err(|_| LocationError::BadBrackets(format!("[{text}]")))
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bracketed = |host: &str| {
            if host.contains(':') { format!("[{host}]") } else { host.to_owned() }
        };
        let path = packtrain_units::escape::name(self.path());
        match self {
            Self::Ssh { user: Some(user), host, .. } => {
                write!(f, "{user}@{}:{path}", bracketed(host))
            }
            Self::Ssh { user: None, host, .. } => write!(f, "{}:{path}", bracketed(host)),
            Self::Server { host, port, .. } => write!(f, "pt://{}:{port}/{path}", bracketed(host)),
            Self::Udt4 { host, port, .. } => write!(f, "udt4://{}:{port}/{path}", bracketed(host)),
            Self::Http { url, .. } => url.fmt(f),
            Self::S3 { bucket, key } => write!(f, "s3://{bucket}/{key}"),
            // A local path that would parse as another location is shown with `./`.
            Self::Local(bytes) => match Self::parse(OsStr::from_bytes(bytes)) {
                Ok(Self::Local(_)) => f.write_str(&path),
                _ => write!(f, "./{path}"),
            },
            Self::Stdio => f.write_str("-"),
        }
    }
}

impl fmt::Debug for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.to_string())
    }
}

#[cfg(test)]
#[path = "location_tests.rs"]
mod tests;
