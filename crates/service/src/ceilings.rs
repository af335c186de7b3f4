//! The limits that the two ends of a transfer have to keep, told in the handshake so that both plan
//! with the lower ones. Each end enforces its own, whatever the other one does.

use packtrain_transfer::{Failure, FailureKind};
use packtrain_units::{DataRate, Duration};
use serde::{Deserialize, Serialize};

use packtrain_identity::config::TRANSPORTS;

/// What a sender may send at once after a pause, as a span of its rate.
pub const SEND_BURST: Duration = Duration::from_millis(20);
/// The same of a receiver, which must not refuse what queues on the way have pressed together.
pub const RECEIVE_BURST: Duration = Duration::from_millis(200);
/// A transfer counts as limited by a rate ceiling if it was for this share of its time.
pub const HELD: f64 = 0.1;

/// Limits of one end. A limit that is none does not limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ceilings {
    /// The highest rate of a transfer, in either direction.
    pub rate_bps: Option<u64>,
    /// The most streams or flows side by side.
    pub streams: Option<u32>,
    /// The transports that are allowed, by their names on the command line.
    pub transports: Option<Vec<String>>,
}

/// What limited the rate of a transfer, seen from one of its ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HeldBy {
    /// The user's `--rate`.
    Rate,
    /// This end's policy, or its server's `--rate`.
    Policy,
    /// The other end's.
    Peer,
}

impl HeldBy {
    /// Its word in the history.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Rate => "rate",
            Self::Policy => "policy",
            Self::Peer => "peer-policy",
        }
    }

    /// The same, seen from the other end.
    pub const fn seen_from_peer(self) -> Self {
        match self {
            Self::Rate => Self::Rate,
            Self::Policy => Self::Peer,
            Self::Peer => Self::Policy,
        }
    }
}

impl Ceilings {
    /// For the wire.
    pub fn encode(&self) -> Vec<u8> {
        // Serialising plain values into memory cannot fail.
        postcard::to_stdvec(self).unwrap_or_default()
    }

    /// Reads what the other end told.
    ///
    /// # Errors
    /// It is unintelligible.
    pub fn decode(bytes: &[u8]) -> Result<Self, Failure> {
        postcard::from_bytes::<Self>(bytes).map(Self::checked).map_err(|_| {
            Failure::new(FailureKind::Protocol, "the other end's limits are unintelligible")
        })
    }

    /// Without what no policy can say: names that are none, and zeros.
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

    /// The rate to keep to and whose it is, where the user asked for `asked`. Of equal rates the
    /// policy's counts, since the command has applied its own to what was asked.
    pub fn rate(&self, peer: &Self, asked: Option<u64>) -> Option<(u64, HeldBy)> {
        let own = self.rate_bps.map(|rate| (rate, HeldBy::Policy));
        let peer = peer.rate_bps.map(|rate| (rate, HeldBy::Peer));
        let asked = asked.map(|rate| (rate, HeldBy::Rate));
        own.into_iter().chain(peer).chain(asked).min_by_key(|(rate, _)| *rate)
    }

    /// What of the other end's limits is lower than what this end would do: `rate_bps` and
    /// `streams` are what it would, none for as much as there is. None if nothing is.
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
