//! What a called end allows its caller, and how it sets transports up for it.

use std::path::PathBuf;

use packtrain_transfer::FailureKind;
use packtrain_units::DataRate;

use crate::confinement::Confinement;
use crate::handshake::SessionRequest;
use crate::transports::{Hints, MAX_STREAMS, TransportConfig};
use packtrain_identity::config::{self, Dirs, Policy};
use packtrain_service::address_policy::DialPolicy;
use packtrain_service::ceilings::Ceilings;
use packtrain_service::{PortRange, RequestError, TransportChoice};

/// What a called end allows.
#[derive(Clone, Debug, Default)]
pub struct Permissions {
    /// Everything lies below this directory.
    pub root: Option<Confinement>,
    /// Nobody writes.
    pub read_only: bool,
    /// Only perf tests.
    pub perf_only: bool,
    /// Ports for data.
    pub ports: Option<PortRange>,
    /// Rate, streams and transports.
    pub ceilings: Ceilings,
    /// Where data connections go that others name.
    pub dial: DialPolicy,
    /// Callers may set owners, and set-user-id and set-group-id bits, of what they write.
    pub owners: bool,
}

/// The right to transfer files, and not only to measure.
const TRANSFER: &str = "transfer";
/// The right to write.
const WRITE: &str = "write";
/// The right to have the rules of `--dial-to` used.
const DIAL: &str = "dial";
/// The right to set owners.
const OWNERS: &str = "owners";

impl Permissions {
    /// What is granted here, as words for a ticket. Each way in which one server allows more than
    /// another is a word of its own: a ticket grants what its words say, and nothing else.
    pub fn rights(&self) -> Vec<&'static str> {
        let words = [
            (!self.perf_only, TRANSFER),
            (!self.perf_only && !self.read_only, WRITE),
            (self.dial != DialPolicy::default(), DIAL),
            (self.owners, OWNERS),
        ];
        words.into_iter().filter_map(|(has, word)| has.then_some(word)).collect()
    }

    /// Takes away what these words do not grant.
    pub fn restrict_to(&mut self, rights: &[String]) {
        let has = |word: &str| rights.iter().any(|right| right == word);
        self.perf_only |= !has(TRANSFER);
        self.read_only |= !has(WRITE);
        self.owners &= has(OWNERS);
        if !has(DIAL) {
            self.dial = DialPolicy::default();
        }
    }

    /// What the site's policy allows at this end, whoever asks.
    pub fn by_policy() -> Result<Self, RequestError> {
        // Without a home directory there is still a site.
        let dirs = Dirs::from_env().unwrap_or_else(|_| Dirs {
            config: PathBuf::new(),
            state: PathBuf::new(),
            site: PathBuf::from(config::SITE),
        });
        let policy = Policy::load(&dirs)
            .map_err(|e| RequestError::new(FailureKind::Usage, e.to_string()))?;
        let ceilings = Ceilings {
            rate_bps: policy.max_rate.map(DataRate::as_bps),
            transports: policy.transports,
            streams: policy.max_streams,
        };
        Ok(Self { ceilings: ceilings.checked(), ..Self::default() })
    }
}

impl Permissions {
    /// The same with a ceiling of the rate, or the lower one where there is one.
    pub fn with_rate(mut self, rate: Option<DataRate>) -> Self {
        let rates = [rate.map(DataRate::as_bps), self.ceilings.rate_bps];
        self.ceilings.rate_bps = rates.into_iter().flatten().min();
        self
    }

    /// Within one process, or to a server of another kind, no transport of ours is used.
    pub fn any_transport(mut self) -> Self {
        self.ceilings.transports = None;
        self
    }
}

impl SessionRequest {
    /// The transport that was asked for.
    pub fn transport(&self) -> TransportChoice {
        match self.choice {
            1 => TransportChoice::Native,
            2 => TransportChoice::Tcp,
            3 => TransportChoice::Pipe,
            4 => TransportChoice::Udt,
            5 => TransportChoice::Fobs,
            6 => TransportChoice::Sabul,
            _ => TransportChoice::Auto,
        }
    }

    /// How transports are to be set up at an end with these hints, where the other end has the
    /// limits `peer` and the user asked for a rate.
    pub fn plan(
        &self,
        hints: Hints,
        allowed: &Permissions,
        peer: &Ceilings,
        rate_bps: Option<u64>,
    ) -> TransportConfig {
        let choice = self.transport();
        let ceilings = allowed.ceilings.and(peer);
        let rate = allowed.ceilings.rate(peer, rate_bps);
        let asked = self.ports.filter(|(first, last)| first <= last && *first > 0);
        let asked = asked.map(|(first, last)| PortRange { first, last });
        TransportConfig {
            choice,
            cc: self.cc.clone(),
            background: self.background,
            // Zero leaves the number to the source.
            streams: (self.streams > 0).then_some(self.streams),
            most_streams: ceilings.streams.unwrap_or(MAX_STREAMS).clamp(1, MAX_STREAMS),
            earlier: Vec::new(),
            kernel: self.more.kernel(),
            allowed: ceilings.transports,
            rate_bps: rate.map(|(rate, _)| rate),
            rate_by: rate.map(|(_, by)| by),
            ports: allowed.ports.or(asked),
            via: None,
            ways: None,
            relayed: self.path.relayed,
            hints,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_never_grants_more_than_its_words() {
        let rules = DialPolicy::Rules(["192.0.2.0/24".parse().expect("a rule")].into());
        let writable = Permissions { dial: rules.clone(), ..Permissions::default() };
        let read_only = Permissions { read_only: true, ..Permissions::default() };
        let measures = Permissions { perf_only: true, ..Permissions::default() };
        assert_eq!(writable.rights(), ["transfer", "write", "dial"]);
        assert_eq!(read_only.rights(), ["transfer"]);
        assert!(measures.rights().is_empty());
        // A server that was started again with more does not give it to old tickets.
        for (issued, read, perf) in [(&read_only, true, false), (&measures, true, true)] {
            let words: Vec<String> = issued.rights().iter().map(|&w| w.to_owned()).collect();
            let mut now = writable.clone();
            now.restrict_to(&words);
            assert_eq!((now.read_only, now.perf_only), (read, perf));
            assert_eq!(now.dial, DialPolicy::default());
        }
        // One that was started again with less does not give more either.
        let words: Vec<String> = writable.rights().iter().map(|&w| w.to_owned()).collect();
        let mut now = read_only.clone();
        now.restrict_to(&words);
        assert!(now.read_only && !now.perf_only);
        let mut same = writable.clone();
        same.restrict_to(&words);
        assert_eq!(same.rights(), writable.rights());
    }
}
