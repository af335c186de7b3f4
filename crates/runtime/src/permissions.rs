//! Permissions of a responder, and the transport configuration that follows from them.

use std::path::PathBuf;

use packtrain_transfer::FailureKind;
use packtrain_units::DataRate;

use crate::confinement::Confinement;
use crate::handshake::{Agreed, SessionRequest};
use crate::transports::{Hints, MAX_STREAMS, TransportConfig};
use packtrain_identity::config::{self, Dirs, Policy};
use packtrain_service::address_policy::DialPolicy;
use packtrain_service::ceilings::Ceilings;
use packtrain_service::{PortRange, RequestError, TransportChoice};

/// What a responder permits.
#[derive(Clone, Debug, Default)]
pub struct Permissions {
    /// Restricts all paths to this directory.
    pub root: Option<Confinement>,
    /// Refuses writes.
    pub read_only: bool,
    /// Permits only perf tests.
    pub perf_only: bool,
    /// Ports for data connections.
    pub ports: Option<PortRange>,
    /// Limits of rate, streams and transports.
    pub ceilings: Ceilings,
    /// Addresses, named by others, to which data connections may be made.
    pub dial: DialPolicy,
    /// Permits callers to set owners, set-user-id and set-group-id bits of what they write.
    pub owners: bool,
}

/// Permits transfers of files in addition to measurements.
const TRANSFER: &str = "transfer";
/// Permits writes.
const WRITE: &str = "write";
/// Permits the use of the `--dial-to` rules.
const DIAL: &str = "dial";
/// Permits setting owners.
const OWNERS: &str = "owners";

impl Permissions {
    /// The permissions granted here, as words for a ticket. Each permission has a word of its own,
    /// and a ticket grants exactly its words.
    pub fn rights(&self) -> Vec<&'static str> {
        let words = [
            (!self.perf_only, TRANSFER),
            (!self.perf_only && !self.read_only, WRITE),
            (self.dial != DialPolicy::default(), DIAL),
            (self.owners, OWNERS),
        ];
        words.into_iter().filter_map(|(has, word)| has.then_some(word)).collect()
    }

    /// Removes permissions that these words do not grant.
    pub fn restrict_to(&mut self, rights: &[String]) {
        let has = |word: &str| rights.iter().any(|right| right == word);
        self.perf_only |= !has(TRANSFER);
        self.read_only |= !has(WRITE);
        self.owners &= has(OWNERS);
        if !has(DIAL) {
            self.dial = DialPolicy::default();
        }
    }

    /// The permissions of the site's policy, for any caller.
    pub fn by_policy() -> Result<Self, RequestError> {
        // The site's policy applies even without a home directory.
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
    /// Adds a limit of the rate; the lowest limit applies.
    pub fn with_rate(mut self, rate: Option<DataRate>) -> Self {
        let rates = [rate.map(DataRate::as_bps), self.ceilings.rate_bps];
        self.ceilings.rate_bps = rates.into_iter().flatten().min();
        self
    }

    /// Removes the limits on transports: within one process, or with a server of another kind, no
    /// Packtrain transport is used.
    pub fn any_transport(mut self) -> Self {
        self.ceilings.transports = None;
        self
    }
}

impl SessionRequest {
    /// The requested transport.
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

    /// The transport configuration of an end with these hints. `peer` are the limits of the other
    /// end, `rate_bps` is the rate that the user requested.
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
            // Zero lets the source choose the number.
            streams: (self.streams > 0).then_some(self.streams),
            most_streams: ceilings.streams.unwrap_or(MAX_STREAMS).clamp(1, MAX_STREAMS),
            earlier: Default::default(),
            kernel: self.more.kernel(),
            allowed: ceilings.transports,
            rate_bps: rate.map(|(rate, _)| rate),
            rate_by: rate.map(|(_, by)| by),
            ports: allowed.ports.or(asked),
            via: None,
            ways: None,
            relayed: self.path.relayed,
            hints,
            rtt: None,
        }
    }

    /// The configuration `plan` of an initiator, which it made without the limits of the responder,
    /// once the responder has agreed.
    pub fn agree(
        &self,
        plan: TransportConfig,
        allowed: &Permissions,
        agreed: &Agreed,
        rate_bps: Option<u64>,
    ) -> TransportConfig {
        let TransportConfig { earlier, via, ways, hints, .. } = plan;
        let both = self.plan(hints, allowed, &agreed.ceilings, rate_bps);
        TransportConfig { earlier, via, ways, rtt: Some(agreed.rtt), ..both }
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
        // A server that restarts with more permissions does not extend old tickets.
        for (issued, read, perf) in [(&read_only, true, false), (&measures, true, true)] {
            let words: Vec<String> = issued.rights().iter().map(|&w| w.to_owned()).collect();
            let mut now = writable.clone();
            now.restrict_to(&words);
            assert_eq!((now.read_only, now.perf_only), (read, perf));
            assert_eq!(now.dial, DialPolicy::default());
        }
        // A server that restarts with fewer permissions restricts old tickets.
        let words: Vec<String> = writable.rights().iter().map(|&w| w.to_owned()).collect();
        let mut now = read_only.clone();
        now.restrict_to(&words);
        assert!(now.read_only && !now.perf_only);
        let mut same = writable.clone();
        same.restrict_to(&words);
        assert_eq!(same.rights(), writable.rights());
    }
}
