//! The site's ceilings: `/etc/packtrain/policy.toml`. No option, variable or configuration file
//! exceeds them, at both ends of a transfer and in both directions.
//!
//! ```toml
//! max-rate = "2gbit"              # any transfer, in either direction
//! max-streams = 8                 # TCP streams, and perf --parallel
//! max-ticket-lifetime = "12h"
//! transports = ["native", "tcp"]  # the only ones allowed
//! accept-new-host = false         # host keys come from the site alone
//! ```

use std::path::Path;

use packtrain_units::{DataRate, Duration, parse_duration, parse_rate};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use super::{ConfigError, Dirs, load_toml};

/// Ceilings. `None` means no limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Policy {
    /// The highest rate of a transfer, sent or received.
    #[serde(deserialize_with = "rate")]
    pub max_rate: Option<DataRate>,
    /// Maximum number of streams of a transfer.
    #[serde(deserialize_with = "streams")]
    pub max_streams: Option<u32>,
    /// Maximum lifetime of a ticket.
    #[serde(deserialize_with = "duration")]
    pub max_ticket_lifetime: Option<Duration>,
    /// The allowed transports, by their names on the command line.
    #[serde(deserialize_with = "transports")]
    pub transports: Option<Vec<String>>,
    /// Whether `--accept-new-host` is allowed.
    pub accept_new_host: Option<bool>,
}

/// A request that the policy does not allow.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// A transport.
    #[error(
        "this site's policy does not allow --transport {asked}: it allows {allowed} (transports in policy.toml)"
    )]
    Transport {
        /// The requested transport.
        asked: String,
        /// The allowed transports.
        allowed: String,
    },
    /// Trust on first use.
    #[error(
        "this site's policy does not allow --accept-new-host: ask for the host key to be added"
    )]
    NewHost,
}

impl Policy {
    /// The site's policy; empty if the file does not exist. A file that is unreadable or malformed
    /// is an error, so that a typing error does not remove the ceilings.
    pub fn load(dirs: &Dirs) -> Result<Self, ConfigError> {
        Self::load_from(&dirs.site.join("policy.toml"))
    }

    fn load_from(path: &Path) -> Result<Self, ConfigError> {
        Ok(load_toml(path)?.unwrap_or_default())
    }

    /// The rate to use if `asked` is requested; `None` means unlimited.
    pub fn rate(&self, asked: Option<DataRate>) -> Option<DataRate> {
        least(asked, self.max_rate)
    }

    /// The number of streams to use if `asked` is requested.
    pub fn streams(&self, asked: u32) -> u32 {
        self.max_streams.map_or(asked, |most| asked.min(most))
    }

    /// The lifetime of a ticket if `asked` is requested.
    pub fn ticket_lifetime(&self, asked: Duration) -> Duration {
        self.max_ticket_lifetime.map_or(asked, |most| asked.min(most))
    }

    /// Checks whether the transport `name` is allowed. `auto` is: its caller checks each transport
    /// that it would use.
    pub fn check_transport(&self, name: &str) -> Result<(), PolicyError> {
        match &self.transports {
            Some(allowed) if name != "auto" && !allowed.iter().any(|known| known == name) => {
                Err(PolicyError::Transport { asked: name.to_owned(), allowed: allowed.join(", ") })
            }
            _ => Ok(()),
        }
    }

    /// Checks whether trust on first use is allowed, if it is `asked` for.
    pub fn check_new_host(&self, asked: bool) -> Result<(), PolicyError> {
        if asked && self.accept_new_host == Some(false) {
            Err(PolicyError::NewHost)
        } else {
            Ok(())
        }
    }
}

fn least<T: Ord>(one: Option<T>, two: Option<T>) -> Option<T> {
    match (one, two) {
        (Some(one), Some(two)) => Some(one.min(two)),
        (one, two) => one.or(two),
    }
}

/// The transports that a policy can contain.
pub const TRANSPORTS: [&str; 7] = ["native", "udt", "fobs", "sabul", "tcp", "pipe", "udt4"];

fn rate<'de, D: Deserializer<'de>>(from: D) -> Result<Option<DataRate>, D::Error> {
    let text = String::deserialize(from)?;
    match parse_rate(&text).map_err(D::Error::custom)? {
        DataRate::ZERO => Err(D::Error::custom(
            "max-rate is zero, which would allow no transfer: write a rate such as \"2gbit\", or \
             leave the line out",
        )),
        rate => Ok(Some(rate)),
    }
}

fn streams<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u32>, D::Error> {
    match u32::deserialize(from)? {
        0 => Err(D::Error::custom(
            "max-streams is zero, which would allow no stream: write 1 or more, or leave the line \
             out",
        )),
        most => Ok(Some(most)),
    }
}

fn transports<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Vec<String>>, D::Error> {
    let names = Vec::<String>::deserialize(from)?;
    let known = TRANSPORTS.join(", ");
    if names.is_empty() {
        let text = format!(
            "transports is empty, which would allow no transfer: name some of {known}, or leave \
             the line out"
        );
        return Err(D::Error::custom(text));
    }
    match names.iter().find(|name| !TRANSPORTS.contains(&name.as_str())) {
        Some(name) => {
            Err(D::Error::custom(format!("`{name}` is not a transport: the names are {known}")))
        }
        None => Ok(Some(names)),
    }
}

fn duration<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    let text = String::deserialize(from)?;
    parse_duration(&text).map(Some).map_err(D::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(text: &str) -> Result<Policy, ConfigError> {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("policy.toml");
        std::fs::write(&path, text).expect("fine");
        Policy::load_from(&path)
    }

    #[test]
    fn ceilings_lower_what_is_asked_and_never_raise_it() {
        let policy = policy(
            "max-rate = '1gbit'\nmax-streams = 4\nmax-ticket-lifetime = '1h'\n\
             transports = ['tcp', 'pipe']\naccept-new-host = false\n",
        )
        .expect("a good policy");
        assert_eq!(policy.rate(None), Some(DataRate::from_mbps(1000)));
        assert_eq!(policy.rate(Some(DataRate::from_mbps(5))), Some(DataRate::from_mbps(5)));
        assert_eq!((policy.streams(9), policy.streams(2)), (4, 2));
        assert_eq!(policy.ticket_lifetime(Duration::MAX), Duration::from_secs(3600));
        assert_eq!(policy.check_transport("auto"), Ok(()));
        assert_eq!(policy.check_transport("pipe"), Ok(()));
        assert!(policy.check_transport("native").is_err());
        assert!(policy.check_new_host(true).is_err());
        assert_eq!(policy.check_new_host(false), Ok(()));
    }

    #[test]
    fn no_file_limits_nothing_and_a_mistake_is_an_error() {
        let none = Policy::load_from(Path::new("/nonexistent/policy.toml")).expect("no file");
        assert_eq!(none, Policy::default());
        assert_eq!((none.rate(None), none.streams(7)), (None, 7));
        for bad in ["max-rate = 5", "max-rate = '500'", "maxrate = '5gbit'", "max-streams = -1"] {
            assert!(policy(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_ceiling_that_would_allow_nothing_or_means_nothing_is_refused() {
        let said = |text: &str| policy(text).expect_err(text).to_string();
        for bad in ["transports = ['foo']", "transports = ['tcp', 'TCP']", "transports = []"] {
            let text = said(bad);
            assert!(text.contains("native, udt, fobs, sabul, tcp, pipe, udt4"), "{text}");
        }
        assert!(said("transports = ['foo']").contains("`foo` is not a transport"));
        assert!(said("max-streams = 0").contains("max-streams is zero"));
        assert!(said("max-rate = '0bit'").contains("max-rate is zero"));
        assert!(said("max-rate = '0gbit'").contains("max-rate is zero"));
        for name in TRANSPORTS {
            assert!(policy(&format!("transports = ['{name}']")).is_ok(), "{name}");
        }
    }
}
