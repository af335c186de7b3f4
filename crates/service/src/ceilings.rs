//! The limits that the two ends of a transfer must keep. Both ends send theirs in the handshake, so
//! that both plan with the lower ones. Each end enforces its own limits, whatever the other end
//! does.

use packtrain_transfer::{Failure, FailureKind};
use packtrain_units::{DataRate, Duration};
use serde::{Deserialize, Serialize};

use packtrain_identity::config::TRANSPORTS;

/// The lowest rate that a caller may name. Below it the smallest piece of data (4 KiB) takes longer
/// than half a minute.
pub const MIN_RATE: DataRate = DataRate::from_bps(1_000);
/// Maximum burst of a sender after a pause, as a span of its rate.
pub const SEND_BURST: Duration = Duration::from_millis(20);
/// Maximum burst that a receiver accepts. It is larger, because queues on the path compress bursts.
pub const RECEIVE_BURST: Duration = Duration::from_millis(200);
/// A transfer counts as limited by a rate ceiling if the ceiling applied for at least this share of
/// its time.
pub const HELD_SHARE: f64 = 0.1;

/// Limits of one end. `None` means no limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ceilings {
    /// The highest rate of a transfer, in either direction, in bits per second.
    pub rate_bps: Option<u64>,
    /// Maximum number of parallel streams or flows.
    pub streams: Option<u32>,
    /// The allowed transports, by their names on the command line.
    pub transports: Option<Vec<String>>,
}

/// What limited the rate of a transfer, as seen from one of its ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HeldBy {
    /// The user's `--rate`.
    Rate,
    /// The policy of this end, or its server's `--rate`.
    Policy,
    /// The policy of the other end.
    Peer,
}

impl HeldBy {
    /// The value in the history.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Rate => "rate",
            Self::Policy => "policy",
            Self::Peer => "peer-policy",
        }
    }

    /// The same limit, as seen from the other end.
    pub const fn seen_from_peer(self) -> Self {
        match self {
            Self::Rate => Self::Rate,
            Self::Policy => Self::Peer,
            Self::Peer => Self::Policy,
        }
    }
}

impl Ceilings {
    /// Encodes the limits for the wire.
    pub fn encode(&self) -> Vec<u8> {
        // Serialising plain values to memory cannot fail.
        postcard::to_stdvec(self).unwrap_or_default()
    }

    /// Decodes the limits of the other end.
    ///
    /// # Errors
    /// The bytes are malformed.
    pub fn decode(bytes: &[u8]) -> Result<Self, Failure> {
        postcard::from_bytes::<Self>(bytes).map(Self::checked).map_err(|_| {
            Failure::new(FailureKind::Protocol, "the other end's limits are malformed")
        })
    }

    /// Removes unknown transport names, and limits of zero, which no policy can contain.
    pub fn checked(mut self) -> Self {
        self.rate_bps = self.rate_bps.map(|rate| rate.max(1));
        self.streams = self.streams.map(|streams| streams.max(1));
        if let Some(names) = &mut self.transports {
            let listed = |known: &&str| names.iter().any(|name| name == known);
            let known = TRANSPORTS.into_iter().filter(listed);
            *names = known.map(str::to_owned).collect();
        }
        self
    }

    /// The lower of each limit.
    pub fn and(&self, other: &Self) -> Self {
        let transports = match (&self.transports, &other.transports) {
            (Some(one), Some(two)) => {
                Some(one.iter().filter(|name| two.contains(name)).cloned().collect())
            }
            (one, two) => one.clone().or_else(|| two.clone()),
        };
        Self {
            rate_bps: self.rate_bps.into_iter().chain(other.rate_bps).min(),
            streams: self.streams.into_iter().chain(other.streams).min(),
            transports,
        }
    }

    /// The rate to keep and its origin, when the user requested `asked`. Of equal rates the
    /// policy's counts, because the command has already applied its own policy to the requested
    /// rate.
    pub fn rate(&self, peer: &Self, asked: Option<u64>) -> Option<(u64, HeldBy)> {
        let own = self.rate_bps.map(|rate| (rate, HeldBy::Policy));
        let peer = peer.rate_bps.map(|rate| (rate, HeldBy::Peer));
        let asked = asked.map(|rate| (rate, HeldBy::Rate));
        own.into_iter().chain(peer).chain(asked).min_by_key(|(rate, _)| *rate)
    }

    /// A notice of the other end's limits that are lower than the plans of this end. `rate_bps` and
    /// `streams` are those plans, `None` for unlimited. `None` if no limit is lower.
    pub fn notice(
        &self,
        own: &Self,
        rate_bps: Option<u64>,
        streams: Option<u32>,
    ) -> Option<String> {
        let rate = self.rate_bps.filter(|most| {
            rate_bps.into_iter().chain(own.rate_bps).min().is_none_or(|rate| rate > *most)
        });
        let streams = self.streams.filter(|most| {
            streams.into_iter().chain(own.streams).min().is_none_or(|streams| streams > *most)
        });
        let transports = self.transports.as_ref().filter(|_| own.and(self) != *own);
        let parts = [
            rate.map(|rate| format!("at most {}", DataRate::from_bps(rate))),
            streams.map(|n| format!("at most {n} stream{}", if n == 1 { "" } else { "s" })),
            transports.map(|names| format!("only --transport {}", names.join(" or "))),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        let text = format!("limited by the server's policy: {}", parts.join(", "));
        (!parts.is_empty()).then_some(text)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ceilings(rate: Option<u64>, streams: Option<u32>, transports: Option<&[&str]>) -> Ceilings {
        let transports =
            transports.map(|names| names.iter().map(|&name| name.to_owned()).collect());
        Ceilings { rate_bps: rate, streams, transports }
    }

    #[test]
    fn the_lower_of_each_limit_holds() {
        let one = ceilings(Some(20), None, Some(&["native", "tcp"]));
        let two = ceilings(Some(30), Some(2), Some(&["tcp", "pipe"]));
        assert_eq!(one.and(&two), ceilings(Some(20), Some(2), Some(&["tcp"])));
        assert_eq!(one.and(&two), two.and(&one));
        assert_eq!(one.and(&Ceilings::default()), one);
        assert_eq!(one.rate(&two, None), Some((20, HeldBy::Policy)));
        assert_eq!(two.rate(&one, Some(25)), Some((20, HeldBy::Peer)));
        assert_eq!(two.rate(&one, Some(5)), Some((5, HeldBy::Rate)));
        assert_eq!(two.rate(&one, Some(20)), Some((20, HeldBy::Peer)));
        assert_eq!(Ceilings::default().rate(&Ceilings::default(), None), None);
    }

    #[test]
    fn only_limits_that_change_something_are_told() {
        let server = ceilings(Some(20_000_000), Some(2), Some(&["tcp"]));
        let none = Ceilings::default();
        let text = server.notice(&none, None, None).unwrap();
        let want = "limited by the server's policy: at most 20.0 Mbit/s, at most 2 streams, only \
                    --transport tcp";
        assert_eq!(text, want);
        assert_eq!(none.notice(&none, None, None), None);
        let own = ceilings(Some(1_000_000), Some(1), Some(&["tcp"]));
        assert_eq!(server.notice(&own, None, None), None);
        let lower = ceilings(Some(20_000_000), Some(2), None);
        assert_eq!(lower.notice(&none, Some(20_000_000), Some(2)), None);
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_read(
            rate in proptest::option::of(1u64..), streams in proptest::option::of(1u32..),
            names in proptest::option::of(proptest::sample::subsequence(TRANSPORTS.to_vec(), 0..7)),
        ) {
            let told = ceilings(rate, streams, names.as_deref());
            prop_assert_eq!(Ceilings::decode(&told.encode()).unwrap(), told);
        }

        #[test]
        fn whatever_is_told_makes_no_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            if let Ok(told) = Ceilings::decode(&bytes) {
                prop_assert!(told.rate_bps != Some(0) && told.streams != Some(0));
            }
        }
    }
}
