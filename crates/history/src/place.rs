//! Where rows are kept, as configured.

use std::fmt;
use std::path::PathBuf;

use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};

/// Where rows are kept.
#[derive(Clone, PartialEq, Eq)]
pub enum Place {
    /// An SQLite file.
    File(PathBuf),
    /// A PostgreSQL server.
    Server(Box<Server>),
}

/// The connection settings of a PostgreSQL server.
#[derive(Clone, PartialEq, Eq)]
pub struct Server {
    pub(crate) config: Config,
    /// The file of trusted certificates; the system's if `None`.
    pub(crate) roots: Option<PathBuf>,
}

/// Why a place is malformed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlaceError {
    /// The text is neither a path nor a URL.
    #[error(
        "the history is kept in a file named by its whole path, at a postgresql:// URL, or not at \
         all (none)"
    )]
    Unknown,
    /// A malformed URL.
    #[error("the history's URL: {0}; write postgresql://user@host/database")]
    Url(String),
}

impl Place {
    /// Parses an absolute path or a `postgresql://` URL.
    ///
    /// # Errors
    /// The text is neither.
    pub fn parse(text: &str) -> Result<Self, PlaceError> {
        if text.starts_with("postgresql://") || text.starts_with("postgres://") {
            return server(text).map(|server| Self::Server(Box::new(server)));
        }
        if text.starts_with('/') && !text.ends_with('/') && !text.contains('\0') {
            return Ok(Self::File(PathBuf::from(text)));
        }
        Err(PlaceError::Unknown)
    }

    /// Whether it contains a password.
    pub fn has_password(&self) -> bool {
        match self {
            Self::File(_) => false,
            Self::Server(server) => server.config.get_password().is_some(),
        }
    }
}

/// Parses a URL, and removes the parameters that the library does not support. TLS always verifies
/// the certificate here, so `require` means `verify-full`; `sslrootcert` names the trusted
/// certificates.
fn server(text: &str) -> Result<Server, PlaceError> {
    let (base, query) = text.split_once('?').unwrap_or((text, ""));
    let (mut mode, mut roots, mut rest) = (None, None, Vec::new());
    for part in query.split('&').filter(|part| !part.is_empty()) {
        match part.split_once('=') {
            Some(("sslmode", value)) => mode = Some(value),
            Some(("sslrootcert", value)) => roots = Some(PathBuf::from(plain(value))),
            _ => rest.push(part),
        }
    }
    let url = if rest.is_empty() { base.to_owned() } else { format!("{base}?{}", rest.join("&")) };
    // The library's error contains names of options, not their values.
    let mut config: Config = url.parse().map_err(|e: tokio_postgres::Error| {
        PlaceError::Url(std::error::Error::source(&e).map_or(e.to_string(), ToString::to_string))
    })?;
    if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
        return Err(PlaceError::Url("it names no host".to_owned()));
    }
    let encrypt = match mode {
        Some("disable") => false,
        // Connections within this machine need no encryption.
        None => !stays_here(&config),
        Some("require" | "verify-ca" | "verify-full") => true,
        Some(other) => {
            return Err(PlaceError::Url(format!(
                "sslmode {other} is not known: write verify-full, or disable on a network that \
                 you trust"
            )));
        }
    };
    // A certificate is verified for the host's name, never for `hostaddr`.
    let named = |i: usize| matches!(config.get_hosts().get(i), Some(Host::Tcp(_)));
    if encrypt && !(0..config.get_hostaddrs().len()).all(named) {
        return Err(PlaceError::Url(
            "hostaddr leads to another machine, and there is no host name to check its \
             certificate against: add host=NAME, or sslmode=disable on a network that you trust"
                .to_owned(),
        ));
    }
    config.ssl_mode(if encrypt { SslMode::Require } else { SslMode::Disable });
    config.application_name("packtrain");
    Ok(Server { config, roots })
}

/// Whether every connection ends at this machine. If there is a `hostaddr`, it determines the
/// destination, because the library then uses the host's name only for the certificate.
fn stays_here(config: &Config) -> bool {
    let hosts = config.get_hosts();
    let addresses = config.get_hostaddrs();
    (0..hosts.len().max(addresses.len())).all(|i| match (addresses.get(i), hosts.get(i)) {
        (Some(address), _) => address.is_loopback(),
        (None, Some(Host::Unix(_))) => true,
        (None, Some(Host::Tcp(name))) => {
            name == "localhost"
                || name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
        }
        (None, None) => true,
    })
}

/// Decodes percent-encoded bytes.
fn plain(text: &str) -> String {
    let mut out = Vec::new();
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        let mut ahead = bytes.clone();
        let mut digit = || ahead.next().and_then(|d| char::from(d).to_digit(16));
        match (byte, digit().zip(digit())) {
            (b'%', Some((high, low))) => {
                out.push((high * 16 + low) as u8);
                bytes = ahead;
            }
            _ => out.push(byte),
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

impl fmt::Display for Place {
    /// Without a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Server(server) => server.fmt(f),
        }
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("postgresql://")?;
        if let Some(user) = self.config.get_user() {
            write!(f, "{user}@")?;
        }
        let (hosts, addresses) = (self.config.get_hosts(), self.config.get_hostaddrs());
        let one = |i: usize| {
            let name = hosts.get(i).map(|host| match host {
                Host::Tcp(name) => name.clone(),
                Host::Unix(path) => path.display().to_string(),
            });
            match (name, addresses.get(i)) {
                (Some(name), Some(address)) => format!("{name}[{address}]"),
                (name, address) => {
                    name.or_else(|| address.map(ToString::to_string)).unwrap_or_default()
                }
            }
        };
        let ports = self.config.get_ports();
        // One port applies to all hosts. The default port goes without saying.
        let named = |i: usize| ports.get(i).or(ports.first()).filter(|&&port| port != 5432);
        let port = |i: usize| named(i).map(|port| format!(":{port}"));
        let place = |i: usize| format!("{}{}", one(i), port(i).unwrap_or_default());
        let hosts: Vec<String> = (0..hosts.len().max(addresses.len())).map(place).collect();
        write!(f, "{}/{}", hosts.join(","), self.config.get_dbname().unwrap_or_default())
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Place({self})")
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Server({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server_of(text: &str) -> Server {
        match Place::parse(text) {
            Ok(Place::Server(server)) => *server,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn passwords_are_seen_and_never_shown() {
        let place = Place::parse("postgresql://me:s3cret@db.example/site").expect("good");
        assert!(place.has_password());
        for shown in [place.to_string(), format!("{place:?}")] {
            assert!(shown.contains("me@db.example/site") && !shown.contains("s3cret"), "{shown}");
        }
        assert!(!Place::parse("postgres://me@db.example/site").expect("good").has_password());
        for bad in ["postgresql://me:s3cret@db/x?frob=s3cret", "postgresql://me:s3cret@h:x/y"] {
            let error = Place::parse(bad).expect_err(bad).to_string();
            assert!(!error.contains("s3cret"), "{error}");
        }
    }

    #[test]
    fn what_leaves_the_machine_is_encrypted() {
        let mode = |text| server_of(text).config.get_ssl_mode();
        assert_eq!(mode("postgresql://db.example/x"), SslMode::Require);
        assert_eq!(mode("postgresql://db.example/x?sslmode=disable"), SslMode::Disable);
        assert_eq!(mode("postgresql://127.0.0.1/x"), SslMode::Disable);
        assert_eq!(mode("postgresql://[::1]/x"), SslMode::Disable);
        assert_eq!(mode("postgresql:///x?host=/run/postgresql"), SslMode::Disable);
        assert_eq!(mode("postgresql://localhost/x?sslmode=verify-full"), SslMode::Require);
        let roots = server_of("postgresql://h/x?sslrootcert=/a%20b&connect_timeout=2").roots;
        assert_eq!(roots, Some(PathBuf::from("/a b")));
        assert!(Place::parse("postgresql://h/x?sslmode=prefer").is_err());
    }

    #[test]
    fn hostaddr_does_not_turn_encryption_off() {
        let mode = |text: &str| server_of(text).config.get_ssl_mode();
        let localhost = "postgresql://localhost/x?hostaddr=192.0.2.7";
        assert_eq!(mode(localhost), SslMode::Require);
        assert!(server_of(localhost).to_string().contains("localhost[192.0.2.7]"));
        assert_eq!(mode("postgresql://db.example/x?hostaddr=192.0.2.7"), SslMode::Require);
        assert_eq!(mode("postgresql://db.example/x?hostaddr=127.0.0.1"), SslMode::Disable);
        assert_eq!(mode("postgresql:///x?hostaddr=::1"), SslMode::Disable);
        let two = "postgresql://localhost,localhost/x?hostaddr=127.0.0.1,192.0.2.7";
        assert_eq!(mode(two), SslMode::Require);
        for nameless in [
            "postgresql:///x?hostaddr=192.0.2.7",
            "postgresql:///x?host=/run/postgresql&hostaddr=192.0.2.7",
            "postgresql:///x?hostaddr=192.0.2.7&sslmode=require",
        ] {
            let error = Place::parse(nameless).expect_err(nameless).to_string();
            assert!(error.contains("sslmode=disable"), "{error}");
            let clear = format!("{nameless}&sslmode=disable").replace("&sslmode=require", "");
            assert_eq!(mode(&clear), SslMode::Disable, "{clear}");
        }
    }

    #[test]
    fn only_whole_paths_are_files() {
        assert_eq!(Place::parse("/a/b.db"), Ok(Place::File("/a/b.db".into())));
        for bad in ["", "history.db", "/a/", "mysql://h/x", "/a\0b"] {
            assert_eq!(Place::parse(bad), Err(PlaceError::Unknown), "{bad}");
        }
    }
}
