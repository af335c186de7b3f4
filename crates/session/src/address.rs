//! The address of a hop: a host and a port.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// Maximum length of a name in bytes (RFC 1035 section 2.3.4, without the final dot).
const NAME_MAX: usize = 253;

/// A host as named by the sender.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Host {
    /// An IP address.
    Ip(IpAddr),
    /// A name, which the connecting host resolves.
    Name(String),
}

/// A host and a port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The host.
    pub host: Host,
    /// The port; never zero.
    pub port: u16,
}

/// The text or bytes are not a valid place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a host and a port: write HOST:PORT, with brackets around an IPv6 address")]
pub struct PlaceError;

impl Host {
    /// Parses an address (IPv6 with or without brackets) or a name.
    ///
    /// # Errors
    /// The text is neither.
    pub fn parse(text: &str) -> Result<Self, PlaceError> {
        let inner = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
        if let Ok(ip) = inner.unwrap_or(text).parse::<IpAddr>() {
            return if inner.is_some() && ip.is_ipv4() {
                Err(PlaceError)
            } else {
                Ok(Self::Ip(ip))
            };
        }
        Self::name(text).ok_or(PlaceError)
    }

    fn name(text: &str) -> Option<Self> {
        let sound = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'.' | b'_');
        let bytes = text.as_bytes();
        let starts = bytes.first().is_some_and(u8::is_ascii_alphanumeric);
        // Rejects names that other programs parse as addresses: 127.1, 0x7f000001, 2130706433.
        let last = text.rsplit('.').next().unwrap_or_default();
        let number = last.starts_with(|c: char| c.is_ascii_digit());
        let fits = bytes.len() <= NAME_MAX && bytes.iter().copied().all(sound);
        (starts && fits && !number).then(|| Self::Name(text.to_ascii_lowercase()))
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(IpAddr::V6(ip)) => write!(f, "[{ip}]"),
            Self::Ip(ip) => ip.fmt(f),
            Self::Name(name) => f.write_str(name),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

impl FromStr for Place {
    type Err = PlaceError;

    fn from_str(text: &str) -> Result<Self, PlaceError> {
        let (host, port) = text.rsplit_once(':').ok_or(PlaceError)?;
        // Without brackets the end of an IPv6 address is ambiguous.
        if host.contains(':') && !host.starts_with('[') {
            return Err(PlaceError);
        }
        let digits = !port.is_empty() && port.bytes().all(|c| c.is_ascii_digit());
        let port = port.parse().ok().filter(|port| digits && *port > 0).ok_or(PlaceError)?;
        Ok(Self { host: Host::parse(host)?, port })
    }
}

impl Place {
    /// Appends kind (4, 6, or 0 for a name), port, and the address or the name.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let kind = match &self.host {
            Host::Ip(IpAddr::V4(_)) => 4,
            Host::Ip(IpAddr::V6(_)) => 6,
            Host::Name(_) => 0,
        };
        out.push(kind);
        out.extend(self.port.to_be_bytes());
        match &self.host {
            Host::Ip(IpAddr::V4(ip)) => out.extend(ip.octets()),
            Host::Ip(IpAddr::V6(ip)) => out.extend(ip.octets()),
            Host::Name(name) => out.extend(name.as_bytes()),
        }
    }

    /// Parses the bytes of [`Place::write`]; all bytes must be used.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let (head, rest) = bytes.split_first_chunk::<3>()?;
        let port = u16::from_be_bytes([head[1], head[2]]);
        let host = match head[0] {
            4 => Host::Ip(Ipv4Addr::from(<[u8; 4]>::try_from(rest).ok()?).into()),
            6 => Host::Ip(Ipv6Addr::from(<[u8; 16]>::try_from(rest).ok()?).into()),
            0 => Host::name(std::str::from_utf8(rest).ok()?)?,
            _ => return None,
        };
        (port > 0).then_some(Self { host, port })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    pub(crate) fn any_place() -> impl Strategy<Value = Place> {
        let host = prop_oneof![
            any::<Ipv4Addr>().prop_map(|ip| Host::Ip(ip.into())),
            any::<Ipv6Addr>().prop_map(|ip| Host::Ip(ip.into())),
            "[a-z][a-z0-9-]{0,20}(\\.[a-z][a-z0-9-]{0,9}){0,3}".prop_map(Host::Name),
        ];
        (host, 1..=u16::MAX).prop_map(|(host, port)| Place { host, port })
    }

    #[test]
    fn places_as_people_write_them() {
        for good in ["10.0.0.1:7879", "[2001:db8::1]:1", "depot.example.org:7879", "a_b-c:65535"] {
            assert_eq!(good.parse::<Place>().map(|place| place.to_string()), Ok(good.to_owned()));
        }
        for bad in [
            "",
            "host",
            "host:",
            "host:0",
            "host:65536",
            "host:+1",
            "::1:7",
            "[::1]",
            "[1.2.3.4]:5",
            "-x:1",
            "a b:1",
            ":1",
            "[host]:1",
            "127.1:1",
            "2130706433:1",
            "0x7f000001:1",
            "é:1",
        ] {
            assert_eq!(bad.parse::<Place>(), Err(PlaceError), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn a_place_reads_back(place in any_place()) {
            prop_assert_eq!(place.to_string().parse(), Ok(place.clone()));
            let mut bytes = Vec::new();
            place.write(&mut bytes);
            prop_assert_eq!(Place::read(&bytes), Some(place));
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            if let Some(place) = Place::read(&bytes) {
                prop_assert!(place.to_string().parse::<Place>().is_ok());
            }
        }
    }
}
